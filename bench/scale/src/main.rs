//! What a stage on AWS can carry and what it costs: tables for `docs/explanation/scale.md`.
//!
//!     tidemill-scale            prints the tables
//!     tidemill-scale --check F  says whether the tables in F are these

mod contention;
mod format;
mod limits;
mod prices;
mod shape;

use std::fmt::Write as _;
use std::process::ExitCode;

use contention::{GREEDY, POLITE, Race};
use format::{round, thousands};

/// Over how many partitions the events of one key would be spread.
const SHARDS: f64 = 16.0;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let tables = [limit_table(), cost_table(), log_table()];
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            println!("{}", tables.join("\n"));
            ExitCode::SUCCESS
        }
        ["--check", file] => check(file, &tables),
        _ => {
            eprintln!("usage: tidemill-scale [--check FILE]");
            ExitCode::from(2)
        }
    }
}

fn check(file: &str, tables: &[String]) -> ExitCode {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::from(2);
        }
    };
    let missing: Vec<&String> = tables.iter().filter(|table| !text.contains(table.as_str())).collect();
    if missing.is_empty() {
        return ExitCode::SUCCESS;
    }
    for table in missing {
        eprintln!("{file} does not have this table:\n{table}");
    }
    ExitCode::FAILURE
}

fn limit_table() -> String {
    let mut table =
        format!("| part | what | tasks a second | with {SHARDS} shards |\n| --- | --- | ---: | ---: |\n");
    for (limit, sharded) in limits::limits(1.0).iter().zip(limits::limits(SHARDS)) {
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} |",
            limit.part,
            limit.what,
            round(limit.tasks_per_second),
            round(sharded.tasks_per_second)
        );
    }
    table
}

fn cost_table() -> String {
    let mut table = "| | log | events | rows | bus | functions | queue | together |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n".to_owned();
    for (name, cost) in [("a million tasks", prices::task()), ("a million heartbeats", prices::heartbeat())] {
        let parts = [cost.log, cost.events, cost.rows, cost.bus, cost.functions, cost.queue, cost.sum()];
        let parts: Vec<String> = parts.iter().map(|part| format!("{:.2}", part * 1e6)).collect();
        let _ = writeln!(table, "| {name} | {} |", parts.join(" | "));
    }
    let _ = writeln!(
        table,
        "\nA task takes {} write units, including indexes. Storing the events of a million tasks for a month costs {:.2} USD.",
        limits::all_units(),
        prices::stored_month()
    );
    table
}

fn log_table() -> String {
    let mut table = "| processes | commands a second | greedy: done | least served | p99 ms | polite: done | least served | p50 ms | p99 ms | puts a group | commands a group |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n".to_owned();
    for processes in [1, 2, 4, 8, 16] {
        for commands_per_second in [100, 1_000, 3_000] {
            let run = |manners| contention::run(Race { processes, commands_per_second, manners });
            let (greedy, polite) = (run(GREEDY), run(POLITE));
            let _ = writeln!(
                table,
                "| {processes} | {} | {} | {:.0} % | {:.0} | {} | {:.0} % | {:.0} | {:.0} | {:.1} | {:.1} |",
                thousands(commands_per_second),
                round(greedy.committed_per_second),
                greedy.least_served * 100.0,
                greedy.p99_millis,
                round(polite.committed_per_second),
                polite.least_served * 100.0,
                polite.p50_millis,
                polite.p99_millis,
                polite.puts_per_group,
                polite.commands_per_group,
            );
        }
    }
    table
}
