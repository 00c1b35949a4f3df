//! The lines that this program itself writes to standard error: text for people, or one JSON object a line.
//!
//! `tracing` brings them here: `start` is the one place that decides which are shown and what they look like. The form is chosen
//! once, before the first line that matters. Commands that only ask always speak to people.

use std::fmt::Write as _;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use serde_json::Value;
use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_engine::log_lines::{Fields, MESSAGE};
use tidemill_model::{
    ErrorSanitizer, Further, LogLevel, LogRecord, TenantId, Timestamp, camel_case, text_stamp,
};
use tidemill_worker::log_sink::plain;
use tokio::sync::oneshot;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry, Scope};

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

/// How the targets of all our crates begin. A level without a target is meant for them.
const OWN_TARGETS: &str = "tidemill";

/// Where the causes of problems come from.
const PROBLEMS: &str = "tidemill_server::problem";

/// Our own lines from `info` on, and without those of problems that stand in an answer.
pub(crate) fn usual_filter(in_answer: bool) -> Targets {
    let own = Targets::new().with_default(LevelFilter::OFF).with_target(OWN_TARGETS, Level::INFO);
    if in_answer { own.with_target(PROBLEMS, LevelFilter::OFF) } else { own }
}

/// Which lines are shown: levels, and targets with levels, with commas between them.
///
/// A level alone is that of our own crates. Libraries below them write only where they are named: what they say at
/// `trace` may contain what they send.
pub(crate) fn filter(text: &str) -> Option<Targets> {
    let mut targets = usual_filter(false);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        targets = match part.split_once('=') {
            Some((target, level)) if is_target(target) => targets.with_target(target, level_of(level)?),
            Some(_) => return None,
            None => match level_of(part) {
                Some(level) => targets.with_target(OWN_TARGETS, level),
                // A single word is rather a level that is misspelt.
                None if is_target(part) && part.contains(['_', ':']) => {
                    targets.with_target(part, LevelFilter::TRACE)
                }
                None => return None,
            },
        };
    }
    Some(targets)
}

fn level_of(word: &str) -> Option<LevelFilter> {
    let word = word.trim();
    // Numbers are levels for the parser too, but nobody means them.
    word.bytes().all(|byte| byte.is_ascii_alphabetic()).then(|| word.parse().ok())?
}

/// The path of a module, as crates write it.
fn is_target(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

/// Shows lines from now on: those that the filter lets through, without what `sanitizer` takes out.
pub(crate) fn start(shown: Targets, sanitizer: ErrorSanitizer) {
    let lines = Registry::default().with(shown).with(Lines { sanitizer });
    // The first one stays; there is one for each process.
    drop(tracing::subscriber::set_global_default(lines));
}

/// Makes lines of events.
struct Lines {
    sanitizer: ErrorSanitizer,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            if let Some(own) = span.extensions().get::<Fields>() {
                fields.extend(own);
            }
        }
        event.record(&mut fields);
        fields.change_texts(|text| self.sanitizer.clean(text));
        show(line_of(event.metadata(), fields));
    }
}

fn level(level: Level) -> LogLevel {
    match level {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG => LogLevel::Debug,
        Level::TRACE => LogLevel::Trace,
    }
}

fn line_of(metadata: &Metadata<'_>, mut fields: Fields) -> String {
    let level = level(*metadata.level());
    let message = fields.take_text(MESSAGE).unwrap_or_default();
    if matches!(level, LogLevel::Debug | LogLevel::Trace) {
        // The user who asked for these lines may want to ask for fewer.
        fields.put("target", metadata.target().into());
    }
    if let Some(now) = json_now() {
        let further = Further(fields.as_slice());
        return LogRecord { further, ..LogRecord::new(now, level, &message) }.line();
    }
    let error = fields.take_text("error");
    let mut text = message;
    if let Some(error) = error {
        let _ = write!(text, ": {error}");
    }
    for (number, (name, value)) in fields.as_slice().iter().enumerate() {
        let lead = if number == 0 { " (" } else { ", " };
        let _ = match value {
            Value::String(value) => write!(text, "{lead}{}={value}", camel_case(name)),
            value => write!(text, "{lead}{}={value}", camel_case(name)),
        };
    }
    if !fields.as_slice().is_empty() {
        text.push(')');
    }
    let stamp = stamp(level);
    // With its level it needs no word for it.
    let start = match level {
        _ if !stamp.is_empty() => stamp.as_str(),
        LogLevel::Error => "error: ",
        LogLevel::Warn => "warning: ",
        LogLevel::Info => "",
        LogLevel::Debug => "debug: ",
        LogLevel::Trace => "trace: ",
    };
    format!("{start}{}\n", plain(&text.replace('\n', " | ")))
}

