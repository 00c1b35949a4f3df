//! Probes and descriptions. They need no key.

use std::time::Duration;

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
use crate::router::STORE_CLOSED;

const GROUP: &str = "Server";
const HTML: &str = "text/html; charset=utf-8";

pub(super) fn routes() -> Vec<Route> {
    let open = Access::Everyone;
    vec![
        Route::new(
            Method::GET,
            "/healthz",
            open,
            [GROUP, "getHealth", "Is the process alive?"],
            healthz,
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
            readyz,
        )
        .about("Whether the store takes writes and lets somebody in, and who is there to work. STORE_CLOSED: the store came \
             without the API keys it had, and every request is refused until one is made. A server without workers is ready: \
             they come to it. If tasks wait meanwhile, a warning says so.")
        .gives::<Readiness>(200, "It can.")
        .gives::<Readiness>(503, "It cannot, and why."),
        Route::new(Method::GET, "/openapi.json", open, [GROUP, "getOpenApi", "This document"], openapi)
            .gives::<serde_json::Value>(200, "OpenAPI 3.1."),
        Route::new(Method::GET, "/docs", open, [GROUP, "getDocs", "This document as a page"], docs)
            .gives_raw(200, "A page.", HTML),
    ]
}

async fn healthz(call: Call) -> Reply {
    let (code, status) = match call.app.engine().backend().stopped() {
        None => (StatusCode::OK, "ok"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
    };
    json(code, &Health { status: status.to_owned() })
}

async fn readyz(call: Call) -> Reply {
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
    // A store that cannot say whether it is closed has its reason above.
    if engine.is_closed().await.unwrap_or(false) {
        reasons.push(format!("STORE_CLOSED: {STORE_CLOSED}"));
    }
    let workers = engine.workers_seen();
    let slots = engine.slot_meter().read();
    let mut warnings = Vec::new();
    // A store that cannot say how many wait has its reason above. A server without workers stays ready: a load
    // balancer that took it out of service would keep workers away from it.
    if workers == 0 && slots.total == 0 && engine.queue_depth().await.is_ok_and(|queue| queue.ready > 0) {
        warnings.push(nobody_works(call.app.began().elapsed()));
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

/// Tells that tasks wait for workers. A server that is younger than the time that counts has not listened for all of it.
fn nobody_works(age: Duration) -> String {
    let since = if age < WORKER_SEEN {
        "since the server started".to_owned()
    } else {
        format!("for {} s", WORKER_SEEN.as_secs())
    };
    format!("tasks wait and no worker was heard of {since}")
}

async fn openapi(call: Call) -> Reply {
    let make = || {
        let text = serde_json::to_vec(&super::openapi_document());
        Bytes::from(text.expect("a value can be written"))
    };
    Ok(raw(StatusCode::OK, "application/json", call.app.document().get_or_init(make).clone()))
}

async fn docs(call: Call) -> Reply {
    let make = || Bytes::from(docs_page::render(&super::openapi_document()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_server_says_only_how_long_it_has_listened() {
        let young = "tasks wait and no worker was heard of since the server started";
        let old = "tasks wait and no worker was heard of for 60 s";
        for (millis, expected) in
            [(0, young), (1_500, young), (59_999, young), (60_000, old), (3_600_000, old)]
        {
            assert_eq!(nobody_works(Duration::from_millis(millis)), expected, "{millis}");
        }
    }
}
