//! What is asked of JavaScript before it is saved, as a script, in a definition or in a job: that it compiles.
//!
//! Nothing is compiled in this process: the compiler is a port, behind which hosts do it.

use std::collections::HashSet;

use tidemill_engine::engine::{CompileProblem, Rights};
use tidemill_model::authored::job_file::{TaskEntry, TaskWork};

use crate::problem::Problem;
use crate::route::Call;

/// Seconds after which a compiler that is not there may be asked again.
const RETRY_SECONDS: u64 = 5;

/// Refuses a source that does not compile; `field` is where the request has it.
pub(super) async fn compile(call: &Call, field: &str, name: &str, source: &str) -> Result<(), Problem> {
    let compiler = call.app.compiler().ok_or_else(elsewhere)?;
    match compiler.compile(&call.tenant()?, name, source).await {
        Ok(()) => Ok(()),
        Err(CompileProblem::Wrong { message, line, column }) => {
            let message = format!("does not compile at line {line}, column {column}: {message}");
            let mut wrong = Problem::field("COMPILE_ERROR", field, message);
            for detail in &mut wrong.details {
                (detail.line, detail.column) = (Some(line), Some(column));
            }
            Err(wrong)
        }
        Err(CompileProblem::Unavailable(cause)) => {
            let message = "scripts cannot be compiled now; nothing was changed";
            Err(Problem::unavailable("SCRIPTS_UNAVAILABLE", message, RETRY_SECONDS).because(&cause))
        }
    }
}

/// There is no compiler here, and there will not be one.
pub(super) fn elsewhere() -> Problem {
    let message = "this process compiles and runs no scripts, as a function on AWS does not; save them through \
                   `tidemill serve`, or with `tidemill scripts put` where the store is used directly; nothing was changed";
    Problem { retry_after: None, ..Problem::unavailable("SCRIPTS_UNAVAILABLE", message, RETRY_SECONDS) }
}

/// Refuses tasks whose own scripts do not compile. Those of callers that may not bring any along are not looked at:
/// they are refused anyway.
pub(super) async fn compile_tasks(call: &Call, tasks: &[TaskEntry], rights: Rights) -> Result<(), Problem> {
    let mut known = HashSet::new();
    for (at, task) in tasks.iter().enumerate() {
        let TaskWork::Script(source) = &task.work else { continue };
        if known.insert(source) {
            compile_work(call, &format!("tasks[{at}].script"), task.task_id.as_str(), &task.work, rights)
                .await?;
        }
    }
    Ok(())
}

/// The same for one task; `name` is what its stacks call it.
pub(super) async fn compile_work(
    call: &Call,
    field: &str,
    name: &str,
    work: &TaskWork,
    rights: Rights,
) -> Result<(), Problem> {
    match work {
        // Where no scripts run, that is said when the task is to run.
        TaskWork::Script(source) if rights.inline && call.app.compiler().is_some() => {
            compile(call, field, name, source).await.map_err(|mut problem| {
                for detail in &mut problem.details {
                    detail.message = format!("of task {name} {}", detail.message);
                    problem.detail = format!("{field} {}", detail.message);
                }
                problem
            })
        }
        _ => Ok(()),
    }
}
