//! `tidemill-sim --seeds N`: runs seeds until one breaks a promise.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use tidemill_sim::options::Options;
use tidemill_sim::run::{FailedRun, RunPlan, run};
use tidemill_sim::seed_list;
use tidemill_sim::world::RunTally;

/// A sixth of a run with the system's allocator is spent in it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", Options::usage());
            return ExitCode::from(2);
        }
    };
    // A failure inside a run is reported with the seed and the steps that led to it.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(path) = &options.list {
        return run_list(path, &options);
    }
    let sum = Mutex::new(RunTally::default());
    let began = Instant::now();
    for plan in options.plans() {
        let Err(failure) = run_all(&plan, &options, &sum, began) else { continue };
        print_failure(&failure, &plan, &options);
        return ExitCode::FAILURE;
    }
    let sum = sum.into_inner().unwrap_or_default();
    eprintln!("every promise held for {} seeds: {}", options.seeds, describe(&sum, began));
    ExitCode::SUCCESS
}

/// Runs the seeds that a file names.
fn run_list(path: &str, options: &Options) -> ExitCode {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
    let list = match text.and_then(|text| seed_list::parse(&text)) {
        Ok(list) => list,
        Err(problem) => {
            eprintln!("{path}: {problem}");
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let mut sum = RunTally::default();
    for listed in &list {
        let plan = options.plan(listed.kind);
        match run(listed.seed, &plan) {
            Ok(tally) => sum.add(&tally),
            Err(failure) => {
                print_failure(&failure, &plan, options);
                return ExitCode::FAILURE;
            }
        }
    }
    eprintln!("every promise held for {} listed seeds: {}", list.len(), describe(&sum, began));
    ExitCode::SUCCESS
}

/// Runs all seeds of a plan, several at a time. The first failure ends it.
fn run_all(
    plan: &RunPlan,
    options: &Options,
    sum: &Mutex<RunTally>,
    began: Instant,
) -> Result<(), FailedRun> {
    let next = AtomicU64::new(options.start);
    let end = options.start + options.seeds;
    let stop = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            match run(seed, plan) {
                Ok(tally) => {
                    let mut sum = sum.lock().expect("nobody panics while adding");
                    sum.add(&tally);
                    if (seed + 1 - options.start).is_multiple_of(options.progress_every()) {
                        eprintln!("{} seed {seed}: {}", plan.kind.as_str(), describe(&sum, began));
                    }
                }
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    failed.lock().expect("nobody panics while noting").get_or_insert(failure);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(work);
        }
    });
    failed.into_inner().expect("nobody panics while noting").map_or(Ok(()), Err)
}

fn describe(sum: &RunTally, began: Instant) -> String {
    format!(
        "{} commands, {} events, {} restarts, {} disk operations in {:.1} s",
        sum.commands,
        sum.events,
        sum.restarts,
        sum.disk_operations,
        began.elapsed().as_secs_f64()
    )
}

fn print_failure(failure: &FailedRun, plan: &RunPlan, options: &Options) {
    for line in &failure.trace {
        eprintln!("{line}");
    }
    eprintln!("\nseed {} on the {} backend broke a promise", failure.seed, plan.kind.as_str());
    eprintln!("  {}", failure.violation);
    eprintln!("again: {}", options.replay(failure.seed, plan.kind));
}
