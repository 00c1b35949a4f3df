//! From what the engine knows to what goes over the wire.
//!
//! The types of the wire are in `tidemill-api`, which knows nothing of the engine.

mod dead_letters;
mod executions;
mod health;
pub(crate) mod jobs;
mod ran;
mod scripts;
mod workflow;
mod workflow_errors;
mod workflow_executions;

pub(crate) use executions::listed_execution;
pub(crate) use workflow_errors::hours;
pub(crate) use workflow_executions::bulk_filter;

/// A type of the wire that is made of something the engine tells.
pub(crate) trait View<Told>: Sized {
    fn of(told: Told) -> Self;
}
