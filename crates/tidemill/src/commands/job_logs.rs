//! `tidemill jobs logs`: what all tasks of a job wrote, each line behind the task it is of.

use std::collections::{BTreeSet, VecDeque};
use std::process::ExitCode;
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::json;
use tidemill_api::client::Body;
use tidemill_api::{JobView, TaskRow};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{CommandError, Ended};
use crate::client::{Call, Client, ClientError, Item, Query, SseReader, encode};
use crate::display::line;
use crate::output::Output;
use crate::watch::{has_stopped, job_with_tasks};

/// How many tasks are followed at a time; a server lets one key follow few more.
const FOLLOWED_MAX: usize = 32;
/// Beside the stream the job is looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Lines that wait to be written, of all tasks together.
const LINES_MAX: usize = 1_000;
/// Longer names are not padded to.
const NAME_COLUMNS_MAX: usize = 24;
/// A line without an end is written after this many bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How lines are written.
struct Face {
    json: bool,
    columns: usize,
}

impl Face {
    fn of(rows: &[TaskRow], json: bool) -> Self {
        let longest = rows.iter().map(|row| line::columns(&row.task_id)).max().unwrap_or(0);
        Self { json, columns: longest.min(NAME_COLUMNS_MAX) }
    }

    fn write(&self, task: &str, text: &str, out: &mut Output) -> std::io::Result<()> {
        if self.json {
            out.json(&json!({ "taskId": task, "line": text }))
        } else {
            out.data(format_args!("{} | {text}", line::pad(task, self.columns)))
        }
    }
}

/// Bytes of a log as lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, bytes: &[u8], mut each: impl FnMut(String)) {
        for byte in bytes {
            if *byte == b'\n' || self.0.len() >= LINE_BYTES_MAX {
                each(self.rest());
            }
            if *byte != b'\n' {
                self.0.push(*byte);
            }
        }
    }

    /// What came after the last end of a line.
    fn rest(&mut self) -> String {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned();
        text.strip_suffix('\r').map_or(text.clone(), str::to_owned)
    }
}

/// The log of a task, line by line.
struct Log {
    body: Body,
    place: String,
    open: Lines,
    ready: VecDeque<String>,
}

impl Log {
    async fn open(client: &Client, request: &str, follow: bool) -> Result<Self, ClientError> {
        let query = Query::new().maybe("follow", follow.then_some(true));
        let call = Call::get(query.on(&format!("/v1/tasks/{}/logs", encode(request)))).endless();
        let body = client.send(call).await?.into_body();
        Ok(Self { body, place: client.place(), open: Lines::default(), ready: VecDeque::new() })
    }

    /// `None` at the end.
    async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Ok(Some(line));
            }
            let Some(frame) = self.body.frame().await else {
                let rest = self.open.rest();
                return Ok((!rest.is_empty()).then_some(rest));
            };
            let frame = frame.map_err(|error| ClientError::Unreachable {
                url: self.place.clone(),
                cause: format!("the log broke off: {error}"),
            })?;
            if let Ok(bytes) = frame.into_data() {
                self.open.take(&bytes, |line| self.ready.push_back(line));
            }
        }
    }
}

/// Prints the logs of all tasks that have begun, in the order of their beginning; with `follow`, goes on until the job is
/// at rest.
pub(super) async fn show(client: &Client, job: &str, follow: bool, json: bool, out: &mut Output) -> Ended {
    if follow && !client.is_local() {
        return follow_all(client, job, json, out).await;
    }
    let (_, mut rows) = job_with_tasks(client, &encode(job)).await?;
    let face = Face::of(&rows, json);
    rows.retain(|row| row.started_at.is_some());
    rows.sort_by_key(|row| row.started_at);
    for row in rows {
        let mut log = Log::open(client, &row.request_id, false).await?;
        while let Some(text) = log.next().await? {
            face.write(&row.task_id, &text, out)?;
        }
    }
    if follow {
        out.note("nobody runs jobs in this data directory now: this is all there is");
    }
    Ok(ExitCode::SUCCESS)
}

/// The tasks whose logs are read, and the readers.
struct Followers {
    client: Client,
    /// Request ids and runs.
    begun: BTreeSet<(String, u64)>,
    tasks: JoinSet<Result<(), ClientError>>,
    waiting: Vec<(String, String)>,
    lines: mpsc::Sender<(String, String)>,
}

