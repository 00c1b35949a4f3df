//! Latencies of single operations.

use std::time::{Duration, Instant};

const CONTROL_SPREAD_MAX: f64 = 1.5;

#[derive(Debug, Default, Clone)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    pub fn push(&mut self, took: Duration) {
        self.0.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Times one call.
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.push(start.elapsed());
        result
    }

    /// The value below which this part of all lies, in microseconds.
    pub fn quantile(&mut self, part: f64) -> f64 {
        self.0.sort_unstable();
        let at = ((self.0.len() as f64 - 1.0) * part).round().max(0.0);
        self.0.get(at as usize).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
    }

    pub fn p50(&mut self) -> f64 {
        self.quantile(0.5)
    }

    pub fn p99(&mut self) -> f64 {
        self.quantile(0.99)
    }

    /// Whether bare commits can be a control. On a calm machine they lie close together. Beside others' builds their
    /// median rose to 4 ms, above that of whole hops: nine tenths of it was waiting for a CPU. A difference to that would
    /// flatter us.
    pub fn is_steady(&mut self) -> bool {
        self.p50() <= CONTROL_SPREAD_MAX * self.quantile(0.1)
    }
}

/// The middle one of some values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}
