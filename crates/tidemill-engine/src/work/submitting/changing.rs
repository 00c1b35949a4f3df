//! Other work for tasks that did not complete: from a changed file, or from the newest definitions.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tidemill_model::authored::field_problem::{FieldProblems, code};
use tidemill_model::events::properties::{CHANGED_TASKS_MAX, ChangeSource, ChangedTask, JobTasksChanged};
use tidemill_model::{
    AddTasksFile, JobId, Json, PublicState, RequestId, RunnerSpec, TaskId, TaskName, TaskOptions, TaskSpec,
    TenantId,
};

use crate::engine::limits::{FILE_TASKS_BYTES_MAX, LIST_MAX};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::{Backend, Fault, TaskSnapshot};
use crate::kernel::command::{ChangeTarget, ChangeTasks, Command, ResumeTarget};
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::{Refusal, Reply};
use crate::work::submitting::job_file::{Definitions, Rights, options_of, variable_closed};

/// What a changed file did to a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedTasks {
    pub changed: Vec<TaskId>,
    pub added: Vec<TaskId>,
    /// They differ in the file, and are completed: they stay as they are.
    pub kept: Vec<TaskId>,
}

/// A task as it is to be, and the fields that differ.
struct Change {
    spec: Arc<TaskSpec>,
    fields: Vec<&'static str>,
}

impl<B: Backend> Engine<B> {
    /// Gives the tasks of a job that did not complete the work of a file, and adds those that the job does not have.
    pub async fn change_tasks_file(
        &self,
        tenant: TenantId,
        job: JobId,
        file: AddTasksFile,
        rights: Rights,
        by: &str,
    ) -> Result<ChangedTasks, EngineError> {
        let tasks = self.specs_of_file(&tenant, file, rights).await?;
        check::added_tasks(&tasks)?;
        check::size("tasks", Json::of(&tasks).len(), FILE_TASKS_BYTES_MAX)?;
        let known = self.all_tasks(&tenant, job).await?;
        check_graph(&tasks, &known)?;
        let known: HashMap<&str, &TaskSnapshot> =
            known.iter().map(|task| (task.spec.task_id.as_str(), task)).collect();
        let mut done = ChangedTasks::default();
        let (mut changes, mut added) = (Vec::new(), Vec::new());
        for spec in tasks {
            let Some(task) = known.get(spec.task_id.as_str()) else {
                done.added.push(spec.task_id.clone());
                added.push(spec);
                continue;
            };
            let mut fields = differences(&task.spec, &spec);
            let is_completed = task.state == Some(PublicState::Completed);
            if is_completed {
                // The file does not say at which version it was run.
                fields.retain(|field| *field != "definition");
            }
            if fields.is_empty() {
                continue;
            }
            let list = if is_completed { &mut done.kept } else { &mut done.changed };
            list.push(spec.task_id.clone());
            if !is_completed {
                changes.push(Change { spec: Arc::new(spec), fields });
            }
        }
        if !changes.is_empty() {
            let target = job_target(job, changes, ChangeSource::Update, by);
            let command = ChangeTasks { tenant: tenant.clone(), target, resume: None };
            let reply = self.execute(Command::ChangeTasks(command)).await?;
            take_reply!(reply, Reply::TasksChanged => ())?;
        }
        if !added.is_empty() {
            self.add_tasks_within(tenant, job, added, FILE_TASKS_BYTES_MAX).await?;
        }
        Ok(done)
    }

    /// Opens a new run of all failed tasks of a job, or of the named ones. These, or all that did not complete, have
    /// their definitions at the newest versions from then on.
    pub async fn resume_job_newest(
        &self,
        tenant: TenantId,
        job: JobId,
        tasks: Option<Vec<TaskId>>,
        rights: Rights,
        by: &str,
    ) -> Result<Vec<RequestId>, EngineError> {
        let named: Option<BTreeSet<&TaskId>> = tasks.as_ref().map(|tasks| tasks.iter().collect());
        let mut changes = Vec::new();
        let mut definitions = Definitions::default();
        for task in self.all_tasks(&tenant, job).await? {
            let is_meant = named.as_ref().is_none_or(|named| named.contains(&task.spec.task_id));
            if is_meant && task.state != Some(PublicState::Completed) {
                changes.extend(self.newest(&tenant, &task.spec, rights, &mut definitions).await?);
            }
        }
        let target = job_target(job, changes, ChangeSource::Newest, by);
        let resume = Some(ResumeTarget::Job { job, tasks });
        let command = ChangeTasks { tenant, target, resume };
        let reply = self.execute(Command::ChangeTasks(command)).await?;
        take_reply!(reply, Reply::Resumed { tasks } => tasks)
    }

