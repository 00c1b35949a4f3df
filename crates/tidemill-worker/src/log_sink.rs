//! Where the lines that tasks print are shown while they run.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_engine::engine::WorkReport;
use tidemill_model::security::text_direction::turns_text;
use tidemill_model::{ErrorCategory, ErrorSanitizer, LogLevel, LogRecord, text_stamp};

use crate::source::HeldTask;

/// Lines that wait for a slow terminal. Beyond them lines are left out there; logs have them all.
const WAITING_LINES_MAX: usize = 4_096;
/// How long the last of them may take when all is over.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogSource {
    Stdout,
    Stderr,
    /// The worker itself, about the task.
    Worker,
}

/// One line that a task printed. It shows itself with the task's prefix.
#[derive(Debug, Clone, Copy)]
pub struct LogLine<'a> {
    pub claim: &'a HeldTask,
    pub stream: LogSource,
    /// Without its end; what is no UTF-8 is replaced.
    pub text: &'a str,
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[WORKFLOW:{}] {}", self.claim.task.request, self.text)
    }
}

/// How an attempt ended, as far as this worker can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnding {
    pub outcome: &'static str,
    /// The class of its error.
    pub class: Option<ErrorCategory>,
}

impl AttemptEnding {
    /// The worker shuts down, and somebody else goes on.
    pub const GIVEN_BACK: Self = Self { outcome: "given_back", class: None };

    pub(crate) fn of(report: &WorkReport) -> Self {
        match report {
            WorkReport::Completed { .. } => Self { outcome: "completed", class: None },
            WorkReport::Failed { category, .. } => Self { outcome: "failed", class: Some(*category) },
            WorkReport::TimedOut { .. } => Self { outcome: "timed_out", class: Some(ErrorCategory::Timeout) },
        }
    }

    pub(crate) fn lost(is_cancelled: bool) -> Self {
        Self { outcome: if is_cancelled { "cancelled" } else { "lost" }, class: None }
    }

    fn level(self) -> LogLevel {
        if matches!(self.outcome, "completed" | "cancelled" | "given_back") {
            LogLevel::Info
        } else {
            LogLevel::Warn
        }
    }
}

/// Takes the lines of running tasks. It is called by the tasks of the runtime and must not block.
pub trait LogSink: fmt::Debug + Send + Sync + 'static {
    fn line(&self, line: &LogLine<'_>);

    /// The worker itself has something to say to its operator: what keeps it from claiming, and that it is over.
    fn trouble(&self, _text: &str) {}

    /// An attempt ended after `_took`. Most sinks leave that to followers of events.
    fn ended(&self, _claim: &HeldTask, _ending: AttemptEnding, _took: Duration) {}
}

/// A text that a terminal shows instead of obeying it, and that cannot pass for further lines: control characters, line
/// separators and what changes the direction of writing are seen as what they are.
pub fn plain(text: &str) -> Cow<'_, str> {
    let obeyed =
        |c: char| (c.is_control() && c != '\t') || turns_text(c) || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    text.chars()
        .fold(String::with_capacity(text.len() + 8), |mut shown, c| {
            if obeyed(c) {
                shown.extend(c.escape_unicode());
            } else {
                shown.push(c);
            }
            shown
        })
        .into()
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSink;

impl LogSink for NoSink {
    fn line(&self, _: &LogLine<'_>) {}
}

/// Writes lines to stderr from a thread of its own, so that a terminal that stands still stops no task.
#[derive(Debug)]
pub struct StderrSink {
    /// There until the end.
    lines: Option<SyncSender<String>>,
    /// Closed once all lines are written.
    written: Mutex<Receiver<()>>,
    left_out: AtomicU64,
    /// Tells the time of lines that are JSON.
    json: Option<JsonLines>,
    /// Tells the time of others, if they have one.
    clock: Option<SystemClock>,
    /// Takes secrets out of lines.
    sanitizer: Option<ErrorSanitizer>,
}

#[derive(Debug)]
struct JsonLines {
    clock: SystemClock,
    worker: String,
}

impl JsonLines {
    fn record<'a>(&'a self, claim: &'a HeldTask, level: LogLevel, message: &'a str) -> LogRecord<'a> {
        LogRecord {
            tenant: Some(&claim.task.tenant),
            job: claim.job,
            task: claim.job.map(|_| &claim.task_id),
            request: Some(&claim.task.request),
            run: Some(claim.run),
            attempt: Some(claim.attempt),
            worker: Some(&self.worker),
            ..LogRecord::new(self.clock.now(), level, message)
        }
    }
}

