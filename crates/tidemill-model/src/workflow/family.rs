//! Families of workflow events: from which source, and under which names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authored::field_problem::{FieldProblems, code};
use crate::events::known_type::is_reserved;
use crate::values::id::EventType;

/// How many families may be configured.
pub const FAMILIES_MAX: usize = 32;
const SOURCE_BYTES_MAX: usize = 256;

/// The source of the workflow contract; see `docs/reference/triage.md`.
const CONTRACT_SOURCE: &str = "elephant.workflow";

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageKind {
    /// Where an execution stands, with its errors.
    Status,
    /// Errors are mended.
    Resolved,
    /// Errors cannot be mended.
    FailedToResolve,
}

/// Events of one source, and what they are called there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Family {
    /// The `source` that is accepted.
    pub source: String,
    /// The `detail-type` of a status.
    #[serde(default = "status_type")]
    pub status_type: String,
    /// The `detail-type` that says that errors are mended.
    #[serde(default = "resolved_type")]
    pub resolved_type: String,
    /// The `detail-type` that says that errors cannot be mended.
    #[serde(default = "failed_type")]
    pub failed_type: String,
}

fn status_type() -> String {
    "WorkflowEvent".to_owned()
}

fn resolved_type() -> String {
    "ElephantErrorResolved".to_owned()
}

fn failed_type() -> String {
    "ElephantErrorFailedToResolve".to_owned()
}

impl Family {
    /// The usual names from another source.
    pub fn of(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            status_type: status_type(),
            resolved_type: resolved_type(),
            failed_type: failed_type(),
        }
    }

    /// Whether its statuses must name a county. Those of other sources may.
    pub fn needs_county(&self) -> bool {
        self.source == CONTRACT_SOURCE
    }

    /// What a message of this `detail-type` says.
    pub fn kind(&self, detail_type: &str) -> Option<MessageKind> {
        [MessageKind::Status, MessageKind::Resolved, MessageKind::FailedToResolve]
            .into_iter()
            .find(|kind| self.name(*kind) == detail_type)
    }

    /// The `detail-type` of messages that say this; also the type of their events in the log.
    pub fn name(&self, kind: MessageKind) -> &str {
        match kind {
            MessageKind::Status => &self.status_type,
            MessageKind::Resolved => &self.resolved_type,
            MessageKind::FailedToResolve => &self.failed_type,
        }
    }
}

impl Default for Family {
    fn default() -> Self {
        Self::of(CONTRACT_SOURCE)
    }
}

/// The families that are accepted. There is always one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Families(Vec<Family>);

impl Families {
    /// Checks what was configured. None means the usual one.
    pub fn new(families: Vec<Family>) -> Result<Self, FieldProblems> {
        if families.is_empty() {
            return Ok(Self::default());
        }
        let mut problems = FieldProblems::default();
        if families.len() > FAMILIES_MAX {
            let message = format!("has {} entries; the limit is {FAMILIES_MAX}", families.len());
            problems.add("families", code::TOO_LONG, message);
        }
        for (at, family) in families.iter().enumerate() {
            check(&format!("families[{at}]"), family, &families[..at], &mut problems);
        }
        problems.or(Self(families))
    }

    /// The family of this source.
    pub fn of_source(&self, source: &str) -> Option<&Family> {
        self.0.iter().find(|family| family.source == source)
    }

