//! The port to the host that runs scripts.

use std::sync::Arc;
use std::time::Duration;

use tidemill_model::{EventId, EventType, JobId, Json, Script, TenantId, Timestamp};

use crate::scripts::execution::ExecutionId;

/// Runs scripts and lets time pass.
pub trait ScriptHost: Send + Sync + 'static {
    /// Runs a script to its end, which is soon enough whatever the script does. Dropping the future ends the script.
    fn run(&self, run: ScriptRun) -> impl Future<Output = Result<RunDone, RunFailed>> + Send;

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Does what takes long where it holds up nobody. `None` if it broke down.
    fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send;
}

/// What is to be run.
#[derive(Debug, Clone)]
pub struct ScriptRun {
    pub tenant: TenantId,
    pub execution: ExecutionId,
    pub script: Arc<Script>,
    pub event_id: EventId,
    pub event_type: EventType,
    pub timestamp: Timestamp,
    pub data: Json,
    /// What the script's clock says.
    pub now: Timestamp,
    /// The result as JSON may have this many bytes.
    pub result_bytes_max: usize,
}

/// A script that came to its end.
#[derive(Debug, Clone)]
pub struct RunDone {
    pub result: Json,
    /// A list of `{"level", "text"}`.
    pub logs: Option<Json>,
    pub calls: Vec<RunCall>,
    pub took: Duration,
}

/// What a script asked for.
#[derive(Debug, Clone)]
pub enum RunCall {
    Publish { id: EventId, event_type: EventType, data: Json },
    SubmitJob { id: JobId, spec: Json },
    ResolveError { id: EventId, error: Json },
}

/// A script that did not.
#[derive(Debug, Clone)]
pub struct RunFailed {
    pub class: Arc<str>,
    /// Whether another try may end otherwise.
    pub is_transient: bool,
    pub message: String,
    pub stack: String,
    pub logs: Option<Json>,
    pub took: Duration,
}

impl RunFailed {
    /// A failure that no other try helps against.
    pub fn validation(message: impl Into<String>) -> Self {
        Self {
            class: Arc::from("validation"),
            is_transient: false,
            message: message.into(),
            stack: String::new(),
            logs: None,
            took: Duration::ZERO,
        }
    }
}
