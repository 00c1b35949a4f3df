//! A clock that moves only on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_model::Timestamp;

use tidemill_engine::clock::Clock;

/// Clones show the same time.
#[derive(Debug, Clone)]
pub struct ManualClock {
    millis: Arc<AtomicU64>,
}

impl ManualClock {
    /// The moment at which a new clock stands.
    pub const START: u64 = 1_800_000_000_000;

    pub fn advance(&self, millis: u64) {
        self.millis.fetch_add(millis, Ordering::SeqCst);
    }

    /// Somebody sets it right. Within one life of a process that never happens.
    pub fn set_back(&self, millis: u64) {
        self.millis.fetch_sub(millis, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self { millis: Arc::new(AtomicU64::new(Self::START)) }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::clamped(self.millis.load(Ordering::SeqCst))
    }
}
