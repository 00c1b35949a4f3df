//! Heads: where a task and a job stand, as one small record each.
//!
//! A head is derived from the log. It alone decides which worker may run a task and whether an outcome is accepted:
//! every change names the fence it was made with, and the fence only grows.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::id::SessionId;
use crate::values::time::Timestamp;
use crate::work::error_class::ErrorCategory;

/// A right to run a task. It grows with every claim and never starts again, not by a resume either.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Fence(pub u64);

impl Fence {
    /// The fence after this one. Fences are bounded where they come in and grow by one, so there always is one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a fence is bounded where it comes in"))
    }
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskHead {
    /// Counts from 1; a resume opens the next one.
    pub run: u32,
    /// Attempts of this run that ended and were reported.
    pub attempts: u32,
    /// Times in this run that the task was taken from a worker that fell silent.
    pub takeovers: u32,
    /// Crashes in a row of the process that ran it. An attempt whose end is reported sets it back.
    pub crashes: u32,
    /// The newest right to run it. 0 before the first claim.
    pub fence: Fence,
    /// Whether any event of this run says that work began: the public state is then `processing`, not `pending`.
    pub begun: bool,
    /// The category of the last failed attempt in this run.
    pub last_error: Option<ErrorCategory>,
    pub state: TaskState,
    /// The right under which the last failed attempt was reported that another follows.
    pub failed_fence: Option<Fence>,
    /// The agent's session in the last attempt of this run that reported one.
    pub session: Option<SessionId>,
    /// The digest of what was reported under the newest right, if anything was.
    pub reported: Option<u64>,
    /// The id of the dead letter that this run ended in.
    pub letter: Option<u128>,
    /// The newest fence when the task was last given other work: a worker with this fence or an older one ran the
    /// former work. 0 if it never was.
    pub reworked: Fence,
}

/// What is true of a dispatched task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskState {
    /// A message for it is in the queue; any worker may claim it, at once or when the message becomes visible.
    Queued,
    /// One worker holds it until the lease runs out.
    Leased(Lease),
    /// Waits for a person or a token; no lease, no message.
    Parked,
    /// Finished; nothing follows in this run.
    Done(Outcome),
}

/// A worker's temporary right to run a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub owner: Owner,
    /// Judged by the store's clock.
    pub until: Timestamp,
    pub claimed_at: Timestamp,
    /// Heartbeats recorded under this lease.
    pub heartbeats: u32,
}

/// The holder of a lease: a worker in a certain life of the process that owns the store, or a remote one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub worker: Arc<str>,
    /// The life of the data directory the worker belongs to; `None` for a worker on another machine.
    pub generation: Option<u64>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Completed,
    Failed,
    TimedOut,
    Cancelled,
}

impl Outcome {
    /// Whether a resume may open a new run after it.
    pub fn may_resume(self) -> bool {
        self != Self::Completed
    }
}

/// The state that users see. `null` (not dispatched yet) is `Option::None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PublicState {
    Pending,
    Processing,
    Completed,
    Failed,
}

impl PublicState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

impl TaskHead {
    /// A task that has just been dispatched.
    pub fn dispatched() -> Self {
        Self {
            run: 1,
            attempts: 0,
            takeovers: 0,
            crashes: 0,
            fence: Fence(0),
            begun: false,
            last_error: None,
            state: TaskState::Queued,
            failed_fence: None,
            session: None,
            reported: None,
            letter: None,
            reworked: Fence(0),
        }
    }

    pub fn public_state(&self) -> PublicState {
        match &self.state {
            TaskState::Done(Outcome::Completed) => PublicState::Completed,
            TaskState::Done(_) => PublicState::Failed,
            TaskState::Parked => PublicState::Processing,
            TaskState::Queued | TaskState::Leased(_) if self.begun => PublicState::Processing,
            TaskState::Queued | TaskState::Leased(_) => PublicState::Pending,
        }
    }

    pub fn outcome(&self) -> Option<Outcome> {
        match self.state {
            TaskState::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Whether it waits for somebody.
    pub fn is_parked(&self) -> bool {
        self.state == TaskState::Parked
    }

    pub fn lease(&self) -> Option<&Lease> {
        match &self.state {
            TaskState::Leased(lease) => Some(lease),
            _ => None,
        }
    }

    /// The lease, if `fence` is the newest right to the task and it is held.
    ///
    /// This is the check that keeps a replaced worker from writing.
    pub fn lease_of(&self, fence: Fence) -> Option<&Lease> {
        self.lease().filter(|_| self.fence == fence)
    }
}

/// The derived status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobStatus {
    /// Nothing has failed and something is left to do.
    Running,
    /// Something has failed and something is still active, or something is parked.
    Failing,
    /// Something has failed and nothing is active.
    Failed,
    Completed,
    Cancelled,
}

impl JobStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Failing => "failing",
            Self::Failed => "failed",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How many tasks of a job are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobCounts {
    /// Not dispatched.
    pub waiting: u32,
    pub pending: u32,
    pub processing: u32,
    pub completed: u32,
    pub failed: u32,
    /// Those of `processing` that wait for somebody.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub parked: u32,
}

impl JobCounts {
    pub fn total(&self) -> u32 {
        self.waiting + self.pending + self.processing + self.completed + self.failed
    }

    /// The counter of tasks in `state`.
    pub fn of(&mut self, state: Option<PublicState>) -> &mut u32 {
        match state {
            None => &mut self.waiting,
            Some(PublicState::Pending) => &mut self.pending,
            Some(PublicState::Processing) => &mut self.processing,
            Some(PublicState::Completed) => &mut self.completed,
            Some(PublicState::Failed) => &mut self.failed,
        }
    }

    /// Whether nothing goes on but what waits for somebody.
    pub fn is_parked(&self) -> bool {
        self.parked > 0 && self.pending == 0 && self.processing == self.parked
    }

    /// The status these counts give a job that was not cancelled.
    pub fn status(&self) -> JobStatus {
        let active = self.pending + self.processing > 0;
        match (self.failed + self.parked > 0, active) {
            _ if self.completed == self.total() => JobStatus::Completed,
            (true, true) => JobStatus::Failing,
            (true, false) => JobStatus::Failed,
            (false, _) => JobStatus::Running,
        }
    }
}
