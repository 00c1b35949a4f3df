//! How a job ended, for people and for programs.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;
use tidemill_api::{JobStatusName, JobView, TaskRow, TaskStateName, TaskView};
use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_model::spending::budget::BUDGET_EXCEEDED;
use tidemill_model::{Json, UsageSum};

use super::Ended;
use super::usage::usage_line;
use crate::client::{Client, ClientError, encode};
use crate::display::humanize::{count, span};
use crate::display::line;
use crate::output::Output;
use crate::watch::{is_at_rest, is_parked, job_with_tasks};

/// The exit code of a job that waits for somebody.
const PARKED: u8 = 3;
/// How many failed tasks are named.
pub(super) const FAILURES_MAX: usize = 10;

/// A job with all its tasks and their outputs.
pub(super) struct JobReport {
    pub(super) job: JobView,
    pub(super) rows: Vec<TaskRow>,
    /// When it was read, in epoch milliseconds.
    read_at: u64,
}

impl JobReport {
    pub(super) async fn read(client: &Client, job_id: &str) -> Result<Self, ClientError> {
        let (job, mut rows) = job_with_tasks(client, job_id).await?;
        for row in rows.iter_mut().filter(|row| row.output_omitted) {
            let task: TaskView = client.get(format!("/v1/tasks/{}", encode(&row.request_id))).await?;
            row.output = task.output;
            row.output_omitted = false;
        }
        let read_at = SystemClock::start().now().millis();
        Ok(Self { job, rows, read_at })
    }

    /// Whether all that is left waits for somebody.
    /// Says what to do if a task ended because a budget was used up, which a resume alone does not change.
    pub(super) fn print_lacking_budget(&self, out: &mut Output) {
        let is_used_up = |row: &TaskRow| {
            row.last_error.as_ref().and_then(|error| error.code.as_deref()) == Some(BUDGET_EXCEEDED)
        };
        if self.rows.iter().any(is_used_up) {
            out.note(format_args!(
                "a budget is used up; raise it first: tidemill jobs budget {} --usd DOLLARS, or tidemill usage budget set",
                self.job.job_id
            ));
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        is_parked(&self.job)
    }

    pub(super) fn exit_code(&self) -> ExitCode {
        match self.job.status {
            JobStatusName::Completed => ExitCode::SUCCESS,
            _ if self.is_parked() => ExitCode::from(PARKED),
            _ => ExitCode::FAILURE,
        }
    }

    /// From its creation to the end of its last task, or to now if it is not at its end.
    fn took_millis(&self) -> u64 {
        let created = self.job.created_at;
        let until = match self.rows.iter().filter_map(|row| row.finished_at).max() {
            ended if is_at_rest(self.job.status) => ended.unwrap_or(created),
            _ => self.read_at,
        };
        until.saturating_sub(created)
    }

    /// The report of a job whose worker has stopped: what it had begun and not ended waits to be run again.
    pub(super) fn stopped(mut self) -> Self {
        let begun = |row: &&mut TaskRow| row.status == Some(TaskStateName::Processing) && !row.parked;
        for row in self.rows.iter_mut().filter(begun) {
            row.status = Some(TaskStateName::Pending);
            (row.started_at, row.error, row.error_category, row.last_error) = (None, None, None, None);
        }
        self
    }

    /// The tasks that no other waits for: what the job was for.
    fn results(&self) -> impl Iterator<Item = &TaskRow> {
        let waited: std::collections::HashSet<&str> =
            self.rows.iter().flat_map(|row| row.depends_on.iter().map(String::as_str)).collect();
        self.rows.iter().filter(move |row| !waited.contains(row.task_id.as_str()))
    }

    pub(super) fn to_json(&self, interrupted: bool) -> JobReportJson<'_> {
        let tasks = self.rows.iter().map(|row| (row.task_id.as_str(), task_json(row))).collect();
        JobReportJson {
            job_id: &self.job.job_id,
            name: self.job.name.as_deref(),
            status: self.job.status.as_str(),
            interrupted,
            duration_ms: self.took_millis(),
            usage: self.job.usage,
            tasks,
        }
    }
}

/// One JSON object, the last thing on standard output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobReportJson<'a> {
    job_id: &'a str,
    name: Option<&'a str>,
    status: &'static str,
    /// Whether the user stopped it before its end.
    interrupted: bool,
    duration_ms: u64,
    /// What its agents used, if any said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageSum>,
    /// By task id.
    tasks: BTreeMap<&'a str, BTreeMap<String, Json>>,
}

