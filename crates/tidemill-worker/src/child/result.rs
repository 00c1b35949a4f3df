//! The output of a child that succeeded.
//!
//! It is taken from the first of these that there is: the result line of the protocol, `artifacts/task-result.json`, a
//! last line of stdout that is a JSON object. Without any of them it is `{}`.

use std::io;
use std::path::Path;

use tidemill_engine::engine::limits::OUTPUT_BYTES_MAX;
use tidemill_model::{ErrorCategory, Json};

use super::directory::AttemptDirectory;
use super::inner_file::Oversize;
use super::protocol::{ResultOutput, ResultRecord};
use crate::trouble::is_own;

const RESULT_FILE: &str = "artifacts/task-result.json";

/// A result that cannot be used. The task fails: to drop it silently would be worse.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadResult {
    pub(crate) message: String,
    pub(crate) category: ErrorCategory,
    /// Of an agent: what the agent itself would call it.
    pub(crate) code: Option<&'static str>,
    /// It could not be looked at for a reason that is the worker's own.
    pub(crate) is_unread: bool,
}

/// What an agent calls an output that does not satisfy its schema.
const BAD_OUTPUT: &str = "AGENT_BAD_OUTPUT";

impl BadResult {
    pub(crate) fn new(message: String, category: ErrorCategory) -> Self {
        Self { message, category, code: None, is_unread: false }
    }

    /// An output of an agent that does not satisfy its schema, told as the agent tells it.
    pub(crate) fn of_agent(problem: &str) -> Self {
        let message = format!("ValidationError: {problem} ({BAD_OUTPUT})");
        Self { code: Some(BAD_OUTPUT), ..Self::new(message, ErrorCategory::Validation) }
    }
}

pub(crate) fn output_of(
    record: Option<&ResultRecord>,
    last_line: Option<&[u8]>,
    directory: &AttemptDirectory,
    left_files: bool,
) -> Result<Json, BadResult> {
    let output = find(record, last_line, directory, left_files)?;
    if let Some(problem) = output.problem() {
        let message = format!("the result {problem}");
        return Err(BadResult::new(message, ErrorCategory::Validation));
    }
    Ok(output)
}

fn find(
    record: Option<&ResultRecord>,
    last_line: Option<&[u8]>,
    directory: &AttemptDirectory,
    left_files: bool,
) -> Result<Json, BadResult> {
    match record.map(|record| &record.output) {
        Some(ResultOutput::Inline(output)) => return Ok(output.clone()),
        Some(ResultOutput::File(file)) => {
            let path = Path::new(file);
            // Both forms are natural to a program that knows its output directory.
            let path = path.strip_prefix(&directory.path).unwrap_or(path);
            return read(directory, path)?.map_err(|_| {
                let message = format!("outputFile {file} is no plain file inside the output directory");
                BadResult::new(message, ErrorCategory::NotFound)
            });
        }
        Some(ResultOutput::Absent) | None => {}
    }
    if left_files {
        match read(directory, Path::new(RESULT_FILE))? {
            Ok(output) => return Ok(output),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("the result in {RESULT_FILE} cannot be used: {error}");
                return Err(BadResult::new(message, ErrorCategory::Validation));
            }
        }
    }
    Ok(last_line.and_then(json_object).unwrap_or_else(Json::empty_object))
}

fn json_object(line: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(line).ok()?.trim();
    Json::parse(text.to_owned()).ok().filter(Json::is_object)
}

/// The JSON value in a file; within, why there is no such file.
fn read(directory: &AttemptDirectory, path: &Path) -> Result<io::Result<Json>, BadResult> {
    let bytes = match directory.inner.read(path, OUTPUT_BYTES_MAX as u64) {
        Ok(bytes) => bytes,
        Err(Oversize::Io(error)) if is_own(&error) => {
            let message = format!("the result in {} cannot be read: {error}", path.display());
            return Err(BadResult { is_unread: true, ..BadResult::new(message, ErrorCategory::ServerError) });
        }
        Err(Oversize::Io(error)) => return Ok(Err(error)),
        Err(Oversize::TooLarge(size)) => {
            let message =
                format!("the result in {} is {size} bytes; the limit is {OUTPUT_BYTES_MAX}", path.display());
            return Err(BadResult::new(message, ErrorCategory::Validation));
        }
    };
    let unreadable = |problem: String| {
        let message = format!("the result in {} is not JSON: {problem}", path.display());
        BadResult::new(message, ErrorCategory::Parse)
    };
    let text = String::from_utf8(bytes).map_err(|error| unreadable(error.to_string()))?;
    Json::parse(text.trim().to_owned()).map(Ok).map_err(|error| unreadable(error.to_string()))
}
