//! What a child sees of the worker's environment: a short list, and nothing else.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use tidemill_engine::commit::TaskKey;
use tidemill_model::work::runner_spec::is_passed;
use tidemill_model::{Runner, SessionId, TraceContext};

use super::directory::AttemptDirectory;
use super::redaction::{NamesSecret, is_secret};
use crate::source::HeldTask;

/// Variables of the worker that agents get too: what their CLI logs in with, is set by and reaches the network through.
const PASSED_TO_AGENTS: [&str; 14] = [
    "API_TIMEOUT_MS",
    "DEFAULT_TIMEOUT",
    "IS_SANDBOX",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];
/// And all that begin so.
const AGENT_BEGINNINGS: [&str; 3] = ["ANTHROPIC_", "CLAUDE_", "AGENT_"];

/// What an agent is told beside what every child is.
#[derive(Debug)]
pub(crate) struct AgentTells<'a> {
    /// What it is to do, as a file.
    pub(crate) file: &'a Path,
    pub(crate) home: &'a Path,
    /// The session to go on with.
    pub(crate) session: Option<&'a SessionId>,
    /// When the attempt is killed, in epoch milliseconds.
    pub(crate) deadline_millis: u64,
    /// How long the attempt may take: what the moment above comes from.
    pub(crate) timeout_millis: u64,
}

/// The budget that holds an agent back, if it has less left than the agent itself may spend.
fn tighter_budget(claim: &HeldTask) -> Option<&str> {
    let own = claim.execution.agent.as_ref().and_then(|agent| agent.max_cost);
    let is_tighter = claim.budget_left.is_some_and(|left| own.is_none_or(|own| left < own.0));
    claim.budget_name.as_deref().filter(|_| is_tighter)
}

/// The whole environment of a child: what is passed on, what its definition asks for by name, the literal values of
/// definition and task, and at last what the worker itself says, which nothing overrides.
pub(crate) fn of_child(
    worker: &[(OsString, OsString)],
    claim: &HeldTask,
    directory: &AttemptDirectory,
    agent: Option<&AgentTells<'_>>,
    is_traced: bool,
    names_secret: NamesSecret,
) -> Vec<(OsString, OsString)> {
    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    let mut secret_names = Vec::new();
    for (name, value) in passed(worker, claim) {
        secret_names.extend(Some(name).filter(|name| is_secret(claim, name, names_secret)));
        env.insert(name.into(), value.clone());
    }
    // A literal value takes the place of a secret, and is none itself.
    secret_names.retain(|name| !claim.execution.env.contains_key(*name));
    env.extend(claim.execution.env.iter().map(|(name, value)| (name.into(), value.into())));
    if let Some(path) = path_of(&claim.execution.path, env.get(OsStr::new("PATH"))) {
        env.insert("PATH".into(), path);
    }
    let mut set = |name: &str, value: &OsStr| env.insert(name.into(), value.into());
    set("TENANT_ID", claim.task.tenant.as_str().as_ref());
    set("APP_NAME", claim.app.as_str().as_ref());
    set("INPUT_FILE", directory.input_file.as_os_str());
    set("TIDEMILL_OUTPUT_DIR", directory.path.as_os_str());
    set("TIDEMILL_INPUTS", directory.inputs.as_os_str());
    set("TIDEMILL_REQUEST_ID", claim.task.request.as_str().as_ref());
    set("TIDEMILL_TASK_ID", claim.task_id.as_str().as_ref());
    if let Some(job) = claim.job {
        set("TIDEMILL_JOB_ID", job.to_string().as_ref());
    }
    set("TIDEMILL_RUN", claim.run.to_string().as_ref());
    set("TIDEMILL_ATTEMPT", claim.attempt.to_string().as_ref());
    set("TIDEMILL_FENCE", claim.fence.0.to_string().as_ref());
    if is_traced {
        let TaskKey { tenant, request } = &claim.task;
        let context = TraceContext::of_attempt(tenant, claim.job, request, claim.fence);
        set("TRACEPARENT", context.traceparent().as_ref());
    }
    if let Some(agent) = agent {
        set("TIDEMILL_AGENT_FILE", agent.file.as_os_str());
        set("TIDEMILL_AGENT_HOME", agent.home.as_os_str());
        set("TIDEMILL_SECRET_NAMES", secret_names.join(",").as_ref());
        set("TIDEMILL_DEADLINE_MS", agent.deadline_millis.to_string().as_ref());
        set("TIDEMILL_TIMEOUT_MS", agent.timeout_millis.to_string().as_ref());
        if let Some(name) = tighter_budget(claim) {
            set("TIDEMILL_BUDGET", name.as_ref());
        }
        if let Some(session) = agent.session {
            set("TIDEMILL_AGENT_SESSION", session.as_str().as_ref());
        }
    }
    env.into_iter().collect()
}

/// The variables of the worker that a child gets.
pub(crate) fn passed<'w>(
    worker: &'w [(OsString, OsString)],
    claim: &HeldTask,
) -> impl Iterator<Item = (&'w str, &'w OsString)> {
    let is_agent = claim.execution.runner == Runner::Agent;
    let is_given = move |name: &str| {
        is_passed(name)
            || (is_agent && is_for_agents(name))
            || claim.execution.secrets.iter().any(|secret| secret == name)
    };
    let named = worker.iter().filter_map(|(name, value)| Some((name.to_str()?, value)));
    named.filter(move |(name, _)| is_given(name))
}

/// The directories of a task before those of the worker. Relative ones are below the working directory, wherever the child
/// goes.
fn path_of(directories: &[String], worker: Option<&OsString>) -> Option<OsString> {
    if directories.is_empty() {
        return None;
    }
    let own = directories.iter().map(|directory| {
        let whole = std::path::absolute(directory);
        whole.map_or_else(|_| directory.into(), std::path::PathBuf::into_os_string)
    });
    let all: Vec<OsString> = own.chain(worker.filter(|path| !path.is_empty()).cloned()).collect();
    Some(all.join(OsStr::new(":")))
}

fn is_for_agents(name: &str) -> bool {
    PASSED_TO_AGENTS.contains(&name) || AGENT_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}
