//! A group: the entries that reach the disk together or not at all.

use tidemill_model::{AppName, Event, EventType, Position, TenantId, Timestamp};

use super::entry::{EntryKind, put_entry};
use super::{Links, Seq};
use crate::codec::{self, EventFields};

/// The most bytes a group may have.
pub const GROUP_BYTES_MAX: usize = 256 << 20;

/// From this many bytes on, a commit gets its room at once.
const LARGE_BYTES: usize = 1 << 20;
/// The group keeps up to this many bytes of memory.
const KEPT_BYTES: usize = 8 << 20;

/// Collects the entries of one group, in order. Clear it to use it again.
#[derive(Debug, Default)]
pub struct Group {
    bytes: Vec<u8>,
    first_seq: Option<Seq>,
    controls: u32,
    events: Vec<GroupEvent>,
}

/// What postings need of an event in a group.
#[derive(Debug)]
pub(super) struct GroupEvent {
    tenant: TenantId,
    app: AppName,
    event_type: EventType,
    position: Position,
    received_at: Timestamp,
    /// Where the event's bytes lie in the group's.
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl GroupEvent {
    pub(super) fn fields(&self) -> EventFields<'_> {
        EventFields {
            tenant: self.tenant.as_str(),
            app: self.app.as_str(),
            event_type: self.event_type.as_str(),
            timestamp: self.position.timestamp,
            received_at: self.received_at,
            id: self.position.id,
        }
    }
}

impl Group {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for a large commit at once: a buffer that grows by doubling would take up to three times as much.
    pub(crate) fn make_room(&mut self, bytes: usize) {
        if bytes >= LARGE_BYTES {
            self.bytes.reserve_exact(bytes);
        }
    }

    /// Appends an event. Its number must follow the last one's; the log checks the first.
    pub fn push_event(&mut self, seq: Seq, event: &Event, links: &Links) {
        debug_assert_eq!(self.first_seq.map_or(seq.0, |first| first.0 + self.events.len() as u64), seq.0);
        self.first_seq.get_or_insert(seq);
        let range =
            put_entry(&mut self.bytes, EntryKind::Event, |out| codec::encode_event(out, seq, event, links));
        self.events.push(GroupEvent {
            tenant: event.tenant.clone(),
            app: event.app.clone(),
            event_type: event.event_type.clone(),
            position: event.position(),
            received_at: event.received_at,
            offset: range.start,
            len: range.len(),
        });
    }

    /// Appends a control entry: bytes whose meaning only the store knows.
    pub fn push_control(&mut self, bytes: &[u8]) {
        self.put_control(|out| out.extend_from_slice(bytes));
    }

    /// Appends a control entry that is written in its place. `put` only appends.
    pub(crate) fn put_control(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        put_entry(&mut self.bytes, EntryKind::Control, put);
        self.controls += 1;
    }

    /// Takes everything out and keeps the memory, but for that of a very large group.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES {
            *self = Self::default();
        }
        self.bytes.clear();
        self.events.clear();
        self.first_seq = None;
        self.controls = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes the group will take in the log, but for a header.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The number of the first event, if there is one.
    pub fn first_seq(&self) -> Option<Seq> {
        self.first_seq
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn events(&self) -> &[GroupEvent] {
        &self.events
    }

    pub(super) fn control_count(&self) -> u32 {
        self.controls
    }
}
