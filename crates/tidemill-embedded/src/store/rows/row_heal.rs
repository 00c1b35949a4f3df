//! Makes the rows again from the log while the store is open.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_engine::backend::Fault;

use super::row_store::RowStore;
use crate::log::LogReader;
use crate::store::{StoreOptions, derive};

/// What it takes to make the rows again.
pub(in crate::store) struct Healer {
    reader: LogReader,
    options: StoreOptions,
    /// Held by the thread that makes them.
    turn: Mutex<()>,
}

impl Healer {
    pub(in crate::store) fn new(reader: LogReader, options: StoreOptions) -> Self {
        Self { reader, options, turn: Mutex::new(()) }
    }

    pub(in crate::store) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::store) fn report(&self, sentence: &str) {
        self.options.tell.say(sentence);
    }

    /// Makes the rows beside the damaged ones, as far as the log is published now, and lets them take their place.
    ///
    /// What changed since is in memory: in the state, or among the fresh rows that reflect more than these. The damaged rows
    /// stay if the log cannot be read.
    pub(in crate::store) fn heal(&self, rows: &RowStore) -> Result<(), Fault> {
        let again = Arc::new(RowStore::beside(rows.disk(), rows.config())?);
        let (reflected, messages) = derive::rows_again(&again, &self.reader, &self.options)?;
        let again = Arc::into_inner(again)
            .ok_or_else(|| Fault::Stopped("somebody still uses the rows that were made again".to_owned()))?;
        rows.replace_with(again, reflected, messages)
    }
}
