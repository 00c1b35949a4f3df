//! The async runtimes of commands.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};

use super::CommandError;

/// For commands that ask and wait: one thread.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| failed(&error))?;
    runtime.block_on(work)
}

/// For servers and workers: a few threads.
pub(super) fn block_on_threads<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = runtime_with_threads()?;
    let done = runtime.block_on(work);
    // What still runs in the background has nothing to say any more.
    runtime.shutdown_background();
    done
}

pub(crate) fn runtime_with_threads() -> Result<Runtime, CommandError> {
    /// One core decides at a time; a second thread answers meanwhile.
    const THREADS: usize = 2;
    let built = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    built.map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> CommandError {
    CommandError::Failed(format!("no thread can be started: {error}"))
}
