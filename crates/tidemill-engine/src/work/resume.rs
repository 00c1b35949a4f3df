//! Resume: failed tasks get a new run; what is completed stays.

use std::collections::HashSet;

use tidemill_model::events::properties::{TaskIdentity, TaskPending};
use tidemill_model::work::dag;
use tidemill_model::{
    JobId, JobStatus, Json, KnownType, Outcome, RequestId, TaskHead, TaskId, TenantId, Timestamp,
};

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, identity, spec_of};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::job::Job;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::queue::dead_letter::close_letter;
use crate::triage::{Unparked, ingest};
use crate::work::rows::{job_rows, letter_rows, steered_rows};
use crate::work::submitting::tenant_limit;

#[derive(Debug, Clone)]
pub struct Resume {
    pub tenant: TenantId,
    pub target: ResumeTarget,
}

impl Decision for Resume {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        match &self.target {
            ResumeTarget::Job { job, .. } => {
                let mut keys = job_rows(state, &self.tenant, *job);
                keys.extend(letter_rows(state, &self.tenant, *job));
                keys
            }
            ResumeTarget::Task(request) => {
                let key = TaskKey { tenant: self.tenant.clone(), request: request.clone() };
                steered_rows(state, &key)
            }
        }
    }

    fn large_field(&self) -> &'static str {
        "tasks"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

#[derive(Debug, Clone)]
pub enum ResumeTarget {
    /// All failed tasks of the job, or the named ones.
    Job {
        job: JobId,
        tasks: Option<Vec<TaskId>>,
    },
    Task(RequestId),
}

pub(crate) fn decide(state: &State, command: &Resume, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
    match &command.target {
        ResumeTarget::Task(request) => {
            let key = TaskKey { tenant: command.tenant.clone(), request: request.clone() };
            let Some(task) = state.task(&key) else {
                return Err(Refusal::NotFound { what: "task", id: request.to_string() });
            };
            if let TaskPlace::InJob { job, .. } = task.place {
                reopen_job(job, draft);
            }
            reopen(&key, &task, draft)?;
            tenant_limit::check_again(state, &key, &task, draft)?;
            leave_parking(state, &key, &task, draft);
            close_letter(state, &key, &task, draft);
            Ok(Reply::Resumed { tasks: vec![key.request] })
        }
        ResumeTarget::Job { job, tasks } => {
            let Some(job) = state.job(&command.tenant, *job) else {
                return Err(Refusal::NotFound { what: "job", id: job.to_string() });
            };
            let indexes: Vec<u32> = match tasks {
                None => job.failed.iter().chain(&job.parked).copied().collect(),
                Some(named) => {
                    let mut indexes = Vec::with_capacity(named.len());
                    let mut known = HashSet::with_capacity(named.len());
                    for task in named {
                        let index = job.index_of(task.as_str());
                        let index =
                            index.ok_or_else(|| Refusal::NotFound { what: "task", id: task.to_string() })?;
                        if known.insert(index) {
                            indexes.push(index);
                        }
                    }
                    indexes
                }
            };
            if indexes.is_empty() {
                return Err(Refusal::NothingToResume);
            }
            reopen_job(job, draft);
            let mut resumed = Vec::with_capacity(indexes.len());
            for index in indexes.iter().copied() {
                let key = TaskKey { tenant: command.tenant.clone(), request: job.request_of(index) };
                let task = TaskRef { entry: &job.node(index).entry, place: TaskPlace::InJob { job, index } };
                reopen(&key, &task, draft)?;
                leave_parking(state, &key, &task, draft);
                close_letter(state, &key, &task, draft);
                resumed.push(key.request);
            }
            let nodes = indexes.into_iter().map(|index| job.node(index));
            let ended = nodes.filter(|node| !node.entry.is_live()).map(|node| &node.spec);
            tenant_limit::check_in_job(state, job, ended, draft)?;
            Ok(Reply::Resumed { tasks: resumed })
        }
    }
}

pub(crate) fn reopen_job(job: &Job, draft: &mut Draft<'_, '_>) {
    if job.head.status() == JobStatus::Cancelled {
        draft.record(RecordWrite::JobCancelled {
            tenant: job.head.tenant.clone(),
            job: job.head.job,
            cancelled: false,
        });
    }
}

/// A parked task that is run again waits for nobody.
pub(crate) fn leave_parking(state: &State, key: &TaskKey, task: &TaskRef<'_>, draft: &mut Draft<'_, '_>) {
    if task.entry.head.as_ref().is_some_and(TaskHead::is_parked) {
        let at = draft.now();
        ingest::unpark_task(state, draft, key, Unparked::WentOn { at });
    }
}

/// Opens the next run of a failed or parked task: head, message, `Task Pending`.
pub(crate) fn reopen(key: &TaskKey, task: &TaskRef<'_>, draft: &mut Draft<'_, '_>) -> Result<(), Refusal> {
    let is_over = |head: &&TaskHead| head.outcome().map_or(head.is_parked(), Outcome::may_resume);
    let failed = task.entry.head.as_ref().filter(is_over);
    let Some(run) = failed.and_then(|head| head.run.checked_add(1)) else {
        return Err(Refusal::NotResumable(key.request.to_string()));
    };
    draft.change(key, TaskChangeKind::Reopen { run });
    draft.enqueue(key, run, draft.now());
    let spec = spec_of(task);
    let identity = TaskIdentity { run, ..identity(&key.request, task) };
    let pending = match task.place {
        TaskPlace::InJob { .. } => TaskPending::in_job(identity, spec.name.clone(), &spec.depends_on),
        TaskPlace::Alone(_) => TaskPending::alone(identity, spec.name.clone()),
    };
    let mut subject = draft.task_subject(key, task);
    draft.event(&mut subject, KnownType::TaskPending, By::component(Origin::ProducerApi), Json::of(&pending));
    Ok(())
}

impl<B: Backend> Engine<B> {
    /// Opens a new run of all failed tasks of a job, or of the named ones, and tells which.
    pub async fn resume_job(
        &self,
        tenant: TenantId,
        job: JobId,
        tasks: Option<Vec<TaskId>>,
    ) -> Result<Vec<RequestId>, EngineError> {
        if let Some(tasks) = &tasks
            && tasks.len() > dag::JOB_TASKS_MAX
        {
            let (field, count, limit) = ("taskIds", tasks.len(), dag::JOB_TASKS_MAX);
            return Err(Refusal::TooMany { field, count, limit }.into());
        }
        self.resume(Resume { tenant, target: ResumeTarget::Job { job, tasks } }).await
    }

    /// Opens a new run of a failed task, in a job or on its own.
    pub async fn resume_task(&self, tenant: TenantId, request: RequestId) -> Result<(), EngineError> {
        self.resume(Resume { tenant, target: ResumeTarget::Task(request) }).await.map(|_| ())
    }

    async fn resume(&self, resume: Resume) -> Result<Vec<RequestId>, EngineError> {
        let reply = self.execute(Command::Resume(resume)).await?;
        take_reply!(reply, Reply::Resumed { tasks } => tasks)
    }
}
