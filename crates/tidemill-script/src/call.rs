//! Host functions: what a script can ask for, by grant.
//!
//! A call changes nothing by itself. The host checks it where the script runs and keeps it until the script has
//! succeeded. The caller of the execution checks it again and commits it.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tidemill_model::{BadId, EventId, EventType, JobId, Json};

use crate::limits::{CALL_BYTES_MAX, CALLS_BYTES_MAX, CALLS_MAX};

/// A host function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CallKind {
    Publish,
    SubmitJob,
    ResolveError,
}

impl CallKind {
    pub const ALL: [Self; 3] = [Self::Publish, Self::SubmitJob, Self::ResolveError];

    /// The name of the grant that allows it.
    pub fn grant(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::SubmitJob => "submitJob",
            Self::ResolveError => "resolveError",
        }
    }

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Publish => 0,
            Self::SubmitJob => 1,
            Self::ResolveError => 2,
        }
    }

    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| i32::from(kind.number()) == number)
    }
}

/// Which host functions a script may call.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grants(u8);

impl Grants {
    pub const NONE: Self = Self(0);
    pub const ALL: Self = Self(0b111);

    #[must_use]
    pub fn with(self, kind: CallKind) -> Self {
        Self(self.0 | 1 << kind.number())
    }

    pub fn has(self, kind: CallKind) -> bool {
        self.0 & (1 << kind.number()) != 0
    }

    /// The grants of these names; the first name that is none.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        names.into_iter().try_fold(Self::NONE, |grants, name| {
            let kind = CallKind::ALL.into_iter().find(|kind| kind.grant() == name).ok_or(name)?;
            Ok(grants.with(kind))
        })
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(CallKind::ALL.iter().filter(|kind| self.has(**kind)).map(|kind| kind.grant()))
            .finish()
    }
}

/// Something that a script asked for. The ids are derived from the execution and the place among its calls, so that a
/// repetition of the same execution asks for the same things.
#[derive(Debug, Clone)]
pub enum HostCall {
    /// `ctx.publish(type, data)`; `data` is a JSON object.
    Publish { id: EventId, event_type: EventType, data: Json },
    /// `ctx.submitJob(spec)`; `spec` is a JSON object, not looked at any further.
    SubmitJob { id: JobId, spec: Json },
    /// `ctx.resolveError({executionId, errorCode, …})`; at least one of the two is a text. The rest is not looked at.
    ResolveError { id: EventId, error: Json },
}

impl HostCall {
    pub fn kind(&self) -> CallKind {
        match self {
            Self::Publish { .. } => CallKind::Publish,
            Self::SubmitJob { .. } => CallKind::SubmitJob,
            Self::ResolveError { .. } => CallKind::ResolveError,
        }
    }
}

/// A call as it travels from the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RawCall {
    pub(crate) kind: CallKind,
    /// The event type of `publish`; empty for the others.
    pub(crate) subject: String,
    pub(crate) json: String,
}

/// What is wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadCall {
    #[error("type: {0}")]
    Type(BadId),
    #[error("the {0} must be an object")]
    NotAnObject(&'static str),
    #[error("{size} bytes of JSON; the limit is {CALL_BYTES_MAX}")]
    TooLarge { size: usize },
    #[error("executionId and errorCode are both missing; at least one must be a text")]
    NothingNamed,
    #[error("{0} must be a text of 1 to 256 characters")]
    NotAText(&'static str),
}

/// What `resolveError` must name.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ErrorName {
    #[serde(default)]
    execution_id: Option<serde_json::Value>,
    #[serde(default)]
    error_code: Option<serde_json::Value>,
}

/// Checks a call where the script runs. `accept` does the same where it arrives.
pub(crate) fn check_call(call: &RawCall) -> Result<(), BadCall> {
    let what = match call.kind {
        CallKind::Publish => "data",
        CallKind::SubmitJob => "job",
        CallKind::ResolveError => "error",
    };
    if call.json.len() > CALL_BYTES_MAX {
        return Err(BadCall::TooLarge { size: call.json.len() });
    }
    if !call.json.starts_with('{') {
        return Err(BadCall::NotAnObject(what));
    }
    match call.kind {
        CallKind::Publish => EventType::new(&call.subject).map(drop).map_err(BadCall::Type),
        CallKind::SubmitJob => Ok(()),
        CallKind::ResolveError => {
            let name: ErrorName = serde_json::from_str(&call.json).map_err(|_| BadCall::NotAnObject(what))?;
            let text = |field, value: Option<serde_json::Value>| match value {
                None | Some(serde_json::Value::Null) => Ok(false),
                Some(serde_json::Value::String(text)) if (1..=256).contains(&text.chars().count()) => {
                    Ok(true)
                }
                Some(_) => Err(BadCall::NotAText(field)),
            };
            let execution = text("executionId", name.execution_id)?;
            let code = text("errorCode", name.error_code)?;
            if execution || code { Ok(()) } else { Err(BadCall::NothingNamed) }
        }
    }
}

