//! The in-memory backend under the conformance suite.

use std::sync::Arc;

use tidemill_conformance::conformance_tests;
use tidemill_conformance::{ManualClock, TestWorld, policy};
use tidemill_engine::memory::MemoryBackend;

struct MemoryWorld(Arc<MemoryBackend<ManualClock>>);

impl TestWorld for MemoryWorld {
    type Backend = MemoryBackend<ManualClock>;

    fn backend(&self) -> Arc<Self::Backend> {
        Arc::clone(&self.0)
    }

    fn time_passed(&self) {
        self.0.time_passed();
    }

    /// Memory has no second life; going on with the same one at least runs the cases.
    async fn reopen(self, _: ManualClock) -> Option<Self> {
        Some(self)
    }
}

fn memory(clock: ManualClock) -> MemoryWorld {
    MemoryWorld(Arc::new(MemoryBackend::new(clock, policy(), 1)))
}

conformance_tests!(memory);
