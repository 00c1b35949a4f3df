//! Begin and heartbeat: the holder of a lease says that it is at work.

use tidemill_model::events::properties::{
    Activity, MemoryUsage, TaskHeartbeat, TaskIdentity, TaskProcessingStarted,
};
use tidemill_model::{Fence, Json, KnownType, Lease, Timestamp, WorkerId};

use crate::kernel::commit::{Delivered, TaskChangeKind, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, Subject, identity};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskRef};
use crate::work::rows::task_row;

#[derive(Debug, Clone)]
pub struct Begin {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub process_id: u32,
    pub surroundings: Surroundings,
}

impl Decision for Begin {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![task_row(&self.task)]
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        begin(state, self, draft)
    }
}

/// What of an attempt only its worker knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Where it writes.
    pub directory: Option<String>,
    /// The names of those variables of the worker's own environment that it was given.
    pub variables: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub task: TaskKey,
    pub fence: Fence,
    pub worker: WorkerId,
    pub process_id: u32,
    pub rss: u64,
    pub last_activity: Option<Activity>,
}

impl Decision for Heartbeat {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![task_row(&self.task)]
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn begin(state: &State, command: &Begin, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let (task, lease) = held(state, &command.task, command.fence)?;
    let mut subject = draft.task_subject(&command.task, &task);
    start(command, &task, lease, &mut subject, draft);
    Ok(Reply::Begun)
}

fn start(
    command: &Begin,
    task: &TaskRef<'_>,
    lease: &Lease,
    subject: &mut Subject,
    draft: &mut Draft<'_, '_>,
) {
    draft.change(&command.task, TaskChangeKind::Begin { fence: command.fence });
    let started = TaskProcessingStarted {
        task: identity(&command.task.request, task),
        effective_until: lease.until,
        worker_id: command.worker.clone(),
        process_id: command.process_id,
        fence: command.fence,
        directory: command.surroundings.directory.clone(),
        variables: command.surroundings.variables.clone(),
    };
    let by = By::worker(&command.worker);
    draft.event(subject, KnownType::TaskProcessingStarted, by, Json::of(&started));
}

pub(crate) fn decide(
    state: &State,
    command: &Heartbeat,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let (task, lease) = held(state, &command.task, command.fence)?;
    let until = draft.now().plus(draft.policy().lease_millis).max(lease.until);
    let mut subject = draft.task_subject(&command.task, &task);
    let has_begun = task.entry.head.as_ref().is_some_and(|head| head.begun);
    if !has_begun {
        // Heartbeats expire and must not be what a state rests on.
        let Heartbeat { task: key, fence, worker, process_id, .. } = command.clone();
        let surroundings = Surroundings::default();
        let begin = Begin { task: key, fence, worker, process_id, surroundings };
        start(&begin, &task, lease, &mut subject, draft);
    }
    draft.change(&command.task, TaskChangeKind::Renew { fence: command.fence, until });
    if let Some(message) = task.entry.message {
        // The lease still holds in its last millisecond.
        draft.show_at(message, until.plus(1), Delivered::No);
    }
    let TaskIdentity { request_id, run, .. } = identity(&command.task.request, &task);
    let heartbeat = TaskHeartbeat {
        request_id,
        run,
        effective_until: until,
        heartbeat_number: lease.heartbeats.saturating_add(1),
        elapsed_ms: draft.now().since(lease.claimed_at),
        worker_id: command.worker.clone(),
        process_id: command.process_id,
        memory_usage: MemoryUsage { rss: command.rss },
        last_activity: command.last_activity.clone(),
        fence: command.fence,
    };
    draft.event(&mut subject, KnownType::TaskHeartbeat, By::worker(&command.worker), Json::of(&heartbeat));
    Ok(Reply::Renewed { until })
}

/// The task and its lease, if `fence` is the newest right to it and it is held.
pub(crate) fn held<'s>(
    state: &'s State,
    key: &TaskKey,
    fence: Fence,
) -> Result<(TaskRef<'s>, &'s Lease), Refusal> {
    let task = state.task(key);
    let Some((task, head)) = task.and_then(|task| task.entry.head.as_ref().map(|head| (task, head))) else {
        return Err(Refusal::NotFound { what: "task", id: key.request.to_string() });
    };
    let lost = || Refusal::LeaseLost { request: key.request.clone(), given: fence.0, newest: head.fence.0 };
    head.lease_of(fence).map(|lease| (task, lease)).ok_or_else(lost)
}
