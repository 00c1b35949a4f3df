//! What the tests of the log share: a seeded source of choices, events, and a log with its history beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_embedded::disk::Disk;
use tidemill_embedded::log::{
    Entry, Group, History, Links, Log, LogConfig, LogError, LogKeeper, LogPosition, LogReader, Seq,
    StoredEvent,
};
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, Event, EventId, EventType, Json, TenantId, Timestamp,
    WorkerId,
};

pub(crate) const START: u64 = 1_700_000_000_000;

/// Choices that a seed repeats.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.below(items.len() as u64)).unwrap()]
    }

    pub(crate) fn text(&mut self, length_max: u64) -> String {
        let length = 1 + self.below(length_max);
        (0..length).map(|_| self.pick(&['a', 'b', 'Z', '7', '-', ' ', 'é', '漢', '🦀'])).collect()
    }
}

/// Small files, so that a few hundred events fill several segments.
pub(crate) fn small() -> LogConfig {
    LogConfig {
        segment_bytes: 32 << 10,
        hasty_segment_bytes: 16 << 10,
        block_bytes: 1 << 10,
        cache_bytes: 16 << 10,
        dictionary_bytes: 4 << 10,
        compression_level: 1,
    }
}

/// A plain event, made from its number.
pub(crate) fn event(number: u64) -> Event {
    Event {
        id: EventId::from_u128(u128::from(START + number) << 80 | 7 << 76 | u128::from(number)),
        tenant: TenantId::new("acme").unwrap(),
        app: AppName::new("billing").unwrap(),
        entity: Entity { kind: EntityType::new("STORE").unwrap(), id: EntityId::new("s-1").unwrap() },
        event_type: EventType::new("Task Completed").unwrap(),
        timestamp: Timestamp::clamped(START + number),
        received_at: Timestamp::clamped(START + number),
        context: Context { environment: "dev".into(), origin: "sqs-worker".into(), worker_id: None },
        properties: Json::of(&BTreeMap::from([("number", number)])),
        ttl: None,
        beside: None,
    }
}

/// An event in which everything may be unusual.
pub(crate) fn random_event(random: &mut Random, number: u64) -> Event {
    let mut made = event(number);
    // Few moments and many events: ties are common, and some events come late.
    made.timestamp =
        Timestamp::clamped(START + number / 4 + random.below(8) - random.below(3) * random.below(60));
    made.received_at = Timestamp::clamped(START + number / 4);
    if random.below(3) == 0 {
        made.id = EventId::from_u128(u128::from(random.next()) << 64 | u128::from(random.next()));
    }
    made.tenant = TenantId::trusted(random.pick(&["acme", "umbrella", "o"]));
    made.app = AppName::trusted(random.pick(&["billing", "web shop", "é"]));
    made.event_type = EventType::trusted(random.pick(&["Task Pending", "Task Completed", "user.created"]));
    made.entity.kind = EntityType::trusted(random.pick(&["TASK", "JOB", "STORE"]));
    made.entity.id = EntityId::trusted(&random.text(20));
    made.context.environment = random.pick(&["prod", "dev", "moon base"]).into();
    made.context.origin = random.pick(&["dispatcher", "sqs-worker", "elsewhere"]).into();
    made.context.worker_id = (random.below(2) == 0).then(|| WorkerId::trusted(&random.text(9)));
    made.ttl = (random.below(4) == 0).then(|| random.next() >> random.below(64));
    let filler_max = 1 + 60 * random.below(4);
    let filler = random.text(filler_max);
    made.properties = Json::of(&BTreeMap::from([("number", number.to_string()), ("filler", filler)]));
    made
}

/// What a log holds, as far as the test knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Known {
    Event(Box<StoredEvent>),
    Control(Vec<u8>),
}

impl Known {
    pub(crate) fn of(entry: Entry<'_>) -> Self {
        match entry {
            Entry::Event(stored) => Self::Event(Box::new(stored)),
            Entry::Control(bytes) => Self::Control(bytes.to_vec()),
        }
    }
}

/// A log and everything that was acknowledged to its writer.
pub(crate) struct Bench {
    pub(crate) log: Log,
    pub(crate) reader: LogReader,
    pub(crate) keeper: LogKeeper,
    pub(crate) known: Vec<Known>,
    /// The end of each group.
    pub(crate) ends: Vec<LogPosition>,
    pub(crate) group: Group,
}

