//! Rows that cannot be read are made again from the log, and do not stop what needs none of them.

use std::sync::Arc;

use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::reply::Reply;

use crate::lab::{Fresh, Lab, small, submit_task};

/// Writes over what follows each place that holds `text`.
fn spoil(dir: &Fresh, text: &str) -> usize {
    let path = dir.join("derived/rows.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text.as_bytes())).collect();
    for at in &places {
        let end = (at + text.len() + 32).min(bytes.len());
        bytes[at + text.len()..end].fill(0xff);
    }
    std::fs::write(&path, bytes).unwrap();
    places.len()
}

#[test]
fn damaged_rows_are_made_again_when_the_store_is_opened() {
    let dir = Fresh::new();
    let mut lab = Lab::open(&dir);
    for n in 0..300 {
        lab.run(submit_task(&format!("needle-{n}-end"), "{}")).unwrap();
    }
    lab.store.flush_rows().unwrap();
    let now = lab.now;
    drop(lab);
    assert!(spoil(&dir, "needle-77-end") > 0);
    let mut lab = Lab::open(&dir).at(now);
    lab.assert_clean();
    assert_eq!(lab.claim(256).len() + lab.claim(256).len(), 300);
}

/// Damage that shows only when somebody asks for the row: until it is mended the answer is that there is none.
#[test]
fn a_row_that_cannot_be_loaded_is_made_again() {
    let dir = Fresh::new();
    let mut lab = Lab::open(&dir);
    for n in 0..3_000 {
        lab.run(submit_task(&format!("needle-{n}-end"), "{}")).unwrap();
    }
    lab.work_off();
    lab.store.flush_rows().unwrap();
    drop(lab);
    // Finished tasks are not looked at when the store is opened.
    let options = StoreOptions { row_cache_bytes: 0, ..small() };
    let backend = Embedded::open(&dir, options, Arc::new(SystemClock::start())).unwrap();
    assert!(spoil(&dir, "needle-77-end") > 0);
    let again = |n: usize| backend.execute_blocking(&[submit_task(&format!("needle-{n}-end"), "{}")]);
    let mut answer = again(77);
    assert!(
        matches!(&answer, Err(Fault::Unavailable(text)) if text.contains("wrong checksum")),
        "{answer:?}"
    );
    while matches!(answer, Err(Fault::Unavailable(_))) {
        std::thread::yield_now();
        answer = again(77);
    }
    let known = answer.unwrap().remove(0);
    assert!(matches!(known, Ok(Reply::TaskSubmitted { repeated: true, .. })), "{known:?}");
    backend.execute_blocking(&[submit_task("another", "{}")]).unwrap().remove(0).unwrap();
    drop(backend);
    Lab::open(&dir).assert_clean();
}
