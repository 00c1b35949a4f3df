//! Following the log: all durable events in the order they were written, and waiting for the next.

use std::pin::pin;

use tidemill_model::Event;

use super::shape::{SECOND, acme, alone, app, event, other};
use super::{Lab, TestWorld, poll_once};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{EventBatch, NewEvent};

async fn publish<W: TestWorld>(lab: &Lab<W>, tenant: tidemill_model::TenantId, events: Vec<NewEvent>) {
    let publish = EventBatch { tenant, app: app("orders"), origin: "test".to_owned(), events };
    lab.engine.publish(publish).await.expect("the events are accepted");
}

/// Everything after `after`, read in pages of `page`.
async fn follow<W: TestWorld>(lab: &Lab<W>, after: u64, page: usize) -> Vec<(u64, Event)> {
    let mut found: Vec<(u64, Event)> = Vec::new();
    let mut from = after;
    loop {
        let events = lab.world.backend().follow(from, page).await.expect("the backend works");
        assert!(events.len() <= page, "{} events in a page of {page}", events.len());
        let Some((last, _)) = events.last() else { return found };
        from = *last;
        found.extend(events);
    }
}

fn newest<W: TestWorld>(lab: &Lab<W>) -> u64 {
    lab.world.backend().newest()
}

/// Events of all tenants come in the order they were written, whatever their own times say, in pages of any size.
pub async fn events_are_followed_in_the_order_of_the_log<W: TestWorld>(lab: Lab<W>) {
    let start = newest(&lab);
    for number in 0..10u64 {
        let tenant = if number % 2 == 0 { acme() } else { other() };
        let timestamp = Some(lab.now().minus(number * SECOND));
        let own = NewEvent { timestamp, ..event("s-1", &format!("n{number}"), "{}") };
        publish(&lab, tenant, vec![own, event("s-2", &format!("m{number}"), "{}")]).await;
    }
    let all = follow(&lab, start, 1_000).await;
    let names: Vec<_> = all.iter().map(|(_, event)| event.event_type.to_string()).collect();
    let expected: Vec<_> = (0..10).flat_map(|number| [format!("n{number}"), format!("m{number}")]).collect();
    assert_eq!(names, expected);
    assert!(all.is_sorted_by_key(|(number, _)| *number), "numbers grow");
    assert_eq!(all.last().map(|(number, _)| *number), Some(newest(&lab)), "the newest is the last");
    for page in [1, 3, 19, 20] {
        assert_eq!(follow(&lab, start, page).await, all, "pages of {page}");
    }
    assert_eq!(follow(&lab, all[6].0, 5).await, all[7..], "from the middle");
    assert!(follow(&lab, newest(&lab), 5).await.is_empty());
    assert!(follow(&lab, u64::MAX, 5).await.is_empty());
}

/// The answer to a command means that followers can read its events; a reader finds every number that it was given.
pub async fn what_is_acknowledged_can_be_followed<W: TestWorld>(lab: Lab<W>) {
    let mut seen = newest(&lab);
    for number in 0..20 {
        lab.engine.submit_task(alone(&format!("t-{number}"))).await.expect("the task is accepted");
        assert!(newest(&lab) > seen);
        let events = follow(&lab, seen, 100).await;
        assert_eq!(events.len(), 1, "Task Pending and nothing else");
        assert_eq!(events[0].1.entity.id.as_str(), format!("t-{number}"));
        seen = newest(&lab);
        assert_eq!(events[0].0, seen);
    }
}

/// A waiter is woken by the next event, and at once when there is one already.
pub async fn waiting_ends_with_the_next_event<W: TestWorld>(lab: Lab<W>) {
    let backend = lab.world.backend();
    let start = newest(&lab);
    {
        let mut waiting = pin!(backend.committed(start));
        let mut second = pin!(backend.committed(start));
        assert!(poll_once(waiting.as_mut()).await.is_pending(), "nothing happened yet");
        assert!(poll_once(second.as_mut()).await.is_pending());
        publish(&lab, acme(), vec![event("s-1", "a", "{}")]).await;
        waiting.await;
        second.await;
    }
    assert!(newest(&lab) > start);
    backend.committed(start).await;
    backend.committed(0).await;
    let mut waiting = pin!(backend.committed(newest(&lab)));
    assert!(poll_once(waiting.as_mut()).await.is_pending(), "that one is known");
}

/// An event past its time to live is passed over, and its number with it.
pub async fn an_outlived_event_is_passed_over<W: TestWorld>(lab: Lab<W>) {
    let start = newest(&lab);
    let ttl = Some(lab.now().plus(10 * SECOND).millis() / 1_000);
    let brief = NewEvent { ttl, ..event("s-1", "brief", "{}") };
    publish(&lab, acme(), vec![event("s-1", "a", "{}"), brief.clone(), brief, event("s-1", "b", "{}")]).await;
    assert_eq!(follow(&lab, start, 2).await.len(), 4);
    lab.pass(20 * SECOND);
    for page in [1, 2, 10] {
        let left = follow(&lab, start, page).await;
        let names: Vec<_> = left.iter().map(|(_, event)| event.event_type.as_str()).collect();
        assert_eq!(names, ["a", "b"], "pages of {page}");
        assert_eq!(left[1].0, left[0].0 + 3, "numbers are not given again");
    }
}

/// After the process died and came back the same events have the same numbers, and new ones come behind them.
pub async fn numbers_survive_a_restart<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    lab.run(&["a"]).await;
    publish(&lab, other(), vec![event("s-1", "x", "{}"), event("s-1", "y", "{}")]).await;
    let (before, end) = (follow(&lab, 0, 7).await, newest(&lab));
    let Some(lab) = lab.reopen().await else { return };
    assert_eq!(newest(&lab), end);
    assert_eq!(follow(&lab, 0, 7).await, before);
    lab.run(&["b"]).await;
    let after = follow(&lab, end, 100).await;
    assert!(after.iter().all(|(number, _)| *number > end));
    assert_eq!(after.last().map(|(_, event)| event.entity.id.to_string()), Some(job.to_string()));
}
