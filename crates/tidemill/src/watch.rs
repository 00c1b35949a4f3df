//! Watching a job until it is at rest: the live stream moves what is shown.

use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_api::{JobStatusName, JobView, TaskRow};
use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_model::Backoff;
use tokio::time::{Instant, MissedTickBehavior};

use crate::client::{Call, Client, ClientError, Query, SseReader};
use crate::display::{Change, JobState, LiveTree, PlainLines, SeenEvent, TaskPhase};
use crate::output::Output;

/// The tree is drawn this often at most.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// How long to wait before a lost stream is opened again, at first and at most.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
/// How long a line waits for older ones where lines are written in the order of time.
const LAG: Duration = Duration::from_millis(200);
/// Beside the stream the job is looked at this often: a stream may have nothing more to say.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// How long the stream may be behind a job that is at rest.
const HEAR_OUT: Duration = Duration::from_secs(1);

/// The last line of each task, and lines that are still to be written where there is no tree.
#[derive(Debug)]
pub(crate) struct Said {
    lines: Mutex<SaidLines>,
    clock: SystemClock,
}

#[derive(Debug, Default)]
struct SaidLines {
    waiting: Vec<SaidLine>,
    /// Lines that did not fit because nobody fetched them.
    dropped: u64,
}

#[derive(Debug)]
struct SaidLine {
    task_id: String,
    text: String,
    at: u64,
}

/// A line that waits for others that may be older: what tasks write comes at once, what happens to them with the log.
#[derive(Debug)]
struct PlainLine {
    at: u64,
    /// It is written a while after it came.
    came: Instant,
    text: String,
}

/// As many lines wait to be shown; a task that shouts loses some here, never in its log.
const SAID_MAX: usize = 10_000;

impl Said {
    pub(crate) fn new() -> Self {
        Self { lines: Mutex::default(), clock: SystemClock::start() }
    }

    pub(crate) fn push(&self, task_id: &str, text: &str) {
        let at = self.clock.now().millis();
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.waiting.len() >= SAID_MAX {
            lines.dropped += 1;
        } else {
            lines.waiting.push(SaidLine { task_id: task_id.to_owned(), text: text.to_owned(), at });
        }
    }

