//! Events as they are committed, as server-sent events.
//!
//! The id of each is its number in the log, so a reader that comes back with `Last-Event-ID` misses nothing.

use std::fmt::Write;

use tidemill_engine::backend::Backend;
use tidemill_engine::warn_seldom;
use tidemill_model::{Entity, Event, EventType, JobId, RequestId, TenantId};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::{Herald, News, Outlet, StreamPermit};
use crate::admission::caller::Welcome;
use crate::app::App;
use crate::connection::Peer;

/// Events that are read at a time.
const EVENTS_MAX: usize = 256;
/// A piece is sent once it has this many bytes.
const PIECE_BYTES: usize = 32 * 1024;

/// Which events a reader wants.
#[derive(Debug, Clone)]
pub(crate) struct EventFilter {
    pub(crate) tenant: TenantId,
    /// Those of the job and of its tasks.
    pub(crate) job: Option<JobId>,
    pub(crate) task: Option<RequestId>,
    pub(crate) event_type: Option<EventType>,
}

impl EventFilter {
    pub(crate) fn takes(&self, event: &Event) -> bool {
        event.tenant == self.tenant
            && self.event_type.as_ref().is_none_or(|wanted| *wanted == event.event_type)
            && self.task.as_ref().is_none_or(|task| event.entity == Entity::task(task))
            && self.job.is_none_or(|job| belongs_to(&event.entity, job))
    }
}

fn belongs_to(entity: &Entity, job: JobId) -> bool {
    match entity.kind.as_str() {
        "JOB" => JobId::new(entity.id.as_str()).ok() == Some(job),
        "TASK" => RequestId::trusted(entity.id.as_str()).job_part() == Some(job),
        _ => false,
    }
}

/// Writes events after number `after` until the reader leaves, is too slow, or the server closes.
pub(crate) async fn follow_events(
    app: App,
    filter: EventFilter,
    mut after: u64,
    outlet: Outlet,
    (peer, mut welcome): (Peer, Welcome),
    _permit: StreamPermit,
) {
    let backend = app.engine().backend();
    let heartbeat = app.config().stream_heartbeat;
    let mut closing = app.closing();
    // Before the log is read: between the two nothing is missed.
    let mut news = Herald::follow(&app, &filter.tenant);
    if outlet.send(": connected\n\n").await.is_err() {
        return;
    }
    loop {
        if closing.has_begun() {
            return outlet.end(CLOSES);
        }
        if !welcome.holds().await {
            return outlet.end(": the key was revoked\n\n");
        }
        let newest = backend.newest();
        let found = match backend.follow(after, EVENTS_MAX).await {
            Ok(found) => found,
            Err(fault) => {
                warn_seldom!(fault, "events could not be read for somebody who follows");
                return outlet.end(AWAY);
            }
        };
        let mut piece = String::new();
        for (number, event) in &found {
            after = *number;
            if filter.takes(event) {
                write_event(&mut piece, *number, event);
            }
            if piece.len() >= PIECE_BYTES && outlet.send(std::mem::take(&mut piece)).await.is_err() {
                return outlet.end(SLOW);
            }
        }
        if !piece.is_empty() && outlet.send(piece).await.is_err() {
            return outlet.end(SLOW);
        }
        if !found.is_empty() {
            continue;
        }
        // Numbers of events that expired are passed over.
        after = after.max(newest);
        // The log was read to its end: from here on the herald sends each event, until some are missed.
        let mut piece = String::new();
        loop {
            let told = app.herald().announced();
            let heard = hear(&mut news, &filter, told, &mut after, &mut piece);
            if !piece.is_empty() && outlet.send(std::mem::take(&mut piece)).await.is_err() {
                return outlet.end(SLOW);
            }
            match heard {
                _ if closing.has_begun() => break,
                Heard::Missed => break,
                Heard::Closed => return outlet.end(AWAY),
                Heard::All | Heard::Some if !welcome.holds().await => break,
                Heard::Some => continue,
                Heard::All => {}
            }
            tokio::select! {
                came = news.recv() => match came {
                    Ok(news) => take(news, &filter, &mut after, &mut piece),
                    Err(RecvError::Lagged(_)) => break,
                    // The next look tells it.
                    Err(RecvError::Closed) => {}
                },
                () = tokio::time::sleep(heartbeat) => {
                    // The number goes along, so that a reader of rare events need not start far back.
                    if outlet.send(format!(": heartbeat\nid: {after}\n\n")).await.is_err() {
                        return outlet.end(SLOW);
                    }
                }
                () = closing.begun() => {}
                () = welcome.ended() => {}
                () = outlet.closed() => return,
                () = peer.gone() => return,
            }
        }
    }
}

/// What a look at the news gave.
enum Heard {
    /// Nothing more has come.
    All,
    /// There is more.
    Some,
    /// The herald sent some that were not received.
    Missed,
    Closed,
}

/// Adds what was told to a piece, until it is large enough. Up to `told` everything was.
fn hear(
    news: &mut Receiver<News>,
    filter: &EventFilter,
    told: u64,
    after: &mut u64,
    piece: &mut String,
) -> Heard {
    while piece.len() < PIECE_BYTES {
        match news.try_recv() {
            Ok(news) => take(news, filter, after, piece),
            Err(TryRecvError::Empty) => {
                *after = told.max(*after);
                return Heard::All;
            }
            Err(TryRecvError::Lagged(_)) => return Heard::Missed,
            Err(TryRecvError::Closed) => return Heard::Closed,
        }
    }
    Heard::Some
}

/// Adds an event to a piece, if it is wanted and was not read from the log.
fn take((number, event): News, filter: &EventFilter, after: &mut u64, piece: &mut String) {
    if number > *after {
        *after = number;
        if filter.takes(&event) {
            write_event(piece, number, &event);
        }
    }
}

const CLOSES: &str = ": the server closes\n\n";
const AWAY: &str = ": the store is not available\n\n";
const SLOW: &str = "\n: dropped, you read too slowly; come back with Last-Event-ID\n\n";

/// Properties are as their sender wrote them and may span lines.
fn write_event(out: &mut String, number: u64, event: &Event) {
    let json = event.to_json();
    let _ = writeln!(out, "id: {number}");
    for line in json.split(['\n', '\r']) {
        let _ = writeln!(out, "data: {line}");
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_events_are_its_own_and_those_of_its_tasks() {
        let job = JobId::from_u128(7);
        let other = JobId::from_u128(8);
        let task = tidemill_model::TaskId::new("a").unwrap();
        for (entity, expected) in [
            (Entity::job(job), true),
            (Entity::job(other), false),
            (Entity::task(&job.request_id(&task)), true),
            (Entity::task(&other.request_id(&task)), false),
            (Entity::task(&RequestId::new("req-1").unwrap()), false),
            (Entity::system(&job.to_string()), false),
        ] {
            assert_eq!(belongs_to(&entity, job), expected, "{entity:?}");
        }
    }
}
