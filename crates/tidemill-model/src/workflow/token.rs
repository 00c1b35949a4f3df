//! Task tokens: bearer secrets by which a parked execution goes on.

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::security::sanitize::REDACTED;
use crate::security::secrets::{Secrets, Tokens};
use crate::values::hex;
use crate::values::id::{BadId, IdProblem};
use crate::values::json::Json;

/// What is said of an id that a token stands in. Ids are shown to everybody, and what they name is found by them, so that
/// nothing can be taken out.
pub const IN_AN_ID: &str = "holds a task token, which is a secret";

/// The longest token that is accepted.
pub const TOKEN_BYTES_MAX: usize = 2_048;

pub(super) const TOKEN_FIELD: &str = "taskToken";
/// A shorter token is no secret that could be told from other words.
const EMBEDDED_CHARS_MIN: usize = 6;
/// A field whose token was taken out, from its name on.
const HIDDEN: &str = "taskToken\":\"[REDACTED]\"";
const HIDDEN_VALUE: &str = "[REDACTED]\"";

/// A right to end the wait of one execution, once. It never shows itself: not in debug output, not as JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct TaskToken(String);

impl TaskToken {
    pub fn new(text: impl Into<String>) -> Result<Self, BadId> {
        let text = text.into();
        let problem = if text.is_empty() {
            IdProblem::Empty
        } else if text.len() > TOKEN_BYTES_MAX {
            IdProblem::TooLong { length: text.len(), limit: TOKEN_BYTES_MAX }
        } else if text.chars().any(char::is_control) {
            // The character is not named: it would be a part of the secret.
            IdProblem::Form { form: "a text without control characters" }
        } else {
            return Ok(Self(text));
        };
        Err(BadId { field: TOKEN_FIELD, problem })
    }

    /// The secret itself; for sealing it and for sending it to its owner.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The SHA-256 by which the token is found: 64 lower-case hexadecimal digits.
    pub fn digest(&self) -> String {
        hex::encode(&Sha256::digest(self.0.as_bytes()))
    }
}

impl fmt::Debug for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskToken")
    }
}

/// Takes tokens out of what is stored.
///
/// A copy within a longer text is found if the token has `EMBEDDED_CHARS_MIN` characters, as it is or encoded; a
/// shorter one only where it is a whole text: it might stand in any word.
pub struct TokenCleaner {
    exact: Vec<String>,
    plain: Secrets,
    /// Knows all forms; made when a text might hold one.
    forms: OnceLock<Secrets>,
}

