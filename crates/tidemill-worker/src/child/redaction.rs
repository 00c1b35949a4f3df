//! Takes the secrets that an agent was given out of all that it says and leaves.
//!
//! An agent can read its own environment and repeat it in a log, a result, a trace or a file. What drives the agent
//! cleans what it writes; this is the wall behind it, which nothing that the agent runs can get around.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use tidemill_model::sanitize::{REDACTED, SECRET_CHARS_MIN};
use tidemill_model::{Json, Runner};

use crate::source::Claim;

/// What the name of a secret holds.
const SECRET_WORDS: [&str; 4] = ["TOKEN", "SECRET", "KEY", "PASSWORD"];

/// The secrets of one attempt. Commands have none: what they print is theirs.
#[derive(Debug, Default)]
pub(crate) struct Redaction {
    /// The longest first, so that none hides a part of another.
    secrets: Vec<Vec<u8>>,
}

impl Redaction {
    /// The secrets among the variables that a child is given.
    pub(crate) fn of(claim: &Claim, env: &[(OsString, OsString)]) -> Self {
        if claim.execution.runner != Runner::Agent {
            return Self::default();
        }
        let is_secret = |name: &OsString| {
            name.to_str().is_some_and(|name| {
                let is_handed_over = claim.execution.secrets.iter().any(|secret| secret == name);
                is_handed_over || SECRET_WORDS.iter().any(|word| name.to_uppercase().contains(word))
            })
        };
        let values =
            env.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.as_bytes().to_vec());
        let mut secrets: Vec<_> = values.filter(|value| value.len() >= SECRET_CHARS_MIN).collect();
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Self { secrets }
    }

    /// The bytes without secrets.
    pub(crate) fn clean<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut clean = Cow::Borrowed(bytes);
        for secret in &self.secrets {
            if let Some(at) = find(&clean, secret) {
                clean = Cow::Owned(without(&clean, secret, at));
            }
        }
        clean
    }

    /// A JSON value without secrets; `None` when nothing sound is left of it.
    pub(crate) fn clean_json(&self, json: Json) -> Option<Json> {
        match self.clean(json.as_str().as_bytes()) {
            Cow::Borrowed(_) => Some(json),
            Cow::Owned(clean) => Json::parse(String::from_utf8(clean).ok()?).ok(),
        }
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

fn without(bytes: &[u8], secret: &[u8], first: usize) -> Vec<u8> {
    let mut clean = Vec::with_capacity(bytes.len());
    let (mut rest, mut next) = (bytes, Some(first));
    while let Some(at) = next {
        clean.extend_from_slice(&rest[..at]);
        clean.extend_from_slice(REDACTED.as_bytes());
        rest = &rest[at + secret.len()..];
        next = find(rest, secret);
    }
    clean.extend_from_slice(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redaction(secrets: &[&str]) -> Redaction {
        Redaction { secrets: secrets.iter().map(|secret| secret.as_bytes().to_vec()).collect() }
    }

    #[test]
    fn every_secret_is_taken_out_wherever_it_stands() {
        let redaction = redaction(&["oauth-secret-longer", "oauth-secret"]);
        for (text, expected) in [
            ("nothing", "nothing"),
            ("oauth-secret", "[REDACTED]"),
            ("a oauth-secretoauth-secret-longer z", "a [REDACTED][REDACTED] z"),
            ("oauth-secre", "oauth-secre"),
        ] {
            assert_eq!(redaction.clean(text.as_bytes()), expected.as_bytes(), "{text}");
        }
        assert!(matches!(redaction.clean(b"nothing"), Cow::Borrowed(_)), "what is clean is not copied");
        let json = Json::parse(r#"{"env":["oauth-secret","x"]}"#.to_owned()).unwrap();
        assert_eq!(redaction.clean_json(json).unwrap().as_str(), r#"{"env":["[REDACTED]","x"]}"#);
    }

    #[test]
    fn a_value_that_a_secret_breaks_is_none() {
        let json = Json::parse(r#"{"a":1,"b":2}"#.to_owned()).unwrap();
        assert_eq!(redaction(&[r#"1,"b":2}"#]).clean_json(json), None);
    }
}
