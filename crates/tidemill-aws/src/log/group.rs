//! A group of commits as bytes: what one item of the log holds.
//!
//! A version, then entries: a kind, a length and the bytes of an event or a control entry. Events get their numbers from
//! the number of the item: they need none of their own, and an event is found by its number without an index.

use tidemill_engine::backend::Fault;
use tidemill_engine::codec::control::{Control, each_control};
use tidemill_engine::codec::{BadBytes, Reader, decode_event, encode_event, put_varint};
use tidemill_engine::commit::Commit;
use tidemill_engine::state::trail::{Links, Seq};
use tidemill_model::Event;

use crate::fault::damaged;

const VERSION: u8 = 1;
const CONTROL: u8 = 1;
const EVENT: u8 = 2;
/// How many bits of an event's number tell its place in its group; the others are the number of the group.
const PLACE_BITS: u32 = 20;
/// The most events of a group.
pub(crate) const EVENTS_MAX: usize = 1 << PLACE_BITS;

/// The number of the first event of a group.
pub(crate) fn first_seq(group: u64) -> Seq {
    Seq(group << PLACE_BITS)
}

/// The group that an event with this number is in.
pub(crate) fn group_of(seq: u64) -> u64 {
    seq >> PLACE_BITS
}

#[derive(Debug, Default)]
pub(crate) struct Group {
    bytes: Vec<u8>,
    events: usize,
    scratch: Vec<u8>,
}

/// One part of a group.
pub(crate) enum Entry {
    Control(Control),
    Event(Seq, Event),
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn event_count(&self) -> usize {
        self.events
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes back what was added after the group had this many bytes and events.
    pub(crate) fn cut(&mut self, bytes: usize, events: usize) {
        self.bytes.truncate(bytes);
        self.events = events;
    }

    pub(crate) fn push(&mut self, commit: &Commit) {
        if self.bytes.is_empty() {
            self.bytes.push(VERSION);
        }
        let Self { bytes, scratch, .. } = self;
        each_control(commit, |put| {
            scratch.clear();
            put(scratch);
            put_entry(bytes, CONTROL, scratch);
        });
        for event in &commit.events {
            scratch.clear();
            // The chains of an entity are for a log that is searched; here the indexes of the table are.
            encode_event(scratch, Seq::FIRST, event, &Links::default());
            put_entry(bytes, EVENT, scratch);
        }
        self.events += commit.events.len();
    }
}

fn put_entry(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The entries of the group with this number, in order.
pub(crate) fn read_group(number: u64, bytes: &[u8]) -> Result<Vec<Entry>, Fault> {
    match bytes.first() {
        Some(&VERSION) => {}
        Some(&newer) if newer > VERSION => {
            return Err(Fault::Newer(format!("item {number} of the log has form {newer}")));
        }
        _ => return Err(damaged(format!("item {number} of the log has no form"))),
    }
    entries(number, &bytes[1..]).map_err(|error| damaged(format!("item {number} of the log {error}")))
}

fn entries(number: u64, bytes: &[u8]) -> Result<Vec<Entry>, BadBytes> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    let mut seq = first_seq(number);
    while !reader.is_at_end() {
        let kind = reader.byte()?;
        let length = usize::try_from(reader.varint()?).map_err(|_| BadBytes("holds an entry without end"))?;
        let bytes = reader.take(length)?;
        entries.push(match kind {
            CONTROL => Entry::Control(Control::decode(bytes)?),
            EVENT => {
                let event = decode_event(Seq::FIRST, bytes)?.event;
                let own = seq;
                seq = seq.next();
                Entry::Event(own, event)
            }
            _ => return Err(BadBytes("holds an unknown kind of entry")),
        });
    }
    Ok(entries)
}
