//! Handing a store over to another home: its events in their order, each large value before the event that names it, then
//! all rows, and that this was all.

use tidemill_engine::backend::Fault;
use tidemill_engine::piece::Piece;
use tidemill_model::events::overflow;

use super::rows::row_store::io_fault;
use super::{Store, row_key};
use crate::log::{Entry, LogError, LogPosition};

/// Rows are read in batches of this many.
const BATCH_ROWS: usize = 512;

/// Why the rest was not handed over.
#[derive(Debug)]
enum Stop {
    Fault(Fault),
    /// Nobody takes any more.
    Enough,
}

impl From<LogError> for Stop {
    fn from(error: LogError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Store {
    /// Hands everything to `take`, until it says no. Large values that are not there are passed over.
    pub fn hand_over(&mut self, take: &mut dyn FnMut(Piece) -> bool) -> Result<(), Fault> {
        // Rows that are in memory are read as well, so no space is needed.
        self.hold_rows()?;
        match self.hand_over_all(&mut |piece| if take(piece) { Ok(()) } else { Err(Stop::Enough) }) {
            Ok(()) | Err(Stop::Enough) => Ok(()),
            Err(Stop::Fault(fault)) => Err(fault),
        }
    }

    fn hand_over_all(&self, take: &mut dyn FnMut(Piece) -> Result<(), Stop>) -> Result<(), Stop> {
        self.reader.replay::<Stop>(LogPosition::START, |entry| {
            let Entry::Event(stored) = entry else { return Ok(()) };
            let event = stored.event;
            if let Ok(Some(place)) = overflow::reference(&event.properties) {
                let found = self.blobs.get(&event.tenant, &place.key);
                if let Some(bytes) = found.map_err(|error| io_fault(&error))? {
                    take(Piece::Blob { tenant: event.tenant.clone(), key: place.key, bytes })?;
                }
            }
            take(Piece::Event(Box::new(event)))
        })?;
        let mut from = Vec::new();
        loop {
            let mut batch = Vec::with_capacity(BATCH_ROWS);
            self.rows.scan_from(&[], &from, &mut |key, row| {
                batch.push((key, row));
                batch.len() < BATCH_ROWS
            })?;
            let Some((last, _)) = batch.last() else { return take(Piece::End) };
            from = row_key::bytes_of(last);
            from.push(0);
            for (key, row) in batch {
                take(Piece::Row(Box::new((key, row))))?;
            }
        }
    }
}
