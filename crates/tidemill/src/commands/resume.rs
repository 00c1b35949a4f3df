//! Which job `run --resume` goes on with, and whether the file still describes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tidemill_api::{JobStatusName, JobSummary, TaskRow};
use tidemill_model::{JobFile, TaskWork};

use super::CommandError;
use crate::client::{Client, Query};
use crate::watch::job_with_tasks;

/// How many differences are named.
const DIFFERENCES_MAX: usize = 5;

/// A job to go on with.
pub(super) struct Resumable {
    pub(super) job_id: String,
    pub(super) status: JobStatusName,
    pub(super) rows: Vec<TaskRow>,
}

/// The newest job of a name that is not completed. If a file is given, it must have the graph of the job.
pub(super) async fn find(
    client: &Client,
    name: &str,
    file: Option<&JobFile>,
) -> Result<Resumable, CommandError> {
    let query = Query::new().set("name", name);
    let mut newest: Option<JobSummary> = None;
    for status in ["running", "failing", "failed", "cancelled"] {
        let found: Vec<JobSummary> = client.list("/v1/jobs", &query.clone().set("status", status), 1).await?;
        // Ids of jobs grow with time.
        newest = newest.into_iter().chain(found).max_by(|left, right| left.job_id.cmp(&right.job_id));
    }
    let Some(job) = newest else {
        return Err(CommandError::Unusable(format!(
            "there is no unfinished or failed job named {name:?} in {}; run it without --resume",
            client.place()
        )));
    };
    let (view, rows) = job_with_tasks(client, &job.job_id).await?;
    let differences = file.map(|file| differences(file, &rows)).unwrap_or_default();
    if differences.is_empty() {
        return Ok(Resumable { job_id: job.job_id, status: view.status, rows });
    }
    let mut text = format!("{} has another graph than the file, so it cannot go on:", job.job_id);
    for difference in differences.iter().take(DIFFERENCES_MAX) {
        let _ = write!(text, "\n  {difference}");
    }
    if differences.len() > DIFFERENCES_MAX {
        let _ = write!(text, "\n  and {} more differences", differences.len() - DIFFERENCES_MAX);
    }
    text.push_str(
        "\nrun it without --resume to start a new job, or with --update to take further tasks and other work",
    );
    Err(CommandError::Unusable(text))
}

/// What differs between the file and the job, in words.
fn differences(file: &JobFile, rows: &[TaskRow]) -> Vec<String> {
    let stored: BTreeMap<&str, &TaskRow> = rows.iter().map(|row| (row.task_id.as_str(), row)).collect();
    let written: BTreeSet<&str> = file.tasks.iter().map(|task| task.task_id.as_str()).collect();
    let mut found = Vec::new();
    for task in &file.tasks {
        let id = task.task_id.as_str();
        let Some(row) = stored.get(id) else {
            found.push(format!("task {id} is in the file, not in the job"));
            continue;
        };
        let now: BTreeSet<&str> = task.depends_on.iter().map(tidemill_model::TaskId::as_str).collect();
        let then: BTreeSet<&str> = row.depends_on.iter().map(String::as_str).collect();
        if now != then {
            let list = |ids: &BTreeSet<&str>| {
                if ids.is_empty() {
                    return "nothing".to_owned();
                }
                ids.iter().copied().collect::<Vec<_>>().join(", ")
            };
            found.push(format!(
                "task {id} depends on {} in the file, on {} in the job",
                list(&now),
                list(&then)
            ));
        }
        let name = match &task.work {
            TaskWork::Named(name) => name.as_str(),
            TaskWork::Inline(_) | TaskWork::Agent(_) | TaskWork::Script(_) => id,
        };
        if name != row.name {
            found.push(format!("task {id} runs {name} in the file, {} in the job", row.name));
        }
    }
    for id in stored.keys().filter(|id| !written.contains(*id)) {
        found.push(format!("task {id} is in the job, not in the file"));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_of_graphs_are_named() {
        let row = |id: &str, parents: &[&str]| -> TaskRow {
            serde_json::from_value(json!({
                "taskId": id, "requestId": id, "name": id, "dependsOn": parents, "status": null, "run": 1, "attempt": 0,
                "startedAt": null, "finishedAt": null, "blockedBy": []
            }))
            .unwrap()
        };
        let rows = [row("a", &[]), row("b", &["a"]), row("c", &["a"])];
        let file = |text: serde_json::Value| JobFile::read(json!({ "tasks": text })).unwrap();
        let same = json!([
            {"taskId": "a", "run": "x"}, {"taskId": "b", "run": "y", "dependsOn": ["a"]},
            {"taskId": "c", "run": "z", "dependsOn": ["a"]}
        ]);
        assert_eq!(differences(&file(same), &rows), Vec::<String>::new());
        let other = json!([
            {"taskId": "a", "name": "stored"}, {"taskId": "b", "run": "y", "dependsOn": []},
            {"taskId": "d", "run": "z", "dependsOn": ["a"]}
        ]);
        let expected = [
            "task a runs stored in the file, a in the job",
            "task b depends on nothing in the file, on a in the job",
            "task d is in the file, not in the job",
            "task c is in the job, not in the file",
        ];
        assert_eq!(differences(&file(other), &rows), expected);
    }
}
