//! Executions per second through the pool of hosts beside the bare engine: a fresh runtime, cached bytecode, the same
//! handler and the same event, in the process itself. Both take turns in short rounds.
//!
//!     cargo run --release --manifest-path bench/script/Cargo.toml -- [--quick] [--rounds N] [--millis N] [--concurrency N]

mod bare;
mod pooled;

use std::process::ExitCode;
use std::time::{Duration, Instant};

const HANDLER: &str = include_str!("handler.js");
const EVENT: &str = include_str!("event.json");

/// What one round gave.
#[derive(Debug, Clone, Copy)]
struct Round {
    per_second: f64,
    /// Of all processes that took part.
    cpu_micros: f64,
}

impl Round {
    fn of(executions: u64, wall: Duration, cpu: Duration) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "some millions")]
        let executions = executions.max(1) as f64;
        Self { per_second: executions / wall.as_secs_f64(), cpu_micros: cpu.as_secs_f64() * 1e6 / executions }
    }
}

struct Options {
    rounds: usize,
    span: Duration,
    concurrency: usize,
}

fn options() -> Result<Options, String> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut options = Options { rounds: 9, span: Duration::from_secs(2), concurrency: 2 * cores };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = |name: &str| {
            let text = arguments.next().ok_or_else(|| format!("{name} needs a number"))?;
            text.parse::<usize>().map_err(|_| format!("{name}: {text} is no number"))
        };
        match argument.as_str() {
            "--quick" => (options.rounds, options.span) = (3, Duration::from_millis(500)),
            "--rounds" => options.rounds = number("--rounds")?.max(1),
            "--millis" => options.span = Duration::from_millis(number("--millis")?.max(1) as u64),
            "--concurrency" => options.concurrency = number("--concurrency")?.max(1),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("script-host") {
        return tidemill_script::host_main();
    }
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut pool = pooled::Bench::start(&runtime, options.concurrency);
    let bytecode = bare::compile();
    assert_eq!(bare::once(&bytecode), pool.once(&runtime), "both must do the same");

    let (mut bare_rounds, mut pool_rounds, mut single_rounds) = (Vec::new(), Vec::new(), Vec::new());
    // The first of each warms up.
    for round in 0..=options.rounds {
        let bare = bare::round(&bytecode, threads, options.span);
        let pooled = pool.round(&runtime, options.concurrency, options.span);
        let single = pool.latency(&runtime, options.span / 4);
        if round > 0 {
            bare_rounds.push(bare);
            pool_rounds.push(pooled);
            single_rounds.push(single);
            println!(
                "round {round}: bare {:.0}/s {:.1} µs CPU, pool {:.0}/s {:.1} µs CPU, one at a time {:.1} µs",
                bare.per_second, bare.cpu_micros, pooled.per_second, pooled.cpu_micros, single
            );
        }
    }
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let ratio = |of: fn(&Round) -> f64| {
        median(pool_rounds.iter().zip(&bare_rounds).map(|(pooled, bare)| of(pooled) / of(bare)).collect())
    };
    println!("\n| what | bare engine, {threads} threads | pool, {} at a time | ratio |", options.concurrency);
    println!("| --- | --- | --- | --- |");
    let throughput: fn(&Round) -> f64 = |round| round.per_second;
    let cpu: fn(&Round) -> f64 = |round| round.cpu_micros;
    for (name, of) in [("executions/s", throughput), ("CPU per execution, µs", cpu)] {
        println!(
            "| {name} | {:.1} | {:.1} | {:.2} |",
            median(bare_rounds.iter().map(of).collect()),
            median(pool_rounds.iter().map(of).collect()),
            ratio(of)
        );
    }
    println!("| one at a time, p50 µs | | {:.1} | |", median(single_rounds));
    println!(
        "| a host from nothing to its first result, p50 ms | | {:.2} | |",
        median(pool.starts(&runtime, 15))
    );
    pool.end(&runtime);
    let met = ratio(throughput) >= 0.75;
    println!("\ngoal: at least 0.75 of the bare engine: {}", if met { "met" } else { "not met" });
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs `work` on so many threads until the span is over: how often, and how long it took.
fn on_threads(threads: usize, span: Duration, work: impl Fn() + Sync) -> (u64, Duration) {
    let started = Instant::now();
    let total = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while started.elapsed() < span {
                        work();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().expect("no panic")).sum()
    });
    (total, started.elapsed())
}

/// CPU time of this process.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
