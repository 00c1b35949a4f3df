//! A job where there is no terminal: a line whenever something happens.

use tidemill_model::work::last_error::in_short;

use super::humanize::{clock_time, count, span};
use super::job_state::{JobState, TaskLine, TaskPhase};
use super::line;

/// Makes the lines; its owner writes them.
#[derive(Debug, Default)]
pub(crate) struct PlainLines;

impl PlainLines {
    pub(crate) fn started(state: &JobState, at: u64) -> String {
        let name = state.name.as_deref().map(line::clean).unwrap_or_default();
        let tasks = count(state.tasks.len() as u64, "task");
        format!("{} {name}: {} with {tasks}", clock_time(at), state.job_id)
    }

    /// `None` for what is not worth a line.
    pub(crate) fn moved(task: &TaskLine, at: u64) -> Option<String> {
        let error = || line::clean(&in_short(task.error.as_deref().unwrap_or("no reason was given")));
        let took = task.elapsed(at).map(span).unwrap_or_default();
        let attempt = if task.attempt > 1 { format!(", attempt {}", task.attempt) } else { String::new() };
        let what = match task.phase {
            TaskPhase::Queued if task.given_back => "was given back and waits to be run again".to_owned(),
            TaskPhase::Waiting | TaskPhase::Queued => return None,
            TaskPhase::Running => format!("started{attempt}"),
            TaskPhase::Retrying => format!("failed at attempt {}: {}", task.attempt.max(1), error()),
            TaskPhase::Parked => format!("failed and is parked{attempt}: {}", error()),
            TaskPhase::Completed => format!("completed in {took}{attempt}"),
            TaskPhase::Failed => format!("failed for good: {}", error()),
            TaskPhase::TimedOut => format!("timed out after {took}"),
            TaskPhase::Cancelled => "was cancelled".to_owned(),
        };
        Some(format!("{} {} {what}", clock_time(at), task.task_id))
    }

    /// A line that a task wrote.
    pub(crate) fn output_line(task_id: &str, text: &str, at: u64) -> String {
        format!("{} {task_id} | {}", clock_time(at), line::clean(text))
    }
}
