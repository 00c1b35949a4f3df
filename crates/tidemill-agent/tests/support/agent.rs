//! The child process of a worker as a program of its own, for tests: `tidemill-test-agent REQUEST_ID [INPUT]`.

use std::process::ExitCode;

use tidemill_agent::{TaskArguments, main_of_task};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(request_id) = arguments.next() else { return ExitCode::from(2) };
    let Ok(directory) = std::env::current_dir() else { return ExitCode::from(2) };
    let environment = std::env::vars_os().collect();
    main_of_task(TaskArguments { request_id, input: arguments.next(), environment, directory }).await
}