/// Takes the calls of an execution from a host, which is not trusted: nothing that it could not have accepted, nothing
/// without a grant, no more than there may be. `None` says that the host is broken.
pub(crate) fn accept(execution: EventId, grants: Grants, calls: Vec<RawCall>) -> Option<Vec<HostCall>> {
    let bytes: usize = calls.iter().map(|call| call.subject.len() + call.json.len()).sum();
    if calls.len() > CALLS_MAX || bytes > CALLS_BYTES_MAX {
        return None;
    }
    calls
        .into_iter()
        .enumerate()
        .map(|(index, call)| {
            if !grants.has(call.kind) || check_call(&call).is_err() {
                return None;
            }
            let id = derived_id(execution, index);
            let json = Json::parse(call.json).ok()?;
            Some(match call.kind {
                CallKind::Publish => {
                    HostCall::Publish { id, event_type: EventType::new(&call.subject).ok()?, data: json }
                }
                CallKind::SubmitJob => HostCall::SubmitJob { id: JobId::mint(id), spec: json },
                CallKind::ResolveError => HostCall::ResolveError { id, error: json },
            })
        })
        .collect()
}

/// The id of the call at `index` of an execution: a UUID of version 7 with the moment of the execution's own id, the
/// rest from a digest of both.
pub fn derived_id(execution: EventId, index: usize) -> EventId {
    let mut hash = Sha256::new();
    hash.update(execution.as_u128().to_be_bytes());
    hash.update((index as u64).to_be_bytes());
    let digest = hash.finalize();
    let mut bits = [0; 16];
    bits.copy_from_slice(&digest[..16]);
    let moment_mask = !0_u128 << 80;
    let mut id = execution.as_u128() & moment_mask | u128::from_be_bytes(bits) & !moment_mask;
    id = id & !(0xf << 76) | 0x7 << 76;
    id = id & !(0b11 << 62) | 0b10 << 62;
    EventId::from_u128(id)
}

/// The id of a call as the script sees it.
pub(crate) fn id_text(kind: CallKind, id: EventId) -> String {
    match kind {
        CallKind::SubmitJob => JobId::mint(id).to_string(),
        CallKind::Publish | CallKind::ResolveError => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CallKind, subject: &str, json: &str) -> RawCall {
        RawCall { kind, subject: subject.to_owned(), json: json.to_owned() }
    }

    #[test]
    fn calls_are_checked() {
        use CallKind::{Publish, ResolveError, SubmitJob};
        for (raw, expected) in [
            (call(Publish, "a.b", "{}"), None),
            (call(Publish, "", "{}"), Some("type: ")),
            (call(Publish, "a#b", "{}"), Some("type: ")),
            (call(Publish, "a", "[1]"), Some("the data must be an object")),
            (call(Publish, "a", ""), Some("the data must be an object")),
            (call(SubmitJob, "", "{\"tasks\":[]}"), None),
            (call(SubmitJob, "", "3"), Some("the job must be an object")),
            (call(ResolveError, "", "{\"errorCode\":\"01256\"}"), None),
            (call(ResolveError, "", "{\"executionId\":\"e\",\"output\":{}}"), None),
            (call(ResolveError, "", "{}"), Some("both missing")),
            (call(ResolveError, "", "{\"errorCode\":7}"), Some("errorCode must be a text")),
            (call(ResolveError, "", "{\"executionId\":\"\"}"), Some("executionId must be a text")),
        ] {
            let found = check_call(&raw).err().map(|problem| problem.to_string());
            match (&found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) if found.contains(expected) => {}
                _ => panic!("{raw:?}: {found:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_host_cannot_smuggle_calls_in() {
        let execution = EventId::from_u128(7);
        let publish = call(CallKind::Publish, "a", "{}");
        let accepted = |calls| accept(execution, Grants::NONE.with(CallKind::Publish), calls);
        assert_eq!(accepted(vec![publish.clone()]).map(|calls| calls.len()), Some(1));
        assert!(accepted(vec![call(CallKind::SubmitJob, "", "{}")]).is_none(), "not granted");
        assert!(accepted(vec![call(CallKind::Publish, "a", "{broken")]).is_none(), "no JSON");
        assert!(accepted(vec![call(CallKind::Publish, "a", "{} {}")]).is_none(), "more than one value");
        assert!(accepted(vec![call(CallKind::Publish, "a#b", "{}")]).is_none(), "no event type");
        assert!(accepted(vec![publish; CALLS_MAX + 1]).is_none(), "too many");
    }

    #[test]
    fn derived_ids_are_of_version_7_and_differ_by_execution_and_index() {
        let execution = EventId::from_u128(0x0193_2c07_5a5a_7abc_9def_0123_4567_89ab);
        let id = derived_id(execution, 0);
        assert_eq!(id, derived_id(execution, 0));
        assert_ne!(id, derived_id(execution, 1));
        assert_ne!(id, derived_id(EventId::from_u128(execution.as_u128() + 1), 0));
        let text = id.to_string();
        assert_eq!(&text[..13], "01932c07-5a5a", "the moment is the execution's");
        assert_eq!(&text[14..15], "7");
        assert!("89ab".contains(&text[19..20]));
    }
}
