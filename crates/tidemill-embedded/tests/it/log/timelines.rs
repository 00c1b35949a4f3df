//! Timelines against a naive model: filter everything and sort it.

use tidemill_embedded::log::{Order, StoredEvent, TimelineQuery, Window};
use tidemill_model::{AppName, EventType, Position, TenantId, Timestamp};

use super::mem_disk::MemDisk;
use super::support::{Bench, Random, START, as_entries, event, random_group, small};

/// The whole answer at once, from all events.
fn expected(events: &[StoredEvent], query: &TimelineQuery) -> Vec<Position> {
    let window = &query.window;
    let mut positions: Vec<Position> = events
        .iter()
        .map(|stored| &stored.event)
        .filter(|event| event.tenant == query.tenant)
        .filter(|event| query.app.as_ref().is_none_or(|app| *app == event.app))
        .filter(|event| query.event_type.as_ref().is_none_or(|name| *name == event.event_type))
        .filter(|event| (window.from..=window.to).contains(&event.timestamp))
        .map(tidemill_model::Event::position)
        .collect();
    positions.sort_unstable();
    if window.order == Order::Descending {
        positions.reverse();
    }
    positions
}

/// The same, page by page.
fn paged(bench: &Bench, query: &TimelineQuery) -> Vec<Position> {
    let mut query = query.clone();
    let mut found = Vec::new();
    loop {
        let page = bench.reader.timeline(&query).unwrap();
        assert!(page.events.len() <= query.window.limit);
        found.extend(page.events.iter().map(|stored| stored.event.position()));
        let Some(next) = page.next else { return found };
        assert_eq!(page.events.len(), query.window.limit, "only a full page is followed by another");
        assert_eq!(Some(&next), found.last());
        query.window.after = Some(next);
    }
}

fn random_query(random: &mut Random, events: u64) -> TimelineQuery {
    let mut moment = || Timestamp::clamped(START + random.below(events / 4 + 20));
    let (from, to) = (moment(), moment());
    let (from, to) =
        if random.below(3) == 0 { (Timestamp::MIN, Timestamp::MAX) } else { (from.min(to), from.max(to)) };
    TimelineQuery {
        tenant: TenantId::trusted(random.pick(&["acme", "umbrella", "o", "nobody"])),
        app: (random.below(2) == 0).then(|| AppName::trusted(random.pick(&["billing", "é", "none"]))),
        event_type: (random.below(2) == 0)
            .then(|| EventType::trusted(random.pick(&["Task Pending", "user.created", "none"]))),
        window: Window {
            from,
            to,
            order: random.pick(&[Order::Ascending, Order::Descending]),
            after: None,
            limit: usize::try_from(1 + random.below(40)).unwrap(),
        },
    }
}

#[test]
fn timelines_equal_a_sorted_filter_in_every_state_of_the_log() {
    for seed in 0..12 {
        let mut random = Random::new(seed + 100);
        let disk = MemDisk::new();
        let mut bench = Bench::open(&disk, small());
        for round in 0..160 {
            let group = random_group(&mut random, bench.log.next_seq().0);
            bench.write(as_entries(&group)).unwrap();
            match random.below(15) {
                0 => drop(bench.keeper.seal_next().unwrap()),
                1 => {
                    let (known, ends) = (bench.known, bench.ends);
                    bench = Bench { known, ends, ..Bench::open(&disk, small()) };
                }
                2 => {
                    let query = random_query(&mut random, bench.log.next_seq().0);
                    let expected = expected(&bench.events(), &query);
                    assert_eq!(paged(&bench, &query), expected, "seed {seed} round {round}: {query:?}");
                }
                _ => {}
            }
        }
        bench.seal_all();
        let events = bench.events();
        for _ in 0..60 {
            let query = random_query(&mut random, bench.log.next_seq().0);
            assert_eq!(paged(&bench, &query), expected(&events, &query), "seed {seed}: {query:?}");
        }
    }
}

#[test]
fn a_page_can_start_after_any_position() {
    let mut random = Random::new(7);
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    for _ in 0..100 {
        let group = random_group(&mut random, bench.log.next_seq().0);
        bench.write(as_entries(&group)).unwrap();
    }
    bench.seal_all();
    let events = bench.events();
    for stored in events.iter().step_by(3) {
        for order in [Order::Ascending, Order::Descending] {
            let mut query = random_query(&mut random, events.len() as u64);
            query.window.order = order;
            query.window.limit = usize::MAX;
            let all = expected(&events, &query);
            // The position need not be on the timeline, nor in the range.
            let after = stored.event.position();
            query.window.after = Some(after);
            let left: Vec<Position> = all
                .into_iter()
                .filter(
                    |position| if order == Order::Ascending { *position > after } else { *position < after },
                )
                .collect();
            assert_eq!(paged(&bench, &query), left, "{query:?}");
        }
    }
}

#[test]
fn thousands_of_events_in_one_moment_page_without_loss() {
    let disk = MemDisk::new();
    let config = tidemill_embedded::log::LogConfig { segment_bytes: 128 << 10, ..small() };
    let mut bench = Bench::open(&disk, config);
    for group in 0..50 {
        let events = (group * 50..group * 50 + 50).map(|number| {
            let mut event = event(number);
            event.timestamp = Timestamp::clamped(START);
            event
        });
        bench.write_events(events.collect()).unwrap();
        bench.keeper.prepare_spare().unwrap();
    }
    for sealed in [false, true] {
        if sealed {
            bench.seal_all();
        }
        for order in [Order::Ascending, Order::Descending] {
            let query = TimelineQuery {
                tenant: TenantId::trusted("acme"),
                app: None,
                event_type: None,
                window: Window::all(order, 70),
            };
            assert_eq!(paged(&bench, &query), expected(&bench.events(), &query));
        }
    }
}
