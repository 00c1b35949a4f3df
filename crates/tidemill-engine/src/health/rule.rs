//! The rules: what is healthy, and what has stood for too long.

use std::cmp::Reverse;

use tidemill_model::events::properties::HealthLevel;
use tidemill_model::{RequestId, Timestamp, WorkerId};

use crate::health::facts::{Hold, LiveTask};

/// How long is too long, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthRules {
    /// A task that was silent for longer is suspicious, and after four times that it counts as stuck. If a worker got
    /// a longer lease, that lease counts instead.
    pub silence_millis: u64,
    /// An attempt that runs for longer is out of time.
    pub overtime_millis: u64,
    /// A task that waits for longer to be started.
    pub pending_millis: u64,
    /// An execution that is parked for longer.
    pub parked_millis: u64,
    /// A delivery that has not arrived for longer.
    pub outbound_millis: u64,
    /// Whether suspicious tasks are alarming too.
    pub alert_warnings: bool,
}

impl Default for HealthRules {
    fn default() -> Self {
        Self {
            silence_millis: 45_000,
            overtime_millis: 3_600_000,
            pending_millis: 15 * 60_000,
            parked_millis: 24 * 3_600_000,
            outbound_millis: 5 * 60_000,
            alert_warnings: false,
        }
    }
}

impl HealthRules {
    /// Whether such a task raises an alarm.
    pub fn alarms(&self, health: HealthLevel) -> bool {
        match health {
            HealthLevel::Critical | HealthLevel::Overtime => true,
            HealthLevel::Warning => self.alert_warnings,
            HealthLevel::Healthy => false,
        }
    }
}

/// The health of a task that has been running for `elapsed_millis`, last reported `silent_millis` ago and then got a
/// lease of `lease_millis`. The first rule that holds counts.
pub fn classify(
    elapsed_millis: u64,
    silent_millis: u64,
    lease_millis: u64,
    rules: &HealthRules,
) -> HealthLevel {
    let rules = &HealthRules { silence_millis: rules.silence_millis.max(lease_millis), ..*rules };
    if silent_millis > rules.silence_millis.saturating_mul(4) {
        HealthLevel::Critical
    } else if elapsed_millis > rules.overtime_millis {
        HealthLevel::Overtime
    } else if silent_millis > rules.silence_millis {
        HealthLevel::Warning
    } else {
        HealthLevel::Healthy
    }
}

/// A task that is processing, as it was found. The worst comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Judged {
    pub(crate) health: HealthLevel,
    pub(crate) silent_millis: Reverse<u64>,
    pub(crate) elapsed_millis: Reverse<u64>,
    pub(crate) request: RequestId,
    pub(crate) run: u32,
    pub(crate) attempt: u32,
    pub(crate) worker: Option<WorkerId>,
}

impl Judged {
    /// `None` for a task that has not begun, or that waits for somebody.
    pub(crate) fn of(task: &LiveTask, now: Timestamp, rules: &HealthRules) -> Option<Self> {
        if !task.begun {
            return None;
        }
        // A task is silent before it may be claimed again, or before the worker that claimed it had time to report.
        let (elapsed_millis, heard_at, until, worker) = match &task.hold {
            Hold::Parked => return None,
            Hold::Nobody { from } => (0, task.last_event_at.max(*from), None, None),
            Hold::Worker { worker, since, until } => {
                let worker = WorkerId::trusted(worker);
                (now.since(*since), task.last_event_at.max(*since), Some(until), Some(worker))
            }
        };
        let silent_millis = now.since(heard_at);
        // The checker may have other settings than the worker: the lease that the worker got says when to expect it.
        let lease_millis = until.map_or(0, |until| until.since(heard_at));
        Some(Self {
            health: classify(elapsed_millis, silent_millis, lease_millis, rules),
            silent_millis: Reverse(silent_millis),
            elapsed_millis: Reverse(elapsed_millis),
            request: task.request.clone(),
            run: task.run,
            attempt: task.attempt,
            worker,
        })
    }
}

impl LiveTask {
    /// How long it has been waiting for its start, if it is.
    pub(crate) fn pending_millis(&self, now: Timestamp) -> Option<u64> {
        let from = match &self.hold {
            Hold::Nobody { from } => self.last_event_at.max(*from),
            // Somebody took it and has not said that work began.
            Hold::Worker { .. } => self.last_event_at,
            Hold::Parked => return None,
        };
        (!self.begun).then(|| now.since(from))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::clamped(1_800_000_000_000 + seconds * 1_000)
    }

    fn held(since: u64, last_event: u64) -> LiveTask {
        LiveTask {
            request: RequestId::trusted("t-1"),
            run: 1,
            attempt: 1,
            begun: true,
            hold: Hold::Worker {
                worker: Arc::from("w-1"),
                since: at(since),
                until: at(since.max(last_event) + 45),
            },
            last_event_at: at(last_event),
        }
    }

