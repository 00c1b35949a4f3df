//! Time in the world: it passes when a step says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_engine::clock::Clock;
use tidemill_model::Timestamp;

/// When every world begins.
const BEGIN_MILLIS: u64 = 1_800_000_000_000;

/// The store's clock. Clones show the same time.
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    pub fn start() -> Self {
        Self(Arc::new(AtomicU64::new(BEGIN_MILLIS)))
    }

    pub fn pass(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }

    /// Somebody sets the clock back.
    pub fn step_back(&self, millis: u64) {
        self.0.fetch_sub(millis, Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::clamped(self.0.load(Ordering::Relaxed))
    }
}