impl Bench {
    pub(crate) fn open(disk: &(impl Disk + Clone), config: LogConfig) -> Self {
        Self::try_open(disk, config).unwrap()
    }

    pub(crate) fn try_open(disk: &(impl Disk + Clone), config: LogConfig) -> Result<Self, LogError> {
        let log = Log::open(Arc::new(disk.clone()), config, None)?;
        let (reader, keeper) = (log.reader(), log.keeper());
        Ok(Self { log, reader, keeper, known: Vec::new(), ends: Vec::new(), group: Group::new() })
    }

    /// Writes one group of events and control entries.
    pub(crate) fn write(&mut self, entries: Vec<Entry<'_>>) -> Result<(), LogError> {
        self.group.clear();
        for entry in &entries {
            match entry {
                Entry::Event(stored) => self.group.push_event(stored.seq, &stored.event, &stored.links),
                Entry::Control(bytes) => self.group.push_control(bytes),
            }
        }
        let appended = self.log.append(&self.group)?;
        let end = appended.end();
        self.log.sync()?;
        self.log.publish(&self.group, appended)?;
        self.known.extend(entries.into_iter().map(Known::of));
        self.ends.push(end);
        Ok(())
    }

    /// Writes events as one group, without links.
    pub(crate) fn write_events(&mut self, events: Vec<Event>) -> Result<(), LogError> {
        let first = self.log.next_seq().0;
        let stored = events.into_iter().zip(first..);
        let entries = stored.map(|(event, seq)| Entry::Event(stored_event(seq, event))).collect();
        self.write(entries)
    }

    /// Writes a history: every `aside_every`th event is aside. Groups of `group` events.
    pub(crate) fn write_history(&mut self, events: Vec<(Event, bool)>, group: usize) -> History {
        let mut history = History::default();
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let first = self.log.next_seq().0;
            let batch: Vec<_> = events.by_ref().take(group).collect();
            let entries = batch.into_iter().zip(first..).map(|((event, is_aside), seq)| {
                let seq = Seq(seq);
                let links = if is_aside { history.push_aside(seq) } else { history.push_main(seq) };
                Entry::Event(StoredEvent { seq, event, links })
            });
            let entries = entries.collect();
            self.write(entries).unwrap();
        }
        history
    }

    /// Seals all that can be sealed.
    pub(crate) fn seal_all(&self) {
        while self.keeper.seal_next().unwrap() {}
    }

    /// Everything in the log, read in order.
    pub(crate) fn replay(&self, from: LogPosition) -> Result<Vec<Known>, LogError> {
        replay(&self.reader, from)
    }

    pub(crate) fn events(&self) -> Vec<StoredEvent> {
        events(&self.known)
    }

    pub(crate) fn assert_whole(&self) {
        assert_eq!(self.replay(LogPosition::START).unwrap(), self.known);
        assert_eq!(self.keeper.verify().unwrap(), Vec::<String>::new());
    }
}

pub(crate) fn replay(reader: &LogReader, from: LogPosition) -> Result<Vec<Known>, LogError> {
    let mut found = Vec::new();
    reader.replay(from, |entry| {
        found.push(Known::of(entry));
        Ok::<_, LogError>(())
    })?;
    Ok(found)
}

pub(crate) fn events(known: &[Known]) -> Vec<StoredEvent> {
    known
        .iter()
        .filter_map(|known| match known {
            Known::Event(stored) => Some((**stored).clone()),
            Known::Control(_) => None,
        })
        .collect()
}

pub(crate) fn stored_event(seq: u64, event: Event) -> StoredEvent {
    StoredEvent { seq: Seq(seq), event, links: Links::default() }
}

/// A random group for a log whose next event is `seq`.
pub(crate) fn random_group(random: &mut Random, seq: u64) -> Vec<Known> {
    let mut next = seq;
    (0..=random.below(6))
        .map(|_| {
            if random.below(4) == 0 {
                Known::Control(random.text(40).into_bytes())
            } else {
                next += 1;
                Known::Event(Box::new(stored_event(next - 1, random_event(random, next - 1))))
            }
        })
        .collect()
}

pub(crate) fn as_entries(known: &[Known]) -> Vec<Entry<'_>> {
    known
        .iter()
        .map(|known| match known {
            Known::Event(stored) => Entry::Event((**stored).clone()),
            Known::Control(bytes) => Entry::Control(bytes),
        })
        .collect()
}