impl TokenCleaner {
    pub fn of<'t>(tokens: impl IntoIterator<Item = &'t TaskToken>) -> Self {
        // What stands for a token is none: to look for it would find it in every detail that was cleaned.
        let exact: Vec<String> =
            tokens.into_iter().map(|token| token.0.clone()).filter(|token| token != REDACTED).collect();
        let plain = Secrets::plain(&exact, EMBEDDED_CHARS_MIN);
        Self { exact, plain, forms: OnceLock::new() }
    }

    /// The detail without the token, letter by letter otherwise.
    pub(super) fn detail(&self, fields: &[(Cow<'_, str>, &RawValue)]) -> Json {
        let length: usize = fields.iter().map(|(name, value)| name.len() + value.get().len() + 8).sum();
        let mut text = String::with_capacity(length);
        text.push('{');
        for (name, value) in fields {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&quoted(name));
            text.push(':');
            if name == TOKEN_FIELD && !is_no_token(value.get()) {
                text.push_str(&quoted(REDACTED));
            } else {
                text.push_str(value.get());
            }
        }
        text.push('}');
        self.clean(Json::parse(text).expect("it is made of JSON values"))
    }

    /// A JSON value without the tokens, and without what stands in any field of a token's name. All else stays letter
    /// by letter.
    pub fn clean(&self, json: Json) -> Json {
        let text = json.as_str();
        if !self.is_suspect(text) {
            return json;
        }
        let mut clean = String::new();
        let mut kept_from = 0;
        for token in Tokens::of(text) {
            if token.start < kept_from {
                continue;
            }
            let found = &text[token.clone()];
            let is_text = found.starts_with('"');
            let behind = text[token.end..].trim_start();
            let (replaced, replacement) = match behind.strip_prefix(':').filter(|_| is_text) {
                Some(value) if is_field(found) => {
                    let value = value.trim_start();
                    let start = text.len() - value.len();
                    let length = raw_length(value);
                    let hides = !is_no_token(&value[..length]);
                    (start..start + length, hides.then(|| quoted(REDACTED)))
                }
                Some(_) => (token, self.forms().clean_token(found)),
                None => {
                    let is_whole = is_text && self.is_exact(found);
                    let whole = is_whole.then(|| quoted(REDACTED));
                    (token, whole.or_else(|| self.forms().clean_token(found)))
                }
            };
            if let Some(replacement) = replacement {
                clean.push_str(&text[kept_from..replaced.start]);
                clean.push_str(&replacement);
                kept_from = replaced.end;
            }
        }
        if kept_from == 0 {
            return json;
        }
        clean.push_str(&text[kept_from..]);
        Json::parse(clean).expect("texts took the place of values")
    }

    /// A text without the tokens.
    pub fn clean_text(&self, text: String) -> String {
        if self.exact.contains(&text) {
            return REDACTED.to_owned();
        }
        let coded = text.contains(['\\', '%']);
        let secrets = if coded { self.forms() } else { &self.plain };
        match secrets.clean_text(&text) {
            Cow::Borrowed(_) => text,
            Cow::Owned(clean) => clean,
        }
    }

    /// Whether a text holds one of the tokens.
    pub fn is_in(&self, text: &str) -> bool {
        self.clean_text(text.to_owned()) != text
    }

    /// Whether a closer look is needed. A token that stands nowhere as it is stands there with an escape or a percent
    /// sign, or not at all.
    fn is_suspect(&self, text: &str) -> bool {
        let is_coded = || text.bytes().any(|byte| matches!(byte, b'\\' | b'%'));
        let named = || text.match_indices(TOKEN_FIELD).any(|(at, _)| !text[at..].starts_with(HIDDEN));
        let is_short = |token: &&String| token.chars().count() < EMBEDDED_CHARS_MIN;
        named()
            || is_coded()
            || matches!(self.plain.clean_text(text), Cow::Owned(_))
            || self.exact.iter().filter(is_short).any(|token| text.contains(&**token))
    }

    fn forms(&self) -> &Secrets {
        self.forms.get_or_init(|| Secrets::at_least(&self.exact, EMBEDDED_CHARS_MIN))
    }

    fn is_exact(&self, quoted_text: &str) -> bool {
        let text = serde_json::from_str::<Cow<'_, str>>(quoted_text);
        text.is_ok_and(|text| self.exact.iter().any(|token| *token == *text))
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}

fn is_field(quoted_text: &str) -> bool {
    serde_json::from_str::<Cow<'_, str>>(quoted_text).is_ok_and(|name| name == TOKEN_FIELD)
}

/// Whether the value of a token's field hides nothing.
fn is_no_token(value: &str) -> bool {
    value == "null" || value == "\"\"" || value.strip_prefix('"').is_some_and(|text| text == HIDDEN_VALUE)
}

/// How long the JSON value is that a text begins with.
fn raw_length(text: &str) -> usize {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    values.next().and_then(Result::ok).map_or(0, |value| value.get().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_shows_itself() {
        let token = TaskToken::new("AAAAKgAAAAIAAAAA").unwrap();
        assert!(!format!("{token:?}").contains("AAAA"));
        assert_eq!(token.digest().len(), 64);
        for (text, problem) in [
            (String::new(), "taskToken is empty"),
            ("x".repeat(TOKEN_BYTES_MAX + 1), "taskToken is 2049 bytes long; the limit is 2048"),
            ("a\nb".to_owned(), "taskToken is not of the form a text without control characters"),
        ] {
            assert_eq!(TaskToken::new(text).unwrap_err().to_string(), problem);
        }
    }
}
