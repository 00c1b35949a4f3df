//! A disk without space: commands are refused, nothing is acknowledged that is not stored, and it passes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tidemill_conformance::block_on;
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::reply::Reply;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::{AccessPath, EventId};

use crate::lab::{Fresh, Lab, acme, plain, publish, small};
use crate::tmpfs::Tmpfs;

const BALLAST: &str = "ballast";
const BALLAST_KIB: usize = 512;

fn open(dir: &Path) -> Embedded {
    let options = StoreOptions { seed: 5, ..small() };
    Embedded::open(&dir.join("data"), options, Arc::new(SystemClock::start())).unwrap()
}

/// Publishes an event; the id if it was acknowledged.
fn publish_one(backend: &Embedded, entity: &str) -> Result<EventId, Fault> {
    let properties = plain(&format!(r#"{{"filler":"{}"}}"#, "x".repeat(300)));
    let replies = backend.execute_blocking(&[publish(entity, properties, None, None)])?;
    let Ok(Reply::Published { events }) = &replies[0] else { panic!("{replies:?}") };
    Ok(events[0].0)
}

/// Publishes until there is no space; what was acknowledged.
fn fill(backend: &Embedded, acknowledged: &mut BTreeSet<EventId>) {
    std::thread::scope(|scope| {
        let threads: Vec<_> = ["a", "b", "c"]
            .map(|entity| {
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    loop {
                        match publish_one(backend, entity) {
                            Ok(id) => ids.push(id),
                            Err(fault) => return (ids, fault),
                        }
                    }
                })
            })
            .into_iter()
            .collect();
        for thread in threads {
            let (ids, fault) = thread.join().unwrap();
            assert!(matches!(fault, Fault::Full(_)), "{fault}");
            assert!(fault.to_string().starts_with("no space is left in the store: "), "{fault}");
            acknowledged.extend(ids);
        }
    });
}

fn stored(
    events: impl Fn(&EventQuery) -> tidemill_model::events::event_query::EventPage,
) -> BTreeSet<EventId> {
    let mut query = EventQuery::all(acme(), AccessPath::Tenant);
    let mut ids = BTreeSet::new();
    loop {
        let page = events(&query);
        ids.extend(page.events.iter().map(|event| event.id));
        query.after = page.next;
        if query.after.is_none() {
            return ids;
        }
    }
}

#[test]
fn a_full_disk_refuses_clearly_and_works_again_when_there_is_space() {
    let dir = Fresh::new();
    let Some(disk) = Tmpfs::mount(dir.join("disk"), 4 << 10) else { return };
    std::fs::write(disk.join(BALLAST), vec![1; BALLAST_KIB << 10]).unwrap();
    let backend = open(&disk);
    let mut acknowledged = BTreeSet::new();
    fill(&backend, &mut acknowledged);
    assert!(acknowledged.len() > 100, "{}", acknowledged.len());
    // It says so every time, for blobs too, though sealing may make a little room; what is there can be read.
    for _ in 0..3 {
        fill(&backend, &mut acknowledged);
    }
    let refused = block_on(backend.put_blob(acme(), "events/a/b".into(), vec![1; 4 << 20])).unwrap_err();
    assert!(matches!(refused, Fault::Full(_)), "{refused}");
    assert_eq!(stored(|query| backend.events_blocking(query).unwrap()), acknowledged);
    // Rows may or may not find room; either way nothing breaks.
    let checkpoint = backend.checkpoint();
    assert!(matches!(checkpoint, Ok(()) | Err(Fault::Full(_))), "{checkpoint:?}");

    std::fs::remove_file(disk.join(BALLAST)).unwrap();
    for _ in 0..50 {
        acknowledged.insert(publish_one(&backend, "d").unwrap());
    }
    backend.checkpoint().unwrap();
    assert_eq!(stored(|query| backend.events_blocking(query).unwrap()), acknowledged);
    fill(&backend, &mut acknowledged);
    drop(backend);
    let lab = Lab::open(&disk.join("data"));
    assert_eq!(stored(|query| lab.store.events(query).unwrap()), acknowledged);
    lab.assert_clean();
}

#[test]
fn rows_that_found_no_space_are_written_when_there_is_some() {
    let dir = Fresh::new();
    let Some(disk) = Tmpfs::mount(dir.join("disk"), 8 << 10) else { return };
    let backend = open(&disk);
    let mut acknowledged = BTreeSet::new();
    backend.checkpoint().unwrap();
    for number in 0..200 {
        acknowledged.insert(publish_one(&backend, &format!("entity {number}")).unwrap());
    }
    // All the space there is, to the last byte.
    let ballast = disk.join(BALLAST);
    let mut size: usize = 1 << 20;
    let mut file = std::fs::File::create(&ballast).unwrap();
    while size > 0 {
        if std::io::Write::write(&mut file, &vec![1; size]).is_err() {
            size /= 2;
        }
    }
    drop(file);
    let refused = backend.checkpoint().unwrap_err();
    assert!(matches!(refused, Fault::Full(_)), "{refused}");
    // The log has space that was reserved, so commands go on while it lasts.
    for _ in 0..5 {
        acknowledged.insert(publish_one(&backend, "reserved").unwrap());
    }
    assert!(backend.checkpoint().is_err());
    std::fs::remove_file(&ballast).unwrap();
    backend.checkpoint().unwrap();
    acknowledged.insert(publish_one(&backend, "later").unwrap());
    backend.checkpoint().unwrap();
    assert_eq!(stored(|query| backend.events_blocking(query).unwrap()), acknowledged);
    drop(backend);
    let lab = Lab::open(&disk.join("data"));
    assert_eq!(stored(|query| lab.store.events(query).unwrap()), acknowledged);
    lab.assert_clean();
}
