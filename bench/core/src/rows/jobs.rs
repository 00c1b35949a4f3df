//! What a completion costs in jobs of any size and shape, and the workloads that peers are compared by.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill_engine::Engine;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::EngineConfig;
use tidemill_model::TaskSpec;

use super::Setting;
use super::cycles::{drain_async, work_async};
use crate::bare_log::{preallocated, write_padded};
use crate::figure::{Figure, Goal, Report};
use crate::latency::{Latencies, median};
use crate::machine::{Spent, Watch};
use crate::store::TestStore;
use crate::work::{self, Gate, Hand, claimed};
use crate::workload::Workload;

const WORKERS: usize = 64;
/// The hops of a chain.
const CHAIN: usize = 100;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let sizes: &[usize] = &[100, 1_000, 10_000, 100_000];
    for shape in [Shape::FanOut, Shape::Wide] {
        flatness(setting, shape, sizes, report);
    }
    chain_prefix(setting, sizes, report);
    chain(setting, report);
    fan(setting, report);
    diamonds(setting, report);
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    /// One task, then all others.
    FanOut,
    /// Half of the tasks are roots, the others wait for two of them each.
    Wide,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::FanOut => "fan-out 1 → n",
            Self::Wide => "wide, two parents",
        }
    }

    fn tasks(self, count: usize) -> Vec<Arc<TaskSpec>> {
        let half = count / 2;
        work::tasks(count, |index| match self {
            Self::FanOut if index > 0 => vec![0],
            Self::Wide if index >= half => vec![index - half, (index + 1 - half) % half],
            _ => Vec::new(),
        })
    }
}

/// The same number of tasks in jobs of each size, so that only the size of the jobs differs. Sizes take turns.
fn flatness(setting: Setting<'_>, shape: Shape, sizes: &[usize], report: &mut Report) {
    let (rounds, total) = if setting.quick { (1, 100_000) } else { (3, 100_000) };
    let workload = Workload::new();
    let mut spent: Vec<Vec<Spent>> = vec![Vec::new(); sizes.len()];
    let mut submitted: Vec<Vec<Spent>> = vec![Vec::new(); sizes.len()];
    for _ in 0..rounds {
        for (place, size) in sizes.iter().enumerate() {
            let store = TestStore::fresh(setting.dir, "jobs");
            let tasks = shape.tasks(*size);
            let watch = Watch::start();
            for number in 0..(total / size) as u64 {
                let command = work::submission(workload.tenant(number), workload.app(number), &tasks);
                for answer in store.backend.execute_blocking(&[command]).expect("the store works") {
                    answer.expect("the job is taken");
                }
            }
            submitted[place].push(watch.stop());
            let watch = Watch::start();
            work::drain(&store.backend, WORKERS, total as u64);
            spent[place].push(watch.stop());
            store.discard();
        }
    }
    let count = total as u64;
    let cpu = |spent: &[Spent]| median(&spent.iter().map(|s| s.micros_each(count)).collect::<Vec<_>>());
    let wall = |spent: &[Spent]| median(&spent.iter().map(|s| 1e6 / s.rate(count)).collect::<Vec<_>>());
    for (place, size) in sizes.iter().enumerate() {
        let what = format!("{}: CPU per completion, job of {size}", shape.name());
        let figure = Figure::new("jobs", what, cpu(&spent[place]), "µs");
        let figure = if place == 0 {
            figure
        } else {
            figure.beside("job of 100", cpu(&spent[0])).goal(Goal::AtMost(1.2))
        };
        let others = median(&spent[place].iter().map(|s| s.others * 100.0).collect::<Vec<_>>());
        report.push(figure.note(format!(
            "wall {:.1} µs; submit {:.1} µs of CPU per task; others {others:.0} %",
            wall(&spent[place]),
            cpu(&submitted[place])
        )));
    }
}

