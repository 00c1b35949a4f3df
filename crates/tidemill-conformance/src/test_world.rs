//! The world a case runs in: a fresh backend and the means to move it through time.

use std::sync::Arc;

use super::ManualClock;
use tidemill_engine::backend::Backend;
use tidemill_engine::outbound::JobFailedAlerts;
use tidemill_engine::policy::{AlertTargets, Policy};

/// The names of jobs whose failure raises an alert for people.
pub(super) const WATCHED: &str = "watched-*";
/// How long such a failure waits for others, in milliseconds.
pub(super) const GATHER_MILLIS: u64 = 5_000;

/// The policy of every world: that of every store, with alerts for some failed jobs.
pub fn policy() -> Policy {
    Policy {
        alerts: AlertTargets { people: true, webhook: false },
        job_failed: Some(Arc::new(JobFailedAlerts::parse(WATCHED, GATHER_MILLIS))),
        ..Policy::default()
    }
}

/// A backend under test. It must be empty, go by the clock it was made with and follow [`policy`].
pub trait TestWorld: Sized + Send + Sync + 'static {
    type Backend: Backend;

    /// Whether `reopen` gives a world.
    const REOPENS: bool = false;

    /// Whether each question costs milliseconds, as it does over a network: cases that ask thousands of them then ask fewer of
    /// each kind.
    const IS_DISTANT: bool = false;

    fn backend(&self) -> Arc<Self::Backend>;

    /// The clock has moved. A backend that sleeps until a moment of its own must look at the clock again.
    fn time_passed(&self) {}

    /// Waits until acknowledged events can be found. Cases call it before they look; decisions must not need it. Only
    /// a backend that gets its events late has something to wait for.
    fn settled(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The backend as it is after the process died and came back: what was acknowledged, and nothing in memory. `None`
    /// for backends that cannot; the cases of durability are then empty.
    ///
    /// All handles to the old backend are gone when this is called.
    fn reopen(self, clock: ManualClock) -> impl Future<Output = Option<Self>> + Send {
        async move {
            let _ = (self, clock);
            None
        }
    }
}
