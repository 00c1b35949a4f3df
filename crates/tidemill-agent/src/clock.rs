//! The time, as this process sees it: read once, then counted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A clock that no step of the wall clock moves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    began: Instant,
    began_millis: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place where this process reads the clock")]
        let now = SystemTime::now();
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_millis: millis(since) }
    }

    /// Epoch milliseconds.
    pub(crate) fn now_millis(&self) -> u64 {
        self.began_millis.saturating_add(millis(self.began.elapsed()))
    }

    /// When a moment in epoch milliseconds comes.
    pub(crate) fn instant_of(&self, epoch_millis: u64) -> Instant {
        self.began + Duration::from_millis(epoch_millis.saturating_sub(self.began_millis))
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
