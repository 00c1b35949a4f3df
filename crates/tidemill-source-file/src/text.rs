//! A document: bytes that were read as YAML or JSON.

use std::path::Path;

use serde_json::Value;

use crate::node::SourceNode;
use crate::position::TextPosition;
use crate::problem::{FileProblem, FileProblems};
use crate::{json, yaml};

/// The largest file that is read, in bytes: as large as a request may be.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// How deep lists and maps may lie in one another.
pub const DEPTH_MAX: usize = 100;
/// How many problems are told at once.
pub const PROBLEMS_MAX: usize = 100;

/// The languages a document may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Yaml,
    Json,
}

impl Form {
    /// By the name of the file, else by how it begins.
    pub fn of(name: &Path, bytes: &[u8]) -> Self {
        let extension =
            name.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            _ => match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                Some(b'{') => Self::Json,
                _ => Self::Yaml,
            },
        }
    }
}

/// What was read, and the name it is called by in errors.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceFile {
    pub name: String,
    pub root: SourceNode,
}

/// Something wrong at a place, before it is known which file it is.
#[derive(Debug)]
pub(crate) struct Found {
    place: TextPosition,
    message: String,
}

impl Found {
    pub(crate) fn new(place: TextPosition, message: impl Into<String>) -> Self {
        Self { place, message: message.into() }
    }
}

impl SourceFile {
    pub fn read(name: &str, form: Form, bytes: &[u8]) -> Result<Self, FileProblems> {
        let root = checked(bytes).and_then(|text| match form {
            Form::Yaml => yaml::read(text),
            Form::Json => json::read(text),
        });
        let root = root.map_err(|mut found| {
            found.sort_by_key(|problem| problem.place);
            let told = found.into_iter().take(PROBLEMS_MAX).map(|Found { place, message }| FileProblem {
                file: name.to_owned(),
                place,
                path: String::new(),
                message,
            });
            FileProblems(told.collect())
        })?;
        Ok(Self { name: name.to_owned(), root })
    }

    pub fn to_value(&self) -> Value {
        self.root.to_value()
    }

    /// A problem with the field at `path`.
    pub fn problem(&self, path: &str, message: impl Into<String>) -> FileProblem {
        let (file, place) = (self.name.clone(), self.root.place_of(path));
        FileProblem { file, place, path: path.to_owned(), message: message.into() }
    }

    /// Problems with fields, in the order of the text.
    pub fn problems(&self, found: impl IntoIterator<Item = (String, String)>) -> FileProblems {
        let mut problems: Vec<_> =
            found.into_iter().map(|(path, message)| self.problem(&path, message)).collect();
        problems.sort_by_key(|problem| problem.place);
        problems.truncate(PROBLEMS_MAX);
        FileProblems(problems)
    }
}

/// The bytes as text, without what neither language may hold.
fn checked(bytes: &[u8]) -> Result<&str, Vec<Found>> {
    if bytes.len() > FILE_BYTES_MAX {
        let problem = format!("the file has {} bytes; the limit is {FILE_BYTES_MAX}", bytes.len());
        return Err(vec![Found::new(TextPosition::START, problem)]);
    }
    let (text, wrong) = match std::str::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let valid = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            (valid, Some((valid.len(), "the file is not UTF-8 from here on".to_owned())))
        }
    };
    let is_bad = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}');
    let control = text.char_indices().find(|&(_, character)| is_bad(character));
    let control =
        control.map(|(at, c)| (at, format!("the control character U+{:04X} may not be in a file", c as u32)));
    match control.or(wrong) {
        Some((at, message)) => Err(vec![Found::new(place_at(text, at), message)]),
        // A byte order mark is none of the text.
        None => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
    }
}

fn place_at(text: &str, at: usize) -> TextPosition {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    let bounded = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    TextPosition { line: bounded(line), column: bounded(column) }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
