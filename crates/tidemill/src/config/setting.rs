//! One thing that can be set.

use std::fmt;
use std::net::SocketAddr;

use tidemill_engine::outbound::JobFailedAlerts;
use tidemill_model::TaskSecrets;
use tidemill_model::security::secrets::is_secret_name;
use tidemill_model::values::span;

use super::table::SETTINGS;
use super::user::user;
use crate::logging;
use crate::traces::parse_headers;

/// A name, what it may be, and what it is when nobody says.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// Other names that mean the same.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) kind: Kind,
    pub(crate) default: Option<&'static str>,
    /// What it is in production when nobody says, if that is something else.
    pub(crate) in_prod: Option<&'static str>,
    /// Whether its value is shown to nobody.
    pub(crate) secret: bool,
    pub(crate) used: Use,
    pub(crate) about: &'static str,
}

/// Whether it has an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// This release.
    Now,
    /// Nobody ever: it is accepted for the sake of old configurations, with a warning.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    /// Letters, digits, `_` and `-`.
    Id,
    Flag,
    Number {
        min: u64,
        max: u64,
    },
    /// A number is milliseconds; `30s`, `5m`, `2h` mean what they say.
    Millis {
        min: u64,
        max: u64,
    },
    /// `http://` or `https://`.
    Url,
    /// An address and a port.
    Address,
    /// A user of this machine.
    User,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some of these words, with commas between them.
    Words(&'static [&'static str]),
    /// Headers of HTTP.
    Headers,
    /// Names of variables that tasks may be given.
    Secrets,
    /// Which jobs by their names.
    JobNames,
    /// Which lines of the log are shown.
    LogFilter,
}

/// Whether a variable of this name holds a secret. The table knows of each setting; a list of names is none, though the name of
/// `TASK_SECRETS` sounds like one.
pub(crate) fn names_secret(name: &str) -> bool {
    let setting = SETTINGS.iter().find(|setting| setting.name == name || setting.aliases.contains(&name));
    setting.map_or_else(|| is_secret_name(name), |setting| setting.secret)
}

impl Kind {
    /// What is wrong with a value.
    pub(crate) fn check(self, text: &str) -> Result<(), String> {
        let fits = match self {
            Self::Text => true,
            Self::Id => is_id(text),
            Self::Flag => flag(text).is_some(),
            Self::Number { min, max } => text.parse().is_ok_and(|number| (min..=max).contains(&number)),
            Self::Millis { min, max } => millis(text).is_some_and(|number| (min..=max).contains(&number)),
            Self::Url => is_url(text),
            Self::Address => address(text).is_some(),
            Self::User => user(text).is_some(),
            Self::Choice(words) => words.contains(&text),
            Self::Words(words) => text.split(',').all(|word| words.contains(&word.trim())),
            Self::Headers => parse_headers(text).is_some(),
            Self::JobNames => {
                let problem = JobFailedAlerts::problem_of(text);
                return problem.map_or(Ok(()), |problem| Err(format!("{self}; it {problem}")));
            }
            Self::LogFilter => logging::filter(text).is_some(),
            Self::Secrets => {
                return task_secrets(text).map(drop).map_err(|problem| format!("{self}; it {problem}"));
            }
        };
        if fits { Ok(()) } else { Err(self.to_string()) }
    }

    /// Whether two texts mean the same.
    pub(crate) fn is_same(self, one: &str, other: &str) -> bool {
        let is_read_alike = match self {
            Self::Flag => flag(one).is_some() && flag(one) == flag(other),
            Self::Number { .. } => {
                let number = |text: &str| text.parse::<u64>().ok();
                number(one).is_some() && number(one) == number(other)
            }
            Self::Millis { .. } => millis(one).is_some() && millis(one) == millis(other),
            Self::Address => address(one).is_some() && address(one) == address(other),
            _ => false,
        };
        one == other || is_read_alike
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Id => f.write_str("1 to 256 letters, digits, _ and -"),
            Self::Flag => f.write_str("true or false"),
            Self::Number { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Millis { min, max } => {
                write!(f, "milliseconds from {min} to {max}, or a time such as 30s, 5m or 2h")
            }
            Self::Url => f.write_str("a URL that begins with http:// or https://"),
            Self::Address => f.write_str("an address with a port, such as 127.0.0.1:7070"),
            Self::User => f.write_str("a user of this machine, or UID:GID"),
            Self::Choice(words) => write!(f, "one of {}", words.join(", ")),
            Self::Words(words) => write!(f, "some of {}, with commas between them", words.join(", ")),
            Self::Headers => f.write_str("headers such as name=value,name=value"),
            Self::JobNames => f.write_str("names of jobs such as nightly,etl-*,TENANT/NAME"),
            Self::Secrets => f.write_str("names such as NAME,tenant:NAME"),
            Self::LogFilter => f.write_str(
                "one of error, warn, info, debug, trace, off, or parts with a level such as info,tidemill_worker=debug",
            ),
        }
    }
}

fn is_id(text: &str) -> bool {
    (1..=256).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

fn is_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && text.parse::<axum::http::Uri>().is_ok()
}

/// The variables that tasks may be given. Settings of our own are never among them.
pub(super) fn task_secrets(text: &str) -> Result<TaskSecrets, String> {
    TaskSecrets::parse(text, is_setting)
}

/// Whether this is the name of something that can be set.
pub(crate) fn is_setting(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == name || setting.aliases.contains(&name))
}

/// An address; `localhost` is the one of this machine.
pub(super) fn address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?))),
        None => text.parse().ok(),
    }
}

pub(super) fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" => Some(true),
        "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

/// Milliseconds, from a number or a number with a unit.
pub(super) fn millis(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| span::parse_text(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_take_what_they_say() {
        let number = Kind::Number { min: 1, max: 10 };
        let millis = Kind::Millis { min: 1_000, max: 60_000 };
        for (kind, good, bad) in [
            (number, &["1", "10"][..], &["0", "11", "-1", "1.5", "", "a"][..]),
            (millis, &["1000", "1s", "1m", "1500ms"], &["999", "2m", "s", "1 s", "99999999999999999999d"]),
            (Kind::Words(&["a", "b"]), &["a", "a, b", "b,a"], &["", "a,", "a b", "c"]),
            (Kind::Flag, &["true", "FALSE", "1", "no"], &["maybe", "2"]),
            (Kind::Id, &["a", "task-workflow", "A_9"], &["a b", "a#b", ""]),
            (Kind::Url, &["http://a", "https://a.b:1/c"], &["a", "ftp://a", "http://", "http:///x"]),
            (
                Kind::Address,
                &["127.0.0.1:0", "[::1]:7070", "localhost:80"],
                &["localhost", "1.2.3.4", ":80", "localhost:x"],
            ),
        ] {
            for text in good {
                assert_eq!(kind.check(text), Ok(()), "{text}");
            }
            for text in bad {
                assert!(kind.check(text).is_err(), "{kind}: {text}");
            }
        }
    }
}
