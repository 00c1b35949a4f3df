//! What is wrong with a document that a client wrote: all of it, each thing with its place.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// How many problems are listed. There may be more: the reader of a document stops looking soon after.
pub const PROBLEMS_MAX: usize = 100;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FieldProblem {
    /// The field, such as `tasks[3].timeout`; empty for the whole document.
    pub path: String,
    /// The stable code that clients see.
    pub code: &'static str,
    /// What is wrong, without the field's name.
    pub message: String,
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{} {}", self.path, self.message)
    }
}

/// Everything that is wrong with a document; never empty when it is an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.summary())]
pub struct FieldProblems {
    /// The first ones, at most [`PROBLEMS_MAX`].
    pub listed: Vec<FieldProblem>,
    /// How many were found. Above [`PROBLEMS_MAX`] it only says that there are more than are listed.
    pub total: usize,
}

impl FieldProblems {
    pub fn one(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let mut problems = Self::default();
        problems.add(path, code, message);
        problems
    }

    /// Whether no more are listed, so that it is not worth looking for them.
    pub fn is_full(&self) -> bool {
        self.total > PROBLEMS_MAX
    }

    /// Adds those that were found elsewhere.
    pub fn append(&mut self, others: Self) {
        let listed = others.listed.len();
        for FieldProblem { path, code, message } in others.listed {
            self.add(path, code, message);
        }
        self.total += others.total - listed;
    }

    pub fn add(&mut self, path: impl Into<String>, code: &'static str, message: impl Into<String>) {
        self.total += 1;
        if self.listed.len() < PROBLEMS_MAX {
            self.listed.push(FieldProblem { path: path.into(), code, message: message.into() });
        }
    }

    /// `value`, unless something is wrong.
    pub fn or<T>(self, value: T) -> Result<T, Self> {
        if self.total == 0 { Ok(value) } else { Err(self) }
    }

    fn summary(&self) -> String {
        let first = self.listed.first().map(ToString::to_string).unwrap_or_default();
        match self.total {
            0 | 1 => first,
            _ if self.is_full() => format!("{first} (the first of more than {PROBLEMS_MAX} problems)"),
            total => format!("{first} (the first of {total} problems)"),
        }
    }
}

/// The codes of problems, as clients see them.
pub mod code {
    pub const INVALID_JSON: &str = "INVALID_JSON";
    pub const UNKNOWN_FIELD: &str = "UNKNOWN_FIELD";
    pub const MISSING_FIELD: &str = "MISSING_FIELD";
    pub const INVALID_TYPE: &str = "INVALID_TYPE";
    pub const INVALID_VALUE: &str = "INVALID_VALUE";
    pub const OUT_OF_RANGE: &str = "OUT_OF_RANGE";
    pub const TOO_LONG: &str = "TOO_LONG";
    pub const INVALID_TASK_ID: &str = "INVALID_TASK_ID";
    pub const INVALID_INPUT: &str = "INVALID_INPUT";
    pub const EMPTY_TASKS: &str = "EMPTY_TASKS";
    pub const TOO_MANY_TASKS: &str = "TOO_MANY_TASKS";
    /// Not exactly one of `name`, `run`, `agent` and `script`.
    pub const ONE_OF: &str = "ONE_OF";
    /// The name of a variable that a task may not set.
    pub const RESERVED_VARIABLE: &str = "RESERVED_VARIABLE";
    /// The name of a variable that the operator does not let tasks have.
    pub const SECRET_NOT_LISTED: &str = "SECRET_NOT_LISTED";
    /// A task that a job has and a file has not, or with other dependencies.
    pub const GRAPH_CHANGED: &str = "GRAPH_CHANGED";
    pub const UNKNOWN_TASK_DEFINITION: &str = "UNKNOWN_TASK_DEFINITION";
}
