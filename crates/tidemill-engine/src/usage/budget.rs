//! Budgets: what the agents of a job or of a tenant may use.

use tidemill_model::{Allowance, Budget, Day, JobId, Period, TenantBudget, TenantId, Timestamp};

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::Command;
use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue, UsageOf};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::usage::charge::{put, spending, sum_in};

/// Sets what the agents of a job or of a tenant may use; `None` lets them use what they like.
#[derive(Debug, Clone)]
pub struct SetBudget {
    pub tenant: TenantId,
    pub target: BudgetTarget,
    pub budget: Option<Budget>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetTarget {
    Job(JobId),
    Tenant(Period),
}

impl Decision for SetBudget {
    fn touches(&self, _state: &State, now: Timestamp) -> Vec<RowKey> {
        match self.target {
            BudgetTarget::Job(job) => vec![
                RowKey::Job(self.tenant.clone(), job),
                RowKey::Record(RecordKey::usage(&self.tenant, UsageOf::Job(job))),
            ],
            BudgetTarget::Tenant(period) => vec![
                RowKey::Record(RecordKey::budget(&self.tenant)),
                RowKey::Record(spent_in(&self.tenant, period, now)),
            ],
        }
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        set(state, self, draft)
    }
}

/// Sets, changes or removes a budget. What was spent before counts.
pub(crate) fn set(state: &State, command: &SetBudget, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    let tenant = &command.tenant;
    match command.target {
        BudgetTarget::Job(id) => {
            if state.job(tenant, id).is_none() {
                return Err(Refusal::NotFound { what: "job", id: id.to_string() });
            }
            let spent = spending(&sum_in(state, &RecordKey::usage(tenant, UsageOf::Job(id))));
            let allowance = command.budget.map(|budget| Allowance { budget, spent });
            draft.record(RecordWrite::JobAllowance { tenant: tenant.clone(), job: id, allowance });
        }
        BudgetTarget::Tenant(period) => {
            let key = RecordKey::budget(tenant);
            let sum = sum_in(state, &spent_in(tenant, period, draft.now()));
            let Some(budget) = command.budget else {
                if state.record(&key).is_some() {
                    draft.record(RecordWrite::Put { key, record: None });
                }
                return Ok(Reply::BudgetSet);
            };
            let allowance = Allowance { budget, spent: spending(&sum) };
            let current = period.number(draft.now());
            put(state, key, RecordValue::Budget(TenantBudget { period, current, allowance }), draft);
        }
    }
    Ok(Reply::BudgetSet)
}

/// The sum that a tenant's budget with this period begins with.
pub(crate) fn spent_in(tenant: &TenantId, period: Period, now: Timestamp) -> RecordKey {
    let day = Day::of(now);
    RecordKey::usage(
        tenant,
        match period {
            Period::Total => UsageOf::Tenant,
            Period::Day => UsageOf::Day(day),
            Period::Month => UsageOf::Month(day.month()),
        },
    )
}

impl<B: Backend> Engine<B> {
    /// The budget of a tenant, with what was spent of it in the current period.
    pub async fn budget(&self, tenant: &TenantId) -> Result<Option<TenantBudget>, EngineError> {
        let key = RecordKey::budget(tenant);
        let Some(record) = self.inner.backend.record(key).await? else { return Ok(None) };
        match record.value {
            RecordValue::Budget(budget) => Ok(Some(budget.at(self.inner.clock.now()))),
            _ => Err(Fault::Damaged("the record of a budget is of another kind".to_owned()).into()),
        }
    }

    /// Refuses when the budget of a tenant lets no agent start.
    pub(crate) async fn check_budget(&self, tenant: &TenantId) -> Result<(), EngineError> {
        let budget = self.budget(tenant).await?;
        match budget.and_then(|budget| budget.allowance.used_up_text("the tenant's", budget.period)) {
            Some(text) => Err(EngineError::invalid("agent", format!("may not start: {text}"))),
            None => Ok(()),
        }
    }

    /// Sets, changes or removes the budget of a tenant.
    pub async fn set_budget(
        &self,
        tenant: TenantId,
        period: Period,
        budget: Option<Budget>,
    ) -> Result<(), EngineError> {
        self.put_budget(SetBudget { tenant, target: BudgetTarget::Tenant(period), budget }).await
    }

    /// Sets, changes or removes the budget of a job.
    pub async fn set_job_budget(
        &self,
        tenant: TenantId,
        job: JobId,
        budget: Option<Budget>,
    ) -> Result<(), EngineError> {
        self.put_budget(SetBudget { tenant, target: BudgetTarget::Job(job), budget }).await
    }

    async fn put_budget(&self, command: SetBudget) -> Result<(), EngineError> {
        if command.budget == Some(Budget::default()) {
            return Err(EngineError::invalid("budget", "needs usd, tokens or both"));
        }
        let reply = self.execute(Command::SetBudget(command)).await?;
        take_reply!(reply, Reply::BudgetSet => ())
    }
}
