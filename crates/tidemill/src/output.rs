//! What a command says: data on standard output, words for people on standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidemill_api::ProblemDocument;
use tidemill_embedded::store::watch::Progress;
use tidemill_model::{LogLevel, LogRecord};

use crate::commands::CommandError;
use crate::display::visible::{Visible, visible};
use crate::display::{Table, terminal};
use crate::help::{fold, wrapped};
use crate::logging::{json_now, stamp};

/// How a line begins that the program says of itself.
const OWN_NAME: &str = "tidemill:";
/// What a line that goes on below itself is set in by.
const HANG: usize = 2;
/// On a terminal the line of progress changes this often at most.
const LIVE_EVERY: Duration = Duration::from_millis(100);
/// Elsewhere a new line is written this often at most.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

pub(crate) struct Output {
    data: Box<dyn Write + Send>,
    words: Words,
    /// Whether data and words meet on the same screen.
    mixed: bool,
    /// Whether colours are wanted. Nobody says so before the settings are read.
    colours: bool,
}

/// The part for people.
struct Words {
    out: Box<dyn Write + Send>,
    /// Whether a line can be written over.
    live: bool,
    /// The step that was told last, and when.
    told: Option<(&'static str, Instant)>,
    /// Whether a line of progress stands on the terminal.
    standing: bool,
}

impl Output {
    pub(crate) fn stdio() -> Self {
        let live = io::stderr().is_terminal();
        let is_screen = io::stdout().is_terminal();
        let data: Box<dyn Write + Send> =
            if is_screen { Box::new(Visible::new(io::stdout())) } else { Box::new(io::stdout()) };
        Self { mixed: live && is_screen, ..Self::new(data, Box::new(io::stderr()), live) }
    }

    fn new(data: Box<dyn Write + Send>, words: Box<dyn Write + Send>, live: bool) -> Self {
        Self {
            data,
            words: Words { out: words, live, told: None, standing: false },
            mixed: false,
            colours: false,
        }
    }

    /// A line of data.
    pub(crate) fn data(&mut self, line: impl fmt::Display) -> io::Result<()> {
        self.words.wipe();
        writeln!(self.data, "{line}")
    }

    /// A line of data as JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(value).map_err(io::Error::other)?;
        self.data(text)
    }

    /// A value as JSON for people to read too.
    pub(crate) fn json_pretty(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
        self.data(text)
    }

    /// Data as it is, at once. On a terminal control characters are shown and not obeyed, as in all data.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.words.wipe();
        self.data.write_all(bytes)?;
        self.data.flush()
    }

    /// A table, no wider than the screen it is on.
    pub(crate) fn table(&mut self, table: &Table) -> io::Result<()> {
        let width = terminal::size_of(&io::stdout()).map(|size| size.columns);
        if !(self.colours && io::stdout().is_terminal()) {
            return table.lines(width).into_iter().try_for_each(|line| self.data(line));
        }
        // Cells hold no control characters, so nothing has to be shown in their place.
        self.words.wipe();
        self.data.flush()?;
        let mut screen = io::stdout().lock();
        table.coloured(width).into_iter().try_for_each(|line| writeln!(screen, "{line}"))
    }

    /// Whether words and tables may have colours on a terminal.
    pub(crate) fn set_colours(&mut self, colours: bool) {
        self.colours = colours;
    }

    /// A stream of data, and a watch for its progress that does not get in its way.
    pub(crate) fn stream(&mut self) -> (&mut (dyn Write + Send), impl FnMut(Progress) + Send) {
        let Self { data, words, mixed, .. } = self;
        words.wipe();
        (data, |progress| {
            if !*mixed {
                words.progress(progress);
            }
        })
    }

    /// A line for people. If nobody can read it, that is no reason to stop.
    pub(crate) fn note(&mut self, line: impl fmt::Display) {
        self.say(LogLevel::Info, line);
    }

    /// A line that somebody should look at.
    pub(crate) fn warn(&mut self, line: impl fmt::Display) {
        self.say(LogLevel::Warn, line);
    }

    /// A line of words that nobody copies. On a terminal it goes on below itself if it is long.
    pub(crate) fn advice(&mut self, line: impl fmt::Display) {
        let size = terminal::size_of(&io::stderr()).filter(|_| self.words.live && json_now().is_none());
        match size {
            Some(size) => self.note(fold(&line.to_string(), HANG, size.columns)),
            None => self.note(line),
        }
    }

    /// A line about what stopped the command. On a terminal it goes on below itself if it is long.
    pub(crate) fn error(&mut self, line: impl fmt::Display) {
        let size = terminal::size_of(&io::stderr()).filter(|_| self.words.live && json_now().is_none());
        let Some(size) = size else { return self.say(LogLevel::Error, line) };
        self.words.wipe();
        let text = fold(&visible(&line.to_string()), HANG, size.columns);
        let _ = match text.strip_prefix(OWN_NAME) {
            Some(rest) if self.colours => writeln!(self.words.out, "\x1b[31m{OWN_NAME}\x1b[0m{rest}"),
            _ => writeln!(self.words.out, "{text}"),
        };
    }

    /// What stopped the command, for programs: one line of JSON beside the words, so that data stays data.
    pub(crate) fn problem(&mut self, problem: &ProblemDocument) {
        self.words.wipe();
        let text = serde_json::to_string(problem).expect("texts can be written as JSON");
        let _ = writeln!(self.words.out, "{text}");
    }

    /// How the program is used.
    pub(crate) fn help(&mut self, text: &str) -> io::Result<()> {
        let columns = terminal::size_of(&io::stdout()).map(|size| size.columns);
        self.raw(wrapped(text, columns).as_bytes())
    }

    fn say(&mut self, level: LogLevel, line: impl fmt::Display) {
        self.words.wipe();
        if let Some(now) = json_now() {
            let line = LogRecord::new(now, level, &line.to_string()).line();
            let _ = self.words.out.write_all(line.as_bytes());
            return;
        }
        let stamp = stamp(level);
        let _ = if self.words.live {
            writeln!(self.words.out, "{stamp}{}", visible(&line.to_string()))
        } else {
            writeln!(self.words.out, "{stamp}{line}")
        };
    }

    /// How far the work is: a line that changes on a terminal, now and then a new one elsewhere.
    pub(crate) fn progress(&mut self, progress: Progress) {
        self.words.progress(progress);
    }

    /// The same as a bar, where a line can be written over.
    pub(crate) fn bar(&mut self, step: &'static str, done: u64, total: u64) {
        let text = text_of(Progress { step, done, total: Some(total) });
        let text = if self.words.live { format!("{} {text}", bar_of(done, total)) } else { text };
        self.words.show_step(step, &text);
    }

    /// Ends the output and gives the process' exit code.
    pub(crate) fn end(mut self, code: ExitCode) -> ExitCode {
        self.words.wipe();
        match self.data.flush() {
            Ok(()) => code,
            Err(error) => CommandError::from(error).exit_code(),
        }
    }
}

