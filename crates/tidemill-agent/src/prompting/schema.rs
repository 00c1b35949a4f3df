//! Output schemas, checked by us as well: one version of the CLI ignores a schema that it cannot use.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tidemill_model::Json;

/// How many problems are reported.
const PROBLEMS_MAX: usize = 5;

/// A schema that outputs are checked against. It refers to nothing outside of itself.
#[derive(Debug)]
pub(crate) struct OutputSchema(Validator);

impl OutputSchema {
    /// Reads a schema, or says what is wrong with it.
    pub(crate) fn new(schema: &Value) -> Result<Self, String> {
        // The linear engine: a pattern must not be able to take for ever on what a model wrote.
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
        options.build(schema).map(Self).map_err(|error| error.to_string())
    }

    /// Says what is wrong with an output.
    pub(crate) fn check(&self, output: &Value) -> Result<(), String> {
        let mut problems = Vec::new();
        let mut errors = self.0.iter_errors(output);
        for error in errors.by_ref().take(PROBLEMS_MAX) {
            let place = error.instance_path().to_string();
            let message: String = error.to_string().chars().take(300).collect();
            problems.push(if place.is_empty() { message } else { format!("{place}: {message}") });
        }
        if problems.is_empty() {
            return Ok(());
        }
        let more = if errors.next().is_some() { ", and more" } else { "" };
        Err(format!("{}{more}", problems.join("; ")))
    }
}

/// Says what is wrong with an output by its schema. For whoever changes an output of an agent afterwards.
pub fn check_output(schema: &Json, output: &Json) -> Result<(), String> {
    let unread = |error: serde_json::Error| error.to_string();
    let (schema, output) = (schema.read::<Value>().map_err(unread)?, output.read::<Value>().map_err(unread)?);
    OutputSchema::new(&schema)?.check(&output)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outputs_are_checked() {
        let schema = json!({
            "type": "object",
            "properties": { "tags": { "type": "array", "items": { "$ref": "#/$defs/tag" } }, "n": { "type": "integer" } },
            "required": ["tags"],
            "$defs": { "tag": { "type": "string", "pattern": "^[a-z]+$" } }
        });
        let schema = OutputSchema::new(&schema).unwrap();
        assert_eq!(schema.check(&json!({ "tags": ["ab"], "n": 1 })), Ok(()));
        for (output, part) in [
            (json!({}), "\"tags\" is a required property"),
            (json!({ "tags": "x" }), "/tags: \"x\" is not of type \"array\""),
            (json!({ "tags": ["A1"] }), "/tags/0"),
            (json!({ "tags": [], "n": "1" }), "/n"),
            (json!(null), "not of type \"object\""),
            (json!({ "tags": vec![1; 9] }), ", and more"),
        ] {
            let error = schema.check(&output).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_refused() {
        for schema in [
            json!({ "type": "objekt" }),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "properties": { "a": { "$ref": "#/$defs/none" } } }),
            json!({ "pattern": "(" }),
            json!([]),
        ] {
            assert!(OutputSchema::new(&schema).is_err(), "{schema}");
        }
    }
}
