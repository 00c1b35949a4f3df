//! Traces: what happened, sent to a collector of OpenTelemetry.
//!
//! The exporter follows the log like any other reader. Nothing waits for it: what the collector does not take in time
//! is dropped and counted.

mod exporter;
mod follower;
mod otlp;
mod settings;
mod span;
mod tracker;

use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::engine::Engine;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use exporter::Exporter;
use follower::Follower;

pub(crate) use settings::{TraceSettings, parse_headers};

/// Spans that wait for the collector. Beyond them spans are dropped.
const WAITING_SPANS_MAX: usize = 8_192;
/// How long the exporter sends what is left at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// An export under way. It ends with its handle.
pub(crate) struct Traces {
    stop: watch::Sender<bool>,
    follower: JoinHandle<()>,
    exporter: JoinHandle<()>,
}

impl Traces {
    /// Begins with what happens from now on.
    pub(crate) fn start<B: Backend>(engine: Engine<B>, settings: &TraceSettings) -> Self {
        let (spans, waiting) = mpsc::channel(WAITING_SPANS_MAX);
        let meter = engine.span_meter().clone();
        let exporter = Exporter::new(settings, meter.clone());
        let (stop, stopped) = watch::channel(false);
        let follower = Follower::new(engine, spans, meter);
        Self {
            stop,
            follower: tokio::spawn(follower.run(stopped)),
            exporter: tokio::spawn(exporter.run(waiting)),
        }
    }

    /// Tells what happened up to now, as far as the collector takes it soon.
    pub(crate) async fn shut_down(mut self) {
        let _ = self.stop.send(true);
        let told = async {
            let _ = (&mut self.follower).await;
            let _ = (&mut self.exporter).await;
        };
        let _ = tokio::time::timeout(LAST_WORDS, told).await;
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.follower.abort();
        self.exporter.abort();
    }
}
