//! Claiming work, and what a claimed task needs to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::work::artifact::{ARTIFACTS_FOLDER, attempt_folder, parts_of_kept};
use tidemill_model::work::task_input::{DEPENDENCY_ARTIFACTS, DEPENDENCY_OUTPUTS};
use tidemill_model::{
    ArtifactFile, Entity, Event, Fence, Json, KnownType, Owner, RequestId, TaskId, TenantId, Timestamp,
    Usage, WorkerId,
};

use crate::engine::limits::{
    DIRECTORY_BYTES_MAX, INPUT_FILES_MAX, VARIABLE_NAME_BYTES_MAX, VARIABLES_MAX, WORK_BYTES_MAX,
};
use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{Begin, Claim, Command, Release, Spent, Surroundings};
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::{Assignment, Reply};
use crate::outside::lenient::{if_readable, or_default};

/// A worker that asks for tasks.
#[derive(Debug, Clone)]
pub struct Claimant {
    pub worker: WorkerId,
    /// The life of the data directory the worker belongs to; `None` for a worker on another machine.
    pub generation: Option<u64>,
    /// How many tasks it can take, from 1 to the policy's `claim_max`.
    pub max: usize,
    /// The tenants it may serve; `None` for all.
    pub tenants: Option<Arc<[TenantId]>>,
    /// Says in the same commit that work began, under this process id. A worker that starts child processes leaves it
    /// out and calls `begin`.
    pub begin: Option<u32>,
}

impl Claimant {
    /// A worker inside the server that runs its tasks in this process.
    pub fn in_process(worker: WorkerId, generation: u64, max: usize) -> Self {
        Self { worker, generation: Some(generation), max, tenants: None, begin: Some(std::process::id()) }
    }
}

/// The process of a claimed task began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beginning {
    pub process_id: u32,
    pub surroundings: Surroundings,
}

impl From<u32> for Beginning {
    fn from(process_id: u32) -> Self {
        Self { process_id, surroundings: Surroundings::default() }
    }
}

impl Beginning {
    /// What does not fit is left out: it is for reading only.
    pub(crate) fn command(self, task: TaskKey, fence: Fence, worker: WorkerId) -> Command {
        let Self { process_id, mut surroundings } = self;
        let is_path = |path: &String| path.len() <= DIRECTORY_BYTES_MAX && !path.contains(char::is_control);
        surroundings.directory = surroundings.directory.filter(is_path);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        surroundings
            .variables
            .retain(|name| (1..=VARIABLE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits));
        surroundings.variables.truncate(VARIABLES_MAX);
        Command::Begin(Begin { task, fence, worker, process_id, surroundings })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    pub tasks: Vec<Assignment>,
    /// When nothing could be claimed: the next moment at which it is worth trying, as far as it is known.
    pub next: Option<Timestamp>,
}

/// What a task runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// The static input and, for a task with dependencies, `dependencyOutputs`; and `dependencyArtifacts` if any of them
    /// left files.
    pub input: Json,
    /// The output of each dependency, in the order of `dependsOn`.
    pub dependency_outputs: Vec<(TaskId, Json)>,
    /// The files of the dependencies that left any.
    pub dependency_artifacts: Vec<ParentFiles>,
}

/// The files that the completed attempt of a parent left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentFiles {
    pub task: TaskId,
    pub request: RequestId,
    pub run: u32,
    pub attempt: u32,
    pub fence: Fence,
    /// By their paths below `artifacts`.
    pub artifacts: Vec<ArtifactFile>,
}

impl ParentFiles {
    /// Where one of them lies among the files of the parent.
    pub fn kept_path(&self, path: &str) -> String {
        format!("{}/{ARTIFACTS_FOLDER}/{path}", attempt_folder(self.run, self.attempt))
    }
}

