//! What submissions share: which callers may bring commands, which secrets these may ask for, and idempotency keys.

use sha2::{Digest, Sha256};
use tidemill_engine::engine::{IdempotencyKey, Rights};
use tidemill_model::authored::field_problem::{FieldProblems, code};
use tidemill_model::{TaskEntry, TaskSecrets, TaskSettings, TenantId};

use crate::problem::Problem;
use crate::route::Call;

/// What the caller may put into a job.
pub(super) fn rights(call: &Call) -> Rights {
    Rights { inline: call.caller.may_run_inline() }
}

/// Refuses tasks that ask for variables that no worker hands over, if this server knows which. `path` is the place of the
/// settings of a task.
pub(super) fn check_secrets<'t>(
    call: &Call,
    tenant: &TenantId,
    rights: Rights,
    tasks: impl Iterator<Item = (String, &'t TaskSettings)>,
) -> Result<(), Problem> {
    // A caller that may not bring commands is refused because of the commands.
    let Some(list) = call.app.config().task_secrets.as_ref().filter(|_| rights.inline) else { return Ok(()) };
    let mut problems = FieldProblems::default();
    for (path, settings) in tasks {
        not_listed(&path, &settings.secrets, tenant, list, &mut problems);
    }
    Ok(problems.or(())?)
}

/// Tells each name that the operator's list has not.
pub(super) fn not_listed(
    path: &str,
    secrets: &[String],
    tenant: &TenantId,
    list: &TaskSecrets,
    problems: &mut FieldProblems,
) {
    for (at, name) in secrets.iter().enumerate().filter(|(_, name)| !list.admits(tenant, name)) {
        let message = format!(
            "is {name}, which TASK_SECRETS does not list for this tenant; the operator sets it where the server, or \
             `tidemill run`, gets its settings"
        );
        problems.add(format!("{path}secrets[{at}]"), code::SECRET_NOT_LISTED, message);
    }
}

/// The settings of tasks with their places.
pub(super) fn settings_of(tasks: &[TaskEntry]) -> impl Iterator<Item = (String, &TaskSettings)> {
    let asking = tasks.iter().enumerate().filter(|(_, task)| !task.settings.secrets.is_empty());
    asking.map(|(at, task)| (format!("tasks[{at}]."), &task.settings))
}

/// The client's promise that requests with its key are the same request. The body counts byte by byte.
pub(super) fn idempotency(call: &Call, route: &str) -> Option<IdempotencyKey> {
    call.inputs.text("Idempotency-Key").map(|key| IdempotencyKey {
        route: route.to_owned(),
        key: key.to_owned(),
        body_hash: Sha256::digest(&call.body).into(),
    })
}
