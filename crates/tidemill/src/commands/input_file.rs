//! A file that a command was given, or standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidemill_source_file::{FILE_BYTES_MAX, FileProblem, FileProblems, Form, SourceFile};

use super::CommandError;
use crate::client::ClientError;

/// The bytes and the name that errors use.
pub(super) struct InputFile {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

impl InputFile {
    /// `-` is standard input.
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let name = if path.as_os_str() == "-" { "<stdin>".to_owned() } else { path.display().to_string() };
        let mut bytes = Vec::new();
        // One byte more than may be there, so that the reader can tell.
        let limit = FILE_BYTES_MAX as u64 + 1;
        let read = if path.as_os_str() == "-" {
            std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
        };
        read.map_err(|error| CommandError::Unusable(format!("cannot read {name}: {error}")))?;
        Ok(Self { name, path: path.to_owned(), bytes })
    }

    pub(super) fn form(&self) -> Form {
        Form::of(&self.path, &self.bytes)
    }

    pub(super) fn document(&self) -> Result<SourceFile, FileProblems> {
        SourceFile::read(&self.name, self.form(), &self.bytes)
    }

    /// The name without folders, for a job that has none of its own.
    pub(super) fn short_name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        if self.path.as_os_str() == "-" { "stdin".to_owned() } else { name.to_string_lossy().into_owned() }
    }
}

/// What a server found wrong with a document, at the places in the file.
pub(super) fn at_places(document: &SourceFile, error: ClientError) -> CommandError {
    match error {
        ClientError::Problem(problem) if problem.status == 400 && !problem.details.is_empty() => {
            let found = problem.details.iter().map(|detail| (detail.field.clone(), detail.message.clone()));
            let FileProblems(problems) = document.problems(found);
            let lines: Vec<_> = problems.iter().map(FileProblem::to_string).collect();
            CommandError::Written(lines.join("\n"))
        }
        error => error.into(),
    }
}
