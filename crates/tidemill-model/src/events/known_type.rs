//! The event types that the engine itself writes.

use crate::values::id::EventType;

macro_rules! known_types {
    ($($name:ident = $text:literal),+ $(,)?) => {
        /// An event type with a meaning to the engine.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum KnownType { $($name),+ }

        impl KnownType {
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// The known type of this name, if it is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$name),)+ _ => None }
            }
        }
    };
}

known_types! {
    TaskPending = "Task Pending",
    TaskProcessingStarted = "Task Processing Started",
    TaskProcessingFailed = "Task Processing Failed",
    TaskCompleted = "Task Completed",
    TaskFailed = "Task Failed",
    TaskTimeout = "Task Timeout",
    TaskHeartbeat = "Task Heartbeat",
    JobCreated = "Job Created",
    JobTasksAdded = "Job Tasks Added",
    JobCompleted = "Job Completed",
    JobFailureDetected = "Job Failure Detected",
    JobCancelled = "Job Cancelled",
    TaskHealthCheck = "Task Health Check",
    BudgetExceeded = "Budget Exceeded",
    AlertRaised = "Alert Raised",
    AlertCleared = "Alert Cleared",
    ExecutionResumed = "Execution Resumed",
    ExecutionFailed = "Execution Failed",
    ExecutionExpired = "Execution Expired",
    ErrorIgnored = "Error Ignored",
    ErrorReopened = "Error Reopened",
    JobTasksChanged = "Job Tasks Changed",
}

impl KnownType {
    pub fn event_type(self) -> EventType {
        EventType::trusted(self.as_str())
    }
}

/// Whether only the engine may write events of this type.
pub fn is_reserved(event_type: &str) -> bool {
    event_type.starts_with("Task ")
        || event_type.starts_with("Job ")
        || [
            KnownType::BudgetExceeded,
            KnownType::AlertRaised,
            KnownType::AlertCleared,
            KnownType::ExecutionResumed,
            KnownType::ExecutionFailed,
            KnownType::ExecutionExpired,
            KnownType::ErrorIgnored,
            KnownType::ErrorReopened,
        ]
        .iter()
        .any(|known| known.as_str() == event_type)
}
