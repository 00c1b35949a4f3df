//! Moments by a clock of this machine that nobody can set and that goes on while the machine sleeps.
//!
//! Leases end by it: the server counts on while this process is stopped or its machine is suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// How often a waiter for a moment looks at the clock: timers stand still while the machine sleeps.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A moment, as the time since this machine started. The same in all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Self(Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0)))
    }

    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }

    #[must_use]
    pub fn minus(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }

    /// How long after `earlier` this is; nothing if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    pub fn is_over(self) -> bool {
        self <= Self::now()
    }

    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits for it. A sleep of the machine delays that by a few seconds.
    pub(crate) async fn wait(self) {
        loop {
            let left = self.since(Self::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK_EVERY)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_in_order_and_survive_their_way_to_another_process() {
        let now = Moment::now();
        let later = now.plus(Duration::from_secs(5));
        assert_eq!(later.since(now), Duration::from_secs(5));
        assert_eq!((now.since(later), later.minus(Duration::from_secs(5))), (Duration::ZERO, now));
        assert!(now.is_over() && !now.plus(Duration::from_secs(3_600)).is_over());
        assert_eq!(postcard::from_bytes(&postcard::to_stdvec(&later).unwrap()), Ok(later));
    }
}
