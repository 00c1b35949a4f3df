//! Snapshots: the state as readers get it.

use std::sync::Arc;

use tidemill_model::{JobId, PublicState, TaskId, TenantId};

use crate::kernel::backend::{BLOCKED_BY_MAX, TaskSnapshot};
use crate::kernel::commit::TaskKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};

impl TaskSnapshot {
    pub fn of(state: &State, key: &TaskKey) -> Option<Self> {
        state.task(key).map(|task| Self::of_view(key.clone(), &task))
    }

    pub fn of_job(state: &State, tenant: &TenantId, job: JobId, from: u32, limit: usize) -> Vec<Self> {
        let Some(job) = state.job(tenant, job) else { return Vec::new() };
        let total = u32::try_from(job.nodes.len()).unwrap_or(u32::MAX);
        let snapshot = |index| {
            let key = TaskKey { tenant: tenant.clone(), request: job.request_of(index) };
            Self::of_view(
                key,
                &TaskRef { entry: &job.node(index).entry, place: TaskPlace::InJob { job, index } },
            )
        };
        (from..total).take(limit).map(snapshot).collect()
    }

    fn of_view(task: TaskKey, view: &TaskRef<'_>) -> Self {
        let (app, job, spec) = match view.place {
            TaskPlace::Alone(alone) => (alone.app.clone(), None, Arc::clone(&alone.spec)),
            TaskPlace::InJob { job, index } => {
                (job.head.app.clone(), Some(job.head.job), Arc::clone(&job.node(index).spec))
            }
        };
        Self {
            task,
            app,
            job,
            spec,
            state: view.public_state(),
            head: view.entry.head.clone(),
            blocked_by: blocked_by(view),
        }
    }
}

/// The parents that are not completed, of a task that is not dispatched.
fn blocked_by(view: &TaskRef<'_>) -> Vec<TaskId> {
    let TaskPlace::InJob { job, index } = view.place else { return Vec::new() };
    if view.entry.head.is_some() {
        return Vec::new();
    }
    let is_open = |parent: &&TaskId| {
        let index = job.index_of(parent.as_str());
        index.is_none_or(|index| job.node(index).entry.public_state() != Some(PublicState::Completed))
    };
    job.node(index).spec.depends_on.iter().filter(is_open).take(BLOCKED_BY_MAX).cloned().collect()
}
