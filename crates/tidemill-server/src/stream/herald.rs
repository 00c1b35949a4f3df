//! The herald: reads the log once, and sends each event to the followers of its tenant.
//!
//! A follower of one tenant costs nothing while others are busy. The herald reads as long as there are followers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::backend::Fault;
use tidemill_engine::warn_seldom;
use tidemill_model::{Event, TenantId};
use tokio::sync::broadcast::{Receiver, Sender};

use crate::app::App;

/// An event and its number in the log.
pub(crate) type News = (u64, Arc<Event>);

/// How many events of a tenant wait for its slowest follower, which learns what it missed.
const WAITING_MAX: usize = 256;
/// Events that are read at a time.
const AT_ONCE: usize = 1_000;
/// How long events are gathered: reading them one by one slows commits.
const GATHER: Duration = Duration::from_millis(20);
/// How long to wait before asking a store again that could not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the herald checks whether anybody follows.
const LOOK_AROUND: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Herald {
    board: Mutex<Board>,
    /// All events up to this number were told.
    announced: AtomicU64,
}

#[derive(Debug, Default)]
struct Board {
    tenants: HashMap<TenantId, Post>,
    is_reading: bool,
}

/// Where a tenant's events are sent.
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
    pub(crate) fn follow(app: &App, tenant: &TenantId) -> Receiver<News> {
        let herald = app.herald();
        let mut board = herald.board();
        let post = board.tenants.entry(tenant.clone());
        let news = post.or_insert_with(|| Post { news: Sender::new(WAITING_MAX), last: 0 }).news.subscribe();
        if !std::mem::replace(&mut board.is_reading, true) {
            let after = app.engine().backend().newest();
            herald.announced.store(after, Ordering::Release);
            tokio::spawn(read(app.clone(), after));
        }
        news
    }

    /// The number up to which events were announced to all followers.
    pub(crate) fn announced(&self) -> u64 {
        self.announced.load(Ordering::Acquire)
    }

    /// The number of the last event of a tenant that was told, as far as somebody follows it.
    pub(crate) fn last_of(&self, tenant: &TenantId) -> u64 {
        self.board().tenants.get(tenant).map_or(0, |post| post.last)
    }

    /// Whether anybody follows. If nobody does, the next follower starts a new reader.
    fn is_followed(&self) -> bool {
        let mut board = self.board();
        board.tenants.retain(|_, post| post.news.receiver_count() > 0);
        board.is_reading = !board.tenants.is_empty();
        board.is_reading
    }

    fn announce(&self, events: Vec<(u64, Event)>) {
        let mut board = self.board();
        for (number, event) in events {
            if let Some(post) = board.tenants.get_mut(&event.tenant) {
                post.last = number;
                // Followers that left do not get it.
                let _ = post.news.send((number, Arc::new(event)));
            }
        }
    }

    /// Nobody reads any more: the end of the news tells the followers.
    fn close(&self) {
        *self.board() = Board::default();
    }
}

async fn read(app: App, mut after: u64) {
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
                warn_seldom!(fault, "events could not be read for followers");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        // Numbers of events that expired are passed over.
        after = events.last().map_or(after.max(newest), |(last, _)| *last);
        herald.announce(events);
        herald.announced.store(after, Ordering::Release);
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
