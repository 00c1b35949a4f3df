//! What goes over the wire: one file per theme. Servers and clients use the same types. With the feature `client`, also a
//! client that speaks it.

mod address;
#[cfg(feature = "client")]
pub mod client;
mod object;
mod page;
mod problem;
mod types;

pub use address::{decode, encode};
pub use object::{EVENTS_MAX, Object, at_most};
pub use page::Page;
pub use problem::{Detail, ProblemDocument};
pub use tidemill_matcher::{Subscription, SubscriptionDraft};
pub use tidemill_model::{Definition, DefinitionDraft, ResolvedRunner, Role, Script, ScriptDraft};
pub use types::dead_letters::{
    DeadLetterView, DeliveryLetterView, LetterKind, LetterState, LettersFilter, ManyLettersView, Replayed,
    ScriptLetterView, TaskLetterView,
};
pub use types::events::{
    EventAccepted, EventDraft, EventEnvelope, EventJson, EventsAccepted, PublishRequest,
};
pub use types::executions::{AlertKindName, AlertView, ExecutionStatusName, ExecutionView, RunErrorView};
pub use types::health::{
    FindingKindName, FindingView, HealthCheckView, HealthName, HealthSummaryView, TaskHealthView,
};
pub use types::jobs::{
    CancelRequest, Cancelled, CancelledTask, Counts, JobAccepted, JobChecked, JobSummary, JobView,
    JobsCancelled, JobsFilter, JobsResumed, ResumeRequest, Resumed, RetriedTask, RetryRequest, TaskRow,
    TasksAdded, TasksChanged,
};
pub use types::keys::{AwsCredentials, KeyCreated, KeyRequest, KeyView};
pub use types::queue::{
    QueueView, ReceiveRequest, ReceivedMessage, ReceivedMessages, SendAttributes, SendBody, SendRequest,
    Sent, VisibilityRequest,
};
pub use types::ran::{RanDependencyView, RanPromptView, RanVariableView, RanView, VariableOrigin};
pub use types::script_test::{ScriptTestRequest, ScriptTestView};
pub use types::scripts::{
    ConditionView, ExplainEvent, ExplainRequest, ExplainedView, ExplanationView, ScriptSummary, VerdictName,
};
pub use types::site::{Health, Readiness, SlotsView};
pub use types::states::{JobStatusName, TaskStateName};
pub use types::tasks::{
    Artifact, LastErrorView, LeaseView, PinnedView, RetryView, TaskAccepted, TaskSummary, TaskView, UsageView,
};
pub use types::usage::{BudgetRequest, BudgetView, JobBudgetRequest, UsageRowView};
pub use types::worker::{
    BeginRequest, BlobStored, ClaimRequest, ClaimedTask, ClaimedTasks, DependencyAttempt, Done,
    FinishRequest, Finished, FinishedState, HeartbeatAnswer, HeartbeatRequest, OutcomeReport, OutcomeStatus,
    ReleaseRequest,
};
pub use types::workers::{WorkerPlaceName, WorkerTaskView, WorkerView};
pub use types::workflow::{
    IgnoreRequest, MarkRequest, MarkedView, OutcomeName, OutcomeView, TokenOutcomeName, TokenOutcomeView,
    TokenRequest, TokenTakenName, WorkflowEnvelope, WorkflowEventAccepted, WorkflowEventsAccepted,
};
pub use types::workflow_errors::{
    ErrorCountsView, ErrorGroupDetailView, ErrorGroupView, ErrorKindName, ErrorStateName, ErrorView,
    HourView, MarkView, OccurrenceView, PlaceView,
};
pub use types::workflow_executions::{
    BulkActionName, BulkFilterView, BulkPreviewView, BulkRequest, BulkStateName, BulkView, CodeCount,
    FailExecutionRequest, ResumeExecutionRequest, ResumeMode, TokenStateName, WorkflowExecutionView,
};
