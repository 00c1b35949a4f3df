//! Measures the core of Tidemill beside the bare limits of the same machine, in one run.
//!
//! Ratios count, not absolute figures: each row takes turns with its control on the same directory.

mod bare_log;
mod counting_disk;
mod figure;
mod latency;
mod loader;
mod machine;
mod peers;
mod rows;
mod sqlite;
mod store;
mod work;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use figure::Report;
use machine::Machine;
use rows::{Setting, commit, cycles, events, health, hot, jobs, memory, reads, reopen};

const USAGE: &str = "usage: tidemill-bench [all|events|commit|reads|cycles|jobs|health|reopen|memory]... [--dir D] [--quick] [--json FILE]";

/// Not a row: `bench/peers/run` starts it and asks for one shape at a time.
const PEERS_SHAPES: &str = "peers-shapes";

type Row = (&'static str, fn(Setting<'_>, &mut Report));

const ROWS: [Row; 8] = [
    ("events", events::measure),
    ("commit", commit::measure),
    ("reads", reads::measure),
    ("cycles", cycles::measure),
    ("jobs", jobs::measure),
    ("health", health::measure),
    ("reopen", reopen::measure),
    ("memory", memory::measure),
];

struct Arguments {
    rows: Vec<String>,
    dir: PathBuf,
    quick: bool,
    json: Option<PathBuf>,
    /// For children only.
    events: u64,
    /// For the shapes that peers are compared by: how many tasks run at a time.
    slots: usize,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        rows: Vec::new(),
        dir: std::env::temp_dir().join(format!("tidemill-bench-{}", std::process::id())),
        quick: false,
        json: None,
        events: 0,
        slots: 64,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--dir" => parsed.dir = value()?.into(),
            "--json" => parsed.json = Some(value()?.into()),
            "--events" => parsed.events = value()?.parse().map_err(|_| "--events needs a number")?,
            "--slots" => parsed.slots = value()?.parse().map_err(|_| "--slots needs a number")?,
            "--quick" => parsed.quick = true,
            row if row == "all"
                || row == PEERS_SHAPES
                || row.starts_with("child-")
                || ROWS.iter().any(|(name, _)| *name == row) =>
            {
                parsed.rows.push(argument);
            }
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    let Arguments { rows, dir, quick, json, events, slots } = arguments;
    match rows.first().map(String::as_str) {
        Some(PEERS_SHAPES) => peers::serve(&dir, slots),
        Some("child-load") => reopen::child_load(&dir, events),
        Some("child-open") => reopen::child_open(&dir),
        Some("child-memory") => memory::child_memory(&dir, events),
        Some("child-hot-events") => hot::events(&dir, events),
        Some("child-hot-cycles") => hot::cycles(&dir, events),
        Some("child-events") => events::profile(&dir, events),
        Some("child-cycles") => cycles::profile(&dir, events, false),
        Some("child-cycles-async") => cycles::profile(&dir, events, true),
        Some("child-rest") => memory::child_rest(&dir),
        _ => measure(&rows, &dir, quick, json),
    }
    ExitCode::SUCCESS
}

fn measure(rows: &[String], dir: &std::path::Path, quick: bool, json: Option<PathBuf>) {
    let existed = dir.exists();
    std::fs::create_dir_all(dir).expect("the directory can be made");
    let mut report = Report { machine: Machine::read(dir), settings: Vec::new(), figures: Vec::new() };
    report.setting("directory", format!("{}{}", dir.display(), if quick { ", quick run" } else { "" }));
    let all = rows.is_empty() || rows.iter().any(|row| row == "all");
    for (name, run) in ROWS {
        if all || rows.iter().any(|row| row == name) {
            eprintln!("{name}");
            run(Setting { dir, quick }, &mut report);
        }
    }
    println!("{}", report.table());
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&report).expect("figures are JSON"))
            .expect("JSON is written");
    }
    if !existed {
        let _ = std::fs::remove_dir_all(dir);
    }
}
