//! Trying a script out: it runs in the sandbox, and what it asks for is reported and not done.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json as value};
use tidemill_engine::clock::{Clock, SystemClock};
use tidemill_engine::engine::EngineError;
use tidemill_engine::execution::ExecutionId;
use tidemill_engine::scripts::{RESULT_BYTES_MAX, RunCall, RunDone, RunFailed, ScriptRun};
use tidemill_model::authored::script::{NAME_BYTES_MAX, SOURCE_BYTES_MAX};
use tidemill_model::{EventId, Json, Script, ScriptId, TenantId};

use super::compiling::elsewhere;
use crate::api::{RunErrorView, ScriptTestRequest, ScriptTestView};
use crate::problem::Problem;
use crate::request::json_body;
use crate::route::{ADMIN, Call, Reply, Route, VALUES_BYTES_MAX, json};

/// Seconds after which a sandbox that is not there may be asked again.
const RETRY_SECONDS: u64 = 5;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/script-tests",
            ADMIN,
            ["Scripts", "testScript", "Try a script out"],
            test,
        )
        .about("Runs it once for an event that did not happen. Nothing is stored, published or submitted.")
        .reads::<ScriptTestRequest>()
        .reads_at_most(VALUES_BYTES_MAX)
        .gives::<ScriptTestView>(200, "What it did, or why it failed."),
    ]
}

async fn test(call: Call) -> Reply {
    let request: ScriptTestRequest = json_body::read(&call.body)?;
    for (field, text, most) in
        [("name", &request.name, NAME_BYTES_MAX), ("source", &request.source, SOURCE_BYTES_MAX)]
    {
        if text.is_empty() || text.len() > most {
            return Err(Problem::invalid_field(field, format!("must have 1 to {most} bytes")));
        }
    }
    let tenant = call.tenant()?;
    let now = SystemClock::start().now();
    // Like the id of an event of this moment; nothing is stored under it.
    let id = EventId::from_u128(u128::from(now.millis()) << 80 | 0x7 << 76 | 0b10 << 62);
    let script = Script {
        id: ScriptId::trusted("test"),
        name: request.name,
        source: request.source,
        grants: request.grants,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    let run = ScriptRun {
        tenant: tenant.clone(),
        execution: ExecutionId::from_u128(id.as_u128()),
        script: Arc::new(script),
        event_id: id,
        event_type: request.event_type,
        timestamp: now,
        data: Json::of(&Value::Object(request.properties)),
        now,
        result_bytes_max: RESULT_BYTES_MAX,
    };
    let id = run.script.id.clone();
    let ran = call.app.compiler().ok_or_else(elsewhere)?.try_out(run).await;
    let unavailable =
        || Problem::unavailable("SCRIPTS_UNAVAILABLE", "scripts cannot be run here now", RETRY_SECONDS);
    let ran = match ran.ok_or_else(unavailable)? {
        Ok(done) => checked(&call, &tenant, &id, done).await?,
        failed => failed,
    };
    json(StatusCode::OK, &view(ran))
}

/// What a run would have come to: it fails if its result or what it asked for is refused.
async fn checked(
    call: &Call,
    tenant: &TenantId,
    script: &ScriptId,
    done: RunDone,
) -> Result<Result<RunDone, RunFailed>, Problem> {
    let app = &call.app.config().app;
    let refused = match done.result.problem() {
        Some(problem) => Some(("output", format!("the result {problem}"))),
        None => match call.app.engine().check_script_calls(tenant, app, script, &done.calls).await {
            Ok(()) => None,
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error @ (EngineError::Fault(_) | EngineError::History(_))) => return Err(error.into()),
            Err(error) => Some(("validation", error.to_string())),
        },
    };
    Ok(match refused {
        None => Ok(done),
        Some((class, message)) => Err(RunFailed {
            class: class.into(),
            logs: done.logs,
            took: done.took,
            ..RunFailed::validation(message)
        }),
    })
}

fn view(ran: Result<RunDone, RunFailed>) -> ScriptTestView {
    let millis = |took: std::time::Duration| u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let lines = |logs: Option<Json>| logs.and_then(|logs| logs.read().ok());
    match ran {
        Ok(done) => ScriptTestView {
            result: Some(done.result.read().unwrap_or(Value::Null)),
            error: None,
            logs: lines(done.logs),
            calls: done.calls.iter().map(describe_call).collect(),
            duration_ms: millis(done.took),
        },
        Err(failed) => ScriptTestView {
            result: None,
            error: Some(RunErrorView {
                class: failed.class.to_string(),
                message: failed.message,
                stack: failed.stack,
            }),
            logs: lines(failed.logs),
            calls: Vec::new(),
            duration_ms: millis(failed.took),
        },
    }
}

fn describe_call(call: &RunCall) -> Value {
    match call {
        RunCall::Publish { event_type, data, .. } => {
            value!({"call": "publish", "type": event_type, "data": data})
        }
        RunCall::SubmitJob { spec, .. } => value!({"call": "submitJob", "spec": spec}),
        RunCall::ResolveError { error, .. } => value!({"call": "resolveError", "error": error}),
    }
}
