//! Takes spans to the collector, many at a time.

use std::time::Duration;

use tidemill_engine::metrics::SpanMeter;
use tidemill_engine::warn_seldom;
use tidemill_outbound::{Collector, CollectorVerdict};
use tokio::sync::mpsc::Receiver;

use super::otlp;
use super::settings::TraceSettings;
use super::span::Span;

/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_millis(500);
/// How long a batch waits before it is sent again. After the last one it is dropped.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

pub(super) struct Exporter {
    settings: TraceSettings,
    collector: Collector,
    meter: SpanMeter,
}

impl Exporter {
    pub(super) fn new(settings: &TraceSettings, meter: SpanMeter) -> Self {
        let collector = Collector::new(&settings.url, &settings.headers);
        Self { settings: settings.clone(), collector, meter }
    }

    /// Sends what comes until nothing more can come.
    pub(super) async fn run(self, mut spans: Receiver<Span>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while spans.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let more = async {
                loop {
                    let room = BATCH_MAX - batch.len();
                    if room == 0 || spans.recv_many(&mut batch, room).await == 0 {
                        break;
                    }
                }
            };
            // Those that came by then are enough.
            let _ = tokio::time::timeout(LINGER, more).await;
            self.send(&batch).await;
            batch.clear();
        }
    }

    fn give_up(&self, batch: &[Span], why: &str) {
        warn_seldom!(why, spans = batch.len(), "traces are lost");
        self.meter.dropped(batch.len());
    }

    async fn send(&self, batch: &[Span]) {
        let body = otlp::body_of(batch, &self.settings);
        let mut pauses = PAUSES.iter();
        loop {
            match (self.collector.send(body.clone()).await, pauses.next()) {
                (CollectorVerdict::Taken, _) => return self.meter.sent(batch.len()),
                (CollectorVerdict::Missed, Some(pause)) => tokio::time::sleep(*pause).await,
                (CollectorVerdict::Missed, None) => {
                    return self.give_up(batch, "the collector of traces cannot be reached");
                }
                (CollectorVerdict::Refused, _) => {
                    return self.give_up(batch, "the collector of traces refuses them");
                }
            }
        }
    }
}
