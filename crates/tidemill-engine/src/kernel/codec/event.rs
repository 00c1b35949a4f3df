//! An event as bytes.
//!
//! Layout, version 1: version, flags, timestamp (6 bytes), id (its time as a difference, 10 bytes), receivedAt as a
//! difference, event type, tenant, app; then entity, context, ttl, links, what its sender wrote beside and, to the end, the
//! properties as JSON text.
//! What indexes need comes first, so that it can be read without the rest. Links are written as distances to the
//! event's own sequence number, which the place of the event tells.

use tidemill_model::{
    AppName, Beside, Context, Entity, EntityId, Event, EventId, Json, Position, TenantId, Timestamp, WorkerId,
};

use crate::kernel::codec::bytes::{BadBytes, Reader, put_text, put_varint, unzigzag, zigzag};
use crate::kernel::codec::word::{ENTITY_TYPES, ENVIRONMENTS, EVENT_TYPES, ORIGINS};
use crate::kernel::state::trail::{Links, Seq};

const VERSION: u8 = 1;
const HAS_WORKER: u8 = 1;
const HAS_TTL: u8 = 2;
/// It hangs beside its entity's main chain.
const IS_ASIDE: u8 = 4;
/// Its sender wrote more than its fields say: the context and the further fields follow the links, each empty if there is
/// nothing.
const HAS_BESIDE: u8 = 8;
/// A UUID's low 80 bits; the high 48 of version 7 are its time.
const ID_LOW_BITS: u32 = 80;

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    pub seq: Seq,
    pub event: Event,
    pub links: Links,
}

/// What indexes and filters need of an event, borrowed from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventFields<'a> {
    pub tenant: &'a str,
    pub app: &'a str,
    pub event_type: &'a str,
    pub timestamp: Timestamp,
    pub received_at: Timestamp,
    pub id: EventId,
}

impl EventFields<'_> {
    /// The place of this event in every access path.
    pub fn position(&self) -> Position {
        Position { timestamp: self.timestamp, id: self.id }
    }
}

/// Appends the bytes of `event`, which has the number `seq`.
pub fn encode_event(out: &mut Vec<u8>, seq: Seq, event: &Event, links: &Links) {
    let worker = event.context.worker_id.as_ref();
    let flags = if worker.is_some() { HAS_WORKER } else { 0 }
        | if event.ttl.is_some() { HAS_TTL } else { 0 }
        | if links.is_aside { IS_ASIDE } else { 0 }
        | if event.beside.is_some() { HAS_BESIDE } else { 0 };
    let millis = event.timestamp.millis();
    out.extend_from_slice(&[VERSION, flags]);
    out.extend_from_slice(&millis.to_le_bytes()[..6]);
    let id = event.id.as_u128();
    let id_millis = u64::try_from(id >> ID_LOW_BITS).expect("48 bits are left");
    put_varint(out, zigzag(difference(id_millis, millis)));
    out.extend_from_slice(&id.to_le_bytes()[..10]);
    put_varint(out, zigzag(difference(event.received_at.millis(), millis)));
    EVENT_TYPES.put(out, event.event_type.as_str());
    put_text(out, event.tenant.as_str());
    put_text(out, event.app.as_str());

    ENTITY_TYPES.put(out, event.entity.kind.as_str());
    put_text(out, event.entity.id.as_str());
    ENVIRONMENTS.put(out, &event.context.environment);
    ORIGINS.put(out, &event.context.origin);
    if let Some(worker) = worker {
        put_text(out, worker.as_str());
    }
    if let Some(ttl) = event.ttl {
        put_varint(out, ttl);
    }
    for link in [links.prev, links.aside, links.jump] {
        put_varint(out, link.map_or(0, |target| seq.0.saturating_sub(target.0)));
    }
    put_varint(out, links.ordinal);
    if let Some(beside) = &event.beside {
        for part in [&beside.context, &beside.fields] {
            put_text(out, part.as_ref().map_or("", Json::as_str));
        }
    }
    out.extend_from_slice(event.properties.as_str().as_bytes());
}

