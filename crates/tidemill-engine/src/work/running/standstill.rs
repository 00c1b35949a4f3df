//! What happens after this process stood still: claims wait a little.
//!
//! Leases ran out while no worker could renew them, and workers could not report outcomes. The server first hears the
//! workers that have them, under the fence of their leases; only then does it give a task to another worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::Engine;
use crate::kernel::backend::Backend;

/// How often the owner of an engine says that time passes, at least.
pub const PULSE_EVERY: Duration = Duration::from_millis(500);
/// No gap in time counts that is shorter.
const GAP_MILLIS_MIN: u64 = 2_000;
/// Nor one that is shorter than this part of a lease: those that are kept outlast it.
const GAP_LEASE_PART: u64 = 4;
/// How long claims wait after a gap. Workers that could not report try again every two seconds at least.
const GRACE_MILLIS: u64 = 3_000;

/// When time was seen to pass, in milliseconds. Zero: nobody has looked.
#[derive(Debug, Default)]
pub(crate) struct Standstill {
    seen_at: AtomicU64,
    claims_from: AtomicU64,
}

impl Standstill {
    /// Notes that it is `now`. Tells how many milliseconds claims have to wait.
    fn look(&self, now: u64, gap_min: u64) -> u64 {
        let before = self.seen_at.fetch_max(now, Ordering::AcqRel);
        if before > 0 && now.saturating_sub(before) >= gap_min {
            self.claims_from.fetch_max(now + GRACE_MILLIS, Ordering::AcqRel);
        }
        self.claims_from.load(Ordering::Acquire).saturating_sub(now)
    }
}

impl<B: Backend> Engine<B> {
    /// Says that time passes. Called every `PULSE_EVERY`; without it no gap is ever noticed.
    pub fn pulse(&self) {
        self.look_at_time();
    }

    /// How long nothing may be claimed yet, because this process stood still. Mostly no time at all.
    pub fn claims_wait(&self) -> Duration {
        if self.inner.standstill.seen_at.load(Ordering::Acquire) == 0 {
            return Duration::ZERO;
        }
        self.look_at_time()
    }

    fn look_at_time(&self) -> Duration {
        let gap_min = (self.policy().lease_millis / GAP_LEASE_PART).max(GAP_MILLIS_MIN);
        Duration::from_millis(self.inner.standstill.look(self.inner.clock.now().millis(), gap_min))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_wait_after_a_gap_and_only_then() {
        let standstill = Standstill::default();
        for (now, wait) in [
            (1_000, 0),
            (2_000, 0),
            (6_999, 0),
            (12_000, 3_000), // a gap, seen by the first look
            (12_001, 2_999),
            (14_999, 1),
            (15_000, 0),
            (19_000, 0),
            (18_000, 0), // another thread was a little late
            (24_000, 3_000),
        ] {
            assert_eq!(standstill.look(now, 5_000), wait, "{now}");
        }
    }
}
