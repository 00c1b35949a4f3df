//! What scripts did in this process, counted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The upper bounds of the histogram's buckets, in milliseconds.
pub const BUCKETS_MILLIS: [u64; 13] =
    [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];
/// Quantiles are those of this many last runs.
const RECENT_MAX: usize = 4_096;

/// The eight metrics of scripts, and quantiles of the last runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScriptMetrics {
    /// Events and subscriptions that met.
    pub events_matched_total: u64,
    /// Subscriptions of an event's type whose rules said no.
    pub events_filtered_total: u64,
    pub executions_queued_total: u64,
    pub executions_success_total: u64,
    /// Failed runs by the class of their error.
    pub executions_failed_total: BTreeMap<String, u64>,
    /// Executions that failed for good.
    pub dlq_events_total: u64,
    /// Executions that wait, those that are to be tried again included.
    pub queue_depth_gauge: u64,
    pub execution_duration_histogram: DurationHistogram,
    /// 0.5, 0.95 and 0.99 with the seconds of each; empty before the first run.
    pub quantiles: Vec<(f64, f64)>,
}

/// How long runs took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationHistogram {
    /// How many were not longer than each of [`BUCKETS_MILLIS`].
    pub buckets: [u64; BUCKETS_MILLIS.len()],
    pub count: u64,
    pub sum_seconds: f64,
}

/// The counters themselves.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    metrics: ScriptMetrics,
    recent: VecDeque<u64>,
}

impl Counters {
    pub(crate) fn matched(&self, matched: u64, filtered: u64) {
        let metrics = &mut self.lock().metrics;
        metrics.events_matched_total += matched;
        metrics.events_filtered_total += filtered;
    }

    pub(crate) fn queued(&self, created: u64) {
        let metrics = &mut self.lock().metrics;
        metrics.executions_queued_total += created;
    }

    /// A run ended; `class` is that of its error.
    pub(crate) fn ended(&self, took: Duration, class: Option<&str>, is_final: bool) {
        let mut counted = self.lock();
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let metrics = &mut counted.metrics;
        match class {
            None => metrics.executions_success_total += 1,
            Some(class) => {
                *metrics.executions_failed_total.entry(class.to_owned()).or_default() += 1;
                metrics.dlq_events_total += u64::from(is_final);
            }
        }
        let histogram = &mut metrics.execution_duration_histogram;
        for (bucket, limit) in histogram.buckets.iter_mut().zip(BUCKETS_MILLIS) {
            *bucket += u64::from(micros <= limit * 1_000);
        }
        histogram.count += 1;
        histogram.sum_seconds += took.as_secs_f64();
        if counted.recent.len() == RECENT_MAX {
            counted.recent.pop_front();
        }
        counted.recent.push_back(micros);
    }

    /// What was counted, and how many wait, which the store knows.
    pub(crate) fn read(&self, depth: u64) -> ScriptMetrics {
        let (mut metrics, mut recent) = {
            let counted = self.lock();
            (counted.metrics.clone(), counted.recent.iter().copied().collect::<Vec<_>>())
        };
        metrics.queue_depth_gauge = depth;
        recent.sort_unstable();
        metrics.quantiles = [(0.5, 50), (0.95, 95), (0.99, 99)]
            .into_iter()
            .filter_map(|(quantile, percent)| {
                // The nearest rank.
                let rank = (recent.len() * percent).div_ceil(100).max(1);
                let micros = recent.get(rank - 1)?;
                Some((quantile, Duration::from_micros(*micros).as_secs_f64()))
            })
            .collect();
        metrics
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_runs_give_known_numbers() {
        let counters = Counters::default();
        assert_eq!(counters.read(0), ScriptMetrics::default());
        counters.matched(3, 2);
        counters.queued(3);
        for millis in 1..=100 {
            counters.ended(Duration::from_millis(millis), None, false);
        }
        counters.ended(Duration::from_millis(6), Some("timeout"), false);
        counters.ended(Duration::from_millis(6), Some("timeout"), true);
        let read = counters.read(2);
        assert_eq!((read.events_matched_total, read.events_filtered_total), (3, 2));
        assert_eq!((read.executions_queued_total, read.queue_depth_gauge), (3, 2));
        assert_eq!((read.executions_success_total, read.dlq_events_total), (100, 1));
        assert_eq!(read.executions_failed_total, BTreeMap::from([("timeout".to_owned(), 2)]));
        assert_eq!(read.execution_duration_histogram.buckets[..5], [5, 12, 27, 52, 102]);
        assert_eq!(read.execution_duration_histogram.count, 102);
        assert_eq!(read.quantiles, [(0.5, 0.049), (0.95, 0.095), (0.99, 0.099)]);
    }
}
