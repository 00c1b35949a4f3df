//! What a claimed task needs to run, read once it is claimed.
//!
//! The worker in this process and the server for its remote workers both come here, so a task whose needs cannot be
//! met ends the same way for every worker.

use tidemill_model::{ErrorCategory, ResolvedRunner, WorkerId};

use crate::engine::{Engine, EngineError};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::reply::{Assignment, Refusal};
use crate::warn_seldom;
use crate::work::running::claiming::Work;
use crate::work::running::report::{AttemptReport, WorkReport};

/// A claimed task with all that it needs to run.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedTask {
    pub assignment: Assignment,
    pub execution: ResolvedRunner,
    pub work: Work,
}

impl<B: Backend> Engine<B> {
    /// Loads what a task that `worker` claimed needs. `None` if its needs cannot be met: the task is failed then.
    ///
    /// After a fault the worker still holds the task: whether it tries again, gives it back or fails it is for the caller
    /// to say.
    pub async fn load_task(
        &self,
        assignment: &Assignment,
        worker: &WorkerId,
    ) -> Result<Option<LoadedTask>, Fault> {
        let loaded = async {
            let execution = self.execution_of(assignment).await?;
            let work = self.work_of(assignment).await?;
            Ok(LoadedTask { assignment: assignment.clone(), execution, work })
        };
        match loaded.await {
            Ok(loaded) => Ok(Some(loaded)),
            Err(EngineError::Fault(fault)) => Err(fault),
            Err(error) => {
                self.fail_unloaded(assignment, worker, &error).await;
                Ok(None)
            }
        }
    }

    /// Fails a claimed task whose needs cannot be met.
    pub async fn fail_unloaded(&self, assignment: &Assignment, worker: &WorkerId, error: &EngineError) {
        let report = unloaded_report(error);
        match self.finish(AttemptReport::of(assignment, worker.clone(), report)).await {
            // If it was taken away meanwhile, there is nothing to report.
            Ok(_) | Err(EngineError::Refused(_)) => {}
            // The lease runs out and somebody tries again.
            Err(error) => {
                warn_seldom!(error, request = %assignment.task.request, "a failure could not be recorded");
            }
        }
    }

    /// Gives tasks back that were claimed and that nobody will run. Others may take them at once, and no attempt is
    /// counted.
    pub async fn give_back(&self, tasks: &[Assignment], worker: &WorkerId, reason: Option<&str>) {
        for Assignment { task, fence, .. } in tasks {
            let reason = reason.map(ToOwned::to_owned);
            // If it cannot be noted, the lease runs out.
            if let Err(error) = self.release(task.clone(), *fence, worker.clone(), reason).await {
                warn_seldom!(error, request = %task.request, "a task could not be given back");
            }
        }
    }
}

/// How a task ends whose needs cannot be met. What may be there later is worth another attempt.
pub fn unloaded_report(error: &EngineError) -> WorkReport {
    let category = match error {
        EngineError::Refused(Refusal::NotFound { .. }) => ErrorCategory::NotFound,
        error if error.is_transient() => ErrorCategory::ServerError,
        _ => ErrorCategory::Validation,
    };
    WorkReport::failed(error.to_string(), category)
}
