//! Histories of entities against a naive model.

use tidemill_embedded::log::{ChainQuery, Entry, History, LogConfig, Order, Seq, StoredEvent, Window};
use tidemill_engine::state::stream::Stream;
use tidemill_model::{AppName, Event, EventType, Position, Timestamp};

use super::mem_disk::MemDisk;
use super::support::{Bench, Random, START, event, small};

const HEARTBEAT: &str = "Task Heartbeat";

fn query(history: &History, window: Window) -> ChainQuery {
    ChainQuery {
        main: history.main.tip(),
        aside: history.aside.tip(),
        app: None,
        event_type: None,
        lag_millis: None,
        window,
    }
}

/// Events of which every `aside_every`th is a heartbeat.
fn history_events(count: u64, aside_every: u64) -> Vec<(Event, bool)> {
    (0..count)
        .map(|number| {
            let mut event = event(number);
            let is_aside = number % aside_every == aside_every - 1;
            if is_aside {
                event.event_type = EventType::trusted(HEARTBEAT);
            }
            event.app = AppName::trusted(if number % 7 == 0 { "web" } else { "billing" });
            (event, is_aside)
        })
        .collect()
}

fn expected(events: &[StoredEvent], query: &ChainQuery) -> Vec<Position> {
    let window = &query.window;
    let mut positions: Vec<Position> = events
        .iter()
        .filter(|stored| query.aside.is_some() || stored.event.event_type.as_str() != HEARTBEAT)
        .filter(|stored| query.app.as_ref().is_none_or(|app| *app == stored.event.app))
        .filter(|stored| query.event_type.as_ref().is_none_or(|name| *name == stored.event.event_type))
        .filter(|stored| (window.from..=window.to).contains(&stored.event.timestamp))
        .map(|stored| stored.event.position())
        .collect();
    positions.sort_unstable();
    if window.order == Order::Descending {
        positions.reverse();
    }
    positions
}

fn paged(bench: &Bench, query: &ChainQuery) -> Vec<Position> {
    let mut query = query.clone();
    let mut found = Vec::new();
    loop {
        let page = bench.reader.chain(&query).unwrap();
        found.extend(page.events.iter().map(|stored| stored.event.position()));
        let Some(next) = page.next else { return found };
        assert_eq!(page.events.len(), query.window.limit);
        query.window.after = Some(next);
    }
}

#[test]
fn a_long_history_pages_in_both_orders() {
    let disk = MemDisk::new();
    let config =
        LogConfig { segment_bytes: 512 << 10, block_bytes: 4 << 10, cache_bytes: 256 << 10, ..small() };
    let mut bench = Bench::open(&disk, config);
    bench.keeper.prepare_spare().unwrap();
    let history = bench.write_history(history_events(10_000, 5), 100);
    bench.seal_all();
    let events = bench.events();
    for order in [Order::Ascending, Order::Descending] {
        for limit in [7, 100, 1_000] {
            let query = query(&history, Window::all(order, limit));
            assert_eq!(paged(&bench, &query), expected(&events, &query), "{order:?} by {limit}");
        }
    }
}

#[test]
fn any_part_of_a_history_can_be_asked_for() {
    let mut random = Random::new(11);
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    let history = bench.write_history(history_events(900, 4), 9);
    while random.below(2) == 0 {
        bench.keeper.seal_next().unwrap();
    }
    let events = bench.events();
    for _ in 0..300 {
        let mut moment = || Timestamp::clamped(START + random.below(900));
        let (one, other) = (moment(), moment());
        let window = Window {
            from: one.min(other),
            to: one.max(other),
            order: random.pick(&[Order::Ascending, Order::Descending]),
            after: None,
            limit: usize::try_from(1 + random.below(30)).unwrap(),
        };
        let mut query = query(&history, window);
        query.app = (random.below(3) == 0).then(|| AppName::trusted("web"));
        query.event_type = (random.below(3) == 0)
            .then(|| EventType::trusted(random.pick(&[HEARTBEAT, "Task Completed", "none"])));
        query.aside = query.aside.filter(|_| random.below(3) > 0);
        assert_eq!(paged(&bench, &query), expected(&events, &query), "{query:?}");
    }
}

/// Writes events as the store does, late ones aside, and gives what it keeps of them.
fn write_stream(bench: &mut Bench, events: &[Event], group: usize) -> Stream {
    let mut stream = Stream::default();
    for batch in events.chunks(group) {
        let first = bench.log.next_seq().0;
        let entries = batch.iter().zip(first..).map(|(event, seq)| {
            let links = stream.push(Seq(seq), event.position(), false);
            Entry::Event(StoredEvent { seq: Seq(seq), event: event.clone(), links })
        });
        let entries = entries.collect();
        bench.write(entries).unwrap();
    }
    stream
}

