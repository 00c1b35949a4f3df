//! How many tasks may run in this process at a time, how many do, and whether something keeps them from it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The slots of the workers in this process. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct SlotMeter(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    total: AtomicUsize,
    busy: AtomicUsize,
    troubles: AtomicU64,
    /// What keeps workers from claiming now, in the words of each.
    troubled: Mutex<Vec<&'static str>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlotsMetrics {
    pub total: usize,
    pub busy: usize,
    /// Workers that claim nothing now, because this machine cannot run tasks.
    pub troubled: usize,
    /// How often that began.
    pub troubles: u64,
}

/// A worker that claims nothing, until it is dropped.
#[derive(Debug)]
pub struct TroubleMark {
    counted: Arc<Counted>,
    words: &'static str,
}

impl Drop for TroubleMark {
    fn drop(&mut self) {
        let mut troubled = self.counted.troubled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = troubled.iter().position(|words| *words == self.words) {
            troubled.swap_remove(place);
        }
    }
}

/// Slots that are there, or in use, until it is dropped.
#[derive(Debug)]
pub struct TakenSlot {
    counted: Arc<Counted>,
    total: usize,
    busy: usize,
}

impl SlotMeter {
    /// Adds the slots of a worker.
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
        let Counted { total, busy, troubles, .. } = &*self.0;
        SlotsMetrics {
            total: total.load(Ordering::Relaxed),
            busy: busy.load(Ordering::Relaxed),
            troubled: self.troubled().len(),
            troubles: troubles.load(Ordering::Relaxed),
        }
    }

    /// A worker claims nothing, for a reason in words that anybody may read.
    #[must_use]
    pub fn trouble(&self, words: &'static str) -> TroubleMark {
        self.0.troubles.fetch_add(1, Ordering::Relaxed);
        self.0.troubled.lock().unwrap_or_else(PoisonError::into_inner).push(words);
        TroubleMark { counted: Arc::clone(&self.0), words }
    }

    /// Why workers in this process claim nothing now.
    pub fn troubled(&self) -> Vec<&'static str> {
        self.0.troubled.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
