//! Keys: the sixteen attributes under which an event is found.
//!
//! Every key is a function of the event's fields and is spelled here only. A sort key is its index's prefix, the 13
//! digits of the timestamp and, in the table itself, the event's id. Readers search by the very same prefix, which
//! always ends in `TIMESTAMP#`; and since no id holds `#`, the prefix of one thing never matches the keys of another.

use crate::events::event::{Event, Position};
use crate::values::id::EventId;
use crate::values::sink::Sink;
use crate::values::time::Timestamp;

/// The table or one of its seven secondary indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Index {
    /// The table itself: everything of one tenant.
    Primary,
    /// One entity.
    Gsi1,
    /// One app.
    Gsi2,
    /// One entity within an app.
    Gsi3,
    /// One event type.
    Gsi4,
    /// One event type of one entity.
    Gsi5,
    /// One event type within an app.
    Gsi6,
    /// One event type of one entity within an app.
    Gsi7,
}

impl Index {
    pub const ALL: [Self; 8] =
        [Self::Primary, Self::Gsi1, Self::Gsi2, Self::Gsi3, Self::Gsi4, Self::Gsi5, Self::Gsi6, Self::Gsi7];

    /// The name of the secondary index; the table itself has none.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Primary => None,
            Self::Gsi1 => Some("GSI1-index"),
            Self::Gsi2 => Some("GSI2-index"),
            Self::Gsi3 => Some("GSI3-index"),
            Self::Gsi4 => Some("GSI4-index"),
            Self::Gsi5 => Some("GSI5-index"),
            Self::Gsi6 => Some("GSI6-index"),
            Self::Gsi7 => Some("GSI7-index"),
        }
    }

    /// The names of its partition key and its sort key.
    pub fn attributes(self) -> [&'static str; 2] {
        match self {
            Self::Primary => ["PK", "SK"],
            Self::Gsi1 => ["GSI1PK", "GSI1SK"],
            Self::Gsi2 => ["GSI2PK", "GSI2SK"],
            Self::Gsi3 => ["GSI3PK", "GSI3SK"],
            Self::Gsi4 => ["GSI4PK", "GSI4SK"],
            Self::Gsi5 => ["GSI5PK", "GSI5SK"],
            Self::Gsi6 => ["GSI6PK", "GSI6SK"],
            Self::Gsi7 => ["GSI7PK", "GSI7SK"],
        }
    }
}

/// The key attributes of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys([KeyPair; 8]);

/// Partition key and sort key in one index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    pub pk: String,
    pub sk: String,
}

impl Keys {
    pub fn of(event: &Event) -> Self {
        let mut id = [0; 36];
        let digits = event.timestamp.digits();
        let fields = KeyFields::of(event, &digits, &mut id);
        Self(Index::ALL.map(|index| {
            let mut pair = KeyPair { pk: String::with_capacity(48), sk: String::with_capacity(112) };
            fields.write_pk(index, &mut pair.pk);
            fields.write_sk(index, &mut pair.sk);
            pair
        }))
    }

    pub fn get(&self, index: Index) -> &KeyPair {
        &self.0[index as usize]
    }

    /// All sixteen, each with the name of its attribute.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, &str)> {
        Index::ALL.iter().zip(&self.0).flat_map(|(index, pair)| {
            let [pk, sk] = index.attributes();
            [(pk, pair.pk.as_str()), (sk, pair.sk.as_str())]
        })
    }
}

/// What a reader asks an index for: one partition, and the sort keys that begin with a text.
///
/// The partition keys of `Gsi1` to `Gsi3` do not name the tenant. A reader of a table with several tenants must
/// filter by `tenantId` as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPrefix {
    pub index: Index,
    pub pk: String,
    /// Always ends in `TIMESTAMP#`.
    pub sk: String,
}

impl KeyPrefix {
    pub(crate) fn of(index: Index, names: KeyNames<'_>) -> Self {
        let fields = KeyFields { names, millis: "", event_id: "" };
        let mut prefix = Self { index, pk: String::new(), sk: String::new() };
        fields.write_pk(index, &mut prefix.pk);
        fields.write_sk_prefix(index, &mut prefix.sk);
        prefix
    }

    /// The lowest sort key of an event at or after `from`.
    pub fn lower(&self, from: Timestamp) -> String {
        format!("{}{from}", self.sk)
    }

    /// A sort key at or above those of all events up to `to`, and below those of later events.
    pub fn upper(&self, to: Timestamp) -> String {
        // In the table the event's id follows the time; `~` sorts after every digit of an id.
        let tail = if self.index == Index::Primary { "#EVENT#~" } else { "" };
        format!("{}{to}{tail}", self.sk)
    }

