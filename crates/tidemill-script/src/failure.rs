//! How an execution fails, and whether trying again may help.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::execution::{ScriptLogLine, Stats};

/// Why an execution failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ErrorClass {
    /// It ran longer than its wall time.
    Timeout,
    /// It needed more memory than it may have.
    Memory,
    /// Its result is too large, or is no JSON.
    Output,
    /// It called a host function without the grant.
    Permission,
    /// What it was given, or what it gave to a host function, breaks a rule. A script may throw it as well.
    Validation,
    /// It does not compile.
    Syntax,
    /// It threw something.
    Script,
    /// The engine or its process broke.
    Internal,
}

impl ErrorClass {
    /// Whether another try may end otherwise. What is permanent is dead at once.
    pub fn is_transient(self) -> bool {
        !matches!(self, Self::Permission | Self::Validation | Self::Syntax)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Memory => "memory",
            Self::Output => "output",
            Self::Permission => "permission",
            Self::Validation => "validation",
            Self::Syntax => "syntax",
            Self::Script => "script",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed execution. None of its calls count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FailedExecution {
    pub class: ErrorClass,
    pub message: String,
    /// Where it happened: one line per frame, each with the name of the script, line and column. Empty when unknown.
    pub stack: String,
    /// Line and column of the topmost frame.
    pub place: Option<(u32, u32)>,
    pub logs: Vec<ScriptLogLine>,
    pub logs_truncated: bool,
    pub stats: Stats,
}

impl FailedExecution {
    pub(crate) fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            stack: String::new(),
            place: None,
            logs: Vec::new(),
            logs_truncated: false,
            stats: Stats::default(),
        }
    }
}
