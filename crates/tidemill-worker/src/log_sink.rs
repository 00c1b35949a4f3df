//! Where the lines that tasks print are shown while they run.

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use crate::source::Claim;

/// Lines that wait for a slow terminal. Beyond them lines are left out there; logs have them all.
const WAITING_LINES_MAX: usize = 4_096;

/// Who wrote a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
    /// The worker itself, about the task.
    Worker,
}

/// One line that a task printed. It shows itself with the task's prefix.
#[derive(Debug, Clone, Copy)]
pub struct LogLine<'a> {
    pub claim: &'a Claim,
    pub stream: Stream,
    /// Without its end; what is no UTF-8 is replaced.
    pub text: &'a str,
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[WORKFLOW:{}] {}", self.claim.task.request, self.text)
    }
}

/// Takes the lines of running tasks. It is called by the tasks of the runtime and must not block.
pub trait LogSink: fmt::Debug + Send + Sync + 'static {
    fn line(&self, line: &LogLine<'_>);
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
    lines: SyncSender<String>,
    left_out: AtomicU64,
}

impl StderrSink {
    pub fn start() -> io::Result<Self> {
        Self::writing_to(io::stderr())
    }

    fn writing_to(mut out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel::<String>(WAITING_LINES_MAX);
        std::thread::Builder::new().name("task-lines".to_owned()).spawn(move || {
            for line in waiting {
                // Nobody looks any more.
                if out.write_all(line.as_bytes()).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { lines, left_out: AtomicU64::new(0) })
    }
}

impl LogSink for StderrSink {
    fn line(&self, line: &LogLine<'_>) {
        let left_out = self.left_out.load(Ordering::Relaxed);
        let text = match left_out {
            0 => format!("{line}\n"),
            count => format!("[tidemill] {count} lines are left out here; the logs have them\n{line}\n"),
        };
        match self.lines.try_send(text) {
            Ok(()) => drop(self.left_out.fetch_sub(left_out, Ordering::Relaxed)),
            Err(TrySendError::Full(_)) => drop(self.left_out.fetch_add(1, Ordering::Relaxed)),
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tidemill_engine::commit::TaskKey;
    use tidemill_model::execution::ResolvedExecution;
    use tidemill_model::{AppName, Fence, Json, RequestId, TaskId, TaskName, TenantId, Timestamp};

    use super::*;

    fn claim() -> Claim {
        Claim {
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
            asked_at: tokio::time::Instant::now(),
            timeout_ms: None,
            session_id: None,
            budget_left: None,
            input: Json::empty_object(),
            execution: ResolvedExecution::native(),
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
    fn a_terminal_that_stands_still_stops_nobody_and_hears_of_what_it_missed() {
        let (let_on, waits) = channel();
        let (seen, shown) = channel();
        let (asked, stands_still) = channel();
        let sink = StderrSink::writing_to(Slow { asked, let_on: waits, seen }).unwrap();
        let claim = claim();
        let show = |text: &str| sink.line(&LogLine { claim: &claim, stream: Stream::Stdout, text });
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
