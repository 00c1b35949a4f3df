//! Scripts: JavaScript that reacts to events. Stored and versioned; what may call a host function is granted by name.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::authored::document::Document;
use crate::authored::field_problem::{FieldProblems, code};
use crate::values::id::ScriptId;
use crate::values::time::Timestamp;

/// The bytes of a script's source.
pub const SOURCE_BYTES_MAX: usize = 256 * 1024;
/// The bytes of a script's name.
pub const NAME_BYTES_MAX: usize = 128;
/// The scripts of one tenant.
pub const SCRIPTS_MAX: usize = 1_000;

/// A host function that a script may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Grant {
    /// `console.log` and the like. Every script has it, named or not.
    Log,
    /// `ctx.publish(type, data)`.
    Publish,
    /// `ctx.submitJob(spec)`.
    SubmitJob,
    /// `ctx.resolveError(…)`.
    ResolveError,
}

impl Grant {
    pub const ALL: [Self; 4] = [Self::Log, Self::Publish, Self::SubmitJob, Self::ResolveError];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Publish => "publish",
            Self::SubmitJob => "submitJob",
            Self::ResolveError => "resolveError",
        }
    }
}

/// A script at one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    pub id: ScriptId,
    /// What stacks and lists call it.
    pub name: String,
    /// The body of a function that sees `ctx`.
    pub source: String,
    pub grants: Vec<Grant>,
    /// Counts from 1 and never starts again, not by a removal either.
    pub version: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A script as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScriptDraft {
    /// Letters, digits, `_` and `-`; minted when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ScriptId>,
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// The body of a function that sees `ctx`; at most 256 KiB.
    pub source: String,
    /// The host functions that it may call.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// `/v1/scripts/explain` is a call and can be no script.
const RESERVED_IDS: [&str; 2] = ["explain", "new"];
const FIELDS: &str = "id, name, source, grants";
/// What an answer holds beside the draft. It may be sent back and is not read.
const ANSWERED: [&str; 3] = ["version", "createdAt", "updatedAt"];

impl ScriptDraft {
    /// Reads a script, or tells everything that is wrong. Whether it compiles is not looked at.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let Some(mut document) = Document::open("", value, &mut problems) else { return Err(problems) };
        for field in ANSWERED {
            document.take(field);
        }
        let id = document.text("id").and_then(|text| {
            if RESERVED_IDS.contains(&text.as_str()) {
                document.problem("id", code::INVALID_VALUE, "is the name of a call; choose another");
                return None;
            }
            let id = ScriptId::new(text);
            id.map_err(|bad| document.problem("id", code::INVALID_VALUE, bad.problem.to_string())).ok()
        });
        for field in ["name", "source"] {
            if !document.has(field) {
                document.missing(field);
            }
        }
        let name = document.short_text("name", NAME_BYTES_MAX);
        let source = document.long_text("source", SOURCE_BYTES_MAX);
        let grants = grants(&mut document);
        document.close(FIELDS);
        match (name, source) {
            (Some(name), Some(source)) => problems.or(Self { id, name, source, grants }),
            _ => Err(problems),
        }
    }
}

/// Each grant once, in their own order, so that equal scripts are written alike.
fn grants(document: &mut Document<'_>) -> Vec<Grant> {
    if document.mentions("grants") && !document.has("grants") {
        document.problem("grants", code::INVALID_TYPE, "must be a list, not null");
    }
    let names = document.texts("grants").unwrap_or_default();
    let mut grants = BTreeSet::new();
    for (at, name) in names.iter().enumerate() {
        match Grant::ALL.into_iter().find(|grant| grant.as_str() == name) {
            Some(grant) => drop(grants.insert(grant)),
            None => document.problem(
                &format!("grants[{at}]"),
                code::INVALID_VALUE,
                "must be log, publish, submitJob or resolveError",
            ),
        }
    }
    grants.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems_of(fields: &Value) -> Vec<(String, &'static str)> {
        let mut draft = json!({ "name": "greet", "source": "return 1" });
        draft.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let problems = ScriptDraft::read(draft).expect_err("it is refused");
        problems.listed.into_iter().map(|problem| (problem.path, problem.code)).collect()
    }

    #[test]
    fn every_rule_has_its_place_and_code() {
        for (fields, path, expected) in [
            (json!({ "name": null }), "name", code::MISSING_FIELD),
            (json!({ "name": "" }), "name", code::INVALID_VALUE),
            (json!({ "name": "a\nb" }), "name", code::INVALID_VALUE),
            (json!({ "name": "x".repeat(NAME_BYTES_MAX + 1) }), "name", code::TOO_LONG),
            (json!({ "name": 1 }), "name", code::INVALID_TYPE),
            (json!({ "source": null }), "source", code::MISSING_FIELD),
            (json!({ "source": "x".repeat(SOURCE_BYTES_MAX + 1) }), "source", code::TOO_LONG),
            (json!({ "id": "a b" }), "id", code::INVALID_VALUE),
            (json!({ "id": "~a" }), "id", code::INVALID_VALUE),
            (json!({ "id": "explain" }), "id", code::INVALID_VALUE),
            (json!({ "id": "new" }), "id", code::INVALID_VALUE),
            (json!({ "id": "x".repeat(ScriptId::LENGTH_MAX + 1) }), "id", code::INVALID_VALUE),
            (json!({ "grants": "publish" }), "grants", code::INVALID_TYPE),
            (json!({ "grants": null }), "grants", code::INVALID_TYPE),
            (json!({ "grants": ["publish", "exec"] }), "grants[1]", code::INVALID_VALUE),
            (json!({ "language": "js" }), "language", code::UNKNOWN_FIELD),
        ] {
            assert_eq!(problems_of(&fields), [(path.to_owned(), expected)], "{fields}");
        }
        let limit = json!({ "name": "x", "source": "x".repeat(SOURCE_BYTES_MAX) });
        assert!(ScriptDraft::read(limit).is_ok());
    }

    #[test]
    fn an_answer_can_be_edited_and_sent_back() {
        let draft = ScriptDraft::read(json!({
            "id": "greet", "name": "Greets", "source": "return 1", "grants": ["submitJob", "log", "submitJob"]
        }))
        .unwrap();
        assert_eq!(draft.grants, [Grant::Log, Grant::SubmitJob], "each once, in order");
        let script = Script {
            id: draft.id.clone().unwrap(),
            name: draft.name.clone(),
            source: draft.source.clone(),
            grants: draft.grants.clone(),
            version: 2,
            created_at: Timestamp::MIN,
            updated_at: Timestamp::MAX,
        };
        let json = serde_json::to_value(&script).unwrap();
        assert_eq!(ScriptDraft::read(json.clone()).unwrap(), draft);
        assert_eq!(serde_json::from_value::<Script>(json).unwrap(), script);
    }
}
