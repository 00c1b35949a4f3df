//! Two storage backends for redb: a plain file that counts its calls, and a simulated disk that
//! loses and tears what was not synced.

use crate::keys::mix;
use redb::StorageBackend;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub struct Counts {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    set_lens: AtomicU64,
}

impl Counts {
    pub fn text(&self) -> String {
        format!(
            "reads={} read_mb={} writes={} write_mb={} syncs={} set_lens={}",
            self.reads.load(Relaxed),
            self.read_bytes.load(Relaxed) >> 20,
            self.writes.load(Relaxed),
            self.write_bytes.load(Relaxed) >> 20,
            self.syncs.load(Relaxed),
            self.set_lens.load(Relaxed)
        )
    }
}

#[derive(Debug)]
pub struct CountingFile {
    file: File,
    pub counts: Arc<Counts>,
}

impl CountingFile {
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(CountingFile { file, counts: Arc::default() })
    }
}

impl StorageBackend for CountingFile {
    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.counts.reads.fetch_add(1, Relaxed);
        self.counts.read_bytes.fetch_add(out.len() as u64, Relaxed);
        self.file.read_exact_at(out, offset)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.counts.set_lens.fetch_add(1, Relaxed);
        self.file.set_len(len)
    }
    fn sync_data(&self) -> Result<()> {
        self.counts.syncs.fetch_add(1, Relaxed);
        self.file.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.counts.writes.fetch_add(1, Relaxed);
        self.counts.write_bytes.fetch_add(data.len() as u64, Relaxed);
        self.file.write_all_at(data, offset)
    }
}

/// A disk in memory. Writes are pending until a sync. After `budget` changing calls every call
/// fails, as if the machine had lost power; with `one_error` only the next one fails.
#[derive(Debug)]
pub struct Disk {
    pub durable: Vec<u8>,
    pub current: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
    pub budget: u64,
    pub calls: u64,
    pub trace: u64,
    pub lengths: u64,
    pub sync_lies: bool,
    pub one_error: bool,
}

pub const SECTOR: usize = 512;

impl Disk {
    pub fn new(image: Vec<u8>, budget: u64) -> Arc<Mutex<Disk>> {
        let current = image.clone();
        Arc::new(Mutex::new(Disk {
            durable: image,
            current,
            pending: Vec::new(),
            budget,
            calls: 0,
            trace: 0,
            lengths: 0,
            sync_lies: false,
            one_error: false,
        }))
    }

    fn step(&mut self, what: u64) -> Result<()> {
        self.trace = mix(self.trace ^ mix(what));
        self.calls += 1;
        if self.calls > self.budget && !(self.one_error && self.calls > self.budget + 1) {
            return Err(Error::other("simulated"));
        }
        Ok(())
    }

    /// What a disk may hold after the power went: each unsynced sector is kept or lost on its
    /// own, and the new length is kept or lost.
    pub fn after_crash(&self, seed: u64) -> Vec<u8> {
        let mut image = self.durable.clone();
        let keep_in_8 = [0, 1, 4, 7, 8][(mix(seed) % 5) as usize];
        let len = if mix(seed ^ 1) & 1 == 0 { self.durable.len() } else { self.current.len() };
        image.resize(len.max(self.current.len()).max(self.durable.len()), 0);
        for (n, (offset, data)) in self.pending.iter().enumerate() {
            let mut at = 0;
            while at < data.len() {
                let position = *offset as usize + at;
                let size = (SECTOR - position % SECTOR).min(data.len() - at);
                if mix(seed ^ mix((n as u64) << 32 | at as u64)) % 8 < keep_in_8 {
                    if image.len() < position + size {
                        image.resize(position + size, 0);
                    }
                    image[position..position + size].copy_from_slice(&data[at..at + size]);
                }
                at += size;
            }
        }
        image.resize(len, 0);
        image
    }
}

#[derive(Debug)]
pub struct SimDisk(pub Arc<Mutex<Disk>>);

impl StorageBackend for SimDisk {
    fn len(&self) -> Result<u64> {
        Ok(self.0.lock().unwrap().current.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let d = self.0.lock().unwrap();
        let from = offset as usize;
        match d.current.get(from..from + out.len()) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => return Err(Error::other("read past the end")),
        }
        Ok(())
    }
    fn set_len(&self, len: u64) -> Result<()> {
        let mut d = self.0.lock().unwrap();
        d.step(1 ^ (len << 8))?;
        d.lengths += 1;
        d.current.resize(len as usize, 0);
        Ok(())
    }
    fn sync_data(&self) -> Result<()> {
        let mut d = self.0.lock().unwrap();
        d.step(2)?;
        if !d.sync_lies {
            let d = &mut *d;
            d.durable.resize(d.current.len(), 0);
            for (offset, data) in d.pending.drain(..) {
                let (from, len) = (offset as usize, data.len());
                // A write may lie beyond a later, smaller length.
                if from + len <= d.durable.len() {
                    d.durable[from..from + len].copy_from_slice(&d.current[from..from + len]);
                }
            }
        }
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut d = self.0.lock().unwrap();
        let sum = data.iter().fold(0u64, |h, b| h.wrapping_mul(31) ^ u64::from(*b));
        // The write in progress when the power goes may still reach the disk in part.
        d.pending.push((offset, data.to_vec()));
        if let Err(e) = d.step(3 ^ (offset << 8) ^ sum) {
            if d.one_error {
                d.pending.pop();
            }
            return Err(e);
        }
        let from = offset as usize;
        d.current[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }
}
