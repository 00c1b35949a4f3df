//! Deploying a stage: the stacks of `deploy/aws` in their order, what they export, and whether all is as it should be.

mod checkup;
mod exports;
mod stack;
mod stack_plan;
mod template;

pub use checkup::{Check, CheckupGrade, checkup};
pub use exports::{api_url, environment, identity};
pub use stack::{Deployed, deploy, upload_code};
pub use stack_plan::{Change, StackPlan, plan};
pub use template::{STACKS, StackTemplate, unknown_parameters};

/// Why a stage could not be looked at or deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    #[error("{0}")]
    Refused(String),
    /// Parameters that a stack needs and nobody gave.
    #[error("stack {stack} needs the parameters {}", names.join(", "))]
    Missing { stack: String, names: Vec<String> },
    /// Parameters that the template does not take.
    #[error("stack {stack}: {}", problems.join("; "))]
    Wrong { stack: String, problems: Vec<String> },
    /// The stack did not get there; why, by its resources.
    #[error("stack {stack} is {status}: {}", reasons.join("; "))]
    Failed { stack: String, status: String, reasons: Vec<String> },
}
