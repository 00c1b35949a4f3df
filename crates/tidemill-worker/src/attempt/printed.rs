//! What a child prints: lines of the protocol, and lines of its log.

use std::io;

use tidemill_engine::clock::Clock;
use tidemill_model::events::properties::Activity;

use super::Attempt;
use crate::child::lines::{Line, LineSplitter};
use crate::child::protocol::{self, Record, Told};
use crate::log_sink::{LogLine, LogSource};
use crate::source::TaskSource;
use crate::spawner::ChildPipe;

/// How much of a pipe is read at a time.
const READ_BYTES: usize = 64 * 1024;
/// And at first: most children say little.
const FIRST_READ_BYTES: usize = 4 * 1024;
/// How often in a row.
const READS_MAX: usize = 8;

/// One stream of a child's output.
pub(super) struct Output {
    pipe: ChildPipe,
    stream: LogSource,
    lines: LineSplitter,
    pub(super) is_open: bool,
}

impl Output {
    pub(super) fn new(pipe: ChildPipe, stream: LogSource) -> Self {
        Self { pipe, stream, lines: LineSplitter::default(), is_open: true }
    }

    /// Returns when there is something to read, and never once the stream is closed.
    pub(super) async fn readable(&mut self) {
        if !self.is_open {
            std::future::pending::<()>().await;
        }
        // An error shows itself at the next read.
        let _ = self.pipe.readable().await;
    }
}

impl<S: TaskSource> Attempt<'_, S> {
    /// Takes what there is to read. True when there was something.
    pub(super) fn read(&mut self, output: &mut Output) -> bool {
        let mut has_read = false;
        let mut little = [0; FIRST_READ_BYTES];
        // Not without end: others want their turn.
        for _ in 0..READS_MAX {
            if !output.is_open {
                break;
            }
            let mut large = std::mem::take(&mut self.buffer);
            let buffer = if large.is_empty() { &mut little[..] } else { &mut large };
            let (stream, read) = (output.stream, output.pipe.try_read(buffer));
            if let Ok(count @ 1..) = read {
                has_read = true;
                output.lines.feed(&buffer[..count], |line| self.take(line, stream));
                self.flush();
                if count == FIRST_READ_BYTES {
                    // A child that says this much may say more.
                    large.resize(READ_BYTES, 0);
                }
            }
            self.buffer = large;
            match read {
                Ok(0) => output.is_open = false,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => output.is_open = false,
            }
        }
        has_read
    }

    /// Takes a last line that has no end.
    pub(super) fn take_rest(&mut self, output: &mut Output) {
        let stream = output.stream;
        std::mem::take(&mut output.lines).finish(|line| self.take(line, stream));
    }

    /// Takes one line: a word of the protocol, or a line of the log.
    fn take(&mut self, line: Line<'_>, stream: LogSource) {
        if stream == LogSource::Stdout && line.bytes.starts_with(protocol::MARK) {
            if line.is_cut {
                self.result_was_cut = true;
                return self.note(
                    "a line of the protocol is too long and is left out; give the result as outputFile",
                );
            }
            // Understood first and cleaned then: a secret may look like a part of the protocol.
            match protocol::parse(line.bytes) {
                Some(told) => return self.heed(self.redaction.clean_record(told)),
                None => self.note("the next line looks like the protocol and is not understood"),
            }
        }
        if stream == LogSource::Stdout && !line.bytes.trim_ascii().is_empty() {
            let may_be_object = !line.is_cut && line.bytes.trim_ascii_start().starts_with(b"{");
            self.last_line = may_be_object.then(|| line.bytes.to_vec());
        }
        let bytes = self.redaction.clean_line(line.bytes, line.is_cut);
        let line = Line { bytes: &bytes, ..line };
        let tail = if stream == LogSource::Stderr { &mut self.stderr } else { &mut self.stdout };
        tail.push_line(line.bytes);
        self.fresh.extend_from_slice(line.bytes);
        if line.is_cut {
            self.fresh.extend_from_slice(" [tidemill: this line is cut here]".as_bytes());
        }
        self.fresh.push(b'\n');
        let text = String::from_utf8_lossy(line.bytes);
        self.shared.config.sink.line(&LogLine { claim: self.claim, stream, text: &text });
    }

    fn heed(&mut self, told: Told) {
        if let Some(session) = told.session_id
            && self.spent.session_id.as_ref() != Some(&session)
        {
            if let Some(home) = self.agent_home {
                home.note_session(&session);
            }
            self.spent.session_id = Some(session);
        }
        match told.record {
            Record::Activity { kind, step_name } => {
                let timestamp = self.shared.clock.now();
                let step_name = protocol::step_name(&step_name);
                let step_name = if step_name.is_empty() { self.claim.name.to_string() } else { step_name };
                self.vitals.active(Activity { kind, step_name, timestamp });
            }
            Record::Result(result) => {
                self.spent.usage = result.usage.or(self.spent.usage);
                self.result = Some(result);
            }
            Record::Error(error) => {
                self.spent.usage = error.usage.or(self.spent.usage);
                self.error = Some(error);
            }
            Record::Usage(usage) => self.spent.usage = Some(usage),
            // It was handled above.
            Record::Other(kind) if kind == protocol::SESSION => {}
            Record::Other(kind) => {
                self.note(&format!("a line of the protocol of kind {kind:?} is passed over"));
            }
        }
    }

    /// A word of the worker in the task's log.
    pub(super) fn note(&mut self, text: &str) {
        // Names of files are an agent's own words.
        let text = format!("[tidemill] {}", self.redaction.clean_text(text));
        self.fresh.extend_from_slice(text.as_bytes());
        self.fresh.push(b'\n');
        self.shared.config.sink.line(&LogLine { claim: self.claim, stream: LogSource::Worker, text: &text });
    }

    /// Writes the lines that were taken to the log and shows them to watchers.
    pub(super) fn flush(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        let mut lines = std::mem::take(&mut self.fresh);
        self.shared.source.log(self.claim, &lines);
        if let Err(error) = self.log.append(&self.directory.inner, &lines) {
            // A disk that is full must not fail the task; the live view and the sink still have the lines.
            let text = format!("[tidemill] the log cannot be written: {error}");
            self.shared.config.sink.line(&LogLine {
                claim: self.claim,
                stream: LogSource::Worker,
                text: &text,
            });
        }
        lines.clear();
        if lines.capacity() <= 4 * READ_BYTES {
            self.fresh = lines;
        }
    }
}
