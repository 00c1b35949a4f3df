//! Workers that wait for work.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Wakes as many waiters as messages arrived. A worker that registers first and then looks misses nothing.
#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    waiting: Mutex<VecDeque<Arc<Mutex<Slot>>>>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Serves some tenants only: it looks at every arrival, since nobody else may serve them.
    picky: bool,
    woken: bool,
    heard: bool,
    waker: Option<Waker>,
}

impl WorkQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Mutex<Slot>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This many messages may be deliverable: as many waiters look, and all that serve only some tenants.
    pub(super) fn arrived(&self, messages: usize) {
        let mut left = messages;
        let mut woken = Vec::new();
        self.lock().retain(|waiting| {
            let picky = waiting.lock().unwrap_or_else(PoisonError::into_inner).picky;
            if !picky && left == 0 {
                return true;
            }
            left -= usize::from(!picky);
            woken.push(Arc::clone(waiting));
            false
        });
        for slot in woken {
            let waker = {
                let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
                slot.woken = true;
                slot.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Gets in line. The answer resolves with an arrival after this call.
    pub(super) fn register(&self, picky: bool) -> Waiting<'_> {
        let slot = Arc::new(Mutex::new(Slot { picky, ..Slot::default() }));
        self.lock().push_back(Arc::clone(&slot));
        Waiting { queue: self, slot }
    }
}

pub(super) struct Waiting<'a> {
    queue: &'a WorkQueue,
    slot: Arc<Mutex<Slot>>,
}

impl Future for Waiting<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.woken {
            slot.heard = true;
            return Poll::Ready(());
        }
        slot.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.lock().retain(|waiting| !Arc::ptr_eq(waiting, &self.slot));
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.woken && !slot.heard && !slot.picky {
            drop(slot);
            // The wake-up was meant for work; somebody else takes it.
            self.queue.arrived(1);
        }
    }
}
