//! What the events of one job say.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use tidemill_model::{AppName, JobId, RequestId, TaskId, TaskOptions, TaskSpec, TenantId};

use crate::violation::{Violation, demand};

/// A job as its own events tell it. What its tasks did is with the tasks.
#[derive(Debug)]
pub(super) struct JobHistory {
    pub(super) tenant: TenantId,
    pub(super) app: AppName,
    pub(super) job: JobId,
    pub(super) tasks: Vec<JobTask>,
    by_id: BTreeMap<TaskId, usize>,
    /// `Job Cancelled` was written and no resume answered since.
    pub(super) cancelled: bool,
    pub(super) completions: u32,
    /// Something in it failed, or it ended: it may have been at rest since.
    pub(super) rested: bool,
}

#[derive(Debug)]
pub(super) struct JobTask {
    pub(super) id: TaskId,
    pub(super) request: RequestId,
    pub(super) parents: Vec<usize>,
    pub(super) children: Vec<usize>,
    pub(super) options: TaskOptions,
}

impl JobHistory {
    pub(super) fn new(tenant: TenantId, app: AppName, job: JobId) -> Self {
        Self {
            tenant,
            app,
            job,
            tasks: Vec::new(),
            by_id: BTreeMap::new(),
            cancelled: false,
            completions: 0,
            rested: false,
        }
    }

    pub(super) fn grow(&mut self, specs: &[impl Borrow<TaskSpec>]) -> Result<(), Violation> {
        let first = self.tasks.len();
        for spec in specs {
            let spec: &TaskSpec = spec.borrow();
            let known = self.by_id.insert(spec.task_id.clone(), self.tasks.len());
            demand(known.is_none(), "a task is named once", || format!("{} in {}", spec.task_id, self.job))?;
            self.tasks.push(JobTask {
                id: spec.task_id.clone(),
                request: self.job.request_id(&spec.task_id),
                parents: Vec::new(),
                children: Vec::new(),
                options: spec.options.clone(),
            });
        }
        for (index, spec) in (first..).zip(specs) {
            let spec: &TaskSpec = spec.borrow();
            for parent in &spec.depends_on {
                let Some(parent) = self.by_id.get(parent).copied() else {
                    return Err(Violation::new("dependencies exist", format!("{parent} in {}", self.job)));
                };
                self.tasks[index].parents.push(parent);
                self.tasks[parent].children.push(index);
            }
        }
        Ok(())
    }

    pub(super) fn index_of(&self, task: &TaskId) -> Option<usize> {
        self.by_id.get(task).copied()
    }
}
