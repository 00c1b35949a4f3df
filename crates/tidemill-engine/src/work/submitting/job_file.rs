//! Submitting what clients write: job files, further tasks, tasks on their own.
//!
//! Names become pinned definitions, settings become options, and a command or an agent that the file brings along needs
//! the right to do so.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidemill_model::authored::field_problem::{FieldProblems, code};
use tidemill_model::authored::job_file::COUNTY_LABEL;
use tidemill_model::{
    AddTasksFile, AppName, CallbackUrl, Definition, JobFile, JobId, Json, Pinned, Runner, RunnerSpec,
    TaskEntry, TaskFile, TaskId, TaskName, TaskOptions, TaskSettings, TaskSpec, TaskWork, TenantId,
};

use crate::engine::limits::FILE_TASKS_BYTES_MAX;
use crate::engine::{
    AddedTasks, Engine, EngineError, IdempotencyKey, JobRequest, SubmittedJob, SubmittedTask, TaskRequest,
};
use crate::kernel::backend::Backend;
use crate::kernel::command::Once;
use crate::kernel::record::{Idempotency, RecordValue};
use crate::work::submitting::submit_job::{check_job, once, once_by_file};
use crate::work::submitting::submit_task::ALONE;

/// What a client may do with the files it hands in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// Bring commands and agents along, and set any variable. A client without this right sets only variables that
    /// the definition opens.
    pub inline: bool,
}

/// The newest definitions of the names that a file uses.
pub(crate) type Definitions = HashMap<TaskName, Definition, foldhash::fast::RandomState>;

/// A key that expires within this time does not excuse a file that can no longer be resolved.
const KEY_LEFT_MILLIS: u64 = 60_000;

