//! What a receipt is good for: deleting its message, or hiding it for some time.

use tidemill_model::TenantId;

use crate::engine::limits::VISIBILITY_MILLIS_MAX;
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{Delivered, Receipt};
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;

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

impl<B: Backend> Engine<B> {
    /// Removes a message. A receipt of an older delivery removes nothing; the answer is whether it did.
    ///
    /// It says nothing of the task: one that is not done and has no message left gets a new one from the next sweep.
    /// A client that did the work by hand finishes or cancels the task.
    pub async fn delete(&self, tenant: Option<TenantId>, receipt: Receipt) -> Result<bool, EngineError> {
        let reply = self.execute(Command::Delete(Delete { tenant, receipt })).await?;
        take_reply!(reply, Reply::Deleted { existed } => existed)
    }

    /// Hides a message from now on, or shows it at once with 0. The answer is whether the receipt was good.
    pub async fn change_visibility(
        &self,
        tenant: Option<TenantId>,
        receipt: Receipt,
        visible_in_millis: u64,
    ) -> Result<bool, EngineError> {
        check::between("visibility", visible_in_millis, 0..=VISIBILITY_MILLIS_MAX)?;
        let reply = self
            .execute(Command::ChangeVisibility(ChangeVisibility { tenant, receipt, visible_in_millis }))
            .await?;
        take_reply!(reply, Reply::VisibilityChanged { existed } => existed)
    }
}