impl Followers {
    /// Reads the log of a task's run, as soon as there is a place.
    fn begin(&mut self, task: &str, request: &str, run: u64) {
        if self.begun.insert((request.to_owned(), run)) {
            self.waiting.push((task.to_owned(), request.to_owned()));
        }
        self.fill();
    }

    /// All that have begun, in the order of their beginning.
    fn begin_all(&mut self, mut rows: Vec<TaskRow>) {
        rows.retain(|row| row.started_at.is_some());
        rows.sort_by_key(|row| row.started_at);
        for row in rows {
            self.begin(&row.task_id, &row.request_id, row.run.into());
        }
    }

    fn fill(&mut self) {
        while self.tasks.len() < FOLLOWED_MAX && !self.waiting.is_empty() {
            let (task, request) = self.waiting.remove(0);
            let (client, lines) = (self.client.clone(), self.lines.clone());
            self.tasks.spawn(async move {
                let mut log = Log::open(&client, &request, true).await?;
                while let Some(line) = log.next().await? {
                    // The writer of the lines has gone.
                    if lines.send((task.clone(), line)).await.is_err() {
                        break;
                    }
                }
                Ok(())
            });
        }
    }
}

async fn follow_all(client: &Client, job: &str, json: bool, out: &mut Output) -> Ended {
    // The stream is opened before the job is read, so that nothing falls between the two.
    let call = Call::get(Query::new().set("job", job).on("/v1/stream")).endless();
    let mut stream = SseReader::new(client.send(call).await?.into_body());
    let (mut view, rows) = job_with_tasks(client, &encode(job)).await?;
    let face = Face::of(&rows, json);
    let (sender, mut lines) = mpsc::channel(LINES_MAX);
    let mut followers = Followers {
        client: client.clone(),
        begun: BTreeSet::new(),
        tasks: JoinSet::new(),
        waiting: Vec::new(),
        lines: sender,
    };
    followers.begin_all(rows);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut is_over = false;
    loop {
        if !is_over && has_stopped(&view) {
            // The stream may be behind: what began and ended since is found in the job itself.
            followers.begin_all(job_with_tasks(client, &encode(job)).await?.1);
            is_over = true;
        }
        if is_over && followers.tasks.is_empty() && lines.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            Some((task, text)) = lines.recv() => face.write(&task, &text, out)?,
            Some(ended) = followers.tasks.join_next() => {
                ended.map_err(|error| CommandError::Failed(format!("a log could not be read: {error}")))??;
                followers.fill();
            }
            message = stream.next(), if !is_over => {
                let Some(message) = message? else {
                    return Err(CommandError::Failed("the server ended the stream".to_owned()));
                };
                let Ok(event) = serde_json::from_str::<Item>(&message.data) else { continue };
                begin_of(&event, &mut followers);
                if event.text("eventType").starts_with("Job ") || followers.tasks.is_empty() {
                    view = look(client, job).await?;
                }
            }
            _ = looks.tick(), if !is_over => view = look(client, job).await?,
        }
    }
}

async fn look(client: &Client, job: &str) -> Result<JobView, ClientError> {
    client.get(format!("/v1/jobs/{}", encode(job))).await
}

/// A task that begins is followed.
fn begin_of(event: &Item, followers: &mut Followers) {
    if event.text("eventType") != "Task Processing Started" {
        return;
    }
    let request = event.text("entityId");
    let run = event.read::<Item>("properties").and_then(|properties| properties.number("run"));
    let task = request.split_once('_').map_or(request.as_str(), |(_, task)| task);
    followers.begin(task, &request, run.unwrap_or(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_lines_wherever_they_are_cut() {
        let text = "one\r\ntwo\n\nthree";
        for at in 0..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for part in [&text.as_bytes()[..at], &text.as_bytes()[at..]] {
                lines.take(part, |line| found.push(line));
            }
            found.push(lines.rest());
            assert_eq!(found, ["one", "two", "", "three"], "{at}");
        }
        let mut lines = Lines::default();
        let mut count = 0;
        lines.take(&vec![b'x'; 3 * LINE_BYTES_MAX], |line| {
            assert_eq!(line.len(), LINE_BYTES_MAX);
            count += 1;
        });
        assert_eq!((count, lines.rest().len()), (2, LINE_BYTES_MAX));
    }
}