    /// The family whose names events carry that the engine itself writes.
    pub fn own(&self) -> &Family {
        &self.0[0]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Family> {
        self.0.iter()
    }

    /// Whether events of this type are workflow events of any family, which only enter as such.
    pub fn has_type(&self, event_type: &str) -> bool {
        self.0.iter().any(|family| family.kind(event_type).is_some())
    }

    /// The sources, for a message to people.
    pub fn sources(&self) -> String {
        let sources: Vec<_> = self.0.iter().map(|family| family.source.as_str()).collect();
        sources.join(", ")
    }
}

impl Default for Families {
    fn default() -> Self {
        Self(vec![Family::default()])
    }
}

fn check(place: &str, family: &Family, before: &[Family], problems: &mut FieldProblems) {
    let source = &family.source;
    let path = format!("{place}.source");
    if source.is_empty() || source.chars().any(char::is_control) {
        problems.add(path, code::INVALID_VALUE, "must be a text without control characters");
    } else if source.len() > SOURCE_BYTES_MAX {
        let message = format!("is {} bytes; the limit is {SOURCE_BYTES_MAX}", source.len());
        problems.add(path, code::TOO_LONG, message);
    } else if before.iter().any(|other| other.source == *source) {
        problems.add(path, code::INVALID_VALUE, format!("{source:?} is the source of another family"));
    }
    let names = [
        ("statusType", &family.status_type),
        ("resolvedType", &family.resolved_type),
        ("failedType", &family.failed_type),
    ];
    for (at, (field, name)) in names.iter().enumerate() {
        let path = format!("{place}.{field}");
        if let Err(bad) = EventType::new(name) {
            problems.add(path, code::INVALID_VALUE, bad.problem.to_string());
        } else if is_reserved(name) {
            problems.add(path, code::INVALID_VALUE, "is a type that only the engine writes");
        } else if names[..at].iter().any(|(_, other)| other == name) {
            problems.add(path, code::INVALID_VALUE, "is the name of another kind of message");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_family_has_the_usual_names() {
        let families = Families::new(Vec::new()).unwrap();
        let family = families.of_source("elephant.workflow").unwrap();
        for (name, kind) in [
            ("WorkflowEvent", Some(MessageKind::Status)),
            ("ElephantErrorResolved", Some(MessageKind::Resolved)),
            ("ElephantErrorFailedToResolve", Some(MessageKind::FailedToResolve)),
            ("workflowevent", None),
        ] {
            assert_eq!(family.kind(name), kind, "{name}");
        }
        assert_eq!(families.of_source("other"), None);
    }

    #[test]
    fn other_families_are_data() {
        let text = r#"{"source":"acme.flow","statusType":"Step Changed"}"#;
        let family: Family = serde_json::from_str(text).unwrap();
        let families = Families::new(vec![Family::default(), family]).unwrap();
        let acme = families.of_source("acme.flow").unwrap();
        assert_eq!(acme.kind("Step Changed"), Some(MessageKind::Status));
        assert_eq!(acme.kind("WorkflowEvent"), None);
        assert!(families.has_type("Step Changed") && families.has_type("WorkflowEvent"));
        assert!(!families.has_type("Step"));
        assert_eq!(families.sources(), "elephant.workflow, acme.flow");
        assert!(serde_json::from_str::<Family>(r#"{"source":"a","status":"b"}"#).is_err());
    }

    #[test]
    fn every_mistake_has_its_place() {
        let bad = |change: fn(&mut Family)| {
            let mut family = Family::of("acme");
            change(&mut family);
            let problems = Families::new(vec![Family::default(), family]).unwrap_err();
            problems.listed.into_iter().map(|problem| problem.path).collect::<Vec<_>>()
        };
        for (change, path) in [
            ((|family| family.source.clear()) as fn(&mut Family), "families[1].source"),
            (|family| family.source = "x".repeat(257), "families[1].source"),
            (|family| family.source = "elephant.workflow".to_owned(), "families[1].source"),
            (|family| family.status_type = "a#b".to_owned(), "families[1].statusType"),
            (|family| family.status_type = "Task Failed".to_owned(), "families[1].statusType"),
            (|family| family.failed_type = "WorkflowEvent".to_owned(), "families[1].failedType"),
        ] {
            assert_eq!(bad(change), [path]);
        }
        let many = (0..=FAMILIES_MAX).map(|at| Family::of(format!("s{at}"))).collect();
        assert_eq!(Families::new(many).unwrap_err().listed[0].path, "families");
    }
}