/// The part of a completion that children need.
#[derive(Deserialize)]
struct Completion {
    #[serde(default, deserialize_with = "given")]
    output: Option<Json>,
    #[serde(default, deserialize_with = "or_default")]
    artifacts: Vec<ArtifactFile>,
    #[serde(default, deserialize_with = "if_readable")]
    fence: Option<Fence>,
}

/// An output that is null is an output all the same.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

impl<B: Backend> Engine<B> {
    /// Takes tasks for a worker. An empty answer comes at once; `work_arrived` waits.
    pub async fn claim(&self, request: Claimant) -> Result<Claimed, EngineError> {
        let command = self.claim_command(request)?;
        let reply = self.execute(command).await?;
        take_reply!(reply, Reply::Claimed { tasks, next } => Claimed { tasks, next })
    }

    pub(crate) fn claim_command(&self, request: Claimant) -> Result<Command, EngineError> {
        check::count("max", request.max, self.policy().claim_max)?;
        let owner = Owner { worker: Arc::from(request.worker.as_str()), generation: request.generation };
        Ok(Command::Claim(Claim {
            owner,
            worker: request.worker,
            max: request.max,
            tenants: request.tenants,
            begin: request.begin,
        }))
    }

    /// Waits until there may be something to claim for one of `tenants`. It may return early.
    pub async fn work_arrived(&self, tenants: Option<Arc<[TenantId]>>) {
        self.inner.backend.work(tenants).await;
    }

    /// Says that the child process of a claimed task runs.
    pub async fn begin(
        &self,
        task: TaskKey,
        fence: Fence,
        worker: WorkerId,
        beginning: Beginning,
    ) -> Result<(), EngineError> {
        let reply = self.execute(beginning.command(task, fence, worker)).await?;
        take_reply!(reply, Reply::Begun => ())
    }

    /// Gives a task back without an outcome; another worker may take it at once and no attempt is counted.
    pub async fn release(
        &self,
        task: TaskKey,
        fence: Fence,
        worker: WorkerId,
        reason: Option<String>,
    ) -> Result<(), EngineError> {
        self.release_spent(task, fence, worker, reason, Spent::default()).await
    }

    /// Like `release`, for an attempt that had used something. It is recorded with the reason.
    pub async fn release_spent(
        &self,
        task: TaskKey,
        fence: Fence,
        worker: WorkerId,
        reason: Option<String>,
        spent: Spent,
    ) -> Result<(), EngineError> {
        let reason = reason.map(|reason| self.clean(&reason));
        let spent = Spent { usage: spent.usage.map(Usage::bounded), ..spent };
        let reply = self.execute(Command::Release(Release { task, fence, worker, reason, spent })).await?;
        take_reply!(reply, Reply::Released => ())
    }

    /// The effective input of a claimed task. It is read outside the writer, so parents' outputs delay nobody else.
    pub async fn work_of(&self, assignment: &Assignment) -> Result<Work, EngineError> {
        let parents: Vec<_> = assignment.parents().map(|(task, request)| (task.clone(), request)).collect();
        self.resolve(&assignment.task.tenant, assignment.input(), parents).await
    }

    pub(crate) async fn resolve(
        &self,
        tenant: &TenantId,
        input: &Json,
        parents: Vec<(TaskId, RequestId)>,
    ) -> Result<Work, EngineError> {
        if parents.is_empty() {
            let (dependency_outputs, dependency_artifacts) = (Vec::new(), Vec::new());
            return Ok(Work { input: input.clone(), dependency_outputs, dependency_artifacts });
        }
        let mut dependency_outputs = Vec::with_capacity(parents.len());
        let mut dependency_artifacts = Vec::new();
        let (mut size, mut files) = (input.len(), 0);
        for (task, request) in parents {
            let completed = self.completed(tenant, &request).await?;
            let output = completed.output.unwrap_or_else(Json::empty_object);
            size += output.len() + task.as_str().len();
            check::size(DEPENDENCY_OUTPUTS, size, WORK_BYTES_MAX)?;
            if let Some(parent) = parent_files(&task, request, completed.fence, completed.artifacts) {
                files += parent.artifacts.len();
                check::between(DEPENDENCY_ARTIFACTS, files as u64, 0..=INPUT_FILES_MAX as u64)?;
                dependency_artifacts.push(parent);
            }
            dependency_outputs.push((task, output));
        }
        let input = merged(input, &dependency_outputs, &dependency_artifacts);
        Ok(Work { input, dependency_outputs, dependency_artifacts })
    }

