//! `tidemill agent-task`: the process between a worker and the Claude CLI. Workers start it; people have no use for it.

use std::process::ExitCode;

use clap::Args;
use tidemill_agent::{TaskArguments, main_of_task};

use super::runtime::block_on;
use super::{CommandError, Ended};

/// Carry out the task of an agent
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct AgentTask {
    request_id: String,
    /// The task's input as JSON; else it is in the file that `INPUT_FILE` names
    input: Option<String>,
}

impl AgentTask {
    /// All that it goes by is in its environment, which its worker made for it.
    pub(crate) fn execute(self) -> Ended {
        let directory = std::env::current_dir()
            .map_err(|error| CommandError::Failed(format!("there is no working directory: {error}")))?;
        let Self { request_id, input } = self;
        let environment = std::env::vars_os().collect();
        block_on(async {
            let code = main_of_task(TaskArguments { request_id, input, environment, directory }).await;
            Ok::<ExitCode, CommandError>(code)
        })
    }
}
