//! Usage: the sums that the events give, and the budgets that were set, held against what the ledger keeps.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{BudgetTarget, Command};
use tidemill_engine::commit::{NewTask, TaskKey};
use tidemill_engine::record::{RecordKey, RecordValue, UsageOf};
use tidemill_engine::reply::{Assignment, Reply};
use tidemill_model::events::properties::{
    BudgetExceeded, FailureSource, TaskCompleted, TaskFailed, TaskPending, TaskProcessingFailed, TaskTimeout,
};
use tidemill_model::{
    Allowance, Budget, BudgetScope, Day, Event, JobId, KnownType, RequestId, Spending, TaskName, TenantId,
    Usage, UsageSum,
};

use super::history::read;
use super::unreadable;
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

/// What agents used by the events, and what they may use by the answers.
#[derive(Debug, Default)]
pub(super) struct Usages {
    sums: BTreeMap<RecordKey, UsageSum>,
    /// What tasks are called, by their announcements.
    names: BTreeMap<TaskKey, TaskName>,
    /// The last failed attempt of a task: its fence, and the sums it belongs to. Its run may end with it.
    failed: BTreeMap<TaskKey, (u64, Vec<RecordKey>)>,
    jobs: BTreeMap<JobId, (TenantId, Option<Budget>)>,
    tenants: BTreeMap<TenantId, Option<Budget>>,
    /// Budgets that the group under way sets: what holds between its commands is not known.
    moving: BTreeSet<Whose>,
    /// Nobody heard the answers of the group under way.
    is_in_doubt: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Job(JobId),
    Tenant(TenantId),
}

/// An attempt that said what it used.
struct Attempt {
    usage: Usage,
    duration_millis: u64,
    is_end: bool,
}

