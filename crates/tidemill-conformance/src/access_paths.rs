//! Every access path gives the pages that `EventQuery::select` gives on the same events.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{AppName, Entity, Event, EventType, TenantId, Timestamp};

use super::shape::{acme, app, entity, event, other};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{EngineError, EventBatch, NewEvent};

const APPS: [&str; 2] = ["orders", "orders-eu"];
/// Ids that begin alike, and one that looks like a key.
const IDS: [&str; 4] = ["req-1", "req-12", "req-1 TIMESTAMP", "req"];
const KINDS: [&str; 2] = ["STORE", "STORE_ROOM"];
const TYPES: [&str; 3] = ["stock.counted", "stock.counted.twice", "stock"];

/// Writes a mixed log: tenants, apps, entities and types side by side, times out of order and often equal.
async fn mixed_log<W: TestWorld>(lab: &Lab<W>, count: u64) -> Vec<Event> {
    let start = lab.now();
    for n in 0..count {
        // Steps that share no factor with the sizes of the lists, so that all combinations occur.
        let pick = |list: &'static [&'static str], step: u64| {
            let place = (n * step + n / 7) % list.len() as u64;
            list[usize::try_from(place).expect("the place is small")]
        };
        let mut sent = event(pick(&IDS, 3), pick(&TYPES, 5), &format!(r#"{{"n":{n}}}"#));
        sent.entity = entity(pick(&KINDS, 11), pick(&IDS, 3));
        sent.timestamp = (n % 3 > 0).then(|| start.minus(40).plus(n * 37 % 60));
        let tenant = if n % 5 == 0 { other() } else { acme() };
        let events = vec![sent];
        let request = EventBatch { tenant, app: app(pick(&APPS, 7)), origin: "test".to_owned(), events };
        lab.engine.publish(request).await.expect("the event is accepted");
        if n % 8 == 0 {
            lab.pass(1);
        }
    }
    // What all is compared with: everything there is, by the one path that is checked against its own count.
    let mut all = lab.events_of(acme(), AccessPath::Tenant).await;
    all.extend(lab.events_of(other(), AccessPath::Tenant).await);
    assert_eq!(all.len() as u64, count);
    all
}

fn paths() -> Vec<AccessPath> {
    let apps: Vec<_> = APPS.iter().map(|name| app(name)).collect();
    let kinds = KINDS.iter().flat_map(|kind| IDS.iter().map(|id| entity(kind, id)));
    let entities: Vec<Entity> = kinds.collect();
    let types: Vec<_> = TYPES.iter().map(|name| EventType::new(name).expect("an event type")).collect();
    let mut paths = vec![AccessPath::Tenant];
    for with in 1..8u8 {
        let [with_type, with_app, with_entity] = [4, 2, 1].map(|bit| with & bit > 0);
        for event_type in choices(&types, with_type) {
            for app in choices(&apps, with_app) {
                for entity in choices(&entities, with_entity) {
                    paths.push(AccessPath::narrowest(event_type.clone(), app.clone(), entity));
                }
            }
        }
    }
    // A name that nothing has.
    paths.push(AccessPath::App(AppName::new("order").expect("an app")));
    paths.push(AccessPath::Entity(entity("STORE", "req-")));
    paths
}

fn choices<T: Clone>(all: &[T], wanted: bool) -> Vec<Option<T>> {
    if wanted { all.iter().cloned().map(Some).collect() } else { vec![None] }
}

/// Pages through a query and compares each page.
async fn check<W: TestWorld>(lab: &Lab<W>, all: &[Event], mut query: EventQuery) {
    loop {
        let expected = query.select(all.iter());
        let page = lab.world.backend().events(query.clone()).await.expect("the query is answered");
        assert_eq!(page, expected, "{query:?}");
        query.after = page.next;
        if query.after.is_none() {
            return;
        }
    }
}

/// All eight paths, both orders, in one page and in pages of two sizes.
pub async fn every_path_answers_like_select<W: TestWorld>(lab: Lab<W>) {
    let all = mixed_log(&lab, if W::IS_DISTANT { 96 } else { 240 }).await;
    for path in paths() {
        for order in [Order::Ascending, Order::Descending] {
            for limit in [1_000, 7, 1] {
                // Pages of one are slow; the narrow paths show the same.
                if limit == 1 && path.entity().is_none() {
                    continue;
                }
                let query = EventQuery { order, limit, ..EventQuery::all(acme(), path.clone()) };
                check(&lab, &all, query).await;
            }
        }
    }
}

/// Ranges are honoured to the millisecond on every path.
pub async fn every_path_honours_time_ranges<W: TestWorld>(lab: Lab<W>) {
    let all = mixed_log(&lab, if W::IS_DISTANT { 64 } else { 160 }).await;
    let first = all.iter().map(|event| event.timestamp).min().expect("there are events");
    let last = all.iter().map(|event| event.timestamp).max().expect("there are events");
    let middle = first.plus(last.since(first) / 2);
    let ranges: [(Option<Timestamp>, Option<Timestamp>); 7] = [
        (Some(first), Some(last)),
        (Some(first.plus(1)), None),
        (None, Some(last.minus(1))),
        (Some(middle), Some(middle)),
        (Some(middle.minus(5)), Some(middle.plus(5))),
        (Some(last.plus(1)), None),
        (None, Some(first.minus(1))),
    ];
    for path in paths() {
        for (from, to) in ranges {
            for (order, limit) in
                [(Order::Ascending, 1_000), (Order::Descending, 1_000), (Order::Descending, 5)]
            {
                let query = EventQuery { from, to, order, limit, ..EventQuery::all(acme(), path.clone()) };
                check(&lab, &all, query).await;
            }
        }
    }
}

/// A long list read by pages loses nothing and repeats nothing, while others go on writing.
pub async fn pages_neither_lose_nor_repeat<W: TestWorld>(lab: Lab<W>) {
    let publish = |from: u64, count: u64| {
        let events: Vec<NewEvent> =
            (from..from + count).map(|n| event("s-1", "stock.counted", &format!(r#"{{"n":{n}}}"#))).collect();
        EventBatch { tenant: acme(), app: app("orders"), origin: "test".to_owned(), events }
    };
    for batch in 0..5 {
        lab.engine.publish(publish(batch * 1_000, 1_000)).await.expect("the events are accepted");
        lab.pass(1);
    }
    let mut query = EventQuery { limit: 333, ..EventQuery::all(acme(), AccessPath::Tenant) };
    let mut seen = Vec::new();
    loop {
        let page = lab.engine.events(query.clone(), false).await.expect("the query is answered");
        seen.extend(page.events.iter().map(Event::position));
        if seen.len() == 999 {
            lab.engine.publish(publish(5_000, 100)).await.expect("the events are accepted");
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), 5_100);
    assert!(seen.is_sorted_by(|a, b| a < b), "each once, in order");
}

/// "Latest" goes by time, not by arrival.
pub async fn the_latest_event_is_the_one_with_the_latest_time<W: TestWorld>(lab: Lab<W>) {
    let all = mixed_log(&lab, 120).await;
    for kind in KINDS {
        for id in IDS {
            for tenant in [acme(), other()] {
                let entity = entity(kind, id);
                let own = all.iter().filter(|event| event.tenant == tenant && event.entity == entity);
                let expected = own.max_by_key(|event| event.position()).cloned();
                let found = lab.world.backend().latest(tenant, entity).await.expect("the backend works");
                assert_eq!(found, expected, "{kind} {id}");
            }
        }
    }
}

/// A cursor continues the query it came from and no other; refusals name the limits.
pub async fn a_query_out_of_bounds_is_refused<W: TestWorld>(lab: Lab<W>) {
    mixed_log(&lab, 40).await;
    let query = EventQuery { limit: 1, ..EventQuery::all(acme(), AccessPath::Tenant) };
    let page = lab.engine.events(query.clone(), false).await.expect("the query is answered");
    let refused = [
        (EventQuery { after: page.next, ..EventQuery::all(other(), AccessPath::Tenant) }, "cursor"),
        (EventQuery { after: page.next, order: Order::Descending, ..query.clone() }, "cursor"),
        (EventQuery { after: page.next, path: AccessPath::App(app("orders")), ..query.clone() }, "cursor"),
        (EventQuery { limit: 0, ..query.clone() }, "limit"),
        (EventQuery { limit: 1_001, ..query.clone() }, "limit"),
        (EventQuery { from: Some(Timestamp::MAX), to: Some(Timestamp::MIN), ..query.clone() }, "from"),
    ];
    for (query, expected) in refused {
        assert!(lab.world.backend().events(query.clone()).await.is_err(), "{query:?}");
        let answer = lab.engine.events(query, false).await;
        assert!(
            matches!(&answer, Err(EngineError::Invalid { field, .. }) if field == expected),
            "{answer:?}"
        );
    }
}

/// Two tenants with the same names see only their own.
pub async fn no_path_shows_another_tenant<W: TestWorld>(lab: Lab<W>) {
    let all = mixed_log(&lab, 120).await;
    let stranger = TenantId::new("acm").expect("a tenant");
    for path in paths() {
        for tenant in [acme(), other(), stranger.clone()] {
            check(&lab, &all, EventQuery::all(tenant, path.clone())).await;
        }
    }
}
