//! From the moment an event is offered to its script's durable success, at a fixed rate.

use std::time::Duration;

use serde_json::json;
use tidemill_engine::execution::ExecutionStatus;

use super::Setting;
use crate::HANDLER;
use crate::figure::{Figure, Goal, Report};
use crate::lab::{Lab, execution};
use crate::latency::Latencies;
use crate::offered::offer;
use crate::round::all_cpu;

const PER_SECOND: u64 = 1_000;

pub fn measure(setting: &Setting<'_>, report: &mut Report) {
    let runtime = setting.runtime;
    let lab = Lab::start(runtime, setting.dir, "latency");
    lab.script(runtime, HANDLER);
    lab.subscribe(runtime, [("wanted".to_owned(), json!({ "customer.country": "DE" }))].into_iter());
    let warm = offer(runtime, &lab.publisher, PER_SECOND, Duration::from_millis(500));
    lab.ends(runtime, warm.len() as u64);
    let span = setting.span * u32::try_from(setting.rounds).unwrap_or(1) / 2;
    let cpu = all_cpu();
    let offered = offer(runtime, &lab.publisher, PER_SECOND, span);
    let ends = lab.ends(runtime, offered.len() as u64);
    let cpu = all_cpu().saturating_sub(cpu).as_secs_f64() * 1e6 / offered.len() as f64;
    let (mut whole, mut accepted) = (Latencies::default(), Latencies::default());
    for one in &offered {
        let end = ends.get(&execution(one.event, "wanted")).expect("every event has its execution");
        assert_eq!(end.status, ExecutionStatus::Success);
        whole.push(end.at.duration_since(one.at));
        accepted.push(one.accepted_in);
    }
    lab.end(runtime);
    report.push(
        Figure::new(
            "latency",
            format!("offered to durable success, {PER_SECOND} events/s, p95"),
            whole.quantile(0.95) / 1e3,
            "ms",
        )
        .goal(Goal::AtMost(20.0))
        .note(format!(
            "p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms; of it until accepted p50 {:.2} ms, p95 {:.2} ms; {cpu:.0} µs of CPU each",
            whole.p50() / 1e3,
            whole.p99() / 1e3,
            whole.quantile(0.999) / 1e3,
            accepted.p50() / 1e3,
            accepted.quantile(0.95) / 1e3,
        )),
    );
}
