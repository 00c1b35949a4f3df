//! The log of an attempt: what the child printed, in a file, up to a limit.

use std::fs::File;
use std::io::{self, Write};

use super::directory::{OWN_DIR, OWN_FILE};
use super::inner_file::InnerDir;

/// The bytes of an attempt's log. What follows is dropped, and the log says so.
pub(crate) const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A log that makes its file with the first byte.
#[derive(Debug)]
pub(crate) struct OutputLog {
    file: Option<File>,
    written: u64,
    is_over: bool,
}

impl OutputLog {
    pub(crate) fn new() -> Self {
        Self { file: None, written: 0, is_over: false }
    }

    /// Appends whole lines. After the limit, or after an error, nothing more is written.
    pub(crate) fn append(&mut self, dir: &InnerDir, lines: &[u8]) -> io::Result<()> {
        if self.is_over || lines.is_empty() {
            return Ok(());
        }
        let written = self.write(dir, lines);
        self.is_over |= written.is_err();
        written
    }

    fn write(&mut self, dir: &InnerDir, lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => {
                let logs = dir.make("logs", OWN_DIR)?;
                empty.insert(logs.create("output.log", OWN_FILE)?)
            }
        };
        let length = lines.len() as u64;
        if self.written + length > LOG_BYTES_MAX {
            self.is_over = true;
            let mib = LOG_BYTES_MAX / (1024 * 1024);
            return writeln!(file, "[tidemill] the log is cut here: its limit is {mib} MiB");
        }
        self.written += length;
        file.write_all(lines)
    }
}
