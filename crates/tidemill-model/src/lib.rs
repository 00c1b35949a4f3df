//! What is true in Tidemill: ids, events and their keys, how events fold into states, DAGs, leases, error classes.
//!
//! Nothing here reads a clock, a disk, a network or randomness, and nothing is async. Times and ids come in as
//! arguments.

pub mod authored;
pub mod events;
#[cfg(test)]
mod sample;
pub mod security;
pub mod spending;
pub mod values;
pub mod work;
pub mod workflow;

pub use authored::agent::{AgentSpec, AgentStep, MicroUsd, PermissionMode};
pub use authored::definition::{Definition, DefinitionDraft, Runner};
pub use authored::field_problem::{FieldProblem, FieldProblems, PROBLEMS_MAX};
pub use authored::job_file::{
    AddTasksFile, JobFile, RetryEntry, TaskEntry, TaskFile, TaskSettings, TaskWork,
};
pub use authored::script::{Grant, Script, ScriptDraft};
pub use events::access_path::AccessPath;
pub use events::cursor::{BadCursor, Cursor, Fingerprint};
pub use events::event::{Beside, Context, Entity, Event, Position};
pub use events::event_fields::BadEvent;
pub use events::event_query::{BadQuery, EventPage, EventQuery, Order, PAGE_MAX};
pub use events::fold::{BadHistory, fold_job, fold_task};
pub use events::key::{BadSortKey, Index, KeyPair, KeyPrefix, Keys};
pub use events::known_type::KnownType;
pub use events::overflow::{BadOverflow, BadPayload, DETAIL_BYTES_MAX, Overflow};
pub use security::api_key::{ApiKeyRecord, ApiToken, BadToken, KeyId, Role};
pub use security::sanitize::ErrorSanitizer;
pub use security::secrets::Secrets;
pub use spending::budget::{Allowance, Budget, BudgetScope, Period, Spending, TenantBudget};
pub use spending::usage::{Usage, UsageSum};
pub use values::day::{Day, Month};
pub use values::id::{
    AppName, BadId, EntityId, EntityType, EventId, EventType, IdProblem, JobId, RequestId, ScriptId,
    SessionId, SubscriptionId, TaskId, TaskName, TenantId, WorkerId,
};
pub use values::json::{Json, ValueProblem};
pub use values::left_out::is_default;
pub use values::span::Millis;
pub use values::time::{BadTimestamp, Timestamp};
pub use work::artifact::ArtifactFile;
pub use work::backoff::Backoff;
pub use work::callback_url::CallbackUrl;
pub use work::dag::{Dag, JOB_TASKS_MAX};
pub use work::dag_progress::DagProgress;
pub use work::dag_violation::{DagViolation, DagViolations, VIOLATIONS_MAX};
pub use work::error_class::{ErrorCategory, Exit, Failure};
pub use work::head::{Fence, JobCounts, JobStatus, Lease, Outcome, Owner, PublicState, TaskHead, TaskState};
pub use work::last_error::LastError;
pub use work::log_record::{Further, LogLevel, LogRecord, camel_case, text_stamp};
pub use work::retry::RetryPolicy;
pub use work::runner_spec::{Pinned, ResolvedRunner, Run, RunnerSpec};
pub use work::task_input::{DEPENDENCY_OUTPUTS, InputProblem};
pub use work::task_secrets::TaskSecrets;
pub use work::task_spec::{OnFailure, TaskOptions, TaskSpec};
pub use work::trace_context::TraceContext;
