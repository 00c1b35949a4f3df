//! Measures scripts: through the pool of hosts beside the bare engine, and from an event to its durable result.
//!
//! Ratios count, not absolute figures: a row takes turns with its control in short rounds.

// The core bench's own modules, so that all print the same table. Each bench uses a part of them.
#[path = "../../core/src/counting_disk.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod counting_disk;
#[path = "../../core/src/figure.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod figure;
#[path = "../../core/src/latency.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod latency;
#[path = "../../core/src/machine.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod machine;
// What runs scripts in the binary, as it is there. It asks for three of the binary's settings.
#[path = "../../../crates/tidemill/src/script_pool.rs"]
mod script_pool;

mod bare;
mod config;
mod lab;
mod offered;
mod pooled;
mod round;
mod rows;
mod watched;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use figure::Report;
use machine::{Machine, Watch};
use rows::{Setting, durable, latency as delay, letters, pool, publish};

const HANDLER: &str = include_str!("handler.js");
const EVENT: &str = include_str!("event.json");
const USAGE: &str = "usage: tidemill-bench-script [all|pool|durable|latency|letters|publish]... [--quick] [--rounds N] \
     [--millis N] [--concurrency N] [--dir D] [--json FILE]";

type Row = (&'static str, fn(&Setting<'_>, &mut Report));

const ROWS: [Row; 5] = [
    ("pool", pool::measure),
    ("durable", durable::measure),
    ("latency", delay::measure),
    ("letters", letters::measure),
    ("publish", publish::measure),
];

struct Arguments {
    rows: Vec<String>,
    rounds: usize,
    span: Duration,
    concurrency: usize,
    dir: PathBuf,
    json: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let mut parsed = Arguments {
        rows: Vec::new(),
        rounds: 9,
        span: Duration::from_secs(2),
        concurrency: 2 * cores,
        dir: std::env::temp_dir().join(format!("tidemill-script-bench-{}", std::process::id())),
        json: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| {
            let number = text.parse::<usize>().ok().filter(|number| *number > 0);
            number.ok_or_else(|| format!("{argument}: {text} is no number above 0"))
        };
        match argument.as_str() {
            "--quick" => (parsed.rounds, parsed.span) = (3, Duration::from_millis(500)),
            "--rounds" => parsed.rounds = number(value()?)?,
            "--millis" => parsed.span = Duration::from_millis(number(value()?)? as u64),
            "--concurrency" => parsed.concurrency = number(value()?)?,
            "--dir" => parsed.dir = value()?.into(),
            "--json" => parsed.json = Some(value()?.into()),
            "all" => parsed.rows.extend(ROWS.iter().map(|(name, _)| (*name).to_owned())),
            name if ROWS.iter().any(|(row, _)| *row == name) => parsed.rows.push(argument),
            other => return Err(format!("unknown argument {other}\n{USAGE}")),
        }
    }
    if parsed.rows.is_empty() {
        parsed.rows = ROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("script-host") {
        return tidemill_script::host_main();
    }
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    // As many as a server has.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    std::fs::create_dir_all(&arguments.dir).expect("the directory can be used");
    let mut report =
        Report { machine: Machine::read(&arguments.dir), settings: Vec::new(), figures: Vec::new() };
    report.setting("rounds", arguments.rounds);
    report.setting("ms each", arguments.span.as_millis());
    let setting = Setting {
        runtime: &runtime,
        threads,
        concurrency: arguments.concurrency,
        rounds: arguments.rounds,
        span: arguments.span,
        dir: &arguments.dir,
    };
    for (name, measure) in ROWS {
        if arguments.rows.iter().any(|wanted| wanted == name) {
            eprintln!("{name}");
            let watch = Watch::start();
            let children = round::children_cpu();
            measure(&setting, &mut report);
            let hosts = round::children_cpu().saturating_sub(children).as_secs_f64();
            let spent = watch.stop();
            let others = spent.others - hosts / (spent.wall.as_secs_f64() * threads as f64);
            report.setting(
                &format!("CPU that others took in {name}"),
                format!("{:.0} %", others.max(0.0) * 100.0),
            );
        }
    }
    let _ = std::fs::remove_dir_all(&arguments.dir);
    println!("{}", report.table());
    if let Some(file) = arguments.json {
        let text = serde_json::to_string_pretty(&report).expect("figures are JSON");
        std::fs::write(file, text).expect("the JSON file is written");
    }
    let met = report.figures.iter().all(|figure| figure.met != Some(false));
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
