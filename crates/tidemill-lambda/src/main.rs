//! The functions of a stage on AWS: one binary, and which function it is says its handler's name.
//!
//! The process takes one invocation after the other. The store is opened by the first that needs it and caught up by those
//! that follow; nothing is left undone when an invocation is answered, since the process may be frozen then.

mod answer;
mod clock;
mod gateway;
mod logging;
mod role;
mod runtime;
mod settings;
mod stage;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use self::answer::Failure;
use self::role::Role;
use self::runtime::{Invocation, Runtime};
use self::settings::Settings;
use self::stage::Stage;

/// An invocation gets this much less time than it has, so that it can still be answered.
const RESERVE: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    logging::start(&environment);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run(&environment)),
        Err(error) => Err(format!("no runtime can be started: {error}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes invocations until the runtime goes away, or the store has to be opened by a new process.
async fn run(environment: &BTreeMap<String, String>) -> Result<(), String> {
    let runtime = Runtime::of(environment)?;
    let started = start(environment);
    let stage = match started {
        Ok(stage) => stage,
        Err(error) => {
            runtime.report_start(&Failure::new("Runtime.BadSettings", error.clone())).await?;
            return Err(error);
        }
    };
    loop {
        let invocation = runtime.next().await?;
        match handle(&stage, &invocation).await {
            Ok(answer) => runtime.respond(&invocation, answer).await?,
            Err(failure) => {
                tracing::error!("{}", failure.message);
                runtime.report(&invocation, &failure).await?;
                if failure.is_final {
                    return Err("the store has to be opened again".to_owned());
                }
            }
        }
    }
}

fn start(environment: &BTreeMap<String, String>) -> Result<Stage, String> {
    let role = Role::of(environment)?;
    Ok(Stage::new(role, Settings::read(role, environment)?))
}

async fn handle(stage: &Stage, invocation: &Invocation) -> Result<Vec<u8>, Failure> {
    let time = invocation.time_left(stage.now()).saturating_sub(RESERVE);
    match tokio::time::timeout(time, stage.handle(&invocation.event, time)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::new("Timeout", format!("not done within {} ms", time.as_millis()))),
    }
}

/// Writes an alert that nobody else gets. The runtime takes standard error into the log.
pub(crate) fn say(text: &str) {
    // If nobody can read it, there is nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
