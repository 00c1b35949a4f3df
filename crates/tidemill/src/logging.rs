//! The lines that this program itself writes to standard error: text for people, or one JSON object a line.
//!
//! The form is chosen once, before the first line that matters. Commands that only ask always speak to people.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_model::{LogLevel, LogRecord, TenantId, Timestamp, text_stamp};
use tidemill_worker::log_sink::plain;
use tokio::sync::oneshot;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LogFormat {
    #[default]
    Text,
    Json,
}

/// There from the moment that lines are to be JSON.
static CLOCK: OnceLock<SystemClock> = OnceLock::new();
/// There from the moment that lines of text are to have their time.
static TEXT_CLOCK: OnceLock<SystemClock> = OnceLock::new();

impl LogFormat {
    /// By a word that was checked.
    pub(crate) fn of(word: &str) -> Self {
        if word == "json" { Self::Json } else { Self::Text }
    }

    /// Lets all lines of this process have this form from now on. Text of one that stays has time and level.
    pub(crate) fn set(self, stays: bool) {
        match self {
            Self::Json => {
                CLOCK.get_or_init(SystemClock::start);
            }
            Self::Text if stays => {
                TEXT_CLOCK.get_or_init(SystemClock::start);
            }
            Self::Text => {}
        }
    }
}

/// The time of a line, if lines are JSON.
pub(crate) fn json_now() -> Option<Timestamp> {
    CLOCK.get().map(SystemClock::now)
}

/// What a line of text begins with: time and level, or nothing.
pub(crate) fn stamp(level: LogLevel) -> String {
    TEXT_CLOCK.get().map(|clock| text_stamp(clock.now(), level)).unwrap_or_default()
}

/// Lines that wait for standard error. Beyond them lines are refused.
const WAITING_LINES_MAX: usize = 256;
/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A line, and who is told once it is written.
type Waiting = (String, oneshot::Sender<()>);

/// Writes from a thread of its own: standard error may stand still, and nobody else may for it.
static WRITER: LazyLock<Option<SyncSender<Waiting>>> = LazyLock::new(|| {
    let (lines, waiting) = sync_channel::<Waiting>(WAITING_LINES_MAX);
    let write = move || {
        for (line, written) in waiting {
            if std::io::stderr().lock().write_all(line.as_bytes()).is_ok() {
                // Whoever has no more patience does not hear of it.
                let _ = written.send(());
            }
        }
    };
    std::thread::Builder::new().name("log-lines".to_owned()).spawn(write).ok().map(|_| lines)
});

/// Hands a line to standard error; the answer resolves once it is written.
fn write(line: String) -> Option<oneshot::Receiver<()>> {
    let (sender, written) = oneshot::channel();
    WRITER.as_ref()?.try_send((line, sender)).ok().map(|()| written)
}

/// Writes an alert that nobody else is told.
pub(crate) fn alert(
    tenant: TenantId,
    text: String,
) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> {
    Box::pin(async move { write_alert(&tenant, &text).await })
}

async fn write_alert(tenant: &TenantId, text: &str) -> Result<(), String> {
    let line = match json_now() {
        Some(now) => {
            let record = LogRecord::new(now, LogLevel::Warn, text);
            LogRecord { tenant: Some(tenant), ..record }.line()
        }
        None => format!("{}alert: {}\n", stamp(LogLevel::Warn), plain(&text.replace('\n', " | "))),
    };
    let stands = || "standard error stands still".to_owned();
    let written = write(line).ok_or_else(stands)?;
    match tokio::time::timeout(PATIENCE, written).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("standard error cannot be written".to_owned()),
        Err(_) => Err(stands()),
    }
}

/// Writes that something which nobody waits for went wrong, if standard error takes it.
pub(crate) fn trouble(text: &str) {
    let line = if let Some(now) = json_now() {
        LogRecord::new(now, LogLevel::Warn, text).line()
    } else {
        // With its level it needs no word for it.
        let stamp = stamp(LogLevel::Warn);
        let start = if stamp.is_empty() { "warning: " } else { &stamp };
        format!("{start}{}\n", plain(&text.replace('\n', " | ")))
    };
    drop(write(line));
}
