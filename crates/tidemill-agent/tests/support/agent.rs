//! The child process of a worker as a program of its own, for tests: `tidemill-test-agent REQUEST_ID [INPUT]`. It starts
//! itself again as the launcher of the CLI, as the binary does.

use std::process::ExitCode;

use tidemill_agent::{LAUNCHER, TaskArguments, become_cli, main_of_task};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == LAUNCHER) {
        return become_cli(arguments);
    }
    let mut arguments = std::env::args().skip(1);
    let Some(request_id) = arguments.next() else { return ExitCode::from(2) };
    let Ok(directory) = std::env::current_dir() else { return ExitCode::from(2) };
    let environment = std::env::vars_os().collect();
    main_of_task(TaskArguments { request_id, input: arguments.next(), environment, directory }).await
}
