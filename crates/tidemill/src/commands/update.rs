//! A changed file for a job that is there: its tasks that did not complete take what the file says now, and failed ones run
//! again with it. `run --resume --update` and `jobs resume --update` do the same.

use axum::http::Method;
use serde_json::json;
use tidemill_api::{JobStatusName, ResumeRequest, Resumed, TasksChanged};
use tidemill_source_file::SourceFile;

use super::CommandError;
use super::input_file::at_places;
use crate::client::{Call, Client, ClientError, encode};
use crate::output::Output;

/// What a changed file did to a job.
#[derive(Debug)]
pub(super) struct Updated {
    pub(super) tasks: TasksChanged,
    /// The tasks that run again.
    pub(super) resumed: Vec<String>,
}

/// Gives a job the work of the file, then opens its failed tasks again.
///
/// The work changes first, so no worker takes a task that was just opened with what failed before.
pub(super) async fn update_and_resume(
    client: &Client,
    job_id: &str,
    status: JobStatusName,
    document: &SourceFile,
    request: &ResumeRequest,
) -> Result<Updated, CommandError> {
    let changed = match change(client, job_id, document).await {
        // Nothing can be added to a cancelled job until it is open. What changed is taken already.
        Err(error) if status == JobStatusName::Cancelled && error.code() == Some("JOB_CANCELLED") => None,
        changed => Some(changed.map_err(|error| at_places(document, error))?),
    };
    let resumed = resume(client, job_id, request).await?;
    let tasks = match changed {
        Some(tasks) => tasks,
        None => change(client, job_id, document).await.map_err(|error| at_places(document, error))?,
    };
    Ok(Updated { tasks, resumed })
}

/// Opens the failed tasks of a job. There need not be any: what did not start goes on by itself.
pub(super) async fn resume(
    client: &Client,
    job_id: &str,
    request: &ResumeRequest,
) -> Result<Vec<String>, ClientError> {
    let call = Call::post(format!("/v1/jobs/{}/resume", encode(job_id)), request);
    match client.json::<Resumed>(call).await {
        Ok(resumed) => Ok(resumed.resumed),
        Err(error) if error.code() == Some("NOTHING_TO_RESUME") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn change(client: &Client, job_id: &str, document: &SourceFile) -> Result<TasksChanged, ClientError> {
    let tasks = json!({ "tasks": document.to_value()["tasks"] });
    client.json(Call::new(Method::PUT, format!("/v1/jobs/{}/tasks", encode(job_id))).with_json(&tasks)).await
}

/// Says what was taken of the file.
pub(super) fn print_changes(done: &TasksChanged, out: &mut Output) {
    for task in &done.changed {
        out.note(format_args!("task {task} goes on with what the file says now"));
    }
    for task in &done.added {
        out.note(format_args!("task {task} is new"));
    }
    for task in &done.kept {
        out.note(format_args!("task {task} is completed; its change in the file is not taken"));
    }
}
