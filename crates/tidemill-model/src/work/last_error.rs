//! What the last attempt of a task said: the reason why it failed, behind the word that no attempt was left.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::work::error_class::ErrorCategory;

/// What the last event of a task says that has no attempts left.
pub const RETRIES_EXHAUSTED: &str = "max retries exhausted, moved to DLQ";
/// Why a task failed whose message was taken by hand again and again.
pub const RECEIVED_TOO_OFTEN: &str = "its message was received too often, and nobody settled it";

/// Why a task failed, in the words of the worker that ran it last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// It may have several lines, as a traceback has.
    pub message: String,
    pub category: ErrorCategory,
    /// For programs, where there is one: `BUDGET_EXCEEDED`, `AGENT_NO_OUTPUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What an interpreter prints above the frames of a traceback; what is wrong stands in the last line.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// The message where there is room for a line: a traceback by its last line.
pub fn in_short(message: &str) -> Cow<'_, str> {
    match (message.split_once(TRACEBACK), message.trim_end().lines().last()) {
        (Some((before, _)), Some(last)) if !before.contains('\n') => Cow::Owned(format!("{before}{last}")),
        _ => Cow::Borrowed(message),
    }
}

impl LastError {
    pub fn new(message: impl Into<String>, category: ErrorCategory) -> Self {
        Self { message: message.into(), category, code: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceback_is_told_by_its_last_line() {
        for (message, expected) in [
            ("exit code 1: no such thing", "exit code 1: no such thing"),
            ("one\ntwo", "one\ntwo"),
            (
                "exit code 1: Traceback (most recent call last):\n  File \"x\", line 3\nOSError: no route\n",
                "exit code 1: OSError: no route",
            ),
            ("said\nTraceback (most recent call last):\nX", "said\nTraceback (most recent call last):\nX"),
            ("", ""),
        ] {
            assert_eq!(in_short(message), expected);
        }
    }
}
