//! The JSON Schema of definition files, for editors.

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::DefinitionDraft;
use super::read::ANSWERED;
use crate::authored::agent::AgentFields;
use crate::authored::fields::{Fields as _, described_as};

/// The JSON Schema (2020-12) of a definition as it is written.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<WrittenDefinition>().to_value()
}

/// A definition as it is written. As it is stored, its own schema says.
struct WrittenDefinition;

described_as! {
    WrittenDefinition => "DefinitionFile", DefinitionDraft, file;
}

/// What people write: they know of no drafts and answers.
fn file(mut schema: Schema, generator: &mut SchemaGenerator) -> Schema {
    schema.insert("description".to_owned(), "A task definition: what tasks of its name do.".into());
    schema.insert("anyOf".to_owned(), kinds());
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (field, text) in SHORTER {
            properties[field]["description"] = text.into();
        }
        let texts = ["Of a definition that was got from a server. It is not read.", "The same.", "The same."];
        for (field, text) in ANSWERED.into_iter().zip(texts) {
            let mut any = generator.subschema_for::<Option<Value>>();
            any.insert("description".to_owned(), text.into());
            properties.insert(field.to_owned(), any.to_value());
        }
    }
    of_agents(&mut schema);
    schema
}

/// Fields of an agent of which less is said among those of other runners.
const SHORTER: [(&str, &str); 4] = [
    ("prompt", "A template; `{{path}}` stands for a value of the input."),
    ("tools", "The tools that it may use, such as `Read`. None means no tools."),
    (STEPS, "Several prompts, one after the other."),
    ("agentAttempts", "Tries within one attempt."),
];
const STEPS: &str = "steps";

/// Says of the fields of an agent that they are for that runner.
pub(super) fn of_agents(schema: &mut Schema) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
    for field in AgentFields::names() {
        let instead = if field == STEPS { ", instead of a prompt and what belongs to it" } else { "" };
        let Some(Value::String(text)) =
            properties.get_mut(field).and_then(|field| field.get_mut("description"))
        else {
            continue;
        };
        let mut letters = text.chars();
        let first = letters.next().map(|letter| letter.to_ascii_lowercase());
        *text = format!("For the runner `agent`{instead}: {}{}", first.unwrap_or_default(), letters.as_str());
    }
}

