//! All figures of this process.

use std::time::Duration;

use tidemill_model::{TenantId, Timestamp, WorkerId};

use crate::engine::{Engine, EngineError};
use crate::kernel::backend::Backend;
use crate::metrics::{Metrics, NamedMetrics, SlotMeter, SpanMeter};

impl<B: Backend> Engine<B> {
    /// What was counted since the process began, and how full everything is now. Nothing is scanned for it.
    pub async fn metrics(&self) -> Result<Metrics, EngineError> {
        let inner = &self.inner;
        let queue = self.queue_depth().await?;
        let now = inner.clock.now();
        let deliveries =
            inner.backend.look(|state| state.deliveries().due(Timestamp::MIN, 0, |_| true)).await?;
        Ok(Metrics {
            queue,
            queue_oldest_millis: queue.oldest_ready.map(|since| now.since(since)),
            commits: inner.backend.commits(),
            work: inner.meter.read(),
            slots: inner.slots.read(),
            spans: inner.spans.read(),
            deliveries_waiting: deliveries.pending,
            scripts: self.script_metrics().await?,
            triage: self.triage_metrics().await?,
            health: self.last_checks().into_values().collect(),
        })
    }

    /// Attempts of one tenant by the names of their definitions and jobs, counted since the process began.
    pub fn named_metrics(&self, tenant: &TenantId) -> NamedMetrics {
        self.inner.meter.named(tenant)
    }

    /// How many workers, here and elsewhere, reported within [`WORKER_SEEN`](crate::metrics::WORKER_SEEN).
    pub fn workers_seen(&self) -> usize {
        self.inner.meter.workers_seen()
    }

    /// The workers of this process that reported within [`WORKER_SEEN`](crate::metrics::WORKER_SEEN), and when. They
    /// work for all tenants.
    pub fn local_workers(&self) -> Vec<(WorkerId, Timestamp)> {
        let now = self.now();
        let millis = |silent: Duration| u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let seen = self.inner.meter.local_workers().into_iter();
        seen.map(|(worker, silent)| (worker, now.minus(millis(silent)))).collect()
    }

    /// The time by the clock that stamps events.
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Where workers of this process say how busy they are.
    pub fn slot_meter(&self) -> &SlotMeter {
        &self.inner.slots
    }

    /// Where the exporter of traces counts.
    pub fn span_meter(&self) -> &SpanMeter {
        &self.inner.spans
    }
}
