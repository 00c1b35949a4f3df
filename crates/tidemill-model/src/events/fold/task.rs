//! The fold of a task.
//!
//! Only the newest run counts. In it a rank rules and not the newest event: pending, then processing, then the outcome,
//! which is that of the first terminal event. So a late heartbeat or a late `Task Pending` never moves a task back.

use std::borrow::Cow;

use serde::Deserialize;

use super::{BadHistory, in_order, read};
use crate::events::event::{Event, Position};
use crate::events::known_type::KnownType;
use crate::work::error_class::ErrorCategory;
use crate::work::head::{Fence, Outcome, PublicState};

/// What the events of a task say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoldedTask {
    /// The newest run, counted from 1.
    pub run: u32,
    pub state: PublicState,
    /// How the run ended; `None` while it goes on.
    pub outcome: Option<Outcome>,
    /// Whether it waits for somebody.
    pub parked: bool,
    /// Attempts of this run that ended and were reported.
    pub attempts: u32,
    /// The newest right to run the task that any event names.
    pub fence: Fence,
    /// The `Task Pending` that opened this run, if it is known.
    pub opened: Option<Position>,
    /// The event that ended this run.
    pub ended: Option<Position>,
}

/// What these events of one task say, or `None` when none of them is about its state: it was not dispatched.
pub fn fold_task<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Option<FoldedTask>, BadHistory> {
    let mut facts = Vec::new();
    for event in in_order(events) {
        facts.extend(Fact::of(event)?);
    }
    Ok(FoldedTask::of(&facts))
}

/// One event as far as it matters to a task's state.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fact {
    at: Position,
    /// Events of other senders do not say it: they are of the newest run that was open before them.
    run: Option<u32>,
    /// Which right to run the task the event was written with; not all are written by a worker.
    fence: Option<Fence>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Opened,
    Working,
    /// `number` counts the attempts that have ended; 0 when this one does not count.
    AttemptFailed {
        number: Option<u32>,
        parked: bool,
    },
    Ended {
        outcome: Outcome,
        /// Attempts made, where the event says so.
        attempts: Option<u32>,
    },
}

/// The properties that the fold reads. Events written by others may lack any of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Properties<'a> {
    run: Option<u32>,
    fence: Option<Fence>,
    attempt_number: Option<u32>,
    counted: Option<bool>,
    parked: Option<bool>,
    retry_count: Option<u32>,
    #[serde(borrow)]
    error_category: Option<Cow<'a, str>>,
}

impl Fact {
    /// What `event` says of its task; `None` for types that say nothing about its state.
    pub(super) fn of(event: &Event) -> Result<Option<Self>, BadHistory> {
        if event.entity.kind.as_str() != "TASK" {
            return Ok(None);
        }
        let Some(known) = KnownType::from_name(event.event_type.as_str()) else { return Ok(None) };
        let kind: fn(&Properties<'_>) -> Kind = match known {
            KnownType::TaskPending => |_| Kind::Opened,
            KnownType::TaskProcessingStarted | KnownType::TaskHeartbeat => |_| Kind::Working,
            KnownType::TaskProcessingFailed => |properties| Kind::AttemptFailed {
                number: match properties.counted {
                    Some(false) => Some(0),
                    // Other senders count deliveries, or nothing.
                    _ if properties.fence.is_none() => None,
                    _ => properties.attempt_number,
                },
                parked: properties.parked == Some(true),
            },
            KnownType::TaskCompleted => |_| Kind::Ended { outcome: Outcome::Completed, attempts: None },
            KnownType::TaskTimeout => |_| Kind::Ended { outcome: Outcome::TimedOut, attempts: None },
            KnownType::TaskFailed => |properties| {
                let cancelled =
                    properties.error_category.as_deref() == Some(ErrorCategory::Cancelled.as_str());
                let outcome = if cancelled { Outcome::Cancelled } else { Outcome::Failed };
                Kind::Ended { outcome, attempts: properties.retry_count }
            },
            KnownType::JobCreated
            | KnownType::JobTasksAdded
            | KnownType::JobTasksChanged
            | KnownType::JobCompleted
            | KnownType::JobFailureDetected
            | KnownType::JobCancelled
            | KnownType::TaskHealthCheck
            | KnownType::BudgetExceeded
            | KnownType::AlertRaised
            | KnownType::AlertCleared
            | KnownType::ExecutionResumed
            | KnownType::ExecutionFailed
            | KnownType::ExecutionExpired
            | KnownType::ErrorIgnored
            | KnownType::ErrorReopened => return Ok(None),
        };
        let properties: Properties<'_> = read(event, known)?;
        Ok(Some(Self {
            at: event.position(),
            // The engine leaves out the first.
            run: properties.run.or(properties.fence.map(|_| 1)),
            fence: properties.fence,
            kind: kind(&properties),
        }))
    }
}

