//! Messages as they come in: an envelope with `source`, `detail-type` and `detail`.
//!
//! Every mistake is named with its field, and nothing is taken in half. What is stored is the detail as it was written,
//! letter by letter, but for the task token.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::error_code::{ErrorCode, WorkflowRunId};
use super::family::{Families, Family, MessageKind};
use super::phase_step::PhaseStep;
use super::raw_object::{Reader, SECOND_MILLIS, kind_of};
use super::token::{IN_AN_ID, TaskToken, TokenCleaner};
use crate::authored::field_problem::{FieldProblems, code};
use crate::values::hex;
use crate::values::id::EventType;
use crate::values::json::Json;
use crate::values::time::Timestamp;

/// How many errors one message may bring.
pub const ERRORS_MAX: usize = 1_000;
/// Stands for a county that nobody named.
pub const NO_COUNTY: &str = "-";
/// Stands for all further places in which a code was seen, where only some are told apart.
pub const OTHER_PLACES: &str = "(other)";
/// The longest county and data group, in bytes.
pub const COUNTY_BYTES_MAX: usize = 256;
/// The longest name of a phase or a step, in bytes.
pub const PLACE_BYTES_MAX: usize = 128;
/// The longest id that a sender may give a message, in bytes.
pub const DEDUPE_BYTES_MAX: usize = 256;

/// One message, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowMessage {
    /// The sender's id of it.
    pub id: Option<String>,
    pub source: String,
    /// The name of its kind in its family.
    pub event_type: EventType,
    /// When it happened, if the message says so.
    pub time: Option<Timestamp>,
    /// Whether the time is known to the second only.
    pub whole_second: bool,
    /// The detail as it was written, with the task token taken out.
    pub detail: Json,
    pub body: WorkflowBody,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkflowBody {
    Status(StatusEvent),
    Resolved(ErrorScope),
    FailedToResolve(ErrorScope),
}

/// Where an execution stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusEvent {
    pub execution: WorkflowRunId,
    pub county: String,
    pub data_group_label: Option<String>,
    pub status: WorkflowStatus,
    pub place: PhaseStep,
    pub token: Option<TaskToken>,
    /// In their order; the same code twice is two occurrences.
    pub errors: Vec<WorkflowError>,
}

/// One occurrence of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowError {
    pub code: ErrorCode,
    /// An object; without the task token.
    pub details: Json,
}

/// The four statuses. An execution that waits is one whose newest status is `FAILED` and whose token is unused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum WorkflowStatus {
    Scheduled,
    InProgress,
    Succeeded,
    Failed,
}

impl WorkflowStatus {
    pub const ALL: [Self; 4] = [Self::Scheduled, Self::InProgress, Self::Succeeded, Self::Failed];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::InProgress => "IN_PROGRESS",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }

    /// Whether a step is over with it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Which errors are meant. A message that names neither means nothing and is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorScope {
    /// All errors of one execution.
    Execution(WorkflowRunId),
    /// One code in all executions.
    Code(ErrorCode),
    /// One code in one execution.
    Pair(WorkflowRunId, ErrorCode),
}

impl ErrorScope {
    pub fn of(execution: Option<WorkflowRunId>, code: Option<ErrorCode>) -> Option<Self> {
        match (execution, code) {
            (Some(execution), Some(code)) => Some(Self::Pair(execution, code)),
            (Some(execution), None) => Some(Self::Execution(execution)),
            (None, Some(code)) => Some(Self::Code(code)),
            (None, None) => None,
        }
    }

    pub fn execution(&self) -> Option<&WorkflowRunId> {
        match self {
            Self::Execution(execution) | Self::Pair(execution, _) => Some(execution),
            Self::Code(_) => None,
        }
    }

    pub fn code(&self) -> Option<&ErrorCode> {
        match self {
            Self::Code(code) | Self::Pair(_, code) => Some(code),
            Self::Execution(_) => None,
        }
    }
}

/// When a status was reached and how, as far as it matters for which of two is the newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    pub at: Timestamp,
    pub whole_second: bool,
    pub status: WorkflowStatus,
    pub step: &'a str,
}

