//! Metrics in the text format of Prometheus. The names are a promise; docs/reference/metrics.md lists them all.
//!
//! Tenants are added up: their names are nobody else's business. A caller that asks for one of them sees its
//! definitions and jobs by name.

mod health;
mod names;
mod process;
mod scripts;
mod text;
mod triage;
mod work;
mod worker;

use tidemill_engine::metrics::{Metrics, NamedMetrics};

use process::Process;
use text::{Kind, Text};
pub use worker::worker_metrics;

/// The content type.
pub const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of all metrics, for a caller that may see these names.
pub(crate) fn render(metrics: &Metrics, named: &NamedMetrics, logins_failed: u64) -> String {
    let mut text = Text::default();
    build(&mut text);
    work::render(metrics, &mut text);
    names::render(named, &mut text);
    scripts::render(&metrics.scripts, &mut text);
    triage::render(&metrics.triage, &mut text);
    health::render(&metrics.health, &mut text);
    let about = "Logins to the dashboard with a key that is none.";
    text.counter("tidemill_logins_failed_total", about, logins_failed);
    if let Some(process) = Process::look() {
        process.render(&mut text);
    }
    text.end()
}

fn build(text: &mut Text) {
    text.family("tidemill_build_info", Kind::Gauge, "Which release this is; always 1.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
}