/// Reads the event that has the number `seq` and these bytes.
pub fn decode_event(seq: Seq, bytes: &[u8]) -> Result<StoredEvent, BadBytes> {
    let mut reader = Reader::new(bytes);
    let head = Head::read(&mut reader)?;
    let event_type = EVENT_TYPES.read(&mut reader)?;
    let tenant = TenantId::trusted(reader.text()?);
    let app = AppName::trusted(reader.text()?);
    let kind = ENTITY_TYPES.read(&mut reader)?;
    let entity = Entity { kind, id: EntityId::trusted(reader.text()?) };
    let environment = ENVIRONMENTS.read(&mut reader)?;
    let origin = ORIGINS.read(&mut reader)?;
    let worker_id = match head.flags & HAS_WORKER {
        0 => None,
        _ => Some(WorkerId::trusted(reader.text()?)),
    };
    let ttl = match head.flags & HAS_TTL {
        0 => None,
        _ => Some(reader.varint()?),
    };
    let links = Links { is_aside: head.flags & IS_ASIDE != 0, ..read_links(seq, &mut reader)? };
    let beside = if head.flags & HAS_BESIDE == 0 {
        None
    } else {
        let mut part = || reader.text().map(|text| (!text.is_empty()).then(|| Json::trusted(text)));
        Some(Box::new(Beside { context: part()?, fields: part()? }))
    };
    let text = std::str::from_utf8(reader.rest()).map_err(|_| BadBytes("holds a text that is not UTF-8"))?;
    let properties = Json::trusted(text);
    let event = Event {
        id: head.id,
        tenant,
        app,
        entity,
        event_type,
        timestamp: head.timestamp,
        received_at: head.received_at,
        context: Context { environment, origin, worker_id },
        properties,
        ttl,
        beside,
    };
    Ok(StoredEvent { seq, event, links })
}

/// Reads only what indexes need.
pub fn decode_fields(bytes: &[u8]) -> Result<EventFields<'_>, BadBytes> {
    let mut reader = Reader::new(bytes);
    let head = Head::read(&mut reader)?;
    let event_type = EVENT_TYPES.read_text(&mut reader)?;
    let tenant = reader.text()?;
    let app = reader.text()?;
    let Head { timestamp, received_at, id, .. } = head;
    Ok(EventFields { tenant, app, event_type, timestamp, received_at, id })
}

/// The first fields, which have nearly fixed length.
struct Head {
    flags: u8,
    timestamp: Timestamp,
    received_at: Timestamp,
    id: EventId,
}

impl Head {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BadBytes> {
        if reader.byte()? != VERSION {
            return Err(BadBytes("is an event of an unknown version"));
        }
        let flags = reader.byte()?;
        if flags & !(HAS_WORKER | HAS_TTL | IS_ASIDE | HAS_BESIDE) != 0 {
            return Err(BadBytes("is an event with unknown flags"));
        }
        let mut millis = [0; 8];
        millis[..6].copy_from_slice(&reader.array::<6>()?);
        let millis = u64::from_le_bytes(millis);
        let id_millis = millis.wrapping_add_signed(unzigzag(reader.varint()?));
        if id_millis >> 48 != 0 {
            return Err(BadBytes("has an id that is not a UUID"));
        }
        let mut low = [0; 16];
        low[..10].copy_from_slice(&reader.array::<10>()?);
        let id = EventId::from_u128(u128::from(id_millis) << ID_LOW_BITS | u128::from_le_bytes(low));
        let received = millis.wrapping_add_signed(unzigzag(reader.varint()?));
        Ok(Self { flags, timestamp: moment(millis)?, received_at: moment(received)?, id })
    }
}

fn read_links(seq: Seq, reader: &mut Reader<'_>) -> Result<Links, BadBytes> {
    let mut link = || match reader.varint()? {
        0 => Ok(None),
        distance if distance < seq.0 => Ok(Some(Seq(seq.0 - distance))),
        _ => Err(BadBytes("links to before the first event")),
    };
    let (prev, aside, jump) = (link()?, link()?, link()?);
    Ok(Links { prev, aside, jump, ordinal: reader.varint()?, is_aside: false })
}

fn moment(millis: u64) -> Result<Timestamp, BadBytes> {
    Timestamp::new("timestamp", millis).map_err(|_| BadBytes("has a time outside of 2001 to 2286"))
}

fn difference(of: u64, from: u64) -> i64 {
    of.wrapping_sub(from).cast_signed()
}
