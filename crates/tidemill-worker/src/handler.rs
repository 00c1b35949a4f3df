//! Handlers: what a task's name stands for in an embedding program.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{Engine, EngineError, ParentFiles, Work};
use tidemill_engine::reply::Assignment;
use tidemill_model::{BadId, ErrorCategory, Fence, JobId, Json, RequestId, TaskId, TaskName, TenantId};

use crate::child::inputs::{NO_SECOND_RUN, sha256_of};

/// What a handler gets to know of its task.
#[derive(Debug, Clone)]
pub struct TaskContext {
    pub tenant: TenantId,
    pub request: RequestId,
    pub job: Option<JobId>,
    pub task: TaskId,
    pub name: TaskName,
    pub run: u32,
    /// Counts from 1 within the run.
    pub attempt: u32,
    /// Grows with every claim: what the task does outside can be guarded with it.
    pub fence: Fence,
    /// The static input and, for a task with dependencies, `dependencyOutputs` and `dependencyArtifacts`.
    pub input: Json,
    /// The output of each dependency, in the order of `dependsOn`.
    pub dependency_outputs: Vec<(TaskId, Json)>,
    /// The files of the dependencies that left any.
    pub dependency_artifacts: Vec<ParentFiles>,
    files: Files,
}

/// Reads the files of a task's dependencies.
#[derive(Clone)]
struct Files(Arc<dyn Fn(ParentFiles, String) -> Read + Send + Sync>);
type Read = Pin<Box<dyn Future<Output = Result<Vec<u8>, EngineError>> + Send>>;

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Files")
    }
}

impl TaskContext {
    pub(crate) fn new<B: Backend>(assignment: &Assignment, work: Work, engine: &Engine<B>) -> Self {
        let (engine, tenant) = (engine.clone(), assignment.task.tenant.clone());
        let files = Files(Arc::new(move |parent, path| {
            let (engine, tenant) = (engine.clone(), tenant.clone());
            Box::pin(async move { engine.parent_file(&tenant, &parent, &path).await })
        }));
        Self {
            tenant: assignment.task.tenant.clone(),
            request: assignment.task.request.clone(),
            job: assignment.job,
            task: assignment.spec.task_id.clone(),
            name: assignment.spec.name.clone(),
            run: assignment.run,
            attempt: assignment.attempt,
            fence: assignment.fence,
            input: work.input,
            dependency_outputs: work.dependency_outputs,
            dependency_artifacts: work.dependency_artifacts,
            files,
        }
    }

    /// A file that a dependency left, by its path below `artifacts`. Its content is the one that the dependency left, or
    /// there is an error that says why not.
    pub async fn artifact(&self, task: &str, path: &str) -> Result<Vec<u8>, TaskError> {
        let parent = self.dependency_artifacts.iter().find(|parent| parent.task.as_str() == task);
        let named = |parent: &&ParentFiles| parent.artifacts.iter().find(|file| file.path == path).cloned();
        let Some((parent, file)) = parent.and_then(|parent| named(&parent).map(|file| (parent, file))) else {
            let message = format!("task {task} is no dependency that left a file {path:?}");
            return Err(TaskError::new(ErrorCategory::NotFound, message));
        };
        let bytes = (self.files.0)(parent.clone(), path.to_owned()).await.map_err(|error| {
            let is_gone = matches!(error, EngineError::BlobMissing { .. });
            let category = if is_gone { ErrorCategory::NotFound } else { ErrorCategory::ServerError };
            let mut message = format!("artifact {path:?} of task {task} cannot be had: {error}");
            if is_gone {
                message = format!("{message}; {NO_SECOND_RUN}");
            }
            TaskError::new(category, message)
        })?;
        if sha256_of(&bytes) != file.sha256 {
            let message = format!("artifact {path:?} of task {task} is not what its task left");
            return Err(TaskError::fatal(message));
        }
        Ok(bytes)
    }

    /// The output of one dependency.
    pub fn output_of(&self, task: &str) -> Option<&Json> {
        self.dependency_outputs.iter().find(|(id, _)| id.as_str() == task).map(|(_, output)| output)
    }
}

/// Why a handler did not complete its task.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    pub message: String,
    /// Decides whether the task is tried again.
    pub category: ErrorCategory,
    /// How long to wait before the next try, in milliseconds.
    pub retry_after_millis: Option<u64>,
}

impl TaskError {
    pub fn new(category: ErrorCategory, message: impl Into<String>) -> Self {
        Self { message: message.into(), category, retry_after_millis: None }
    }

    /// Something that may be gone at the next attempt.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::new(ErrorCategory::ServerError, message)
    }

    /// Something that will fail again.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self::new(ErrorCategory::Validation, message)
    }
}

pub(crate) type Outcome = Result<Json, TaskError>;
type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Handler = Arc<dyn Fn(TaskContext) -> Running + Send + Sync>;

/// Handlers by the name of the task.
#[derive(Clone, Default)]
pub struct Handlers {
    by_name: HashMap<TaskName, Handler>,
}

impl std::fmt::Debug for Handlers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Handlers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler for tasks of this name, replacing an earlier one.
    ///
    /// A handler that blocks its thread keeps its lease as long as another thread of the runtime is free to renew it,
    /// but it can be neither cancelled nor timed out meanwhile. Long work without an `await` belongs into
    /// `tokio::task::spawn_blocking`.
    pub fn on<F, R>(mut self, name: &str, handler: F) -> Result<Self, BadId>
    where
        F: Fn(TaskContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Json, TaskError>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |context| Box::pin(handler(context)));
        self.by_name.insert(TaskName::new(name)?, handler);
        Ok(self)
    }

    /// Runs a task. A panic in its handler is an error like any other.
    pub(crate) fn run(&self, context: TaskContext) -> Running {
        let Some(handler) = self.by_name.get(&context.name) else {
            let message = format!("no handler is registered for tasks named {}", context.name);
            return Box::pin(std::future::ready(Err(TaskError::new(ErrorCategory::NotFound, message))));
        };
        let handler = Arc::clone(handler);
        let started = std::panic::catch_unwind(AssertUnwindSafe(move || handler(context)));
        match started {
            Ok(mut running) => Box::pin(std::future::poll_fn(move |waker| {
                std::panic::catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(waker)))
                    .unwrap_or_else(|panic| std::task::Poll::Ready(Err(panicked(&*panic))))
            })),
            Err(panic) => Box::pin(std::future::ready(Err(panicked(&*panic)))),
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> TaskError {
    let said =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("the handler panicked: {}", said.unwrap_or("without a message"));
    TaskError::new(ErrorCategory::Programming, message)
}
