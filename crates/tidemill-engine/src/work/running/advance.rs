//! Advance a job: dispatch what is ready and was not dispatched. Repeating it changes nothing.

use tidemill_model::{JobId, TenantId, Timestamp};

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::decision::Decision;
use crate::kernel::draft::{Draft, JobFacts};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::job::Job;
use crate::kernel::state::row::RowKey;

/// Dispatches what is ready and was not dispatched. Does nothing when nothing is.
#[derive(Debug, Clone)]
pub struct Advance {
    pub tenant: TenantId,
    pub job: JobId,
}

impl Decision for Advance {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![RowKey::Job(self.tenant.clone(), self.job)]
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, &self.tenant, self.job, draft)
    }
}

pub(crate) fn decide(
    state: &State,
    tenant: &TenantId,
    job: JobId,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let Some(job) = state.job(tenant, job) else {
        return Err(Refusal::NotFound { what: "job", id: job.to_string() });
    };
    Ok(Reply::Advanced { dispatched: dispatch_ready(job, draft) })
}

pub(crate) fn dispatch_ready(job: &Job, draft: &mut Draft<'_, '_>) -> u32 {
    if job.head.cancelled {
        return 0;
    }
    let mut dispatched = 0;
    for index in job.ready.iter().take(draft.policy().sweep_max) {
        draft.dispatch(&JobFacts::of(job), &job.node(*index).spec, Origin::Dispatcher);
        dispatched += 1;
    }
    dispatched
}

impl<B: Backend> Engine<B> {
    /// Dispatches what is ready in a job and was not dispatched. Normally nothing is.
    pub async fn advance(&self, tenant: TenantId, job: JobId) -> Result<u32, EngineError> {
        let reply = self.execute(Command::Advance(Advance { tenant, job })).await?;
        take_reply!(reply, Reply::Advanced { dispatched } => dispatched)
    }
}
