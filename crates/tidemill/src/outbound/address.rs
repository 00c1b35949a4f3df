//! Which addresses a tenant may have called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::Uri;

/// Hosts that callbacks may call. Without any, none.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedHosts(Vec<Allowed>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    /// In small letters; `.example.com` stands for all below it.
    host: String,
    port: Option<u16>,
}

/// What a host may resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// The operator named it.
    Anything,
    /// A tenant named it.
    Public,
}

impl AllowedHosts {
    /// A list with commas: `hooks.example.com`, `*.example.com`, `127.0.0.1:8080`.
    pub(crate) fn parse(text: &str) -> Self {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Self(entries.map(Allowed::parse).collect())
    }

    /// What an address on the list may resolve to; an error says why it may not be called.
    ///
    /// An IP address that the operator put on the list may be any; a name may stand for public ones only.
    pub(super) fn guard(&self, uri: &Uri) -> Result<Guard, String> {
        let host = host_of(uri).ok_or("the address has no host")?;
        let port = port_of(uri);
        let found = self.0.iter().find(|allowed| allowed.admits(&host, port));
        let Some(_) = found else { return Err(format!("{host} is not on CALLBACK_ALLOWED_HOSTS")) };
        Ok(if host.parse::<IpAddr>().is_ok() { Guard::Anything } else { Guard::Public })
    }
}

impl Allowed {
    fn parse(entry: &str) -> Self {
        let entry = entry.to_ascii_lowercase();
        let (host, port) = match entry.rsplit_once(':') {
            // An IPv6 address holds colons of its own and needs brackets before a port.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse() {
                Ok(port) => (host, Some(port)),
                Err(_) => (entry.as_str(), None),
            },
            _ => (entry.as_str(), None),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').trim_start_matches('*');
        Self { host: host.to_owned(), port }
    }

    fn admits(&self, host: &str, port: u16) -> bool {
        let is_host = if self.host.starts_with('.') { host.ends_with(&self.host) } else { host == self.host };
        is_host && self.port.is_none_or(|own| own == port)
    }
}

/// The host in small letters, without brackets and without a dot at its end.
fn host_of(uri: &Uri) -> Option<String> {
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

fn port_of(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 })
}

impl Guard {
    pub(super) fn admits(self, address: IpAddr) -> bool {
        self == Self::Anything || is_public(address)
    }
}

/// Whether an address belongs to the open internet, in whatever form it is written.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !(a == 0
        || a >= 224
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (18..20).contains(&b)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let last = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        // Mapped, translated by a gateway, and carried within others.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => last(high, low),
        [0x2001, 0xdb8, ..] => false,
        // Only these are given out: all others are local, reserved, or for many at a time.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_open_internet_is_public() {
        for (text, expected) in [
            ("93.184.216.34", true),
            ("1.1.1.1", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("10.0.0.1", false),
            ("172.16.0.1", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("100.128.0.1", true),
            ("0.0.0.0", false),
            ("192.0.0.8", false),
            ("198.18.0.1", false),
            ("203.0.113.7", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700:4700::1111", true),
            ("::1", false),
            ("::", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:1.1.1.1", true),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("2002:7f00:1::", false),
            ("2002:0101:0101::", true),
            ("2001:db8::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(text.parse().unwrap()), expected, "{text}");
            assert!(Guard::Anything.admits(text.parse().unwrap()));
        }
    }

    #[test]
    fn hosts_are_called_if_they_are_listed() {
        let hosts = AllowedHosts::parse("Hooks.example.com, *.acme.test,127.0.0.1:81,[::1]:82 ,,");
        for (url, expected) in [
            ("https://hooks.example.com/a", Some(Guard::Public)),
            ("https://HOOKS.example.com.:8443/a", Some(Guard::Public)),
            ("https://hooks.example.com.evil.test/", None),
            ("https://evilhooks.example.com/", None),
            ("http://a.acme.test", Some(Guard::Public)),
            ("http://a.b.acme.test", Some(Guard::Public)),
            ("http://acme.test", None),
            ("http://evilacme.test", None),
            ("http://127.0.0.1:81/x", Some(Guard::Anything)),
            ("http://127.0.0.1:80/x", None),
            ("http://127.0.0.1/x", None),
            ("http://[::1]:82/x", Some(Guard::Anything)),
            ("http://localhost:81/", None),
        ] {
            let found = hosts.guard(&url.parse().unwrap());
            assert_eq!(found.clone().ok(), expected, "{url}: {found:?}");
        }
        assert!(AllowedHosts::default().guard(&"http://a".parse().unwrap()).is_err());
    }
}
