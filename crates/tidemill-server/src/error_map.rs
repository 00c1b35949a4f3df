//! From the engine's errors to what clients see: a status, a stable code and a public message.
//!
//! This is the only place that does it. What the store says of its own troubles names files: it is for the log.

use axum::http::StatusCode;
use tidemill_engine::backend::Fault;
use tidemill_engine::engine::{EngineError, ScriptError, not_open};
use tidemill_engine::reply::Refusal;
use tidemill_engine::triage::TokenFault;
use tidemill_model::DagViolations;
use tidemill_model::authored::field_problem::FieldProblems;

use crate::api::Detail;
use crate::problem::Problem;

/// Seconds after which a store that is full or stopped may be asked again.
const STORE_RETRY_SECONDS: u64 = 5;
/// Seconds after which a tenant that has too much unfinished may ask again.
const FULL_RETRY_SECONDS: u64 = 30;

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused(refusal) => refusal.into(),
            EngineError::Fault(fault) => fault.into(),
            EngineError::Invalid { field, problem } => Self::invalid_field(field, problem),
            EngineError::TooLarge { field, size_bytes, limit_bytes } => {
                let message = format!("is {size_bytes} bytes; the limit is {limit_bytes}");
                Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..Self::field("TOO_LARGE", field, message) }
            }
            EngineError::BlobMissing { key } => Self::unavailable(
                "BLOB_MISSING",
                format!(
                    "the large value {key} is missing from the store; `tidemill verify` names all that are"
                ),
                STORE_RETRY_SECONDS,
            ),
            EngineError::Token(fault) => Self::unavailable(
                "TOKEN_KEY_UNAVAILABLE",
                format!("a task token cannot be kept: {}; nothing was changed", reason_of(&fault)),
                STORE_RETRY_SECONDS,
            )
            .because(&fault),
            EngineError::History(error) => Self::internal(&error),
            EngineError::Fields(problems) => problems.into(),
            EngineError::InlineNotAllowed { field } => Self {
                status: StatusCode::FORBIDDEN,
                ..Self::field(
                    "INLINE_NOT_ALLOWED",
                    field,
                    "brings a command, an agent or a script along, which needs the role admin",
                )
            },
            EngineError::VariableNotOpen { field, definition, opens_any } => Self {
                status: StatusCode::FORBIDDEN,
                ..Self::field("VARIABLE_NOT_OPEN", field, not_open(&definition, opens_any))
            },
        }
    }
}

/// Why no token can be sealed, without the name of a file: `tidemill doctor` tells that.
fn reason_of(fault: &TokenFault) -> &'static str {
    match fault {
        TokenFault::Key(_) => "the file of the key that seals tokens cannot be made, read or used",
        TokenFault::Damaged => "the key that seals tokens does not work",
        TokenFault::Random => "the system gives no random numbers",
    }
}

impl From<FieldProblems> for Problem {
    fn from(problems: FieldProblems) -> Self {
        let details = problems.listed.into_iter().map(|problem| {
            let field = if problem.path.is_empty() { "body".to_owned() } else { problem.path };
            Detail::new(field, problem.code, problem.message)
        });
        Self::all(details.collect(), problems.total)
    }
}

impl From<DagViolations> for Problem {
    fn from(violations: DagViolations) -> Self {
        let details = violations
            .listed
            .iter()
            .map(|violation| Detail::new(violation.field(), violation.code(), violation.to_string()));
        Self::all(details.collect(), violations.total)
    }
}