impl Standing<'_> {
    /// Whether `later`, which arrived after this one, takes its place.
    ///
    /// Time decides, and arrival between equal times. If the times are known to the second only, a step that is over in
    /// that second is not begun again, unless the message brings another token.
    pub fn gives_way_to(&self, later: &Standing<'_>, other_token: bool) -> bool {
        let coarse = self.whole_second || later.whole_second;
        let unit = if coarse { SECOND_MILLIS } else { 1 };
        let (then, now) = (self.at.millis() / unit, later.at.millis() / unit);
        let begun_again = self.status.is_terminal() && !later.status.is_terminal() && self.step == later.step;
        match now.cmp(&then) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => !begun_again || other_token,
            std::cmp::Ordering::Greater => true,
        }
    }
}

impl WorkflowMessage {
    /// Reads one envelope. `place` is where it stands in a list, such as `[3]`, or empty.
    pub fn read(place: &str, json: &Json, families: &Families) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let message = Reader::open(place, json.as_str(), &mut problems)
            .and_then(|mut envelope| read_envelope(&mut envelope, families));
        match message {
            Some(message) => problems.or(message),
            None => Err(problems),
        }
    }

    /// By what a repeated delivery is known: the sender's id, else the detail and its time. `None` if nothing tells a
    /// repetition from the same thing happening again: such a message says neither an id nor a time nor a token.
    pub fn identity(&self) -> Option<String> {
        if let Some(id) = &self.id {
            return Some(format!("id:{id}"));
        }
        let token = match &self.body {
            WorkflowBody::Status(status) => status.token.as_ref(),
            _ => None,
        };
        if self.time.is_none() && token.is_none() {
            return None;
        }
        let digest = Sha256::new()
            .chain_update(self.source.as_bytes())
            .chain_update([0])
            .chain_update(self.event_type.as_str())
            .chain_update([0])
            .chain_update(self.time.map(|time| time.to_string()).unwrap_or_default())
            .chain_update([0])
            .chain_update(token.map(TaskToken::expose).unwrap_or_default())
            .chain_update([0])
            .chain_update(self.detail.as_str())
            .finalize();
        Some(format!("sha:{}", hex::encode(&digest)))
    }
}

fn read_envelope(envelope: &mut Reader<'_, '_>, families: &Families) -> Option<WorkflowMessage> {
    let source = envelope.required_text("source", DEDUPE_BYTES_MAX);
    let named =
        if envelope.has("detailType") && !envelope.has("detail-type") { "detailType" } else { "detail-type" };
    let detail_type = envelope.required_text(named, EventType::LENGTH_MAX);
    let id_field = if envelope.has("id") || !envelope.has("eventId") { "id" } else { "eventId" };
    let id = envelope.text(id_field, DEDUPE_BYTES_MAX);
    let sent = envelope.time("time");
    let detail = envelope.raw("detail");
    if detail.is_none() {
        envelope.missing("detail");
    }
    let family = families.of_source(source.as_deref()?).or_else(|| {
        envelope.problem(
            "source",
            code::INVALID_VALUE,
            format!("is not accepted; accepted are {}", families.sources()),
        );
        None
    })?;
    let detail_type = detail_type?;
    let kind = family.kind(&detail_type).or_else(|| {
        let known = [MessageKind::Status, MessageKind::Resolved, MessageKind::FailedToResolve]
            .map(|kind| family.name(kind));
        envelope.problem(named, code::INVALID_VALUE, format!("is not known; known are {}", known.join(", ")));
        None
    })?;
    let raw = detail?;
    let place = envelope.path("detail");
    let mut fields = Reader::open(&place, raw.get(), envelope.problems)?;
    let happened = fields.time("timestamp");
    let body = match kind {
        MessageKind::Status => WorkflowBody::Status(read_status(&mut fields, family)?),
        MessageKind::Resolved => WorkflowBody::Resolved(read_scope(&mut fields)?),
        MessageKind::FailedToResolve => WorkflowBody::FailedToResolve(read_scope(&mut fields)?),
    };
    let token = match &body {
        WorkflowBody::Status(status) => status.token.as_ref(),
        _ => None,
    };
    let cleaner = TokenCleaner::of(token);
    if let WorkflowBody::Status(status) = &body
        && status.token.is_some()
    {
        if cleaner.is_in(status.execution.as_str()) {
            fields.problem("executionId", code::INVALID_VALUE, IN_AN_ID);
        }
        for (at, error) in status.errors.iter().enumerate() {
            if cleaner.is_in(error.code.as_str()) {
                fields.problem(&format!("errors[{at}].code"), code::INVALID_VALUE, IN_AN_ID);
            }
        }
    }
    let detail = cleaner.detail(&fields.fields);
    let body = match body {
        WorkflowBody::Status(mut status) => {
            for error in &mut status.errors {
                error.details = cleaner.clean(std::mem::take(&mut error.details));
            }
            let place = &mut status.place;
            for text in [&mut status.county, &mut place.phase, &mut place.step] {
                *text = cleaner.clean_text(std::mem::take(text));
            }
            status.data_group_label = status.data_group_label.map(|label| cleaner.clean_text(label));
            WorkflowBody::Status(status)
        }
        scope => scope,
    };
    let whole_second = happened.or(sent).is_some_and(|moment| moment.whole_second);
    Some(WorkflowMessage {
        id,
        source: family.source.clone(),
        event_type: EventType::trusted(&detail_type),
        time: happened.or(sent).map(|moment| moment.at),
        whole_second,
        detail,
        body,
    })
}

