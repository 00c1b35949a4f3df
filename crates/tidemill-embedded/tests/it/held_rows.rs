//! Rows that were taken out of the state and are not in the file yet: they are seen by all who look, and a crash loses
//! nothing of them.

use tidemill_engine::command::Command;
use tidemill_model::JobId;

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
        if round % 2 == 0 {
            assert_eq!(lab.work_off(), 4);
        }
        assert!(lab.store.hold_rows().unwrap());
        assert_eq!(lab.store.state().dirty_len(), 0);
        lab.assert_clean();
    }
    lab
}

#[test]
fn held_rows_are_seen_as_if_they_were_written() {
    let dir = Fresh::new();
    let mut lab = worked(&dir, 5);
    assert!(lab.store.latest(&acme(), &store_entity("b")).unwrap().is_some());
    let held = lab.export();
    assert!(lab.store.flush_rows().unwrap());
    assert!(!lab.store.flush_rows().unwrap(), "nothing is left");
    assert_eq!(lab.export(), held);
    lab.assert_clean();
    drop(lab);
    let mut lab = Lab::open(&dir);
    assert_eq!(lab.export(), held);
    lab.assert_clean();
}

#[test]
fn a_crash_before_held_rows_are_written_loses_nothing() {
    let dir = Fresh::new();
    let mut lab = worked(&dir, 3);
    assert!(lab.store.flush_rows().unwrap());
    lab.run(stock_taken("a")).unwrap();
    assert_eq!(lab.work_off(), 4);
    assert!(lab.store.hold_rows().unwrap());
    lab.run(stock_taken("d")).unwrap();
    assert!(lab.store.hold_rows().unwrap());
    let (before, now) = (lab.export(), lab.now);
    // The process goes with what it held.
    drop(lab);
    let mut lab = Lab::open(&dir).at(now);
    assert!(lab.store.state().dirty_len() > 0, "the log tells it again");
    assert_eq!(lab.export(), before);
    lab.assert_clean();
    assert_eq!(lab.work_off(), 0);
}