impl StderrSink {
    /// Lines with the task's prefix.
    pub fn start() -> io::Result<Self> {
        Self::writing_to(io::stderr())
    }

    /// Lets lines that are no JSON begin with their time and level.
    #[must_use]
    pub fn stamped(mut self) -> Self {
        self.clock = Some(SystemClock::start());
        self
    }

    /// Each line a JSON object with the ids of the task, and one more for the end of each attempt.
    pub fn start_json(worker: String) -> io::Result<Self> {
        let json = Some(JsonLines { clock: SystemClock::start(), worker });
        let mut sink = Self::writing_to(io::stderr())?;
        sink.json = json;
        Ok(sink)
    }

    /// Takes secrets out of what tasks print: the readers of these lines look after all tenants.
    #[must_use]
    pub fn without_secrets(mut self, sanitizer: ErrorSanitizer) -> Self {
        self.sanitizer = Some(sanitizer);
        self
    }

    fn writing_to(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel::<String>(WAITING_LINES_MAX);
        let (done, written) = sync_channel::<()>(1);
        std::thread::Builder::new().name("task-lines".to_owned()).spawn(move || {
            for line in waiting {
                // Nobody looks any more.
                if out.write_all(line.as_bytes()).is_err() {
                    break;
                }
            }
            drop(done);
        })?;
        let (lines, written) = (Some(lines), Mutex::new(written));
        Ok(Self { lines, written, left_out: AtomicU64::new(0), json: None, clock: None, sanitizer: None })
    }

    fn stamp(&self, level: LogLevel) -> String {
        self.clock.as_ref().map(|clock| text_stamp(clock.now(), level)).unwrap_or_default()
    }

