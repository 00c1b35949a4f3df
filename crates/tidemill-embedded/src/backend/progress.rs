//! How far the log is synced, and who waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidemill_engine::backend::Fault;

/// Groups are numbered from 1 in the order they are filled; they reach the disk in that order.
pub(super) type GroupNumber = u64;

pub(super) struct Progress {
    /// The newest group on disk. Read without the lock first.
    synced: AtomicU64,
    /// Whether anything went wrong; then only the lock tells the truth.
    troubled: AtomicBool,
    inner: Mutex<Inner>,
}

struct Inner {
    stopped: Option<Fault>,
    /// Groups that will never be on disk, first and last, with the reason.
    lost: Vec<(GroupNumber, GroupNumber, Fault)>,
    waiting: Vec<(GroupNumber, Waker)>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let inner = Inner { stopped: None, lost: Vec::new(), waiting: Vec::new() };
        Self { synced: AtomicU64::new(0), troubled: AtomicBool::new(false), inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn synced(&self) -> GroupNumber {
        self.synced.load(Ordering::Acquire)
    }

    /// A group is on disk: whoever waited for it may go on.
    pub(super) fn reached(&self, number: GroupNumber) {
        let mut inner = self.lock();
        self.synced.store(number, Ordering::Release);
        let waiting = std::mem::take(&mut inner.waiting);
        let (done, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(awaited, _)| *awaited <= number);
        inner.waiting = rest;
        drop(inner);
        for (_, waker) in done {
            waker.wake();
        }
    }

    /// Nothing more will reach the disk.
    pub(super) fn stop(&self, fault: Fault) {
        let mut inner = self.lock();
        self.troubled.store(true, Ordering::Release);
        inner.stopped.get_or_insert(fault);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped_fast().is_some()
    }

    /// Why nothing more will reach the disk, if so.
    pub(super) fn stopped_fast(&self) -> Option<Fault> {
        if self.troubled.load(Ordering::Acquire) { self.lock().stopped.clone() } else { None }
    }

    /// The groups after the newest one on disk, up to `last`, were given up.
    pub(super) fn lose(&self, last: GroupNumber, fault: Fault) {
        let mut inner = self.lock();
        self.troubled.store(true, Ordering::Release);
        let first = self.synced() + 1;
        inner.lost.push((first, last, fault));
        // The number after the lost ones stands for what is left.
        self.synced.store(last + 1, Ordering::Release);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    /// Resolves when a group is on disk, or never will be.
    pub(super) fn wait(&self, number: GroupNumber) -> Synced<'_> {
        Synced { progress: self, number }
    }
}

pub(super) struct Synced<'a> {
    progress: &'a Progress,
    number: GroupNumber,
}

impl Future for Synced<'_> {
    type Output = Result<(), Fault>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.progress.synced() >= self.number && !self.progress.troubled.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        let mut inner = self.progress.lock();
        let lost = inner.lost.iter().find(|(first, last, _)| (*first..=*last).contains(&self.number));
        if let Some((_, _, fault)) = lost {
            return Poll::Ready(Err(fault.clone()));
        }
        if self.progress.synced() >= self.number {
            return Poll::Ready(Ok(()));
        }
        if let Some(fault) = &inner.stopped {
            return Poll::Ready(Err(fault.clone()));
        }
        inner.waiting.push((self.number, context.waker().clone()));
        Poll::Pending
    }
}
