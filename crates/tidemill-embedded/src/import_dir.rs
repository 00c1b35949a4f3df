//! An import into a data directory: all of it or nothing.
//!
//! The new store is made in a directory within the data directory and moved into place when it is whole. The log moves
//! last but for the rows, which it can make again: whenever the process dies, the data directory holds the old, empty
//! store or the new one.

use std::fs::{self, File};
use std::io::{self, BufRead};
use std::path::Path;
use std::sync::Arc;

use tidemill_engine::record::RecordKind;
use tidemill_engine::state::row::RowKey;
use tidemill_model::Timestamp;

use crate::data_lock::DataLock;
use crate::real_disk::RealDisk;
use crate::store::import::{ImportError, Imported};
use crate::store::watch::Watch;
use crate::store::{Store, StoreOptions};

/// Where the new store is made.
const STAGING: &str = "import.partial";
/// What the old store leaves there.
const REPLACED: &str = "replaced";

/// Makes the store of `dir`, which must be empty, from an export. `_lock` is that of the directory.
pub fn import_into(
    dir: &Path,
    _lock: &DataLock,
    options: StoreOptions,
    input: &mut dyn BufRead,
    now: Timestamp,
    watch: &mut Watch<'_>,
) -> Result<Imported, ImportError> {
    check_empty(dir, &options)?;
    let staging = dir.join(STAGING);
    remove_tree(&staging).map_err(ImportError::Directory)?;
    let made = make(&staging, options, input, now, watch);
    let moved = made.and_then(|imported| {
        move_in(dir, &staging).map_err(ImportError::Directory)?;
        Ok(imported)
    });
    // After an error its reason matters more than what is left, which the next import removes.
    let removed = remove_tree(&staging);
    let imported = moved?;
    removed.map_err(ImportError::Directory)?;
    Ok(imported)
}

fn make(
    staging: &Path,
    options: StoreOptions,
    input: &mut dyn BufRead,
    now: Timestamp,
    watch: &mut Watch<'_>,
) -> Result<Imported, ImportError> {
    let disk = RealDisk::new(staging).map_err(ImportError::Directory)?;
    Store::import(Arc::new(disk), options, input, now, watch)
}

/// A store is empty when nobody has put anything into it; what it notes about itself does not count.
fn check_empty(dir: &Path, options: &StoreOptions) -> Result<(), ImportError> {
    if !dir.join("log").exists() {
        return Ok(());
    }
    let disk = RealDisk::new(dir).map_err(ImportError::Directory)?;
    let mut store = Store::open(Arc::new(disk), options.clone())?;
    store.flush_rows()?;
    let events = store.reader.segments().iter().map(|segment| segment.events).sum::<u64>();
    if events > 0 {
        return Err(ImportError::NotEmpty { holds: format!("{events} events") });
    }
    let mut rows = 0;
    store.rows.scan(&[], &mut |key, _| {
        rows += u64::from(!matches!(key, RowKey::Record(key) if key.kind == RecordKind::System));
        true
    })?;
    if rows > 0 {
        return Err(ImportError::NotEmpty { holds: format!("{rows} records") });
    }
    Ok(())
}

fn move_in(dir: &Path, staging: &Path) -> io::Result<()> {
    let replaced = staging.join(REPLACED);
    fs::create_dir(&replaced)?;
    // Rows go before the log they were made from, and come after it.
    for name in ["derived", "log", "blobs"] {
        move_over(&dir.join(name), &replaced.join(name))?;
    }
    sync(dir)?;
    for name in ["blobs", "log", "derived"] {
        move_over(&staging.join(name), &dir.join(name))?;
        sync(dir)?;
    }
    Ok(())
}

/// Gives a directory another name, if there is such a directory.
fn move_over(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