/// A chain of 100 at the head of a job of any size: each completion has one child, and the rest waits. Sizes take turns.
fn chain_prefix(setting: Setting<'_>, sizes: &[usize], report: &mut Report) {
    let workload = Workload::new();
    let repeats = if setting.quick { 4 } else { 12 };
    let stores: Vec<TestStore> =
        sizes.iter().map(|size| TestStore::fresh(setting.dir, &format!("jobs-{size}"))).collect();
    let mut hops = vec![Latencies::default(); sizes.len()];
    let mut cpu = vec![Vec::new(); sizes.len()];
    for repeat in 0..repeats {
        for (place, size) in sizes.iter().enumerate() {
            let tasks = work::tasks(*size + CHAIN, |index| match index {
                0 => Vec::new(),
                index if index < CHAIN => vec![index - 1],
                _ => vec![CHAIN - 1],
            });
            let command = work::submission(workload.tenant(repeat), workload.app(repeat), &tasks);
            stores[place].backend.execute_blocking(&[command]).expect("the store works");
            stores[place].settle();
            let watch = Watch::start();
            // The last hop would dispatch the rest, so it is left out.
            run_chain(&stores[place], CHAIN - 1, &mut hops[place]);
            cpu[place].push(watch.stop().micros_each(CHAIN as u64 - 1));
        }
    }
    for (place, size) in sizes.iter().enumerate() {
        let what = format!("chain of 100 in a job of {}: CPU per hop", size + CHAIN);
        let figure = Figure::new("jobs", what, median(&cpu[place]), "µs");
        let figure = figure.note(format!("wall p50 {:.0} µs", hops[place].p50()));
        report.push(if place == 0 {
            figure
        } else {
            let pairs: Vec<f64> = cpu[place].iter().zip(&cpu[0]).map(|(one, first)| one / first).collect();
            figure.with_ratio("job of 200", median(&cpu[0]), median(&pairs)).goal(Goal::AtMost(1.2))
        });
    }
    stores.into_iter().for_each(TestStore::discard);
}

/// Runs `hops` tasks one after the other, on one blocking worker; each must make the next one ready.
fn run_chain(store: &TestStore, hops: usize, latencies: &mut Latencies) {
    let hand = Hand::new(0, 1);
    let mut commands = vec![hand.claim()];
    for _ in 0..=hops {
        let answers = latencies.time(|| store.backend.execute_blocking(&commands).expect("the store works"));
        let tasks = claimed(answers);
        match tasks.first() {
            Some(task) => commands = vec![hand.finish(task), hand.claim()],
            None => return,
        }
    }
    // The task that is held now stays so; its lease keeps it from the next chain.
}

/// W2: a chain of 100, per hop, beside a bare fdatasync in turns.
fn chain(setting: Setting<'_>, report: &mut Report) {
    let repeats = if setting.quick { 5 } else { 15 };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "jobs");
    let path = setting.dir.join("bare.log");
    let file = preallocated(&path, 64 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tasks = work::tasks(CHAIN, |index| index.checked_sub(1).into_iter().collect());
    let (mut blocking, mut bare, mut walls) = (Latencies::default(), Latencies::default(), Vec::new());
    let (mut hops, mut syncs, mut offset) = (0, 0, 0);
    for repeat in 0..repeats {
        let submit = || {
            let command = work::submission(workload.tenant(repeat), workload.app(repeat), &tasks);
            store.backend.execute_blocking(&[command]).expect("the store works");
        };
        submit();
        let before = store.syncs();
        run_chain(&store, CHAIN, &mut blocking);
        syncs += store.syncs() - before;
        hops += CHAIN;
        for _ in 0..CHAIN {
            let mut bytes = vec![b'x'; 1_500];
            bare.time(|| {
                write_padded(&file, &mut bytes, &mut offset);
                file.sync_data().unwrap();
            });
        }
        submit();
        let engine =
            Engine::new(Arc::clone(&store.backend), SystemClock::start(), 98, EngineConfig::default());
        let watch = Watch::start();
        runtime.block_on(work_async(engine, 0, Gate::new(CHAIN as u64)));
        walls.push(watch.stop().wall.as_secs_f64() * 1e6 / CHAIN as f64);
    }
    let commit = bare.p50();
    let steady = bare.is_steady();
    let doubt = if steady { "" } else { "; not judged: bare commits were not steady" };
    let groups = syncs as f64 / hops as f64;
    report.push(
        Figure::new(
            "jobs",
            "W2 chain of 100, per hop, blocking, p50 above one bare commit",
            (blocking.p50() - commit) / 1e3,
            "ms",
        )
        .note(format!(
            "hop {:.0} µs, bare commit {commit:.0} µs, {groups:.2} group commits per hop{doubt}",
            blocking.p50()
        ))
        .goal_if(steady, Goal::AtMost(0.3)),
    );
    report.push(
        Figure::new(
            "jobs",
            "W2 chain of 100, per hop, async engine, mean above one bare commit",
            (median(&walls) - commit) / 1e3,
            "ms",
        )
        .note(format!("hop {:.0} µs, parent's output read{doubt}", median(&walls)))
        .goal_if(steady, Goal::AtMost(0.3)),
    );
    store.discard();
    let _ = std::fs::remove_file(path);
}