    /// Whether an event with these keys is in the answer.
    pub fn matches(&self, keys: &Keys) -> bool {
        let pair = keys.get(self.index);
        pair.pk == self.pk && pair.sk.starts_with(&self.sk)
    }
}

/// A text that is not a sort key of the events table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("SK is {found:?}; it must be TIMESTAMP#, 13 digits, #EVENT# and a lower-case UUID")]
pub struct BadSortKey {
    pub found: String,
}

/// Reads a sort key of the table back.
///
/// Only the canonical spelling is taken: another one would sort differently from the event it names.
pub fn parse_sk(text: &str) -> Result<Position, BadSortKey> {
    read_sk(text).ok_or_else(|| BadSortKey { found: text.to_owned() })
}

fn read_sk(text: &str) -> Option<Position> {
    let (digits, uuid) = text.strip_prefix("TIMESTAMP#")?.split_once("#EVENT#")?;
    if digits.len() != 13 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let timestamp = Timestamp::new("SK", digits.parse().ok()?).ok()?;
    let id = EventId::new(uuid).ok()?;
    (id.encode(&mut [0; 36]) == uuid).then_some(Position { timestamp, id })
}

/// The names that keys are made of. A query leaves those empty that its index does not use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct KeyNames<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) app: &'a str,
    pub(crate) entity_type: &'a str,
    pub(crate) entity_id: &'a str,
    pub(crate) event_type: &'a str,
}

/// The names and the moment of one event, as text ready to be copied into keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyFields<'a> {
    pub(crate) names: KeyNames<'a>,
    /// 13 digits.
    pub(crate) millis: &'a str,
    pub(crate) event_id: &'a str,
}

impl<'a> KeyFields<'a> {
    pub(crate) fn of(event: &'a Event, digits: &'a [u8; 13], id: &'a mut [u8; 36]) -> Self {
        Self {
            names: KeyNames {
                tenant: event.tenant.as_str(),
                app: event.app.as_str(),
                entity_type: event.entity.kind.as_str(),
                entity_id: event.entity.id.as_str(),
                event_type: event.event_type.as_str(),
            },
            millis: ascii(digits),
            event_id: event.id.encode(id),
        }
    }

    pub(crate) fn write_pk(&self, index: Index, out: &mut impl Sink) {
        let names = &self.names;
        match index {
            Index::Primary => put(out, &["TENANT#", names.tenant]),
            Index::Gsi1 => put(out, &[names.entity_type, "#", names.entity_id]),
            Index::Gsi2 | Index::Gsi3 => put(out, &["APP#", names.app]),
            Index::Gsi4 | Index::Gsi5 | Index::Gsi6 | Index::Gsi7 => put(out, &["EVENT#", names.event_type]),
        }
    }

    pub(crate) fn write_sk(&self, index: Index, out: &mut impl Sink) {
        self.write_sk_prefix(index, out);
        out.put(self.millis);
        if index == Index::Primary {
            put(out, &["#EVENT#", self.event_id]);
        }
    }

    fn write_sk_prefix(&self, index: Index, out: &mut impl Sink) {
        let KeyNames { tenant, app, entity_type, entity_id, .. } = self.names;
        match index {
            Index::Primary | Index::Gsi2 => {}
            Index::Gsi1 => put(out, &[entity_type, "#"]),
            Index::Gsi3 => put(out, &[entity_type, "#", entity_id, "#"]),
            Index::Gsi4 => put(out, &["TENANT#", tenant, "#"]),
            Index::Gsi5 => put(out, &["TENANT#", tenant, "#", entity_type, "#", entity_id, "#"]),
            Index::Gsi6 => put(out, &["TENANT#", tenant, "#APP#", app, "#"]),
            Index::Gsi7 => {
                put(out, &["TENANT#", tenant, "#APP#", app, "#", entity_type, "#", entity_id, "#"]);
            }
        }
        out.put("TIMESTAMP#");
    }
}

fn put(out: &mut impl Sink, pieces: &[&str]) {
    for piece in pieces {
        out.put(piece);
    }
}

