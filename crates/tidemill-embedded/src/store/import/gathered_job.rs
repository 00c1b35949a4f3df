//! A job whose lines are coming: head, task list, tasks.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_engine::commit::TaskKey;
use tidemill_engine::state::job::{JobHead, KeptTask};
use tidemill_engine::state::row::{Row, RowKey, StoredTask, TASKS_PER_LIST, task_lists};
use tidemill_model::work::dag;
use tidemill_model::{Entity, JobCounts, JobId, TaskHead, TaskSpec};

use super::Problem;
use super::fields::BadField;
use super::histories::Histories;
use super::line::{StreamSummary, TaskLine};
use crate::store::control::Control;

pub(super) struct GatheredJob {
    /// Where it began.
    pub(super) line: u64,
    head: JobHead,
    told: Option<StreamSummary>,
    tasks: Vec<Arc<TaskSpec>>,
    entries: Vec<(TaskKey, KeptTask)>,
}

impl GatheredJob {
    pub(super) fn new(line: u64, head: JobHead, told: Option<StreamSummary>) -> Self {
        Self { line, head, told, tasks: Vec::new(), entries: Vec::new() }
    }

    pub(super) fn add_specs(
        &mut self,
        job: JobId,
        first: usize,
        tasks: Vec<Arc<TaskSpec>>,
    ) -> Result<(), BadField> {
        if job != self.head.job {
            return Err(BadField::new("jobId", format!("is not that of the job before, {}", self.head.job)));
        }
        if first != self.tasks.len() {
            return Err(BadField::new(
                "first",
                format!("is {first}, but {} tasks came before", self.tasks.len()),
            ));
        }
        self.tasks.extend(tasks);
        Ok(())
    }

    pub(super) fn add_task(&mut self, task: TaskLine, histories: &mut Histories) -> Result<(), Problem> {
        let TaskLine { key, head, message, told, .. } = task;
        let is_own = key.tenant == self.head.tenant && key.request.job_part() == Some(self.head.job);
        if !is_own {
            let problem = format!("is not that of a task of the job before, {}", self.head.job);
            return Err(BadField::new("requestId", problem).into());
        }
        if self.entries.last().is_some_and(|(last, _)| *last >= key) {
            return Err(BadField::new("requestId", "comes twice or out of order").into());
        }
        let stream = histories.stream_with_summary(&key.tenant, &Entity::task(&key.request), told)?;
        self.entries.push((key, KeptTask { head, stream, message }));
        Ok(())
    }

    /// The job as the log carries it.
    pub(super) fn into_controls(mut self, histories: &mut Histories) -> Result<Vec<Control>, Problem> {
        let (tenant, job) = (self.head.tenant.clone(), self.head.job);
        if let Err(violations) = dag::check_addition(&self.tasks, 0, &|_| None) {
            return Err(BadField::wrong("tasks", &violations).into());
        }
        let mut counts = JobCounts::default();
        let mut known = self.entries.iter().peekable();
        let mut requests: Vec<_> = self.tasks.iter().map(|spec| job.request_id(&spec.task_id)).collect();
        requests.sort_unstable();
        for request in &requests {
            let entry = known.next_if(|(key, _)| key.request == *request).map(|(_, entry)| entry);
            *counts.of(entry.and_then(KeptTask::public_state)) += 1;
            let head = entry.and_then(|entry| entry.head.as_ref());
            counts.parked += u32::from(head.is_some_and(TaskHead::is_parked));
        }
        if let Some((stray, _)) = known.next() {
            return Err(
                BadField::new("requestId", format!("{} is not a task of {job}", stray.request)).into()
            );
        }
        self.head.counts = counts;
        self.head.stream = histories.stream_with_summary(&tenant, &Entity::job(job), self.told)?;
        let mut controls = vec![Control::Carry(RowKey::Job(tenant.clone(), job), Some(Row::Job(self.head)))];
        for first in task_lists(0, self.tasks.len()) {
            let list = self.tasks.iter().skip(first as usize).take(TASKS_PER_LIST).cloned().collect();
            let key = RowKey::JobTasks(tenant.clone(), job, first);
            controls.push(Control::Carry(key, Some(Row::JobTasks(list))));
        }
        let places: HashMap<&str, u32> =
            (0u32..).zip(&self.tasks).map(|(index, spec)| (spec.task_id.as_str(), index)).collect();
        // A task that was not dispatched has no row.
        let dispatched = self.entries.into_iter().filter(|(_, entry)| entry.head.is_some());
        controls.extend(dispatched.map(|(key, entry)| {
            let index = key.request.parts().and_then(|(_, task)| places.get(task).copied());
            Control::Carry(RowKey::Task(key), Some(Row::Task(StoredTask { alone: None, entry, index })))
        }));
        Ok(controls)
    }

    pub(super) fn key(&self) -> RowKey {
        RowKey::Job(self.head.tenant.clone(), self.head.job)
    }
}
