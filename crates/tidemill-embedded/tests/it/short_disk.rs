//! A disk whose log finds no space while the rows are damaged: the state is made anew from both, and the store goes on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_embedded::disk::{Disk, DiskFile};
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::Command;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::{AccessPath, EventId};

use crate::lab::{Fresh, acme, plain, publish, small, store_entity};
use crate::row_damage::damage_all;

/// A disk that has no space for the log while the flag says so.
struct ShortDisk {
    disk: RealDisk,
    is_full: Arc<AtomicBool>,
}

struct LogFile {
    file: Arc<dyn DiskFile>,
    is_full: Arc<AtomicBool>,
}

impl ShortDisk {
    fn wrap(&self, path: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if !path.starts_with("log/") {
            return file;
        }
        Arc::new(LogFile { file, is_full: Arc::clone(&self.is_full) })
    }
}

impl Disk for ShortDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path).map(|file| self.wrap(path, file))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.wrap(path, file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(path)
    }
    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }
}

impl LogFile {
    fn space(&self) -> io::Result<()> {
        if self.is_full.load(Ordering::SeqCst) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl DiskFile for LogFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.space()?;
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.space()?;
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

const ENTITIES: [&str; 3] = ["a", "b", "c"];

fn options() -> StoreOptions {
    // What is in a cache is not read from the damaged file.
    StoreOptions { row_cache_bytes: 0, ..small() }
}

/// Too large for what is left of the segment.
fn large() -> Command {
    publish("a", plain(&format!(r#"{{"filler":"{}"}}"#, "x".repeat(40 << 10))), None, None)
}

fn check(entity: &str, ids: &[EventId]) {
    assert!(ids.len() == 2 && ids[0] != ids[1], "{entity}: {ids:?}");
}

fn history(entity: &str) -> EventQuery {
    EventQuery::all(acme(), AccessPath::narrowest(None, None, Some(store_entity(entity))))
}

/// The keeper of a running store rebuilds rows. A replay does not wait for it, and the store goes on.
#[test]
fn a_running_store_goes_on_after_a_full_disk_on_damaged_rows() {
    let dir = Fresh::new();
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = ShortDisk { disk: RealDisk::new(&*dir).unwrap(), is_full: Arc::clone(&is_full) };
    let backend = Embedded::open_on(Arc::new(disk), options(), Arc::new(SystemClock::start())).unwrap();
    let all = || {
        for entity in ENTITIES {
            let said = backend.execute_blocking(&[publish(entity, plain("{}"), None, None)]).unwrap();
            assert!(said[0].is_ok(), "{said:?}");
        }
    };
    all();
    backend.checkpoint().unwrap();
    all();
    damage_all(&dir);
    is_full.store(true, Ordering::SeqCst);
    let refused = backend.execute_blocking(&[large()]);
    assert!(matches!(refused, Err(Fault::Full(_))), "{refused:?}");
    is_full.store(false, Ordering::SeqCst);
    for entity in ENTITIES {
        let page = tidemill_conformance::block_on(tidemill_engine::backend::Backend::events(
            &backend,
            history(entity),
        ));
        check(entity, &page.unwrap().events.iter().map(|event| event.id).collect::<Vec<_>>());
    }
}
