//! Looks at single parts of the store, for offline tools and the simulation.

use std::collections::BTreeMap;

use tidemill_engine::backend::Fault;
use tidemill_engine::record::{Record, RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey};

use super::{Store, row_key};
use crate::log::{Seq, StoredEvent};

impl Store {
    /// The events from the number `from` on, in the order of the log, at most `limit`.
    pub fn events_from(&self, from: Seq, limit: usize) -> Result<Vec<StoredEvent>, Fault> {
        Ok(self.reader.read_from(from, limit)?)
    }

    /// A row as it stands, in memory or stored.
    pub fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        self.decider.row(key)
    }

    /// All records of a kind, of all tenants, in the order of their keys.
    pub fn records(&self, kind: RecordKind) -> Result<Vec<(RecordKey, Record)>, Fault> {
        let mut found = BTreeMap::new();
        self.rows.scan(&[row_key::RECORD], &mut |key, row| {
            if let (RowKey::Record(key), Row::Record(record)) = (key, row)
                && key.kind == kind
            {
                found.insert(key, record);
            }
            true
        })?;
        for (key, record) in self.decider.state.records().filter(|(key, _)| key.kind == kind) {
            match record {
                Some(record) => found.insert(key.clone(), record.clone()),
                None => found.remove(key),
            };
        }
        Ok(found.into_iter().collect())
    }

    /// Makes the file for the next segment, if there is none. Says whether it did.
    pub fn prepare_segment(&mut self) -> Result<bool, Fault> {
        Ok(self.keeper.prepare_spare()?)
    }
}
