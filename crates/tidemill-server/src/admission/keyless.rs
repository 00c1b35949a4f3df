//! The door of a server without keys.
//!
//! The user who made the socket at the other end is the local user, if it is the server's own user or root; all
//! others on this machine are strangers, and so is everybody behind a proxy. A web page in that user's browser can
//! reach the server too, so a request must name this machine as its host and, if it names an origin, the same. That
//! stops pages of other sites and names that were bent to point here.

use std::net::SocketAddr;

use axum::http::header::{FORWARDED, HOST, ORIGIN, VIA};
use axum::http::{HeaderMap, Method, Uri};
use rustix::process::geteuid;

use crate::connection::Connection;
use crate::problem::Problem;

/// Seconds after which a process without a file left to open may be asked again.
const RETRY_SECONDS: u64 = 1;

/// Whether a request over `connection` is from the local user.
pub(crate) fn check(
    connection: &Connection,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    check_loopback(connection.local)?;
    let owner = connection.other_end.owner().map_err(|_| {
        let detail = "the server has no file left to open, so it cannot tell whose connection this is";
        Problem::unavailable("TOO_MANY_CONNECTIONS", detail, RETRY_SECONDS)
    })?;
    check_owner(owner, geteuid().as_raw())?;
    check_request(connection.local, method, uri, headers)
}

fn check_loopback(local: SocketAddr) -> Result<(), Problem> {
    if local.ip().is_loopback() {
        return Ok(());
    }
    Err(Problem::forbidden("KEYS_NEEDED", "without API keys the server answers on loopback addresses only"))
}

/// Whether the user at the other end is the server's own or root.
fn check_owner(owner: Option<u32>, own: u32) -> Result<(), Problem> {
    if owner.is_some_and(|owner| owner == own || owner == 0) {
        return Ok(());
    }
    let who = match owner {
        Some(owner) => format!("this connection is of uid {owner}"),
        None => "nobody on this machine has this connection open".to_owned(),
    };
    let detail =
        format!("without API keys only the server's own user (uid {own}) and root may use it; {who}");
    Err(Problem::forbidden("FOREIGN_USER", detail))
}

