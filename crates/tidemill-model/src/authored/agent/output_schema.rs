//! The JSON Schema of an agent's output, as far as it can be checked without using it.

use serde_json::{Map, Value};

use super::OUTPUT_SCHEMA_BYTES_MAX;
use crate::authored::document::Document;
use crate::authored::field_kinds::schema_of;
use crate::authored::field_problem::{FieldProblems, code};
use crate::authored::fields::{Part, field};
use crate::values::json::Json;

/// A schema of an object. Nothing is fetched for it: a reference may only point into the schema itself.
pub(super) fn output_schema() -> impl Part<Value = Option<Json>> {
    field("outputSchema", read, schema_of::<Option<Map<String, Value>>>)
}

fn read(document: &mut Document<'_>, name: &str) -> Option<Json> {
    let value = document.take(name)?;
    let Value::Object(schema) = &value else {
        document.problem(name, code::INVALID_TYPE, "must be an object: a JSON Schema");
        return None;
    };
    if schema.is_empty() {
        return None;
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        document.problem(&format!("{name}.type"), code::INVALID_VALUE, "must be object");
    }
    let json = Json::of(&value);
    if json.len() > OUTPUT_SCHEMA_BYTES_MAX {
        let message = format!("is {} bytes; the limit is {OUTPUT_SCHEMA_BYTES_MAX}", json.len());
        document.problem(name, code::TOO_LONG, message);
    }
    if let Some(problem) = json.problem() {
        document.problem(name, code::INVALID_VALUE, problem.to_string());
        return None;
    }
    check_schema(&document.path(name), &value, document.problems);
    Some(json)
}

const SCHEMA_TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// Checks the keywords that hold schemas, and references.
fn check_schema(path: &str, schema: &Value, problems: &mut FieldProblems) {
    let fields = match schema {
        Value::Object(fields) => fields,
        Value::Bool(_) => return,
        _ => return problems.add(path, code::INVALID_VALUE, "is no JSON Schema: an object or a boolean"),
    };
    for (name, value) in fields {
        let at = || format!("{path}.{name}");
        match name.as_str() {
            "$ref" | "$dynamicRef" | "$recursiveRef"
                if value.as_str().is_none_or(|target| !target.starts_with('#')) =>
            {
                problems.add(
                    at(),
                    code::INVALID_VALUE,
                    "points elsewhere; only # and what follows it is allowed",
                );
            }
            "type" => {
                let is_type = |value: &Value| value.as_str().is_some_and(|text| SCHEMA_TYPES.contains(&text));
                let fits = match value {
                    Value::Array(types) => !types.is_empty() && types.iter().all(is_type),
                    value => is_type(value),
                };
                if !fits {
                    problems.add(at(), code::INVALID_VALUE, "is no type of JSON Schema");
                }
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                match value {
                    Value::Object(schemas) => {
                        for (pattern, _) in schemas.iter().filter(|_| name == "patternProperties") {
                            check_pattern(format!("{}.{pattern}", at()), pattern, problems);
                        }
                        for (name, schema) in schemas {
                            check_schema(&format!("{}.{name}", at()), schema, problems);
                        }
                    }
                    _ => problems.add(at(), code::INVALID_TYPE, "must be an object of schemas"),
                }
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => match value {
                Value::Array(schemas) => {
                    for (index, schema) in schemas.iter().enumerate() {
                        check_schema(&format!("{}[{index}]", at()), schema, problems);
                    }
                }
                _ => problems.add(at(), code::INVALID_TYPE, "must be a list of schemas"),
            },
            "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "contentSchema"
            | "not"
            | "contains"
            | "if"
            | "then"
            | "else"
            | "propertyNames" => {
                check_schema(&at(), value, problems);
            }
            "pattern" => match value {
                Value::String(pattern) => check_pattern(at(), pattern, problems),
                _ => problems.add(at(), code::INVALID_TYPE, "must be a text"),
            },
            "required" => {
                let fits = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
                if !fits {
                    problems.add(at(), code::INVALID_TYPE, "must be a list of texts");
                }
            }
            _ => {}
        }
    }
}

/// What the small engine here does not know and the one that checks outputs does. Only that one judges such a
/// pattern.
const UNKNOWN_HERE: [&str; 7] = ["\\p", "\\P", "\\c", "[[", "&&", "--", "~~"];

fn check_pattern(place: String, pattern: &str, problems: &mut FieldProblems) {
    if UNKNOWN_HERE.iter().any(|part| pattern.contains(part)) {
        return;
    }
    if let Err(error) = regex_lite::Regex::new(pattern) {
        let message = format!("is no pattern that can be used: {error}; it may not look around or back");
        problems.add(place, code::INVALID_VALUE, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_refused_that_the_check_of_outputs_would_refuse() {
        for (pattern, fits) in [
            ("^[a-z]+$", true),
            (r"^\d{4}-\d\d\/\w+\.x\u00e9\x41$", true),
            (r"^\p{Lu}", true),
            ("[a-z&&[^b]]", true),
            ("(?i)a|b", true),
            ("(", false),
            ("a{3,1}", false),
            ("a(?!b)", false),
            (r"(a)\1", false),
        ] {
            let mut problems = FieldProblems::default();
            check_pattern("p".to_owned(), pattern, &mut problems);
            assert_eq!(problems.or(()).is_ok(), fits, "{pattern}");
        }
    }
}
