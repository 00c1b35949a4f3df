//! Claim: deliver messages and take the leases of their tasks, in one commit.

use std::collections::HashSet;

use tidemill_model::properties::TaskProcessingStarted;
use tidemill_model::{Fence, Json, KnownType, TaskHead, TaskState, Timestamp};

use super::draft::{By, Draft, identity, spec_of};
use super::finish;
use crate::command::Claim;
use crate::commit::{Message, TaskChangeKind, TaskKey};
use crate::reply::{Assignment, Reply};
use crate::state::{Place, State, TaskView};

/// Messages that turn out to be stale are dropped on the way; so many more than asked for are looked at.
const LOOK_AHEAD: usize = 64;
/// A message of a task that somebody holds comes back this long after the lease ends, in milliseconds.
const AFTER_LEASE_MILLIS: u64 = 1_000;

pub(super) fn decide(state: &State, command: &Claim, draft: &mut Draft<'_, '_>) -> Reply {
    let max = command.max.min(draft.policy().claim_max);
    let until = draft.now().plus(draft.policy().lease_millis);
    let mut tasks: Vec<Assignment> = Vec::new();
    let mut taken: HashSet<TaskKey> = HashSet::new();
    // Jobs that this commit reports a failure of, or may not.
    let mut failed_in = HashSet::new();
    // Whether another claim may find something at once.
    let mut more = false;
    let mut next = state.queue().next_visible();
    let serves = |tenant: &_| command.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant));
    for queued in state.queue().deliverable(serves).take(max + LOOK_AHEAD) {
        if tasks.len() == max {
            break;
        }
        let message = &queued.message;
        if taken.contains(&message.task) {
            hide(message, until, &mut next, draft);
            continue;
        }
        match judge(state, message, draft.now()) {
            Delivery::Stale => {
                more = true;
                draft.settle(Some(message.id));
            }
            Delivery::Busy { until } => hide(message, until, &mut next, draft),
            Delivery::Run { task, head, takeover } => {
                if head.takeovers + u32::from(takeover) > draft.policy().takeovers_max {
                    more = true;
                    let job = message.task.request.job_part();
                    // Each failure lists the states of its job, so a job gets one in a commit; the others come next.
                    if job.is_none_or(|job| failed_in.insert(job)) {
                        finish::give_up(&message.task, &task, head, finish::Exhausted::Takeovers, draft);
                    }
                } else {
                    if command.begin.is_some() {
                        // Nor may it list a task as pending that this commit begins.
                        failed_in.extend(message.task.request.job_part());
                    }
                    tasks.push(acquire(command, message, &task, head, takeover, until, draft));
                }
                if tasks.len() < max {
                    taken.insert(message.task.clone());
                }
            }
        }
    }
    let next = if more { Some(draft.now()) } else { next };
    Reply::Claimed { next: next.filter(|_| tasks.is_empty()), tasks }
}

/// Puts a message off until the lease in its way is over.
fn hide(message: &Message, until: Timestamp, next: &mut Option<Timestamp>, draft: &mut Draft<'_, '_>) {
    let at = until.plus(AFTER_LEASE_MILLIS);
    *next = Some(next.map_or(at, |next| next.min(at)));
    draft.show_at(message.id, at, false);
}

enum Delivery<'s> {
    /// Nothing is left to do for it.
    Stale,
    /// Somebody is at it.
    Busy {
        until: Timestamp,
    },
    Run {
        task: TaskView<'s>,
        head: &'s TaskHead,
        takeover: bool,
    },
}

fn judge<'s>(state: &'s State, message: &Message, now: Timestamp) -> Delivery<'s> {
    // Live work is always in memory: what is not here is finished.
    let Some(task) = state.task(&message.task) else { return Delivery::Stale };
    let Some(head) = task.entry.head.as_ref() else { return Delivery::Stale };
    if message.run != head.run {
        return Delivery::Stale;
    }
    match &head.state {
        TaskState::Done(_) | TaskState::Parked => Delivery::Stale,
        TaskState::Leased(lease) if lease.until >= now => Delivery::Busy { until: lease.until },
        TaskState::Leased(_) => Delivery::Run { task, head, takeover: true },
        // Between attempts the message that waits for the next one rules: a duplicate must not cut the delay short.
        TaskState::Queued if head.attempts > 0 => match standing(state, &task, message) {
            Some(at) if at > now => Delivery::Busy { until: at },
            _ => Delivery::Run { task, head, takeover: false },
        },
        TaskState::Queued => Delivery::Run { task, head, takeover: false },
    }
}

/// When the message that stands for the task becomes visible, if it is another one than this.
fn standing(state: &State, task: &TaskView<'_>, message: &Message) -> Option<Timestamp> {
    let standing = task.entry.message.filter(|standing| *standing != message.id)?;
    state.queue().get(standing).map(|queued| queued.visible_at)
}

fn acquire(
    command: &Claim,
    message: &Message,
    task: &TaskView<'_>,
    head: &TaskHead,
    takeover: bool,
    until: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Assignment {
    let key = &message.task;
    let fence = Fence(head.fence.0 + 1);
    let at = draft.now();
    draft.change(key, TaskChangeKind::Acquire { fence, owner: command.owner.clone(), until, at, takeover });
    // The lease still holds in its last millisecond.
    draft.show_at(message.id, until.plus(1), true);
    if let Some(process_id) = command.begin {
        draft.change(key, TaskChangeKind::Begin { fence });
        let mut subject = draft.task_subject(key, task);
        let started = TaskProcessingStarted {
            task: identity(&key.request, task),
            effective_until: until,
            worker_id: command.worker.clone(),
            process_id,
            fence,
        };
        let by = By::worker(&command.worker);
        draft.event(&mut subject, KnownType::TaskProcessingStarted, by, Json::of(&started));
    }
    let (app, job) = match task.place {
        Place::Alone(alone) => (alone.app.clone(), None),
        Place::InJob { job, .. } => (job.head.app.clone(), Some(job.head.job)),
    };
    Assignment {
        task: key.clone(),
        app,
        job,
        spec: spec_of(task),
        run: head.run,
        attempt: head.attempts + 1,
        fence,
        lease_until: until,
        message: message.id,
    }
}
