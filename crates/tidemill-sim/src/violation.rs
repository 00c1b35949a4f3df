//! A broken promise.

use std::fmt;

/// Something that must always hold did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule, in a few words that stay the same from run to run.
    pub check: &'static str,
    /// What was found, with the ids to look for in the trace.
    pub detail: String,
}

impl Violation {
    pub(crate) fn new(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, detail: detail.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.detail)
    }
}

/// Demands that something holds; `detail` is only made when it does not.
pub(crate) fn demand<D: Into<String>>(
    holds: bool,
    check: &'static str,
    detail: impl FnOnce() -> D,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation::new(check, detail())) }
}
