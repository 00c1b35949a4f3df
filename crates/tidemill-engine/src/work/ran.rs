//! What ran: the command, prompt or script of a task's last attempt as it was resolved, with its variables, worker and place.
//!
//! Little of it is stored for it. A task is pinned to the version of its definition, and neither that nor its input
//! nor the outputs of its parents change, so they are resolved again on demand. If the task was given other work
//! since the attempt was claimed, the answer says that instead. The event of the beginning holds only what the worker
//! alone knows: where the attempt wrote and which of its own variables it passed on.
//!
//! No secret is in it: variables of a worker are shown by their names, and texts are cleaned as errors are.

use serde::Deserialize;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::events::properties::TaskProcessingStarted;
use tidemill_model::security::sanitize::REDACTED;
use tidemill_model::security::secrets::is_secret_name;
use tidemill_model::work::artifact::attempt_folder;
use tidemill_model::work::runner_spec::Run;
use tidemill_model::{
    ArtifactFile, Entity, Fence, Json, KnownType, ResolvedRunner, Runner, TaskId, TaskState, Timestamp,
};

use crate::engine::limits::LISTED_OUTPUT_BYTES_MAX;
use crate::engine::{Engine, EngineError};
use crate::kernel::backend::{Backend, TaskSnapshot};
use crate::kernel::commit::TaskKey;
use crate::warn_seldom;

/// The characters of a command, a prompt, a script, an argument or a variable that are shown.
pub const RAN_CHARS_MAX: usize = 16 * 1024;
/// The dependencies whose outputs are shown.
pub const RAN_DEPENDENCIES_MAX: usize = 20;
/// The trace of an agent, which holds its prompts.
const TRACE: &str = "traces/session_trace.json";

/// What ran in the last attempt that began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    pub run: u32,
    pub fence: Fence,
    pub worker_id: String,
    pub process_id: u32,
    pub started_at: Timestamp,
    /// Where it wrote, on the machine of its worker, if the worker said so.
    pub directory: Option<String>,
    /// Whether the task was given other work since. What this attempt carried out is not known any more.
    pub changed_since: bool,
    /// What is carried out; `None` if it cannot be known any more.
    pub runner: Option<Runner>,
    pub command: Option<Run>,
    /// What stands behind the command: the request id and, if it was an argument, the input.
    pub arguments: Vec<String>,
    pub script: Option<String>,
    pub prompts: Vec<RanPrompt>,
    /// By name.
    pub variables: Vec<RanVariable>,
    /// The first of its dependencies, with what they gave.
    pub dependencies: Vec<RanDependency>,
    /// How many more there are.
    pub dependencies_omitted: usize,
}

/// The prompt of one step of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanPrompt {
    pub step: String,
    pub text: String,
    /// With its values filled in. The trace that tells them comes with the end of an attempt.
    pub is_filled: bool,
}

/// A variable that the task was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanVariable {
    pub name: String,
    /// `None` for one that comes from the worker's own environment.
    pub value: Option<String>,
    pub origin: RanOrigin,
}

/// Where a variable came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RanOrigin {
    /// The worker's environment, as every task gets it.
    Worker,
    /// The worker's environment, because the definition asks for it. Its value is never shown.
    Secret,
    /// Definition or task.
    Task,
    /// What the worker tells every task of itself.
    Tidemill,
}

/// What a task that it depends on gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RanDependency {
    pub task: TaskId,
    /// `None`: too large to be shown here, or not to be had any more.
    pub output: Option<Json>,
    pub artifacts: Vec<ArtifactFile>,
}

