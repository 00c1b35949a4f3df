//! Task tokens: bearer secrets by which a parked execution goes on.

use std::borrow::Cow;
use std::fmt;

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::error_code::hex;
use crate::id::{BadId, IdProblem};
use crate::json::Json;
use crate::sanitize::REDACTED;
use crate::secrets::Secrets;

/// The longest token that is accepted.
pub const TOKEN_BYTES_MAX: usize = 2_048;

pub(super) const TOKEN_FIELD: &str = "taskToken";

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
        hex(&Sha256::digest(self.0.as_bytes()))
    }
}

impl fmt::Debug for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskToken")
    }
}

/// Takes a token out of what is stored.
pub(super) struct TokenCleaner {
    /// Only if the token or a field of its name might stand anywhere but in its own field.
    deep: Option<Secrets>,
}

impl TokenCleaner {
    pub(super) fn of(token: Option<&TaskToken>, detail: &str) -> Self {
        let count = |part: &str| detail.matches(part).count();
        let elsewhere = token.is_some_and(|token| count(token.expose()) > 1);
        let suspect = elsewhere || count(TOKEN_FIELD) > 1 || (detail.contains("\\u") && count("oken") > 0);
        let secrets = || Secrets::of(token.map(|token| token.expose().as_bytes()));
        Self { deep: suspect.then(secrets) }
    }

    /// The detail without the token, letter by letter otherwise.
    pub(super) fn detail(&self, fields: &[(Cow<'_, str>, &RawValue)]) -> Json {
        let mut text = String::from("{");
        for (name, value) in fields {
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&serde_json::to_string(name).expect("a text is JSON"));
            text.push(':');
            let hide = name == TOKEN_FIELD && !matches!(value.get(), "null" | "\"\"");
            if hide {
                text.push_str(&serde_json::to_string(REDACTED).expect("a text is JSON"));
            } else {
                text.push_str(value.get());
            }
        }
        text.push('}');
        self.clean(Json::parse(text).expect("it is made of JSON values"))
    }

    pub(super) fn clean(&self, json: Json) -> Json {
        let Some(secrets) = &self.deep else { return json };
        let Ok(mut value) = json.read::<Value>() else { return secrets.clean_json(json) };
        let json = if hide_tokens(&mut value) { Json::of(&value) } else { json };
        secrets.clean_json(json)
    }
}

/// Puts a placeholder into every field of the token's name; whether there was one.
fn hide_tokens(value: &mut Value) -> bool {
    let mut found = false;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == TOKEN_FIELD && !value.is_null() && value != REDACTED && value != "" {
                    *value = Value::from(REDACTED);
                    found = true;
                } else {
                    found |= hide_tokens(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| found |= hide_tokens(item)),
        _ => {}
    }
    found
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
