//! Probes and descriptions. They need no key.

use axum::body::Bytes;
use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::metrics::WORKER_SEEN;
use tidemill_engine::warn_seldom;

use crate::api::{Health, Readiness, SlotsView};
use crate::docs_page;
use crate::error_map::public_cause;
use crate::route::{Access, Call, Reply, Route, json, raw};

const GROUP: &str = "Server";
const HTML: &str = "text/html; charset=utf-8";

pub(super) fn routes<B: Backend>() -> Vec<Route<B>> {
    let open = Access::Everyone;
    vec![
        Route::new(
            Method::GET,
            "/healthz",
            open,
            [GROUP, "getHealth", "Is the process alive?"],
            healthz::<B>,
        )
        .about("A store that stopped after an error of its disk works again only in a new process, so the server is not well then. \
             What happened is in its log.")
        .gives::<Health>(200, "It answers.")
        .gives::<Health>(503, "It has to be started again."),
        Route::new(
            Method::GET,
            "/readyz",
            open,
            [GROUP, "getReadiness", "Can the server do its work?"],
            readyz::<B>,
        )
        .about("Whether the store takes writes, and who is there to work. A server without workers is ready: they come to it. \
             If tasks wait meanwhile, a warning says so.")
        .gives::<Readiness>(200, "It can.")
        .gives::<Readiness>(503, "It cannot, and why."),
        Route::new(Method::GET, "/openapi.json", open, [GROUP, "getOpenApi", "This document"], openapi::<B>)
            .gives::<serde_json::Value>(200, "OpenAPI 3.1."),
        Route::new(Method::GET, "/docs", open, [GROUP, "getDocs", "This document as a page"], docs::<B>)
            .gives_raw(200, "A page.", HTML),
    ]
}

async fn healthz<B: Backend>(call: Call<B>) -> Reply {
    let (code, status) = match call.app.engine().backend().stopped() {
        None => (StatusCode::OK, "ok"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
    };
    json(code, &Health { status: status.to_owned() })
}

async fn readyz<B: Backend>(call: Call<B>) -> Reply {
    let mut reasons = Vec::new();
    if call.app.closing().has_begun() {
        reasons.push("the server shuts down".to_owned());
    }
    let engine = call.app.engine();
    if let Err(fault) = engine.backend().ready().await {
        warn_seldom!(fault, "the server is not ready");
        let reason = match &fault {
            Fault::Full(_) => "STORE_FULL: the store has no space left",
            Fault::Stopped(_) => "the store stopped",
            Fault::Unavailable(_) => "the store cannot be reached, or its rows are being made again",
            _ => "the store cannot be used",
        };
        reasons.push(match public_cause(&fault) {
            Some(cause) => format!("{reason}: {cause}"),
            None => reason.to_owned(),
        });
    }
    let workers = engine.workers_seen();
    let slots = engine.slot_meter().read();
    let mut warnings = Vec::new();
    // A store that cannot say how many wait is told of above.
    // Whoever takes such a server out of service keeps workers from coming to it, so it is ready all the same.
    if workers == 0 && slots.total == 0 && engine.backend().queue().await.is_ok_and(|queue| queue.ready > 0) {
        warnings.push(format!("tasks wait and no worker was heard of for {} s", WORKER_SEEN.as_secs()));
    }
    // The API works all the same, and so do workers elsewhere.
    let troubled = engine.slot_meter().troubled();
    warnings.extend(troubled.into_iter().map(|why| format!("a worker of this server claims nothing: {why}")));
    let (code, status) = if reasons.is_empty() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
    };
    let slots = SlotsView { total: slots.total, busy: slots.busy };
    json(code, &Readiness { status: status.to_owned(), reasons, warnings, workers, slots })
}

async fn openapi<B: Backend>(call: Call<B>) -> Reply {
    let make = || {
        let text = serde_json::to_vec(&super::openapi_document::<B>());
        Bytes::from(text.expect("a value can be written"))
    };
    Ok(raw(StatusCode::OK, "application/json", call.app.document().get_or_init(make).clone()))
}

async fn docs<B: Backend>(call: Call<B>) -> Reply {
    let make = || Bytes::from(docs_page::render(&super::openapi_document::<B>()));
    let page_of_all = String::from_utf8_lossy(call.app.page().get_or_init(make));
    Ok(page(page_of_all.replace(docs_page::ORIGIN, &call.address.origin()).into()))
}

fn page(html: Bytes) -> Response {
    let mut response = raw(StatusCode::OK, HTML, html);
    if let Ok(policy) = HeaderValue::from_str(&docs_page::policy()) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}
