//! Takes secrets out of everything that leaves this process: lines, files, records.
//!
//! The patterns are those of the model's sanitizer, with the values of this process's own secrets beside them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value};
use tidemill_model::security::sanitize::CLEAN_CHARS_MAX;
use tidemill_model::security::secrets::is_secret_name;
use tidemill_model::{ErrorSanitizer, Secrets};

/// The variable by which a worker tells which of the others are secrets, with commas between their names.
const SECRET_NAMES: &str = "TIDEMILL_SECRET_NAMES";

/// Knows what must not be seen.
#[derive(Debug, Clone)]
pub(crate) struct Redactor {
    sanitizer: ErrorSanitizer,
    secrets: Secrets,
}

impl Redactor {
    /// The secrets are what the worker says they are; without a worker, what sounds like one.
    pub(crate) fn of_environment(environment: &[(OsString, OsString)]) -> Self {
        let text_of = |wanted: &str| {
            let found = environment.iter().find(|(name, _)| name == wanted);
            found.and_then(|(_, value)| value.to_str())
        };
        let told = text_of(SECRET_NAMES);
        let is_secret = |name: &str| match told {
            Some(names) => names.split(',').any(|secret| secret == name),
            None => is_secret_name(name),
        };
        let variables = environment.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let secrets = Secrets::of_variables(variables, is_secret);
        let home = text_of("HOME").map(str::to_owned);
        Self { sanitizer: ErrorSanitizer::with(secrets.clone(), home), secrets }
    }

    /// A text for people, at most 2,000 characters of it.
    pub(crate) fn text(&self, text: &str) -> String {
        self.sanitizer.clean(text)
    }

    /// A result without our own secrets, in names and values, whole and otherwise as it is: what an agent worked out is
    /// not ours to rewrite.
    pub(crate) fn output(&self, value: &Value) -> Value {
        map_texts(value, &|text| self.secrets.clean_text(text).into_owned())
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

    /// A text for the trace; a text that is cut says how long it was.
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
        Value::Number(number) => {
            let text = number.to_string();
            let changed = change(&text);
            if changed == text { value.clone() } else { Value::String(changed) }
        }
        Value::Null | Value::Bool(_) => value.clone(),
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
    fn secrets_are_those_that_the_worker_names() {
        let environment = [
            ("TIDEMILL_SECRET_NAMES", "DATABASE_URL,CLAUDE_CODE_OAUTH_TOKEN"),
            ("DATABASE_URL", "plain-database-value\n"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "12345678"),
            ("LITERAL_TOKEN", "a literal value"),
        ];
        let redactor =
            Redactor::of_environment(&environment.map(|(name, value)| (name.into(), value.into())));
        let said = json!({ "a": "plain-database-value", "b": "a literal value", "c": [12_345_678, 1.5] });
        let clean = json!({ "a": "[REDACTED]", "b": "a literal value", "c": ["[REDACTED]", 1.5] });
        assert_eq!(redactor.output(&said), clean);
        assert_eq!(redactor.text("plain-database-value, a literal value"), "[REDACTED], a literal value");
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
