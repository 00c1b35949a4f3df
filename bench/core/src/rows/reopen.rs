//! Opening after SIGKILL: a child fills the store and is killed while it writes; another one opens it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_embedded::Embedded;
use tidemill_engine::clock::SystemClock;

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::loader::Loader;
use crate::store::{TestStore, options};
use crate::workload::{EVENTS_PER_ENTITY, Workload};

const LOADED: &str = "loaded";

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let sizes: &[(u64, &str)] =
        if setting.quick { &[(1_000_000, "1 M")] } else { &[(1_000_000, "1 M"), (10_000_000, "10 M")] };
    let dir = setting.dir.join("reopen");
    let _ = std::fs::remove_dir_all(&dir);
    let mut loaded = 0;
    let mut first = None;
    for (size, name) in sizes {
        let mut opens = Vec::new();
        // Killed several times at different moments after the load; the first time right at its end.
        for delay_millis in [0, 700, 1_900, 3_300, 5_400] {
            kill_loader(&dir, size.saturating_sub(loaded), delay_millis);
            loaded = *size;
            opens.push(open_in_child(&dir));
        }
        let worst = opens.iter().copied().fold(0.0, f64::max);
        let each: Vec<String> = opens.iter().map(|secs| format!("{secs:.2}")).collect();
        let each = each.join(", ");
        let note =
            format!("killed while 64 producers and a loader write, the first right after loading: {each} s");
        let what = format!("open after SIGKILL at {name} events, worst");
        let figure = Figure::new("reopen", what, worst, "s").note(note);
        report.push(match first {
            None => figure.goal(Goal::AtMost(1.0)),
            Some(at_first) => figure.beside("at 1 M", at_first).goal(Goal::AtMost(2.0)),
        });
        first.get_or_insert(worst);
    }
    let _ = std::fs::remove_dir_all(&dir);
}

fn kill_loader(dir: &std::path::Path, events: u64, delay_millis: u64) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child-load", "--dir"])
        .arg(dir)
        .args(["--events", &events.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the bench can start itself");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), LOADED);
    std::thread::sleep(Duration::from_millis(100 + delay_millis));
    child.kill().unwrap();
    child.wait().unwrap();
}

fn open_in_child(dir: &std::path::Path) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["child-open", "--dir"])
        .arg(dir)
        .output()
        .expect("the bench can start itself");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().unwrap_or_else(|_| panic!("{text} {}", String::from_utf8_lossy(&output.stderr)))
}

/// The child: loads, says so, and goes on writing until it is killed.
pub fn child_load(dir: &std::path::Path, events: u64) {
    let workload = Workload::new();
    let store = TestStore::open(dir);
    let loader = Loader::new(&store.backend, &workload);
    loader.load_to(events);
    println!("{LOADED}");
    let space = u64::from(std::process::id());
    std::thread::scope(|scope| {
        scope.spawn(|| loader.load_to(u64::MAX));
        for producer in 0..64 {
            let (workload, backend) = (Arc::clone(&workload), Arc::clone(&store.backend));
            scope.spawn(move || {
                for number in 0.. {
                    let entity = workload.entity(space << 8 | producer, number / EVENTS_PER_ENTITY);
                    let event = workload.event(entity, number);
                    let command = workload.publish(producer, number, vec![event]);
                    backend.execute_blocking(&[command]).expect("the store works");
                }
            });
        }
    });
}

/// The child: opens, tells how long it took, and dies without closing, so that the next kill finds what it left.
pub fn child_open(dir: &std::path::Path) {
    let start = Instant::now();
    let store = Embedded::open(dir, options(), Arc::new(SystemClock::start())).expect("the store opens");
    println!("{:.4}", start.elapsed().as_secs_f64());
    std::mem::forget(store);
    std::process::exit(0);
}
