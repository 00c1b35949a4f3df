//! What goes over the wire: one file per theme. Servers and clients use the same types. With the feature `client`, also a
//! client that speaks it.

mod address;
#[cfg(feature = "client")]
pub mod client;
mod dead_letters;
mod events;
mod executions;
mod health;
mod jobs;
mod keys;
mod object;
mod page;
mod problem;
mod queue;
mod ran;
mod script_test;
mod scripts;
mod site;
mod states;
mod tasks;
mod usage;
mod worker;
mod workers;
mod workflow;
mod workflow_errors;
mod workflow_executions;

pub use address::{decode, encode};
pub use dead_letters::{
    DeadLetterView, DeliveryLetterView, LetterKind, LetterState, LettersFilter, ManyLettersView, Replayed,
    ScriptLetterView, TaskLetterView,
};
pub use events::{EventAccepted, EventDraft, EventEnvelope, EventJson, EventsAccepted, PublishRequest};
pub use executions::{AlertKindName, AlertView, ExecutionStatusName, ExecutionView, RunErrorView};
pub use health::{
    FindingKindName, FindingView, HealthCheckView, HealthName, HealthSummaryView, TaskHealthView,
};
pub use jobs::{
    CancelRequest, Cancelled, CancelledTask, Counts, JobAccepted, JobChecked, JobSummary, JobView,
    JobsCancelled, JobsFilter, JobsResumed, ResumeRequest, Resumed, RetriedTask, RetryRequest, TaskRow,
    TasksAdded, TasksChanged,
};
pub use keys::{KeyCreated, KeyRequest, KeyView};
pub use object::{EVENTS_MAX, Object, at_most};
pub use page::Page;
pub use problem::{Detail, ProblemDocument};
pub use queue::{
    QueueView, ReceiveRequest, ReceivedMessage, ReceivedMessages, SendAttributes, SendBody, SendRequest,
    Sent, VisibilityRequest,
};
pub use ran::{RanDependencyView, RanPromptView, RanVariableView, RanView, VariableOrigin};
pub use script_test::{ScriptTestRequest, ScriptTestView};
pub use scripts::{
    ConditionView, ExplainEvent, ExplainRequest, ExplainedView, ExplanationView, ScriptSummary, VerdictName,
};
pub use site::{Health, Readiness, SlotsView};
pub use states::{JobStatusName, TaskStateName};
pub use tasks::{
    Artifact, LastErrorView, LeaseView, PinnedView, RetryView, TaskAccepted, TaskSummary, TaskView, UsageView,
};
pub use tidemill_matcher::{Subscription, SubscriptionDraft};
pub use tidemill_model::{Definition, DefinitionDraft, ResolvedRunner, Role, Script, ScriptDraft};
pub use usage::{BudgetRequest, BudgetView, JobBudgetRequest, UsageRowView};
pub use worker::{
    BeginRequest, BlobStored, ClaimRequest, ClaimedTask, ClaimedTasks, DependencyAttempt, Done,
    FinishRequest, Finished, FinishedState, HeartbeatAnswer, HeartbeatRequest, OutcomeReport, OutcomeStatus,
    ReleaseRequest,
};
pub use workers::{WorkerPlaceName, WorkerTaskView, WorkerView};
pub use workflow::{
    IgnoreRequest, MarkRequest, MarkedView, OutcomeName, OutcomeView, TokenOutcomeName, TokenOutcomeView,
    TokenRequest, TokenTakenName, WorkflowEnvelope, WorkflowEventAccepted, WorkflowEventsAccepted,
};
pub use workflow_errors::{
    ErrorCountsView, ErrorGroupDetailView, ErrorGroupView, ErrorKindName, ErrorStateName, ErrorView,
    HourView, MarkView, OccurrenceView, PlaceView,
};
pub use workflow_executions::{
    BulkActionName, BulkFilterView, BulkPreviewView, BulkRequest, BulkStateName, BulkView, CodeCount,
    FailExecutionRequest, ResumeExecutionRequest, ResumeMode, TokenStateName, WorkflowExecutionView,
};
