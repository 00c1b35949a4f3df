//! One call of the CLI: start it, give it the prompt, listen, and end it when it must end.
//!
//! It is ended in three steps. An interrupt through its stdin lets it stop its tools and tell what it used; then comes
//! SIGTERM, then SIGKILL. Whatever is left below this process goes with it.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tidemill_model::{ErrorCategory, Usage};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::cli::launch;
use crate::cli::processes::end_descendants;
use crate::cli::stream::{
    ApiRetry, LINE_BYTES_MAX, Message, Read, ResultLine, add, at_least, next_line, parse,
};
use crate::clock::Clock;
use crate::failure::{AgentFailure, FailureKind};
use crate::record::report::Report;
use crate::record::try_record::TryRecord;
use crate::verdict::{Cause, ProcessEnd, TryEnd};

/// How long a CLI that has told its result may take to end.
const FINISH: Duration = Duration::from_secs(5);
/// How long it may take to tell what it used after an interrupt.
const INTERRUPT: Duration = Duration::from_millis(1_500);
/// How long it may take to end after SIGTERM.
const TERMINATE: Duration = Duration::from_secs(1);
/// How long we wait after SIGKILL, and for the rest of its output.
const KILLED: Duration = Duration::from_secs(2);
/// A delay that the CLI waits for itself, within its session. Longer ones are ours, or the worker's.
const OWN_DELAY_MILLIS_MAX: u64 = 10_000;
/// What of stderr is kept.
const STDERR_BYTES_MAX: usize = 8 * 1024;

/// What a call needs.
pub(crate) struct Query<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) directory: &'a Path,
    pub(crate) prompt: &'a str,
    pub(crate) step: &'a str,
    /// How long it may take, and why it ends then.
    pub(crate) limit: Duration,
    pub(crate) cause_at_limit: Cause,
    pub(crate) idle_timeout: Duration,
    /// How often the CLI may ask the API again by itself. After that it is ended, and a further try begins.
    pub(crate) own_retries: u64,
    /// What the attempt used before.
    pub(crate) used_before: Usage,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    /// The result is there and stdin is closed.
    Finishing,
    Interrupted,
    Terminated,
    Killed,
}

/// Carries a call out. `stop` turns true when a signal asks us to stop.
pub(crate) async fn run(
    query: Query<'_>,
    record: &mut TryRecord,
    report: &mut Report,
    clock: &Clock,
    stop: &mut watch::Receiver<bool>,
) -> Result<TryEnd, AgentFailure> {
    let program = query.program;
    let mut child = start(&query)?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(AgentFailure::new(FailureKind::CliNotStarted, "claude has no pipes"));
    };
    let input = Input::new(stdin);
    input.send(&json!({ "type": "user", "message": { "role": "user", "content": query.prompt } }));
    let errors = tokio::spawn(tail_of(stderr));
    let mut call = Call {
        limit_at: Instant::now() + query.limit,
        query,
        record,
        report,
        clock,
        child,
        input: Some(input),
        phase: Phase::Running,
        phase_ends: None,
        heard_at: Instant::now(),
        silent_for: Duration::ZERO,
        cause: None,
        lingered: false,
        left: 0,
        result: None,
    };
    let process = call.watch(BufReader::with_capacity(64 * 1024, stdout), stop).await;
    let (cause, lingered, left, result) = (call.cause, call.lingered, call.left, call.result);
    let stderr = match tokio::time::timeout(KILLED, errors).await {
        Ok(Ok(text)) => text,
        _ => String::new(),
    };
    if let ProcessEnd::Code(code) = process
        && result.is_none()
        && let Some(error) = launch::failure_of(code, &stderr)
    {
        return Err(not_started(program, &error));
    }
    if left > 0 {
        let were = if left == 1 { "process was" } else { "processes were" };
        report.log(&format!("{left} {were} left behind and killed"));
    }
    Ok(TryEnd {
        process,
        cause,
        lingered,
        result,
        broken_lines: record.broken.count,
        last_api_retry: record.last_api_retry.clone(),
        last_api_error: record.last_api_error.clone(),
        stderr,
    })
}

