//! Data directories that were written by the code of another day, unpacked for a test.

use std::path::Path;
use std::sync::Arc;

use tidemill_embedded::log::LogConfig;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_model::Timestamp;

use crate::lab::{Fresh, Lab};

/// After everything that happened in a specimen.
pub(crate) const NOW: u64 = 2_000_000_000_000;

/// A specimen, unpacked.
pub(crate) struct Specimen {
    pub(crate) dir: Fresh,
    /// What the code that wrote it said of it, line by line, as an export.
    pub(crate) export: Vec<String>,
}

/// Unpacks a specimen by its name. `crates/tidemill-sim/tests/it/specimen.rs` writes them.
pub(crate) fn unpack(name: &str) -> Specimen {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let packed = std::fs::read(path).unwrap();
    let tar = zstd::decode_all(packed.as_slice()).unwrap();
    let dir = Fresh::new();
    let mut export = None;
    let mut rest = tar.as_slice();
    while let Some((head, behind)) = rest.split_at_checked(512)
        && head[0] != 0
    {
        let text = |bytes: &[u8]| {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            String::from_utf8(bytes[..end].to_vec()).unwrap()
        };
        let (path, length) = (text(&head[..100]), usize::from_str_radix(&text(&head[124..136]), 8).unwrap());
        let bytes = &behind[..length];
        if path == "export.jsonl" {
            export = Some(text(bytes));
        } else {
            let path = dir.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        rest = &behind[length.next_multiple_of(512)..];
    }
    let export = export.expect("a specimen has an export").lines().map(str::to_owned).collect();
    Specimen { dir, export }
}

/// How specimens are opened: with small segments, as they were written. No page of rows stays in memory.
pub(crate) fn options() -> StoreOptions {
    let log = LogConfig { segment_bytes: 64 << 10, ..crate::lab::small().log };
    StoreOptions { log, row_cache_bytes: 0, ..StoreOptions::default() }
}

pub(crate) fn open(dir: &Path) -> Lab {
    let store = Store::open(Arc::new(RealDisk::new(dir).unwrap()), options()).unwrap();
    Lab { store, now: Timestamp::clamped(NOW) }
}
