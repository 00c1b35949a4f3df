//! All tasks by state: four sets that never overlap and leave no task out.

use std::collections::{BTreeMap, BTreeSet};

use super::task::{Fact, FoldedTask};
use super::{BadHistory, in_order};
use crate::events::event::Event;
use crate::values::id::{RequestId, TenantId};
use crate::work::head::PublicState;

/// Every task that events are about, by tenant and request id, in the set of its state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateSets {
    pub pending: BTreeSet<(TenantId, RequestId)>,
    pub processing: BTreeSet<(TenantId, RequestId)>,
    pub completed: BTreeSet<(TenantId, RequestId)>,
    pub failed: BTreeSet<(TenantId, RequestId)>,
}

impl StateSets {
    /// Folds each task by itself. Sets made from event types alone would overlap and lose tasks: a failed task was also
    /// started, and a resumed one has also failed.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, BadHistory> {
        let mut tasks: BTreeMap<(TenantId, RequestId), Vec<Fact>> = BTreeMap::new();
        for event in in_order(events) {
            if let Some(fact) = Fact::of(event)? {
                let key = (event.tenant.clone(), RequestId::trusted(event.entity.id.as_str()));
                tasks.entry(key).or_default().push(fact);
            }
        }
        let mut sets = Self::default();
        for (key, facts) in tasks {
            if let Some(view) = FoldedTask::of(&facts) {
                sets.of_state(view.state).insert(key);
            }
        }
        Ok(sets)
    }

    fn of_state(&mut self, state: PublicState) -> &mut BTreeSet<(TenantId, RequestId)> {
        match state {
            PublicState::Pending => &mut self.pending,
            PublicState::Processing => &mut self.processing,
            PublicState::Completed => &mut self.completed,
            PublicState::Failed => &mut self.failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::events::fold::fold_task;
    use crate::sample;

    fn key(task: &str) -> (TenantId, RequestId) {
        (sample::documented_event().tenant, RequestId::new(task).unwrap())
    }

    #[test]
    fn each_task_is_in_the_set_of_its_state() {
        let script = [
            ("waiting", "Task Pending", "{}"),
            ("busy", "Task Pending", "{}"),
            ("busy", "Task Processing Started", "{}"),
            ("retrying", "Task Processing Started", "{}"),
            ("retrying", "Task Processing Failed", "{}"),
            ("done", "Task Processing Started", "{}"),
            ("done", "Task Completed", "{}"),
            ("failed", "Task Processing Started", "{}"),
            ("failed", "Task Failed", "{}"),
            ("failed-unstarted", "Task Pending", "{}"),
            ("failed-unstarted", "Task Failed", "{}"),
            ("late", "Task Processing Started", "{}"),
            ("late", "Task Timeout", "{}"),
            ("resumed", "Task Failed", "{}"),
            ("resumed", "Task Pending", r#"{"run":2}"#),
            ("no-task-event", "user.created", "{}"),
        ];
        let events: Vec<Event> = (1..)
            .zip(script)
            .map(|(number, (task, event_type, properties))| {
                sample::task_event(task, number, event_type, properties)
            })
            .collect();
        let set = |names: &[&str]| names.iter().map(|name| key(name)).collect::<BTreeSet<_>>();
        let expected = StateSets {
            pending: set(&["waiting", "resumed"]),
            processing: set(&["busy", "retrying"]),
            completed: set(&["done"]),
            failed: set(&["failed", "failed-unstarted", "late"]),
        };
        assert_eq!(StateSets::of(&events), Ok(expected));
    }

    #[test]
    fn equal_ids_of_two_tenants_are_two_tasks() {
        let mine = sample::task_event("req-1", 1, "Task Pending", "{}");
        let mut theirs = sample::task_event("req-1", 2, "Task Completed", "{}");
        theirs.tenant = TenantId::new("another").unwrap();
        let sets = StateSets::of([&mine, &theirs]).unwrap();
        assert_eq!((sets.pending.len(), sets.completed.len()), (1, 1));
    }

    proptest! {
        #[test]
        fn the_four_sets_are_disjoint_and_complete(
            script in proptest::collection::vec((0..6_u8, 0..8_usize, 1..3_u32), 0..30),
        ) {
            let types = [
                "Task Pending",
                "Task Processing Started",
                "Task Processing Failed",
                "Task Heartbeat",
                "Task Completed",
                "Task Failed",
                "Task Timeout",
                "Task Sighed",
            ];
            let events: Vec<Event> = (1..).zip(script).map(|(number, (task, kind, run))| {
                sample::task_event(&format!("t{task}"), number, types[kind], &format!(r#"{{"run":{run}}}"#))
            }).collect();
            let sets = StateSets::of(&events).unwrap();
            let all = [&sets.pending, &sets.processing, &sets.completed, &sets.failed];

            let known = events.iter().filter(|event| event.event_type.as_str() != "Task Sighed");
            let known: BTreeSet<&str> = known.map(|event| event.entity.id.as_str()).collect();
            let union: BTreeSet<&str> = all.iter().flat_map(|set| set.iter()).map(|(_, task)| task.as_str()).collect();
            prop_assert_eq!(&union, &known);
            prop_assert_eq!(all.iter().map(|set| set.len()).sum::<usize>(), known.len());

            for (set, state) in all.iter().zip([
                PublicState::Pending,
                PublicState::Processing,
                PublicState::Completed,
                PublicState::Failed,
            ]) {
                for (_, task) in *set {
                    let own = events.iter().filter(|event| event.entity.id.as_str() == task.as_str());
                    prop_assert_eq!(fold_task(own).unwrap().map(|view| view.state), Some(state));
                }
            }
        }
    }
}