/// Times that mostly grow, with `late` in a thousand events up to `reach` milliseconds before.
fn late_events(random: &mut Random, count: u64, late: u64, reach: u64) -> Vec<Event> {
    (0..count)
        .map(|number| {
            let mut event = event(number);
            let back = if random.below(1_000) < late { random.below(reach) } else { 0 };
            event.timestamp = Timestamp::clamped(START + number / 3 - back.min(START + number / 3));
            event.app = AppName::trusted(if number % 7 == 0 { "web" } else { "billing" });
            event
        })
        .collect()
}

#[test]
fn histories_with_late_events_are_in_order_and_whole() {
    let mut random = Random::new(12);
    for (late, reach) in [(3, 50), (300, 20), (300, 400), (1_000, 400), (500, 2), (20, 1_000_000)] {
        let disk = MemDisk::new();
        let mut bench = Bench::open(&disk, small());
        let events = late_events(&mut random, 400, late, reach);
        let stream = write_stream(&mut bench, &events, 20);
        while random.below(8) > 0 {
            bench.keeper.seal_next().unwrap();
        }
        let events = bench.events();
        assert!(stream.history.aside.count() > 0);
        for round in 0..24 {
            let mut moment = || Timestamp::clamped(START + random.below(150));
            let (one, other) = (moment(), moment());
            let all = round % 3 == 0;
            let window = Window {
                from: if all { Timestamp::MIN } else { one.min(other) },
                to: if all { Timestamp::MAX } else { one.max(other) },
                order: random.pick(&[Order::Ascending, Order::Descending]),
                after: None,
                limit: usize::try_from(4 + random.below(60)).unwrap(),
            };
            let mut query = query(&stream.history, window);
            query.lag_millis = stream.lag_millis();
            query.app = (random.below(3) == 0).then(|| AppName::trusted("web"));
            assert_eq!(paged(&bench, &query), expected(&events, &query), "{late}/{reach}: {query:?}");
        }
    }
}

#[test]
fn a_page_does_not_read_the_history_for_one_late_event() {
    let mut random = Random::new(13);
    for reach in [2, 1_000_000_000] {
        let disk = MemDisk::new();
        let config = LogConfig { segment_bytes: 4 << 20, ..small() };
        let mut bench = Bench::open(&disk, config);
        let mut events = late_events(&mut random, 5_000, 0, 1);
        for late in [1_000, 3_000, 4_998] {
            let moment = events[late].timestamp.minus(reach);
            events[late].timestamp = moment;
        }
        let stream = write_stream(&mut bench, &events, 500);
        assert_eq!(stream.history.aside.count(), 3);
        for order in [Order::Ascending, Order::Descending] {
            let mut query = query(&stream.history, Window::all(order, 20));
            query.lag_millis = stream.lag_millis();
            let before = disk.reads();
            let page = bench.reader.chain(&query).unwrap();
            assert_eq!(page.events.len(), 20);
            let reads = disk.reads() - before;
            assert!(reads < 200, "{reads} reads for a page, {order:?}, {reach} ms late");
        }
    }
}

#[test]
fn an_expired_event_ends_its_chain_only() {
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    let history = bench.write_history(history_events(600, 3), 10);
    bench.seal_all();
    let expired = START + 250;
    for segment in bench.reader.segments() {
        let keep = |stored: &StoredEvent| {
            stored.event.event_type.as_str() != HEARTBEAT || stored.event.timestamp.millis() >= expired
        };
        if segment.kind == tidemill_embedded::log::SegmentKind::Sealed {
            bench.keeper.rewrite(segment.id, keep, |_| true).unwrap();
        }
    }
    let mut events = bench.events();
    events.retain(|stored| {
        stored.event.event_type.as_str() != HEARTBEAT || stored.event.timestamp.millis() >= expired
    });
    for order in [Order::Ascending, Order::Descending] {
        let query = query(&history, Window::all(order, 50));
        assert_eq!(paged(&bench, &query), expected(&events, &query), "{order:?}");
    }
}

#[test]
fn an_entity_without_events_has_an_empty_history() {
    let bench = Bench::open(&MemDisk::new(), small());
    for order in [Order::Ascending, Order::Descending] {
        let page = bench.reader.chain(&query(&History::default(), Window::all(order, 5))).unwrap();
        assert_eq!((page.events.len(), page.next), (0, None));
    }
}
