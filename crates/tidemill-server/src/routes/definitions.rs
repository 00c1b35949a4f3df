//! Task definitions: what tasks do, by name.

use axum::http::header::ETAG;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tidemill_engine::engine::{Define, EngineError};
use tidemill_engine::reply::Refusal;
use tidemill_model::authored::definition::{Definition, DefinitionDraft};
use tidemill_model::authored::field_problem::FieldProblems;
use tidemill_model::{Runner, TaskName, TenantId};

use super::compiling::compile;
use super::submitting::not_listed;
use crate::api::Page;
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};

const GROUP: &str = "Task definitions";
const NAME: Kind = Kind::Word { most: 200 };
const IF_MATCH: &str = "The version that must be there; 412 if it is another.";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/task-definitions",
            ADMIN,
            [GROUP, "createDefinition", "Create a definition"],
            create,
        )
        .reads::<DefinitionDraft>()
        .sample(serde_json::json!({"name": "example", "runner": "command", "command": ["cat"]}))
        .gives::<Definition>(201, "It was created.")
        .fails(&[409]),
        Route::new(
            Method::GET,
            "/v1/task-definitions",
            READ,
            [GROUP, "listDefinitions", "List definitions"],
            list,
        )
        .paged()
        .gives::<Page<Definition>>(200, "A page of definitions, by name."),
        Route::new(
            Method::GET,
            "/v1/task-definitions/{name}",
            READ,
            [GROUP, "getDefinition", "Look at a definition"],
            get,
        )
        .about("Its newest version, or any other. Versions stay readable after a removal.")
        .part("name", NAME, "The definition.")
        .query("version", Kind::Integer { least: 1, most: u64::MAX }, "The newest when absent.")
        .gives::<Definition>(200, "The definition; its version is the `ETag`."),
        Route::new(
            Method::PUT,
            "/v1/task-definitions/{name}",
            ADMIN,
            [GROUP, "replaceDefinition", "Replace a definition"],
            replace,
        )
        .about("Makes the next version. Jobs that were submitted before keep theirs.")
        .part("name", NAME, "The definition.")
        .header("If-Match", Kind::Version, IF_MATCH)
        .reads::<DefinitionDraft>()
        .sample(serde_json::json!({"name": "example", "runner": "command", "command": ["cat"]}))
        .gives::<Definition>(200, "It was replaced.")
        .fails(&[409, 412]),
        Route::new(
            Method::DELETE,
            "/v1/task-definitions/{name}",
            ADMIN,
            [GROUP, "deleteDefinition", "Remove a definition"],
            remove,
        )
        .about("Refused while tasks that are not finished use it.")
        .part("name", NAME, "The definition.")
        .header("If-Match", Kind::Version, IF_MATCH)
        .gives_nothing(204, "It was removed.")
        .fails(&[409, 412]),
    ]
}

fn name_of(call: &Call) -> Result<(TenantId, TaskName), Problem> {
    let given = call.inputs.part("name");
    let name = TaskName::new(given).map_err(|_| Problem::not_found("task definition", given))?;
    Ok((call.tenant()?, name))
}

fn tagged(status: StatusCode, definition: &Definition) -> Reply {
    let mut response: Response = json(status, definition)?;
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", definition.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// A version that is not there is a precondition that failed.
fn unmatched(error: EngineError) -> Problem {
    match error {
        EngineError::Refused(refusal @ Refusal::RecordConflict { .. }) => {
            Problem::new(StatusCode::PRECONDITION_FAILED, "VERSION_MISMATCH", refusal.to_string())
        }
        error => error.into(),
    }
}

/// Refuses a definition whose script does not compile.
async fn compile_script(call: &Call, draft: &DefinitionDraft) -> Result<(), Problem> {
    match draft.script.as_ref().filter(|_| draft.runner == Runner::Script) {
        Some(script) => compile(call, "script", draft.name.as_str(), script).await,
        None => Ok(()),
    }
}

/// Refuses a definition that asks for variables that no worker hands over, if this server knows which.
fn check_secrets(call: &Call, tenant: &TenantId, draft: &DefinitionDraft) -> Result<(), Problem> {
    let Some(list) = &call.app.config().task_secrets else { return Ok(()) };
    let mut problems = FieldProblems::default();
    not_listed("", &draft.secrets, tenant, list, &mut problems);
    Ok(problems.or(())?)
}

async fn create(call: Call) -> Reply {
    let draft = DefinitionDraft::read(json_body::value(&call.body)?)?;
    let tenant = call.tenant()?;
    check_secrets(&call, &tenant, &draft)?;
    compile_script(&call, &draft).await?;
    let definition = call.app.engine().define(tenant, draft, Define::Create).await?;
    tagged(StatusCode::CREATED, &definition)
}

async fn list(call: Call) -> Reply {
    let after = match call.inputs.text("cursor") {
        Some(cursor) => {
            Some(TaskName::new(list_cursor::read("name", cursor)?).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let limit = page_size(&call.inputs);
    let mut items = call.app.engine().definitions(call.tenant()?, after, limit + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more);
    let next_cursor = last.map(|definition| list_cursor::write("name", definition.name().as_str()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn get(call: Call) -> Reply {
    let (tenant, name) = name_of(&call)?;
    match call.app.engine().definition(tenant, &name, call.inputs.number("version")).await? {
        Some(definition) => tagged(StatusCode::OK, &definition),
        None => Err(Problem::not_found("task definition", name.as_str())),
    }
}

async fn replace(call: Call) -> Reply {
    let (tenant, name) = name_of(&call)?;
    let mut value = json_body::value(&call.body)?;
    // The path says it already; a body may repeat it.
    if let Value::Object(fields) = &mut value {
        let given = fields.entry("name").or_insert_with(|| name.as_str().into());
        if given.as_str() != Some(name.as_str()) {
            return Err(Problem::invalid_field("name", "is not the name in the path"));
        }
    }
    let draft = DefinitionDraft::read(value)?;
    check_secrets(&call, &tenant, &draft)?;
    compile_script(&call, &draft).await?;
    let how = Define::Replace { if_match: call.inputs.number("If-Match") };
    let definition = call.app.engine().define(tenant, draft, how).await.map_err(unmatched)?;
    tagged(StatusCode::OK, &definition)
}

async fn remove(call: Call) -> Reply {
    let (tenant, name) = name_of(&call)?;
    call.app.engine().undefine(tenant, &name, call.inputs.number("If-Match")).await.map_err(unmatched)?;
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
