//! What the watchers of a running attempt know of it, and the lease that is kept meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_engine::warn_seldom;
use tidemill_model::events::properties::Activity;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::moment::Moment;
use crate::source::{HeldTask, Pulse, SourceError, TaskSource};
use crate::spawner::ChildHandle;

/// A child that ends sooner has its beginning recorded with its end.
const BEGIN_DELAY: Duration = Duration::from_millis(20);
/// After this many failed extensions in a row no more are tried.
const FAILURES_MAX: u32 = 3;
/// A call is given at least this long, if the interval is no shorter.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// However short a lease is, it is not extended more often.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// How long a store in this process may take to say whether a lease that seems to be over still is one.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// The least time before the end of a lease that is left for killing the child.
const MARGIN_MIN: Duration = Duration::from_secs(1);
/// How long a heartbeat waits for the spawner to measure the child, and which part of its own patience at most.
const MEASURE_WAIT: Duration = Duration::from_millis(300);
const MEASURE_PART: u32 = 3;
/// How long a spawner may take to confirm the end of a lease, and which part of the margin at most.
const HEARD_WAIT: Duration = Duration::from_secs(1);
const HEARD_PART: u32 = 2;

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
    /// Rings when the lease ran out, and when it is held again.
    lapsed: Notify,
    /// Rings when the attempt has an outcome and wants its lease back for it.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    child: Option<(u32, ChildHandle, Instant)>,
    begin: Begin,
    activity: Option<Activity>,
    /// How long the lease lasts that was granted last.
    lease: Duration,
    /// Until when nobody else can hold the task, with a margin.
    held_until: Option<Moment>,
    /// That is over: somebody else may hold the task by now.
    is_lapsed: bool,
    /// The process that the last answered heartbeat named.
    told: Option<u32>,
    /// The memory of the child when it was measured last.
    rss: u64,
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
    /// Of an attempt whose lease was granted with the claim.
    pub(crate) fn of(claim: &HeldTask) -> Self {
        let held_until = Some(claim.asked_at.plus(held_part(claim.lease)));
        let state = State { held_until, lease: claim.lease, ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// How long the lease lasts that was granted last.
    pub(crate) fn lease(&self) -> Duration {
        self.lock().lease
    }

    /// Notes the child. The beginning of one that `has_ended` already is recorded with its end, so nobody has to wake for
    /// it.
    pub(crate) fn started(&self, pid: u32, handle: ChildHandle, has_ended: bool) {
        let mut state = self.lock();
        if let Some(until) = state.held_until {
            // It may have been renewed while the child was started.
            handle.extend(until);
        }
        state.child = Some((pid, handle, Instant::now()));
        drop(state);
        if !has_ended {
            self.changed.notify_one();
        }
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

    /// Until when a child of this attempt may run, unless that is put off.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.lock().held_until
    }

    /// Returns when the lease ran out. `keep_lease` must be polled meanwhile.
    pub(crate) async fn lapsed(&self) {
        while !self.lock().is_lapsed {
            self.lapsed.notified().await;
        }
    }

    /// Asks for the lease of an attempt that has an outcome until it is there again. `keep_lease` must be polled meanwhile: it
    /// ends when somebody else has the task.
    pub(crate) async fn regained(&self) {
        if self.lock().is_lapsed {
            self.wanted.notify_one();
        }
        while self.lock().is_lapsed {
            self.lapsed.notified().await;
        }
    }

    /// Whether a heartbeat named this process. That heartbeat also said that the process began.
    pub(crate) fn has_reported(&self, pid: u32) -> bool {
        self.lock().told == Some(pid)
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

    /// How it stands with the child. Its memory is as it was when the spawner said it last: one that hangs must not cost a
    /// worker that is well its lease.
    async fn pulse(&self, patience: Duration) -> Pulse {
        let (child, activity) = {
            let state = self.lock();
            let child = state.child.as_ref().map(|(pid, handle, _)| (*pid, handle.clone()));
            (child, state.activity.clone())
        };
        let (pid, rss) = match child {
            Some((pid, handle)) => {
                let wait = MEASURE_WAIT.min(patience / MEASURE_PART);
                let measured = tokio::time::timeout(wait, handle.rss()).await;
                let mut state = self.lock();
                state.rss = measured.unwrap_or(state.rss);
                (pid, state.rss)
            }
            None => (std::process::id(), 0),
        };
        Pulse { pid, rss, last_activity: activity }
    }

    /// Says that the child began, and extends the lease at every interval, or sooner if the lease is short for it, until
    /// somebody else has the task or it was cancelled.
    ///
    /// The end of the lease is watched beside the calls: a source that does not answer extends nothing. `lapsed`
    /// reports it; an attempt that has an outcome by then may still ask for the lease.
    pub(crate) async fn keep_lease<S: TaskSource>(
        &self,
        source: &S,
        claim: &HeldTask,
        interval: Duration,
    ) -> Stop {
        tokio::select! {
            biased;
            // First of all: nothing may be done under a lease that is over.
            stop = self.watch_end(source, claim) => stop,
            stop = self.extend(source, claim, interval) => stop,
            () = self.say_begin(source, claim) => Stop::Lost,
        }
    }

    /// Notes when the lease was not extended in time. Returns when it is known to be lost.
    async fn watch_end<S: TaskSource>(&self, source: &S, claim: &HeldTask) -> Stop {
        loop {
            let held_until = self.lock().held_until;
            let Some(at) = held_until else { return Stop::Lost };
            at.wait().await;
            if self.lock().held_until != held_until {
                continue;
            }
            if source.is_in_this_process() {
                // This process stood still, or its store cannot write; either way nobody has the task but by this source.
                let asked_at = Moment::now();
                let pulse = self.pulse(LAST_PATIENCE).await;
                let pid = pulse.pid;
                match in_time(LAST_PATIENCE, source.heartbeat(claim, pulse)).await {
                    Ok(beat) if beat.cancel => return Stop::Cancelled,
                    Ok(beat) => {
                        self.renewed(asked_at, beat.lease, pid);
                        continue;
                    }
                    Err(SourceError::Lost) => return Stop::Lost,
                    Err(error @ (SourceError::Unavailable(_) | SourceError::Refused(_))) => {
                        warn_seldom!(error, request = %claim.task.request, "the last heartbeat was not taken");
                    }
                }
            }
            self.lock().is_lapsed = true;
            self.lapsed.notify_waiters();
            while self.lock().is_lapsed {
                self.lapsed.notified().await;
            }
        }
    }

    /// The lease was asked for then and granted for so long, and the source knows of this process.
    fn renewed(&self, asked_at: Moment, lease: Duration, pid: u32) {
        let until = asked_at.plus(held_part(lease));
        let mut state = self.lock();
        state.lease = lease;
        // A shorter lease takes nothing back of what was granted before.
        if state.held_until.is_none_or(|before| before < until) {
            state.held_until = Some(until);
        }
        state.told = Some(pid);
        if let Some((_, handle, _)) = &state.child {
            handle.extend(until);
        }
        if std::mem::take(&mut state.is_lapsed) {
            drop(state);
            self.lapsed.notify_waiters();
        }
    }

    /// Says that the child began, beside the heartbeats: neither waits for the other. Returns when the lease is lost.
    async fn say_begin<S: TaskSource>(&self, source: &S, claim: &HeldTask) {
        loop {
            let Some((at, pid)) = self.begin_at() else {
                self.changed.notified().await;
                continue;
            };
            tokio::time::sleep_until(at).await;
            if self.begin(source, claim, pid).await == Err(SourceError::Lost) {
                return;
            }
        }
    }

    /// Extends the lease at every interval.
    async fn extend<S: TaskSource>(&self, source: &S, claim: &HeldTask, own: Duration) -> Stop {
        let now = Moment::now();
        let (interval, held) = (beat_every(own, claim.lease), held_part(claim.lease));
        let mut beat_at = Instant::now() + first_beat(claim.asked_at, now, interval, held).since(now);
        let mut failures = 0;
        loop {
            tokio::time::sleep_until(beat_at).await;
            // A call that fails or hangs must leave time for the next one.
            let interval = beat_every(own, self.lease());
            let patience = (interval / 2).max(PATIENCE_MIN).min(interval);
            let (asked_at, began) = (Moment::now(), Instant::now());
            let beat = async {
                let pulse = self.pulse(patience).await;
                let pid = pulse.pid;
                source.heartbeat(claim, pulse).await.map(|beat| (beat, pid))
            };
            match in_time(patience, beat).await {
                Ok((beat, _)) if beat.cancel => return Stop::Cancelled,
                Ok((beat, pid)) => {
                    failures = 0;
                    beat_at = began + beat_every(own, beat.lease);
                    // The source counts from when it got the call, which was later.
                    self.renewed(asked_at, beat.lease, pid);
                }
                Err(SourceError::Lost) => return Stop::Lost,
                Err(error @ (SourceError::Unavailable(_) | SourceError::Refused(_))) => {
                    warn_seldom!(error, request = %claim.task.request, "a heartbeat was not taken; it is tried again");
                    failures += 1;
                    beat_at = began + patience;
                }
            }
            if failures == FAILURES_MAX {
                // While the lease lasts, nobody else runs the task and it may still end by itself. An attempt that
                // has an outcome then wants the lease for it.
                self.wanted.notified().await;
                beat_at = Instant::now();
            }
        }
    }

    async fn begin<S: TaskSource>(&self, source: &S, claim: &HeldTask, pid: u32) -> Result<(), SourceError> {
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

/// How often a lease is extended: as often as the worker is set to, if that is less than half of the lease, so that one
/// heartbeat may be lost; else three times in a lease.
pub(crate) fn beat_every(own: Duration, lease: Duration) -> Duration {
    if own.saturating_mul(2) < lease { own } else { (lease / 3).max(INTERVAL_MIN) }
}

/// How long after it was asked for a lease is relied on. The rest is for killing the child before somebody else begins.
pub(crate) fn held_part(lease: Duration) -> Duration {
    lease.saturating_sub((lease / 10).max(MARGIN_MIN).min(lease / 3))
}

/// How long after the end of the part that is relied on a spawner may take to confirm it. The rest of the margin is
/// for killing one that hangs.
pub(crate) fn acknowledged_within(lease: Duration) -> Duration {
    HEARD_WAIT.min(lease.saturating_sub(held_part(lease)) / HEARD_PART)
}

/// When a lease that was asked for then is extended for the first time.
///
/// An answer may have been long under way, and counts for little then. Still the child gets a moment to begin: a
/// heartbeat reports that.
fn first_beat(asked_at: Moment, now: Moment, interval: Duration, held: Duration) -> Moment {
    let left = asked_at.plus(held).since(now);
    asked_at.plus(interval).max(now.plus((interval / 4).min(left / 2)))
}

/// What a source answers, or that it did not.
async fn in_time<T>(
    patience: Duration,
    asked: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    tokio::time::timeout(patience, asked)
        .await
        .unwrap_or_else(|_| Err(SourceError::Unavailable("no answer came in time".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_was_long_under_way_is_extended_soon() {
        let (asked_at, interval) = (Moment::now(), Duration::from_secs(20));
        let held = held_part(Duration::from_secs(45));
        for (taken, expected) in [
            (0, 20_000),
            (5_000, 20_000),
            (20_000, 25_000),
            (30_000, 35_000),
            (38_000, 39_250),
            (50_000, 50_000),
        ] {
            let now = asked_at.plus(Duration::from_millis(taken));
            let beat = first_beat(asked_at, now, interval, held);
            assert_eq!(beat.since(asked_at), Duration::from_millis(expected), "{taken}");
        }
    }

    #[test]
    fn heartbeats_follow_the_lease_that_was_granted() {
        for (own, lease, expected) in [
            (20_000, 45_000, 20_000),
            (20_000, 40_000, 13_333),
            (20_000, 9_000, 3_000),
            (3_000, 9_000, 3_000),
            (300, 45_000, 300),
            (20_000, 0, 100),
        ] {
            let every = beat_every(Duration::from_millis(own), Duration::from_millis(lease));
            assert_eq!(every.as_millis(), expected, "{own} {lease}");
        }
    }

    #[test]
    fn a_lease_is_relied_on_with_a_margin() {
        for (lease, held) in [(45_000, 40_500), (10_000, 9_000), (6_000, 5_000), (1_500, 1_000), (0, 0)] {
            assert_eq!(held_part(Duration::from_millis(lease)), Duration::from_millis(held), "{lease}");
        }
        for (lease, heard) in [(45_000, 1_000), (6_000, 500), (1_500, 250), (0, 0)] {
            assert_eq!(
                acknowledged_within(Duration::from_millis(lease)),
                Duration::from_millis(heard),
                "{lease}"
            );
        }
    }
}
