//! Reading: events, tasks, jobs, dead letters. Nothing of another tenant is ever seen.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::fold::StateSets;
use tidemill_model::{AppName, JobId, JobStatus, KnownType, TenantId};

use crate::engine::limits::{LIST_MAX, TASK_STATES_EVENTS_MAX};
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, JobSnapshot, TaskSnapshot};
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;

/// The events that tell a task's state. Heartbeats are left out: they never change it.
const STATE_TYPES: [KnownType; 6] = [
    KnownType::TaskPending,
    KnownType::TaskProcessingStarted,
    KnownType::TaskProcessingFailed,
    KnownType::TaskCompleted,
    KnownType::TaskFailed,
    KnownType::TaskTimeout,
];

impl<B: Backend> Engine<B> {
    pub async fn task(&self, task: TaskKey) -> Result<Option<TaskSnapshot>, EngineError> {
        Ok(self.inner.backend.task(task).await?)
    }

    pub async fn job(&self, tenant: TenantId, job: JobId) -> Result<Option<JobSnapshot>, EngineError> {
        Ok(self.inner.backend.job(tenant, job).await?)
    }

    /// A job's tasks in the order they were handed in, from the index `from` on.
    pub async fn job_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskSnapshot>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        Ok(self.inner.backend.job_tasks(tenant, job, from, limit).await?)
    }

    /// A tenant's jobs, newest first, those before `before` if it is given.
    pub async fn jobs(
        &self,
        tenant: TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobSnapshot>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        Ok(self.inner.backend.jobs(tenant, status, before, limit).await?)
    }

    /// All tasks of a tenant, or of one of its applications, by state: four sets that never overlap.
    ///
    /// Each task is folded from its own events, so a task that moves meanwhile is in one set all the same.
    pub async fn task_states(
        &self,
        tenant: TenantId,
        app: Option<AppName>,
    ) -> Result<StateSets, EngineError> {
        let mut events = Vec::new();
        for known in STATE_TYPES {
            let path = AccessPath::narrowest(Some(known.event_type()), app.clone(), None);
            let mut query = EventQuery::all(tenant.clone(), path);
            loop {
                let page = self.inner.backend.events(query.clone()).await?;
                events.extend(page.events);
                if events.len() > TASK_STATES_EVENTS_MAX {
                    let problem =
                        format!("more than {TASK_STATES_EVENTS_MAX} events; ask for one application");
                    return Err(EngineError::invalid("tasks", problem));
                }
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
        }
        Ok(StateSets::of(&events)?)
    }
}
