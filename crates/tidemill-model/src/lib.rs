//! What is true in Tidemill: ids, events and their keys, how events fold into states, DAGs, leases, error classes.
//!
//! Nothing here reads a clock, a disk, a network or randomness, and nothing is async. Times and ids come in as
//! arguments.

pub mod access_path;
pub mod agent;
pub mod api_key;
pub mod artifact;
mod backoff;
pub mod bounded_value;
pub mod budget;
pub mod callback_url;
pub mod cursor;
pub mod dag;
pub mod dag_progress;
pub mod dag_violation;
pub mod day;
pub mod definition;
pub mod document;
pub mod error_class;
pub mod error_table;
pub mod event;
pub mod event_fields;
pub mod event_json;
pub mod event_query;
mod field_kinds;
pub mod field_problem;
mod fields;
pub mod fold;
pub mod head;
pub mod hex;
pub mod id;
pub mod job_file;
pub mod json;
pub mod key;
pub mod known_type;
pub mod last_error;
mod left_out;
pub mod log_record;
pub mod nearest;
pub mod overflow;
mod plain_json;
pub mod properties;
pub mod retry;
pub mod runner_spec;
#[cfg(test)]
mod sample;
pub mod sanitize;
pub mod script;
pub mod secrets;
mod sink;
pub mod span;
pub mod task_input;
pub mod task_secrets;
pub mod task_spec;
pub mod text_direction;
pub mod time;
pub mod trace_context;
pub mod usage;
pub mod workflow;

pub use access_path::AccessPath;
pub use agent::{AgentSpec, AgentStep, MicroUsd, PermissionMode};
pub use api_key::{ApiKeyRecord, ApiToken, BadToken, KeyId, Role};
pub use artifact::ArtifactFile;
pub use backoff::Backoff;
pub use budget::{Allowance, Budget, BudgetScope, Period, Spending, TenantBudget};
pub use callback_url::CallbackUrl;
pub use cursor::{BadCursor, Cursor, Fingerprint};
pub use dag::{Dag, JOB_TASKS_MAX};
pub use dag_progress::DagProgress;
pub use dag_violation::{DagViolation, DagViolations, VIOLATIONS_MAX};
pub use day::{Day, Month};
pub use definition::{Definition, DefinitionDraft, Runner};
pub use error_class::{ErrorCategory, Exit, Failure};
pub use event::{Context, Entity, Event, Position};
pub use event_fields::BadEvent;
pub use event_query::{BadQuery, EventPage, EventQuery, Order, PAGE_MAX};
pub use field_problem::{FieldProblem, FieldProblems, PROBLEMS_MAX};
pub use fold::{BadHistory, fold_job, fold_task};
pub use head::{Fence, JobCounts, JobStatus, Lease, Outcome, Owner, PublicState, TaskHead, TaskState};
pub use id::{
    AppName, BadId, EntityId, EntityType, EventId, EventType, IdProblem, JobId, RequestId, ScriptId,
    SessionId, SubscriptionId, TaskId, TaskName, TenantId, WorkerId,
};
pub use job_file::{AddTasksFile, JobFile, RetryEntry, TaskEntry, TaskFile, TaskSettings, TaskWork};
pub use json::{Json, ValueProblem};
pub use key::{BadSortKey, Index, KeyPair, KeyPrefix, Keys};
pub use known_type::KnownType;
pub use last_error::LastError;
pub use left_out::is_default;
pub use log_record::{Further, LogLevel, LogRecord, camel_case, text_stamp};
pub use overflow::{BadOverflow, BadPayload, DETAIL_BYTES_MAX, Overflow};
pub use retry::RetryPolicy;
pub use runner_spec::{Pinned, ResolvedRunner, Run, RunnerSpec};
pub use sanitize::ErrorSanitizer;
pub use script::{Grant, Script, ScriptDraft};
pub use secrets::Secrets;
pub use span::Millis;
pub use task_input::{DEPENDENCY_OUTPUTS, InputProblem};
pub use task_secrets::TaskSecrets;
pub use task_spec::{OnFailure, TaskOptions, TaskSpec};
pub use time::{BadTimestamp, Timestamp};
pub use trace_context::TraceContext;
pub use usage::{Usage, UsageSum};
