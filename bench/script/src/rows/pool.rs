//! The pool of hosts beside the bare engine.

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::latency::median;
use crate::round::Round;
use crate::{bare, pooled};

pub fn measure(setting: &Setting<'_>, report: &mut Report) {
    let Setting { runtime, threads, concurrency, rounds, span, .. } = *setting;
    let mut pool = pooled::Bench::start(runtime, concurrency);
    let bytecode = bare::compile();
    assert_eq!(bare::once(&bytecode), pool.once(runtime), "both must do the same");
    let (mut bares, mut pools, mut singles) = (Vec::new(), Vec::new(), Vec::new());
    // The first of each warms up.
    for round in 0..=rounds {
        let bare = bare::round(&bytecode, threads, span);
        let pooled = pool.round(runtime, concurrency, span);
        let single = pool.latency(runtime, span / 4);
        if round > 0 {
            bares.push(bare);
            pools.push(pooled);
            singles.push(single);
        }
    }
    let figures: [(&str, &str, fn(&Round) -> f64); 2] = [
        ("executions", "/s", |round| round.per_second),
        ("CPU per execution", "µs", |round| round.cpu_micros),
    ];
    for (what, unit, of) in figures {
        let values = |rounds: &[Round]| median(&rounds.iter().map(of).collect::<Vec<_>>());
        let ratios: Vec<f64> = pools.iter().zip(&bares).map(|(one, bare)| of(one) / of(bare)).collect();
        let figure = Figure::new("pool", format!("{what}, {concurrency} at a time"), values(&pools), unit)
            .with_ratio(format!("bare engine, {threads} threads"), values(&bares), median(&ratios));
        report.push(if unit == "/s" { figure.goal(Goal::AtLeast(0.75)) } else { figure });
    }
    report.push(Figure::new("pool", "one at a time, p50", median(&singles), "µs"));
    let starts = median(&pool.starts(runtime, 15));
    report.push(Figure::new("pool", "a host from nothing to its first result, p50", starts, "ms"));
    pool.end(runtime);
}
