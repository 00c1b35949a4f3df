//! What became of the spans of traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts spans. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct SpanMeter(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    sent: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpansMetrics {
    /// A collector took them.
    pub sent: u64,
    /// Nobody did.
    pub dropped: u64,
}

impl SpanMeter {
    pub fn sent(&self, count: usize) {
        self.0.sent.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn dropped(&self, count: usize) {
        self.0.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn read(&self) -> SpansMetrics {
        let Counted { sent, dropped } = &*self.0;
        SpansMetrics { sent: sent.load(Ordering::Relaxed), dropped: dropped.load(Ordering::Relaxed) }
    }
}
