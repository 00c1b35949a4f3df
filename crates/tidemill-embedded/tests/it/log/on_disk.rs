//! The same on the file system, with readers while the writer writes.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidemill_embedded::disk::Disk;
use tidemill_embedded::log::{LogConfig, LogReader, Order, Seq, TimelineQuery, Window};
use tidemill_embedded::real_disk::RealDisk;
use tidemill_model::TenantId;

use super::mem_disk::MemDisk;
use super::support::{Bench, event, small};

/// A directory that goes with the test.
struct Fresh(PathBuf);

impl Fresh {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidemill-log-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_are_for_the_owner_only() {
    let fresh = Fresh::new();
    let disk = RealDisk::new(&fresh.0).unwrap();
    let mut bench = Bench::open(&disk, small());
    bench.write_events(vec![event(1)]).unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(fresh.0.clone()), 0o700);
    assert_eq!(mode(fresh.0.join("log")), 0o700);
    for name in disk.list("log").unwrap() {
        assert_eq!(mode(fresh.0.join("log").join(&name)), 0o600, "{name}");
    }
    assert_eq!(disk.list("nowhere").unwrap(), Vec::<String>::new());
    assert!(disk.create("log/FORMAT").is_err());
}

/// Ends the other threads when the writer is done, or fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn readers_and_keeper_work_while_the_writer_writes() {
    let fresh = Fresh::new();
    work_together(&RealDisk::new(&fresh.0).unwrap(), 300);
    // Without the time that syncs take, other things happen at the same time.
    for _ in 0..5 {
        work_together(&MemDisk::new(), 300);
    }
}

fn work_together(disk: &(impl Disk + Clone), groups: usize) {
    let config = LogConfig { segment_bytes: 256 << 10, hasty_segment_bytes: 64 << 10, ..small() };
    let mut bench = Bench::open(disk, config);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = Done(&done);
        let (keeper, reader) = (bench.keeper.clone(), bench.reader.clone());
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                keeper.prepare_spare().unwrap();
                if !keeper.seal_next().unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..2 {
            let reader = reader.clone();
            scope.spawn(move || read_on(&reader, done));
        }
        for _ in 0..groups {
            let next = bench.log.next_seq().0;
            bench.write_events((next..next + 40).map(event).collect()).unwrap();
        }
        drop(writing);
    });
    bench.seal_all();
    bench.assert_whole();
    assert!(bench.reader.segments().len() > 4);
    Bench { known: bench.known, ..Bench::open(disk, config) }.assert_whole();
}

/// Whatever was published can be read, in the form it has at the moment.
fn read_on(reader: &LogReader, done: &AtomicBool) {
    let mut round = 0;
    while !done.load(Ordering::Acquire) {
        round += 1;
        let end = reader.end().next_seq.0;
        if end < 2 {
            continue;
        }
        let seq = Seq(1 + round * 7_919 % (end - 1));
        let stored = reader.read(seq).unwrap().unwrap();
        assert_eq!((stored.seq, stored.event), (seq, event(seq.0)));
        let query = TimelineQuery {
            tenant: TenantId::trusted("acme"),
            app: None,
            event_type: None,
            window: Window::all(Order::Descending, 20),
        };
        let page = reader.timeline(&query).unwrap();
        let seqs: Vec<u64> = page.events.iter().map(|stored| stored.seq.0).collect();
        assert!(seqs[0] >= end - 1 && seqs.windows(2).all(|pair| pair[0] == pair[1] + 1), "{seqs:?}");
    }
}