impl Words {
    fn progress(&mut self, progress: Progress) {
        self.show_step(progress.step, &text_of(progress));
    }

    fn show_step(&mut self, step: &'static str, text: &str) {
        let now = Instant::now();
        let every = if self.live { LIVE_EVERY } else { PLAIN_EVERY };
        let is_due = self.told.is_none_or(|(told, at)| told != step || now.duration_since(at) >= every);
        if !is_due {
            return;
        }
        self.told = Some((step, now));
        let _ = if self.live { write!(self.out, "\r\x1b[K{text}") } else { writeln!(self.out, "{text}") };
        let _ = self.out.flush();
        self.standing = self.live;
    }

    fn wipe(&mut self) {
        if std::mem::take(&mut self.standing) {
            let _ = write!(self.out, "\r\x1b[K");
        }
    }
}

/// How much is done, in twenty parts.
fn bar_of(done: u64, total: u64) -> String {
    const PARTS: usize = 20;
    let share = done.min(total) * PARTS as u64 / total.max(1);
    let full = usize::try_from(share).unwrap_or(PARTS);
    format!("[{}{}]", "#".repeat(full), "-".repeat(PARTS - full))
}

fn text_of(progress: Progress) -> String {
    let Progress { step, done, total } = progress;
    match total {
        _ if done == 0 => step.to_owned(),
        None => format!("{step}: {done}"),
        Some(total) => format!("{step}: {done} of {total}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said(live: bool) -> String {
        let words = Shared::default();
        let mut out = Output::new(Box::new(io::sink()), Box::new(words.clone()), live);
        for (step, done) in [("reading", 0), ("reading", 5), ("writing", 0)] {
            out.progress(Progress { step, done, total: Some(9) });
        }
        out.note("done");
        String::from_utf8(words.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_bar_is_full_when_all_is_done() {
        for (done, total, full) in [(0, 0, 0), (0, 5, 0), (1, 2, 10), (5, 5, 20), (7, 5, 20)] {
            let expected = format!("[{}{}]", "#".repeat(full), "-".repeat(20 - full));
            assert_eq!(bar_of(done, total), expected, "{done} of {total}");
        }
    }

    #[test]
    fn progress_is_a_line_that_changes_or_plain_lines() {
        assert_eq!(said(false), "reading\nwriting\ndone\n");
        assert_eq!(said(true), "\r\x1b[Kreading\r\x1b[Kwriting\r\x1b[Kdone\n");
        assert_eq!(text_of(Progress { step: "reading", done: 5, total: Some(9) }), "reading: 5 of 9");
        assert_eq!(text_of(Progress { step: "reading", done: 5, total: None }), "reading: 5");
    }
}
