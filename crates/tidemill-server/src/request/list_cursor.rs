//! Cursors of lists: where a page ended, as a text that clients hand back.
//!
//! Opaque to clients and no secret: what a caller may see is decided by its tenant alone.

use crate::problem::Problem;

/// The text for a place in the list `kind`.
pub(crate) fn write(kind: &str, place: &str) -> String {
    format!("{kind}1.{place}")
}

/// The place in a list that a text names.
pub(crate) fn read<'a>(kind: &str, text: &'a str) -> Result<&'a str, Problem> {
    text.strip_prefix(kind).and_then(|rest| rest.strip_prefix("1.")).ok_or_else(refuse)
}

/// The answer to a text that was not given out.
pub(crate) fn refuse() -> Problem {
    Problem::invalid_parameter("cursor", "is not one that this list gave out")
}
