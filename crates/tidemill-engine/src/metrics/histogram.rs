//! A histogram that many threads add to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most buckets a histogram has, the last one without a bound among them.
const BUCKETS_MAX: usize = 24;

/// The upper bounds of a histogram's buckets, rising.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounds {
    /// In microseconds; shown in seconds.
    Micros(&'static [u64]),
    /// Plain numbers.
    Count(&'static [u64]),
}

impl Bounds {
    /// From a fast disk's sync to a queue that stands for hours.
    pub const LATENCY: Self = Self::Micros(&[
        100,
        250,
        500,
        1_000,
        2_500,
        5_000,
        10_000,
        25_000,
        50_000,
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        30_000_000,
        60_000_000,
        300_000_000,
        3_600_000_000,
    ]);
    /// How many of something come together.
    pub const SIZE: Self = Self::Count(&[1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000]);

    fn limits(self) -> &'static [u64] {
        match self {
            Self::Micros(limits) | Self::Count(limits) => limits,
        }
    }
}

/// How often values fell into each bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: Bounds,
    buckets: [AtomicU64; BUCKETS_MAX],
    sum: AtomicU64,
}

/// A histogram as it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramMetrics {
    pub bounds: Bounds,
    /// How many values were not above each bound, in the order of the bounds.
    pub at_most: Vec<u64>,
    /// How many values there were.
    pub count: u64,
    /// All values added up, in the unit of the bounds.
    pub sum: u64,
}

impl Histogram {
    pub fn new(bounds: Bounds) -> Self {
        assert!(bounds.limits().len() < BUCKETS_MAX, "one bucket has no bound");
        Self { bounds, buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }

    pub fn took(&self, time: Duration) {
        self.add(micros(time));
    }

    /// Adds a value in the unit of the bounds.
    pub fn add(&self, value: u64) {
        let bucket = self.bounds.limits().partition_point(|limit| *limit < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub fn read(&self) -> HistogramMetrics {
        let mut count = 0;
        let limits = self.bounds.limits().len();
        let mut at_most: Vec<u64> = self.buckets[..=limits]
            .iter()
            .map(|bucket| {
                count += bucket.load(Ordering::Relaxed);
                count
            })
            .collect();
        at_most.truncate(limits);
        HistogramMetrics { bounds: self.bounds, at_most, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}

impl HistogramMetrics {
    pub fn empty(bounds: Bounds) -> Self {
        Self { bounds, at_most: vec![0; bounds.limits().len()], count: 0, sum: 0 }
    }

    /// Each bound with the number of values that were not above it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bounds.limits().iter().copied().zip(self.at_most.iter().copied())
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_every_bound_that_is_not_below_it() {
        let histogram = Histogram::new(Bounds::Count(&[1, 10, 100]));
        assert_eq!(histogram.read(), HistogramMetrics::empty(Bounds::Count(&[1, 10, 100])));
        for value in [0, 1, 2, 10, 11, 100, 101, 5_000] {
            histogram.add(value);
        }
        let read = histogram.read();
        assert_eq!(read.buckets().collect::<Vec<_>>(), [(1, 2), (10, 4), (100, 6)]);
        assert_eq!((read.count, read.sum), (8, 5_225));
    }

    #[test]
    fn the_usual_bounds_rise_and_leave_room_for_the_rest() {
        for bounds in [Bounds::LATENCY, Bounds::SIZE] {
            assert!(bounds.limits().is_sorted_by(|one, next| one < next));
            Histogram::new(bounds).took(Duration::from_secs(100_000));
        }
    }
}
