//! The commands, one file for each or for each group.

mod agent_task;
mod alerts;
#[cfg(feature = "aws")]
mod aws;
mod completions;
mod config;
mod dead_letters;
mod definitions;
mod doctor;
mod error;
mod errors;
mod events;
mod executions;
mod export;
mod health;
mod id;
mod import;
mod input_file;
mod job_logs;
mod jobs;
mod keys;
mod moment;
#[cfg(not(feature = "aws"))]
mod no_aws;
mod parked;
mod ran;
mod rebuild;
mod resume;
mod run;
mod run_report;
mod runtime;
mod salvage;
mod schema;
mod scripts;
mod serve;
mod signals;
mod submit;
mod subscriptions;
mod tasks;
mod update;
mod usage;
mod verify;
mod worker;
mod workflow_filter;

pub(crate) use agent_task::AgentTask;
pub(crate) use alerts::Alerts;
#[cfg(feature = "aws")]
pub(crate) use aws::Aws;
pub(crate) use completions::Completions;
pub(crate) use config::Config;
pub(crate) use dead_letters::DeadLetters;
pub(crate) use definitions::Definitions;
pub(crate) use doctor::Doctor;
pub(crate) use error::CommandError;
pub(crate) use errors::Errors;
pub(crate) use events::Events;
pub(crate) use executions::Executions;
pub(crate) use export::Export;
pub(crate) use health::Health;
pub(crate) use import::Import;
pub(crate) use jobs::Jobs;
pub(crate) use keys::Keys;
#[cfg(not(feature = "aws"))]
pub(crate) use no_aws::Aws;
pub(crate) use parked::Parked;
pub(crate) use rebuild::Rebuild;
pub(crate) use run::Run;
#[cfg(feature = "aws")]
pub(crate) use runtime::runtime_with_threads;
pub(crate) use salvage::Salvage;
pub(crate) use schema::Schema;
pub(crate) use scripts::Scripts;
pub(crate) use serve::Serve;
#[cfg(feature = "aws")]
pub(crate) use signals::StopSignals;
pub(crate) use submit::Submit;
pub(crate) use subscriptions::Subscriptions;
pub(crate) use tasks::Tasks;
pub(crate) use usage::Usage;
pub(crate) use verify::Verify;
pub(crate) use worker::Worker;
#[cfg(feature = "aws")]
pub(crate) use worker::{Place, host_worker_id};

/// What a command finished with.
pub(crate) type Ended = Result<std::process::ExitCode, CommandError>;

/// Flags that stand for settings.
pub(crate) type Flags = std::collections::BTreeMap<&'static str, crate::config::Source>;
