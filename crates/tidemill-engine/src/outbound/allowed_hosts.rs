//! Which hosts a tenant may have called.

use std::net::IpAddr;

/// Hosts that callbacks may call. Without any, none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<Allowed>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Allowed {
    /// In small letters; `.example.com` stands for all below it.
    host: String,
    port: Option<u16>,
}

impl AllowedHosts {
    /// A list with commas: `hooks.example.com`, `*.example.com`, `127.0.0.1:8080`, `[::1]:8080`.
    pub fn parse(text: &str) -> Self {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        Self(entries.map(Allowed::parse).collect())
    }

    /// Whether the list has a host, given in small letters and without brackets.
    pub fn admits(&self, host: &str, port: u16) -> bool {
        self.0.iter().any(|allowed| allowed.admits(host, port))
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
        let host = host.trim_start_matches('[').trim_end_matches(']');
        // An address can be written in many ways.
        let host = match host.parse::<IpAddr>() {
            Ok(address) => address.to_string(),
            Err(_) if host.starts_with("*.") => host[1..].to_owned(),
            Err(_) => host.to_owned(),
        };
        Self { host, port }
    }

    fn admits(&self, host: &str, port: u16) -> bool {
        let is_host = if self.host.starts_with('.') { host.ends_with(&self.host) } else { host == self.host };
        is_host && self.port.is_none_or(|own| own == port)
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::CallbackUrl;

    use super::*;

    #[test]
    fn hosts_are_called_if_they_are_listed() {
        let hosts = AllowedHosts::parse("Hooks.example.com, *.acme.test,127.0.0.1:81,[0::1]:82 ,,*,fe80::9");
        for (url, expected) in [
            ("https://hooks.example.com/a", true),
            ("https://HOOKS.example.com:8443/a", true),
            ("https://hooks.example.com.evil.test/", false),
            ("https://evilhooks.example.com/", false),
            ("http://a.acme.test", true),
            ("http://a.b.acme.test", true),
            ("http://acme.test", false),
            ("http://evilacme.test", false),
            ("http://127.0.0.1:81/x", true),
            ("http://127.0.0.1:80/x", false),
            ("http://127.0.0.1/x", false),
            ("http://127.1:81/x", false),
            ("http://2130706433:81/x", false),
            ("http://[::ffff:127.0.0.1]:81/x", false),
            ("http://[0:0::1]:82/x", true),
            ("http://[fe80::9]:7/x", true),
            ("http://localhost:81/", false),
        ] {
            let url = CallbackUrl::new(url).unwrap();
            assert_eq!(hosts.admits(url.host(), url.port()), expected, "{url}");
        }
        assert!(!AllowedHosts::default().admits("a", 80));
        assert!(!AllowedHosts::parse(" , ").admits("", 80));
    }
}
