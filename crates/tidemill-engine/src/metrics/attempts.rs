//! Attempts as the worker that made them saw them end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::metrics::histogram::{Bounds, Histogram, HistogramMetrics};

/// Counts the ends of attempts. Clones share everything.
#[derive(Debug, Clone)]
pub struct AttemptMeter(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    ended: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    seconds: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptsMetrics {
    /// By how they ended and the class of the error, which is empty without one.
    pub ended: BTreeMap<(&'static str, &'static str), u64>,
    pub seconds: HistogramMetrics,
}

impl Default for AttemptMeter {
    fn default() -> Self {
        Self(Arc::new(Counted { ended: Mutex::default(), seconds: Histogram::new(Bounds::LATENCY) }))
    }
}

impl AttemptMeter {
    /// An attempt ended after this long.
    pub fn ended(&self, outcome: &'static str, class: &'static str, took: Duration) {
        self.0.seconds.took(took);
        let mut ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.entry((outcome, class)).or_default() += 1;
    }

    pub fn read(&self) -> AttemptsMetrics {
        let ended = self.0.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        AttemptsMetrics { ended, seconds: self.0.seconds.read() }
    }
}
