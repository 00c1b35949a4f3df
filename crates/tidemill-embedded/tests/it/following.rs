//! Following the log through syncs, retention and imports.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use tidemill_conformance::{ManualClock, block_on, poll_once};
use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::disk::{Disk, DiskFile};
use tidemill_embedded::import_dir::import_into;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::{Embedded, Store, StoreOptions};
use tidemill_engine::backend::Backend;
use tidemill_model::{EventId, JobId, Timestamp};

use crate::lab::{
    DAY, Fresh, Lab, START, beat, diamond, plain, publish, small, submit_job, submit_task, unwatched,
};

/// What the group that must wait holds.
const MARK: &[u8] = b"behind the gate";

/// A disk on which the sync of what holds the mark waits for leave.
struct GatedDisk {
    disk: RealDisk,
    gate: Arc<Gate>,
}

struct Gate {
    begun: Sender<()>,
    leave: Mutex<Receiver<()>>,
}

struct GatedFile {
    file: Arc<dyn DiskFile>,
    gate: Arc<Gate>,
    is_marked: AtomicBool,
}

impl GatedDisk {
    fn wrap(&self, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let gate = Arc::clone(&self.gate);
        Arc::new(GatedFile { file, gate, is_marked: AtomicBool::new(false) })
    }
}

impl Disk for GatedDisk {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(path)
    }
    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }
    fn create(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.create(path).map(|file| self.wrap(file))
    }
    fn open(&self, path: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.disk.open(path).map(|file| self.wrap(file))
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

impl DiskFile for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if buf.windows(MARK.len()).any(|part| part == MARK) {
            self.is_marked.store(true, Ordering::SeqCst);
        }
        self.file.write_at(buf, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.is_marked.swap(false, Ordering::SeqCst) {
            let _ = self.gate.begun.send(());
            // Once nobody gives leave any more, none is needed.
            let _ = self.gate.leave.lock().unwrap().recv();
        }
        self.file.sync_data()
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}

#[test]
fn nothing_of_a_group_is_followed_before_it_is_synced() {
    let fresh = Fresh::new();
    let (begun, has_begun) = channel();
    let (leave, may_leave) = channel();
    let gate = Arc::new(Gate { begun, leave: Mutex::new(may_leave) });
    let disk = GatedDisk { disk: RealDisk::new(&*fresh).unwrap(), gate };
    let backend = Embedded::open_on(Arc::new(disk), small(), Arc::new(ManualClock::default())).unwrap();
    backend.execute_blocking(&[publish("s", plain("{}"), None, None)]).unwrap();
    let start = backend.newest();
    std::thread::scope(|scope| {
        let backend = &backend;
        let events = [r#"{"n":1}"#, r#"{"n":"behind the gate"}"#, r#"{"n":3}"#];
        let group = events.map(|properties| publish("s", plain(properties), None, None));
        let writer = scope.spawn(move || backend.execute_blocking(&group).unwrap());
        has_begun.recv().unwrap();
        block_on(async {
            let mut waiting = std::pin::pin!(backend.committed(start));
            assert!(poll_once(waiting.as_mut()).await.is_pending(), "no wake-up");
            assert_eq!(backend.newest(), start);
            assert_eq!(backend.follow(start, 10).await.unwrap(), []);
            leave.send(()).unwrap();
            waiting.await;
            assert_eq!(backend.newest(), start + 3);
            assert_eq!(backend.follow(start, 10).await.unwrap().len(), 3, "all of it at once");
        });
        writer.join().unwrap();
    });
    drop(leave);
}

/// The numbers and ids of all events, as a follower of the log sees them.
fn followed(dir: &Path, options: &StoreOptions) -> (BTreeMap<u64, EventId>, u64) {
    let backend = Embedded::open(dir, options.clone(), Arc::new(ManualClock::default())).unwrap();
    let mut seen = BTreeMap::new();
    let mut from = 0;
    loop {
        let page = block_on(backend.follow(from, 37)).unwrap();
        let Some((last, _)) = page.last() else { break };
        assert!(page.is_sorted_by(|a, b| a.0 < b.0) && page[0].0 > from);
        from = *last;
        seen.extend(page.into_iter().map(|(number, event)| (number, event.id)));
    }
    (seen, backend.newest())
}

#[test]
fn numbers_outlive_dropped_and_rewritten_segments() {
    let dir = Fresh::new();
    let retention = Retention { event_millis: 10 * DAY, heartbeat_millis: DAY };
    let options = StoreOptions { retention, ..small() };
    let open = |now| Lab {
        store: Store::open(Arc::new(RealDisk::new(&*dir).unwrap()), options.clone()).unwrap(),
        now,
    };
    let fill = |lab: &mut Lab, entity: &str| {
        for n in 0..200 {
            let padding = "x".repeat(400);
            let properties = format!(r#"{{"n":{n},"padding":"{padding}"}}"#);
            lab.run(publish(entity, plain(&properties), None, None)).unwrap();
        }
        lab.store.flush_rows().unwrap();
        lab.seal_all();
    };
    let mut lab = open(Timestamp::clamped(START));
    lab.run(submit_job(JobId::from_u128(1), diamond(), None)).unwrap();
    lab.work_off();
    fill(&mut lab, "old");
    lab.pass(9 * DAY);
    lab.run(submit_task("req-1", "{}")).unwrap();
    let task = lab.claim(1).remove(0);
    for _ in 0..300 {
        lab.run(beat(&task)).unwrap();
    }
    fill(&mut lab, "new");
    let now = lab.now;
    drop(lab);
    let (before, newest) = followed(&dir, &options);
    assert_eq!(before.last_key_value().map(|(number, _)| *number), Some(newest));
    assert_eq!(before.len() as u64, newest, "all numbers are there");

    let mut lab = open(now);
    lab.pass(3 * DAY);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0 && expired.segments_rewritten > 0, "{expired:?}");
    drop(lab);
    let (after, still_newest) = followed(&dir, &options);
    assert_eq!(still_newest, newest, "it never goes down");
    assert!(after.len() < before.len() && !after.is_empty());
    assert!(after.iter().all(|(number, id)| before.get(number) == Some(id)), "no number is another event's");
    assert!(!after.contains_key(&1), "the first segment is gone");
}

#[test]
fn imported_events_are_followed_in_their_order() {
    let dir = Fresh::new();
    let mut lab = Lab::open(&dir);
    lab.run(submit_job(JobId::from_u128(1), diamond(), None)).unwrap();
    lab.work_off();
    for n in 0..50 {
        lab.run(publish("s", plain(&format!(r#"{{"n":{n}}}"#)), None, None)).unwrap();
    }
    let (text, now) = (lab.export(), lab.now);
    drop(lab);
    let (before, _) = followed(&dir, &small());
    let target = Fresh::new();
    let lock = DataLock::take(&target).unwrap();
    import_into(&target, &lock, small(), &mut text.as_bytes(), now, &mut unwatched).unwrap();
    drop(lock);
    let (after, newest) = followed(&target, &small());
    assert_eq!(after.values().collect::<Vec<_>>(), before.values().collect::<Vec<_>>());
    assert_eq!(after.last_key_value().map(|(number, _)| *number), Some(newest));
}
