//! A worker on its own: its slots, what became of its attempts, its process.

use tidemill_engine::metrics::{AttemptsMetrics, SlotsMetrics};

use super::process::Process;
use super::text::{Kind, Text};

/// The text of a worker's metrics.
pub fn worker_metrics(slots: SlotsMetrics, attempts: &AttemptsMetrics) -> String {
    let mut text = Text::default();
    super::build(&mut text);
    super::work::slots(slots, &mut text);
    text.family(
        "tidemill_worker_attempts_total",
        Kind::Counter,
        "Attempts of this worker, by how they ended here and the class of the error, which is empty without one.",
    );
    for ((outcome, class), count) in &attempts.ended {
        text.sample(&[("outcome", outcome), ("class", class)], count);
    }
    text.histogram(
        "tidemill_worker_attempt_seconds",
        "How long attempts of this worker took, in seconds.",
        &attempts.seconds,
    );
    if let Some(process) = Process::look() {
        process.render(&mut text);
    }
    text.end()
}
