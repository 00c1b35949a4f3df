//! Streams: the events of one entity as a chain through the log.

use tidemill_model::Timestamp;

use super::trail::{History, Links, Seq};

/// Where the chain of one entity's events stands.
///
/// Events aside (heartbeats) hang beside the chain, so that they can expire without breaking it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub history: History,
    /// The latest timestamp of any event of the entity.
    pub last_timestamp: Option<Timestamp>,
    /// Whether timestamps along the chain went back at some point.
    pub disordered: bool,
}

impl Stream {
    /// Events in the chain, those aside not counted.
    pub fn version(&self) -> u64 {
        self.history.main.count()
    }

    /// The number of the newest event of the entity, whichever chain it is in.
    pub fn newest(&self) -> Option<Seq> {
        self.history.main.tip().max(self.history.aside.tip())
    }

    /// Takes an event into the chain, or beside it, and gives the pointers to store with it.
    pub fn push(&mut self, seq: Seq, timestamp: Timestamp, is_aside: bool) -> Links {
        if self.last_timestamp.is_some_and(|last| timestamp < last) {
            self.disordered = true;
        }
        self.last_timestamp = self.last_timestamp.max(Some(timestamp));
        if is_aside { self.history.push_aside(seq) } else { self.history.push_main(seq) }
    }
}