/// Whether a request is the user's own, not that of a page or a proxy.
fn check_request(local: SocketAddr, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let is_forwarded = headers.keys().any(|name| {
        *name == FORWARDED || *name == VIA || name == "x-real-ip" || name.as_str().starts_with("x-forwarded-")
    });
    if is_forwarded {
        return Err(Problem::forbidden(
            "FORWARDED",
            "without API keys requests that came through a proxy are refused: nobody can tell whose they are",
        ));
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().unwrap_or_default(),
        // HTTP/1.0 has no Host; a target in absolute form has it within.
        (None, _) => uri.authority().map_or("", |authority| authority.as_str()),
        (Some(_), Some(_)) => "",
    };
    // A target in absolute form counts before the header, so it must be right as well.
    let target = uri.authority().map_or(host, |authority| authority.as_str());
    if ![host, target].iter().all(|host| is_this_machine(host, local.port())) {
        return Err(Problem::forbidden(
            "FOREIGN_HOST",
            format!("the host must be localhost, 127.0.0.1 or [::1] with port {}", local.port()),
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
    if !same || !is_own_fetch(method, headers) {
        return Err(Problem::forbidden("FOREIGN_ORIGIN", "requests from pages of other origins are refused"));
    }
    Ok(())
}

/// What browsers say of a request: nothing, that it is of our own page or the user's own doing, or that a link of
/// another site was followed.
fn is_own_fetch(method: &Method, headers: &HeaderMap) -> bool {
    let all = |name: &str, wanted: &[&str]| {
        headers.get_all(name).iter().all(|value| wanted.iter().any(|wanted| value == wanted))
    };
    let is_navigation = (method == Method::GET || method == Method::HEAD)
        && headers.contains_key("sec-fetch-mode")
        && all("sec-fetch-mode", &["navigate"])
        && all("sec-fetch-dest", &["document"]);
    all("sec-fetch-site", &["same-origin", "none"]) || is_navigation
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
    use super::*;

    fn code_of(verdict: Result<(), Problem>) -> String {
        verdict.map_or_else(|problem| problem.code.into_owned(), |()| "ok".to_owned())
    }

    fn verdict(local: &str, host: Option<&str>, origin: Option<&str>) -> &'static str {
        let mut headers = HeaderMap::new();
        if let Some(host) = host {
            headers.insert(HOST, host.parse().unwrap());
        }
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        let local = local.parse().unwrap();
        let checked = check_loopback(local)
            .and_then(|()| check_request(local, &Method::GET, &Uri::from_static("/v1/jobs"), &headers));
        match checked {
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

    #[test]
    fn a_target_in_absolute_form_names_this_machine_too() {
        let local = "127.0.0.1:7070".parse().unwrap();
        for (target, host, expected) in [
            ("http://localhost:7070/v1/jobs", Some("localhost:7070"), "ok"),
            ("http://127.0.0.1:7070/v1/jobs", Some("localhost:7070"), "ok"),
            ("http://localhost:7070/v1/jobs", None, "ok"),
            ("http://evil.example/v1/jobs", Some("localhost:7070"), "FOREIGN_HOST"),
            ("http://evil.example:7070/v1/jobs", Some("localhost:7070"), "FOREIGN_HOST"),
            ("http://localhost:7070@evil.example/v1/jobs", Some("localhost:7070"), "FOREIGN_HOST"),
            ("http://localhost:7070/v1/jobs", Some("evil.example:7070"), "FOREIGN_HOST"),
            ("http://evil.example/v1/jobs", None, "FOREIGN_HOST"),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(HOST, host.parse().unwrap());
            }
            let checked = check_request(local, &Method::GET, &Uri::from_static(target), &headers);
            assert_eq!(code_of(checked), expected, "{target} with {host:?}");
        }
    }

    #[test]
    fn only_the_servers_own_user_and_root_come_in() {
        for (owner, own, expected) in [
            (Some(1000), 1000, "ok"),
            (Some(0), 1000, "ok"),
            (Some(1001), 1000, "FOREIGN_USER"),
            (Some(0), 0, "ok"),
            (Some(1000), 0, "FOREIGN_USER"),
            (None, 1000, "FOREIGN_USER"),
            (None, 0, "FOREIGN_USER"),
        ] {
            assert_eq!(code_of(check_owner(owner, own)), expected, "{owner:?} at a server of {own}");
        }
    }

    #[test]
    fn proxies_and_pages_of_other_sites_are_refused() {
        let (get, post) = (Method::GET, Method::POST);
        for (method, headers, expected) in [
            (&get, "forwarded: for=192.0.2.1", "FORWARDED"),
            (&get, "x-forwarded-for: 192.0.2.1", "FORWARDED"),
            (&get, "X-Forwarded-Proto: https", "FORWARDED"),
            (&get, "x-real-ip: 127.0.0.1", "FORWARDED"),
            (&get, "via: 1.1 proxy", "FORWARDED"),
            (&get, "sec-fetch-site: same-origin, sec-fetch-mode: cors", "ok"),
            (&post, "sec-fetch-site: same-origin, sec-fetch-mode: navigate", "ok"),
            (&get, "sec-fetch-site: none, sec-fetch-mode: navigate", "ok"),
            (&get, "sec-fetch-site: cross-site, sec-fetch-mode: navigate, sec-fetch-dest: document", "ok"),
            (&get, "sec-fetch-site: same-site, sec-fetch-mode: navigate", "ok"),
            (
                &get,
                "sec-fetch-site: cross-site, sec-fetch-mode: navigate, sec-fetch-dest: iframe",
                "FOREIGN_ORIGIN",
            ),
            (&post, "sec-fetch-site: cross-site, sec-fetch-mode: navigate", "FOREIGN_ORIGIN"),
            (&get, "sec-fetch-site: cross-site, sec-fetch-mode: no-cors", "FOREIGN_ORIGIN"),
            (&get, "sec-fetch-site: same-site, sec-fetch-mode: no-cors", "FOREIGN_ORIGIN"),
            (&get, "sec-fetch-site: cross-site", "FOREIGN_ORIGIN"),
            (&get, "sec-fetch-site: same-origin, sec-fetch-site: cross-site", "FOREIGN_ORIGIN"),
        ] {
            let mut given = HeaderMap::new();
            given.insert(HOST, "localhost:7070".parse().unwrap());
            for header in headers.split(", ") {
                let (name, value) = header.split_once(": ").unwrap();
                given.append(axum::http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
            }
            let local = "127.0.0.1:7070".parse().unwrap();
            let checked = check_request(local, method, &Uri::from_static("/jobs"), &given);
            assert_eq!(code_of(checked), expected, "{method} {headers}");
        }
    }
}
