//! Why a call did not work.

use std::fmt::Write as _;

use tidemill_server::api::ProblemDocument;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The server said no, and why.
    #[error("{}", told(.0))]
    Problem(Box<ProblemDocument>),
    /// No answer. It may be worth trying again.
    #[error("cannot reach {url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// An answer that no server of this kind gives.
    #[error("the answer cannot be understood: {0}")]
    Strange(String),
}

impl ClientError {
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }
}

/// A problem as lines: the whole, then each detail.
fn told(problem: &ProblemDocument) -> String {
    let mut text = format!("{} ({})", problem.detail, problem.code);
    for detail in &problem.details {
        let field = if detail.field.is_empty() { String::new() } else { format!("{}: ", detail.field) };
        let _ = write!(text, "\n  {field}{} ({})", detail.message, detail.code);
    }
    text
}
