//! Which clients are connected, and which has been idle longest.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All connections of a server.
#[derive(Debug)]
pub(super) struct Registry {
    most: usize,
    inner: Mutex<Inner>,
    /// Told when a connection ends.
    left: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Numbers connections and the moments at which they became idle.
    counter: u64,
    open: HashMap<u64, Entry>,
    /// Idle connections by the moment since when they are.
    idle: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Entry {
    idle_since: Option<u64>,
    close: Arc<Notify>,
}

/// A place in the registry. It is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    registry: Arc<Registry>,
    number: u64,
    close: Arc<Notify>,
}

impl Registry {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inner: Mutex::default(), left: Notify::new() })
    }

    /// A place for one more, which begins idle. When all are taken, the longest idle connection is asked to go; `None`
    /// when none is idle.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Ticket> {
        let mut inner = self.lock();
        if inner.open.len() >= self.most && !inner.dismiss_oldest() {
            return None;
        }
        inner.counter += 1;
        let number = inner.counter;
        let close = Arc::new(Notify::new());
        inner.open.insert(number, Entry { idle_since: Some(number), close: Arc::clone(&close) });
        inner.idle.insert(number, number);
        Some(Ticket { registry: Arc::clone(self), number, close })
    }

    /// Asks the longest idle connection to go; false when none is idle.
    pub(super) fn dismiss_oldest(&self) -> bool {
        self.lock().dismiss_oldest()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().open.is_empty()
    }

    /// Waits until a connection ended after the call.
    pub(super) async fn left(&self) {
        self.left.notified().await;
    }

    /// Waits until nobody is connected.
    pub(super) async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            if self.is_empty() {
                return;
            }
            left.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn dismiss_oldest(&mut self) -> bool {
        let Some((_, number)) = self.idle.pop_first() else { return false };
        if let Some(entry) = self.open.remove(&number) {
            entry.close.notify_one();
        }
        true
    }
}

impl Ticket {
    /// A request is being handled.
    pub(super) fn busy(&self) {
        let mut inner = self.registry.lock();
        let since = inner.open.get_mut(&self.number).and_then(|entry| entry.idle_since.take());
        if let Some(since) = since {
            inner.idle.remove(&since);
        }
    }

    /// The request was answered.
    pub(super) fn idle(&self) {
        let mut inner = self.registry.lock();
        inner.counter += 1;
        let now = inner.counter;
        if let Some(entry) = inner.open.get_mut(&self.number)
            && entry.idle_since.is_none()
        {
            entry.idle_since = Some(now);
            inner.idle.insert(now, self.number);
        }
    }

    /// Waits until somebody else needs the place.
    pub(super) async fn dismissed(&self) {
        self.close.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        if let Some(Entry { idle_since: Some(since), .. }) = inner.open.remove(&self.number) {
            inner.idle.remove(&since);
        }
        drop(inner);
        self.registry.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the ticket was told to go.
    fn told(ticket: &Ticket) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut dismissed = std::pin::pin!(ticket.dismissed());
        dismissed.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn the_longest_idle_goes_first_and_busy_ones_stay() {
        let registry = Registry::new(3);
        let [first, second, third] = std::array::from_fn(|_| registry.admit().unwrap());
        first.busy();
        third.busy();
        third.idle();
        let fourth = registry.admit().expect("the second was idle longest");
        assert_eq!([&first, &second, &third, &fourth].map(told), [false, true, false, false]);
        let fifth = registry.admit().expect("the third is idle");
        assert_eq!([&first, &third, &fourth, &fifth].map(told), [false, true, false, false]);
        fourth.busy();
        fifth.busy();
        assert!(registry.admit().is_none(), "all are busy");
        drop(fifth);
        assert!(registry.admit().is_some());
        drop((first, second, third, fourth));
        assert!(registry.is_empty());
    }
}
