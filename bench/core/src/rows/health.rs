//! A check of health over very many live tasks, and what others notice of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_embedded::Embedded;
use tidemill_engine::Engine;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{Command, Forget};
use tidemill_engine::engine::EngineConfig;

use super::Setting;
use crate::figure::{Figure, Report};
use crate::latency::{Latencies, median};
use crate::machine::Watch;
use crate::store::TestStore;
use crate::work::{self, Hand, claimed};
use crate::workload::Workload;

/// Tasks that are live, and those of them that run.
const LIVE: usize = 100_000;
const RUNNING: usize = 10_000;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let rounds = if setting.quick { 3 } else { 9 };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "health");
    let tenant = workload.tenant(0);
    let tasks = work::tasks(LIVE, |_| Vec::new());
    let command = work::submission(tenant, workload.app(0), &tasks);
    store.backend.execute_blocking(&[command]).expect("the store works");
    let hand = Hand::new(0, 250);
    for _ in 0..RUNNING / 250 {
        let tasks = claimed(store.backend.execute_blocking(&[hand.claim()]).expect("the store works"));
        assert_eq!(tasks.len(), 250);
    }
    store.settle();
    let engine: Engine<Embedded> =
        Engine::new(Arc::clone(&store.backend), SystemClock::start(), 7, EngineConfig::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let watch = Watch::start();
        let found = runtime.block_on(engine.check_health(tenant)).expect("the store works");
        let spent = watch.stop();
        assert_eq!(found.summary.total_processing as usize, RUNNING);
        wall.push(1e3 / spent.rate(1));
        cpu.push(spent.micros_each(1) / 1e3);
    }
    let (mut alone, mut beside) = (Latencies::default(), Latencies::default());
    looking(&store, &mut alone, || std::thread::sleep(std::time::Duration::from_millis(300)));
    looking(&store, &mut beside, || {
        for _ in 0..rounds {
            runtime.block_on(engine.check_health(tenant)).expect("the store works");
        }
    });
    let what = format!("check of {LIVE} live tasks, {RUNNING} of them running");
    let note = format!("CPU {:.1} ms", median(&cpu));
    report.push(Figure::new("health", what, median(&wall), "ms").note(note));
    let figure = Figure::new("health", "a command beside checks, p99", beside.p99(), "µs");
    let note = format!(
        "longest {:.1} ms, without checks {:.1} ms",
        beside.quantile(1.0) / 1e3,
        alone.quantile(1.0) / 1e3
    );
    report.push(figure.beside("without checks", alone.p99()).note(note));
    drop(engine);
    store.discard();
}

/// Times commands that change nothing while `work` goes on.
fn looking(store: &TestStore, latencies: &mut Latencies, work: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looked = scope.spawn(|| {
            let mut latencies = Latencies::default();
            while !is_over.load(Ordering::Relaxed) {
                let nothing = Command::Forget(Forget { keys: Vec::new() });
                latencies.time(|| store.backend.execute_blocking(&[nothing])).expect("the store works");
            }
            latencies
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        latencies.append(looked.join().expect("it looks"));
    });
}
