//! The deciding core alone, without threads, for a profiler that counts instructions.
//!
//! `valgrind --tool=callgrind tidemill-bench child-hot-cycles --events 20000 --dir /dev/shm/hot`

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_engine::command::Command;
use tidemill_engine::reply::{Assignment, Reply};
use tidemill_model::Timestamp;

use crate::work::{self, Hand};
use crate::workload::{EVENTS_PER_ENTITY, Workload};

/// Commands in a group, as 64 producers form them.
const GROUP: usize = 50;
/// As the backend does.
const FLUSH_ROWS: usize = 32_768;

fn open(dir: &Path) -> Store {
    let _ = std::fs::remove_dir_all(dir);
    let disk = RealDisk::new(dir).expect("the directory can be used");
    Store::open(Arc::new(disk), StoreOptions::default()).expect("the store opens")
}

fn flush_if_due(store: &mut Store) -> f64 {
    let start = Instant::now();
    if store.state().dirty_len() >= FLUSH_ROWS {
        store.flush_rows().expect("rows can be written");
    }
    start.elapsed().as_secs_f64()
}

pub fn events(dir: &Path, count: u64) {
    let workload = Workload::new();
    let mut store = open(dir);
    let mut now = Timestamp::clamped(1_700_000_000_000);
    let commands: Vec<Command> = (0..count)
        .map(|number| {
            let (producer, turn) = (number % 64, number / 64);
            let entity = workload.entity(producer, turn / EVENTS_PER_ENTITY);
            workload.publish(producer, turn / EVENTS_PER_ENTITY, vec![workload.event(entity, number)])
        })
        .collect();
    let (start, mut flushing) = (Instant::now(), 0.0);
    for group in commands.chunks(GROUP) {
        now = now.plus(1);
        store.execute(group, now).expect("the store works");
        flushing += flush_if_due(&mut store);
    }
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    println!(
        "events: {:.2} µs each, of which flush {:.2}",
        each(start.elapsed().as_secs_f64()),
        each(flushing)
    );
    let _ = std::fs::remove_dir_all(dir);
}

pub fn cycles(dir: &Path, count: u64) {
    let workload = Workload::new();
    let mut store = open(dir);
    let mut now = Timestamp::clamped(1_700_000_000_000);
    let each = |seconds: f64| seconds * 1e6 / count as f64;
    let tasks = work::tasks(count as usize, |_| Vec::new());
    let start = Instant::now();
    store
        .execute(&[work::submission(workload.tenant(0), workload.app(0), &tasks)], now)
        .expect("the store works");
    println!("submit: {:.2} µs each", each(start.elapsed().as_secs_f64()));
    let hand = Hand::new(1, 1);
    let mut commands = vec![hand.claim(); GROUP];
    let (start, mut flushing) = (Instant::now(), 0.0);
    while !commands.is_empty() {
        now = now.plus(1);
        let mut held: Vec<Assignment> = Vec::new();
        for answer in store.execute(&commands, now).expect("the store works") {
            if let Reply::Claimed { tasks, .. } = answer.expect("no command is refused") {
                held.extend(tasks);
            }
        }
        commands = held.iter().flat_map(|task| [hand.finish(task), hand.claim()]).collect();
        flushing += flush_if_due(&mut store);
    }
    let total = start.elapsed().as_secs_f64();
    println!("cycles: {:.2} µs each, of which flush {:.2}", each(total), each(flushing));
    let start = Instant::now();
    store.flush_rows().expect("rows can be written");
    println!("last flush: {:.2} µs each", each(start.elapsed().as_secs_f64()));
    let _ = std::fs::remove_dir_all(dir);
}