/// A task that has no attempts left says only that; `cause` is why the last one failed.
fn task_json(row: &TaskRow) -> BTreeMap<String, Json> {
    // Field by field and letter by letter: an output need not be one that can be read.
    let mut fields: BTreeMap<String, Json> = Json::of(row).read().unwrap_or_default();
    for name in ["taskId", "blockedBy", "labels"] {
        fields.remove(name);
    }
    if let Some(last) = row.last_error.as_ref().filter(|_| has_failed(row) || row.parked) {
        fields.insert("cause".to_owned(), Json::of(&last.message));
    }
    fields
}

/// Says how the job ended. The exit code tells too.
pub(super) fn print_report(report: &JobReport, json: bool, out: &mut Output) -> Ended {
    if json {
        out.json(&report.to_json(false))?;
        return Ok(report.exit_code());
    }
    summary(report, out);
    if let Some(usage) = &report.job.usage {
        out.note(format_args!("used {}", usage_line(usage)));
    }
    for row in report.results() {
        if let Some(output) = &row.output
            && output.as_str() != "{}"
        {
            out.data(format_args!("{}: {}", row.task_id, line::clean(output.as_str())))?;
        }
    }
    Ok(report.exit_code())
}

fn summary(report: &JobReport, out: &mut Output) {
    let JobView { status, counts, total_tasks, .. } = &report.job;
    let took = span(report.took_millis());
    let total = count(u64::from(*total_tasks), "task");
    match status {
        JobStatusName::Completed => out.note(format_args!("completed: {total} in {took}")),
        _ if report.is_parked() => {
            let parked = counts.parked;
            let failed = match counts.failed {
                0 => String::new(),
                failed => format!(", {failed} failed"),
            };
            let waiting = waiting_words(counts.waiting);
            out.note(format_args!(
                "waiting for a decision: {parked} of {total}{failed}{waiting}, after {took}"
            ));
            print_causes(report, |row| row.parked || has_failed(row), out);
        }
        status => {
            let JobStatusName::Failed = status else {
                out.note(format_args!("{}: {} of {total} completed", status.as_str(), counts.completed));
                return;
            };
            let waiting = waiting_words(counts.waiting);
            out.note(format_args!("failed: {} of {total} failed{waiting}, after {took}", counts.failed));
            print_causes(report, has_failed, out);
        }
    }
}

fn waiting_words(waiting: u32) -> String {
    match waiting {
        0 => String::new(),
        waiting => format!(", {} not started", count(u64::from(waiting), "task")),
    }
}

/// Names the tasks that went wrong, the first of them, each with its cause.
fn print_causes(report: &JobReport, is_told: impl Fn(&TaskRow) -> bool, out: &mut Output) {
    for row in report.rows.iter().filter(|row| is_told(row)).take(FAILURES_MAX) {
        let attempts = if row.attempt > 1 { format!(" (attempt {})", row.attempt) } else { String::new() };
        let cause = line::indented(row.why().unwrap_or("it took too long"), 4);
        out.note(format_args!("  {}{attempts}: {cause}", row.task_id));
    }
}

fn has_failed(row: &TaskRow) -> bool {
    row.status == Some(TaskStateName::Failed)
}

#[cfg(test)]
mod tests {
    use tidemill_model::ErrorCategory;

    use super::*;

    #[test]
    fn the_reference_names_every_field() {
        let last = tidemill_model::LastError::new("exit code 1", ErrorCategory::Unknown);
        let row: TaskRow = serde_json::from_value(serde_json::json!({
            "taskId": "a", "requestId": "job-1_a", "name": "work", "dependsOn": [], "status": "failed", "run": 1,
            "attempt": 1, "startedAt": 1, "finishedAt": 2, "output": {}, "error": "exit code 1",
            "errorCategory": "unknown", "lastError": last, "blockedBy": [], "retrying": true, "parked": true,
        }))
        .unwrap();
        let tasks = BTreeMap::from([("a", task_json(&row))]);
        let report = JobReportJson {
            job_id: "job-1",
            name: None,
            status: "failed",
            interrupted: false,
            duration_ms: 1,
            usage: Some(UsageSum::default()),
            tasks,
        };
        let printed = serde_json::to_value(&report).unwrap();
        let page = include_str!("../../../../docs/reference/command-line.md");
        let told = page.split("\n- ").find(|item| item.starts_with("`--json` shows no progress")).unwrap();
        let (of_job, of_task) = (&printed, &printed["tasks"]["a"]);
        let names = [of_job, of_task].into_iter().flat_map(|part| part.as_object().unwrap().keys());
        let missing: Vec<_> = names.filter(|name| !told.contains(&format!("`{name}`"))).collect();
        assert_eq!(missing, Vec::<&String>::new());
    }
}
