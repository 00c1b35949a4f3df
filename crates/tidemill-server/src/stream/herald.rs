//! The herald: reads the log once, and tells each event to those who follow its tenant.
//!
//! Whoever follows a tenant costs nothing while others are busy. The herald reads as long as somebody follows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::warn_seldom;
use tidemill_model::{Event, TenantId};
use tokio::sync::broadcast::{Receiver, Sender};

use crate::app::App;

/// An event and its number in the log.
pub(crate) type News = (u64, Arc<Event>);

/// Events of a tenant that wait for its slowest follower, who is told what it missed.
const WAITING_MAX: usize = 256;
/// Events that are read at a time.
const AT_ONCE: usize = 1_000;
/// So long events are gathered: reading them one by one costs those who commit.
const GATHER: Duration = Duration::from_millis(20);
/// A store that could not is asked again after so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// So often it is looked whether anybody follows.
const LOOK_AROUND: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Herald {
    board: Mutex<Board>,
    /// All events up to this number were told.
    told: AtomicU64,
}

#[derive(Debug, Default)]
struct Board {
    tenants: HashMap<TenantId, Post>,
    is_reading: bool,
}

/// Where a tenant's events are told.
#[derive(Debug)]
struct Post {
    news: Sender<News>,
    /// The number of the last one.
    last: u64,
}

impl Herald {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All events of a tenant from now on, perhaps with some before. It closes when the log can no longer be read.
    pub(crate) fn follow<B: Backend>(app: &App<B>, tenant: &TenantId) -> Receiver<News> {
        let herald = app.herald();
        let mut board = herald.board();
        let post = board.tenants.entry(tenant.clone());
        let news = post.or_insert_with(|| Post { news: Sender::new(WAITING_MAX), last: 0 }).news.subscribe();
        if !std::mem::replace(&mut board.is_reading, true) {
            let after = app.engine().backend().newest();
            herald.told.store(after, Ordering::Release);
            tokio::spawn(read(app.clone(), after));
        }
        news
    }

    /// The number up to which everybody has been told.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// The number of the last event of a tenant that was told, as far as somebody follows it.
    pub(crate) fn last_of(&self, tenant: &TenantId) -> u64 {
        self.board().tenants.get(tenant).map_or(0, |post| post.last)
    }

    /// Whether anybody follows. If nobody does, whoever comes next starts a reader anew.
    fn is_followed(&self) -> bool {
        let mut board = self.board();
        board.tenants.retain(|_, post| post.news.receiver_count() > 0);
        board.is_reading = !board.tenants.is_empty();
        board.is_reading
    }

    fn tell(&self, events: Vec<(u64, Event)>) {
        let mut board = self.board();
        for (number, event) in events {
            if let Some(post) = board.tenants.get_mut(&event.tenant) {
                post.last = number;
                // Those who left do not hear it.
                let _ = post.news.send((number, Arc::new(event)));
            }
        }
    }

    /// Nobody reads any more: who follows is told by the end of the news.
    fn close(&self) {
        *self.board() = Board::default();
    }
}

async fn read<B: Backend>(app: App<B>, mut after: u64) {
    let (backend, herald, mut closing) = (app.engine().backend(), app.herald(), app.closing());
    while herald.is_followed() {
        let newest = backend.newest();
        let events = match backend.follow(after, AT_ONCE).await {
            Ok(events) => events,
            Err(fault @ (Fault::Stopped(_) | Fault::Damaged(_))) => {
                warn_seldom!(fault, "nobody is told of events any more");
                return herald.close();
            }
            Err(fault) => {
                warn_seldom!(fault, "events could not be read for those who follow");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        // Numbers of events that expired are passed over.
        after = events.last().map_or(after.max(newest), |(last, _)| *last);
        herald.tell(events);
        herald.told.store(after, Ordering::Release);
        if after < newest {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = backend.committed(after) => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(LOOK_AROUND) => {}
            () = closing.begun() => return herald.close(),
        }
    }
}