fn start(query: &Query<'_>) -> Result<Child, AgentFailure> {
    let mut command = Command::from(launch::tied(query.program));
    command
        .args(&query.arguments)
        .env_clear()
        .envs(query.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(query.directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // So that a signal for our group, such as that of a terminal, leaves it to us to end it well.
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().map_err(|error| not_started(query.program, &error))
}

fn not_started(program: &Path, error: &io::Error) -> AgentFailure {
    let message = format!("{} could not be started: {error}", program.display());
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
            FailureKind::NoCli
        }
        _ if error.raw_os_error() == Some(rustix::io::Errno::NOEXEC.raw_os_error()) => FailureKind::NoCli,
        io::ErrorKind::ArgumentListTooLong => FailureKind::BadTask,
        _ => FailureKind::CliNotStarted,
    };
    AgentFailure::new(kind, message)
}

struct Call<'a, 'q> {
    query: Query<'q>,
    record: &'a mut TryRecord,
    report: &'a mut Report,
    clock: &'a Clock,
    child: Child,
    /// Closed when it is gone.
    input: Option<Input>,
    limit_at: Instant,
    phase: Phase,
    phase_ends: Option<Instant>,
    heard_at: Instant,
    /// Beside the idle time: a delay that the CLI said it would wait.
    silent_for: Duration,
    cause: Option<Cause>,
    lingered: bool,
    /// How many processes it left behind.
    left: usize,
    result: Option<ResultLine>,
}

impl Call<'_, '_> {
    async fn watch(
        &mut self,
        mut stdout: BufReader<tokio::process::ChildStdout>,
        stop: &mut watch::Receiver<bool>,
    ) -> ProcessEnd {
        let limit_at = self.limit_at;
        let mut line = Vec::new();
        let mut is_open = true;
        let mut exit: Option<ProcessEnd> = None;
        while is_open || exit.is_none() {
            let is_running = self.phase == Phase::Running;
            let idle_at = self.heard_at + self.query.idle_timeout + self.silent_for;
            let may_be_idle = is_running && !self.record.has_running_tool();
            tokio::select! {
                biased;
                () = stopped(stop), if is_running || self.phase == Phase::Finishing => {
                    self.end(Cause::Stopped);
                }
                () = sleep_until(limit_at), if is_running => self.end(self.query.cause_at_limit.clone()),
                () = sleep_until(idle_at), if may_be_idle => self.end(Cause::Idle(self.query.idle_timeout)),
                () = sleep_until(self.phase_ends.unwrap_or(limit_at)), if self.phase_ends.is_some() => {
                    if self.phase == Phase::Killed {
                        // It does not end, or something else holds its stdout. Nothing more is to be had.
                        break;
                    }
                    self.escalate();
                }
                status = self.child.wait(), if exit.is_none() => {
                    exit = Some(status.map_or(ProcessEnd::Unknown, end_of));
                    self.input = None;
                    // What it printed last is still in the pipe, which closes with the last that inherited it.
                    self.left = end_descendants().await;
                    self.enter(Phase::Killed, KILLED);
                }
                read = next_line(&mut stdout, &mut line, LINE_BYTES_MAX), if is_open => match read {
                    Ok(Read::Line) => {
                        self.take(&line);
                        line.clear();
                    }
                    Ok(Read::TooLong) => {
                        is_open = false;
                        if exit.is_none() {
                            self.end(Cause::LineTooLong);
                        }
                    }
                    Ok(Read::End) | Err(_) => is_open = false,
                },
            }
        }
        exit.unwrap_or(ProcessEnd::Unknown)
    }

    fn take(&mut self, line: &[u8]) {
        self.heard_at = Instant::now();
        self.silent_for = Duration::ZERO;
        self.report.activity(self.query.step);
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let Ok(message) = parse(line) else {
            let note = self.record.broken_line(line);
            return self.report.log(&note);
        };
        for note in self.record.take(&message, self.clock.now_millis()) {
            self.report.log(&note);
        }
        match message {
            Message::AnswerBegins { .. } | Message::AnswerEnds(_) => {
                // Report at once: a process that is killed next reports nothing, and this usage costs money.
                self.report.usage(&add(self.query.used_before, self.record.usage_so_far()));
            }
            Message::ApiRetry(retry) => self.wait_or_give_up(retry),
            Message::Result(result) => self.take_result(*result),
            _ => {}
        }
    }