impl<B: Backend> Engine<B> {
    /// What ran in the last attempt of a task that began; `None` if none did.
    pub async fn ran(&self, snapshot: &TaskSnapshot) -> Result<Option<Ran>, EngineError> {
        let key = &snapshot.task;
        let path =
            AccessPath::TypeEntity(KnownType::TaskProcessingStarted.event_type(), Entity::task(&key.request));
        let all = EventQuery::all(key.tenant.clone(), path);
        let query = EventQuery { order: Order::Descending, limit: 1, ..all };
        let Some(event) = self.inner.backend.events(query).await?.events.into_iter().next() else {
            return Ok(None);
        };
        // A worker of another system says what it likes, and ran what nobody here knows.
        let Ok(started) = event.properties.read::<TaskProcessingStarted>() else { return Ok(None) };
        // Newer than the event: a change that followed the claim of this attempt is seen.
        let Some(snapshot) = &self.task(key.clone()).await? else { return Ok(None) };
        let changed_since = snapshot.head.as_ref().is_some_and(|head| started.fence <= head.reworked);
        let execution = if changed_since { None } else { self.known_runner(snapshot).await? };
        let (dependencies, dependencies_omitted) = self.dependencies_of(snapshot).await?;
        let mut ran = Ran {
            run: started.task.run,
            fence: started.fence,
            worker_id: started.worker_id.to_string(),
            process_id: started.process_id,
            started_at: event.timestamp,
            directory: started.directory.clone(),
            changed_since,
            runner: execution.as_ref().map(|execution| execution.runner),
            command: None,
            arguments: Vec::new(),
            script: None,
            prompts: Vec::new(),
            variables: self.variables_of(snapshot, &started, execution.as_ref()),
            dependencies,
            dependencies_omitted,
        };
        let Some(execution) = execution else { return Ok(Some(ran)) };
        let shown = |text: &str| self.clean_within(text, RAN_CHARS_MAX);
        ran.command = execution.command.as_ref().map(|command| match command {
            Run::Shell(text) => Run::Shell(shown(text)),
            Run::Argv(parts) => Run::Argv(parts.iter().map(|part| shown(part)).collect()),
        });
        if execution.definition.is_some() && execution.command.is_some() {
            // The input is shown by itself.
            ran.arguments = vec![key.request.to_string()];
        }
        ran.script = execution.script.as_deref().map(shown);
        if execution.runner == Runner::Agent {
            ran.prompts = self.prompts_of(snapshot, started.task.run, &execution).await?;
        }
        Ok(Some(ran))
    }

    /// How the task is carried out, as far as it can be told afterwards. One that was not pinned when it was handed in
    /// had the definition of its name at that moment, which may be another one by now.
    async fn known_runner(&self, snapshot: &TaskSnapshot) -> Result<Option<ResolvedRunner>, EngineError> {
        if snapshot.spec.options.execution.is_none() {
            return Ok(None);
        }
        match self.execution_of_task(&snapshot.task, &snapshot.spec).await {
            Ok(execution) => Ok(Some(execution)),
            Err(error @ EngineError::Fault(_)) => Err(error),
            // What it was made of is no longer there or not to be understood, which the answer says by its absence.
            Err(_) => Ok(None),
        }
    }

    async fn dependencies_of(
        &self,
        snapshot: &TaskSnapshot,
    ) -> Result<(Vec<RanDependency>, usize), EngineError> {
        let Some(job) = snapshot.job else { return Ok((Vec::new(), 0)) };
        let all = &snapshot.spec.depends_on;
        let mut shown = Vec::new();
        for task in all.iter().take(RAN_DEPENDENCIES_MAX) {
            let given = self.small_completion(&snapshot.task.tenant, &job.request_id(task)).await?;
            let (output, artifacts) = given.unwrap_or_default();
            let output = output.filter(|output| output.len() <= LISTED_OUTPUT_BYTES_MAX);
            shown.push(RanDependency { task: task.clone(), output, artifacts });
        }
        Ok((shown, all.len().saturating_sub(RAN_DEPENDENCIES_MAX)))
    }

