//! One execution of a script: what goes in, what comes out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::{EventId, EventType, Json, TenantId, Timestamp};

use crate::call::{Grants, HostCall};
use crate::input::{BadInput, cleaned};
use crate::limits::Limits;
use crate::script_source::ScriptSource;

/// What a script is asked to do.
#[derive(Debug, Clone)]
pub struct Request {
    pub script: Arc<ScriptSource>,
    pub tenant: TenantId,
    /// Names the execution. The ids of its calls and its random numbers are made from it, so that a repetition has the
    /// same.
    pub execution: EventId,
    /// What `Date` says, from the start to the end.
    pub now: Timestamp,
    pub subject: Subject,
    pub grants: Grants,
    pub limits: Limits,
}

/// What a script is run for.
#[derive(Debug, Clone)]
pub enum Subject {
    /// An event: `ctx.event`.
    Event { id: EventId, event_type: EventType, timestamp: Timestamp, data: Json },
    /// A task: `ctx.input`, with the outputs of its parents in it.
    Task { input: Json },
}

/// A successful execution.
#[derive(Debug, Clone)]
pub struct CompletedExecution {
    /// What the script returned; `null` when that was nothing.
    pub result: Json,
    pub logs: Vec<ScriptLogLine>,
    /// Whether lines were dropped or cut.
    pub logs_truncated: bool,
    /// What the script asked for, in order. It counts only once it is committed together with the success.
    pub calls: Vec<HostCall>,
    pub stats: Stats,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptLogLine {
    pub level: ScriptLogLevel,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ScriptLogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl ScriptLogLevel {
    pub(crate) fn from_number(number: i32) -> Self {
        match number {
            0 => Self::Debug,
            2 => Self::Warn,
            3 => Self::Error,
            _ => Self::Info,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// What an execution took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    pub wall_micros: u64,
    pub cpu_micros: u64,
    /// The most that the engine had allocated, itself included.
    pub peak_memory_bytes: u64,
}

impl Request {
    /// The fields of `ctx` as a JSON object.
    pub(crate) fn context(&self) -> Result<String, BadInput> {
        let tenant = Json::of(self.tenant.as_str());
        let tenant = tenant.as_str();
        let (name, value) = match &self.subject {
            Subject::Event { data, .. } => ("event.data", data),
            Subject::Task { input } => ("input", input),
        };
        let value = cleaned(name, value, self.limits.input_bytes)?;
        Ok(match &self.subject {
            Subject::Event { id, event_type, timestamp, .. } => format!(
                r#"{{"event":{{"id":"{id}","type":{},"timestamp":{},"data":{value}}},"tenant":{{"id":{tenant},"tenantID":{tenant}}}}}"#,
                Json::of(event_type.as_str()).as_str(),
                timestamp.millis(),
            ),
            Subject::Task { .. } => {
                format!(r#"{{"input":{value},"tenant":{{"id":{tenant},"tenantID":{tenant}}}}}"#)
            }
        })
    }
}
