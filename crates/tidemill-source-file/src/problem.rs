//! What is wrong with a file, and where.

use std::fmt;

use crate::position::TextPosition;

/// One thing that is wrong. It prints as `job.yaml:12:5: tasks[2].timeout: must be …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    pub file: String,
    pub place: TextPosition,
    /// The field, `tasks[2].timeout`; empty for the document as a whole or its grammar.
    pub path: String,
    pub message: String,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, path, message } = self;
        if path.is_empty() {
            return write!(f, "{file}:{place}: {message}");
        }
        write!(f, "{file}:{place}: {path}: {message}")
    }
}

/// All that is wrong with a file, in the order of the text; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblems(pub Vec<FileProblem>);

impl fmt::Display for FileProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FileProblems {}
