//! How long it takes to write a dead letter: from the end of a run that fails for good until the letter is durable.

use std::time::Duration;

use serde_json::json;
use tidemill_engine::execution::ExecutionStatus;

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::lab::{Lab, execution};
use crate::latency::Latencies;
use crate::offered::offer;

const PER_SECOND: u64 = 200;
/// It has no grant for what it asks, which no other try helps against.
const FAILING: &str = "ctx.publish('order.seen', { id: ctx.event.data.id });";

pub fn measure(setting: &Setting<'_>, report: &mut Report) {
    let runtime = setting.runtime;
    let lab = Lab::start(runtime, setting.dir, "letters");
    lab.script(runtime, FAILING);
    lab.subscribe(runtime, [("failing".to_owned(), json!(null))].into_iter());
    let warm = offer(runtime, &lab.publisher, PER_SECOND, Duration::from_millis(500));
    lab.ends(runtime, warm.len() as u64);
    lab.runs();
    let span = setting.span * u32::try_from(setting.rounds).unwrap_or(1) / 2;
    let offered = offer(runtime, &lab.publisher, PER_SECOND, span);
    let (ends, runs) = (lab.ends(runtime, offered.len() as u64), lab.runs());
    let mut written = Latencies::default();
    for one in &offered {
        let id = execution(one.event, "failing");
        let (end, run) = (ends[&id], runs[&id]);
        assert_eq!(end.status, ExecutionStatus::DeadLetter);
        written.push(end.at.duration_since(run));
    }
    lab.end(runtime);
    report.push(
        Figure::new(
            "letters",
            format!("end of the run to the durable letter, {PER_SECOND}/s, p95"),
            written.quantile(0.95) / 1e3,
            "ms",
        )
        .goal(Goal::AtMost(5.0))
        .note(format!(
            "p50 {:.2} ms, p99 {:.2} ms, {} letters",
            written.p50() / 1e3,
            written.p99() / 1e3,
            offered.len()
        )),
    );
}
