//! What subscriptions cost a publisher: without subscribers, and beside very many that want something else.

use std::time::Duration;

use serde_json::json;

use super::Setting;
use crate::HANDLER;
use crate::figure::{Figure, Goal, Report};
use crate::lab::Lab;
use crate::latency::{Latencies, median};
use crate::offered::offer;
use crate::round::all_cpu;

const PER_SECOND: u64 = 2_000;
const SUBSCRIPTIONS: usize = 10_000;

struct Side {
    lab: Lab,
    p50s: Vec<f64>,
    all: Latencies,
    cpu_micros: Vec<f64>,
}

impl Side {
    fn new(lab: Lab) -> Self {
        Self { lab, p50s: Vec::new(), all: Latencies::default(), cpu_micros: Vec::new() }
    }

    fn round(&mut self, setting: &Setting<'_>, span: Duration) {
        let cpu = all_cpu();
        let offered = offer(setting.runtime, &self.lab.publisher, PER_SECOND, span);
        self.cpu_micros.push(all_cpu().saturating_sub(cpu).as_secs_f64() * 1e6 / offered.len() as f64);
        let mut latencies = Latencies::default();
        offered.iter().for_each(|one| latencies.push(one.accepted_in));
        self.p50s.push(latencies.p50());
        self.all.append(latencies);
        self.lab.watched.settle();
    }
}

pub fn measure(setting: &Setting<'_>, report: &mut Report) {
    let runtime = setting.runtime;
    let mut none = Side::new(Lab::start(runtime, setting.dir, "publish-none"));
    let mut many = Side::new(Lab::start(runtime, setting.dir, "publish-many"));
    many.lab.script(runtime, HANDLER);
    let rules = (0..SUBSCRIPTIONS)
        .map(|at| (format!("s-{at}"), json!({ "id": format!("other-{at}"), "paid": true })));
    many.lab.subscribe(runtime, rules);
    for side in [&mut none, &mut many] {
        side.round(setting, Duration::from_millis(500));
        (side.p50s, side.all, side.cpu_micros) = Default::default();
    }
    // Which one begins changes from round to round, so that none is always behind the other's leavings.
    for round in 0..setting.rounds {
        let sides = if round % 2 == 0 { [&mut none, &mut many] } else { [&mut many, &mut none] };
        for side in sides {
            side.round(setting, setting.span);
        }
    }
    let matched = runtime.block_on(many.lab.publisher.metrics());
    assert_eq!(matched.events_matched_total, 0, "nothing matches");
    assert!(matched.events_filtered_total > 0, "everything was looked at");
    let ratios: Vec<f64> = many.p50s.iter().zip(&none.p50s).map(|(many, none)| many / none).collect();
    let figure = Figure::new(
        "publish",
        format!("accepted, {PER_SECOND} events/s, {SUBSCRIPTIONS} subscriptions and none matches, p50"),
        median(&many.p50s),
        "µs",
    );
    report.push(
        figure
            .with_ratio("no subscriptions", median(&none.p50s), median(&ratios))
            .goal(Goal::AtMost(1.1))
            .note(format!(
                "p99 {:.0} and {:.0} µs; CPU per event {:.0} and {:.0} µs",
                many.all.p99(),
                none.all.p99(),
                median(&many.cpu_micros),
                median(&none.cpu_micros)
            )),
    );
    for side in [none, many] {
        side.lab.end(runtime);
    }
}
