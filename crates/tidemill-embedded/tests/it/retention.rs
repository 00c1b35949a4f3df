//! Old events go; what was promised stays.

use std::path::Path;
use std::sync::Arc;

use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::access_path::AccessPath;
use tidemill_model::event_query::EventQuery;
use tidemill_model::{Entity, JobId, JobStatus, RequestId, Timestamp};

use super::lab::{
    self, Fresh, Lab, acme, beat, complete, diamond, plain, publish, small, store_entity, submit_job,
    submit_task,
};

const DAY: u64 = 24 * 3_600_000;

/// A store that keeps events for `days`.
fn open(dir: &Path, days: u64, now: Timestamp) -> Lab {
    let retention = Retention { event_millis: days * DAY, heartbeat_millis: DAY };
    let options = StoreOptions { retention, ..small() };
    let store = Store::open(Arc::new(RealDisk::new(dir).unwrap()), options).unwrap();
    Lab { store, now }
}

fn start() -> Timestamp {
    Timestamp::clamped(lab::START)
}

fn types(lab: &Lab, entity: Entity) -> Vec<String> {
    let query = EventQuery::all(acme(), AccessPath::Entity(entity));
    let page = lab.store.events(&query).unwrap();
    page.events.iter().map(|event| event.event_type.to_string()).collect()
}

/// Fills several segments and seals them, with a checkpoint behind.
fn fill(lab: &mut Lab, entity: &str) {
    for n in 0..200 {
        let padding = "x".repeat(400);
        lab.run(publish(entity, plain(&format!(r#"{{"n":{n},"padding":"{padding}"}}"#)), None, None))
            .unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
}

/// Makes the derived rows again from what is left of the log.
fn rebuilt(dir: &Path, days: u64, lab: Lab) -> Lab {
    let now = lab.now;
    drop(lab);
    std::fs::remove_file(dir.join("derived/rows.redb")).unwrap();
    let lab = open(dir, days, now);
    lab.assert_clean();
    lab
}

#[test]
fn heartbeats_expire_alone_and_the_history_stays_whole() {
    let dir = Fresh::new();
    let mut lab = open(&dir, 0, start());
    lab.run(submit_task("req-1", "{}")).unwrap();
    let task = lab.claim(1).remove(0);
    for _ in 0..300 {
        lab.run(beat(&task)).unwrap();
    }
    lab.run(complete(&task, r#"{"done":true}"#)).unwrap();
    fill(&mut lab, "filler");
    let entity = Entity::task(&RequestId::new("req-1").unwrap());
    assert_eq!(types(&lab, entity.clone()).len(), 303);

    lab.pass(2 * DAY);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_rewritten > 0 && expired.segments_dropped == 0, "{expired:?}");
    let whole = ["Task Pending", "Task Processing Started", "Task Completed"];
    assert_eq!(types(&lab, entity.clone()).iter().filter(|name| *name != "Task Heartbeat").count(), 3);
    assert!(types(&lab, entity.clone()).len() < 303);
    lab.assert_clean();
    let lab = rebuilt(&dir, 0, lab);
    assert!(whole.iter().all(|name| types(&lab, entity.clone()).contains(&(*name).to_owned())));
}

#[test]
fn dropped_segments_take_no_promise_with_them() {
    let dir = Fresh::new();
    let mut lab = open(&dir, 10, start());
    let (finished, open_job) = (JobId::from_u128(1), JobId::from_u128(2));
    lab.run(submit_job(finished, diamond(), Some("key-1"))).unwrap();
    lab.run(submit_task("req-1", r#"{"a":1}"#)).unwrap();
    lab.work_off();
    lab.run(submit_job(open_job, diamond(), None)).unwrap();
    fill(&mut lab, "old");
    lab.pass(20 * DAY);
    // The open job's events keep its segment; it is completed now, and only then may everything go.
    let kept = lab.store.expire(lab.now).unwrap();
    assert_eq!(kept.segments_dropped, 0, "{kept:?}");
    lab.work_off();
    fill(&mut lab, "new");
    lab.pass(20 * DAY);
    fill(&mut lab, "newest");
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0 && expired.rows_carried > 0, "{expired:?}");
    lab.assert_clean();

    for round in 0..2 {
        assert_eq!(types(&lab, store_entity("old")), Vec::<String>::new(), "round {round}");
        let taken = lab.run(submit_task("req-1", r#"{"a":2}"#));
        assert!(matches!(taken, Err(Refusal::RequestTaken(_))), "round {round}: {taken:?}");
        let repeated = lab.run(submit_task("req-1", r#"{"a":1}"#));
        assert!(
            matches!(repeated, Ok(Reply::TaskSubmitted { repeated: true, .. })),
            "round {round}: {repeated:?}"
        );
        lab = rebuilt(&dir, 10, lab);
    }
}

#[test]
fn an_event_that_outlived_its_time_leaves_the_history_before_it_in_sight() {
    let dir = Fresh::new();
    let mut lab = open(&dir, 0, start());
    let seconds = start().plus(DAY).millis() / 1_000;
    for n in 0..9 {
        let ttl = (n % 3 == 1).then_some(seconds);
        lab.run(publish("s", plain(&format!(r#"{{"n":{n}}}"#)), None, ttl)).unwrap();
    }
    // Most of the segment must be worth the rewriting.
    for _ in 0..200 {
        let padding = format!(r#"{{"padding":"{}"}}"#, "x".repeat(400));
        lab.run(publish("filler", plain(&padding), None, Some(seconds))).unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
    lab.pass(3 * DAY);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.events > 100, "{expired:?}");
    assert_eq!(lab.store.expire(lab.now).unwrap().events, 0, "emptied once is enough");
    let query = EventQuery::all(acme(), AccessPath::Entity(store_entity("s")));
    let seen = lab.store.events(&query).unwrap().events;
    let seen: Vec<&str> =
        seen.iter().filter(|event| !event.is_outlived(lab.now)).map(|e| e.properties.as_str()).collect();
    assert_eq!(seen, [0, 2, 3, 5, 6, 8].map(|n| format!(r#"{{"n":{n}}}"#)));
    lab.assert_clean();
}

#[test]
fn a_job_that_outlived_its_events_can_still_be_resumed() {
    let dir = Fresh::new();
    let mut lab = open(&dir, 10, start());
    let job = JobId::from_u128(7);
    lab.run(submit_job(job, diamond(), None)).unwrap();
    let root = lab.claim(8).remove(0);
    lab.run(lab::fail(&root, tidemill_model::ErrorCategory::Auth)).unwrap();
    fill(&mut lab, "old");
    lab.pass(20 * DAY);
    fill(&mut lab, "new");
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0, "{expired:?}");
    let mut lab = rebuilt(&dir, 10, lab);
    let target = tidemill_engine::command::ResumeTarget::Job { job, tasks: None };
    let resume = tidemill_engine::command::Resume { tenant: acme(), target };
    lab.run(tidemill_engine::command::Command::Resume(resume)).unwrap();
    lab.work_off();
    assert_eq!(lab.store.state().job(&acme(), job).unwrap().head.status(), JobStatus::Completed);
    lab.assert_clean();
}
