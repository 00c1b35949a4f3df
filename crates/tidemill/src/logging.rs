//! The lines that this program itself writes to standard error: text for people, or one JSON object a line.
//!
//! The form is chosen once, before the first line that matters. Commands that only ask always speak to people.

use std::io::Write as _;
use std::sync::OnceLock;

use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_model::{LogLevel, LogRecord, TenantId, Timestamp};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// There from the moment that lines are to be JSON.
static CLOCK: OnceLock<SystemClock> = OnceLock::new();

impl LogFormat {
    /// By a word that was checked.
    pub(crate) fn of(word: &str) -> Self {
        if word == "json" { Self::Json } else { Self::Text }
    }

    /// Lets all lines of this process have this form from now on.
    pub(crate) fn set(self) {
        if self == Self::Json {
            CLOCK.get_or_init(SystemClock::start);
        }
    }
}

/// The time of a line, if lines are JSON.
pub(crate) fn json_now() -> Option<Timestamp> {
    CLOCK.get().map(SystemClock::now)
}

/// Writes an alert that nobody else is told.
pub(crate) fn alert(tenant: &TenantId, text: &str) {
    let line = match json_now() {
        Some(now) => {
            let record = LogRecord::new(now, LogLevel::Warn, text);
            LogRecord { tenant: Some(tenant), ..record }.line()
        }
        None => format!("alert: {}\n", text.replace('\n', " | ")),
    };
    // If nobody can read it, there is nobody to tell.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Writes that something which nobody waits for went wrong.
pub(crate) fn trouble(text: &str) {
    let line = match json_now() {
        Some(now) => LogRecord::new(now, LogLevel::Warn, text).line(),
        None => format!("warning: {}\n", text.replace('\n', " | ")),
    };
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
