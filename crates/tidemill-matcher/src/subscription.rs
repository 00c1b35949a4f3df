//! Subscriptions: which events a script is to run for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::filter::FilterRules;
use tidemill_model::authored::document::Document;
use tidemill_model::authored::field_problem::{FieldProblems, code};
use tidemill_model::values::id::{EventType, ScriptId, SubscriptionId, TenantId};
use tidemill_model::values::json::Json;
use tidemill_model::values::time::Timestamp;

/// The subscriptions of one tenant.
pub const SUBSCRIPTIONS_MAX: usize = 100_000;

/// A script's wish to see events of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subscription {
    pub id: SubscriptionId,
    pub script_id: ScriptId,
    pub tenant_id: TenantId,
    pub event_type: EventType,
    /// The rules written out: null, or groups with lists of conditions. See docs/reference/filters.md.
    pub filter_rules: Json,
    /// Whether it matches at all.
    pub enabled: bool,
    pub created_at: Timestamp,
    /// Only events with a higher sequence number match: those after it was made or enabled.
    pub since_seq: u64,
}

impl Subscription {
    /// The rules, read again. Rules that cannot be read any more match nothing.
    pub fn rules(&self) -> Result<FilterRules, FieldProblems> {
        let value: Value = self.filter_rules.read().map_err(|error| {
            FieldProblems::one("filterRules", crate::filter::INVALID_FILTER, format!("is no JSON: {error}"))
        })?;
        FilterRules::parse(&value)
    }
}

/// A subscription as it is written.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionDraft {
    /// Letters, digits, `_` and `-`; minted when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<SubscriptionId>,
    pub script_id: ScriptId,
    /// Any type of the tenant's events, as a whole: there are no wildcards.
    pub event_type: EventType,
    /// Conditions on the event's properties; without any, every event of the type matches. See docs/reference/filters.md.
    #[schemars(with = "Option<Json>")]
    pub filter_rules: FilterRules,
    /// Whether it matches at all; true when it is left out.
    #[schemars(with = "Option<bool>")]
    pub enabled: bool,
}

const FIELDS: &str = "id, scriptId, eventType, filterRules, enabled";
/// What an answer holds beside the draft. It may be sent back and is not read.
const ANSWERED: [&str; 3] = ["tenantId", "createdAt", "sinceSeq"];

impl SubscriptionDraft {
    /// Reads a subscription, or tells everything that is wrong. Whether its script exists is not looked at.
    pub fn read(value: Value) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let Some(mut document) = Document::open("", value, &mut problems) else { return Err(problems) };
        for field in ANSWERED {
            document.take(field);
        }
        let id = document.text("id").and_then(|text| {
            let id = SubscriptionId::new(text);
            id.map_err(|bad| document.problem("id", code::INVALID_VALUE, bad.problem.to_string())).ok()
        });
        for field in ["scriptId", "eventType"] {
            if !document.has(field) {
                document.missing(field);
            }
        }
        let script_id = document.text("scriptId").and_then(|text| {
            let id = ScriptId::new(text);
            id.map_err(|bad| document.problem("scriptId", code::INVALID_VALUE, bad.problem.to_string())).ok()
        });
        let event_type = document.text("eventType").and_then(|text| {
            let event_type = EventType::new(text);
            let refuse = |bad: tidemill_model::values::id::BadId| {
                document.problem("eventType", code::INVALID_VALUE, bad.problem.to_string());
            };
            event_type.map_err(refuse).ok()
        });
        let rules = FilterRules::parse(&document.take("filterRules").unwrap_or(Value::Null));
        let filter_rules = match rules {
            Ok(rules) => Some(rules),
            Err(found) => {
                for problem in found.listed {
                    document.problems.add(problem.path, problem.code, problem.message);
                }
                None
            }
        };
        let enabled = document.flag("enabled").unwrap_or(true);
        document.close(FIELDS);
        match (script_id, event_type, filter_rules) {
            (Some(script_id), Some(event_type), Some(filter_rules)) => {
                problems.or(Self { id, script_id, event_type, filter_rules, enabled })
            }
            _ => Err(problems),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::filter::INVALID_FILTER;

    fn with(fields: &Value) -> Value {
        let mut draft = json!({ "scriptId": "greet", "eventType": "user.created" });
        draft.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        draft
    }

    #[test]
    fn every_rule_has_its_place_and_code() {
        for (fields, path, expected) in [
            (json!({ "scriptId": null }), "scriptId", code::MISSING_FIELD),
            (json!({ "scriptId": "a/b" }), "scriptId", code::INVALID_VALUE),
            (json!({ "scriptId": 7 }), "scriptId", code::INVALID_TYPE),
            (json!({ "eventType": null }), "eventType", code::MISSING_FIELD),
            (json!({ "eventType": "a#b" }), "eventType", code::INVALID_VALUE),
            (json!({ "eventType": "x".repeat(129) }), "eventType", code::INVALID_VALUE),
            (json!({ "id": "" }), "id", code::INVALID_VALUE),
            (json!({ "enabled": "yes" }), "enabled", code::INVALID_TYPE),
            (json!({ "filterRules": [] }), "filterRules", INVALID_FILTER),
            (json!({ "filterRules": { "a": { "$gt": 1 } } }), "filterRules.a", INVALID_FILTER),
            (json!({ "filterRules": { "__proto__.x": 1 } }), "filterRules[\"__proto__.x\"]", INVALID_FILTER),
            (json!({ "wildcard": true }), "wildcard", code::UNKNOWN_FIELD),
        ] {
            let problems = SubscriptionDraft::read(with(&fields)).expect_err("it is refused");
            let [problem] = &problems.listed[..] else { panic!("{fields}: {problems:?}") };
            assert_eq!((problem.code, problems.total), (expected, 1), "{fields}: {problem}");
            let fits = problem.path == path
                || path.starts_with("filterRules") && problem.path.starts_with("filterRules");
            assert!(fits, "{fields}: {problem}");
        }
    }

    #[test]
    fn an_answer_can_be_edited_and_sent_back() {
        let rules = json!({ "role": "admin", "age": { "gte": 18 } });
        let draft = SubscriptionDraft::read(with(&json!({ "id": "s1", "filterRules": rules }))).unwrap();
        assert!(draft.enabled && !draft.filter_rules.is_all());
        let subscription = Subscription {
            id: draft.id.clone().unwrap(),
            script_id: draft.script_id.clone(),
            tenant_id: TenantId::trusted("acme"),
            event_type: draft.event_type.clone(),
            filter_rules: Json::of(&draft.filter_rules),
            enabled: draft.enabled,
            created_at: Timestamp::MIN,
            since_seq: 7,
        };
        let json = serde_json::to_value(&subscription).unwrap();
        let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected =
            ["createdAt", "enabled", "eventType", "filterRules", "id", "scriptId", "sinceSeq", "tenantId"];
        assert_eq!(names, expected);
        assert_eq!(SubscriptionDraft::read(json.clone()).unwrap(), draft);
        assert_eq!(serde_json::from_value::<Subscription>(json).unwrap(), subscription);
        assert_eq!(subscription.rules().unwrap(), draft.filter_rules);
    }
}
