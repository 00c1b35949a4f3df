//! How much of the machine pages may take, so that viewers slow neither the work nor other tenants.
//!
//! A page that is kept up to date is made again in turns: those of one key one after the other, with a pause after
//! each. Pages that may be large are made apart from the threads that answer, few at a time, and those of one key one
//! after the other too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

/// Of the time of one thread, at most this part goes into all live pages of one key.
const SHARE: u32 = 5;

#[derive(Debug)]
pub(super) struct Pace {
    /// By the names of keys.
    live: Turns,
    large: Turns,
    places: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Turns(Mutex<HashMap<String, Arc<Turn<()>>>>);

impl Turns {
    async fn take(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody has or waits for those that are only here.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(name.to_owned()).or_default())
        };
        turn.lock_owned().await
    }
}

/// The right to make a page that may be large, until it is dropped.
#[derive(Debug)]
pub(super) struct LargePage {
    _turn: OwnedMutexGuard<()>,
    _place: Option<OwnedSemaphorePermit>,
}

/// The right to make a live page again.
#[derive(Debug)]
pub(super) struct LivePage(OwnedMutexGuard<()>);

impl LivePage {
    /// Making it took `time`: the next one of the same key waits in proportion.
    pub(super) fn took(self, time: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(time * (SHARE - 1)).await;
            drop(self.0);
        });
    }
}

impl Default for Pace {
    /// Half of the machine may go into large pages.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self::with_places((threads / 2).max(1))
    }
}

impl Pace {
    fn with_places(places: usize) -> Self {
        Self { live: Turns::default(), large: Turns::default(), places: Arc::new(Semaphore::new(places)) }
    }

    pub(super) async fn live(&self, key: &str) -> LivePage {
        LivePage(self.live.take(key).await)
    }

    pub(super) async fn large(&self, key: &str) -> LargePage {
        // The turn first: a caller that asks for many pages waits for its own before it stands in the way of others.
        let turn = self.large.take(key).await;
        LargePage { _turn: turn, _place: Arc::clone(&self.places).acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn is_there(future: std::pin::Pin<&mut impl Future>) -> bool {
        matches!(future.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
    }

    #[tokio::test(start_paused = true)]
    async fn the_live_pages_of_one_key_take_turns_with_pauses() {
        let pace = Pace::default();
        let first = pace.live("a").await;
        let mut second = pin!(pace.live("a"));
        assert!(!is_there(second.as_mut()));
        let other = pace.live("b").await;
        first.took(Duration::from_millis(10));
        other.took(Duration::from_secs(9));
        let began = tokio::time::Instant::now();
        second.await.took(Duration::ZERO);
        assert_eq!(began.elapsed().as_millis(), 40, "another key's time is not its own");
    }

    #[tokio::test]
    async fn large_pages_are_few_at_a_time_and_one_of_a_key() {
        let pace = Pace::with_places(2);
        let first = pace.large("a").await;
        let mut again = pin!(pace.large("a"));
        assert!(!is_there(again.as_mut()));
        let other = pace.large("b").await;
        let mut third = pin!(pace.large("c"));
        assert!(!is_there(third.as_mut()), "no place is left");
        drop(other);
        // `a` came before, and yet does not stand in the way.
        let third = third.await;
        assert!(!is_there(again.as_mut()));
        drop((first, third));
        drop(again.await);
        let turns = pace.large.0.lock().unwrap();
        assert!(turns.len() <= 3, "{turns:?}");
    }
}
