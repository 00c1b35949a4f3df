//! Lines of the log: one JSON object each on standard error, which the runtime takes into the log of the function.
//!
//! They look as those of `tidemill serve --log-format json` do. Only lines of our own crates are written: those of
//! others may contain what they send.

use std::io::Write as _;

use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_engine::log_lines::{Fields, MESSAGE};
use tidemill_model::security::secrets::is_secret_name;
use tidemill_model::{ErrorSanitizer, Further, LogLevel, LogRecord, Secrets};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::{LookupSpan, Registry, Scope};

/// Shows lines from now on, from the level that `TIDEMILL_LOG` names.
pub(crate) fn start(environment: &std::collections::BTreeMap<String, String>) {
    let level = environment.get("TIDEMILL_LOG").and_then(|word| word.parse().ok());
    let shown = Targets::new().with_target("tidemill", level.unwrap_or(LevelFilter::INFO));
    let named = environment.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let sanitizer = ErrorSanitizer::with(Secrets::of_variables(named, is_secret_name), None);
    let lines = Registry::default().with(shown).with(Lines { sanitizer, clock: SystemClock::start() });
    // The first one stays; there is one for each process.
    drop(tracing::subscriber::set_global_default(lines));
}

struct Lines {
    sanitizer: ErrorSanitizer,
    clock: SystemClock,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
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
        let message = fields.take_text(MESSAGE).unwrap_or_default();
        let level = match *event.metadata().level() {
            Level::ERROR => LogLevel::Error,
            Level::WARN => LogLevel::Warn,
            Level::INFO => LogLevel::Info,
            Level::DEBUG => LogLevel::Debug,
            Level::TRACE => LogLevel::Trace,
        };
        let record = LogRecord::new(self.clock.now(), level, &message);
        let line = LogRecord { further: Further(fields.as_slice()), ..record }.line();
        // If nobody can read it, there is nobody to tell.
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }
}
