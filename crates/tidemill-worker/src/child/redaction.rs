//! Takes secrets out of all that a task says and leaves.
//!
//! An agent can read its own environment, and as root that of the worker, and repeat it in a log, a result, a trace
//! or a file. What drives the agent cleans what it writes; this is the wall behind it, which nothing that the agent
//! runs can get around. Others see a command without the secrets that it was given.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use tidemill_model::work::task_secrets::is_own_variable;
use tidemill_model::{Json, Runner, Secrets, TaskSecrets};

use super::protocol::{Record, Told};
use crate::source::HeldTask;

/// Whether a variable of this name holds a secret.
pub(crate) type NamesSecret = fn(&str) -> bool;

/// The secrets of one attempt: of an agent all that the worker has, of a command those that it was given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Redaction(Secrets);

impl Redaction {
    /// The secrets in the worker's environment. Literal values of the definition are none: they are there to be read.
    pub(crate) fn of(claim: &HeldTask, worker: &[(OsString, OsString)], names_secret: NamesSecret) -> Self {
        let is_agent = claim.execution.runner == Runner::Agent;
        if !is_agent && claim.execution.secrets.is_empty() {
            return Self::default();
        }
        let is_known = |name: &OsStr| is_agent || is_given(claim, name);
        let variables = worker.iter().filter(|(name, _)| is_known(name));
        let variables = variables.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Self(Secrets::of_variables(variables, |name| is_secret(claim, name, names_secret)))
    }

    /// The bytes without secrets.
    pub(crate) fn clean<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.0.clean(bytes)
    }

    /// The bytes of a line without secrets; one that was cut ends with no half of one.
    pub(crate) fn clean_line<'a>(&self, bytes: &'a [u8], is_cut: bool) -> Cow<'a, [u8]> {
        if is_cut { self.0.clean_beginning(bytes) } else { self.0.clean(bytes) }
    }

    pub(crate) fn clean_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.clean_text(text)
    }

    /// A JSON value without secrets.
    pub(crate) fn clean_json(&self, json: Json) -> Json {
        self.0.clean_json(json)
    }

    /// What a child told without secrets in its texts. The output is cleaned once it is known which one counts.
    pub(crate) fn clean_record(&self, mut told: Told) -> Told {
        let clean = |text: &mut String| {
            if let Cow::Owned(clean) = self.0.clean_text(text) {
                *text = clean;
            }
        };
        told.session_id =
            told.session_id.filter(|id| matches!(self.0.clean_text(id.as_str()), Cow::Borrowed(_)));
        match &mut told.record {
            Record::Activity { step_name, .. } => clean(step_name),
            Record::Error(error) => {
                [&mut error.name, &mut error.code, &mut error.message].into_iter().flatten().for_each(clean);
            }
            Record::Other(kind) => clean(kind),
            Record::Result(_) | Record::Usage(_) => {}
        }
        told
    }
}

/// Whether a task was given this variable because it asked for it. A literal value takes the place of a secret.
fn is_given(claim: &HeldTask, name: &OsStr) -> bool {
    let execution = &claim.execution;
    name.to_str().is_some_and(|name| {
        execution.secrets.iter().any(|secret| secret == name) && !execution.env.contains_key(name)
    })
}

/// Why a task cannot have a variable that it asks for, if there is one: it may not have it, or nobody set it here. Without it
/// its program would run with nothing in its place, and say so in its own words or not at all.
pub(crate) fn secret_missing(
    claim: &HeldTask,
    list: &TaskSecrets,
    worker: &[(OsString, OsString)],
) -> Option<String> {
    let HeldTask { execution, task, .. } = claim;
    let missing = execution.secrets.iter().find_map(|name| {
        let is_listed = list.admits(&task.tenant, name) && !is_own_variable(name);
        // A literal value takes its place. One that is set to nothing is set.
        let is_set = execution.env.contains_key(name) || worker.iter().any(|(set, _)| set == name.as_str());
        let why = match (is_listed, is_set) {
            (false, _) => "TASK_SECRETS of this worker does not list for its tenant",
            (true, false) => "this worker's environment does not have",
            (true, true) => return None,
        };
        Some((name, why))
    });
    missing.map(|(name, why)| format!("the task asks for the variable {name}, which {why}"))
}

/// Whether a variable of the worker is a secret in a task.
pub(crate) fn is_secret(claim: &HeldTask, name: &str, names_secret: NamesSecret) -> bool {
    claim.execution.secrets.iter().any(|secret| secret == name) || names_secret(name)
}
