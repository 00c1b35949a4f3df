//! Rebuild: the derived rows are removed and made again from the log.

use std::sync::Arc;

use tidemill_engine::backend::Fault;

use super::rows::row_store::{Former, RowStore};
use super::rows::row_trouble::RowConfig;
use super::watch::Watch;
use super::{Store, StoreOptions};
use crate::disk::Disk;

impl Store {
    /// Removes the rows, makes them again and opens the store with them.
    ///
    /// Rows are all that is left of what a damaged log cannot give back. So they only go when every byte of the log is
    /// right and the log reaches as far as they do.
    pub fn rebuild(disk: Arc<dyn Disk>, options: StoreOptions, watch: &mut Watch<'_>) -> Result<Self, Fault> {
        let checkpoint = match RowStore::former(&disk)? {
            Former::Rows(checkpoint) => checkpoint,
            Former::None => match RowStore::open(&disk, RowConfig::of(&options), &options.tell)?.checkpoint()
            {
                Err(Fault::Damaged(_)) => None,
                checkpoint => checkpoint?,
            },
        };
        Self::check_log(&disk, &options, checkpoint)?;
        RowStore::remove(&disk)?;
        let mut store = Self::open_watched(disk, options, watch)?;
        store.flush_rows()?;
        Ok(store)
    }
}
