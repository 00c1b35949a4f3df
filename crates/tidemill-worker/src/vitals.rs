//! What is known of a running attempt by those who watch over it, and the lease that is kept meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_model::properties::Activity;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::source::{Claim, Pulse, SourceError, TaskSource};
use crate::spawner::ChildHandle;

/// A child that ends sooner has its beginning recorded with its end.
const BEGIN_DELAY: Duration = Duration::from_millis(20);
/// After so many failed extensions in a row no more are tried.
const FAILURES_MAX: u32 = 3;

/// Why an attempt must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Somebody else may run the task now.
    Lost,
    /// It was cancelled.
    Cancelled,
}

#[derive(Debug, Default)]
pub(crate) struct Vitals {
    state: Mutex<State>,
    /// Rings when the child started, and when its beginning was recorded or not.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    child: Option<(u32, ChildHandle, Instant)>,
    begin: Begin,
    activity: Option<Activity>,
}

/// Whether the beginning of the child is recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Begin {
    #[default]
    Unsaid,
    /// Under way: whether it gets there is not known yet.
    Saying,
    Said,
    /// Left to the end of the attempt.
    Left,
}

impl Vitals {
    pub(crate) fn started(&self, pid: u32, handle: ChildHandle) {
        self.lock().child = Some((pid, handle, Instant::now()));
        self.changed.notify_one();
    }

    pub(crate) fn active(&self, activity: Activity) {
        self.lock().activity = Some(activity);
    }

    /// Waits until no word of the beginning is under way, and tells the process id if it is still to be said.
    ///
    /// `keep_lease` must be polled meanwhile.
    pub(crate) async fn unsaid(&self) -> Option<u32> {
        loop {
            {
                let mut state = self.lock();
                if state.begin != Begin::Saying {
                    let is_said = std::mem::replace(&mut state.begin, Begin::Said) == Begin::Said;
                    return state.child.as_ref().filter(|_| !is_said).map(|(pid, ..)| *pid);
                }
            }
            self.changed.notified().await;
        }
    }

    /// When the beginning is to be said, if it is.
    fn begin_at(&self) -> Option<(Instant, u32)> {
        let state = self.lock();
        let (pid, _, started) = state.child.as_ref().filter(|_| state.begin == Begin::Unsaid)?;
        Some((*started + BEGIN_DELAY, *pid))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pulse(&self) -> Pulse {
        let (child, activity) = {
            let state = self.lock();
            let child = state.child.as_ref().map(|(pid, handle, _)| (*pid, handle.clone()));
            (child, state.activity.clone())
        };
        let (pid, rss) = match child {
            Some((pid, handle)) => (pid, handle.rss().await),
            None => (std::process::id(), 0),
        };
        Pulse { pid, rss, last_activity: activity }
    }

    /// Says that the child began, and extends the lease at every interval, until the attempt must stop.
    pub(crate) async fn keep_lease<S: TaskSource>(
        &self,
        source: &S,
        claim: &Claim,
        interval: Duration,
        lease: Duration,
    ) -> Stop {
        let mut beat_at = Instant::now() + interval;
        let mut lease_until = Instant::now() + lease;
        let mut failures = 0;
        loop {
            let begin_at = self.begin_at();
            let begin_due = begin_at.map_or(beat_at, |(at, _)| at);
            tokio::select! {
                () = tokio::time::sleep_until(begin_due), if begin_at.is_some() => {
                    let Some((_, pid)) = begin_at else { continue };
                    if self.begin(source, claim, pid).await == Err(SourceError::Lost) {
                        return Stop::Lost;
                    }
                }
                () = self.changed.notified() => {}
                () = tokio::time::sleep_until(beat_at) => {
                    let asked_at = Instant::now();
                    beat_at = asked_at + interval;
                    match source.heartbeat(claim, self.pulse().await).await {
                        Ok(beat) if beat.cancel => return Stop::Cancelled,
                        Ok(_) => {
                            failures = 0;
                            lease_until = asked_at + lease;
                        }
                        Err(SourceError::Lost) => return Stop::Lost,
                        Err(SourceError::Unavailable(_) | SourceError::Refused(_)) => failures += 1,
                    }
                    if failures == FAILURES_MAX {
                        // While the lease lasts, nobody else runs the task and it may still end by itself.
                        tokio::time::sleep_until(lease_until).await;
                        return Stop::Lost;
                    }
                }
            }
        }
    }

    async fn begin<S: TaskSource>(&self, source: &S, claim: &Claim, pid: u32) -> Result<(), SourceError> {
        {
            let mut state = self.lock();
            if state.begin != Begin::Unsaid {
                // The child ended meanwhile, and its end says it.
                return Ok(());
            }
            state.begin = Begin::Saying;
        }
        let begun = source.begin(claim, pid).await;
        self.lock().begin = if begun.is_ok() { Begin::Said } else { Begin::Left };
        self.changed.notify_one();
        begun
    }
}
