//! Checks of single values: within bounds or an error that names the field and the limit.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::RangeInclusive;

use tidemill_model::work::artifact::ARTIFACTS_MAX;
use tidemill_model::work::dag_violation::{DagViolation, DagViolations, VIOLATIONS_MAX};
use tidemill_model::work::task_input::new_input_problem;
use tidemill_model::{ArtifactFile, Json, TaskOptions, TaskSpec};

use crate::engine::EngineError;
use crate::engine::limits::{
    ATTEMPTS_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, RETRY_DELAY_MILLIS_MAX, TEXT_CHARS_MAX, TIMEOUT_MILLIS_MAX,
    TIMEOUT_MILLIS_MIN,
};

type Field = Cow<'static, str>;

pub(crate) fn size(
    field: impl Into<Field>,
    size_bytes: usize,
    limit_bytes: usize,
) -> Result<(), EngineError> {
    if size_bytes <= limit_bytes {
        return Ok(());
    }
    Err(EngineError::TooLarge { field: field.into(), size_bytes, limit_bytes })
}

/// A value that all readers of JSON can read.
pub(crate) fn value(field: impl Into<Field>, value: &Json) -> Result<(), EngineError> {
    value.problem().map_or(Ok(()), |problem| Err(EngineError::invalid(field, problem.to_string())))
}

pub(crate) fn between(
    field: impl Into<Field>,
    value: u64,
    range: RangeInclusive<u64>,
) -> Result<(), EngineError> {
    if range.contains(&value) {
        return Ok(());
    }
    let problem = format!("is {value}; it must be from {} to {}", range.start(), range.end());
    Err(EngineError::invalid(field, problem))
}

/// The files that a worker names with a completion.
pub(crate) fn artifacts(artifacts: &[ArtifactFile]) -> Result<(), EngineError> {
    between("artifacts", artifacts.len() as u64, 0..=ARTIFACTS_MAX as u64)?;
    let mut named = HashSet::new();
    for (at, artifact) in artifacts.iter().enumerate() {
        if let Some((field, problem)) = artifact.problem() {
            return Err(EngineError::invalid(format!("artifacts[{at}].{field}"), problem.to_string()));
        }
        if !named.insert(artifact.path.as_str()) {
            let problem = format!("is {:?}, as that of another one", artifact.path);
            return Err(EngineError::invalid(format!("artifacts[{at}].path"), problem));
        }
    }
    Ok(())
}

/// A number of items to give at once.
pub(crate) fn count(field: &'static str, value: usize, max: usize) -> Result<(), EngineError> {
    between(field, value as u64, 1..=max as u64)
}

/// A name that is shown to people: not empty, short, without control characters.
pub(crate) fn name(field: impl Into<Field>, text: &str) -> Result<(), EngineError> {
    short_text(field.into(), text, NAME_BYTES_MAX)
}

/// A client's key: not empty, short, without control characters.
pub(crate) fn key(field: &'static str, text: &str) -> Result<(), EngineError> {
    short_text(field.into(), text, KEY_BYTES_MAX)
}

fn short_text(field: Field, text: &str, limit: usize) -> Result<(), EngineError> {
    if text.is_empty() {
        return Err(EngineError::invalid(field, "is empty"));
    }
    if text.len() > limit {
        return Err(EngineError::invalid(
            field,
            format!("is {} bytes long; the limit is {limit}", text.len()),
        ));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(found) => {
            Err(EngineError::invalid(field, format!("holds {found:?}; control characters are refused")))
        }
        None => Ok(()),
    }
}

/// A text of some length.
pub(crate) fn text(field: &'static str, text: &str) -> Result<(), EngineError> {
    let count = text.chars().count();
    if count <= TEXT_CHARS_MAX {
        return Ok(());
    }
    Err(EngineError::invalid(field, format!("is {count} characters long; the limit is {TEXT_CHARS_MAX}")))
}

/// What may be set per task. `path` names the task, such as `tasks[3].`.
pub(crate) fn options(path: &str, options: &TaskOptions) -> Result<(), EngineError> {
    if let Some(timeout) = options.timeout_ms {
        between(format!("{path}timeout"), timeout, TIMEOUT_MILLIS_MIN..=TIMEOUT_MILLIS_MAX)?;
    }
    if let Some(retry) = options.retry {
        between(format!("{path}retry.maxAttempts"), retry.max_attempts.into(), 1..=ATTEMPTS_MAX.into())?;
        between(format!("{path}retry.firstDelay"), retry.first_delay, 0..=RETRY_DELAY_MILLIS_MAX)?;
        between(format!("{path}retry.maxDelay"), retry.max_delay, 0..=RETRY_DELAY_MILLIS_MAX)?;
    }
    Ok(())
}

/// What can be said of tasks without knowing the job they are added to.
pub(crate) fn added_tasks(tasks: &[TaskSpec]) -> Result<(), EngineError> {
    let mut violations = DagViolations::default();
    for (at, spec) in tasks.iter().enumerate() {
        let Some(problem) = new_input_problem(&spec.input) else { continue };
        violations.total += 1;
        if violations.listed.len() < VIOLATIONS_MAX {
            violations.listed.push(DagViolation::InvalidInput { at, task: spec.task_id.clone(), problem });
        }
    }
    if violations.total > 0 {
        return Err(crate::kernel::reply::Refusal::Graph(violations).into());
    }
    all_options(tasks)
}

fn all_options(tasks: &[TaskSpec]) -> Result<(), EngineError> {
    let set = tasks.iter().enumerate().filter(|(_, spec)| spec.options != TaskOptions::default());
    for (at, spec) in set {
        options(&format!("tasks[{at}]."), &spec.options)?;
    }
    Ok(())
}