impl From<ScriptError> for Problem {
    fn from(error: ScriptError) -> Self {
        match error {
            ScriptError::Engine(error) => error.into(),
            subscribed @ ScriptError::Subscribed { .. } => Self::conflict("IN_USE", subscribed.to_string()),
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal {
            Refusal::NotFound { what, id } => Self::not_found(what, &id),
            Refusal::LeaseLost { .. } => Self::conflict("LEASE_LOST", text),
            Refusal::OutcomeDiffers { .. } => Self::conflict("OUTCOME_DIFFERS", text),
            Refusal::Held { .. } => Self::conflict("LEASE_HELD", text),
            Refusal::Parked(_) => Self::conflict("TASK_PARKED", text),
            Refusal::TooLate { .. } => Self::conflict("TOO_LATE", text),
            Refusal::EventDiffers(_) => Self::conflict("EVENT_DIFFERS", text),
            Refusal::JobCompleted(_) => Self::conflict("JOB_COMPLETED", text),
            Refusal::JobCancelled(_) => Self::conflict("JOB_CANCELLED", text),
            Refusal::Graph(violations) => violations.into(),
            Refusal::IdempotencyConflict { .. } => Self::conflict("IDEMPOTENCY_CONFLICT", text),
            Refusal::RequestTaken(_) => Self::conflict("REQUEST_ID_TAKEN", text),
            Refusal::NothingToResume => Self::conflict("NOTHING_TO_RESUME", text),
            Refusal::NotResumable(_) => Self::field("NOT_FAILED", "taskIds", text),
            Refusal::TooMany { field, .. } => Self::field("TOO_MANY", field, text),
            Refusal::TooLarge { field, size_bytes, limit_bytes } => {
                EngineError::TooLarge { field: field.into(), size_bytes, limit_bytes }.into()
            }
            Refusal::TooFarAhead { .. } => Self::field("TOO_FAR_AHEAD", "timestamp", text),
            Refusal::Reserved { .. } => Self::forbidden("RESERVED", text),
            Refusal::RecordConflict { .. } => Self::conflict("CONFLICT", text),
            Refusal::NotOpen(_) => Self::conflict("NOT_OPEN", text),
            Refusal::Exists { .. } => Self::conflict("EXISTS", text),
            Refusal::InUse { .. } => Self::conflict("IN_USE", text),
            Refusal::TaskCompleted(_) => Self::conflict("TASK_COMPLETED", text),
            Refusal::GraphChanged(_) => Self::conflict("GRAPH_CHANGED", text),
            Refusal::TaskEnded(_) => Self::conflict("TASK_ENDED", text),
            Refusal::PartOfJob { .. } => Self::conflict("PART_OF_JOB", text),
            Refusal::NotUnderWay { .. } | Refusal::NotDelivering { .. } => {
                Self::conflict("NOT_UNDER_WAY", text)
            }
            Refusal::TenantFull { .. } => Self::too_many("TENANT_FULL", text, FULL_RETRY_SECONDS),
            Refusal::TooManyWaiting { .. } => Self::conflict("TOO_MANY_WAITING", text),
            Refusal::NotParked(_) => Self::conflict("NOT_PARKED", text),
            Refusal::TokenExpired(_) => Self::new(StatusCode::GONE, "TOKEN_EXPIRED", text),
            Refusal::TooManyCodes { .. } => Self::field("TOO_MANY_CODES", "code", text),
            Refusal::BulkEnded(_) => Self::conflict("BULK_ENDED", text),
            Refusal::NotAnObject { field } => Self::invalid_field(field, "is not a JSON object"),
        }
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let cause = fault.to_string();
        let problem = match fault {
            Fault::Query(_) | Fault::TooLarge { .. } => EngineError::from(fault).into(),
            Fault::Full(_) => Self::unavailable(
                "STORE_FULL",
                "the store has no space left; nothing was changed",
                STORE_RETRY_SECONDS,
            ),
            Fault::Stopped(_) => Self::unavailable(
                "STORE_UNAVAILABLE",
                "the store stopped; the request may have been carried out or not",
                STORE_RETRY_SECONDS,
            ),
            Fault::Unavailable(_) => Self::unavailable(
                "STORE_UNAVAILABLE",
                "the store cannot be reached; the request may have been carried out or not",
                STORE_RETRY_SECONDS,
            ),
            Fault::Damaged(_) | Fault::Newer(_) => {
                Self::unavailable("STORE_UNAVAILABLE", "the store cannot answer this", STORE_RETRY_SECONDS)
            }
        };
        problem.because(&cause)
    }
}

/// What may be said of a fault to everybody: the part of the store and what the system said, but no names of files.
pub(crate) fn public_cause(fault: &Fault) -> Option<String> {
    let text = fault.to_string();
    let errno = text.split("(os error ").nth(1)?.split(')').next()?.parse().ok()?;
    let parts = [("rows", "its rows"), ("blob", "its large values"), ("log", "its log")];
    let part = parts.iter().find(|(word, _)| text.contains(word)).map_or("its disk", |(_, part)| part);
    Some(format!("{part}: {}", std::io::Error::from_raw_os_error(errno)))
}

#[cfg(test)]
mod tests {
    use tidemill_engine::execution::ExecutionId;
    use tidemill_model::ScriptId;

    use super::*;
    use crate::problem::Inside;

    #[test]
    fn a_script_with_subscriptions_is_a_conflict() {
        let problem = Problem::from(ScriptError::Subscribed { script: ScriptId::trusted("a"), count: 2 });
        assert_eq!((problem.status.as_u16(), &*problem.code), (409, "IN_USE"));
        let inner = ScriptError::from(Refusal::NotFound { what: "script", id: "x".to_owned() });
        assert_eq!(Problem::from(inner).status.as_u16(), 404);
    }

    #[test]
    fn what_the_store_says_of_itself_is_not_told() {
        let inside = || "open /var/lib/tidemill/log: EIO".to_owned();
        for (fault, code) in [
            (Fault::Full(inside()), "STORE_FULL"),
            (Fault::Stopped(inside()), "STORE_UNAVAILABLE"),
            (Fault::Damaged(inside()), "STORE_UNAVAILABLE"),
            (Fault::Newer(inside()), "STORE_UNAVAILABLE"),
        ] {
            let problem = Problem::from(EngineError::from(fault));
            assert_eq!((problem.status.as_u16(), &*problem.code), (503, code));
            let document = serde_json::to_string(&problem.document(str::to_owned)).unwrap();
            assert!(problem.retry_after.is_some() && !document.contains('/'), "{document}");
            let Some(Inside::Cause(cause)) = problem.inside.as_deref() else { panic!("{problem:?}") };
            assert!(cause.contains("/var/lib/tidemill/log: EIO"), "{cause}");
        }
    }

