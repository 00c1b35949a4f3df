//! The states of a job's tasks as an event lists them: whole for small jobs, the interesting part of large ones.

use tidemill_model::PublicState;
use tidemill_model::events::properties::{TASK_STATUSES_MAX, TaskStatuses};

use crate::kernel::policy::Policy;
use crate::kernel::state::job::Job;

/// The states with one task moved to the state it is about to have. The cost is bounded whatever the job's size.
pub(crate) fn of(job: &Job, moved: (u32, PublicState), policy: &Policy) -> TaskStatuses {
    let (moved_index, moved_state) = moved;
    let state = |index: u32| {
        if index == moved_index { Some(moved_state) } else { job.node(index).entry.public_state() }
    };
    let mut list = TaskStatuses::default();
    let mut room = policy.statuses_bytes_max;
    let mut fits = |list: &mut TaskStatuses, index: u32| {
        let task = &job.node(index).spec.task_id;
        let size = task.as_str().len() + 16;
        if list.task_statuses.len() == TASK_STATUSES_MAX || room < size {
            return false;
        }
        room -= size;
        list.task_statuses.insert(task.clone(), state(index));
        true
    };
    let total = u32::try_from(job.nodes.len()).unwrap_or(u32::MAX);
    let whole = job.nodes.len() <= TASK_STATUSES_MAX && (0..total).all(|index| fits(&mut list, index));
    if whole {
        return list;
    }
    list.task_statuses.clear();
    let mut room = policy.statuses_bytes_max;
    let interesting = std::iter::once(moved_index)
        .filter(|_| moved_state == PublicState::Failed)
        .chain(job.failed.iter().copied())
        .chain(job.processing.iter().copied())
        .filter(|index| *index != moved_index || moved_state == PublicState::Failed);
    for index in interesting {
        let task = &job.node(index).spec.task_id;
        let size = task.as_str().len() + 16;
        if list.task_statuses.len() == TASK_STATUSES_MAX || room < size {
            break;
        }
        room -= size;
        list.task_statuses.insert(task.clone(), state(index));
    }
    let mut counts = job.head.counts;
    *counts.of(job.node(moved_index).entry.public_state()) -= 1;
    *counts.of(Some(moved_state)) += 1;
    // Both reported states end a wait.
    counts.parked -= u32::from(job.parked.contains(&moved_index));
    list.counts = Some(counts);
    list.truncated = true;
    list
}

#[cfg(test)]
mod tests {
    use tidemill_model::{ErrorCategory, TaskId};

    use super::*;
    use crate::kernel::fixture::{Fixture, failed, spec, tenant};

    /// A job of tasks with names of this length; the first `failed` have failed, the next `begun` are at work.
    fn job(count: usize, name_length: usize, failures: usize, begun: usize) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.policy.claim_max = usize::MAX / 2;
        let tasks = (0..count).map(|n| spec(&format!("{n:0name_length$}"), &[])).collect();
        fixture.submit_job(tasks);
        for (n, task) in fixture.claim(failures + begun).into_iter().enumerate() {
            if n < failures {
                fixture.finish(&task.task, task.fence, failed(ErrorCategory::Auth)).unwrap();
            }
        }
        fixture
    }

    #[test]
    fn states_are_listed_up_to_both_limits() {
        // (tasks, length of a name, failed, at work) -> (listed with the one that fails now, whole)
        for ((count, length, failures, begun), (listed, whole)) in [
            ((3, 4, 1, 1), (3, true)),
            ((1_000, 4, 2, 3), (1_000, true)),
            ((1_001, 4, 2, 3), (6, false)),
            ((2_500, 4, 2, 1_300), (1_000, false)),
            // 150,000 bytes hold 694 names of 200 bytes with their states.
            ((694, 200, 1, 0), (694, true)),
            ((695, 200, 1, 0), (2, false)),
            ((900, 200, 2, 850), (694, false)),
        ] {
            let fixture = job(count, length, failures, begun);
            let job = fixture.state.job(&tenant(), tidemill_model::JobId::from_u128(7)).unwrap();
            let moved = u32::try_from(count - 1).unwrap();
            let list = of(job, (moved, PublicState::Failed), &fixture.policy);
            let row = (count, length, failures, begun);
            assert_eq!((list.task_statuses.len(), !list.truncated), (listed, whole), "{row:?}");
            assert_eq!(list.counts.is_none(), whole, "{row:?}");
        }
    }

    #[test]
    fn the_moved_task_is_listed_as_it_will_be() {
        let fixture = job(1_001, 4, 0, 2);
        let job = fixture.state.job(&tenant(), tidemill_model::JobId::from_u128(7)).unwrap();
        let first = TaskId::trusted("0000");
        let list = of(job, (0, PublicState::Failed), &fixture.policy);
        assert_eq!(list.task_statuses[&first], Some(PublicState::Failed));
        let counts = list.counts.unwrap();
        assert_eq!((counts.failed, counts.processing, counts.pending), (1, 1, 999));
        let list = of(job, (0, PublicState::Completed), &fixture.policy);
        assert!(!list.task_statuses.contains_key(&first), "completed ones are only counted");
        assert_eq!(list.counts.unwrap().completed, 1);
    }
}
