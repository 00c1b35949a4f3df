//! Takes secrets out of everything that leaves this process: lines, files, records.
//!
//! The patterns are those of the model's sanitizer, with the values of this process's own secrets beside them.

use std::ffi::OsString;

use serde_json::{Map, Value};
use tidemill_model::ErrorSanitizer;
use tidemill_model::sanitize::{CLEAN_CHARS_MAX, REDACTED, SECRET_CHARS_MIN};

/// Parts of the names of variables whose values are secrets.
const SECRET_NAMES: [&str; 7] = ["TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "CREDENTIAL", "COOKIE"];

/// Knows what must not be seen.
#[derive(Clone)]
pub(crate) struct Redactor {
    sanitizer: ErrorSanitizer,
    /// The longest first.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets.len()).finish_non_exhaustive()
    }
}

impl Redactor {
    pub(crate) fn of_environment(environment: &[(OsString, OsString)]) -> Self {
        let home = environment.iter().find(|(name, _)| name == "HOME");
        let home = home.and_then(|(_, value)| value.to_str()).map(str::to_owned);
        let mut secrets = Vec::new();
        for (name, value) in environment {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
            let name = name.to_ascii_uppercase();
            if !SECRET_NAMES.iter().any(|part| name.contains(part))
                || value.chars().count() < SECRET_CHARS_MIN
            {
                continue;
            }
            secrets.push(value.to_owned());
            // A secret of several lines is printed line by line.
            secrets.extend(
                value.lines().filter(|line| line.chars().count() >= SECRET_CHARS_MIN).map(str::to_owned),
            );
        }
        secrets.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup();
        Self { sanitizer: ErrorSanitizer::new(secrets.clone(), home), secrets }
    }

    /// A text for people, at most 2,000 characters of it.
    pub(crate) fn text(&self, text: &str) -> String {
        // Far behind the cut lies nothing that is kept, and the sanitizer looks no further either.
        self.sanitizer.clean(text)
    }

    /// A text without our own secrets, whole and otherwise as it is: what an agent worked out is not ours to rewrite.
    pub(crate) fn exact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), REDACTED);
            }
        }
        text
    }

    /// A result without our own secrets, in names and values.
    pub(crate) fn output(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.exact(text))
    }

    /// A value for the trace: cleaned, and as a cut text when it is large.
    pub(crate) fn bounded(&self, value: &Value) -> Value {
        let clean = map_texts(value, &|text| self.bounded_text(text));
        let size = clean.to_string().len();
        if size <= 2 * CLEAN_CHARS_MAX {
            return clean;
        }
        let text = self.text(&clean.to_string());
        Value::String(format!("{text}… ({size} bytes)"))
    }

    /// A text for the trace; how long it was is told when it is cut.
    pub(crate) fn bounded_text(&self, text: &str) -> String {
        let clean = self.text(text);
        let is_cut = text.len() > CLEAN_CHARS_MAX && text.chars().nth(CLEAN_CHARS_MAX).is_some();
        if is_cut { format!("{clean}… ({} bytes)", text.len()) } else { clean }
    }
}

fn map_texts(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(change(text)),
        Value::Array(items) => Value::Array(items.iter().map(|item| map_texts(item, change)).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (change(name), map_texts(value, change)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor() -> Redactor {
        let environment = [
            ("ANTHROPIC_API_KEY", "plain-api-value-1"),
            ("My_Password", "correct horse\nbattery staple"),
            ("SHORT_KEY", "1234567"),
            ("NAME", "not-a-secret-value"),
            ("HOME", "/srv/tide"),
        ];
        Redactor::of_environment(&environment.map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn own_secrets_and_known_forms_are_taken_out_of_texts() {
        let redactor = redactor();
        for (text, expected) in [
            ("key plain-api-value-1.", "key [REDACTED]."),
            ("it is: battery staple", "it is: [REDACTED]"),
            ("1234567 not-a-secret-value", "1234567 not-a-secret-value"),
            ("sk-ant-oat01-abcdef and AKIAIOSFODNN7EXAMPLE", "[REDACTED] and [REDACTED]"),
            ("at /srv/tide/x", "at ~/x"),
        ] {
            assert_eq!(redactor.text(text), expected);
        }
    }

    #[test]
    fn an_output_loses_nothing_but_our_own_secrets() {
        let output =
            json!({ "a": ["plain-api-value-1", "/home/ann/x"], "plain-api-value-1": "y".repeat(5_000) });
        let clean = redactor().output(&output);
        assert_eq!(clean, json!({ "a": ["[REDACTED]", "/home/ann/x"], "[REDACTED]": "y".repeat(5_000) }));
    }

    #[test]
    fn values_of_the_trace_are_bounded() {
        let redactor = redactor();
        let small = json!({ "command": "echo plain-api-value-1" });
        assert_eq!(redactor.bounded(&small), json!({ "command": "echo [REDACTED]" }));
        let long = redactor.bounded(&json!("x".repeat(10_000)));
        assert_eq!(long.as_str().unwrap().len(), CLEAN_CHARS_MAX + "… (10000 bytes)".len());
        let many = redactor.bounded(&json!(vec!["plain-api-value-1"; 5_000]));
        let many = many.as_str().expect("a text");
        assert!(many.len() < 3_000 && !many.contains("plain-api"), "{many}");
    }
}
