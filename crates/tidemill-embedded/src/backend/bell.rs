//! Bells: how threads of the backend wake each other without polling.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rung any number of times, heard once. A ring that nobody waits for is kept.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: Mutex<Ring>,
    heard: Condvar,
}

#[derive(Debug, Default)]
struct Ring {
    rung: bool,
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
        let mut ring = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        ring.rung = true;
        if ring.listening {
            self.heard.notify_one();
        }
    }

    /// Ends every wait, now and later.
    pub(super) fn close(&self) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.heard.notify_all();
    }

    /// Waits for a ring, at most until `deadline`.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Heard {
        let mut ring = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if ring.closed {
                return Heard::Closed;
            }
            if ring.rung {
                ring.rung = false;
                return Heard::Ring;
            }
            ring.listening = true;
            ring = match deadline {
                None => self.heard.wait(ring).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left == Duration::ZERO {
                        ring.listening = false;
                        return Heard::Timeout;
                    }
                    self.heard.wait_timeout(ring, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            ring.listening = false;
        }
    }
}
