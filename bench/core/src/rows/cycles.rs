//! Claim and finish without a process: queue, lease and log.

use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::Engine;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{AttemptReport, Claimant, EngineConfig, WorkReport};
use tidemill_model::{Json, WorkerId};

use super::Setting;
use crate::bare_log::{BareLog, Wake};
use crate::figure::{Figure, Report};
use crate::latency::median;
use crate::machine::{Spent, Watch};
use crate::store::TestStore;
use crate::work::{self, Gate};
use crate::workload::Workload;

const WORKERS: usize = 64;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let (rounds, tasks) = if setting.quick { (3, 10_000) } else { (6, 20_000) };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "cycles");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let bare = BareLog::start(&setting.dir.join("bare.log"), 256 << 20, Wake::Each);
    let (mut blocking, mut many, mut single, mut bares) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut groups = (0, 0);
    for _ in 0..rounds {
        submit(&store, &workload, tasks);
        let syncs = store.syncs();
        blocking.push(timed(|| work::drain(&store.backend, WORKERS, tasks)));
        groups = (groups.0 + tasks, groups.1 + store.syncs() - syncs);
        store.settle();
        bares.push(bare_round(&bare, tasks));
        submit(&store, &workload, tasks);
        many.push(timed(|| runtime.block_on(drain_async(&store, tasks))));
        store.settle();
        submit(&store, &workload, tasks);
        single.push(timed(|| one.block_on(drain_async(&store, tasks))));
        store.settle();
    }
    let rate = |spent: &[Spent]| median(&spent.iter().map(|s| s.rate(tasks)).collect::<Vec<_>>());
    let cpu = |spent: &[Spent]| median(&spent.iter().map(|s| s.micros_each(tasks)).collect::<Vec<_>>());
    let others = median(&blocking.iter().map(|s| s.others * 100.0).collect::<Vec<_>>());
    report.push(
        Figure::new("cycles", "claim+finish, 64 blocking workers", rate(&blocking), "/s")
            .beside("bare log, one 1,1 kB append per cycle", rate(&bares))
            .note(format!(
                "groups of {:.0}; others took {others:.0} % of the CPU",
                groups.0 as f64 / groups.1 as f64
            )),
    );
    report.push(
        Figure::new("cycles", "CPU per task, blocking", cpu(&blocking), "µs").beside("bare log", cpu(&bares)),
    );
    for (what, spent) in [("tokio, 2 threads", &many), ("tokio, 1 thread", &single)] {
        let note = "through the engine, outputs of parents resolved";
        report.push(
            Figure::new("cycles", format!("claim+finish, 64 async workers, {what}"), rate(spent), "/s")
                .note(note),
        );
        report.push(Figure::new("cycles", format!("CPU per task, {what}"), cpu(spent), "µs"));
    }
    drop(bare);
    store.discard();
    let _ = std::fs::remove_file(setting.dir.join("bare.log"));
}

/// Only Tidemill, for a profiler to look at: blocking workers, or async ones.
pub fn profile(dir: &std::path::Path, rounds: u64, is_async: bool) {
    const TASKS: u64 = 20_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let workload = Workload::new();
    let store = TestStore::fresh(dir, "cycles");
    for _ in 0..rounds {
        submit(&store, &workload, TASKS);
        let syncs = store.syncs();
        let spent = timed(|| {
            if is_async {
                runtime.block_on(drain_async(&store, TASKS));
            } else {
                work::drain(&store.backend, WORKERS, TASKS);
            }
        });
        let group = TASKS as f64 / (store.syncs() - syncs) as f64;
        eprintln!("{:.0}/s {:.1} µs, groups of {group:.0}", spent.rate(TASKS), spent.micros_each(TASKS));
    }
    store.discard();
}

fn submit(store: &TestStore, workload: &Workload, tasks: u64) {
    let specs = work::tasks(tasks as usize, |_| Vec::new());
    let command = work::submission(workload.tenant(0), workload.app(0), &specs);
    for answer in store.backend.execute_blocking(&[command]).expect("the store works") {
        answer.expect("the job is taken");
    }
    std::thread::sleep(Duration::from_millis(50));
}

fn timed(work: impl FnOnce()) -> Spent {
    let watch = Watch::start();
    work();
    watch.stop()
}

/// As many appends by as many threads: what waking and syncing alone cost.
fn bare_round(bare: &BareLog, tasks: u64) -> Spent {
    let payload = vec![b'x'; 1_100];
    timed(|| {
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| (0..tasks / WORKERS as u64).for_each(|_| bare.append(&payload)));
            }
        });
    })
}

/// Like `work::drain`, with async workers on the engine.
pub async fn drain_async(store: &TestStore, total: u64) {
    let engine = Engine::new(Arc::clone(&store.backend), SystemClock::start(), 99, EngineConfig::default());
    let gate = Gate::new(total);
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| tokio::spawn(work_async(engine.clone(), number, Arc::clone(&gate))))
        .collect();
    for worker in workers {
        worker.await.expect("no worker panics");
    }
}

pub async fn work_async(engine: Engine<tidemill_embedded::Embedded>, number: usize, gate: Arc<Gate>) {
    let worker = WorkerId::new(format!("async-{number}")).unwrap();
    let request = || Claimant::in_process(worker.clone(), 1, 1);
    let mut task = None;
    loop {
        let claimed = match task.take() {
            None => engine.claim(request()).await.expect("the store works"),
            Some(assignment) => {
                let work = engine.work_of(&assignment).await.expect("inputs are there");
                std::hint::black_box(work);
                let report = WorkReport::completed(Json::empty_object(), 1);
                let finish = AttemptReport::of(&assignment, worker.clone(), report);
                let (finished, claimed) =
                    engine.finish_and_claim(finish, request()).await.expect("the store works");
                finished.expect("no report is refused");
                gate.count();
                claimed
            }
        };
        task = claimed.tasks.into_iter().next();
        if task.is_none() {
            if gate.is_open() {
                return;
            }
            gate.or(engine.work_arrived(None)).await;
        }
    }
}