    /// The first result counts, unless a later one says that it all went wrong.
    fn take_result(&mut self, mut result: ResultLine) {
        if let Some(before) = &self.result {
            if before.is_error || !result.is_error {
                return;
            }
            // Versions differ in whether a later result counts all or only what came after the earlier one.
            result.usage = at_least(result.usage, before.usage);
        }
        self.result = Some(result);
        // It reads no more prompts and ends.
        self.input = None;
        match self.phase {
            Phase::Running => self.enter(Phase::Finishing, FINISH),
            Phase::Interrupted => self.enter(Phase::Interrupted, TERMINATE),
            Phase::Finishing | Phase::Terminated | Phase::Killed => {}
        }
    }

    /// Lets the CLI wait for the API, or ends it when the wait is long or in vain.
    fn wait_or_give_up(&mut self, retry: ApiRetry) {
        let delay = Duration::from_millis(retry.delay_millis);
        self.silent_for = delay;
        let category = tidemill_model::Failure { status: retry.status, ..Default::default() }.category();
        let passes = retry.status.is_none()
            || matches!(
                category,
                ErrorCategory::Timeout | ErrorCategory::RateLimit | ErrorCategory::ServerError
            );
        let is_long = retry.delay_millis > OWN_DELAY_MILLIS_MAX || Instant::now() + delay >= self.limit_at;
        let status = retry.status.map_or_else(|| "no answer".to_owned(), |status| format!("status {status}"));
        if !passes || is_long || retry.attempt > self.query.own_retries {
            self.report.log(&format!("the API failed ({status}); this try ends"));
            self.end(Cause::GivenUp(retry));
        } else {
            let delay = retry.delay_millis;
            self.report.log(&format!("the API failed ({status}); the CLI means to ask again in {delay} ms"));
        }
    }

    /// Begins to end it.
    fn end(&mut self, cause: Cause) {
        if self.cause.is_some() {
            return;
        }
        self.cause = Some(cause);
        if let Some(input) = &self.input {
            input.send(&json!({
                "type": "control_request", "request_id": "stop", "request": { "subtype": "interrupt" }
            }));
            self.enter(Phase::Interrupted, INTERRUPT);
        } else {
            self.signal(Signal::TERM);
            self.enter(Phase::Terminated, TERMINATE);
        }
    }

    /// Goes on to what is harder.
    fn escalate(&mut self) {
        self.lingered |= self.phase == Phase::Finishing;
        match self.phase {
            Phase::Running | Phase::Finishing | Phase::Interrupted => {
                self.input = None;
                self.signal(Signal::TERM);
                self.enter(Phase::Terminated, TERMINATE);
            }
            Phase::Terminated | Phase::Killed => {
                self.signal(Signal::KILL);
                self.enter(Phase::Killed, KILLED);
            }
        }
    }

    fn enter(&mut self, phase: Phase, ends_after: Duration) {
        self.phase = phase;
        self.phase_ends = Some(Instant::now() + ends_after);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            let _ = kill_process(pid, signal);
            // A stopped process hears nothing but this.
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|is_told| *is_told).await.is_err() {
        // Nobody can tell us any more.
        std::future::pending::<()>().await;
    }
}

fn end_of(status: std::process::ExitStatus) -> ProcessEnd {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => ProcessEnd::Code(code),
        (None, Some(signal)) => ProcessEnd::Signal(signal),
        (None, None) => ProcessEnd::Unknown,
    }
}

/// The stdin of the CLI. It is written beside everything else, so that a prompt larger than a pipe blocks nothing, and
/// closed when this is dropped.
struct Input(mpsc::UnboundedSender<Vec<u8>>);

impl Input {
    fn new(mut stdin: ChildStdin) -> Self {
        let (sender, mut lines) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                    break;
                }
            }
        });
        Self(sender)
    }

    fn send(&self, message: &serde_json::Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        // It fails only when the CLI is gone, which is noticed elsewhere.
        let _ = self.0.send(line);
    }
}

/// Reads to the end and keeps the last part.
async fn tail_of(mut stderr: ChildStderr) -> String {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count) = stderr.read(&mut buffer).await {
        if count == 0 {
            break;
        }
        kept.extend_from_slice(&buffer[..count]);
        let excess = kept.len().saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..excess);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