    fn show(&self, line: String) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        let text = match (left_out, &self.json) {
            (0, _) => line,
            (count, None) => {
                let stamp = self.stamp(LogLevel::Warn);
                format!("{stamp}[tidemill] {}\n{line}", left_out_words(count))
            }
            (count, Some(json)) => {
                let words = left_out_words(count);
                let mut text = LogRecord::new(json.clock.now(), LogLevel::Warn, &words).line();
                text.push_str(&line);
                text
            }
        };
        let Some(lines) = &self.lines else { return };
        match lines.try_send(text) {
            Ok(()) => drop(self.left_out.fetch_sub(left_out, Ordering::Relaxed)),
            Err(TrySendError::Full(_)) => drop(self.left_out.fetch_add(1, Ordering::Relaxed)),
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Drop for StderrSink {
    /// Lets the last lines be written, unless the terminal stands still.
    fn drop(&mut self) {
        drop(self.lines.take());
        let written = self.written.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(LAST_LINES);
    }
}

impl LogSink for StderrSink {
    fn line(&self, line: &LogLine<'_>) {
        let clean =
            self.sanitizer.as_ref().map(|sanitizer| sanitizer.clean_within(line.text, line.text.len()));
        let line = &LogLine { text: clean.as_deref().unwrap_or(line.text), ..*line };
        let (level, stream) = match line.stream {
            LogSource::Stdout => (LogLevel::Info, Some("stdout")),
            LogSource::Stderr => (LogLevel::Info, Some("stderr")),
            LogSource::Worker => (LogLevel::Warn, None),
        };
        let Some(json) = &self.json else {
            let text = plain(line.text.trim_end_matches('\r'));
            return self.show(format!("{}{}\n", self.stamp(level), LogLine { text: &text, ..*line }));
        };
        self.show(LogRecord { stream, ..json.record(line.claim, level, line.text) }.line());
    }

    fn trouble(&self, text: &str) {
        self.show(match &self.json {
            None => format!("{}[tidemill] {}\n", self.stamp(LogLevel::Warn), plain(text)),
            Some(json) => {
                let worker = Some(json.worker.as_str());
                LogRecord { worker, ..LogRecord::new(json.clock.now(), LogLevel::Warn, text) }.line()
            }
        });
    }

    fn ended(&self, claim: &HeldTask, ending: AttemptEnding, took: Duration) {
        let Some(json) = &self.json else { return };
        let record = LogRecord {
            outcome: Some(ending.outcome),
            class: ending.class.map(ErrorCategory::as_str),
            duration_ms: Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
            ..json.record(claim, ending.level(), "attempt ended")
        };
        self.show(record.line());
    }
}

fn left_out_words(count: u64) -> String {
    let lines = if count == 1 { "line is" } else { "lines are" };
    format!("{count} {lines} left out here; the logs have them")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use tidemill_engine::commit::TaskKey;
    use tidemill_model::work::runner_spec::ResolvedRunner;
    use tidemill_model::{AppName, Fence, Json, RequestId, TaskId, TaskName, TenantId, Timestamp};

    use super::*;

    fn claim() -> HeldTask {
        HeldTask {
            task: TaskKey {
                tenant: TenantId::new("acme").unwrap(),
                request: RequestId::new("req-1").unwrap(),
            },
            app: AppName::new("app").unwrap(),
            job: None,
            task_id: TaskId::new("step").unwrap(),
            name: TaskName::new("step").unwrap(),
            run: 1,
            attempt: 1,
            fence: Fence(1),
            lease_until: Timestamp::MIN,
            lease: Duration::ZERO,
            asked_at: crate::moment::Moment::now(),
            timeout_ms: None,
            session_id: None,
            budget_left: None,
            budget_name: None,
            input: Json::empty_object(),
            parents: Vec::new(),
            execution: ResolvedRunner::native(),
            surroundings: tidemill_engine::command::Surroundings::default(),
        }
    }

    /// A terminal that takes a line only when it is let.
    struct Slow {
        asked: Sender<()>,
        let_on: Receiver<()>,
        seen: Sender<String>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.asked.send(()).map_err(io::Error::other)?;
            self.let_on.recv().map_err(io::Error::other)?;
            self.seen.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn control_characters_are_seen_and_not_obeyed() {
        for (text, expected) in [
            ("plain\ttext é 日本", "plain\ttext é 日本"),
            ("A\u{1b}[2J\u{7}B\rC", "A\\u{1b}[2J\\u{7}B\\u{d}C"),
            ("one\ntwo\u{2028}three\u{85}", "one\\u{a}two\\u{2028}three\\u{85}"),
            ("\u{202e}evil", "\\u{202e}evil"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn a_terminal_that_stands_still_stops_nobody_and_hears_of_what_it_missed() {
        let (let_on, waits) = channel();
        let (seen, shown) = channel();
        let (asked, stands_still) = channel();
        let sink = StderrSink::writing_to(Slow { asked, let_on: waits, seen }).unwrap();
        let claim = claim();
        let show = |text: &str| sink.line(&LogLine { claim: &claim, stream: LogSource::Stdout, text });
        show("0");
        stands_still.recv().unwrap();
        for number in 1..2 * WAITING_LINES_MAX {
            show(&number.to_string());
        }
        let left_out = sink.left_out.load(Ordering::Relaxed);
        assert_eq!(left_out + 1, WAITING_LINES_MAX as u64);
        for number in 0..2 * WAITING_LINES_MAX as u64 - left_out {
            let_on.send(()).unwrap();
            assert_eq!(shown.recv().unwrap(), format!("[WORKFLOW:req-1] {number}\n"));
        }
        show("at last");
        let_on.send(()).unwrap();
        let expected = format!(
            "[tidemill] {left_out} lines are left out here; the logs have them\n[WORKFLOW:req-1] at last\n"
        );
        assert_eq!(shown.recv().unwrap(), expected);
        assert_eq!(sink.left_out.load(Ordering::Relaxed), 0);
    }
}
