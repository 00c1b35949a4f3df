//! The door of a server without keys.
//!
//! Whoever can reach it is the local user. A web page in that user's browser can reach it too, so a request must name
//! this machine as its host and, if it names an origin, the same. That stops pages of other sites and names that were
//! bent to point here.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

use crate::connection::Connection;
use crate::problem::Problem;

/// Whether a request over `connection` is from the local user.
pub(crate) fn check(connection: Connection, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let local = connection.local;
    if !local.ip().is_loopback() {
        return Err(Problem::forbidden(
            "KEYS_NEEDED",
            "without API keys the server answers on loopback addresses only",
        ));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        // HTTP/1.0 has no Host; a target in absolute form has it within.
        (None, _) => uri.authority().map_or("", |authority| authority.as_str()),
        (Some(_), Some(_)) => "",
    };
    if !is_this_machine(host, local.port()) {
        return Err(Problem::forbidden(
            "FOREIGN_HOST",
            format!("the Host header must be localhost, 127.0.0.1 or [::1] with port {}", local.port()),
        ));
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    let same = match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => {
            origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://")) == Some(host)
        }
        (Some(_), Some(_)) => false,
    };
    if !same {
        return Err(Problem::forbidden("FOREIGN_ORIGIN", "requests from pages of other origins are refused"));
    }
    Ok(())
}

fn is_this_machine(host: &str, port: u16) -> bool {
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| {
        let Some((given, rest)) = host.split_at_checked(name.len()) else { return false };
        let port_fits = match rest.strip_prefix(':') {
            Some(digits) => digits == port.to_string(),
            None => rest.is_empty() && port == 80,
        };
        given.eq_ignore_ascii_case(name) && port_fits
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn verdict(local: &str, host: Option<&str>, origin: Option<&str>) -> &'static str {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        let connection = Connection { local: local.parse::<SocketAddr>().unwrap() };
        match check(connection, &Uri::from_static("/v1/jobs"), &headers) {
            Ok(()) => "ok",
            Err(problem) => match &*problem.code {
                "KEYS_NEEDED" => "keys",
                "FOREIGN_HOST" => "host",
                "FOREIGN_ORIGIN" => "origin",
                _ => "other",
            },
        }
    }

    #[test]
    fn only_this_machine_and_its_own_pages_come_in() {
        let here = "127.0.0.1:7070";
        for (local, host, origin, expected) in [
            (here, Some("localhost:7070"), None, "ok"),
            (here, Some("LocalHost:7070"), None, "ok"),
            (here, Some("127.0.0.1:7070"), None, "ok"),
            ("[::1]:7070", Some("[::1]:7070"), None, "ok"),
            ("127.0.0.1:80", Some("localhost"), None, "ok"),
            (here, Some("localhost"), None, "host"),
            (here, Some("localhost:7071"), None, "host"),
            (here, Some("localhost:07070"), None, "host"),
            (here, Some("localhost.evil.example:7070"), None, "host"),
            (here, Some("evil.example:7070"), None, "host"),
            (here, Some("127.0.0.2:7070"), None, "host"),
            (here, None, None, "host"),
            (here, Some(""), None, "host"),
            (here, Some("localhost:7070"), Some("http://localhost:7070"), "ok"),
            (here, Some("localhost:7070"), Some("http://127.0.0.1:7070"), "origin"),
            (here, Some("localhost:7070"), Some("https://localhost:7070"), "origin"),
            (here, Some("localhost:7070"), Some("http://localhost:8080"), "origin"),
            (here, Some("localhost:7070"), Some("null"), "origin"),
            (here, Some("localhost:7070"), Some("http://evil.example"), "origin"),
            ("192.0.2.1:7070", Some("localhost:7070"), None, "keys"),
        ] {
            assert_eq!(verdict(local, host, origin), expected, "{host:?} {origin:?} at {local}");
        }
    }
}
