//! What requests and answers hold: one file per theme.

pub(crate) mod dead_letters;
pub(crate) mod events;
pub(crate) mod executions;
pub(crate) mod health;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod queue;
pub(crate) mod ran;
pub(crate) mod script_test;
pub(crate) mod scripts;
pub(crate) mod site;
pub(crate) mod states;
pub(crate) mod tasks;
pub(crate) mod usage;
pub(crate) mod worker;
pub(crate) mod workers;
pub(crate) mod workflow;
pub(crate) mod workflow_errors;
pub(crate) mod workflow_executions;
