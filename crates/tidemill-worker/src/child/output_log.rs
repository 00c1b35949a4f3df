//! The log of an attempt: what the child printed, in a file, up to a limit.

use std::fs::File;
use std::io::{self, Write};

use super::directory::{OWN_DIR, OWN_FILE};
use super::inner_file::InnerDir;

/// The bytes of an attempt's log. What follows is dropped, and the log says so.
pub(crate) const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What waits for a disk that has no room. What comes above it is lost, and the log says so.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
const GAP: &[u8] = b"[tidemill] lines are missing here: the log could not be written\n";

/// A log that makes its file with the first byte.
#[derive(Debug, Default)]
pub(crate) struct OutputLog {
    file: Option<File>,
    written: u64,
    is_over: bool,
    /// What could not be written yet.
    waiting: Vec<u8>,
    has_gap: bool,
    /// Whether that was told.
    is_told: bool,
}

impl OutputLog {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Appends whole lines. After the limit nothing more is written. What cannot be written now is tried again with what
    /// follows; the first time it is an error.
    pub(crate) fn append(&mut self, dir: &InnerDir, lines: &[u8]) -> io::Result<()> {
        if self.is_over || lines.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.write_waiting(dir) {
            self.keep(lines);
            return self.report_once(error);
        }
        let length = lines.len() as u64;
        if self.written + length > LOG_BYTES_MAX {
            self.is_over = true;
            let mib = LOG_BYTES_MAX / (1024 * 1024);
            let cut = format!("[tidemill] the log is cut here: its limit is {mib} MiB\n");
            return self.write(dir, cut.as_bytes());
        }
        let before = self.written;
        let Err(error) = self.write(dir, lines) else { return Ok(()) };
        self.keep(&lines[self.taken_since(before)..]);
        self.report_once(error)
    }

    /// Writes what waits, if there is room now, and closes the file until something follows. False when lines are missing.
    pub(crate) fn finish(&mut self, dir: &InnerDir) -> bool {
        let is_whole = self.write_waiting(dir).is_ok() && !self.has_gap;
        self.file = None;
        is_whole
    }

    fn keep(&mut self, lines: &[u8]) {
        if self.waiting.len() + lines.len() <= WAITING_BYTES_MAX {
            self.waiting.extend_from_slice(lines);
        } else if !std::mem::replace(&mut self.has_gap, true) {
            self.waiting.extend_from_slice(GAP);
        }
    }

    fn report_once(&mut self, error: io::Error) -> io::Result<()> {
        if std::mem::replace(&mut self.is_told, true) { Ok(()) } else { Err(error) }
    }

    fn write_waiting(&mut self, dir: &InnerDir) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.waiting);
        let before = self.written;
        let result = self.write(dir, &waiting);
        self.waiting = waiting;
        self.waiting.drain(..self.taken_since(before));
        result
    }

    fn taken_since(&self, before: u64) -> usize {
        usize::try_from(self.written - before).expect("no more was taken than was there")
    }

    fn write(&mut self, dir: &InnerDir, mut lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => {
                let logs = dir.make("logs", OWN_DIR)?;
                let (name, mode) = ("output.log", OWN_FILE);
                let is_new = self.written == 0;
                empty.insert(if is_new { logs.create(name, mode)? } else { logs.append(name, mode)? })
            }
        };
        while !lines.is_empty() {
            match file.write(lines) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.written += count as u64;
                    lines = &lines[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