/// What each runner needs. The runner may be left out where the fields tell it.
fn kinds() -> Value {
    let given = json!({ "not": { "type": "null" } });
    let none = json!({ "type": "null" });
    let runner = |name: &str| json!({ "enum": [name, null] });
    let prompt = json!({ "required": ["prompt"], "properties": { "prompt": given } });
    let steps =
        json!({ "required": ["steps"], "properties": { "steps": { "type": "array", "minItems": 1 } } });
    json!([
        { "required": ["command"],
          "properties": { "command": given, "taskTimeout": none, "runner": runner("command") } },
        { "anyOf": [prompt, steps], "properties": { "command": none, "runner": runner("agent") } },
        { "required": ["script", "runner"],
          "properties": { "script": given, "command": none, "taskTimeout": none, "runner": { "const": "script" } } },
        { "required": ["script"],
          "properties": { "script": given, "command": none, "prompt": none, "steps": none, "taskTimeout": none,
                          "runner": none } },
        { "required": ["runner"],
          "properties": { "command": none, "taskTimeout": none, "runner": { "const": "native" } } },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_accepts_and_refuses_what_the_reader_does() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let base = json!({ "name": "scrape" });
        for (fields, expected) in [
            (json!({ "command": ["scrape", "--all"] }), true),
            (json!({ "command": "scrape | sort" }), true),
            (json!({ "command": ["x"], "runner": "command" }), true),
            (json!({ "command": ["x"], "runner": null, "prompt": null }), true),
            (json!({ "command": ["x"], "runner": "agent" }), false),
            (json!({ "command": ["x"], "runner": "native" }), false),
            (json!({ "command": ["x"], "runner": "script", "script": "1" }), false),
            (json!({ "command": null }), false),
            (json!({}), false),
            (json!({ "command": 7 }), false),
            (json!({ "command": ["x"], "runner": "shell" }), false),
            (json!({ "command": ["x"], "name": null }), false),
            (json!({ "command": ["x"], "name": "a b" }), false),
            (json!({ "command": ["x"], "nmae": "x" }), false),
            (json!({ "runner": "native" }), true),
            (json!({ "runner": "command" }), false),
            (json!({ "prompt": "do it" }), true),
            (
                json!({ "prompt": "do it", "runner": "agent", "command": null, "tools": ["Read"], "maxTurns": 3 }),
                true,
            ),
            (json!({ "runner": "agent" }), false),
            (json!({ "runner": "agent", "steps": [] }), false),
            (json!({ "steps": [{ "prompt": "a" }, { "name": "b", "prompt": "{{previous.x}}" }] }), true),
            (json!({ "steps": [{ "name": "b" }] }), false),
            (json!({ "prompt": "x", "maxTurns": 201 }), false),
            (json!({ "prompt": "x", "permissionMode": "none" }), false),
            (json!({ "prompt": "x", "outputSchema": [] }), false),
            (json!({ "script": "return 1" }), true),
            (json!({ "script": "return 1", "runner": "script" }), true),
            (json!({ "runner": "script" }), false),
            (json!({ "script": "return 1", "steps": [] }), false),
            (json!({ "command": ["x"], "env": { "A": "1" }, "openEnv": ["A"], "secrets": ["TOKEN"] }), true),
            (json!({ "command": ["x"], "env": { "A": 1 } }), false),
            (json!({ "command": ["x"], "secrets": "TOKEN" }), false),
            (json!({ "command": ["x"], "secrets": vec!["A"; 65] }), false),
            (json!({ "command": ["x"], "path": ["bin", "/opt/bin"] }), true),
            (json!({ "command": ["x"], "path": "bin" }), false),
            (json!({ "command": ["x"], "path": vec!["a"; 17] }), false),
            (json!({ "command": ["x"], "timeout": "30s", "idleTimeout": 5_000, "maxAttempts": 3 }), true),
            (json!({ "command": ["x"], "timeout": true }), false),
            (json!({ "command": ["x"], "taskTimeout": "5m" }), false),
            (json!({ "command": ["x"], "taskTimeout": null }), true),
            (json!({ "script": "return 1", "taskTimeout": "5m" }), false),
            (json!({ "script": "return 1", "runner": "script", "taskTimeout": "5m" }), false),
            (json!({ "runner": "native", "taskTimeout": "5m" }), false),
            (json!({ "prompt": "x", "taskTimeout": "5m" }), true),
            (json!({ "command": ["x"], "retry": 5 }), true),
            (json!({ "command": ["x"], "retry": { "maxAttempts": 5 } }), true),
            (json!({ "command": ["x"], "retry": 0 }), false),
            (json!({ "command": ["x"], "maxAttempts": 0 }), false),
            (json!({ "command": ["x"], "inputArg": "no" }), false),
            (json!({ "command": ["x"], "onFailure": "park", "parkTimeout": "2d" }), true),
            (json!({ "command": ["x"], "onFailure": "hide" }), false),
            (json!({ "command": ["x"], "version": 3, "createdAt": 1, "updatedAt": 2 }), true),
        ] {
            let mut value = base.clone();
            value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let read = DefinitionDraft::read(value.clone());
            assert_eq!(read.is_ok(), expected, "the reader, {value}: {read:?}");
            assert_eq!(validator.is_valid(&value), expected, "the schema, {value}");
        }
        assert!(!validator.is_valid(&json!([])) && DefinitionDraft::read(json!([])).is_err());
    }

    #[test]
    fn every_field_that_is_read_is_described() {
        let schema = schema();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(
            (&schema["title"], &schema["additionalProperties"]),
            (&json!("DefinitionFile"), &json!(false))
        );
        let properties = schema["properties"].as_object().unwrap();
        for field in DefinitionDraft::names() {
            let shape = properties.get(field);
            assert!(shape.is_some_and(|shape| shape.get("description").is_some()), "{field}: {shape:?}");
        }
        assert_eq!(properties.len(), DefinitionDraft::names().len() + 3);
    }
}
