//! Histories of entities against a naive model.

use tidemill_embedded::log::{ChainQuery, History, LogConfig, Order, StoredEvent, Window};
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
        ordered: true,
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
        query.ordered = random.below(4) > 0;
        assert_eq!(paged(&bench, &query), expected(&events, &query), "{query:?}");
    }
}

#[test]
fn a_disordered_history_is_sorted_when_the_caller_says_so() {
    let mut random = Random::new(12);
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    let mut events = history_events(500, 6);
    for (event, _) in &mut events {
        event.timestamp = Timestamp::clamped(START + random.below(200));
    }
    let history = bench.write_history(events, 20);
    bench.seal_all();
    for order in [Order::Ascending, Order::Descending] {
        let query = ChainQuery { ordered: false, ..query(&history, Window::all(order, 33)) };
        assert_eq!(paged(&bench, &query), expected(&bench.events(), &query));
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