impl FoldedTask {
    /// The fold of facts in order.
    pub(super) fn of(facts: &[Fact]) -> Option<Self> {
        let mut open = 1;
        let runs: Vec<u32> = facts
            .iter()
            .map(|fact| {
                let run = fact.run.unwrap_or(open);
                open = open.max(run);
                run
            })
            .collect();
        // An event of a run proves that the run was opened, even where its `Task Pending` has not arrived or is gone.
        let run = runs.iter().copied().max()?;
        let newest = facts.iter().zip(&runs).filter(|(_, of)| **of == run).map(|(fact, _)| fact);
        // No right is given out once a run has ended. So what was written with an older right than another event of
        // the run is no outcome: that worker had been replaced.
        let fence = newest.clone().filter_map(|fact| fact.fence).max();
        let mut view = Self {
            run,
            state: PublicState::Pending,
            outcome: None,
            parked: false,
            attempts: 0,
            fence: facts.iter().filter_map(|fact| fact.fence).max().unwrap_or_default(),
            opened: None,
            ended: None,
        };
        let mut taken_by = Fence::default();
        for fact in newest {
            // A failed attempt of an older right is a normal thing before the next claim and a stray one after it.
            let replaced = fact.fence.is_some_and(|own| own < taken_by);
            taken_by = taken_by.max(fact.fence.unwrap_or_default());
            match fact.kind {
                Kind::Opened => {
                    view.opened.get_or_insert(fact.at);
                }
                Kind::Working => view.begin(),
                Kind::AttemptFailed { number, parked } => {
                    view.begin();
                    if !replaced && view.outcome.is_none() {
                        view.parked |= parked;
                        view.attempts = view.attempts.max(number.unwrap_or(view.attempts + 1));
                    }
                }
                Kind::Ended { outcome, attempts } => {
                    if view.outcome.is_none() && (fact.fence.is_none() || fact.fence == fence) {
                        view.end(fact.at, outcome, attempts);
                    }
                }
            }
        }
        Some(view)
    }

    fn begin(&mut self) {
        self.state = self.state.max(PublicState::Processing);
    }

