//! Rows that were taken out of the state and are not in the file yet: every reader sees them, and a crash loses none
//! of them.

use tidemill_engine::command::Command;
use tidemill_model::{Event, JobId};

use crate::lab::{Fresh, Lab, acme, diamond, plain, publish, store_entity, submit_job};

fn stock_taken(entity: &str) -> Command {
    publish(entity, plain("{}"), None, None)
}

/// Work of all kinds in several rounds, with rows taken after each: what changed in one round changes again in the next.
fn worked(dir: &std::path::Path, rounds: u128) -> Lab {
    let mut lab = Lab::open(dir);
    for round in 0..rounds {
        lab.run(submit_job(JobId::from_u128(round + 1), diamond(), Some(&format!("key-{round}")))).unwrap();
        for entity in ["a", "b", "c"] {
            lab.run(stock_taken(entity)).unwrap();
        }
        // Every other job stays open until the next round.
        if round.is_multiple_of(2) {
            assert_eq!(lab.work_off(), if round == 0 { 4 } else { 8 });
        }
        assert!(lab.store.hold_rows().unwrap());
        assert_eq!(lab.store.state().dirty_len(), 0);
        lab.assert_clean();
    }
    lab
}

fn newest(lab: &Lab) -> Vec<Option<Event>> {
    ["a", "b", "c", "d"].map(|entity| lab.store.latest(&acme(), &store_entity(entity)).unwrap()).into()
}

#[test]
fn held_rows_are_seen_as_if_they_were_written() {
    let dir = Fresh::new();
    let mut lab = worked(&dir, 5);
    let held = newest(&lab);
    assert_eq!(held.iter().flatten().count(), 3);
    assert!(lab.store.flush_rows().unwrap());
    assert!(!lab.store.flush_rows().unwrap(), "nothing is left");
    assert_eq!(newest(&lab), held);
    lab.assert_clean();
    drop(lab);
    let lab = Lab::open(&dir);
    assert_eq!(lab.store.state().dirty_len(), 0, "there was nothing to tell again");
    assert_eq!(newest(&lab), held);
    lab.assert_clean();
}

#[test]
fn a_crash_before_held_rows_are_written_loses_nothing() {
    let dir = Fresh::new();
    let mut lab = worked(&dir, 4);
    assert!(lab.store.flush_rows().unwrap());
    lab.run(stock_taken("a")).unwrap();
    assert_eq!(lab.work_off(), 4);
    assert!(lab.store.hold_rows().unwrap());
    lab.run(stock_taken("d")).unwrap();
    assert!(lab.store.hold_rows().unwrap());
    let (before, now) = (newest(&lab), lab.now);
    assert_eq!(before.iter().flatten().count(), 4);
    // The process goes with what it held.
    drop(lab);
    let mut lab = Lab::open(&dir).at(now);
    assert!(lab.store.state().dirty_len() > 0, "the log tells it again");
    assert_eq!(newest(&lab), before);
    lab.assert_clean();
    assert_eq!(lab.work_off(), 0);
}
