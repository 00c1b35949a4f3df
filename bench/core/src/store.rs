//! Stores to measure, each in a fresh directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::clock::SystemClock;

use crate::counting_disk::{CountingDisk, Counts};

pub struct TestStore {
    pub backend: Arc<Embedded>,
    pub counts: Arc<Counts>,
    pub dir: PathBuf,
}

impl TestStore {
    /// An empty store in `dir/name`, which is removed first.
    pub fn fresh(dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        let _ = std::fs::remove_dir_all(&dir);
        Self::open(&dir)
    }

    pub fn open(dir: &Path) -> Self {
        let counts = Arc::new(Counts::default());
        let disk = CountingDisk::new(dir, &counts).expect("the directory can be used");
        let backend = Embedded::open_on(Arc::new(disk), options(), Arc::new(SystemClock::start()));
        Self { backend: Arc::new(backend.expect("the store opens")), counts, dir: dir.to_owned() }
    }

    pub fn syncs(&self) -> u64 {
        self.counts.syncs.load(Ordering::Relaxed)
    }

    /// Ends all background work that is due.
    pub fn settle(&self) {
        self.backend.checkpoint().expect("rows can be written");
        self.backend.seal_all().expect("segments can be sealed");
    }

    /// Closes the store and removes its directory.
    pub fn discard(self) {
        drop(self.backend);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

pub fn options() -> StoreOptions {
    static LIVES: AtomicU64 = AtomicU64::new(1);
    let life = LIVES.fetch_add(1, Ordering::Relaxed);
    StoreOptions { seed: u64::from(std::process::id()) << 32 | life, ..StoreOptions::default() }
}

/// The length of all files in a directory.
pub fn bytes_on_disk(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|data| data.is_file())
        .map(|data| data.len())
        .sum()
}
