//! One commit of one producer, beside a bare write and fdatasync of the same size, in turns.

use tidemill_engine::command::Command;

use super::Setting;
use crate::bare_log::{preallocated, write_padded};
use crate::figure::{Figure, Goal, Report};
use crate::latency::Latencies;
use crate::machine::Watch;
use crate::store::TestStore;
use crate::workload::{EVENTS_PER_ENTITY, Workload};

/// How many of one kind run before as many of the other.
const TURN: usize = 10;
const FILE_BYTES: u64 = 64 << 20;

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let turns = if setting.quick { 200 } else { 800 };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "commit");
    let path = setting.dir.join("bare.log");
    let file = preallocated(&path, FILE_BYTES);
    let (mut ours, mut bare) = (Latencies::default(), Latencies::default());
    let (mut offset, mut number) = (0, 0);
    let watch = Watch::start();
    for turn in 0..turns {
        let warm = turn >= 10;
        for _ in 0..TURN {
            let command = command(&workload, number);
            number += 1;
            let mut took = Latencies::default();
            took.time(|| store.backend.execute_blocking(&[command]).expect("the store works"));
            if warm {
                ours.append(took);
            }
        }
        for _ in 0..TURN {
            let mut bytes = vec![b'x'; 680];
            let mut took = Latencies::default();
            if offset + 8192 > FILE_BYTES {
                offset = 0;
            }
            took.time(|| {
                write_padded(&file, &mut bytes, &mut offset);
                file.sync_data().unwrap();
            });
            if warm {
                bare.append(took);
            }
        }
    }
    let spent = watch.stop();
    let noted = format!("others took {:.0} % of the CPU", spent.others * 100.0);
    report.push(
        Figure::new("commit", "one commit, one producer, p50", ours.p50(), "µs")
            .beside("bare fdatasync p50", bare.p50())
            .goal(Goal::AtMost(1.5))
            .note(noted),
    );
    report.push(
        Figure::new("commit", "one commit, one producer, p99", ours.p99(), "µs")
            .beside("bare fdatasync p99", bare.p99()),
    );
    store.discard();
    let _ = std::fs::remove_file(path);
}

fn command(workload: &Workload, number: u64) -> Command {
    let entity = workload.entity(0, number / EVENTS_PER_ENTITY);
    workload.publish(number / EVENTS_PER_ENTITY, number, vec![workload.event(entity, number)])
}
