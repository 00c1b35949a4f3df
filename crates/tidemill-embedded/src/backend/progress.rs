//! How far the log is synced, and which callers wait for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tidemill_engine::backend::Fault;

use super::rest_board::RestBoard;

/// Groups are numbered from 1 in the order they are filled; they reach the disk in that order.
pub(super) type GroupNumber = u64;

#[derive(Debug)]
pub(super) struct Progress {
    /// The newest group on disk. Read without the lock first.
    synced: AtomicU64,
    /// Whether anything went wrong; then only the lock tells the truth.
    troubled: AtomicBool,
    inner: Mutex<Inner>,
    pub(super) rest: RestBoard,
    /// Where threads wait for a group, by its number: one call wakes them all, and no thread that waits for another
    /// group.
    rooms: [Room; ROOMS],
}

/// As many as there usually are groups between being filled and being on disk; more of them share rooms.
const ROOMS: usize = 4;

#[derive(Debug, Default)]
struct Room {
    waiting: Mutex<usize>,
    woken: Condvar,
}

impl Room {
    fn wake(&self) {
        if *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.woken.notify_all();
        }
    }
}

#[derive(Debug)]
struct Inner {
    stopped: Option<Fault>,
    /// Groups that will never be on disk, first and last, with the reason.
    lost: Vec<(GroupNumber, GroupNumber, Fault)>,
    waiting: Vec<(GroupNumber, Waker)>,
}

impl Progress {
    pub(super) fn new() -> Self {
        let inner = Inner { stopped: None, lost: Vec::new(), waiting: Vec::new() };
        Self {
            synced: AtomicU64::new(0),
            troubled: AtomicBool::new(false),
            inner: Mutex::new(inner),
            rest: RestBoard::default(),
            rooms: Default::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn synced(&self) -> GroupNumber {
        self.synced.load(Ordering::Acquire)
    }

    /// A group is on disk: its waiters may go on.
    pub(super) fn reached(&self, number: GroupNumber) {
        let mut inner = self.lock();
        self.synced.store(number, Ordering::Release);
        let waiting = std::mem::take(&mut inner.waiting);
        let (done, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(awaited, _)| *awaited <= number);
        inner.waiting = rest;
        drop(inner);
        self.room(number).wake();
        for (_, waker) in done {
            waker.wake();
        }
    }

    fn room(&self, number: GroupNumber) -> &Room {
        &self.rooms[usize::try_from(number % ROOMS as u64).unwrap_or(0)]
    }

    /// Nothing more will reach the disk.
    pub(super) fn stop(&self, fault: Fault) {
        let mut inner = self.lock();
        self.troubled.store(true, Ordering::Release);
        inner.stopped.get_or_insert(fault);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        self.rooms.iter().for_each(Room::wake);
        self.rest.ring_all();
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
        self.rooms.iter().for_each(Room::wake);
        self.rest.ring_all();
        for (_, waker) in waiting {
            waker.wake();
        }
    }

    /// Returns when a group is on disk, or never will be.
    pub(super) fn wait_blocking(&self, number: GroupNumber) -> Result<(), Fault> {
        let room = self.room(number);
        let is_over = || self.synced() >= number || self.troubled.load(Ordering::Acquire);
        if !is_over() {
            let mut waiting = room.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            *waiting += 1;
            while !is_over() {
                waiting = room.woken.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            *waiting -= 1;
        }
        // After trouble only the lists tell which groups were lost.
        pollster::block_on(self.wait(number))
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
