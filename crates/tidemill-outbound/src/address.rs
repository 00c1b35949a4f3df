//! Which addresses a tenant may have called.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tidemill_engine::outbound::AllowedHosts;
use tidemill_model::CallbackUrl;

/// What a host may resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// The operator named it.
    Anything,
    /// A tenant named it.
    Public,
}

/// What an address that came with a job may resolve to; an error says why it may not be called.
///
/// An IP address that the operator put on the list may be any; a name may stand for public ones only.
pub(crate) fn guard_of(hosts: &AllowedHosts, url: &CallbackUrl) -> Result<Guard, String> {
    if !hosts.admits(url.host(), url.port()) {
        return Err(format!("{} is not on CALLBACK_ALLOWED_HOSTS", url.host()));
    }
    Ok(if url.host().parse::<IpAddr>().is_ok() { Guard::Anything } else { Guard::Public })
}

impl Guard {
    pub(crate) fn admits(self, address: IpAddr) -> bool {
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
        || (a == 192 && b == 88 && c == 99)
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
        // For protocols, among them Teredo that carries others within it, and for documentation.
        [0x2001, ..=0x1ff | 0xdb8, ..] | [0x3fff, ..=0xfff, ..] => false,
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
            ("2001:0:7f00:1::", false),
            ("2001:10::1", false),
            ("2001:1ff::1", false),
            ("2001:200::1", true),
            ("3fff:fff::1", false),
            ("3fff:1000::1", true),
            ("64:ff9b:1::7f00:1", false),
            ("100::1", false),
            ("fec0::1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:0:127.0.0.1", false),
            ("192.88.99.1", false),
            ("240.0.0.1", false),
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
    fn names_stand_for_public_addresses_and_listed_ones_for_themselves() {
        let hosts = AllowedHosts::parse("hooks.example.com,127.0.0.1:81,[::1]:82,127.1,0x7f.1");
        for (url, expected) in [
            ("https://hooks.example.com/a", Some(Guard::Public)),
            ("https://evil.example.com/a", None),
            ("http://127.0.0.1:81/x", Some(Guard::Anything)),
            ("http://127.0.0.1:80/x", None),
            ("http://[::1]:82/x", Some(Guard::Anything)),
            ("http://[::ffff:127.0.0.1]:81/x", None),
            // Resolvers take these for addresses, so what they give is looked at.
            ("http://127.1/x", Some(Guard::Public)),
            ("http://0x7f.1/x", Some(Guard::Public)),
            ("http://2130706433:81/x", None),
        ] {
            let found = guard_of(&hosts, &CallbackUrl::new(url).unwrap());
            assert_eq!(found.clone().ok(), expected, "{url}: {found:?}");
        }
        let none = AllowedHosts::default();
        assert!(guard_of(&none, &CallbackUrl::new("http://a").unwrap()).is_err());
    }

    /// What is checked and what is called are read by different readers: both must find the same.
    #[test]
    fn both_readers_of_addresses_find_the_same_host() {
        for text in [
            "http://a",
            "https://Hooks.Example.com/x?y=%20&z=[1]",
            "HTTPS://a.example:8443",
            "http://127.0.0.1:81/a@b:c",
            "http://[::FFFF:127.0.0.1]:82/",
            "http://[2001:db8::1]?q",
            "https://a?b@c",
            "http://a_b-c.d:65535/!$&'()*+,;=~",
        ] {
            let url = CallbackUrl::new(text).unwrap();
            let uri: axum::http::Uri = text.parse().unwrap();
            let host = uri.host().unwrap().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
            assert_eq!(host, url.host(), "{text}");
            let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            assert_eq!(uri.port_u16().unwrap_or(usual), url.port(), "{text}");
        }
    }
}
