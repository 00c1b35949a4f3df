//! The control: a preallocated, zero-filled file, one writer, group commit with fdatasync, and nothing else.
//!
//! Producers hand over bytes and wait for the sync of their group. There is no checksum, no index and no decision.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{JoinHandle, Thread};

const PAGE: u64 = 4096;
/// What Tidemill writes before the entries of a group.
const HEADER: usize = 40;

/// A file of zeros, synced, so that later writes change no metadata.
pub fn preallocated(path: &Path, bytes: u64) -> File {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let zeros = vec![0; 1 << 20];
    let mut offset = 0;
    while offset < bytes {
        file.write_all_at(&zeros, offset).unwrap();
        offset += zeros.len() as u64;
    }
    file.sync_all().unwrap();
    file
}

/// Writes to the end of the page, as Tidemill does, so that the kernel never reads a page first.
pub fn write_padded(file: &File, bytes: &mut Vec<u8>, offset: &mut u64) {
    let span = (bytes.len() as u64).next_multiple_of(8);
    let page_end = (*offset + span).next_multiple_of(PAGE);
    bytes.resize((page_end - *offset) as usize, 0);
    file.write_all_at(bytes, *offset).unwrap();
    *offset += span;
}

/// How producers are woken after a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// One by one, the plain way.
    Each,
    /// All of a group with one call, which the kernel does for less.
    Together,
}

pub struct BareLog {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

struct Shared {
    open: Mutex<Open>,
    bell: Condvar,
    synced: AtomicU64,
    groups: AtomicU64,
    wake: Wake,
    /// Where the producers of a group wait to be woken together, by the group's number.
    rooms: [(Mutex<()>, Condvar); ROOMS],
}

const ROOMS: usize = 4;

struct Open {
    bytes: Vec<u8>,
    waiting: Vec<Thread>,
    number: u64,
    idle: bool,
    closed: bool,
}

impl BareLog {
    /// A log in a file of `bytes`; when it is full the writer starts again at its beginning.
    pub fn start(path: &Path, bytes: u64, wake: Wake) -> Self {
        let file = preallocated(path, bytes);
        let open =
            Open { bytes: vec![0; HEADER], waiting: Vec::new(), number: 1, idle: false, closed: false };
        let shared = Arc::new(Shared {
            open: Mutex::new(open),
            bell: Condvar::new(),
            synced: AtomicU64::new(0),
            groups: AtomicU64::new(0),
            wake,
            rooms: Default::default(),
        });
        let writer = Some(std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.write(&file, bytes)
        }));
        Self { shared, writer }
    }

    /// Appends bytes and returns when they are on disk.
    pub fn append(&self, bytes: &[u8]) {
        let shared = &*self.shared;
        let number = {
            let mut open = shared.open.lock().unwrap();
            open.bytes.extend_from_slice(bytes);
            open.waiting.push(std::thread::current());
            if open.idle {
                shared.bell.notify_one();
            }
            open.number
        };
        let is_synced = || shared.synced.load(Ordering::Acquire) >= number;
        if shared.wake == Wake::Together {
            let (lock, woken) = shared.room(number);
            let mut seat = lock.lock().unwrap();
            while !is_synced() {
                seat = woken.wait(seat).unwrap();
            }
        }
        while !is_synced() {
            std::thread::park();
        }
    }

    pub fn groups(&self) -> u64 {
        self.shared.groups.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn room(&self, number: u64) -> &(Mutex<()>, Condvar) {
        &self.rooms[number as usize % ROOMS]
    }

    fn write(&self, file: &File, capacity: u64) {
        let (mut bytes, mut waiting, mut offset) = (vec![0; HEADER], Vec::new(), 0);
        loop {
            let number = {
                let mut open = self.open.lock().unwrap();
                while open.waiting.is_empty() {
                    if open.closed {
                        return;
                    }
                    open.idle = true;
                    open = self.bell.wait(open).unwrap();
                    open.idle = false;
                }
                std::mem::swap(&mut open.bytes, &mut bytes);
                std::mem::swap(&mut open.waiting, &mut waiting);
                open.number += 1;
                open.number - 1
            };
            if offset + bytes.len() as u64 + PAGE > capacity {
                offset = 0;
            }
            write_padded(file, &mut bytes, &mut offset);
            file.sync_data().unwrap();
            self.synced.store(number, Ordering::Release);
            self.groups.fetch_add(1, Ordering::Relaxed);
            if self.wake == Wake::Together {
                let (lock, woken) = self.room(number);
                drop(lock.lock().unwrap());
                woken.notify_all();
                waiting.clear();
            }
            waiting.drain(..).for_each(|thread: Thread| thread.unpark());
            bytes.truncate(HEADER);
        }
    }
}

impl Drop for BareLog {
    fn drop(&mut self) {
        self.shared.open.lock().unwrap().closed = true;
        self.shared.bell.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
