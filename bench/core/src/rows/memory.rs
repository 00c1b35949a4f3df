//! Resident memory with a long history and nothing to do, and the start of an empty store.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemill_embedded::Embedded;
use tidemill_engine::clock::SystemClock;

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::latency::median;
use crate::loader::finish_tasks;
use crate::machine::{Memory, Watch, memory};
use crate::store::{TestStore, options};
use crate::workload::Workload;

const MIB: f64 = (1 << 20) as f64;

#[derive(Debug, Serialize, Deserialize)]
struct Found {
    empty: Memory,
    full: Memory,
    reopened: Memory,
    load_secs: f64,
    load_cpu_micros: f64,
}

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let dir = setting.dir.join("memory");
    cold_starts(setting, report);
    let _ = std::fs::remove_dir_all(&dir);
    let run = |what: &str, tasks: u64| -> Found {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([what, "--dir"])
            .arg(&dir)
            .args(["--events", &tasks.to_string()])
            .output()
            .expect("the bench can start itself");
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)))
    };
    let sizes: &[u64] = if setting.quick { &[1_000_000] } else { &[1_000_000, 1_000_000] };
    let mut done = 0;
    for tasks in sizes {
        let found = run("child-memory", *tasks);
        done += tasks / 1_000_000;
        let mib = |memory: Memory| memory.resident_bytes as f64 / MIB;
        let anonymous = |memory: Memory| memory.anonymous_bytes as f64 / MIB;
        let goal = Goal::AtMost(150.0);
        report.push(
            Figure::new(
                "memory",
                format!("resident at {done} M finished tasks, idle, after the load"),
                mib(found.full),
                "MiB",
            )
            .goal(goal)
            .note(format!(
                "anonymous {:.0} MiB; before the load {:.1} MiB; load {:.0} s, {:.1} µs of CPU per task",
                anonymous(found.full),
                mib(found.empty),
                found.load_secs,
                found.load_cpu_micros
            )),
        );
        report.push(
            Figure::new(
                "memory",
                format!("resident at {done} M finished tasks, idle, reopened"),
                mib(found.reopened),
                "MiB",
            )
            .goal(goal)
            .note(format!("anonymous {:.1} MiB", anonymous(found.reopened))),
        );
    }
    let _ = std::fs::remove_dir_all(&dir);
}

fn cold_starts(setting: Setting<'_>, report: &mut Report) {
    let (mut opens, mut firsts) = (Vec::new(), Vec::new());
    let workload = Workload::new();
    for _ in 0..9 {
        let dir = setting.dir.join("cold");
        let _ = std::fs::remove_dir_all(&dir);
        let start = Instant::now();
        let store = Embedded::open(&dir, options(), Arc::new(SystemClock::start())).expect("the store opens");
        opens.push(start.elapsed().as_secs_f64() * 1e3);
        let event = workload.event(workload.entity(0, 0), 0);
        store.execute_blocking(&[workload.publish(0, 0, vec![event])]).expect("the store works");
        firsts.push(start.elapsed().as_secs_f64() * 1e3);
        drop(store);
        let _ = std::fs::remove_dir_all(&dir);
    }
    report.push(
        Figure::new(
            "memory",
            "cold start of an empty store to the first durable event",
            median(&firsts),
            "ms",
        )
        .goal(Goal::AtMost(50.0))
        .note(format!("open {:.0} ms", median(&opens))),
    );
}

/// The child: finishes tasks, rests, reports; then opens the same store again and reports.
pub fn child_memory(dir: &std::path::Path, tasks: u64) {
    let workload = Workload::new();
    let store = TestStore::open(dir);
    let empty = memory();
    let watch = Watch::start();
    finish_tasks(&store.backend, &workload, tasks);
    let spent = watch.stop();
    // Longer than the quiet while after which rows are flushed.
    std::thread::sleep(Duration::from_secs(12));
    let full = memory();
    drop(store);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child-rest", "--dir"])
        .arg(dir)
        .output()
        .expect("the bench can start itself");
    let reopened = serde_json::from_slice(&output.stdout).expect("the child answers");
    let load_cpu_micros = spent.micros_each(tasks);
    let found = Found { empty, full, reopened, load_secs: spent.wall.as_secs_f64(), load_cpu_micros };
    println!("{}", serde_json::to_string(&found).unwrap());
}

/// The child of the child: only opens and rests.
pub fn child_rest(dir: &std::path::Path) {
    let store = TestStore::open(dir);
    std::thread::sleep(Duration::from_secs(1));
    println!("{}", serde_json::to_string(&memory()).unwrap());
    drop(store);
}