    /// The files of one parent of a task, if it has a parent of that name which left any.
    pub async fn files_of_parent(
        &self,
        task: &TaskKey,
        parent: &TaskId,
    ) -> Result<Option<ParentFiles>, EngineError> {
        let Some(snapshot) = self.inner.backend.task(task.clone()).await? else { return Ok(None) };
        let Some(job) = snapshot.job.filter(|_| snapshot.spec.depends_on.contains(parent)) else {
            return Ok(None);
        };
        let request = job.request_id(parent);
        let completed = self.completed(&task.tenant, &request).await?;
        Ok(parent_files(parent, request, completed.fence, completed.artifacts))
    }

    /// A file that a parent left. One that is not kept any more is an error.
    pub async fn parent_file(
        &self,
        tenant: &TenantId,
        parent: &ParentFiles,
        path: &str,
    ) -> Result<Vec<u8>, EngineError> {
        let key = TaskKey { tenant: tenant.clone(), request: parent.request.clone() };
        let path = parent.kept_path(path);
        let found = self.task_file(&key, &path).await?;
        found.ok_or_else(|| EngineError::BlobMissing { key: format!("task/logs/{}/{path}", parent.request) })
    }

    /// What a completed task gave and left.
    async fn completed(&self, tenant: &TenantId, request: &RequestId) -> Result<Completion, EngineError> {
        let event = self.rehydrate(self.completion_of(tenant, request).await?).await?;
        let completed = event.properties.read();
        Ok(completed.map_err(|error| {
            Fault::Damaged(format!("the completion of {request} cannot be read: {error}"))
        })?)
    }