    fn take(&self) -> SaidLines {
        std::mem::take(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What shows a job.
enum Face {
    Tree(LiveTree),
    Plain,
    /// Nothing until the end.
    Silent,
}

/// How a job is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// A tree on a terminal, lines elsewhere.
    Progress {
        colours: bool,
    },
    Nothing,
}

/// A watch over one job.
pub(crate) struct Watch<'a> {
    client: &'a Client,
    job_id: String,
    face: Face,
    said: Arc<Said>,
    /// Lines of tasks whose start is not shown yet.
    held: Vec<SaidLine>,
    /// Lines that are still to be written, in the order of time.
    plain: Vec<PlainLine>,
    /// When each task was spoken of last.
    last: HashMap<String, u64>,
    clock: SystemClock,
    began_at: u64,
    state: Option<JobState>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(client: &'a Client, job_id: &str, show: Show, said: Arc<Said>) -> Self {
        let face = match show {
            Show::Nothing => Face::Silent,
            Show::Progress { colours } if std::io::stderr().is_terminal() => {
                LiveTree::new(colours).map_or(Face::Plain, Face::Tree)
            }
            Show::Progress { .. } => Face::Plain,
        };
        let clock = SystemClock::start();
        let began_at = clock.now().millis();
        Self {
            client,
            job_id: job_id.to_owned(),
            face,
            said,
            held: Vec::new(),
            plain: Vec::new(),
            last: HashMap::new(),
            clock,
            began_at,
            state: None,
        }
    }

    /// A line for people that stays.
    pub(crate) fn note(&mut self, text: &str, out: &mut Output) {
        self.write_all(out);
        match &mut self.face {
            Face::Tree(tree) => {
                tree.footer = Some(text.to_owned());
                let _ = tree.note(text);
            }
            Face::Plain | Face::Silent => out.note(text),
        }
    }

    /// Returns the job when nothing more happens in it by itself. Dropping the future stops the watch.
    pub(crate) async fn until_rest(&mut self, out: &mut Output) -> Result<JobView, ClientError> {
        let mut pauses = PAUSES;
        let mut away = false;
        loop {
            match self.follow(out).await {
                Ok(job) => return Ok(job),
                // A server that was restarted goes on where it was, and one that finds its reader too slow lets it go.
                Err(ClientError::Unreachable { url, cause }) => {
                    if !away && !self.client.is_local() {
                        self.note(&format!("lost {url} ({cause}); trying again"), out);
                        away = true;
                    }
                    tokio::time::sleep(pauses.pause()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One life of the stream.
    async fn follow(&mut self, out: &mut Output) -> Result<JobView, ClientError> {
        // The stream is opened before the job is read, so that nothing falls between the two.
        let stream = Call::get(Query::new().set("job", &self.job_id).on("/v1/stream")).endless();
        let mut stream = SseReader::new(self.client.send(stream).await?.into_body());
        let mut job = self.load().await?;
        let mut ticks = tokio::time::interval(DRAW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = Instant::now();
        // Whether the stream has nothing more to say about a job at rest. It may lag behind the job.
        let mut is_told = true;
        loop {
            if has_stopped(&job) {
                if !is_told {
                    self.hear_out(&mut stream).await;
                }
                self.show_said();
                return Ok(job);
            }
            tokio::select! {
                message = stream.next() => {
                    let Some(message) = message? else {
                        return Err(ClientError::Unreachable { url: self.client.place(), cause: "the stream ended".to_owned() });
                    };
                    let change = self.take(&message.data);
                    is_told = matches!(change, Change::Job);
                    match change {
                        Change::Grown => job = self.load().await?,
                        Change::Job => job = self.look().await?,
                        Change::Task(_) if self.state.as_ref().is_some_and(|state| !state.is_active()) => {
                            job = self.look().await?;
                        }
                        Change::Task(_) | Change::Nothing => {}
                    }
                }
                _ = ticks.tick() => {
                    self.show_said();
                    self.write_due(out);
                    self.draw();
                    if looked.elapsed() >= LOOK_EVERY {
                        looked = Instant::now();
                        is_told = false;
                        job = self.look().await?;
                    }
                }
            }
        }
    }

    /// The job was found at rest before the stream said so: for a moment, the rest of the stream is read.
    async fn hear_out(&mut self, stream: &mut SseReader) {
        let rest = async {
            while let Ok(Some(message)) = stream.next().await {
                if matches!(self.take(&message.data), Change::Job) {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(HEAR_OUT, rest).await;
    }

    async fn look(&self) -> Result<JobView, ClientError> {
        self.client.get(format!("/v1/jobs/{}", self.job_id)).await
    }

    /// Reads the job with all its tasks. What moved while nobody looked is shown.
    async fn load(&mut self) -> Result<JobView, ClientError> {
        let (job, rows) = job_with_tasks(self.client, &self.job_id).await?;
        let mut state = JobState::new(&job, &rows);
        let now = self.now();
        let mut missed = Vec::new();
        match &self.state {
            Some(before) => {
                state.keep_from(before);
                missed.extend(state.moved_since(before).filter_map(|task| {
                    let at = task.finished_at.or(task.started_at).unwrap_or(now);
                    Some((Some(task.task_id.clone()), at, PlainLines::moved(task, at)?))
                }));
            }
            None => missed.push((None, self.began_at, PlainLines::started(&state, self.began_at))),
        }
        self.state = Some(state);
        for (task, at, text) in missed {
            self.add_plain_line(task.as_deref(), at, text);
        }
        self.draw();
        Ok(job)
    }

    fn take(&mut self, data: &str) -> Change {
        let Ok(event) = serde_json::from_str::<SeenEvent>(data) else { return Change::Nothing };
        // What a task wrote comes after its start and before its end.
        self.show_said();
        let Some(state) = &mut self.state else { return Change::Nothing };
        let change = state.apply(&event);
        if let Change::Task(index) = &change {
            let task = &state.tasks[*index];
            let mut at = event.timestamp;
            if task.phase == TaskPhase::Running {
                // A start is noted a little later than it happens, and the task may have written by then.
                let first = self.held.iter().find(|line| line.task_id == task.task_id);
                at = first.map_or(at, |line| at.min(line.at));
            }
            if let Some(text) = PlainLines::moved(task, at) {
                let id = task.task_id.clone();
                self.add_plain_line(Some(&id), at, text);
            }
        }
        change
    }

    /// A line to be written where there is no tree. Of one task they keep their order.
    fn add_plain_line(&mut self, task: Option<&str>, at: u64, text: String) {
        if !matches!(self.face, Face::Plain) {
            return;
        }
        let at = match task {
            Some(task) => {
                let last = self.last.entry(task.to_owned()).or_default();
                *last = at.max(*last);
                *last
            }
            None => at,
        };
        let place = self.plain.partition_point(|line| line.at <= at);
        self.plain.insert(place, PlainLine { at, came: Instant::now(), text });
    }

    /// Writes what has waited for long enough, with all that is older.
    fn write_due(&mut self, out: &mut Output) {
        let now = Instant::now();
        let due = self.plain.iter().rfind(|line| line.came + LAG <= now).map(|line| line.at);
        // What a task wrote whose start is not noted yet must come first.
        let before = self.held.iter().map(|line| line.at).min().unwrap_or(u64::MAX);
        let Some(until) = due.map(|at| at.min(before)) else { return };
        let count = self.plain.partition_point(|line| line.at <= until);
        for line in self.plain.drain(..count) {
            out.note(line.text);
        }
    }

    fn write_all(&mut self, out: &mut Output) {
        for line in self.plain.drain(..) {
            out.note(line.text);
        }
    }

    /// What tasks wrote since the last look. A child writes before the event of its start is there; such lines wait for it.
    fn show_said(&mut self) {
        let SaidLines { waiting, dropped } = self.said.take();
        for line in std::mem::take(&mut self.held).into_iter().chain(waiting) {
            let Some(task) = self.state.as_mut().and_then(|state| state.task_mut(&line.task_id)) else {
                continue;
            };
            match self.face {
                Face::Plain if !task.phase.has_begun() => self.held.push(line),
                Face::Plain => {
                    let text = PlainLines::output_line(&line.task_id, &line.text, line.at);
                    self.add_plain_line(Some(&line.task_id), line.at, text);
                }
                Face::Tree(_) if !line.text.trim().is_empty() => task.said = Some(line.text),
                Face::Tree(_) | Face::Silent => {}
            }
        }
        if dropped > 0 {
            let lines = if dropped == 1 { "line is" } else { "lines are" };
            self.add_plain_line(None, self.now(), format!("{dropped} more {lines} in the logs of the tasks"));
        }
    }

    fn draw(&mut self) {
        let now = self.now();
        if let (Face::Tree(tree), Some(state)) = (&mut self.face, &self.state) {
            // A terminal that shows nothing is no reason to stop.
            let _ = tree.draw(state, now);
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().millis()
    }

    /// Stops to look before the end.
    pub(crate) fn leave(mut self, out: &mut Output) {
        self.show_said();
        self.write_all(out);
    }

    /// The last picture, of how things are now.
    pub(crate) async fn end(mut self, out: &mut Output) {
        self.show_said();
        if self.state.is_some() {
            // If nobody answers any more, the last one that is known must do.
            let _ = self.load().await;
        }
        self.show_said();
        // The starts of tasks that were killed may never be noted.
        for line in std::mem::take(&mut self.held) {
            let text = PlainLines::output_line(&line.task_id, &line.text, line.at);
            self.add_plain_line(Some(&line.task_id), line.at, text);
        }
        self.write_all(out);
        let now = self.now();
        if let (Face::Tree(tree), Some(state)) = (self.face, &self.state) {
            let _ = tree.end(state, now);
        }
    }
}

pub(crate) fn is_at_rest(status: JobStatusName) -> bool {
    matches!(status, JobStatusName::Completed | JobStatusName::Failed | JobStatusName::Cancelled)
}

/// Whether nothing more happens in a job by itself: it is at rest, or all that is left is parked.
pub(crate) fn has_stopped(job: &JobView) -> bool {
    is_at_rest(job.status) || is_parked(job)
}

/// Whether all that is left of a job waits for somebody.
pub(crate) fn is_parked(job: &JobView) -> bool {
    let counts = &job.counts;
    job.status == JobStatusName::Failing
        && counts.parked > 0
        && counts.pending == 0
        && counts.processing == counts.parked
}

/// A job and all its tasks, however many.
pub(crate) async fn job_with_tasks(
    client: &Client,
    job_id: &str,
) -> Result<(JobView, Vec<TaskRow>), ClientError> {
    let mut job: JobView = client.get(format!("/v1/jobs/{job_id}")).await?;
    let mut rows = std::mem::take(&mut job.tasks);
    let mut cursor = job.next_cursor.clone();
    while let Some(after) = cursor {
        let query = Query::new().set("limit", 200).set("cursor", after);
        let page: tidemill_api::Page<TaskRow> =
            client.get(query.on(&format!("/v1/jobs/{job_id}/tasks"))).await?;
        rows.extend(page.items);
        cursor = page.next_cursor;
    }
    Ok((job, rows))
}
