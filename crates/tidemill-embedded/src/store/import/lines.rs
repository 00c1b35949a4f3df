//! The lines of a file, one at a time.

use std::io::{BufRead, Read};

use super::ImportError;

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 256 << 20;

pub(super) struct Lines<'i> {
    input: &'i mut dyn BufRead,
    text: Vec<u8>,
    number: u64,
}

impl<'i> Lines<'i> {
    pub(super) fn new(input: &'i mut dyn BufRead) -> Self {
        Self { input, text: Vec::new(), number: 0 }
    }

    /// The number of the line that was read last, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line and its number; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &str)>, ImportError> {
        self.text.clear();
        let mut limited = Read::take(&mut *self.input, LINE_BYTES_MAX);
        limited.read_until(b'\n', &mut self.text).map_err(ImportError::Read)?;
        if self.text.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let line = self.number;
        let bad = |problem: &str| ImportError::Line { line, problem: problem.to_owned() };
        let Some(bytes) = self.text.strip_suffix(b"\n") else {
            let too_long = self.text.len() as u64 == LINE_BYTES_MAX;
            return Err(bad(if too_long { "it is too long" } else { "it does not end: the export was cut" }));
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some((line, text))),
            Err(_) => Err(bad("it is not UTF-8 text")),
        }
    }
}
