//! Workflow events: take them in, say what codes mean, and tell the owner of a token what became of it.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use schemars::{Schema, SchemaGenerator, json_schema};
use tidemill_engine::engine::{EngineError, IngestRequest, TokenOutcome};
use tidemill_engine::reply::Refusal;
use tidemill_model::Json;
use tidemill_model::authored::field_problem::{FieldProblems, PROBLEMS_MAX};
use tidemill_model::workflow::{CatalogueEntry, ErrorCode, Known, TaskToken, WorkflowMessage};

use crate::admission::caller::Welcome;
use crate::api::{
    Page, TokenOutcomeView, TokenRequest, TokenTakenName, WorkflowEnvelope, WorkflowEventAccepted,
    WorkflowEventsAccepted,
};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{Call, READ, Reply, Route, SUBMIT, json, page_size};
use crate::views::View;

pub(super) const GROUP: &str = "Workflows";
/// A code of errors.
pub(super) const CODE: Kind = Kind::Text { most: ErrorCode::LENGTH_MAX };
/// The component that workflow events from outside are recorded with.
const ORIGIN: &str = "producer-api";
/// How many events one call may bring.
const EVENTS_MAX: usize = 100;
/// The longest wait for the outcome of a token.
const WAIT_MILLIS_MAX: u64 = 60_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/workflow-events",
            SUBMIT,
            [GROUP, "publishWorkflowEvents", "Take in workflow events"],
            publish,
        )
        .about(
            "One event, or a list of up to 100: all are stored or none. What comes again under the same `id` counts \
             once. A `FAILED` with a `taskToken` parks its execution; the token is kept sealed and the stored event has \
             `[REDACTED]` in its place. A token that was used before parks nobody, and the answer says so.",
        )
        .reads_schema(envelopes)
            .reads_much()
        .gives::<WorkflowEventsAccepted>(202, "They are stored."),
        Route::new(
            Method::GET,
            "/v1/workflow/catalogue",
            READ,
            [GROUP, "listErrorCatalogue", "List the codes that are known"],
            catalogue,
        )
        .paged()
        .gives::<Page<CatalogueEntry>>(200, "A page of forms of codes with what they mean."),
        Route::new(
            Method::GET,
            "/v1/workflow/catalogue/{code}",
            READ,
            [GROUP, "lookUpErrorCode", "Look up what a code means"],
            look_up,
        )
        .about("By the longest form that is known. Of a code that is not listed only its type may be known.")
        .part("code", CODE, "The code, such as `10050Broward`.")
        .gives::<Known>(200, "What is known of it."),
        Route::new(
            Method::POST,
            "/v1/workflow/tokens/outcome",
            SUBMIT,
            [GROUP, "awaitToken", "Ask what became of a task token"],
            outcome,
        )
        .about(
            "For the workflow that gave the token away: how its execution goes on. With `waitMs` the answer waits for \
             that. The token stands in the body, never in a path.",
        )
        .reads::<TokenRequest>()
        .reads_little()
        .gives::<TokenOutcomeView>(200, "How it stands.")
        .fails(&[404]),
    ]
}

/// One envelope or several.
fn envelopes(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<WorkflowEnvelope>().to_value();
    json_schema!({
        "oneOf": [one, { "type": "array", "items": one, "minItems": 1, "maxItems": EVENTS_MAX }]
    })
}

