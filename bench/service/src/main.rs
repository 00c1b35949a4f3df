//! Measures the `tidemill` binary from outside: what a command costs, how fast requests are answered, how it starts and
//! how it rests.
//!
//! Ratios count, not absolute figures: a row takes turns with its bare control on the same disk.

// The core bench's own modules, so that both print the same table. Each bench uses a part of them.
#[path = "../../core/src/bare_log.rs"]
#[allow(dead_code, reason = "only the preallocated file is needed here")]
mod bare_log;
#[path = "../../core/src/figure.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod figure;
#[path = "../../core/src/latency.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod latency;
#[path = "../../core/src/machine.rs"]
#[allow(dead_code, reason = "shared with the core bench")]
mod machine;

mod http;
mod process;
mod rows;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;

use figure::Report;
use machine::Machine;
use rows::{Setting, command, idle, requests, start};

const USAGE: &str =
    "usage: bench/service/run [all|command|requests|start|idle]... [--dir D] [--quick] [--json FILE]";

type Row = (&'static str, fn(Setting<'_>, &mut Report));

const ROWS: [Row; 4] = [
    ("start", start::measure),
    ("idle", idle::measure),
    ("requests", requests::measure),
    ("command", command::measure),
];

struct Arguments {
    rows: Vec<String>,
    binary: PathBuf,
    dir: PathBuf,
    quick: bool,
    json: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        rows: Vec::new(),
        binary: PathBuf::new(),
        dir: std::env::temp_dir().join(format!("tidemill-service-bench-{}", std::process::id())),
        quick: false,
        json: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let mut value = || given.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--binary" => parsed.binary = value()?.into(),
            "--dir" => parsed.dir = value()?.into(),
            "--json" => parsed.json = Some(value()?.into()),
            "--quick" => parsed.quick = true,
            row if row == "all" || ROWS.iter().any(|(name, _)| *name == row) => parsed.rows.push(argument),
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
    let Arguments { rows, binary, dir, quick, json } = arguments;
    if !server::has_command(&binary, "serve") {
        eprintln!("nothing measured: {} has no command `serve` yet", binary.display());
        return ExitCode::from(2);
    }
    let existed = dir.exists();
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    let mut report = Report { machine: Machine::read(&dir), settings: Vec::new(), figures: Vec::new() };
    report.setting("directory", format!("{}{}", dir.display(), if quick { ", quick run" } else { "" }));
    report.setting("binary", server::version(&binary));
    let all = rows.is_empty() || rows.iter().any(|row| row == "all");
    for (name, run) in ROWS {
        if all || rows.iter().any(|row| row == name) {
            eprintln!("{name}");
            run(Setting { binary: &binary, dir: &dir, quick }, &mut report);
        }
    }
    println!("{}", report.table());
    if let Some(path) = json {
        std::fs::write(&path, serde_json::to_string_pretty(&report).expect("figures are JSON"))
            .expect("JSON is written");
    }
    if !existed {
        let _ = std::fs::remove_dir_all(&dir);
    }
    ExitCode::SUCCESS
}