    #[test]
    fn what_everybody_may_know_of_a_fault_names_no_file() {
        let text =
            "the log is closed after a failure to write log/00000001.seg: File too large (os error 27)";
        let said = public_cause(&Fault::Stopped(text.to_owned()));
        assert_eq!(said.as_deref(), Some("its log: File too large (os error 27)"));
        let rows = public_cause(&Fault::Full("derived/rows.redb: x (os error 28)".to_owned())).unwrap();
        assert!(rows.starts_with("its rows: ") && !rows.contains('/'), "{rows}");
        assert_eq!(public_cause(&Fault::Stopped("/secret/place".to_owned())), None);
    }

    #[test]
    fn a_missing_blob_is_named() {
        let missing = Problem::from(EngineError::BlobMissing { key: "events/a/b".to_owned() });
        assert_eq!((missing.status.as_u16(), &*missing.code), (503, "BLOB_MISSING"));
        assert!(missing.detail.contains("events/a/b is missing"), "{missing:?}");
    }

    #[test]
    fn refusals_have_their_status_and_code() {
        let request = tidemill_model::RequestId::trusted("r");
        let job = tidemill_model::JobId::from_u128(1);
        let id = || "x".to_owned();
        for (refusal, status, code) in [
            (Refusal::NotFound { what: "job", id: id() }, 404, "NOT_FOUND"),
            (Refusal::LeaseLost { request: request.clone(), given: 1, newest: 2 }, 409, "LEASE_LOST"),
            (Refusal::OutcomeDiffers { request: request.clone(), fence: 1 }, 409, "OUTCOME_DIFFERS"),
            (
                Refusal::Held { request: request.clone(), until: tidemill_model::Timestamp::MIN },
                409,
                "LEASE_HELD",
            ),
            (Refusal::Parked(request.clone()), 409, "TASK_PARKED"),
            (Refusal::TooLate { request: request.clone() }, 409, "TOO_LATE"),
            (Refusal::EventDiffers(tidemill_model::EventId::from_u128(1)), 409, "EVENT_DIFFERS"),
            (Refusal::JobCompleted(job), 409, "JOB_COMPLETED"),
            (Refusal::JobCancelled(job), 409, "JOB_CANCELLED"),
            (
                Refusal::IdempotencyConflict { earlier: tidemill_engine::record::Effect::Job(job) },
                409,
                "IDEMPOTENCY_CONFLICT",
            ),
            (Refusal::RequestTaken(request.clone()), 409, "REQUEST_ID_TAKEN"),
            (Refusal::NothingToResume, 409, "NOTHING_TO_RESUME"),
            (Refusal::NotResumable(id()), 400, "NOT_FAILED"),
            (Refusal::TooMany { field: "taskIds", count: 2, limit: 1 }, 400, "TOO_MANY"),
            (Refusal::TooFarAhead { ahead_millis: 2, limit_millis: 1 }, 400, "TOO_FAR_AHEAD"),
            (Refusal::Reserved { what: "eventType", id: id() }, 403, "RESERVED"),
            (Refusal::NotOpen("1".to_owned()), 409, "NOT_OPEN"),
            (Refusal::TooManyWaiting { limit: 1 }, 409, "TOO_MANY_WAITING"),
            (Refusal::Exists { what: "task definition", id: id() }, 409, "EXISTS"),
            (Refusal::InUse { what: "task definition", id: id() }, 409, "IN_USE"),
            (Refusal::TaskCompleted("a".to_owned()), 409, "TASK_COMPLETED"),
            (Refusal::GraphChanged("a".to_owned()), 409, "GRAPH_CHANGED"),
            (Refusal::TaskEnded(request.clone()), 409, "TASK_ENDED"),
            (Refusal::PartOfJob { request, job }, 409, "PART_OF_JOB"),
            (Refusal::NotAnObject { field: id() }, 400, "INVALID_FIELD"),
            (Refusal::RecordConflict { expected: 1, actual: 2 }, 409, "CONFLICT"),
            (Refusal::NotUnderWay { id: ExecutionId::from_u128(1), attempt: 2 }, 409, "NOT_UNDER_WAY"),
            (Refusal::NotFound { what: "dead letter", id: id() }, 404, "NOT_FOUND"),
        ] {
            let problem = Problem::from(refusal);
            assert_eq!((problem.status.as_u16(), &*problem.code), (status, code), "{problem:?}");
            assert!(
                documented(status, code),
                "docs/reference/http-api.md does not list {code} with {status}"
            );
        }
        assert!(documented(400, tidemill_model::authored::field_problem::code::GRAPH_CHANGED));
    }

    /// Whether the table of codes has one in the row of its status.
    fn documented(status: u16, code: &str) -> bool {
        let page = include_str!("../../../docs/reference/http-api.md");
        let row = page.lines().find(|line| line.starts_with(&format!("| {status} |")));
        row.is_some_and(|row| row.contains(&format!("`{code}`")))
    }
}
