//! Postings in memory: the four timelines of a segment that is not sealed yet.
//!
//! Every event is on four lists: its tenant's, and those of the tenant's app, type, and type with app. Names are
//! interned for the life of the segment, so the memory goes with it.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tidemill_model::{Position, Timestamp};

use super::query::PostingKey;
use super::sorted_list::SortedList;
use crate::codec::EventFields;

/// Stands for "all" in a key.
const ANY: u32 = u32::MAX;

/// The four timelines of the events of one segment, by the place of each event among them.
#[derive(Debug, Default)]
pub(in crate::log) struct Postings {
    names: HashMap<Box<str>, u32, RandomState>,
    keys: HashMap<Key, u32, RandomState>,
    /// The four lists of an event with these names.
    lists_of: HashMap<Key, [u32; 4], RandomState>,
    lists: Vec<SortedList>,
    positions: Vec<Position>,
    extent: Option<Extent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    tenant: u32,
    app: u32,
    event_type: u32,
}

/// The first and last moments of some events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub first: Timestamp,
    pub last: Timestamp,
    pub first_received: Timestamp,
    pub last_received: Timestamp,
}

impl Extent {
    fn widen(extent: Option<Self>, timestamp: Timestamp, received: Timestamp) -> Self {
        let old = extent.unwrap_or(Self {
            first: timestamp,
            last: timestamp,
            first_received: received,
            last_received: received,
        });
        Self {
            first: old.first.min(timestamp),
            last: old.last.max(timestamp),
            first_received: old.first_received.min(received),
            last_received: old.last_received.max(received),
        }
    }
}

impl Postings {
    /// Adds the next event.
    pub(in crate::log) fn push(&mut self, fields: &EventFields<'_>) {
        let item = u32::try_from(self.positions.len()).expect("a segment has fewer than 2^32 events");
        let position = fields.position();
        let lists = self.lists_for(fields);
        for list in lists {
            let positions = &self.positions;
            self.lists[list as usize].insert(item, |other| positions[other as usize] < position);
        }
        self.positions.push(position);
        self.extent = Some(Extent::widen(self.extent, fields.timestamp, fields.received_at));
    }

    /// How many events there are.
    pub(in crate::log) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(in crate::log) fn extent(&self) -> Option<Extent> {
        self.extent
    }

    pub(in crate::log) fn position(&self, item: u32) -> Position {
        self.positions[item as usize]
    }

    /// The events of a timeline, if any has these names.
    pub(in crate::log) fn list(&self, key: &PostingKey<'_>) -> Option<&SortedList> {
        let name = |name: &str| self.names.get(name).copied();
        let optional = |part: Option<&str>| part.map_or(Some(ANY), name);
        let key =
            Key { tenant: name(key.tenant)?, app: optional(key.app)?, event_type: optional(key.event_type)? };
        self.keys.get(&key).map(|list| &self.lists[*list as usize])
    }

    /// All timelines, in no order.
    pub(in crate::log) fn lists(&self) -> impl Iterator<Item = (PostingKey<'_>, &SortedList)> {
        let mut names = vec![""; self.names.len()];
        for (name, number) in &self.names {
            names[*number as usize] = name;
        }
        self.keys.iter().map(move |(key, list)| {
            let optional = |name: u32| (name != ANY).then(|| names[name as usize]);
            let (app, event_type) = (optional(key.app), optional(key.event_type));
            let key = PostingKey { tenant: names[key.tenant as usize], app, event_type };
            (key, &self.lists[*list as usize])
        })
    }

    fn lists_for(&mut self, fields: &EventFields<'_>) -> [u32; 4] {
        let tenant = self.intern(fields.tenant);
        let app = self.intern(fields.app);
        let event_type = self.intern(fields.event_type);
        let key = Key { tenant, app, event_type };
        if let Some(lists) = self.lists_of.get(&key) {
            return *lists;
        }
        let mut list = |app, event_type| {
            *self.keys.entry(Key { tenant, app, event_type }).or_insert_with(|| {
                self.lists.push(SortedList::default());
                u32::try_from(self.lists.len() - 1).expect("four lists per event at most")
            })
        };
        let lists = [list(ANY, ANY), list(app, ANY), list(ANY, event_type), list(app, event_type)];
        self.lists_of.insert(key, lists);
        lists
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).expect("three names per event at most");
        self.names.insert(name.into(), number);
        number
    }
}
