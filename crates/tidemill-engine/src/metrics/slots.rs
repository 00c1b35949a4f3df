//! How many tasks may run in this process at a time, and how many do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The slots of the workers in this process. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct SlotMeter(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    total: AtomicUsize,
    busy: AtomicUsize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotsMetrics {
    pub total: usize,
    pub busy: usize,
}

/// Slots that are there, or in use, until it is dropped.
#[derive(Debug)]
pub struct TakenSlot {
    counted: Arc<Counted>,
    total: usize,
    busy: usize,
}

impl SlotMeter {
    /// A worker has so many.
    #[must_use]
    pub fn add(&self, total: usize) -> TakenSlot {
        self.taken(total, 0)
    }

    /// One of them is in use.
    #[must_use]
    pub fn busy(&self) -> TakenSlot {
        self.taken(0, 1)
    }

    pub fn read(&self) -> SlotsMetrics {
        let Counted { total, busy } = &*self.0;
        SlotsMetrics { total: total.load(Ordering::Relaxed), busy: busy.load(Ordering::Relaxed) }
    }

    fn taken(&self, total: usize, busy: usize) -> TakenSlot {
        self.0.total.fetch_add(total, Ordering::Relaxed);
        self.0.busy.fetch_add(busy, Ordering::Relaxed);
        TakenSlot { counted: Arc::clone(&self.0), total, busy }
    }
}

impl Drop for TakenSlot {
    fn drop(&mut self) {
        self.counted.total.fetch_sub(self.total, Ordering::Relaxed);
        self.counted.busy.fetch_sub(self.busy, Ordering::Relaxed);
    }
}
