//! The clock port: the only source of time.

use tidemill_model::Timestamp;

/// What lies further ahead than this, in milliseconds, was written by a clock that has been set back since. Events of one
/// task are stamped a millisecond apart, so a busy one runs ahead a little by itself.
pub const AHEAD_MILLIS_MAX: u64 = 60_000;

/// Tells the time. Backends ask it once per decision; nothing below them does.
pub trait Clock: Send + Sync + 'static {
    /// Now. It may stand still but never runs backwards within one process.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// The machine's clock, anchored when it is made: later steps of the wall clock neither expire leases nor reorder
/// events.
#[derive(Debug)]
pub struct SystemClock {
    started: std::time::Instant,
    epoch_millis_at_start: u64,
}

impl SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everyone else takes")]
    pub fn start() -> Self {
        let since_epoch = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("the clock of this machine is past 1970");
        let epoch_millis_at_start = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        Self { started: std::time::Instant::now(), epoch_millis_at_start }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::clamped(self.epoch_millis_at_start.saturating_add(elapsed))
    }
}