fn read_status(fields: &mut Reader<'_, '_>, family: &Family) -> Option<StatusEvent> {
    let execution = fields.id("executionId", WorkflowRunId::new, true);
    let county = if family.needs_county() {
        fields.required_text("county", COUNTY_BYTES_MAX)
    } else {
        Some(fields.text("county", COUNTY_BYTES_MAX).unwrap_or_else(|| NO_COUNTY.to_owned()))
    };
    let data_group_label = fields.text("dataGroupLabel", COUNTY_BYTES_MAX);
    let status = fields.required_text("status", PLACE_BYTES_MAX);
    let status = status.and_then(|name| {
        let known = WorkflowStatus::from_name(&name);
        if known.is_none() {
            let message = format!("is {name:?}; it must be SCHEDULED, IN_PROGRESS, SUCCEEDED or FAILED");
            fields.problem("status", code::INVALID_VALUE, message);
        }
        known
    });
    let phase = fields.required_text("phase", PLACE_BYTES_MAX);
    let step = fields.required_text("step", PLACE_BYTES_MAX);
    let token = fields.token(status);
    let errors = read_errors(fields);
    Some(StatusEvent {
        execution: execution?,
        county: county?,
        data_group_label,
        status: status?,
        place: PhaseStep { phase: phase?, step: step? },
        token,
        errors: errors?,
    })
}

fn read_errors(fields: &mut Reader<'_, '_>) -> Option<Vec<WorkflowError>> {
    let Some(raw) = fields.raw("errors") else { return Some(Vec::new()) };
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
        fields.problem("errors", code::INVALID_TYPE, format!("must be a list, not {}", kind_of(raw)));
        return None;
    };
    if items.len() > ERRORS_MAX {
        let message = format!("has {} entries; the limit is {ERRORS_MAX}", items.len());
        fields.problem("errors", code::TOO_LONG, message);
        return None;
    }
    let mut errors = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let place = fields.path(&format!("errors[{at}]"));
        let Some(mut entry) = Reader::open(&place, item.get(), fields.problems) else { continue };
        let code = entry.id("code", ErrorCode::new, true);
        let details = entry.raw("details");
        match details {
            Some(raw) if !raw.get().starts_with('{') => {
                let message = format!("must be an object, not {}", kind_of(raw));
                entry.problem("details", code::INVALID_TYPE, message);
            }
            _ => {
                let details = details.map_or_else(Json::empty_object, Json::from_raw);
                errors.extend(code.map(|code| WorkflowError { code, details }));
            }
        }
    }
    (errors.len() == items.len()).then_some(errors)
}

