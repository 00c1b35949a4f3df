//! Receive messages by hand: they are hidden for a while.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::Serialize;
use tidemill_model::{
    ArtifactFile, JobId, Json, RequestId, TaskId, TaskName, TaskState, TenantId, Timestamp,
};

use crate::engine::limits::VISIBILITY_MILLIS_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::{Backend, QueueDepth};
use crate::kernel::command::Command;
use crate::kernel::commit::{Delivered, Message, Receipt, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::Draft;
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::RowKey;
use crate::work::running::claim::delivered_rows;
use crate::work::running::give_up::{Exhausted, give_up};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub messages: Vec<DeliveredMessage>,
    /// When nothing was there: the next moment at which it is worth trying, as far as it is known.
    pub next: Option<Timestamp>,
}

/// A message that was received by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveredMessage {
    pub message: Message,
    pub receipt: Receipt,
    /// How often the message was received by hand, this time included.
    pub deliveries: u32,
}

/// What a message says, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    name: &'a TaskName,
    input: &'a Json,
    dependency_outputs: BTreeMap<&'a TaskId, &'a Json>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    dependency_artifacts: BTreeMap<&'a TaskId, &'a [ArtifactFile]>,
}

#[derive(Debug, Clone)]
pub struct Receive {
    pub tenants: Option<Arc<[TenantId]>>,
    pub max: usize,
    pub visibility_millis: Option<u64>,
}

impl Decision for Receive {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        delivered_rows(state, self.tenants.as_deref(), self.max)
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::OfAnyTenant
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(receive(state, self, draft))
    }
}

pub(crate) fn receive(state: &State, command: &Receive, draft: &mut Draft<'_, '_>) -> Reply {
    let serves = |tenant: &_| command.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant));
    let visibility = command.visibility_millis.unwrap_or(draft.policy().visibility_millis);
    let hidden_until = draft.now().plus(visibility);
    let mut messages = Vec::new();
    let mut failed_in = HashSet::new();
    // Whether another receive may find something at once.
    let mut more = false;
    for queued in state.queue().deliverable(serves).take(command.max.min(draft.policy().claim_max)) {
        let id = queued.message.id;
        if queued.receives >= draft.policy().receives_max {
            more = true;
            let job = queued.message.task.request.job_part();
            // As with claims: one failure of a job in a commit.
            if job.is_none_or(|job| failed_in.insert(job)) {
                bury(state, queued, draft);
            }
            continue;
        }
        draft.show_at(id, hidden_until, Delivered::Received);
        let receipt = Receipt { message: id, delivery: queued.deliveries.saturating_add(1) };
        messages.push((queued.message.clone(), receipt, queued.receives.saturating_add(1)));
    }
    let next = if more { Some(draft.now()) } else { state.queue().next_visible() };
    let next = next.filter(|_| messages.is_empty());
    Reply::Received { messages, next }
}

/// Too many deliveries: the message is kept as a dead letter, and its task fails unless it is done or being run.
fn bury(state: &State, queued: &Queued, draft: &mut Draft<'_, '_>) {
    let message = &queued.message;
    if let Some(task) = state.task(&message.task)
        && let Some(head) = task.entry.head.as_ref()
        && head.run == message.run
        && task.entry.message == Some(message.id)
        && matches!(head.state, TaskState::Queued)
    {
        give_up(state, &message.task, &task, head, Exhausted::Deliveries, draft);
        return;
    }
    draft.bury(&message.task, message.id, message.run, "delivered too often", None);
}

impl<B: Backend> Engine<B> {
    /// Takes up to `max` messages and hides them for a while. An empty answer comes at once; `work_arrived` waits.
    pub async fn receive(
        &self,
        tenants: Option<Arc<[TenantId]>>,
        max: usize,
        visibility_millis: Option<u64>,
    ) -> Result<Received, EngineError> {
        check::count("max", max, self.policy().claim_max)?;
        if let Some(visibility) = visibility_millis {
            check::between("visibility", visibility, 0..=VISIBILITY_MILLIS_MAX)?;
        }
        let reply = self.execute(Command::Receive(Receive { tenants, max, visibility_millis })).await?;
        let (messages, next) = take_reply!(reply, Reply::Received { messages, next } => (messages, next))?;
        let deliveries = messages.into_iter().map(|(message, receipt, deliveries)| DeliveredMessage {
            message,
            receipt,
            deliveries,
        });
        Ok(Received { messages: deliveries.collect(), next })
    }

    /// What the message of a task says: its name, its input and the outputs of its parents.
    pub async fn message_body(&self, task: &TaskKey) -> Result<Json, EngineError> {
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else {
            return Err(Refusal::NotFound { what: "task", id: task.request.to_string() }.into());
        };
        let parents = snapshot.job.into_iter().flat_map(|job| {
            snapshot.spec.depends_on.iter().map(move |parent| (parent.clone(), job.request_id(parent)))
        });
        let work = self.resolve(&task.tenant, &snapshot.spec.input, parents.collect()).await?;
        Ok(Json::of(&Body {
            request_id: &task.request,
            task_id: snapshot.job.map(|_| &snapshot.spec.task_id),
            job_id: snapshot.job,
            name: &snapshot.spec.name,
            input: &snapshot.spec.input,
            dependency_outputs: work.dependency_outputs.iter().map(|(task, output)| (task, output)).collect(),
            dependency_artifacts: work
                .dependency_artifacts
                .iter()
                .map(|parent| (&parent.task, &*parent.artifacts))
                .collect(),
        }))
    }

    pub async fn queue_depth(&self) -> Result<QueueDepth, EngineError> {
        let now = self.inner.clock.now();
        Ok(self.inner.backend.look(|state| state.queue().depth(now)).await?)
    }
}
