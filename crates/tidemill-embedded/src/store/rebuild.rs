//! Rebuild: the derived rows are removed and made again from the log.

use std::sync::Arc;

use tidemill_engine::backend::Fault;

use super::row_store::RowStore;
use super::watch::Watch;
use super::{Store, StoreOptions};
use crate::disk::Disk;
use crate::log::Log;

impl Store {
    /// Removes the rows, makes them again and opens the store with them.
    ///
    /// Rows are all that is left of what a damaged log cannot give back. So they only go when every byte of the log is
    /// right and the log reaches as far as they do.
    pub fn rebuild(disk: Arc<dyn Disk>, options: StoreOptions, watch: &mut Watch<'_>) -> Result<Self, Fault> {
        let checkpoint = match RowStore::open(&disk)?.checkpoint() {
            Err(Fault::Damaged(_)) => None,
            checkpoint => checkpoint?,
        };
        let log =
            Log::open(Arc::clone(&disk), options.log, checkpoint.map(|checkpoint| checkpoint.position))?;
        let problems = log.keeper().verify()?;
        if let Some(first) = problems.first() {
            return Err(Fault::Damaged(match problems.len() - 1 {
                0 => format!("{first}; the rows were left as they are"),
                more => format!("{first}, and {more} more such findings; the rows were left as they are"),
            }));
        }
        drop(log);
        RowStore::remove(&disk)?;
        let mut store = Self::open_watched(disk, options, watch)?;
        store.flush_rows()?;
        Ok(store)
    }
}
