//! The states of a job's tasks as an event lists them: whole for small jobs, the interesting part of large ones.

use tidemill_model::PublicState;
use tidemill_model::properties::{TASK_STATUSES_MAX, TaskStatuses};

use crate::policy::Policy;
use crate::state::job::Job;

/// The states with one task moved to the state it is about to have. The cost is bounded whatever the job's size.
pub(super) fn of(job: &Job, moved: (u32, PublicState), policy: &Policy) -> TaskStatuses {
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
    list.counts = Some(counts);
    list.truncated = true;
    list
}
