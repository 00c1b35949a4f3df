//! Scripts: JavaScript that reacts to events.

use axum::http::header::ETAG;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tidemill_engine::engine::{EVENTS_LOOKED_AT_MAX, EngineError, ExplainedEvent, ScriptError, WriteScript};
use tidemill_engine::reply::Refusal;
use tidemill_model::{Script, ScriptDraft, ScriptId, TenantId};

use super::compiling::compile;
use crate::api::{ExplainRequest, ExplanationView, Page, ScriptSummary};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, VALUES_BYTES_MAX, json, page_size};
use crate::views::View;

const GROUP: &str = "Scripts";
pub(super) const ID: Kind = Kind::Word { most: ScriptId::LENGTH_MAX };
const IF_MATCH: &str = "The version that must be there; 412 if it is another.";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/scripts", ADMIN, [GROUP, "createScript", "Save a new script"], create)
            .about(
                "It must compile: a problem with the code COMPILE_ERROR tells line and column. Without an `id` one is \
                 minted.",
            )
            .reads::<ScriptDraft>()
            .gives::<Script>(201, "It was saved.")
            .fails(&[409]),
        Route::new(Method::GET, "/v1/scripts", READ, [GROUP, "listScripts", "List scripts"], list)
            .paged()
            .gives::<Page<ScriptSummary>>(200, "A page of scripts, by id, without their sources."),
        Route::new(
            Method::POST,
            "/v1/scripts/explain",
            READ,
            [GROUP, "explainEvent", "Say which subscriptions an event matches, and why"],
            explain,
        )
        .about("Changes nothing and runs nothing. Name an event that happened, or describe one.")
        .reads::<ExplainRequest>()
        .example(serde_json::json!({"event": {"eventType": "example", "properties": {"role": "admin"}}}))
            .reads_at_most(VALUES_BYTES_MAX)
        .gives::<ExplanationView>(200, "What becomes of the event.")
        .fails(&[404]),
        Route::new(Method::GET, "/v1/scripts/{id}", READ, [GROUP, "getScript", "Look at a script"], get)
            .about("Its newest version, or any other. Versions stay readable after a removal.")
            .part("id", ID, "The script.")
            .query("version", Kind::Integer { least: 1, most: u64::MAX }, "The newest when absent.")
            .gives::<Script>(200, "The script; its version is the `ETag`."),
        Route::new(
            Method::PUT,
            "/v1/scripts/{id}",
            ADMIN,
            [GROUP, "replaceScript", "Replace a script"],
            replace,
        )
        .about("Makes the next version. Executions that wait run with it.")
        .part("id", ID, "The script.")
        .header("If-Match", Kind::Version, IF_MATCH)
        .reads::<ScriptDraft>()
        .gives::<Script>(200, "It was replaced.")
        .fails(&[409, 412]),
        Route::new(
            Method::DELETE,
            "/v1/scripts/{id}",
            ADMIN,
            [GROUP, "deleteScript", "Remove a script"],
            remove,
        )
        .about("Refused while it has subscriptions. Executions that wait for it become dead letters.")
        .part("id", ID, "The script.")
        .header("If-Match", Kind::Version, IF_MATCH)
        .gives_nothing(204, "It was removed.")
        .fails(&[409, 412]),
    ]
}

fn id_of(call: &Call) -> Result<(TenantId, ScriptId), Problem> {
    let given = call.inputs.part("id");
    let id = ScriptId::new(given).map_err(|_| Problem::not_found("script", given))?;
    Ok((call.tenant()?, id))
}

fn tagged(status: StatusCode, script: &Script) -> Reply {
    let mut response: Response = json(status, script)?;
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", script.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// A version that is not there is a precondition that failed.
fn unmatched(error: ScriptError) -> Problem {
    match error {
        ScriptError::Engine(EngineError::Refused(refusal @ Refusal::RecordConflict { .. })) => {
            Problem::new(StatusCode::PRECONDITION_FAILED, "VERSION_MISMATCH", refusal.to_string())
        }
        error => error.into(),
    }
}

async fn create(call: Call) -> Reply {
    let draft = ScriptDraft::read(json_body::value(&call.body)?)?;
    compile(&call, "source", &draft.name, &draft.source).await?;
    let script = call.app.engine().put_script(&call.tenant()?, draft, WriteScript::Create).await?;
    tagged(StatusCode::CREATED, &script)
}

async fn list(call: Call) -> Reply {
    let after = match call.inputs.text("cursor") {
        Some(cursor) => {
            Some(ScriptId::new(list_cursor::read("script", cursor)?).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let limit = page_size(&call.inputs);
    let mut scripts = call.app.engine().scripts(&call.tenant()?, after.as_ref(), limit + 1).await?;
    let more = scripts.len() > limit;
    scripts.truncate(limit);
    let items: Vec<_> = scripts.into_iter().map(ScriptSummary::from).collect();
    let last = items.last().filter(|_| more);
    let next_cursor = last.map(|script| list_cursor::write("script", script.id.as_str()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn get(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    match call.app.engine().script(&tenant, &id, call.inputs.number("version")).await? {
        Some(script) => tagged(StatusCode::OK, &script),
        None => Err(Problem::not_found("script", id.as_str())),
    }
}

async fn replace(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    let mut value = json_body::value(&call.body)?;
    // The path says it already; a body may repeat it.
    if let Value::Object(fields) = &mut value {
        let given = fields.entry("id").or_insert_with(|| id.as_str().into());
        if given.as_str() != Some(id.as_str()) {
            return Err(Problem::invalid_field("id", "is not the id in the path"));
        }
    }
    let draft = ScriptDraft::read(value)?;
    // A script that is not there is refused before the compiler is asked.
    if call.app.engine().script(&tenant, &id, None).await?.is_none() {
        return Err(Problem::not_found("script", id.as_str()));
    }
    compile(&call, "source", &draft.name, &draft.source).await?;
    let how = WriteScript::Replace { if_match: call.inputs.number("If-Match") };
    let script = call.app.engine().put_script(&tenant, draft, how).await.map_err(unmatched)?;
    tagged(StatusCode::OK, &script)
}

async fn remove(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    let removed = call.app.engine().remove_script(&tenant, &id, call.inputs.number("If-Match")).await;
    removed.map_err(unmatched)?;
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

async fn explain(call: Call) -> Reply {
    let tenant = call.tenant()?;
    let request: ExplainRequest = json_body::read(&call.body)?;
    let event = match (request.event_id, request.event) {
        (Some(id), None) => {
            let found = call.app.engine().find_event(&tenant, id, None).await?;
            let absent = || {
                let detail = format!(
                    "event {id} is not among those of its time, nor among the newest {EVENTS_LOOKED_AT_MAX}"
                );
                Problem::new(StatusCode::NOT_FOUND, "NOT_FOUND", detail)
            };
            found.ok_or_else(absent)?.into()
        }
        (None, Some(event)) => ExplainedEvent {
            is_unreadable: false,
            number: None,
            id: None,
            event_type: event.event_type,
            timestamp: None,
            data: Value::Object(event.properties),
        },
        (Some(_), Some(_)) => {
            return Err(Problem::field("ONE_OF", "event", "cannot stand beside eventId"));
        }
        (None, None) => return Err(Problem::field("MISSING_FIELD", "eventId", "or event is needed")),
    };
    let explained = call.app.engine().explain(&tenant, event, request.script_id.as_ref()).await?;
    json(StatusCode::OK, &ExplanationView::of(explained))
}
