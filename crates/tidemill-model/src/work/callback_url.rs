//! An address that a client wants to be called at. The operator's list says whether it may be called.

use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// The bytes of an address.
pub const CALLBACK_URL_BYTES_MAX: usize = 2_048;

/// The longest name of a host, in bytes.
const HOST_BYTES_MAX: usize = 253;

/// An absolute address of the web, without a name and password and without a fragment.
///
/// What it may hold is less than what readers of addresses take, so that all of them find the same host in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackUrl {
    text: Arc<str>,
    host: String,
    port: u16,
}

/// Why a text is no such address. The message goes behind the name of its field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCallbackUrl {
    #[error("is {0} bytes; the limit is {CALLBACK_URL_BYTES_MAX}")]
    TooLong(usize),
    #[error("must begin with http:// or https://")]
    Scheme,
    #[error("holds {0:?}, which an address cannot hold unescaped")]
    Character(char),
    #[error("holds a name or password; use a signing key")]
    Credentials,
    #[error("has no host that can be called")]
    Host,
    #[error("has a port that is none from 1 to 65535")]
    Port,
}

impl CallbackUrl {
    pub fn new(text: &str) -> Result<Self, BadCallbackUrl> {
        if text.len() > CALLBACK_URL_BYTES_MAX {
            return Err(BadCallbackUrl::TooLong(text.len()));
        }
        let (scheme, rest) = text.split_once("://").ok_or(BadCallbackUrl::Scheme)?;
        let port = match scheme.to_ascii_lowercase().as_str() {
            "http" => 80,
            "https" => 443,
            _ => return Err(BadCallbackUrl::Scheme),
        };
        if let Some(bad) = rest.chars().find(|c| !is_plain(*c)) {
            return Err(BadCallbackUrl::Character(bad));
        }
        let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        if authority.contains('@') {
            return Err(BadCallbackUrl::Credentials);
        }
        let (host, port) = split_port(authority, port)?;
        Ok(Self { text: Arc::from(text), host: read_host(host)?, port })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// The host in small letters, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for CallbackUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Letters, digits and what RFC 3986 lets stand for itself, but for the beginning of a fragment.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._~:/?[]@!$&'()*+,;=%".contains(c)
}

fn split_port(authority: &str, usual: u16) -> Result<(&str, u16), BadCallbackUrl> {
    let end_of_host = authority.rfind(']').map_or(0, |at| at + 1);
    match authority[end_of_host..].find(':') {
        None => Ok((authority, usual)),
        Some(colon) => {
            let (host, port) = authority.split_at(end_of_host + colon);
            let digits = port[1..].bytes().all(|byte| byte.is_ascii_digit());
            let port = port[1..].parse().ok().filter(|port| digits && *port > 0);
            Ok((host, port.ok_or(BadCallbackUrl::Port)?))
        }
    }
}

fn read_host(host: &str) -> Result<String, BadCallbackUrl> {
    if let Some(inner) = host.strip_prefix('[') {
        let address = inner.strip_suffix(']').and_then(|inner| inner.parse::<Ipv6Addr>().ok());
        return address.map(|address| address.to_string()).ok_or(BadCallbackUrl::Host);
    }
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let is_host = host.len() <= HOST_BYTES_MAX && host.split('.').all(is_label);
    if is_host { Ok(host.to_ascii_lowercase()) } else { Err(BadCallbackUrl::Host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_web_are_read() {
        for (text, host, port) in [
            ("http://a", "a", 80),
            ("https://Hooks.Example.com/x?y=%20&z=[1]", "hooks.example.com", 443),
            ("HTTPS://a.example:8443", "a.example", 8_443),
            ("http://127.0.0.1:81/a@b:c", "127.0.0.1", 81),
            ("http://[::FFFF:127.0.0.1]:82/", "::ffff:127.0.0.1", 82),
            ("http://[2001:db8::1]?q", "2001:db8::1", 80),
            ("https://a?b@c", "a", 443),
        ] {
            let url = CallbackUrl::new(text).unwrap();
            assert_eq!((url.as_str(), url.host(), url.port()), (text, host, port));
        }
        let longest = format!("https://a/{}", "x".repeat(CALLBACK_URL_BYTES_MAX - 10));
        assert!(CallbackUrl::new(&longest).is_ok());
        let longer = format!("{longest}x");
        assert_eq!(CallbackUrl::new(&longer), Err(BadCallbackUrl::TooLong(CALLBACK_URL_BYTES_MAX + 1)));
    }

    #[test]
    fn all_else_is_refused() {
        use BadCallbackUrl::{Character, Credentials, Host, Port, Scheme};
        for (text, expected) in [
            ("", Scheme),
            ("example.com/x", Scheme),
            ("/x", Scheme),
            ("//a/x", Scheme),
            ("ftp://a", Scheme),
            ("file:///etc/passwd", Scheme),
            (" http://a", Scheme),
            ("http://", Host),
            ("http:///x", Host),
            ("http://?x", Host),
            ("http://:80", Host),
            ("http://a..b", Host),
            ("http://a.", Host),
            ("http://.a", Host),
            ("http://a%2eb", Host),
            ("http://[::1", Port),
            ("http://[fe80::1%25eth0]/", Host),
            ("http://[127.0.0.1]/", Host),
            ("http://[::1]x", Host),
            ("http://a:", Port),
            ("http://a:0", Port),
            ("http://a:65536", Port),
            ("http://a:+80", Port),
            ("http://a:80:81", Port),
            ("http://[::1]:x", Port),
            ("http://user@a", Credentials),
            ("http://user:secret@a/x", Credentials),
            ("http://listed.example:80@evil.example/", Credentials),
            ("http://a/x\r\nHost: evil", Character('\r')),
            ("http://a\nb", Character('\n')),
            ("http://a/ b", Character(' ')),
            ("http://a\\@evil.example/", Character('\\')),
            ("http://a/#x", Character('#')),
            ("http://ä.example", Character('ä')),
            ("http://a/\u{0}", Character('\u{0}')),
            ("http://a/{x}", Character('{')),
        ] {
            assert_eq!(CallbackUrl::new(text), Err(expected), "{text:?}");
        }
    }
}