async fn publish(call: Call) -> Reply {
    let tenant = call.tenant()?;
    let envelopes = json_body::one_or_many(&call.body, EVENTS_MAX)?;
    let is_list = envelopes.is_list;
    if envelopes.items.is_empty() || envelopes.items.len() > EVENTS_MAX {
        let count = match envelopes.items.len() {
            0 => "no".to_owned(),
            _ => format!("more than {EVENTS_MAX}"),
        };
        let message = format!("has {count} events; it must be from 1 to {EVENTS_MAX}");
        return Err(Problem::field("TOO_MANY", "body", message));
    }
    let engine = call.app.engine();
    let mut messages = Vec::with_capacity(envelopes.items.len());
    let mut problems = FieldProblems::default();
    for (at, envelope) in envelopes.items.iter().enumerate() {
        let place = if is_list { format!("[{at}]") } else { String::new() };
        match WorkflowMessage::read(&place, envelope, engine.families()) {
            Ok(message) => messages.push(message),
            Err(found) => {
                problems.total += found.total;
                problems.listed.extend(found.listed);
            }
        }
    }
    problems.listed.truncate(PROBLEMS_MAX);
    problems.or(())?;
    let times = messages.iter().enumerate().filter_map(|(at, message)| Some((message.time?, at)));
    let latest = times.max().map(|(_, at)| at);
    let request =
        IngestRequest { tenant, app: call.app.config().app.clone(), origin: ORIGIN.to_owned(), messages };
    let stored = engine.ingest(request).await.map_err(|error| match (error, latest) {
        (EngineError::Refused(Refusal::TooFarAhead { ahead_millis, limit_millis }), Some(at)) => {
            let place = if is_list { format!("[{at}].") } else { String::new() };
            let field = format!("{place}{}", time_field(&envelopes.items[at]));
            let message = format!("lies {ahead_millis} ms ahead; the limit is {limit_millis}");
            Problem::field("TOO_FAR_AHEAD", field, message)
        }
        (error, _) => error.into(),
    })?;
    let events = stored.into_iter().map(|stored| WorkflowEventAccepted {
        event_id: stored.event,
        timestamp: stored.timestamp,
        repeated: stored.repeated,
        token: stored.token.map(TokenTakenName::of),
    });
    json(StatusCode::ACCEPTED, &WorkflowEventsAccepted { events: events.collect() })
}

/// The field that an envelope's time is taken from.
fn time_field(envelope: &Json) -> &'static str {
    let envelope = envelope.read::<serde_json::Value>().unwrap_or_default();
    if envelope["detail"]["timestamp"].is_null() { "time" } else { "detail.timestamp" }
}

async fn catalogue(call: Call) -> Reply {
    let entries = call.app.config().catalogue.entries();
    let offset = offset_of(call.inputs.text("cursor"), "catalogue")?;
    let limit = page_size(&call.inputs);
    let items: Vec<_> = entries.iter().skip(offset).take(limit).cloned().collect();
    let next = offset + items.len();
    let next_cursor = (next < entries.len()).then(|| list_cursor::write("catalogue", &next.to_string()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// Where a list goes on that is counted from its beginning.
pub(super) fn offset_of(cursor: Option<&str>, list: &str) -> Result<usize, Problem> {
    let Some(cursor) = cursor else { return Ok(0) };
    list_cursor::read(list, cursor)?.parse().map_err(|_| list_cursor::refuse())
}

async fn look_up(call: Call) -> Reply {
    let code = code_of(&call)?;
    json(StatusCode::OK, &call.app.config().catalogue.lookup(&code))
}

/// The code in the path.
pub(super) fn code_of(call: &Call) -> Result<ErrorCode, Problem> {
    let given = call.inputs.part("code");
    ErrorCode::new(given).map_err(|_| Problem::not_found("error code", given))
}

async fn outcome(mut call: Call) -> Reply {
    let tenant = call.tenant()?;
    let request: TokenRequest = json_body::read(&call.body)?;
    call.forget_body();
    let token = TaskToken::new(request.token)
        .map_err(|error| Problem::invalid_field("token", error.problem.to_string()))?;
    let wait = request.wait_ms.unwrap_or(0);
    if wait > WAIT_MILLIS_MAX {
        let message = format!("is {wait}; it must be at most {WAIT_MILLIS_MAX}");
        return Err(Problem::invalid_field("waitMs", message));
    }
    let engine = call.app.engine();
    let mut found = engine.token_outcome(&tenant, &token).await.map_err(no_such_token)?;
    if found == TokenOutcome::Waiting && wait > 0 {
        let mut closing = call.app.closing();
        let mut welcome = Welcome::of(&call.app, &call.caller);
        tokio::select! {
            ended = engine.wait_for_outcome(&tenant, &token) => found = ended.map_err(no_such_token)?,
            () = tokio::time::sleep(Duration::from_millis(wait)) => {}
            () = closing.begun() => {}
            () = call.peer.gone() => {}
            () = welcome.ended() => {
                return Err(Problem::unauthenticated("the API key is unknown or was revoked"));
            }
        }
    }
    json(StatusCode::OK, &TokenOutcomeView::of(&found))
}

/// An answer without a word of the token.
fn no_such_token(error: EngineError) -> Problem {
    let problem = Problem::from(error);
    if problem.status == StatusCode::NOT_FOUND {
        return Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", "there is no such token");
    }
    problem
}
