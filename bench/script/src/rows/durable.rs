//! From event to durable result, as fast as it goes, beside the bare engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidemill_engine::execution::ExecutionStatus;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::lab::Lab;
use crate::latency::median;
use crate::round::{Round, all_cpu};
use crate::{HANDLER, bare};

/// Each publishes one event at a time.
const PRODUCERS: usize = 32;
/// How many events may have executions that have not ended; the publisher waits beyond this.
const AHEAD_MAX: usize = 1_000;

pub fn measure(setting: &Setting<'_>, report: &mut Report) {
    let Setting { runtime, threads, rounds, span, dir, .. } = *setting;
    let lab = Lab::start(runtime, dir, "durable");
    lab.script(runtime, HANDLER);
    // One that wants it, among others of the type that do not.
    let wanted = ("wanted".to_owned(), json!({ "customer.country": "DE", "total": { "gte": 100 } }));
    let others = (0..100).map(|at| (format!("other-{at}"), json!({ "id": format!("ord-{at}") })));
    lab.subscribe(runtime, others.chain([wanted]).collect::<Vec<(String, Value)>>().into_iter());
    let bytecode = bare::compile();
    let (mut bares, mut ours, mut syncs) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..=rounds {
        let bare = bare::round(&bytecode, threads, span);
        let (round, synced) = round(setting, &lab, span);
        if number > 0 {
            bares.push(bare);
            ours.push(round);
            syncs.push(synced);
        }
    }
    lab.end(runtime);
    let rate: fn(&Round) -> f64 = |round| round.per_second;
    let cpu: fn(&Round) -> f64 = |round| round.cpu_micros;
    let values = |rounds: &[Round], of: fn(&Round) -> f64| median(&rounds.iter().map(of).collect::<Vec<_>>());
    let ratio = |of: fn(&Round) -> f64| {
        median(&ours.iter().zip(&bares).map(|(one, bare)| of(one) / of(bare)).collect::<Vec<_>>())
    };
    let control = format!("bare engine, {threads} threads");
    report.push(
        Figure::new("durable", "executions, publish to durable success", values(&ours, rate), "/s")
            .with_ratio(control.clone(), values(&bares, rate), ratio(rate))
            .goal(Goal::AtLeast(0.5))
            .note(format!("{:.2} syncs each, {PRODUCERS} producers", median(&syncs))),
    );
    report.push(
        Figure::new("durable", "CPU per execution, publishing included", values(&ours, cpu), "µs")
            .with_ratio(control, values(&bares, cpu), ratio(cpu)),
    );
}

/// Publishes for a while and waits until all that matched is durable: executions, and syncs for each.
fn round(setting: &Setting<'_>, lab: &Lab, span: Duration) -> (Round, f64) {
    let runtime = setting.runtime;
    let (started, cpu, syncs) = (Instant::now(), all_cpu(), lab.syncs());
    let ahead = Arc::new(Semaphore::new(AHEAD_MAX));
    let mut producers = JoinSet::new();
    for _ in 0..PRODUCERS {
        let (publisher, ahead) = (lab.publisher.clone(), Arc::clone(&ahead));
        producers.spawn_on(
            async move {
                let mut count = 0;
                while started.elapsed() < span {
                    ahead.acquire().await.expect("open").forget();
                    publisher.publish().await;
                    count += 1;
                }
                count
            },
            runtime.handle(),
        );
    }
    let watched = Arc::clone(&lab.watched);
    // With each end there is room for one more.
    let room = runtime.spawn(async move {
        loop {
            watched.ended.acquire().await.expect("open").forget();
            ahead.add_permits(1);
        }
    });
    let published: u64 = runtime.block_on(producers.join_all()).into_iter().sum();
    room.abort();
    let _ = runtime.block_on(room);
    let mut ends = lab.watched.take_ends();
    while (ends.len() as u64) < published {
        runtime.block_on(async { lab.watched.ended.acquire().await.expect("open").forget() });
        ends.extend(lab.watched.take_ends());
    }
    let wall = started.elapsed();
    let used = all_cpu().saturating_sub(cpu);
    assert!(ends.values().all(|end| end.status == ExecutionStatus::Success), "every script succeeds");
    let synced = (lab.syncs() - syncs) as f64 / published as f64;
    lab.watched.ended.forget_permits(usize::MAX >> 4);
    lab.runs();
    // What was put off is done before the control's turn, and counts.
    let before = all_cpu();
    lab.watched.settle();
    (Round::of(published, wall, used + all_cpu().saturating_sub(before)), synced)
}
