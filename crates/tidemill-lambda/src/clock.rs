//! The clock of a process that is frozen between invocations: the monotonic clock may stand still meanwhile, so the wall
//! clock is asked every time.

use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_engine::clock::Clock;
use tidemill_model::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct WallClock {
    /// The latest that was told; it never runs backwards.
    last: AtomicU64,
}

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else takes")]
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock of this machine is past 1970");
        let now = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Timestamp::clamped(self.last.fetch_max(now, Ordering::Relaxed).max(now))
    }
}
