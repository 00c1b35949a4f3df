//! Pages that stay up to date: what changed is sent as server-sent events.
//!
//! The stream gets its tenant's events. When something that the page watches was committed, the page is made again,
//! and the pieces that differ from what was sent last are sent. So what is live and what a reload shows cannot
//! differ.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use serde::Serialize;
use tidemill_engine::backend::Backend;
use tidemill_model::{Entity, Event, TenantId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::pages::Show;
use super::screen::{Screen, Watch};
use super::visit::{Sight, Visit};
use crate::admission::caller::Welcome;
use crate::problem::Problem;
use crate::route::raw;
use crate::stream::{EventFilter, Herald, News, Outlet, channel};

/// A page is made again no sooner than this.
const PAUSE: Duration = Duration::from_millis(400);

/// The last words of a stream: the server closes, or the reader may not stay.
const CLOSING: &str = "event: bye\ndata: closing\n\n";
const OUT: &str = "event: bye\ndata: out\n\n";

/// What the browser is to change.
#[derive(Serialize)]
struct Patch<'a> {
    pieces: HashMap<&'a str, &'a str>,
    marks: HashMap<&'a str, &'a str>,
}

/// What was sent last.
#[derive(Default)]
struct Sent {
    pieces: HashMap<&'static str, u64>,
    marks: HashMap<String, &'static str>,
}

impl Sent {
    /// What differs now, as the data of one event; `None` when nothing does.
    fn update(&mut self, screen: &Screen) -> Option<String> {
        let mut patch = Patch { pieces: HashMap::new(), marks: HashMap::new() };
        for piece in screen.pieces.iter().filter(|piece| piece.is_live) {
            let fingerprint = piece.fingerprint();
            if self.pieces.insert(piece.id, fingerprint) != Some(fingerprint) {
                patch.pieces.insert(piece.id, &piece.html.0);
                self.marks.extend(piece.marks.iter().cloned());
                continue;
            }
            for (id, state) in &piece.marks {
                if self.marks.get(id) != Some(state) {
                    self.marks.insert(id.clone(), state);
                    patch.marks.insert(id, state);
                }
            }
        }
        let is_empty = patch.pieces.is_empty() && patch.marks.is_empty();
        (!is_empty).then(|| serde_json::to_string(&patch).expect("texts can be written as JSON"))
    }
}

