//! The address by which a caller knows this server, for examples that can be pasted.

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue};

/// What examples name when a caller does not say where it is.
const OTHERWISE: &str = "http://127.0.0.1:7070";

/// What a request says of it. Only the caller itself reads what is made of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerAddress {
    host: Option<HeaderValue>,
    /// What a proxy in front of the server was asked by.
    scheme: Option<HeaderValue>,
}

impl ServerAddress {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self { host: headers.get(HOST).cloned(), scheme: headers.get("x-forwarded-proto").cloned() }
    }

    /// Such as `http://127.0.0.1:7070`. It holds nothing that means something to a shell or a page.
    pub(crate) fn origin(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        let host = self.host.as_ref().and_then(|host| host.to_str().ok());
        let Some(host) = host.filter(|host| !host.is_empty() && host.chars().all(is_plain)) else {
            return OTHERWISE.to_owned();
        };
        let is_https = self.scheme.as_ref().is_some_and(|scheme| scheme == "https");
        format!("{}://{host}", if is_https { "https" } else { "http" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_as_far_as_it_is_plain() {
        for (host, scheme, expected) in [
            (None, None, OTHERWISE),
            (Some("localhost:7171"), None, "http://localhost:7171"),
            (Some("[::1]:7171"), Some("http"), "http://[::1]:7171"),
            (Some("mill.example.com"), Some("https"), "https://mill.example.com"),
            (Some("a;rm -rf"), None, OTHERWISE),
            (Some("a<b"), None, OTHERWISE),
            (Some("$(x)"), None, OTHERWISE),
        ] {
            let header = |text: &str| text.parse().unwrap();
            let address = ServerAddress { host: host.map(header), scheme: scheme.map(header) };
            assert_eq!(address.origin(), expected, "{host:?}");
        }
    }
}