    /// Opens a new run of a failed task, in a job or on its own, with its definition at the newest version.
    pub async fn resume_task_newest(
        &self,
        tenant: TenantId,
        request: RequestId,
        rights: Rights,
        by: &str,
    ) -> Result<(), EngineError> {
        let key = TaskKey { tenant: tenant.clone(), request: request.clone() };
        let Some(task) = self.task(key).await? else {
            return Err(Refusal::NotFound { what: "task", id: request.to_string() }.into());
        };
        let change = self.newest(&tenant, &task.spec, rights, &mut Definitions::default()).await?;
        let target = match (task.job, change) {
            (Some(job), change) => job_target(job, change.into_iter().collect(), ChangeSource::Newest, by),
            (None, Some(Change { spec, .. })) => ChangeTarget::Alone { request: request.clone(), spec },
            (None, None) => return self.resume_task(tenant, request).await,
        };
        let command = ChangeTasks { tenant, target, resume: Some(ResumeTarget::Task(request)) };
        let reply = self.execute(Command::ChangeTasks(command)).await?;
        take_reply!(reply, Reply::Resumed { .. } => ())
    }

    /// All tasks of a job, in the order they were handed in.
    async fn all_tasks(&self, tenant: &TenantId, job: JobId) -> Result<Vec<TaskSnapshot>, EngineError> {
        if self.inner.backend.job(tenant.clone(), job).await?.is_none() {
            return Err(Refusal::NotFound { what: "job", id: job.to_string() }.into());
        }
        let mut all = Vec::new();
        loop {
            let from = u32::try_from(all.len()).unwrap_or(u32::MAX);
            let page = self.inner.backend.job_tasks(tenant.clone(), job, from, LIST_MAX).await?;
            let is_last = page.len() < LIST_MAX;
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// A task with the newest version of its definition; `None` if it has that already, or names none.
    async fn newest(
        &self,
        tenant: &TenantId,
        spec: &TaskSpec,
        rights: Rights,
        known: &mut Definitions,
    ) -> Result<Option<Change>, EngineError> {
        let Some(json) = &spec.options.execution else { return Ok(None) };
        let mut execution: RunnerSpec = json.read().map_err(|error| {
            Fault::Damaged(format!("the execution of {} cannot be read: {error}", spec.task_id))
        })?;
        let Some(pinned) = execution.definition.clone() else { return Ok(None) };
        let unknown = |name: &TaskName| Refusal::NotFound { what: "task definition", id: name.to_string() };
        if !known.contains_key(&pinned.name) {
            let found = self.definition(tenant.clone(), &pinned.name, None).await?;
            known.insert(pinned.name.clone(), found.ok_or_else(|| unknown(&pinned.name))?);
        }
        let newest = &known[&pinned.name];
        if newest.version == pinned.version {
            return Ok(None);
        }
        if !rights.inline
            && let Some(refusal) = variable_closed("", &execution.env, newest)
        {
            return Err(refusal);
        }
        let before = self.definition(tenant.clone(), &pinned.name, Some(pinned.version)).await?;
        let default = self.policy().retry;
        let (then, now) = (before.map(|before| options_of(&before, default)), options_of(newest, default));
        execution.definition = Some(tidemill_model::Pinned { version: newest.version, ..pinned });
        let execution = Some(Json::of(&execution));
        let options = TaskOptions { execution, ..renewed(&spec.options, then.as_ref(), &now) };
        let spec = TaskSpec { options, ..spec.clone() };
        Ok(Some(Change { spec: Arc::new(spec), fields: vec!["definition"] }))
    }
}

/// What the definition had said follows it; what the task says itself stays. Both look alike where they were the same.
fn renewed(own: &TaskOptions, then: Option<&TaskOptions>, now: &TaskOptions) -> TaskOptions {
    let Some(then) = then else { return TaskOptions { agent: now.agent, ..own.clone() } };
    TaskOptions {
        retry: if own.retry == then.retry { now.retry } else { own.retry },
        timeout_ms: if own.timeout_ms == then.timeout_ms { now.timeout_ms } else { own.timeout_ms },
        execution: own.execution.clone(),
        agent: now.agent,
        on_failure: if own.on_failure == then.on_failure { now.on_failure } else { own.on_failure },
        park_timeout_ms: if own.park_timeout_ms == then.park_timeout_ms {
            now.park_timeout_ms
        } else {
            own.park_timeout_ms
        },
        county: if own.county == then.county { now.county.clone() } else { own.county.clone() },
    }
}

fn job_target(job: JobId, changes: Vec<Change>, source: ChangeSource, by: &str) -> ChangeTarget {
    let tasks = changes.iter().take(CHANGED_TASKS_MAX).map(|change| ChangedTask {
        task_id: change.spec.task_id.clone(),
        fields: change.fields.iter().map(|field| (*field).to_owned()).collect(),
    });
    let told = JobTasksChanged {
        job_id: job,
        tasks: tasks.collect(),
        task_count: u32::try_from(changes.len()).unwrap_or(u32::MAX),
        source,
        by: by.to_owned(),
    };
    let told = Json::of(&told);
    let specs = changes.into_iter().map(|change| change.spec).collect();
    ChangeTarget::Job { job, specs: Arc::new(specs), told }
}

/// The graph of a job stays but for tasks that are added.
fn check_graph(tasks: &[TaskSpec], known: &[TaskSnapshot]) -> Result<(), EngineError> {
    let mut problems = FieldProblems::default();
    let stored: HashMap<&str, &TaskSpec> =
        known.iter().map(|task| (task.spec.task_id.as_str(), &*task.spec)).collect();
    let mut written: BTreeSet<&str> = BTreeSet::new();
    let parents = |spec: &TaskSpec| -> BTreeSet<String> {
        spec.depends_on.iter().map(|parent| parent.as_str().to_owned()).collect()
    };
    for (at, task) in tasks.iter().enumerate() {
        if !written.insert(task.task_id.as_str()) {
            let message = format!("is {}, as that of another task", task.task_id);
            problems.add(format!("tasks[{at}].taskId"), code::INVALID_TASK_ID, message);
        }
        let Some(before) =
            stored.get(task.task_id.as_str()).filter(|before| parents(before) != parents(task))
        else {
            continue;
        };
        let list = Vec::from_iter(parents(before)).join(", ");
        let list = if list.is_empty() { "nothing".to_owned() } else { list };
        let message = format!("differs: task {} of the job depends on {list}, and that stays", task.task_id);
        problems.add(format!("tasks[{at}].dependsOn"), code::GRAPH_CHANGED, message);
    }
    for task in known.iter().filter(|task| !written.contains(task.spec.task_id.as_str())) {
        let message = format!("lacks {}, which is a task of the job: none can be removed", task.spec.task_id);
        problems.add("tasks", code::GRAPH_CHANGED, message);
    }
    Ok(problems.or(())?)
}

/// The fields in which two forms of a task differ, as job files name them.
fn differences(then: &TaskSpec, now: &TaskSpec) -> Vec<&'static str> {
    let read = |spec: &TaskSpec| -> RunnerSpec {
        spec.options.execution.as_ref().and_then(|json| json.read().ok()).unwrap_or_default()
    };
    let (before, after) = (read(then), read(now));
    let name = |execution: &RunnerSpec| execution.definition.as_ref().map(|pinned| pinned.name.clone());
    let is_renamed = name(&before) != name(&after);
    let checks = [
        ("name", is_renamed),
        ("definition", !is_renamed && before.definition != after.definition),
        ("run", before.run != after.run),
        ("agent", before.agent != after.agent),
        ("script", before.script != after.script),
        ("input", then.input != now.input),
        ("timeout", then.options.timeout_ms != now.options.timeout_ms),
        ("idleTimeout", before.idle_timeout_ms != after.idle_timeout_ms),
        ("retry", then.options.retry != now.options.retry),
        ("env", before.env != after.env),
        ("secrets", before.secrets != after.secrets),
        ("path", before.path != after.path),
        ("labels", before.labels != after.labels),
        ("onFailure", then.options.on_failure != now.options.on_failure),
        ("parkTimeout", then.options.park_timeout_ms != now.options.park_timeout_ms),
    ];
    checks.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
}