/// W3: 1 → 1,000 → 1.
fn fan(setting: Setting<'_>, report: &mut Report) {
    let repeats = if setting.quick { 3 } else { 9 };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "jobs");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks = work::tasks(1_002, |index| match index {
        0 => Vec::new(),
        1_001 => (1..1_001).collect(),
        _ => vec![0],
    });
    let (mut blocking, mut many) = (Vec::new(), Vec::new());
    for repeat in 0..repeats {
        let command = || work::submission(workload.tenant(repeat), workload.app(repeat), &tasks);
        let watch = Watch::start();
        store.backend.execute_blocking(&[command()]).expect("the store works");
        work::drain(&store.backend, WORKERS, 1_002);
        blocking.push(watch.stop().wall.as_secs_f64() * 1e3);
        let watch = Watch::start();
        store.backend.execute_blocking(&[command()]).expect("the store works");
        runtime.block_on(drain_async(&store, 1_002));
        many.push(watch.stop().wall.as_secs_f64() * 1e3);
    }
    let note = "submit to completed; best durable peer: BullMQ 440 ms, so accept ≤ 147, moonshot ≤ 55";
    report.push(
        Figure::new("jobs", "W3 1 → 1,000 → 1, blocking", median(&blocking), "ms")
            .goal(Goal::AtMost(147.0))
            .note(note),
    );
    report.push(
        Figure::new("jobs", "W3 1 → 1,000 → 1, async engine", median(&many), "ms").goal(Goal::AtMost(147.0)),
    );
    store.discard();
}

/// W4: 500 diamond jobs of 5 tasks.
fn diamonds(setting: Setting<'_>, report: &mut Report) {
    const JOBS: u64 = 500;
    let repeats = if setting.quick { 2 } else { 6 };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "jobs");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let tasks = work::tasks(5, |index| match index {
        0 => Vec::new(),
        4 => vec![1, 2, 3],
        _ => vec![0],
    });
    let submit = || {
        // Eight clients, one job at a time each.
        std::thread::scope(|scope| {
            for client in 0..8 {
                let (workload, store, tasks) = (&workload, &store, &tasks);
                scope.spawn(move || {
                    for number in (client..JOBS).step_by(8) {
                        let command = work::submission(workload.tenant(number), workload.app(number), tasks);
                        store.backend.execute_blocking(&[command]).expect("the store works");
                    }
                });
            }
        });
    };
    let (mut blocking, mut many) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let watch = Watch::start();
        submit();
        work::drain(&store.backend, WORKERS, JOBS * 5);
        blocking.push(watch.stop());
        let watch = Watch::start();
        submit();
        runtime.block_on(drain_async(&store, JOBS * 5));
        many.push(watch.stop());
    }
    let rate = |spent: &[Spent]| median(&spent.iter().map(|s| s.rate(JOBS)).collect::<Vec<_>>());
    let cpu = |spent: &[Spent]| median(&spent.iter().map(|s| s.micros_each(JOBS)).collect::<Vec<_>>());
    let note = |spent: &[Spent]| {
        format!(
            "{:.0} µs of CPU per job; best durable peer: Restate in-handler 675/s, BullMQ 504/s",
            cpu(spent)
        )
    };
    report.push(
        Figure::new("jobs", "W4 500 diamonds of 5, blocking", rate(&blocking), "jobs/s")
            .goal(Goal::AtLeast(3.0 * 675.0))
            .note(note(&blocking)),
    );
    report.push(
        Figure::new("jobs", "W4 500 diamonds of 5, async engine", rate(&many), "jobs/s")
            .goal(Goal::AtLeast(3.0 * 675.0))
            .note(note(&many)),
    );
    let groups = store.counts.syncs.load(Ordering::Relaxed);
    report.setting("W4 group commits per job", format!("{:.2}", groups as f64 / (JOBS * 2 * repeats) as f64));
    store.discard();
}