fn read_scope(fields: &mut Reader<'_, '_>) -> Option<ErrorScope> {
    let execution = fields.id("executionId", WorkflowRunId::new, false);
    let code = fields.id("errorCode", ErrorCode::new, false);
    if !fields.has("executionId") && !fields.has("errorCode") {
        fields.problem("", code::ONE_OF, "must have executionId, errorCode or both");
    }
    ErrorScope::of(execution, code)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sample() -> Value {
        json!({
            "source": "elephant.workflow",
            "detail-type": "WorkflowEvent",
            "detail": {
                "executionId": "arn:aws:states:us-east-1:123456789012:execution:prepare:7f9c",
                "county": "St. Johns",
                "dataGroupLabel": "County",
                "status": "FAILED",
                "phase": "Transform",
                "step": "EvaluateTransform",
                "taskToken": "AAAAKgAAAAIAAAAAAAAAAQ==",
                "errors": [{ "code": "20St. Johns", "details": { "row": 1.5, "b": 1, "a": "é" } }]
            }
        })
    }

    fn read_text(text: &str) -> Result<WorkflowMessage, FieldProblems> {
        WorkflowMessage::read("", &Json::parse(text.to_owned()).unwrap(), &Families::default())
    }

    fn read(value: &Value) -> Result<WorkflowMessage, FieldProblems> {
        read_text(&value.to_string())
    }

    fn status_of(message: &WorkflowMessage) -> &StatusEvent {
        let WorkflowBody::Status(status) = &message.body else { panic!("{message:?}") };
        status
    }

    fn with(fields: &Value) -> Value {
        let mut message = sample();
        let detail = message["detail"].as_object_mut().unwrap();
        for (name, value) in fields.as_object().unwrap() {
            detail.insert(name.clone(), value.clone());
        }
        message
    }

    #[test]
    fn a_status_is_read_whole_and_stored_as_written_but_for_the_token() {
        let text = r#"{"version":"0","id":"e-1","source":"elephant.workflow","detail-type":"WorkflowEvent","time":"2026-11-15T20:00:01Z","account":"1",
            "detail":{"step":"EvaluateTransform", "executionId":"arn:x:y","county":"St. Johns","dataGroupLabel":"County","status":"FAILED",
            "phase":"Transform","taskToken":"AAAAKgAAAAIAAAAAAAAAAQ==","extra":[1e400],
            "errors":[{"code":"20St. Johns","details":{"row":123456789012345678901234567890}},{"code":"20St. Johns"}]}}"#;
        let message = read_text(text).unwrap();
        assert_eq!((message.id.as_deref(), message.source.as_str()), (Some("e-1"), "elephant.workflow"));
        assert_eq!(message.event_type.as_str(), "WorkflowEvent");
        assert_eq!(
            (message.time.map(Timestamp::millis), message.whole_second),
            (Some(1_794_772_801_000), true)
        );
        let status = status_of(&message);
        assert_eq!((status.execution.as_str(), status.county.as_str()), ("arn:x:y", "St. Johns"));
        assert_eq!(status.data_group_label.as_deref(), Some("County"));
        assert_eq!(status.status, WorkflowStatus::Failed);
        assert_eq!(
            (status.place.phase.as_str(), status.place.step.as_str()),
            ("Transform", "EvaluateTransform")
        );
        assert_eq!(status.token.as_ref().map(TaskToken::expose), Some("AAAAKgAAAAIAAAAAAAAAAQ=="));
        let codes: Vec<_> = status.errors.iter().map(|error| error.code.as_str()).collect();
        assert_eq!(codes, ["20St. Johns", "20St. Johns"], "each entry is an occurrence");
        assert_eq!(status.errors[0].details.as_str(), r#"{"row":123456789012345678901234567890}"#);
        assert_eq!(status.errors[1].details.as_str(), "{}");
        let stored = message.detail.as_str();
        assert!(!stored.contains("AAAAKg") && !format!("{message:?}").contains("AAAAKg"), "{stored}");
        assert!(stored.contains(r#""taskToken":"[REDACTED]""#) && stored.contains("1e400"), "{stored}");
        assert!(stored.starts_with(r#"{"step":"EvaluateTransform","executionId""#), "{stored}");
    }

    #[test]
    fn a_token_is_nowhere_in_what_is_stored() {
        let token = "AAAAKgAAAAIAAAAAAAAAAQ==";
        let message = read(&with(&json!({ "errors": [
            { "code": "20Cook", "details": { "taskToken": "another-old-token", "n": { "said": format!("token {token}!") } } }
        ] })))
        .unwrap();
        let details = &status_of(&message).errors[0].details;
        for stored in [message.detail.as_str(), details.as_str()] {
            assert!(!stored.contains("AAAAKg") && !stored.contains("another-old"), "{stored}");
            assert!(stored.contains("token [REDACTED]!"), "{stored}");
        }
        let escaped = sample().to_string().replace("\"taskToken\"", "\"\\u0074askToken\"");
        let message = read_text(&escaped).unwrap();
        assert!(!message.detail.as_str().contains("AAAAKg"), "{}", message.detail.as_str());
        assert!(status_of(&message).token.is_some());
    }

    #[test]
    fn an_id_with_the_token_in_it_is_refused() {
        let token = "AAAAKgAAAAIAAAAAAAAAAQ==";
        let errors = json!([{ "code": "20Cook" }, { "code": format!("20{token}") }]);
        for (fields, place) in [
            (json!({ "executionId": token }), "detail.executionId"),
            (json!({ "executionId": format!("arn:{token}") }), "detail.executionId"),
            (json!({ "errors": errors }), "detail.errors[1].code"),
        ] {
            let problems = read(&with(&fields)).unwrap_err();
            let named: Vec<_> = problems.listed.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(named, [place]);
            assert!(!problems.to_string().contains("AAAAKg"), "{problems}");
        }
        // A short one might be a part of any word.
        let short = json!({ "executionId": "run-abc-1", "taskToken": "abc" });
        assert!(read(&with(&short)).is_ok());
    }

    #[test]
    fn a_token_is_found_however_it_is_written() {
        let stored = |token: &str, details: &str| {
            let text = format!(
                r#"{{"source":"elephant.workflow","detail-type":"WorkflowEvent","detail":{{"executionId":"e","county":"Cook",
                "status":"FAILED","phase":"Transform","step":"Transform","taskToken":{token},
                "errors":[{{"code":"20Cook","details":{details}}}]}}}}"#
            );
            let message = read_text(&text).unwrap();
            let errors = status_of(&message).errors[0].details.as_str().to_owned();
            assert!(message.detail.as_str().contains(&errors), "{text}");
            errors
        };
        for (token, details, expected) in [
            (r#""ab\/cd+ef==""#, r#"{"a":"ab/cd+ef==","b": 1e400}"#, r#"{"a":"[REDACTED]","b": 1e400}"#),
            (r#""ab/cd+ef==""#, r#"{"a":"x ab\/cd+ef== y"}"#, r#"{"a":"x [REDACTED] y"}"#),
            (r#""ab/cd+ef==""#, r#"{"a":"?t=ab%2Fcd%2Bef%3D%3D&x"}"#, r#"{"a":"?t=[REDACTED]&x"}"#),
            (r#""ab/cd+ef==""#, r#"{"a":"{\"t\":\"ab\\/cd+ef==\"}"}"#, r#"{"a":"{\"t\":\"[REDACTED]\"}"}"#),
            (r#""q\"uo\\te""#, r#"{"a":"q\u0022uo\\te!"}"#, r#"{"a":"[REDACTED]!"}"#),
            (r#""s\u0065cret""#, r#"{"secret":"a\u0020secret"}"#, r#"{"[REDACTED]":"a [REDACTED]"}"#),
            (
                r#""abc""#,
                r#"{"a":"abc","b":"abcd","c":"\u0061bc"}"#,
                r#"{"a":"[REDACTED]","b":"abcd","c":"[REDACTED]"}"#,
            ),
            (r#""x""#, r#"{"x":"x"}"#, r#"{"x":"[REDACTED]"}"#),
            (
                r#""AAAAKg==""#,
                r#"{"taskTok\u0065n" : {"old":["t"]}, "n":1e400,"taskToken":null}"#,
                r#"{"taskTok\u0065n" : "[REDACTED]", "n":1e400,"taskToken":null}"#,
            ),
            (r#""AAAAKg==""#, r#"{"a":"50 %","b":"\u00e9"}"#, r#"{"a":"50 %","b":"\u00e9"}"#),
        ] {
            assert_eq!(stored(token, details), expected, "{token}");
        }
    }

    #[test]
    fn what_is_optional_may_be_absent() {
        let absent = json!({ "dataGroupLabel": null, "taskToken": null, "errors": null });
        let message = read(&with(&absent)).unwrap();
        let status = status_of(&message);
        assert_eq!((&status.data_group_label, &status.token, status.errors.len()), (&None, &None, 0));
        let message = read(&with(&json!({ "status": "SUCCEEDED", "taskToken": "", "errors": [] }))).unwrap();
        assert_eq!(status_of(&message).token, None);
        for status in WorkflowStatus::ALL {
            let message = read(&with(&json!({ "status": status.as_str() }))).unwrap();
            assert_eq!(status_of(&message).status, status);
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        let message = read(&with(&json!({ "phase": "Mint", "step": "MintNow" }))).unwrap();
        assert!(status_of(&message).place.unknown());
    }

    #[test]
    fn a_county_is_needed_by_the_contract_alone() {
        let families = Families::new(vec![Family::default(), Family::of("shop.orders")]).unwrap();
        let mut message = with(&json!({ "county": null }));
        let read = |message: &Value| {
            WorkflowMessage::read("", &Json::parse(message.to_string()).unwrap(), &families)
        };
        assert_eq!(read(&message).unwrap_err().to_string(), "detail.county is missing");
        message["source"] = json!("shop.orders");
        for (county, expected) in
            [(None, Ok(NO_COUNTY)), (Some(json!("EU")), Ok("EU")), (Some(json!(7)), Err("detail.county"))]
        {
            message["detail"]["county"] = county.unwrap_or_default();
            let found = read(&message);
            match expected {
                Ok(county) => assert_eq!(status_of(&found.unwrap()).county, county),
                Err(field) => assert!(found.unwrap_err().to_string().starts_with(field)),
            }
        }
    }

    #[test]
    fn every_mistake_is_named() {
        let invalid = code::INVALID_VALUE;
        for (fields, path, expected) in [
            (json!({ "executionId": null }), "detail.executionId", code::MISSING_FIELD),
            (json!({ "executionId": "" }), "detail.executionId", invalid),
            (json!({ "executionId": 7 }), "detail.executionId", code::INVALID_TYPE),
            (json!({ "executionId": "a#b" }), "detail.executionId", invalid),
            (json!({ "executionId": ".." }), "detail.executionId", invalid),
            (json!({ "executionId": "x".repeat(513) }), "detail.executionId", code::TOO_LONG),
            (json!({ "county": null }), "detail.county", code::MISSING_FIELD),
            (json!({ "county": " " }), "detail.county", invalid),
            (json!({ "county": "a\nb" }), "detail.county", invalid),
            (json!({ "county": "x".repeat(257) }), "detail.county", code::TOO_LONG),
            (json!({ "dataGroupLabel": {} }), "detail.dataGroupLabel", code::INVALID_TYPE),
            (json!({ "status": null }), "detail.status", code::MISSING_FIELD),
            (json!({ "status": "PARKED" }), "detail.status", invalid),
            (json!({ "status": "failed" }), "detail.status", invalid),
            (json!({ "phase": null }), "detail.phase", code::MISSING_FIELD),
            (json!({ "step": "" }), "detail.step", invalid),
            (json!({ "taskToken": "" }), "detail.taskToken", invalid),
            (json!({ "taskToken": "[REDACTED]" }), "detail.taskToken", invalid),
            (json!({ "taskToken": ["x"] }), "detail.taskToken", code::INVALID_TYPE),
            (json!({ "taskToken": "x".repeat(2_049) }), "detail.taskToken", code::TOO_LONG),
            (json!({ "errors": {} }), "detail.errors", code::INVALID_TYPE),
            (
                json!({ "errors": vec![json!({ "code": "20x" }); ERRORS_MAX + 1] }),
                "detail.errors",
                code::TOO_LONG,
            ),
            (json!({ "errors": ["20x"] }), "detail.errors[0]", code::INVALID_TYPE),
            (json!({ "errors": [{ "code": "20x" }, { "code": "" }] }), "detail.errors[1].code", invalid),
            (json!({ "errors": [{ "code": "X1" }] }), "detail.errors[0].code", invalid),
            (json!({ "errors": [{}] }), "detail.errors[0].code", code::MISSING_FIELD),
            (
                json!({ "errors": [{ "code": "20x", "details": "y" }] }),
                "detail.errors[0].details",
                code::INVALID_TYPE,
            ),
            (json!({ "timestamp": "soon" }), "detail.timestamp", invalid),
            (json!({ "timestamp": 5 }), "detail.timestamp", invalid),
        ] {
            let problems = read(&with(&fields)).unwrap_err();
            let listed: Vec<_> =
                problems.listed.iter().map(|problem| (problem.path.as_str(), problem.code)).collect();
            assert_eq!(listed, [(path, expected)], "{fields}");
        }
        let many = read(&with(&json!({ "county": null, "status": "X", "errors": [{}] }))).unwrap_err();
        assert_eq!(many.total, 3, "all are listed: {many:?}");
    }

    #[test]
    fn every_mistake_of_the_envelope_is_named() {
        for (field, value, path) in [
            ("source", json!("acme"), "source"),
            ("source", json!(null), "source"),
            ("detail-type", json!("Workflowevent"), "detail-type"),
            ("detail-type", json!(null), "detail-type"),
            ("detail", json!(null), "detail"),
            ("detail", json!("{}"), "detail"),
            ("time", json!("2026-11-15"), "time"),
            ("time", json!(7), "time"),
            ("id", json!(7), "id"),
            ("id", json!("x".repeat(257)), "id"),
        ] {
            let mut message = sample();
            message[field] = value.clone();
            let problems = read(&message).unwrap_err();
            let paths: Vec<_> = problems.listed.iter().map(|problem| problem.path.as_str()).collect();
            assert_eq!(paths, [path], "{field} {value}");
        }
        let listed =
            WorkflowMessage::read("[3]", &Json::parse("7".to_owned()).unwrap(), &Families::default());
        assert_eq!(listed.unwrap_err().to_string(), "[3] must be an object, not a number");
        let mut message = sample();
        message["detail"]["county"] = Value::Null;
        let listed = WorkflowMessage::read("[3]", &Json::of(&message), &Families::default());
        assert_eq!(listed.unwrap_err().to_string(), "[3].detail.county is missing");
        let twice = sample().to_string().replace("\"county\"", "\"status\":\"FAILED\",\"county\"");
        assert_eq!(read_text(&twice).unwrap_err().to_string(), "detail.status stands twice");
    }

    #[test]
    fn resolutions_name_an_execution_a_code_or_both() {
        let scope = |detail_type: &str, detail: Value| {
            read(&json!({ "source": "elephant.workflow", "detail-type": detail_type, "detail": detail }))
        };
        let body = |detail: Value| scope("ElephantErrorResolved", detail).unwrap().body;
        let (execution, error) = (WorkflowRunId::new("e").unwrap(), ErrorCode::new("20x").unwrap());
        assert_eq!(
            body(json!({ "executionId": "e" })),
            WorkflowBody::Resolved(ErrorScope::Execution(execution.clone()))
        );
        assert_eq!(
            body(json!({ "errorCode": "20x", "executionId": null })),
            WorkflowBody::Resolved(ErrorScope::Code(error.clone()))
        );
        let pair = ErrorScope::Pair(execution.clone(), error.clone());
        assert_eq!((pair.execution(), pair.code()), (Some(&execution), Some(&error)));
        let failed = scope("ElephantErrorFailedToResolve", json!({ "executionId": "e", "errorCode": "20x" }));
        assert_eq!(failed.unwrap().body, WorkflowBody::FailedToResolve(pair));
        for (detail, message) in [
            (json!({}), "detail must have executionId, errorCode or both"),
            (json!({ "errorCode": "" }), "detail.errorCode is empty"),
            (
                json!({ "executionId": "e", "errorCode": "x" }),
                "detail.errorCode is not of the form two digits and at least one character more",
            ),
        ] {
            assert_eq!(scope("ElephantErrorResolved", detail).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn another_family_has_its_own_names() {
        let acme = Family { status_type: "Step Changed".to_owned(), ..Family::of("acme.flow") };
        let families = Families::new(vec![Family::default(), acme]).unwrap();
        let mut message = sample();
        message["source"] = json!("acme.flow");
        let read = |message: &Value| WorkflowMessage::read("", &Json::of(message), &families);
        assert!(read(&message).unwrap_err().to_string().contains("Step Changed"));
        message["detail-type"] = json!("Step Changed");
        let message = read(&message).unwrap();
        assert_eq!((message.source.as_str(), message.event_type.as_str()), ("acme.flow", "Step Changed"));
    }

    #[test]
    fn times_are_read_in_both_forms() {
        for (text, expected) in [
            ("1794772801234", Some((1_794_772_801_234, false))),
            ("\"2026-11-15T20:00:01Z\"", Some((1_794_772_801_000, true))),
            ("\"2026-11-15T20:00:01.2Z\"", Some((1_794_772_801_200, false))),
            ("\"2026-11-15T20:00:01.234567Z\"", Some((1_794_772_801_234, false))),
            ("\"2026-11-15T22:30:01+02:30\"", Some((1_794_772_801_000, true))),
            ("\"2026-11-15T18:00:01-02:00\"", Some((1_794_772_801_000, true))),
            ("\"2026-11-15T20:00:01\"", None),
            ("\"2026-02-30T20:00:01Z\"", None),
            ("\"2026-11-15T25:00:01Z\"", None),
            ("\"2026-11-15T20:00:01.Z\"", None),
            ("\"1794772801234\"", None),
            ("1.5", None),
        ] {
            let message = sample().to_string().replacen('{', &format!("{{\"time\":{text},"), 1);
            let found = read_text(&message)
                .ok()
                .map(|message| (message.time.unwrap().millis(), message.whole_second));
            assert_eq!(found, expected, "{text}");
        }
        let mut both = with(&json!({ "timestamp": 1_794_772_809_999_u64 }));
        both["time"] = json!("2026-11-15T20:00:01Z");
        let message = read(&both).unwrap();
        assert_eq!((message.time.unwrap().millis(), message.whole_second), (1_794_772_809_999, false));
    }

    #[test]
    fn a_repeated_delivery_is_known() {
        let identity = |value: &Value| read(value).unwrap().identity();
        let mut message = sample();
        assert!(identity(&message).is_some_and(|known| known.starts_with("sha:")), "the token tells");
        let other = with(&json!({ "taskToken": "BBBBKgAAAAIAAAAAAAAAAQ==" }));
        assert_ne!(identity(&message), identity(&other), "though what is stored is the same");
        message["time"] = json!("2026-11-15T20:00:01Z");
        let first = identity(&message);
        assert_eq!(first, identity(&message));
        message["time"] = json!("2026-11-15T20:00:02Z");
        assert_ne!(first, identity(&message));
        message["id"] = json!("e-1");
        assert_eq!(identity(&message).as_deref(), Some("id:e-1"));
        let vague = with(&json!({ "taskToken": null }));
        assert_eq!(identity(&vague), None, "it may happen again");
    }

    #[test]
    fn the_newer_status_counts() {
        use WorkflowStatus::{Failed, InProgress, Scheduled, Succeeded};
        let at = |millis: u64, whole_second, status, step: &'static str| Standing {
            at: Timestamp::clamped(1_794_772_800_000 + millis),
            whole_second,
            status,
            step,
        };
        for (old, new, other_token, expected) in [
            (at(0, true, Failed, "a"), at(1_000, true, InProgress, "a"), false, true),
            (at(1_000, true, Failed, "a"), at(0, true, Succeeded, "a"), false, false),
            (at(0, true, Failed, "a"), at(0, true, InProgress, "a"), false, false),
            (at(0, true, Failed, "a"), at(0, true, Scheduled, "a"), false, false),
            (at(0, true, Failed, "a"), at(0, true, InProgress, "a"), true, true),
            (at(0, true, Succeeded, "a"), at(0, true, InProgress, "b"), false, true),
            (at(0, true, InProgress, "a"), at(0, true, Failed, "a"), false, true),
            (at(0, true, Succeeded, "a"), at(0, true, Failed, "a"), false, true),
            (at(5, false, Failed, "a"), at(6, false, InProgress, "a"), false, true),
            (at(5, false, Failed, "a"), at(4, false, InProgress, "a"), false, false),
            (at(5, false, Failed, "a"), at(0, true, InProgress, "a"), false, false),
            (at(5, false, InProgress, "a"), at(0, true, Failed, "a"), false, true),
        ] {
            assert_eq!(old.gives_way_to(&new, other_token), expected, "{old:?} then {new:?}");
        }
    }
}