/// Lines that wait for standard error. Beyond them lines are left out.
const WAITING_LINES_MAX: usize = 1_024;
/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last lines may take when all is over.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A line, and what is done once it is written.
struct Waiting {
    line: String,
    written: Option<Box<dyn FnOnce() + Send>>,
}

/// There with the first line. It writes from a thread of its own: standard error may stand still, and nobody else may for it.
static WRITER: OnceLock<Option<SyncSender<Waiting>>> = OnceLock::new();
/// Lines that were left out since it was last told.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

fn start_writer() -> Option<SyncSender<Waiting>> {
    let (lines, waiting) = sync_channel::<Waiting>(WAITING_LINES_MAX);
    let write = move || {
        for Waiting { line, written } in waiting {
            if std::io::stderr().lock().write_all(line.as_bytes()).is_ok()
                && let Some(written) = written
            {
                written();
            }
        }
    };
    std::thread::Builder::new().name("log-lines".to_owned()).spawn(write).ok().map(|_| lines)
}

/// Hands a line to standard error. Says whether it was taken.
fn hand(waiting: Waiting) -> bool {
    let writer = WRITER.get_or_init(start_writer);
    writer.as_ref().is_some_and(|writer| writer.try_send(waiting).is_ok())
}

/// Writes a line, if standard error takes it. Those that it does not take are counted, and the next one tells.
fn show(line: String) {
    let left_out = LEFT_OUT.load(Ordering::Relaxed);
    let line = if left_out == 0 {
        line
    } else {
        let lines = if left_out == 1 { "line is" } else { "lines are" };
        let words = format!("{left_out} {lines} left out here: standard error was too slow");
        let told = match json_now() {
            Some(now) => LogRecord::new(now, LogLevel::Warn, &words).line(),
            None => format!("{}{words}\n", stamp(LogLevel::Warn)),
        };
        told + &line
    };
    if hand(Waiting { line, written: None }) {
        LEFT_OUT.fetch_sub(left_out, Ordering::Relaxed);
    } else {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets the last lines be written, unless standard error stands still.
pub(crate) fn finish() {
    if WRITER.get().is_none() {
        return;
    }
    let (sender, written) = sync_channel(1);
    // Nobody waits any more if it takes too long.
    let tell: Box<dyn FnOnce() + Send> = Box::new(move || {
        let _ = sender.send(());
    });
    if hand(Waiting { line: String::new(), written: Some(tell) }) {
        let _ = written.recv_timeout(LAST_LINES);
    }
}

/// Writes an alert that nobody else gets. It is a delivery and no line of the log: it is never left out, and the
/// sender learns whether it was written.
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
    let (sender, written) = oneshot::channel();
    // A sender that has lost patience does not hear it.
    let tell: Box<dyn FnOnce() + Send> = Box::new(move || {
        let _ = sender.send(());
    });
    if !hand(Waiting { line, written: Some(tell) }) {
        return Err(stands());
    }
    match tokio::time::timeout(PATIENCE, written).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("standard error cannot be written".to_owned()),
        Err(_) => Err(stands()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_that_of_our_own_crates() {
        let shows =
            |text: &str, target: &str, level: Level| filter(text).unwrap().would_enable(target, &level);
        for (text, target, level, expected) in [
            ("", "tidemill_engine::engine", Level::INFO, true),
            ("", "tidemill_engine::engine", Level::DEBUG, false),
            ("", "hyper::proto", Level::ERROR, false),
            ("trace", "tidemill_server::router", Level::TRACE, true),
            ("trace", "aws_smithy_runtime::client", Level::ERROR, false),
            ("error", "tidemill", Level::WARN, false),
            ("off", "tidemill", Level::ERROR, false),
            ("warn, tidemill_worker=debug", "tidemill_worker::slot", Level::DEBUG, true),
            ("warn, tidemill_worker=debug", "tidemill_server", Level::INFO, false),
            ("hyper=debug", "hyper::proto", Level::DEBUG, true),
            ("aws_smithy_runtime=debug", "aws_smithy_runtime::client", Level::DEBUG, true),
            ("tidemill_worker::slot", "tidemill_worker::slot", Level::TRACE, true),
        ] {
            assert_eq!(shows(text, target, level), expected, "{text:?} {target} {level}");
        }
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for text in ["loud", "debgu", "a b", "tidemill=loud", "=debug", "tidemill[span]=debug", "3"] {
            assert!(filter(text).is_none(), "{text:?}");
        }
    }
}