impl Usages {
    /// Takes note of budgets, and judges what a claim gave out under them.
    pub(super) fn hear(&mut self, command: &Command, answer: &Answer) -> Result<(), Violation> {
        match (command, answer) {
            (Command::SubmitJob(submit), Ok(Reply::JobSubmitted { repeated: false, .. })) => {
                self.moving.insert(Whose::Job(submit.job.job));
                self.jobs.insert(submit.job.job, (submit.job.tenant.clone(), submit.budget));
            }
            (Command::SetBudget(set), Ok(_)) => match set.target {
                BudgetTarget::Job(job) => {
                    self.moving.insert(Whose::Job(job));
                    self.jobs.insert(job, (set.tenant.clone(), set.budget));
                }
                BudgetTarget::Tenant(_) => {
                    self.moving.insert(Whose::Tenant(set.tenant.clone()));
                    self.tenants.insert(set.tenant.clone(), set.budget);
                }
            },
            (Command::Claim(_), Ok(Reply::Claimed { tasks, .. })) => {
                tasks.iter().try_for_each(|task| self.given(task))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// A task that was given out. What was used up before this group is used up still.
    fn given(&self, task: &Assignment) -> Result<(), Violation> {
        let is_stopped = task.spec.options.agent && self.is_stopped(&task.task, false);
        demand(!is_stopped, "no agent starts under a budget that is used up", || format!("{task:?}"))
    }

    /// Whether a budget that is known stops a task; one that is moving may or may not.
    fn is_stopped(&self, key: &TaskKey, moving_stops: bool) -> bool {
        let tenant = Whose::Tenant(key.tenant.clone());
        let whose = key.request.job_part().map(Whose::Job).into_iter().chain([tenant]);
        whose.into_iter().any(|whose| {
            if self.is_in_doubt || self.moving.contains(&whose) {
                return moving_stops;
            }
            self.allowance(&whose).is_some_and(|allowance| allowance.is_used_up())
        })
    }

    /// The group is over.
    pub(super) fn settle(&mut self) {
        self.moving.clear();
        self.is_in_doubt = false;
    }

    /// The answers of the group whose events come now were never heard.
    pub(super) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// Takes over the budgets that such a group may have set.
    pub(super) fn resync(&mut self, commands: &[Command], ledger: &mut dyn Ledger) -> Result<(), Violation> {
        for command in commands {
            let (tenant, job) = match command {
                Command::SubmitJob(submit) => (&submit.job.tenant, Some(submit.job.job)),
                Command::SetBudget(set) => match set.target {
                    BudgetTarget::Job(job) => (&set.tenant, Some(job)),
                    BudgetTarget::Tenant(_) => (&set.tenant, None),
                },
                _ => continue,
            };
            let tenant = tenant.clone();
            if let Some(job) = job {
                if let Some(shown) = ledger.job(&tenant, job).map_err(unreadable)? {
                    let budget = shown.head.allowance.map(|allowance| allowance.budget);
                    self.jobs.insert(job, (tenant, budget));
                }
            } else {
                let record = ledger.record(&RecordKey::budget(&tenant)).map_err(unreadable)?;
                let budget = record.map(|record| record.value).and_then(|value| match value {
                    RecordValue::Budget(budget) => Some(budget.allowance.budget),
                    _ => None,
                });
                self.tenants.insert(tenant, budget);
            }
        }
        Ok(())
    }

    /// Takes one event in. `alone` names tasks that nobody announced.
    pub(super) fn take(
        &mut self,
        event: &Event,
        alone: &BTreeMap<TaskKey, NewTask>,
    ) -> Result<(), Violation> {
        let Some(known) = KnownType::from_name(event.event_type.as_str()) else { return Ok(()) };
        let key =
            TaskKey { tenant: event.tenant.clone(), request: RequestId::trusted(event.entity.id.as_str()) };
        let attempt = |usage: Option<Usage>, duration_millis: u64, is_end: bool| {
            usage.map(|usage| Attempt { usage, duration_millis, is_end })
        };
        let told = match known {
            KnownType::TaskPending => {
                let pending: TaskPending = read(event)?;
                self.names.insert(key, pending.name);
                return Ok(());
            }
            KnownType::TaskCompleted => {
                let told: TaskCompleted = read(event)?;
                attempt(told.usage, told.duration_ms, true)
            }
            KnownType::TaskTimeout => {
                let told: TaskTimeout = read(event)?;
                attempt(told.usage, told.elapsed_ms, true)
            }
            KnownType::TaskProcessingFailed => {
                let told: TaskProcessingFailed = read(event)?;
                self.failed.remove(&key);
                if told.usage.is_some() {
                    let sums = self.sums_of(&key, event, alone)?;
                    self.failed.insert(key.clone(), (told.fence.0, sums));
                }
                attempt(told.usage, told.duration_ms.unwrap_or(0), told.parked)
            }
            KnownType::TaskFailed => {
                let told: TaskFailed = read(event)?;
                self.ended(&key, &told)?;
                attempt(told.usage, told.duration_ms.unwrap_or(0), true)
            }
            KnownType::BudgetExceeded => return self.exceeded(event),
            _ => return Ok(()),
        };
        if let Some(told) = told {
            for sum in self.sums_of(&key, event, alone)? {
                let known = self.sums.entry(sum).or_default();
                *known = known.plus(&told.usage, told.duration_millis, told.is_end);
            }
        }
        Ok(())
    }

    /// A run failed: with the attempt before it, or because a budget forbids it to go on.
    fn ended(&mut self, key: &TaskKey, told: &TaskFailed) -> Result<(), Violation> {
        if let Some((fence, sums)) = self.failed.remove(key)
            && told.source == FailureSource::Dlq
            && told.fence.map(|fence| fence.0) == Some(fence)
        {
            for sum in sums {
                self.sums.entry(sum).or_default().tasks += 1;
            }
        }
        let by_budget = told.source == FailureSource::Budget;
        demand(!by_budget || told.code.is_some(), "a budget that stops a task says so", || {
            format!("{told:?}")
        })?;
        demand(!by_budget || self.is_stopped(key, true), "only a budget that is used up stops a task", || {
            format!("{told:?}")
        })
    }

    fn sums_of(
        &self,
        key: &TaskKey,
        event: &Event,
        alone: &BTreeMap<TaskKey, NewTask>,
    ) -> Result<Vec<RecordKey>, Violation> {
        let announced = self.names.get(key);
        let Some(name) = announced.or_else(|| alone.get(key).map(|task| &task.spec.name)) else {
            return Err(Violation::new("tasks are dispatched before they run", key.request.to_string()));
        };
        let (tenant, day) = (&key.tenant, Day::of(event.timestamp));
        let job = key.request.job_part().map(UsageOf::Job);
        let of = [
            UsageOf::Tenant,
            UsageOf::Definition(name),
            UsageOf::Day(day),
            UsageOf::Month(day.month()),
            UsageOf::DayAndDefinition(day, name),
        ];
        Ok(of.into_iter().chain(job).map(|of| RecordKey::usage(tenant, of)).collect())
    }

    /// The event about a crossing says what the events before it say.
    fn exceeded(&self, event: &Event) -> Result<(), Violation> {
        let told: BudgetExceeded = read(event)?;
        let whose = match (told.scope, told.job_id) {
            (BudgetScope::Job, Some(job)) => Whose::Job(job),
            _ => Whose::Tenant(event.tenant.clone()),
        };
        if self.is_in_doubt || self.moving.contains(&whose) {
            return Ok(());
        }
        let known = self.allowance(&whose);
        let told = Allowance { budget: told.limit, spent: told.spent };
        demand(known == Some(told) && told.is_used_up(), "a budget is exceeded when it is used up", || {
            format!("{told:?}; known: {known:?}")
        })
    }

    /// A budget that is known, with what the events say was spent.
    fn allowance(&self, whose: &Whose) -> Option<Allowance> {
        let (budget, sum) = match whose {
            Whose::Job(job) => {
                let (tenant, budget) = self.jobs.get(job)?;
                ((*budget)?, RecordKey::usage(tenant, UsageOf::Job(*job)))
            }
            Whose::Tenant(tenant) => {
                ((*self.tenants.get(tenant)?)?, RecordKey::usage(tenant, UsageOf::Tenant))
            }
        };
        let sum = self.sums.get(&sum).copied().unwrap_or_default();
        Some(Allowance { budget, spent: Spending { cost_micros: sum.cost_micros, tokens: sum.tokens() } })
    }

    /// The ledger keeps the sums of the events and the budgets that were set.
    pub(super) fn check(&self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        for (key, sum) in &self.sums {
            let found = ledger.record(key).map_err(unreadable)?.map(|record| record.value);
            demand(found == Some(RecordValue::Usage(*sum)), "sums of usage are those of the events", || {
                format!("{} is {found:?}, not {sum:?}", key.id)
            })?;
        }
        for (job, (tenant, _)) in &self.jobs {
            let Some(shown) = ledger.job(tenant, *job).map_err(unreadable)? else { continue };
            let known = self.allowance(&Whose::Job(*job));
            let found = shown.head.allowance.as_deref().copied();
            demand(found == known, "a job's budget is what was set, less what was used", || {
                format!("{job}: {found:?}, not {known:?}")
            })?;
        }
        for tenant in self.tenants.keys() {
            let found = ledger.record(&RecordKey::budget(tenant)).map_err(unreadable)?;
            let found = found.map(|record| record.value).and_then(|value| match value {
                RecordValue::Budget(budget) => Some(budget.allowance),
                _ => None,
            });
            let known = self.allowance(&Whose::Tenant(tenant.clone()));
            demand(found == known, "a tenant's budget is what was set, less what was used", || {
                format!("{tenant}: {found:?}, not {known:?}")
            })?;
        }
        Ok(())
    }
}
