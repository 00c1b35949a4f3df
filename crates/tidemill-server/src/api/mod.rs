//! What goes over the wire: one file per theme. Servers and clients use the same types.

mod dead_letters;
mod events;
mod executions;
mod jobs;
mod keys;
mod object;
mod page;
mod problem;
mod queue;
mod scripts;
mod site;
mod states;
mod tasks;
mod usage;
mod worker;

pub use dead_letters::{
    DeadLetterView, LetterKind, LetterState, LettersFilter, ManyLettersView, Replayed, ScriptLetterView,
    TaskLetterView,
};
pub use events::{EventAccepted, EventDraft, EventEnvelope, EventJson, EventsAccepted, PublishRequest};
pub use executions::{AlertKindName, AlertView, ExecutionStatusName, ExecutionView, RunErrorView};
pub use jobs::{
    CancelRequest, Cancelled, CancelledTask, Counts, JobAccepted, JobSummary, JobView, JobsCancelled,
    JobsFilter, JobsResumed, ResumeRequest, Resumed, RetriedTask, TaskRow, TasksAdded,
};
pub use keys::{KeyCreated, KeyRequest, KeyView};
pub(crate) use object::Object;
pub use page::Page;
pub use problem::{Detail, ProblemDocument};
pub use queue::{
    QueueView, ReceiveRequest, ReceivedMessage, ReceivedMessages, SendAttributes, SendBody, SendRequest,
    Sent, VisibilityRequest,
};
pub use scripts::{
    ConditionView, ExplainEvent, ExplainRequest, ExplainedView, ExplanationView, ScriptSummary, VerdictName,
};
pub use site::{Health, Readiness};
pub use states::{ErrorClass, JobStatusName, TaskStateName};
pub use tasks::{Artifact, LeaseView, PinnedView, RetryView, TaskAccepted, TaskSummary, TaskView, UsageView};
pub use tidemill_model::{
    Definition, DefinitionDraft, ResolvedExecution, Role, Script, ScriptDraft, Subscription,
    SubscriptionDraft,
};
pub use usage::{BudgetRequest, BudgetView, JobBudgetRequest, UsageRowView};
pub use worker::{
    BeginRequest, BlobStored, ClaimRequest, ClaimedTask, ClaimedTasks, Done, FinishRequest, Finished,
    FinishedState, HeartbeatAnswer, HeartbeatRequest, OutcomeReport, OutcomeStatus, ReleaseRequest,
};