pub(crate) fn ascii(digits: &[u8; 13]) -> &str {
    std::str::from_utf8(digits).expect("decimal digits are ASCII")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::events::access_path::AccessPath;
    use crate::events::event::Entity;
    use crate::sample;

    #[test]
    fn the_documented_event_has_the_documented_keys() {
        let event = sample::documented_event();
        let expected = [
            ("PK", "TENANT#gbinnovations"),
            ("SK", "TIMESTAMP#1767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352"),
            ("GSI1PK", "TASK#req-123"),
            ("GSI1SK", "TASK#TIMESTAMP#1767453739640"),
            ("GSI2PK", "APP#task-workflow"),
            ("GSI2SK", "TIMESTAMP#1767453739640"),
            ("GSI3PK", "APP#task-workflow"),
            ("GSI3SK", "TASK#req-123#TIMESTAMP#1767453739640"),
            ("GSI4PK", "EVENT#Task Processing Started"),
            ("GSI4SK", "TENANT#gbinnovations#TIMESTAMP#1767453739640"),
            ("GSI5PK", "EVENT#Task Processing Started"),
            ("GSI5SK", "TENANT#gbinnovations#TASK#req-123#TIMESTAMP#1767453739640"),
            ("GSI6PK", "EVENT#Task Processing Started"),
            ("GSI6SK", "TENANT#gbinnovations#APP#task-workflow#TIMESTAMP#1767453739640"),
            ("GSI7PK", "EVENT#Task Processing Started"),
            ("GSI7SK", "TENANT#gbinnovations#APP#task-workflow#TASK#req-123#TIMESTAMP#1767453739640"),
        ];
        let keys = Keys::of(&event);
        assert_eq!(keys.attributes().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_job_event_has_the_job_prefix_in_every_entity_key() {
        let mut event = sample::documented_event();
        event.entity = Entity::job(crate::values::id::JobId::from_u128(7));
        let keys = Keys::of(&event);
        assert_eq!(keys.get(Index::Gsi1).pk, "JOB#job-00000000000000000000000000000007");
        assert_eq!(keys.get(Index::Gsi1).sk, "JOB#TIMESTAMP#1767453739640");
        assert!(keys.get(Index::Gsi3).sk.starts_with("JOB#job-00000000000000000000000000000007#TIMESTAMP#"));
    }

    #[test]
    fn only_the_canonical_sort_key_is_read() {
        for (text, fits) in [
            ("TIMESTAMP#1767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352", true),
            ("TIMESTAMP#1767453739640#EVENT#DDF71F63-b036-4ac7-ad0f-77a7fdfca352", false),
            ("TIMESTAMP#1767453739640#EVENT#ddf71f63b0364ac7ad0f77a7fdfca352", false),
            ("TIMESTAMP#176745373964#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352", false),
            ("TIMESTAMP#+767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352", false),
            ("TIMESTAMP#0767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352", false),
            ("TIMESTAMP#1767453739640#EVENT#ddf71f63-b036-4ac7-ad0f-77a7fdfca352#", false),
            ("TIMESTAMP#1767453739640", false),
            ("", false),
        ] {
            assert_eq!(parse_sk(text).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn a_range_of_the_table_includes_all_ids_of_its_last_millisecond() {
        let event = sample::documented_event();
        let prefix = AccessPath::Tenant.prefix(&event.tenant);
        let sk = Keys::of(&event).get(Index::Primary).sk.clone();
        let next = event.timestamp.plus(1);
        assert!(prefix.lower(event.timestamp) <= sk && sk <= prefix.upper(event.timestamp));
        assert!(prefix.upper(event.timestamp) < prefix.lower(next));
        assert!(sk < prefix.lower(next));
    }

    proptest! {
        #[test]
        fn no_prefix_of_one_entity_matches_another(a in sample::event(), b in sample::event()) {
            let keys = Keys::of(&b);
            for path in sample::paths_of(&a) {
                let prefix = path.prefix(&a.tenant);
                prop_assert!(prefix.sk.ends_with("TIMESTAMP#"));
                prop_assert!(prefix.matches(&Keys::of(&a)), "{path:?}");
                // The first three secondary indexes do not name the tenant; there the reader compares it.
                let found = prefix.matches(&keys) && a.tenant == b.tenant;
                prop_assert_eq!(found, a.tenant == b.tenant && path.contains(&b), "{:?} {:?}", path, keys);
            }
        }

        #[test]
        fn sort_keys_order_like_time_and_id(a in sample::event(), b in sample::event()) {
            let [left, right] = [&a, &b].map(|event| Keys::of(event).get(Index::Primary).sk.clone());
            prop_assert_eq!(left.cmp(&right), a.position().cmp(&b.position()));
            prop_assert_eq!(parse_sk(&left), Ok(a.position()));
        }
    }
}
