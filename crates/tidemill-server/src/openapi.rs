//! The OpenAPI 3.1 document, made from the routes.

use axum::http::StatusCode;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::api::ProblemDocument;
use crate::problem::PROBLEM_JSON;
use crate::request::param::{Param, Place};
use crate::route::{Access, BodyKind, Content, Route};

const ABOUT: &str = "Submit graphs of tasks, watch them run, read every fact about them.\n\n\
    Send `Authorization: Bearer` with an API key. A server without keys listens on loopback only and takes the user \
    that it runs as, and root, for its owner. Errors are problem documents (RFC 9457) with a stable `code`. Lists have `limit` and `cursor`. \
    Times are epoch milliseconds.";

/// What the groups of routes are about.
const GROUPS: [(&str, &str); 15] = [
    ("Jobs", "Graphs of tasks."),
    ("Tasks", "Single tasks, in a job or on their own."),
    (
        "Task definitions",
        "What tasks do, by name. Each change makes a new version; a job keeps the one it began with.",
    ),
    ("Events", "Everything that happened, and what you add to it."),
    ("Scripts", "JavaScript that reacts to events."),
    ("Subscriptions", "Which events a script is to run for."),
    ("Executions", "What scripts did."),
    ("Dead letters", "Work that was given up. It is kept until somebody decides."),
    ("Workflows", "Errors of workflows and tasks, and executions that wait for somebody to decide."),
    ("Health", "Whether running tasks are heard of, and whether anything stands still."),
    ("Usage", "What agents used, and what they may use."),
    ("Keys", "Who may call."),
    ("Queue", "The raw queue, for users with their own workers."),
    ("Worker", "The calls of a worker on another machine."),
    ("Server", "Probes and descriptions."),
];

/// The whole document.
pub(crate) fn document(routes: &[Route]) -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
        .into_generator();
    let problem = generator.subschema_for::<ProblemDocument>().to_value();
    let mut paths = Map::new();
    for route in routes {
        let path = route.path.replace("{*", "{");
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[route.method.as_str().to_ascii_lowercase()] = operation(route, &problem, &mut generator);
    }
    let tags: Vec<_> =
        GROUPS.iter().map(|(name, about)| json!({"name": name, "description": about})).collect();
    let mut schemas = generator.take_definitions(true);
    for schema in schemas.values_mut() {
        drop_formats(schema);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidemill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key, `tm_…`."},
            },
        },
    })
}

fn operation(route: &Route, problem: &Value, generator: &mut SchemaGenerator) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "tags": [route.group],
        "summary": route.summary,
        "description": description(route),
        "security": match route.access {
            Access::Everyone => json!([]),
            Access::Roles(_) => json!([{"key": []}]),
        },
    });
    if let Access::Roles(roles) = route.access {
        operation["x-roles"] = roles.iter().map(|role| Value::from(role.as_str())).collect();
    }
    if !route.params.is_empty() {
        operation["parameters"] = route.params.iter().map(parameter).collect();
        let needed = route.example.as_ref().filter(|_| matches!(route.body, BodyKind::Nothing));
        for param in operation["parameters"].as_array_mut().into_iter().flatten() {
            if let Some(value) = needed.and_then(|needed| needed.get(param["name"].as_str()?)) {
                param["example"] = value.clone();
            }
        }
    }
    match route.body {
        BodyKind::Nothing => {}
        BodyKind::Json { schema, optional } => {
            let schema = schema(generator).to_value();
            let mut content = json!({"schema": schema});
            if let Some(example) = &route.example {
                content["example"] = example.clone();
            }
            if let Some(sample) = &route.sample {
                // For people. As an `example` it would have tools try what differs from it by little, and take what is
                // tolerated for an error.
                content["x-sample"] = sample.clone();
            }
            operation["requestBody"] =
                json!({"required": !optional, "content": {"application/json": content}});
        }
        BodyKind::Bytes => {
            operation["requestBody"] = json!({
                "required": true,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            });
        }
    }
    let mut responses = Map::new();
    for answer in &route.answers {
        let mut response = json!({"description": answer.about});
        match answer.content {
            Content::Nothing => {}
            Content::Json(schema) => {
                response["content"] = json!({"application/json": {"schema": schema(generator).to_value()}});
            }
            Content::Raw(media) => response["content"] = json!({media: {"schema": {"type": "string"}}}),
        }
        responses.insert(answer.status.to_string(), response);
    }
    for status in route.problem_statuses() {
        responses.insert(status.to_string(), failure(status, problem));
    }
    operation["responses"] = Value::Object(responses);
    operation
}

fn description(route: &Route) -> String {
    let roles = match route.access {
        Access::Everyone => "Needs no key.".to_owned(),
        Access::Roles(roles) => {
            let names: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
            format!("Roles: {}.", names.join(", "))
        }
    };
    if route.about.is_empty() { roles } else { format!("{} {roles}", route.about) }
}

fn parameter(param: &Param) -> Value {
    let place = match param.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    json!({
        "name": param.name,
        "in": place,
        "required": param.place == Place::Path,
        "description": param.about,
        "schema": param.kind.schema(),
    })
}

fn failure(status: u16, problem: &Value) -> Value {
    let title =
        StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or("Error");
    let mut response = json!({
        "description": title,
        "content": {PROBLEM_JSON: {"schema": problem}},
    });
    let header = |about: &str, kind: &str| json!({"description": about, "schema": {"type": kind}});
    match status {
        401 => response["headers"] = json!({"WWW-Authenticate": header("How to authenticate.", "string")}),
        405 => response["headers"] = json!({"Allow": header("The methods of this path.", "string")}),
        429 | 503 => response["headers"] = json!({"Retry-After": header("Seconds to wait.", "integer")}),
        _ => {}
    }
    response
}

/// Takes out the names of Rust's number types, which are no formats that others know.
fn drop_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
                fields.remove("format");
            }
            fields.values_mut().for_each(drop_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_formats),
        _ => {}
    }
}
