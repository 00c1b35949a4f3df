//! What is asked of JavaScript before it is saved, as a script or in a definition: that it compiles.

use tidemill_engine::backend::Backend;
use tidemill_engine::engine::CompileProblem;

use crate::problem::Problem;
use crate::route::Call;

/// Seconds after which a compiler that is not there may be asked again.
const RETRY_SECONDS: u64 = 5;

/// Refuses a source that does not compile; `field` is where the request has it.
pub(super) async fn compile<B: Backend>(
    call: &Call<B>,
    field: &'static str,
    name: &str,
    source: &str,
) -> Result<(), Problem> {
    let unavailable = || {
        let message = "scripts cannot be compiled now; nothing was changed";
        Problem::unavailable("SCRIPTS_UNAVAILABLE", message, RETRY_SECONDS)
    };
    let compiler = call.app.compiler().ok_or_else(unavailable)?;
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
        Err(CompileProblem::Unavailable(_)) => Err(unavailable()),
    }
}
