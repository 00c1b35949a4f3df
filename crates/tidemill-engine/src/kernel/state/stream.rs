//! Streams: the events of one entity as chains through the log.

use tidemill_model::{Position, Timestamp};

use crate::kernel::state::trail::{History, Links, Seq};

/// Where the chains of one entity's events stand.
///
/// The main chain is in order: each event comes after all before it, by time and id. What does not, because its sender
/// gave it a time in the past, hangs aside, so that one late event does not make all others hard to find. Heartbeats
/// hang aside too, so that they can expire without breaking the chain. No entity has both: tasks have no late events,
/// and nothing else has heartbeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stream {
    pub history: History,
    /// The latest time and id of any event of the entity.
    pub last: Option<Position>,
    /// What is known of the events aside, once one of them was late.
    pub late: Option<Box<Late>>,
}

/// How the events aside lie in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Late {
    /// None of them lies behind it.
    pub last: Position,
    /// How many milliseconds one of them lay before one that came earlier, at most; `None` when they are in order.
    pub lag_millis: Option<u64>,
}

impl Stream {
    /// Events in the main chain.
    pub fn version(&self) -> u64 {
        self.history.main.count()
    }

    /// The number of the newest event of the entity, whichever chain it is in.
    pub fn newest(&self) -> Option<Seq> {
        self.history.main.tip().max(self.history.aside.tip())
    }

    /// The latest time of any event of the entity.
    pub fn last_timestamp(&self) -> Option<Timestamp> {
        self.last.map(|last| last.timestamp)
    }

    /// How far the events aside are out of order; `None` when they are not.
    pub fn lag_millis(&self) -> Option<u64> {
        self.late.as_ref().and_then(|late| late.lag_millis)
    }

    /// Whether an event at this place belongs aside. `is_heartbeat` says that it does in any case.
    pub fn goes_aside(&self, position: Position, is_heartbeat: bool) -> bool {
        is_heartbeat || self.last.is_some_and(|last| position <= last)
    }

    /// Takes an event into the main chain, or aside, and gives the pointers to store with it.
    pub fn push(&mut self, seq: Seq, position: Position, is_heartbeat: bool) -> Links {
        let is_aside = self.goes_aside(position, is_heartbeat);
        if let Some(last) = self.last.filter(|last| position <= *last) {
            self.note_late(position, last);
        } else {
            if let Some(late) = self.late.as_mut().filter(|_| is_aside) {
                late.last = position;
            }
            self.last = Some(position);
        }
        if is_aside { self.history.push_aside(seq) } else { self.history.push_main(seq) }
    }

    fn note_late(&mut self, position: Position, last: Position) {
        // Heartbeats may hang there already; none lies behind the last event.
        let first = if self.history.aside.tip().is_some() { last } else { position };
        let late = self.late.get_or_insert_with(|| Box::new(Late { last: first, lag_millis: None }));
        if position < late.last {
            let behind = late.last.timestamp.since(position.timestamp);
            late.lag_millis = late.lag_millis.max(Some(behind));
        } else {
            late.last = position;
        }
    }
}
