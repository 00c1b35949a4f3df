//! Notices: how one thing tells many that wait that something happened, on any runtime.
//!
//! `event-listener` keeps another rule than `ring_some`: its `notify(n)` goes to n of all listeners, so a listener
//! that does not wait yet misses a ring that others got. The rest of it would replace some sixty lines by as many of
//! a wrapper and two crates.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Rung any number of times; every listener that was there before a ring hears it. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct Notice {
    board: Arc<Board>,
}

#[derive(Debug, Default)]
struct Board {
    rings: AtomicU64,
    listeners: AtomicU64,
    waiting: Mutex<HashMap<u64, Waker, foldhash::fast::RandomState>>,
}

impl Notice {
    pub fn ring(&self) {
        self.board.rings.fetch_add(1, Ordering::SeqCst);
        let wakers = {
            let mut waiting = self.board.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if waiting.is_empty() {
                return;
            }
            std::mem::take(&mut *waiting)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// Like `ring`, but wakes only `count` waiters: for work that any one of them does. A waiter that has done one
    /// looks for the next by itself.
    pub fn ring_some(&self, count: usize) {
        self.board.rings.fetch_add(1, Ordering::SeqCst);
        let wakers: Vec<Waker> = {
            let mut waiting = self.board.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let some: Vec<u64> = waiting.keys().take(count).copied().collect();
            some.iter().filter_map(|number| waiting.remove(number)).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Begins to listen: the answer resolves with the first ring after this call.
    pub fn listen(&self) -> Listening {
        Listening {
            board: Arc::clone(&self.board),
            heard: self.board.rings.load(Ordering::SeqCst),
            number: self.board.listeners.fetch_add(1, Ordering::Relaxed),
        }
    }
}

/// See [`Notice::listen`].
#[derive(Debug)]
pub struct Listening {
    board: Arc<Board>,
    heard: u64,
    number: u64,
}

impl Future for Listening {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.board.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock that a ring takes after it counted: no ring is missed.
        if self.board.rings.load(Ordering::SeqCst) != self.heard {
            return Poll::Ready(());
        }
        waiting.insert(self.number, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.board.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ring_is_heard_by_all_who_listened_before_it() {
        let notice = Notice::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        notice.ring();
        let (mut first, mut second) = (pin!(notice.listen()), pin!(notice.listen()));
        assert!(first.as_mut().poll(&mut context).is_pending(), "the ring before does not count");
        let unpolled = notice.listen();
        notice.ring();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "the one that waited is woken");
        assert!(first.as_mut().poll(&mut context).is_ready());
        assert!(
            second.as_mut().poll(&mut context).is_ready(),
            "listening begins with the call, not with the wait"
        );
        assert!(pin!(unpolled).as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_ring_for_some_wakes_no_more_than_these_and_is_missed_by_none() {
        let notice = Notice::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(notice.listen())).collect();
        assert!(waiting.iter_mut().all(|one| one.as_mut().poll(&mut context).is_pending()));
        let unpolled = notice.listen();
        notice.ring_some(2);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert!(pin!(unpolled).as_mut().poll(&mut context).is_ready(), "it had not begun to wait");
        notice.ring_some(2);
        notice.ring_some(9);
        assert_eq!(count.0.load(Ordering::SeqCst), 5);
    }

    #[test]
    fn whoever_leaves_is_forgotten() {
        let notice = Notice::default();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut listening = notice.listen();
            for _ in 0..3 {
                assert!(Pin::new(&mut listening).poll(&mut context).is_pending());
            }
        }
        assert!(notice.board.waiting.lock().unwrap().is_empty());
    }
}