    fn end(&mut self, at: Position, outcome: Outcome, attempts: Option<u32>) {
        self.state = if outcome == Outcome::Completed { PublicState::Completed } else { PublicState::Failed };
        self.outcome = Some(outcome);
        self.ended = Some(at);
        // The attempt that was parked has been counted; what ends the wait is none.
        let parked = std::mem::take(&mut self.parked);
        self.attempts = match outcome {
            Outcome::Completed | Outcome::TimedOut if parked => self.attempts,
            Outcome::Completed | Outcome::TimedOut => self.attempts + 1,
            Outcome::Failed => attempts.unwrap_or(self.attempts + 1),
            Outcome::Cancelled => attempts.unwrap_or(self.attempts),
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sample;

    const PENDING: (&str, &str) = ("Task Pending", "{}");

    /// The events of one task, a millisecond apart.
    fn history(events: &[(&str, &str)]) -> Vec<Event> {
        (1..)
            .zip(events)
            .map(|(number, (event_type, properties))| {
                sample::task_event("req-1", number, event_type, properties)
            })
            .collect()
    }

    fn fold(events: &[Event]) -> FoldedTask {
        fold_task(events).unwrap().unwrap()
    }

    #[test]
    fn a_parked_task_is_told_by_its_last_failed_attempt() {
        use PublicState::{Completed, Failed, Pending, Processing};
        let started = ("Task Processing Started", r#"{"fence":1}"#);
        let again = ("Task Processing Failed", r#"{"attemptNumber":1,"fence":1}"#);
        let parked = ("Task Processing Failed", r#"{"attemptNumber":2,"fence":1,"parked":true}"#);
        let given_up =
            ("Task Processing Failed", r#"{"attemptNumber":1,"counted":false,"fence":2,"parked":true}"#);
        let resumed = ("Task Completed", r#"{"fence":2,"source":"resume"}"#);
        let failed = ("Task Failed", r#"{"retryCount":2,"errorCategory":"auth","source":"api","fence":2}"#);
        let late = ("Task Completed", r#"{"fence":1}"#);
        for (events, (is_parked, state, attempts)) in [
            (vec![PENDING, started, again], (false, Processing, 1)),
            (vec![PENDING, started, parked], (true, Processing, 2)),
            (vec![PENDING, started, again, given_up], (true, Processing, 1)),
            (vec![PENDING, started, parked, ("Task Heartbeat", r#"{"fence":1}"#)], (true, Processing, 2)),
            (vec![PENDING, started, parked, ("WorkflowEvent", "{}")], (true, Processing, 2)),
            (vec![PENDING, started, parked, resumed], (false, Completed, 2)),
            (vec![PENDING, started, parked, failed], (false, Failed, 2)),
            (vec![PENDING, started, parked, resumed, parked], (false, Completed, 2)),
            (vec![PENDING, started, given_up, late], (true, Processing, 0)),
            (vec![PENDING, started, parked, ("Task Pending", r#"{"run":2}"#)], (false, Pending, 0)),
        ] {
            let view = fold(&history(&events));
            assert_eq!((view.parked, view.state, view.attempts), (is_parked, state, attempts), "{events:?}");
        }
    }

    #[test]
    fn every_event_type_has_its_state() {
        use PublicState::{Completed, Failed, Pending, Processing};
        for (event_type, expected) in [
            ("Task Pending", Some(Pending)),
            ("Task Processing Started", Some(Processing)),
            ("Task Processing Failed", Some(Processing)),
            ("Task Heartbeat", Some(Processing)),
            ("Task Completed", Some(Completed)),
            ("Task Failed", Some(Failed)),
            ("Task Timeout", Some(Failed)),
            ("Task Health Check", None),
            ("Job Created", None),
            ("user.created", None),
        ] {
            let view = fold_task(&history(&[(event_type, "{}")])).unwrap();
            assert_eq!(view.map(|view| view.state), expected, "{event_type}");
        }
        let mut event = sample::task_event("req-1", 1, "Task Completed", "{}");
        event.entity.kind = crate::values::id::EntityType::trusted("STORE");
        assert_eq!(fold_task([&event]), Ok(None));
    }

    #[test]
    fn a_rank_rules_and_not_the_newest_event() {
        use PublicState::{Completed, Failed, Pending, Processing};
        let started = ("Task Processing Started", r#"{"fence":1}"#);
        let taken_over = ("Task Processing Started", r#"{"fence":2}"#);
        let beat = ("Task Heartbeat", r#"{"fence":1}"#);
        let again = ("Task Processing Failed", r#"{"attemptNumber":1,"fence":1}"#);
        let done = ("Task Completed", r#"{"fence":1}"#);
        let done_by_second = ("Task Completed", r#"{"fence":2}"#);
        let failed = ("Task Failed", r#"{"retryCount":1,"errorCategory":"auth","fence":1}"#);
        let exhausted = ("Task Failed", r#"{"retryCount":3,"errorCategory":"network","source":"dlq"}"#);
        let cancelled = ("Task Failed", r#"{"retryCount":0,"errorCategory":"cancelled","source":"api"}"#);
        let timed_out = ("Task Timeout", r#"{"fence":1}"#);
        let resumed = ("Task Pending", r#"{"run":2}"#);
        let restarted = ("Task Processing Started", r#"{"run":2,"fence":2}"#);
        for (events, (run, state, outcome, attempts, ended)) in [
            (vec![PENDING], (1, Pending, None, 0, None)),
            (vec![PENDING, started, beat], (1, Processing, None, 0, None)),
            (vec![PENDING, started, again], (1, Processing, None, 1, None)),
            (vec![PENDING, started, done], (1, Completed, Some(Outcome::Completed), 1, Some(3))),
            (
                vec![PENDING, started, again, taken_over, done_by_second],
                (1, Completed, Some(Outcome::Completed), 2, Some(5)),
            ),
            // Late heartbeats and a late `Task Pending` do not move it back.
            (vec![started, done, beat, PENDING], (1, Completed, Some(Outcome::Completed), 1, Some(2))),
            (vec![started, PENDING], (1, Processing, None, 0, None)),
            // The first outcome stands.
            (vec![PENDING, started, failed, done], (1, Failed, Some(Outcome::Failed), 1, Some(3))),
            (vec![PENDING, started, timed_out, done], (1, Failed, Some(Outcome::TimedOut), 1, Some(3))),
            (vec![PENDING, exhausted], (1, Failed, Some(Outcome::Failed), 3, Some(2))),
            (vec![PENDING, cancelled, done], (1, Failed, Some(Outcome::Cancelled), 0, Some(2))),
            // A worker that was replaced writes no outcome and no attempt.
            (vec![PENDING, started, taken_over, done], (1, Processing, None, 0, None)),
            (vec![PENDING, started, taken_over, again], (1, Processing, None, 0, None)),
            (vec![PENDING, started, done, taken_over], (1, Processing, None, 0, None)),
            (
                vec![PENDING, started, taken_over, failed, done_by_second],
                (1, Completed, Some(Outcome::Completed), 1, Some(5)),
            ),
            // A resume opens a new run, and what the old one still says is history.
            (vec![PENDING, started, failed, resumed], (2, Pending, None, 0, None)),
            (vec![PENDING, started, failed, resumed, done, beat], (2, Pending, None, 0, None)),
            (vec![PENDING, started, failed, resumed, restarted], (2, Processing, None, 0, None)),
            (vec![PENDING, started, failed, restarted], (2, Processing, None, 0, None)),
            (vec![PENDING, ("user.created", "[]"), ("Task Sighed", "{}")], (1, Pending, None, 0, None)),
            // Other senders say neither run nor fence: their events are of the run that is open.
            (
                vec![PENDING, started, failed, resumed, ("Task Completed", "{}")],
                (2, Completed, Some(Outcome::Completed), 1, Some(5)),
            ),
            (
                vec![
                    PENDING,
                    ("Task Processing Failed", r#"{"attemptNumber":3}"#),
                    ("Task Processing Failed", r#"{"attemptNumber":3}"#),
                ],
                (1, Processing, None, 2, None),
            ),
        ] {
            let events = history(&events);
            let view = fold(&events);
            let ended = ended.map(|number: usize| events[number - 1].position());
            assert_eq!(
                (view.run, view.state, view.outcome, view.attempts, view.ended),
                (run, state, outcome, attempts, ended),
                "{events:#?}"
            );
        }
    }

    #[test]
    fn the_view_knows_the_newest_fence_and_who_opened_the_run() {
        let events = history(&[
            PENDING,
            ("Task Processing Started", r#"{"fence":7}"#),
            ("Task Failed", r#"{"retryCount":1,"fence":7}"#),
            ("Task Pending", r#"{"run":2}"#),
        ]);
        let view = fold(&events);
        assert_eq!(view.fence, Fence(7));
        assert_eq!(view.opened, Some(events[3].position()));
    }

    #[test]
    fn the_earliest_event_that_cannot_be_read_is_named() {
        let events =
            history(&[PENDING, ("Task Completed", r#"{"fence":"x"}"#), ("Task Failed", r#"{"run":-1}"#)]);
        let error = fold_task(events.iter().rev()).unwrap_err().to_string();
        assert!(error.starts_with(
            "the properties of event 00000000-0000-0000-0000-000000000002 (Task Completed) cannot be read: "
        ));
    }

    /// Any events of one task, sensible or not; some share a millisecond.
    fn events() -> impl Strategy<Value = Vec<Event>> {
        let kinds = proptest::sample::select(vec![
            "Task Pending",
            "Task Processing Started",
            "Task Processing Failed",
            "Task Heartbeat",
            "Task Completed",
            "Task Failed",
            "Task Timeout",
            "Task Sighed",
        ]);
        let numbers = (1..=3_u32, proptest::option::of(1..=3_u64), 1..=3_u32, 0..4_u64);
        proptest::collection::vec((kinds, numbers), 1..10).prop_map(|events| {
            let events = (0..).zip(events).map(|(id, (kind, (run, fence, number, time)))| {
                let properties = serde_json::json!({
                    "run": run, "fence": fence, "attemptNumber": number, "retryCount": number,
                });
                let mut event = sample::task_event("req-1", id, kind, &properties.to_string());
                event.timestamp = crate::values::time::Timestamp::MIN.plus(time);
                event
            });
            events.collect()
        })
    }

    proptest! {
        #[test]
        fn order_and_repeats_make_no_difference(
            (events, shuffled) in events().prop_flat_map(|events| {
                let twice: Vec<Event> = events.iter().chain(&events).cloned().collect();
                (Just(events), Just(twice).prop_shuffle())
            })
        ) {
            prop_assert_eq!(fold_task(&events), fold_task(&shuffled));
        }

        #[test]
        fn what_comes_late_in_a_run_never_moves_it_back(events in events()) {
            let Some(before) = fold_task(&events).unwrap() else { return Ok(()) };
            // A higher fence would be a takeover, and a lower one that of a worker already replaced.
            let Fence(fence) = fence_of_run(&events, before.run);
            for kind in ["Task Pending", "Task Heartbeat", "Task Sighed"] {
                for fence in 0..=fence {
                    let properties = format!(r#"{{"run":{},"fence":{fence}}}"#, before.run);
                    let mut later = events.clone();
                    later.push(sample::task_event("req-1", 1_000, kind, &properties));
                    let after = fold(&later);
                    prop_assert!(after.state >= before.state, "{kind}: {before:?} {after:?}");
                    prop_assert_eq!((after.outcome, after.ended), (before.outcome, before.ended));
                    prop_assert_eq!(after.attempts, before.attempts);
                }
            }
        }
    }

    fn fence_of_run(events: &[Event], run: u32) -> Fence {
        let facts = events.iter().filter_map(|event| Fact::of(event).unwrap());
        facts.filter(|fact| fact.run == Some(run)).filter_map(|fact| fact.fence).max().unwrap_or_default()
    }
}