impl<B: Backend> Engine<B> {
    /// Creates the job of a file. Repeating it with the same `requestId` or key gives the same job, even if a
    /// definition has changed or gone meanwhile.
    pub async fn submit_job_file(
        &self,
        tenant: TenantId,
        app: AppName,
        file: JobFile,
        rights: Rights,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<SubmittedJob, EngineError> {
        let (request, promises) = self.job_of_file(tenant, app, file, rights, idempotency).await?;
        self.submit_job_once(request, promises, FILE_TASKS_BYTES_MAX).await
    }

    /// What would be wrong with submitting a file; else how many tasks it has. Nothing is kept.
    pub async fn check_job_file(
        &self,
        tenant: TenantId,
        app: AppName,
        file: JobFile,
        rights: Rights,
    ) -> Result<u32, EngineError> {
        let (request, _) = self.job_of_file(tenant, app, file, rights, None).await?;
        check_job(&request, FILE_TASKS_BYTES_MAX)?;
        Ok(u32::try_from(request.tasks.len()).unwrap_or(u32::MAX))
    }

    /// The job that a file asks for, and what makes repeats of it harmless.
    pub(crate) async fn job_of_file(
        &self,
        tenant: TenantId,
        app: AppName,
        file: JobFile,
        rights: Rights,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(JobRequest, Vec<Once>), EngineError> {
        check_rights(listed(&file.tasks).map(|(path, work, _)| (path, work)), rights)?;
        let mut promises = Vec::new();
        if let Some(key) = &idempotency {
            promises.push(once(&tenant, key)?);
        }
        if let Some(id) = &file.request_id {
            promises.push(once_by_file(&tenant, "job requestId", id, &app, &digest_of_job(&file)));
        }
        self.check_callback(file.callback.as_ref(), &promises).await?;
        let names = file.tasks.iter().enumerate().map(|(at, task)| (format!("tasks[{at}].name"), &task.work));
        let definitions = self.definitions_of(&tenant, names, &promises).await?;
        self.check_variables(listed(&file.tasks), &definitions, rights, &promises).await?;
        let default = self.policy().retry;
        let tasks = specs_of(file.tasks, &definitions, default);
        let request = JobRequest {
            tenant,
            app,
            request: file.request_id,
            name: file.name,
            budget: file.budget,
            callback: file.callback,
            tasks,
            idempotency: None,
        };
        Ok((request, promises))
    }

    /// Adds the tasks of a file to a job.
    pub async fn add_tasks_file(
        &self,
        tenant: TenantId,
        job: JobId,
        file: AddTasksFile,
        rights: Rights,
    ) -> Result<AddedTasks, EngineError> {
        let tasks = self.specs_of_file(&tenant, file, rights).await?;
        self.add_tasks_within(tenant, job, tasks, FILE_TASKS_BYTES_MAX).await
    }

    /// The tasks that a file asks for, with the newest definitions.
    pub(crate) async fn specs_of_file(
        &self,
        tenant: &TenantId,
        file: AddTasksFile,
        rights: Rights,
    ) -> Result<Vec<TaskSpec>, EngineError> {
        check_rights(listed(&file.tasks).map(|(path, work, _)| (path, work)), rights)?;
        let names = file.tasks.iter().enumerate().map(|(at, task)| (format!("tasks[{at}].name"), &task.work));
        let definitions = self.definitions_of(tenant, names, &[]).await?;
        self.check_variables(listed(&file.tasks), &definitions, rights, &[]).await?;
        let default = self.policy().retry;
        Ok(specs_of(file.tasks, &definitions, default))
    }

    /// Submits the task of a file. Repeats are answered as with a job.
    pub async fn submit_task_file(
        &self,
        tenant: TenantId,
        app: AppName,
        file: TaskFile,
        rights: Rights,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<SubmittedTask, EngineError> {
        check_rights(std::iter::once((String::new(), &file.work)), rights)?;
        let mut promises = Vec::new();
        if let Some(key) = &idempotency {
            promises.push(once(&tenant, key)?);
        }
        if let Some(id) = &file.request_id {
            promises.push(once_by_file(&tenant, "task requestId", id, &app, &digest_of_task(&file)));
        }
        let names = std::iter::once(("name".to_owned(), &file.work));
        let definitions = self.definitions_of(&tenant, names, &promises).await?;
        let alone = std::iter::once((String::new(), &file.work, &file.settings));
        self.check_variables(alone, &definitions, rights, &promises).await?;
        let entry = TaskEntry {
            task_id: TaskId::trusted(ALONE),
            work: file.work,
            depends_on: Vec::new(),
            input: file.input,
            settings: file.settings,
        };
        let spec = spec_of(entry, &definitions, self.policy().retry);
        let request = TaskRequest {
            tenant,
            app,
            request: file.request_id,
            name: spec.name,
            input: spec.input,
            options: spec.options,
            idempotency: None,
        };
        self.submit_task_once(request, promises).await
    }

    /// The definitions that a file names. Those that are missing are all told, unless the request was carried out
    /// before: then the answer needs none.
    async fn definitions_of<'f>(
        &self,
        tenant: &TenantId,
        names: impl Iterator<Item = (String, &'f TaskWork)>,
        once: &[Once],
    ) -> Result<Definitions, EngineError> {
        let mut found = Definitions::default();
        let mut missing: HashSet<&TaskName> = HashSet::new();
        let mut problems = FieldProblems::default();
        for (path, work) in names {
            let TaskWork::Named(name) = work else { continue };
            if found.contains_key(name) {
                continue;
            }
            let known = if missing.contains(name) {
                None
            } else {
                self.definition(tenant.clone(), name, None).await?
            };
            if let Some(definition) = known {
                found.insert(name.clone(), definition);
            } else {
                missing.insert(name);
                let message = format!("is {name}, which is no task definition");
                problems.add(path, code::UNKNOWN_TASK_DEFINITION, message);
            }
        }
        if problems.total > 0 && !self.was_done(once).await? {
            return Err(problems.into());
        }
        Ok(found)
    }

    /// Refuses hosts that the operator did not put on the list, unless the request was carried out before.
    pub(crate) async fn check_callback(
        &self,
        callback: Option<&CallbackUrl>,
        once: &[Once],
    ) -> Result<(), EngineError> {
        let Some(url) = callback else { return Ok(()) };
        if self.inner.callback_hosts.admits(url.host(), url.port()) || self.was_done(once).await? {
            return Ok(());
        }
        let message = format!("names the host {}, which CALLBACK_ALLOWED_HOSTS does not list", url.host());
        Err(FieldProblems::one("callbackUrl", code::INVALID_VALUE, message).into())
    }

    /// A client that may not bring commands sets only variables that a definition opens: too many programs take
    /// orders from their environment. A request that was carried out before gets the same answer as then.
    async fn check_variables<'f>(
        &self,
        tasks: impl Iterator<Item = (String, &'f TaskWork, &'f TaskSettings)>,
        definitions: &Definitions,
        rights: Rights,
        once: &[Once],
    ) -> Result<(), EngineError> {
        match variable_not_open(tasks, definitions).filter(|_| !rights.inline) {
            Some(refusal) if !self.was_done(once).await? => Err(refusal),
            _ => Ok(()),
        }
    }

    /// Whether the same request was carried out before.
    async fn was_done(&self, once: &[Once]) -> Result<bool, EngineError> {
        for once in once {
            let Some(record) = self.inner.backend.record(once.key.clone()).await? else { continue };
            let soon = self.inner.clock.now().plus(KEY_LEFT_MILLIS);
            let is_valid = record.expires_at.is_none_or(|at| at > soon);
            let is_same = matches!(&record.value,
                RecordValue::Idempotency(Idempotency { body_hash, .. }) if *body_hash == once.body_hash);
            if is_valid && is_same {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Refuses what only clients with the right to write definitions may hand in.
fn check_rights<'f>(
    tasks: impl Iterator<Item = (String, &'f TaskWork)>,
    rights: Rights,
) -> Result<(), EngineError> {
    if rights.inline {
        return Ok(());
    }
    for (path, work) in tasks {
        if let Some(field) = work.inline_field() {
            return Err(EngineError::InlineNotAllowed { field: format!("{path}{field}") });
        }
    }
    Ok(())
}

/// The tasks of a file with the path of each.
fn listed(tasks: &[TaskEntry]) -> impl Iterator<Item = (String, &TaskWork, &TaskSettings)> {
    tasks.iter().enumerate().map(|(at, task)| (format!("tasks[{at}]."), &task.work, &task.settings))
}

/// The first variable that the definition of its task does not open.
fn variable_not_open<'f>(
    mut tasks: impl Iterator<Item = (String, &'f TaskWork, &'f TaskSettings)>,
    definitions: &Definitions,
) -> Option<EngineError> {
    tasks.find_map(|(path, work, settings)| {
        let TaskWork::Named(definition) = work else { return None };
        variable_closed(&path, &settings.env, definitions.get(definition)?)
    })
}

/// The first of some variables that a definition does not open.
pub(crate) fn variable_closed(
    path: &str,
    env: &BTreeMap<String, String>,
    definition: &Definition,
) -> Option<EngineError> {
    let open = &definition.draft.open_env;
    let closed = env.keys().find(|name| !open.contains(*name))?;
    Some(EngineError::VariableNotOpen {
        field: format!("{path}env.{closed}"),
        definition: definition.name().clone(),
        opens_any: !open.is_empty(),
    })
}

/// What a definition says of a task that says nothing itself.
pub(crate) fn options_of(definition: &Definition, default: tidemill_model::RetryPolicy) -> TaskOptions {
    let name = definition.name().clone();
    let task = TaskEntry {
        task_id: TaskId::trusted(ALONE),
        work: TaskWork::Named(name.clone()),
        depends_on: Vec::new(),
        input: Json::empty_object(),
        settings: TaskSettings::default(),
    };
    let known = std::iter::once((name, definition.clone())).collect();
    spec_of(task, &known, default).options
}

/// What the tasks of a file do. Those that are carried out the same way share the text that says how: a job may have
/// 100,000 of them.
fn specs_of(
    tasks: Vec<TaskEntry>,
    definitions: &Definitions,
    default: tidemill_model::RetryPolicy,
) -> Vec<TaskSpec> {
    let mut last: Option<Json> = None;
    let specs = tasks.into_iter().map(|task| {
        let mut spec = spec_of(task, definitions, default);
        if spec.options.execution == last {
            spec.options.execution.clone_from(&last);
        } else {
            last.clone_from(&spec.options.execution);
        }
        spec
    });
    specs.collect()
}

/// A task as the engine takes it: its own settings over those of its definition.
pub(crate) fn spec_of(
    task: TaskEntry,
    definitions: &Definitions,
    default: tidemill_model::RetryPolicy,
) -> TaskSpec {
    let TaskEntry { task_id, work, depends_on, input, settings } = task;
    let mut county = settings.labels.get(COUNTY_LABEL).cloned();
    let mut execution = RunnerSpec {
        idle_timeout_ms: settings.idle_timeout.map(|span| span.0),
        env: settings.env,
        secrets: settings.secrets,
        path: settings.path,
        labels: settings.labels,
        ..RunnerSpec::default()
    };
    let (mut timeout, mut retry) = (settings.timeout, settings.retry);
    let (mut on_failure, mut park_timeout) = (settings.on_failure, settings.park_timeout);
    let mut agent = false;
    let name = match work {
        TaskWork::Inline(run) => {
            execution.run = Some(run);
            TaskName::trusted(task_id.as_str())
        }
        TaskWork::Agent(spec) => {
            execution.agent = Some(*spec);
            agent = true;
            TaskName::trusted(task_id.as_str())
        }
        TaskWork::Script(source) => {
            execution.script = Some(source);
            TaskName::trusted(task_id.as_str())
        }
        TaskWork::Named(name) => {
            if let Some((name, definition)) = definitions.get_key_value(&name) {
                let draft = &definition.draft;
                agent = draft.runner == Runner::Agent;
                execution.definition = Some(Pinned { name: name.clone(), version: definition.version });
                timeout = timeout.or(draft.attempt_timeout());
                retry = retry.over(draft.retry);
                retry.max_attempts = retry.max_attempts.or(draft.max_attempts);
                on_failure = on_failure.or(draft.on_failure);
                park_timeout = park_timeout.or(draft.park_timeout);
                county = county.or_else(|| draft.labels.get(COUNTY_LABEL).cloned());
            }
            name
        }
    };
    let options = TaskOptions {
        retry: retry.policy(default),
        timeout_ms: timeout.map(|span| span.0),
        execution: Some(Json::of(&execution)),
        agent,
        on_failure: on_failure.unwrap_or_default(),
        park_timeout_ms: park_timeout.map(|span| span.0),
        county,
    };
    TaskSpec { task_id, name, depends_on, input, options }
}

/// What makes the job, apart from what its definitions were at the time.
fn digest_of_job(file: &JobFile) -> String {
    let mut text = format!("{:?}", file.name);
    if let Some(budget) = file.budget {
        text.push_str(Json::of(&budget).as_str());
    }
    if let Some(callback) = &file.callback {
        text.push_str(callback.as_str());
        text.push(' ');
    }
    for task in &file.tasks {
        push_task(&mut text, task.task_id.as_str(), &task.work, &task.input, &task.settings);
        for parent in &task.depends_on {
            text.push_str(parent.as_str());
            text.push(' ');
        }
    }
    text
}

fn digest_of_task(file: &TaskFile) -> String {
    let mut text = String::new();
    push_task(&mut text, "", &file.work, &file.input, &file.settings);
    text
}

fn push_task(text: &mut String, id: &str, work: &TaskWork, input: &Json, settings: &TaskSettings) {
    use std::fmt::Write;
    let TaskSettings { timeout, idle_timeout, retry, env, secrets, path, labels, on_failure, park_timeout } =
        settings;
    let times = (timeout.map(|span| span.0), idle_timeout.map(|span| span.0));
    let tries =
        (retry.max_attempts, retry.first_delay.map(|span| span.0), retry.max_delay.map(|span| span.0));
    let work = match work {
        TaskWork::Named(name) => Json::of(&[name.as_str()]),
        TaskWork::Inline(run) => Json::of(&(None::<u8>, run)),
        TaskWork::Agent(agent) => Json::of(&(None::<u8>, None::<u8>, agent)),
        TaskWork::Script(source) => Json::of(&(None::<u8>, None::<u8>, None::<u8>, source)),
    };
    let parts = Json::of(&(id, work, times, tries, env, labels));
    write!(text, "\n{}\n{}\n", parts.as_str(), input.as_str()).expect("writing to a string does not fail");
    // What follows is left out when it is not given, so that what was submitted before is known again.
    if let Some(on_timeout) = retry.on_timeout {
        text.push_str(if on_timeout { "onTimeout" } else { "noOnTimeout" });
    }
    if on_failure.is_some() || park_timeout.is_some() {
        let parking = Json::of(&(on_failure, park_timeout.map(|span| span.0)));
        text.push_str(parking.as_str());
    }
    if !secrets.is_empty() || !path.is_empty() {
        text.push_str(Json::of(&(secrets, path)).as_str());
    }
}
