//! Why a call did not work.

use hyper::StatusCode;

use crate::ProblemDocument;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server said no, and why.
    #[error("{}", describe_problem(.0))]
    Problem(Box<ProblemDocument>),
    /// No answer. It may be worth trying again.
    #[error("cannot reach {url}: {cause}")]
    Unreachable { url: String, cause: String },
    /// An answer that no server of this kind gives.
    #[error("the answer cannot be understood: {0}")]
    Strange(String),
}

impl ClientError {
    /// The same as a document. What no server said has a code of its own.
    pub fn document(&self) -> ProblemDocument {
        match self {
            Self::Problem(problem) => (**problem).clone(),
            Self::Unreachable { .. } => local_problem(503, "UNREACHABLE", self.to_string()),
            Self::Strange(_) => local_problem(502, "NOT_UNDERSTOOD", self.to_string()),
        }
    }

    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }
}

/// A problem that was found on this side, in the form that a server's has.
pub fn local_problem(status: u16, code: &'static str, detail: String) -> ProblemDocument {
    let title = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    ProblemDocument {
        instance: None,
        r#type: format!("urn:tidemill:problem:{code}"),
        title: title.unwrap_or("Error").to_owned(),
        status,
        code: code.into(),
        detail,
        details: Vec::new(),
    }
}

/// A problem as lines: one for each detail if there are several, else one.
fn describe_problem(problem: &ProblemDocument) -> String {
    if problem.details.len() < 2 {
        return format!("{} ({})", problem.detail, problem.code);
    }
    let lines = problem.details.iter().map(|detail| {
        let field = if detail.field.is_empty() { String::new() } else { format!("{}: ", detail.field) };
        format!("{field}{} ({})", detail.message, detail.code)
    });
    lines.collect::<Vec<_>>().join("\n")
}
