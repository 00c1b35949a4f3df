//! The conformance suite on the embedded backend: once as users run it, once with everything made small.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_conformance::{ManualClock, TestWorld, policy};
use tidemill_embedded::log::LogConfig;
use tidemill_embedded::{Embedded, StoreOptions};

/// A backend in a directory of its own.
struct DirectoryWorld {
    backend: Arc<Embedded>,
    directory: Directory,
    options: StoreOptions,
    /// Whether its process is killed rather than closed.
    killed: bool,
}

/// Removed when the test ends.
struct Directory(PathBuf);

impl Directory {
    fn fresh() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tidemill-conformance-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Another run does not look here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl TestWorld for DirectoryWorld {
    type Backend = Embedded;
    const REOPENS: bool = true;

    fn backend(&self) -> Arc<Embedded> {
        Arc::clone(&self.backend)
    }

    fn time_passed(&self) {
        self.backend.time_passed();
    }

    async fn reopen(self, clock: ManualClock) -> Option<Self> {
        let Self { backend, directory, options, killed } = self;
        let backend = Arc::into_inner(backend).expect("nobody else holds the backend");
        if killed {
            backend.abandon();
        } else {
            drop(backend);
        }
        Some(open(directory, options, killed, clock))
    }
}

fn open(directory: Directory, options: StoreOptions, killed: bool, clock: ManualClock) -> DirectoryWorld {
    let backend =
        Embedded::open(&directory.0, options.clone(), Arc::new(clock)).expect("the directory opens");
    DirectoryWorld { backend: Arc::new(backend), directory, options, killed }
}

mod as_users_run_it {
    use super::*;

    fn make(clock: ManualClock) -> DirectoryWorld {
        let log = LogConfig { segment_bytes: 4 << 20, hasty_segment_bytes: 1 << 20, ..LogConfig::default() };
        open(
            Directory::fresh(),
            StoreOptions { seed: 1, log, policy: policy(), ..StoreOptions::default() },
            false,
            clock,
        )
    }

    tidemill_conformance::conformance_tests!(make);
}

/// Segments of a few pages roll and seal all the time, and the process is killed instead of closed.
mod small_and_killed {
    use super::*;

    fn make(clock: ManualClock) -> DirectoryWorld {
        let log = LogConfig {
            segment_bytes: 64 << 10,
            hasty_segment_bytes: 16 << 10,
            block_bytes: 1 << 10,
            ..LogConfig::default()
        };
        open(
            Directory::fresh(),
            StoreOptions { seed: 1, log, policy: policy(), ..StoreOptions::default() },
            true,
            clock,
        )
    }

    tidemill_conformance::conformance_tests!(make);
}