/// The stream of a page. `seq` of the query, or the id of the last event, says what the reader has seen.
pub(super) async fn open(visit: Visit, show: Show, parts: &Parts) -> Result<Response<Body>, Problem> {
    let app = &visit.dashboard.app;
    let tenant = visit.tenant()?;
    // Before the page is made: between the two nothing is missed.
    let news = Herald::follow(app, &tenant);
    let Sight::Screen(screen) = show(visit.clone()).await? else { return Err(Problem::no_such_route()) };
    let permit = app.streams().take(&visit.viewer.caller)?;
    let last = parts.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let seen = last.or(visit.query.text("seq")).and_then(|text| text.parse().ok()).unwrap_or(0);
    let (outlet, body) = channel(app.config().write_timeout);
    tokio::spawn(async move {
        let _permit = permit;
        follow(visit, show, screen, (tenant, seen, news), outlet).await;
    });
    let mut response = raw(StatusCode::OK, "text/event-stream", body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
    Ok(response)
}

async fn follow(
    mut visit: Visit,
    show: Show,
    screen: Screen,
    (tenant, seen, mut news): (TenantId, u64, Receiver<News>),
    outlet: Outlet,
) {
    let app = visit.dashboard.app.clone();
    let (backend, peer) = (app.engine().backend(), visit.api.peer.clone());
    let (mut closing, mut welcome) = (app.closing(), Welcome::of(&app, &visit.viewer.caller));
    let (watch, letters) = (screen.watch.clone(), screen.shows_letters);
    let deliveries = backend.notices().deliveries_nearer;
    let mut heard = Box::pin(deliveries.listen());
    let mut changes = app.letter_changes();
    let mut sent = Sent::default();
    let mut after = backend.newest();
    let first = sent.update(&screen);
    let mut is_partial = screen.is_partial;
    drop(screen);
    // What the reader saw may be older than this stream.
    let greeting = first
        .filter(|_| seen != after)
        .map_or_else(|| ": connected\n\n".to_owned(), |data| event(after, &data));
    if outlet.send(greeting).await.is_err() {
        return;
    }
    loop {
        let patience = if is_partial { PAUSE } else { app.config().stream_heartbeat };
        let mut is_touched;
        tokio::select! {
            came = news.recv() => match came {
                Ok((_, event)) => is_touched = concerns(&watch, &tenant, &event),
                // What was missed may have been about this page.
                Err(RecvError::Lagged(_)) => is_touched = true,
                Err(RecvError::Closed) if closing.has_begun() => return outlet.end(CLOSING),
                Err(RecvError::Closed) => return,
            },
            // No event reports what becomes of deliveries.
            () = &mut heard, if letters => {
                heard = Box::pin(deliveries.listen());
                is_touched = true;
            }
            // What people do with letters neither.
            Ok(()) = changes.changed(), if letters => is_touched = true,
            // Leases run out and messages come due without an event.
            () = tokio::time::sleep(patience) => {
                if outlet.send(": heartbeat\n\n").await.is_err() {
                    return;
                }
                is_touched = true;
            }
            () = closing.begun() => return outlet.end(CLOSING),
            () = welcome.ended() => return outlet.end(OUT),
            () = outlet.closed() => return,
            () = peer.gone() => return outlet.end(OUT),
        }
        // What came meanwhile is looked at in one go.
        loop {
            match news.try_recv() {
                Ok((_, event)) => is_touched |= concerns(&watch, &tenant, &event),
                Err(TryRecvError::Lagged(_)) => is_touched = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if !is_touched {
            continue;
        }
        if !visit.viewer.is_in(&visit.dashboard) || !welcome.holds().await {
            return outlet.end(OUT);
        }
        let turn = tokio::select! {
            turn = visit.dashboard.pace.live(visit.viewer.caller.name()) => turn,
            () = closing.begun() => continue,
            () = outlet.closed() => return,
            () = peer.gone() => continue,
        };
        let began = Instant::now();
        after = backend.newest();
        visit.renew();
        let screen = match show(visit.clone()).await {
            Ok(Sight::Screen(screen)) => screen,
            Ok(_) => return,
            // A page that cannot be made now may be made the next time.
            Err(problem) => return problem.log(),
        };
        turn.took(began.elapsed());
        if let Some(data) = sent.update(&screen)
            && outlet.send(event(after, &data)).await.is_err()
        {
            return;
        }
        is_partial = screen.is_partial;
        drop(screen);
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = closing.begun() => {}
            () = outlet.closed() => return,
            // The next turn tells why.
            () = peer.gone() => {}
        }
    }
}

fn concerns(watch: &Watch, tenant: &TenantId, event: &Event) -> bool {
    let filter = |job, task| EventFilter { tenant: tenant.clone(), job, task, event_type: None };
    match watch {
        Watch::Nothing => false,
        Watch::Tenant => event.tenant == *tenant,
        Watch::Job(job) => filter(Some(*job), None).takes(event),
        Watch::Task(request) => {
            event.tenant == *tenant
                && (event.entity == Entity::task(request)
                    || request.job_part().is_some_and(|job| event.entity == Entity::job(job)))
        }
    }
}

/// JSON holds no line breaks outside of escapes, so one line of data is enough.
fn event(number: u64, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 32);
    let _ = write!(text, "id: {number}\ndata: {data}\n\n");
    text
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn only_what_changed_is_sent() {
        let screen = |text: &str, state| {
            let graph = html! { b { "graph" } };
            Screen::new("x", "x").live("a", html! { (text) }).still("b", html! { (text) }).marked(
                "g",
                graph,
                7,
                vec![("n1".to_owned(), state), ("n2".to_owned(), "waiting")],
            )
        };
        let mut sent = Sent::default();
        let first = sent.update(&screen("<one>", "pending")).unwrap();
        assert!(
            first.contains("&lt;one&gt;") && first.contains("graph") && !first.contains("\"b\""),
            "{first}"
        );
        assert_eq!(sent.update(&screen("<one>", "pending")), None);
        let marks = sent.update(&screen("<one>", "completed")).unwrap();
        assert_eq!(marks, r#"{"pieces":{},"marks":{"n1":"completed"}}"#);
        let piece = sent.update(&screen("two", "completed")).unwrap();
        assert_eq!(piece, r#"{"pieces":{"a":"two"},"marks":{}}"#);
    }
}