    #[test]
    fn the_first_rule_that_holds_counts() {
        let rules = HealthRules::default();
        for (elapsed, silent, expected) in [
            (0, 0, HealthLevel::Healthy),
            (3_600_000, 45_000, HealthLevel::Healthy),
            (0, 45_001, HealthLevel::Warning),
            (3_600_001, 0, HealthLevel::Overtime),
            (3_600_001, 45_001, HealthLevel::Overtime),
            (0, 180_000, HealthLevel::Warning),
            (0, 180_001, HealthLevel::Critical),
            (3_600_001, 180_001, HealthLevel::Critical),
            (u64::MAX, u64::MAX, HealthLevel::Critical),
        ] {
            assert_eq!(classify(elapsed, silent, 45_000, &rules), expected, "{elapsed} {silent}");
        }
        let hasty = HealthRules { silence_millis: 10, overtime_millis: 100, ..rules };
        for (elapsed, silent, expected) in [
            (100, 10, HealthLevel::Healthy),
            (101, 10, HealthLevel::Overtime),
            (100, 11, HealthLevel::Warning),
            (100, 41, HealthLevel::Critical),
        ] {
            assert_eq!(classify(elapsed, silent, 0, &hasty), expected, "{elapsed} {silent}, hasty");
        }
    }

    #[test]
    fn silence_begins_where_something_could_have_been_heard() {
        let rules = HealthRules::default();
        let of = |task: &LiveTask| Judged::of(task, at(1_000), &rules);
        let leased = |since, seconds| LiveTask {
            hold: Hold::Worker { worker: Arc::from("w-1"), since: at(since), until: at(since + seconds) },
            ..held(since, since)
        };
        let waiting = |from| LiveTask { hold: Hold::Nobody { from: at(from) }, ..held(0, 100) };
        for (what, task, expected) in [
            ("heard of a moment ago", held(500, 990), (HealthLevel::Healthy, 500_000, 10_000)),
            ("long not heard of", held(500, 700), (HealthLevel::Critical, 500_000, 300_000)),
            ("taken a moment ago, after a long pause", held(999, 100), (HealthLevel::Healthy, 1_000, 1_000)),
            ("to be tried again later", waiting(1_300), (HealthLevel::Healthy, 0, 0)),
            ("to be tried again since a minute", waiting(940), (HealthLevel::Warning, 0, 60_000)),
            ("to be tried again since long", waiting(500), (HealthLevel::Critical, 0, 500_000)),
            ("stamped ahead of the clock", held(999, 1_200), (HealthLevel::Healthy, 1_000, 0)),
            (
                "given ten minutes, of which half are over",
                leased(700, 600),
                (HealthLevel::Healthy, 300_000, 300_000),
            ),
            (
                "given ten minutes, and silent since",
                leased(300, 600),
                (HealthLevel::Warning, 700_000, 700_000),
            ),
        ] {
            let judged = of(&task).unwrap();
            assert_eq!((judged.health, judged.elapsed_millis.0, judged.silent_millis.0), expected, "{what}");
        }
        assert_eq!(of(&LiveTask { hold: Hold::Parked, ..held(0, 0) }), None);
        assert_eq!(of(&LiveTask { begun: false, ..held(0, 0) }), None);
    }

    #[test]
    fn a_task_waits_for_its_start_from_the_moment_it_may() {
        let pending = |hold| LiveTask { hold, begun: false, ..held(0, 100) };
        let worker = Hold::Worker { worker: Arc::from("w-1"), since: at(990), until: at(1_035) };
        for (what, task, expected) in [
            ("queued", pending(Hold::Nobody { from: at(100) }), Some(900_000)),
            ("sent with a delay", pending(Hold::Nobody { from: at(1_500) }), Some(0)),
            ("taken, and silent", pending(worker), Some(900_000)),
            ("running", held(100, 100), None),
            ("parked", pending(Hold::Parked), None),
        ] {
            assert_eq!(task.pending_millis(at(1_000)), expected, "{what}");
        }
    }

    #[test]
    fn the_worst_comes_first() {
        let rules = HealthRules::default();
        let named = |name: &str, task: LiveTask| LiveTask { request: RequestId::trusted(name), ..task };
        let tasks = [
            named("fine", held(900, 990)),
            named("late", held(600, 940)),
            named("stuck", held(500, 700)),
            named("more-stuck", held(500, 600)),
            named("also-fine", held(900, 990)),
        ];
        let mut judged: Vec<_> =
            tasks.iter().filter_map(|task| Judged::of(task, at(1_000), &rules)).collect();
        judged.sort();
        let order: Vec<_> = judged.iter().map(|judged| judged.request.as_str()).collect();
        assert_eq!(order, ["more-stuck", "stuck", "late", "also-fine", "fine"]);
    }
}