    fn variables_of(
        &self,
        snapshot: &TaskSnapshot,
        started: &TaskProcessingStarted,
        execution: Option<&ResolvedRunner>,
    ) -> Vec<RanVariable> {
        let mut variables: Vec<RanVariable> = Vec::new();
        let asked = execution.map_or(&[][..], |execution| &execution.secrets);
        let literal = |name: &str| execution.is_some_and(|execution| execution.env.contains_key(name));
        for name in &started.variables {
            let origin = if asked.contains(name) { RanOrigin::Secret } else { RanOrigin::Worker };
            if !literal(name) {
                variables.push(RanVariable { name: name.clone(), value: None, origin });
            }
        }
        for (name, value) in execution.iter().flat_map(|execution| &execution.env) {
            let value = if is_secret_name(name) {
                REDACTED.to_owned()
            } else {
                self.clean_within(value, RAN_CHARS_MAX)
            };
            variables.push(RanVariable { name: name.clone(), value: Some(value), origin: RanOrigin::Task });
        }
        variables.extend(own_variables(snapshot, started));
        variables.sort_by(|one, other| one.name.cmp(&other.name));
        variables
    }

    /// The prompts of an agent: as it was asked, once its trace is kept, else as they are written.
    async fn prompts_of(
        &self,
        snapshot: &TaskSnapshot,
        run: u32,
        execution: &ResolvedRunner,
    ) -> Result<Vec<RanPrompt>, EngineError> {
        let steps = execution.agent.iter().flat_map(|agent| &agent.steps);
        let attempt = snapshot.head.as_ref().map_or(1, |head| match head.state {
            TaskState::Leased(_) => head.attempts + 1,
            TaskState::Queued | TaskState::Parked | TaskState::Done(_) => head.attempts,
        });
        let trace = format!("{}/{TRACE}", attempt_folder(run, attempt));
        // A trace is for reading: one that is not there, or not to be understood, hides nothing else.
        let trace = self.task_file(&snapshot.task, &trace).await.unwrap_or_else(|error| {
            warn_seldom!(error, request = %snapshot.task.request, "the trace of an agent could not be read");
            None
        });
        let trace = trace.unwrap_or_default();
        let traced: Vec<TracedStep> = serde_json::from_slice(&trace).unwrap_or_default();
        let prompt = |step: &tidemill_model::AgentStep| {
            let filled = traced.iter().find(|traced| traced.name == step.name);
            let filled = filled.and_then(|traced| traced.prompt.clone());
            RanPrompt {
                step: step.name.clone(),
                is_filled: filled.is_some(),
                text: self.clean_within(filled.as_deref().unwrap_or(&step.prompt), RAN_CHARS_MAX),
            }
        };
        Ok(steps.map(prompt).collect())
    }
}

/// What the worker tells every task of itself, if it told where: others may tell theirs otherwise.
fn own_variables(snapshot: &TaskSnapshot, started: &TaskProcessingStarted) -> Vec<RanVariable> {
    let Some(directory) = &started.directory else { return Vec::new() };
    let TaskKey { tenant, request } = &snapshot.task;
    let mut own = vec![
        ("TENANT_ID", tenant.to_string()),
        ("APP_NAME", snapshot.app.to_string()),
        ("INPUT_FILE", format!("{directory}/input.json")),
        ("TIDEMILL_OUTPUT_DIR", directory.clone()),
        ("TIDEMILL_INPUTS", format!("{directory}/inputs")),
        ("TIDEMILL_REQUEST_ID", request.to_string()),
        ("TIDEMILL_TASK_ID", snapshot.spec.task_id.to_string()),
        ("TIDEMILL_RUN", started.task.run.to_string()),
        ("TIDEMILL_FENCE", started.fence.0.to_string()),
    ];
    own.extend(snapshot.job.map(|job| ("TIDEMILL_JOB_ID", job.to_string())));
    let told = own.into_iter().map(|(name, value)| RanVariable {
        name: name.to_owned(),
        value: Some(value),
        origin: RanOrigin::Tidemill,
    });
    told.collect()
}

/// What is read of an agent's trace.
#[derive(Deserialize)]
struct TracedStep {
    name: String,
    #[serde(default)]
    prompt: Option<String>,
}