    /// What a completed task gave and left, if that is in its event; `None` if there is none.
    pub(crate) async fn small_completion(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<(Option<Json>, Vec<ArtifactFile>)>, EngineError> {
        let event = match self.completion_of(tenant, request).await {
            Ok(event) => event,
            Err(EngineError::Fault(Fault::Damaged(_))) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Ok(completion) = event.properties.read::<Completion>() else { return Ok(None) };
        let fence = completion.fence;
        let files = parent_files(&TaskId::trusted("-"), request.clone(), fence, completion.artifacts);
        Ok(Some((completion.output, files.map_or_else(Vec::new, |files| files.artifacts))))
    }

    async fn completion_of(&self, tenant: &TenantId, request: &RequestId) -> Result<Event, EngineError> {
        let entity = Entity::task(request);
        let is_completion = |event: &Event| event.event_type.as_str() == KnownType::TaskCompleted.as_str();
        if let Some(latest) = self.inner.backend.latest(tenant.clone(), entity.clone()).await?
            && is_completion(&latest)
        {
            return Ok(latest);
        }
        let path = AccessPath::TypeEntity(KnownType::TaskCompleted.event_type(), entity);
        let query =
            EventQuery { order: Order::Descending, limit: 1, ..EventQuery::all(tenant.clone(), path) };
        let page = self.inner.backend.events(query).await?;
        let lost = || {
            if self.inner.backend.events_lag() {
                return Fault::Unavailable(format!(
                    "the event that completed task {request} cannot be read yet"
                ));
            }
            Fault::Damaged(format!("task {request} is completed and has no Task Completed event"))
        };
        Ok(page.events.into_iter().next().ok_or_else(lost)?)
    }
}

/// The files that a completion names, which are all of one attempt.
fn parent_files(
    task: &TaskId,
    request: RequestId,
    fence: Option<Fence>,
    artifacts: Vec<ArtifactFile>,
) -> Option<ParentFiles> {
    let (run, attempt, _) = parts_of_kept(&artifacts.first()?.path)?;
    let inner = |artifact: ArtifactFile| {
        let (_, _, path) =
            parts_of_kept(&artifact.path).filter(|parts| (parts.0, parts.1) == (run, attempt))?;
        Some(ArtifactFile { path: path.to_owned(), ..artifact })
    };
    let artifacts = artifacts.into_iter().filter_map(inner).collect();
    Some(ParentFiles { task: task.clone(), request, run, attempt, fence: fence?, artifacts })
}

/// `input` with the outputs and the names of files under their reserved keys. Text is copied, so values stay as they were
/// written.
fn merged(input: &Json, outputs: &[(TaskId, Json)], files: &[ParentFiles]) -> Json {
    let body = input.as_str().strip_prefix('{').unwrap_or_default();
    let body = body.strip_suffix('}').unwrap_or(body).trim_end();
    let length = outputs.iter().map(|(task, output)| task.as_str().len() + output.len() + 4).sum::<usize>();
    let mut text = String::with_capacity(input.len() + length + 32);
    text.push('{');
    text.push_str(body);
    if !body.trim_start().is_empty() {
        text.push(',');
    }
    text.push('"');
    text.push_str(DEPENDENCY_OUTPUTS);
    text.push_str("\":{");
    for (place, (task, output)) in outputs.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        text.push('"');
        text.push_str(task.as_str());
        text.push_str("\":");
        text.push_str(output.as_str());
    }
    text.push('}');
    if !files.is_empty() {
        let files: BTreeMap<&TaskId, &[ArtifactFile]> =
            files.iter().map(|parent| (&parent.task, &*parent.artifacts)).collect();
        text.push_str(",\"");
        text.push_str(DEPENDENCY_ARTIFACTS);
        text.push_str("\":");
        text.push_str(Json::of(&files).as_str());
    }
    text.push('}');
    Json::trusted(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_stand_beside_the_input() {
        let outputs = [
            (TaskId::trusted("a"), Json::parse("[1e400]".to_owned()).unwrap()),
            (TaskId::trusted("b"), Json::empty_object()),
        ];
        for (input, outputs, expected) in [
            ("{}", &outputs[..], r#"{"dependencyOutputs":{"a":[1e400],"b":{}}}"#),
            ("{ }", &outputs[1..], r#"{"dependencyOutputs":{"b":{}}}"#),
            (r#"{"x":{}}"#, &outputs[1..], r#"{"x":{},"dependencyOutputs":{"b":{}}}"#),
            ("{\n\"x\": 1\n}", &outputs[1..], "{\n\"x\": 1,\"dependencyOutputs\":{\"b\":{}}}"),
        ] {
            let merged = merged(&Json::parse(input.to_owned()).unwrap(), outputs, &[]);
            assert_eq!(merged.as_str(), expected);
        }
        let kept =
            |path: &str| ArtifactFile { path: path.to_owned(), size_bytes: 1, sha256: "00".to_owned() };
        let left = vec![kept("r1-a2/artifacts/x/y"), kept("r1-a1/artifacts/old"), kept("r1-a2/logs/z")];
        let files =
            parent_files(&TaskId::trusted("b"), RequestId::trusted("b"), Some(Fence(3)), left).unwrap();
        assert_eq!((files.run, files.attempt), (1, 2));
        assert_eq!(files.kept_path("x/y"), "r1-a2/artifacts/x/y");
        let merged = merged(&Json::empty_object(), &outputs[1..], &[files]);
        assert_eq!(
            merged.as_str(),
            r#"{"dependencyOutputs":{"b":{}},"dependencyArtifacts":{"b":[{"path":"x/y","sizeBytes":1,"sha256":"00"}]}}"#
        );
    }
}
