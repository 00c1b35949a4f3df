//! What is started for a task.

use std::ffi::OsString;

use tidemill_model::Runner;
use tidemill_model::work::runner_spec::Run;

use crate::source::HeldTask;

/// An input up to this size is an argument too; a larger one is in `INPUT_FILE` only.
pub(crate) const ARGUMENT_BYTES_MAX: usize = 64 * 1024;

/// The program of a task with its arguments; `None` when the task has no command.
///
/// The program of a stored definition gets the request id and the input as its last arguments, and so does the one that
/// drives agents. A command that came with the job says all its arguments itself.
///
/// The input is left out where it is large, and where the definition or the worker (`input_arg`) does not want it there.
pub(crate) fn arguments_of(
    claim: &HeldTask,
    agent_program: &[OsString],
    input_arg: bool,
) -> Option<Vec<OsString>> {
    if claim.execution.runner == Runner::Agent {
        let mut argv = (!agent_program.is_empty()).then(|| agent_program.to_vec())?;
        push_request_and_input(&mut argv, claim, input_arg);
        return Some(argv);
    }
    let command = claim.execution.command.as_ref()?;
    let is_stored = claim.execution.definition.is_some();
    let mut argv: Vec<OsString> = match command {
        Run::Argv(argv) => argv.iter().map(OsString::from).collect(),
        Run::Shell(text) => vec!["/bin/sh".into(), "-c".into(), text.into()],
    };
    if is_stored {
        if matches!(command, Run::Shell(_)) {
            // What the shell calls itself; the arguments are `$1` and `$2`.
            argv.push("sh".into());
        }
        push_request_and_input(&mut argv, claim, input_arg);
    }
    Some(argv)
}

fn push_request_and_input(argv: &mut Vec<OsString>, claim: &HeldTask, input_arg: bool) {
    let request = claim.task.request.as_str();
    if request.starts_with('-') {
        // So that no program takes the id for an option.
        argv.push("--".into());
    }
    argv.push(request.into());
    if input_arg && claim.execution.input_arg && claim.input.len() <= ARGUMENT_BYTES_MAX {
        argv.push(claim.input.as_str().into());
    }
}
