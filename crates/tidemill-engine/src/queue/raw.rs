//! The raw queue: send, receive, delete and hide messages without running anything.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_model::{TaskState, TenantId, Timestamp};

use crate::kernel::commit::{Delivered, NewTask, Receipt, RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::Draft;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::RowKey;
use crate::work::claim::delivered_rows;
use crate::work::finish::{self, Exhausted};
use crate::work::rows::task_row;
use crate::work::tenant_limit;

/// A message from outside. Without a head the task begins here, and nothing announces it.
#[derive(Debug, Clone)]
pub struct Send {
    pub task: NewTask,
    pub run: u32,
    pub delay_millis: u64,
}

impl Decision for Send {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        let NewTask { tenant, request, .. } = &self.task;
        vec![task_row(&TaskKey { tenant: tenant.clone(), request: request.clone() })]
    }

    fn log_bytes(&self) -> u64 {
        self.task.spec.input.len() as u64 + 2_000
    }

    fn large_field(&self) -> &'static str {
        "input"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        send(state, self, draft)
    }
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

/// Takes a message out of the queue, if the receipt is its newest one.
#[derive(Debug, Clone)]
pub struct Delete {
    pub tenant: Option<TenantId>,
    pub receipt: Receipt,
}

impl Decision for Delete {
    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(delete(state, self.tenant.as_ref(), self.receipt, draft))
    }
}

/// Hides a message for some time, or shows it at once.
#[derive(Debug, Clone)]
pub struct ChangeVisibility {
    pub tenant: Option<TenantId>,
    pub receipt: Receipt,
    pub visible_in_millis: u64,
}

impl Decision for ChangeVisibility {
    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(change_visibility(state, self.tenant.as_ref(), self.receipt, self.visible_in_millis, draft))
    }
}

pub(crate) fn send(state: &State, command: &Send, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let task = &command.task;
    let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
    if state.task(&key).is_none() && key.request.job_part().is_none() {
        tenant_limit::check(state, &key.tenant, [&task.spec], draft)?;
        draft.record(RecordWrite::Task(Arc::new(task.clone())));
        draft.change(&key, TaskChangeKind::Dispatch);
    }
    let not_before = draft.now().plus(command.delay_millis);
    Ok(Reply::Sent { message: draft.enqueue(&key, command.run, not_before) })
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
        finish::give_up(state, &message.task, &task, head, Exhausted::Deliveries, draft);
        return;
    }
    draft.bury(&message.task, message.id, message.run, "delivered too often", None);
}

pub(crate) fn delete(
    state: &State,
    tenant: Option<&TenantId>,
    receipt: Receipt,
    draft: &mut Draft<'_, '_>,
) -> Reply {
    let current = current(state, tenant, receipt);
    if current {
        draft.settle(Some(receipt.message));
    }
    Reply::Deleted { existed: current }
}

pub(crate) fn change_visibility(
    state: &State,
    tenant: Option<&TenantId>,
    receipt: Receipt,
    visible_in_millis: u64,
    draft: &mut Draft<'_, '_>,
) -> Reply {
    let current = current(state, tenant, receipt);
    if current {
        draft.show_at(receipt.message, draft.now().plus(visible_in_millis), Delivered::No);
    }
    Reply::VisibilityChanged { existed: current }
}

/// Whether the receipt is of the message's newest delivery. An older one has no effect.
fn current(state: &State, tenant: Option<&TenantId>, receipt: Receipt) -> bool {
    state.queue().get(receipt.message).is_some_and(|queued| {
        queued.deliveries == receipt.delivery
            && tenant.is_none_or(|tenant| *tenant == queued.message.task.tenant)
    })
}
