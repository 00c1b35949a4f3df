//! Bells: how threads of the backend wake each other without polling.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Rung any number of times, heard once. A ring that nobody waits for is kept.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// Rung and not heard yet. A further ring has nothing to add, so it takes no lock.
    rung: AtomicBool,
    ears: Mutex<Ears>,
    heard: Condvar,
}

#[derive(Debug, Default)]
struct Ears {
    closed: bool,
    listening: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    Ring,
    Timeout,
    Closed,
}

impl Bell {
    pub(super) fn ring(&self) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        // A thread that is about to wait holds the lock until it does.
        if self.ears().listening {
            self.heard.notify_one();
        }
    }

    /// Ends every wait, now and later.
    pub(super) fn close(&self) {
        self.ears().closed = true;
        self.heard.notify_all();
    }

    /// Waits for a ring, at most until `deadline`.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Heard {
        let mut ears = self.ears();
        loop {
            if ears.closed {
                return Heard::Closed;
            }
            if self.rung.swap(false, Ordering::AcqRel) {
                return Heard::Ring;
            }
            ears.listening = true;
            ears = match deadline {
                None => self.heard.wait(ears).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left == Duration::ZERO {
                        ears.listening = false;
                        return Heard::Timeout;
                    }
                    self.heard.wait_timeout(ears, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            ears.listening = false;
        }
    }

    fn ears(&self) -> MutexGuard<'_, Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
