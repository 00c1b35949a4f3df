//! Old events go; what was promised stays.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_conformance::ManualClock;
use tidemill_embedded::log::Seq;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::{Embedded, Store, StoreOptions};
use tidemill_engine::command::{
    AddTasks, Cancel, Command, Listed, Prepared, PutRecord, Resume, ResumeTarget,
};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::overflow::payload_key;
use tidemill_model::{Entity, ErrorCategory, EventId, JobId, JobStatus, RequestId, TaskId, Timestamp};

use super::lab::{
    self, DAY, Fresh, Lab, acme, beat, complete, diamond, plain, publish, small, spec, store_entity,
    submit_job, submit_task,
};

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

#[test]
fn heartbeats_expire_alone_and_the_history_stays_whole() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
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
    let lab = lab.rebuilt(&dir, 0);
    assert!(whole.iter().all(|name| types(&lab, entity.clone()).contains(&(*name).to_owned())));
}

#[test]
fn dropped_segments_take_no_promise_with_them() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
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
        lab = lab.rebuilt(&dir, 10);
    }
}

#[test]
fn an_event_that_outlived_its_time_leaves_the_history_before_it_in_sight() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    let seconds = Timestamp::clamped(lab::START).plus(DAY).millis() / 1_000;
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
fn what_may_be_resumed_keeps_its_events() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    let (failed, cancelled) = (JobId::from_u128(7), JobId::from_u128(8));
    let chain = || vec![spec("a", &[]), spec("b", &["a"]), spec("c", &["b"])];
    for job in [failed, cancelled] {
        lab.run(submit_job(job, chain(), None)).unwrap();
        let root = lab.claim(8).remove(0);
        lab.run(complete(&root, r#"{"v":1}"#)).unwrap();
        let second = lab.claim(8).remove(0);
        if job == failed {
            lab.run(lab::fail(&second, ErrorCategory::Auth)).unwrap();
        } else {
            let cancel = Cancel { tenant: acme(), job, by: "test".into(), reason: None };
            lab.run(Command::Cancel(cancel)).unwrap();
        }
    }
    lab.run(submit_task("alone", "{}")).unwrap();
    let alone = lab.claim(8).remove(0);
    lab.run(lab::fail(&alone, ErrorCategory::Auth)).unwrap();
    fill(&mut lab, "old");
    lab.pass(20 * DAY);
    fill(&mut lab, "new");
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.events > 0, "{expired:?}");
    let mut lab = lab.rebuilt(&dir, 10);
    for job in [failed, cancelled] {
        let parent = Entity::task(&job.request_id(&TaskId::new("a").unwrap()));
        assert_eq!(types(&lab, parent).last().unwrap(), "Task Completed", "its child needs the output");
        let target = ResumeTarget::Job { job, tasks: None };
        lab.run(Command::Resume(Resume { tenant: acme(), target })).unwrap();
    }
    let target = ResumeTarget::Task(RequestId::new("alone").unwrap());
    lab.run(Command::Resume(Resume { tenant: acme(), target })).unwrap();
    lab.work_off();
    lab.assert_clean();
    // Once it is completed it goes like everything else.
    fill(&mut lab, "later");
    lab.pass(20 * DAY);
    fill(&mut lab, "newest");
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0, "{expired:?}");
    let lab = lab.rebuilt(&dir, 10);
    for job in [failed, cancelled] {
        assert_eq!(types(&lab, Entity::job(job)), Vec::<String>::new());
        let Some(Row::Job(head)) = lab.store.row(&RowKey::Job(acme(), job)).unwrap() else { panic!() };
        assert_eq!(head.status(), JobStatus::Completed);
    }
}

#[test]
fn tasks_that_are_added_while_old_events_go_stay() {
    for round in 0..3 {
        let dir = Fresh::new();
        let retention = Retention { event_millis: DAY, heartbeat_millis: DAY };
        let options = StoreOptions { retention, ..small() };
        let clock = ManualClock::default();
        let backend = Embedded::open(&dir, options.clone(), Arc::new(clock.clone())).unwrap();
        let jobs: Vec<JobId> = (1..=40).map(JobId::from_u128).collect();
        let mut commands: Vec<_> = jobs.iter().map(|job| submit_job(*job, diamond(), None)).collect();
        commands.push(lab::claim(256, 1));
        let answers = backend.execute_blocking(&commands).unwrap();
        let Some(Ok(Reply::Claimed { tasks, .. })) = answers.last() else { panic!("{answers:?}") };
        let failures: Vec<_> = tasks.iter().map(|task| lab::fail(task, ErrorCategory::Auth)).collect();
        backend.execute_blocking(&failures).unwrap();
        let padding = format!(r#"{{"padding":"{}"}}"#, "x".repeat(400));
        for n in 0..200 {
            backend.execute_blocking(&[publish(&format!("s{n}"), plain(&padding), None, None)]).unwrap();
        }
        backend.checkpoint().unwrap();
        backend.seal_all().unwrap();
        clock.advance(2 * DAY);
        let is_over = AtomicBool::new(false);
        let added = std::thread::scope(|scope| {
            let adders: Vec<_> = (0..2)
                .map(|adder| {
                    let (backend, jobs, is_over) = (&backend, &jobs, &is_over);
                    scope.spawn(move || {
                        let mut added = 0;
                        while !is_over.load(Ordering::Acquire) && added < 300 {
                            let id = format!("x{adder}-{added}");
                            let tasks = Arc::new(vec![Arc::new(spec(&id, &["a"]))]);
                            let job = jobs[added % jobs.len()];
                            let listed = Listed::Inline(lab::json("[]"));
                            let add = AddTasks { tenant: acme(), job, tasks, listed };
                            backend.execute_blocking(&[Command::AddTasks(add)]).unwrap().remove(0).unwrap();
                            added += 1;
                        }
                        added
                    })
                })
                .collect();
            backend.expire().unwrap();
            is_over.store(true, Ordering::Release);
            adders.into_iter().map(|adder| adder.join().unwrap()).sum::<usize>()
        });
        backend.abandon();
        std::fs::remove_file(dir.join("derived/rows.redb")).unwrap();
        let store = Store::open(Arc::new(RealDisk::new(&*dir).unwrap()), options).unwrap();
        let lab = Lab { store, now: Timestamp::clamped(lab::START) };
        lab.assert_clean();
        let total = |job: &JobId| match lab.store.row(&RowKey::Job(acme(), *job)).unwrap() {
            Some(Row::Job(head)) => head.counts.total() as usize,
            other => panic!("{other:?}"),
        };
        let found: usize = jobs.iter().map(total).sum();
        assert_eq!(found, jobs.len() * diamond().len() + added, "round {round}");
    }
}

#[test]
fn a_large_job_is_carried_in_groups_that_fit() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    let job = JobId::from_u128(9);
    lab.run(submit_job(job, vec![spec("a", &[])], None)).unwrap();
    let task = lab.claim(1).remove(0);
    for n in 0..40 {
        lab.run(beat(&task)).unwrap();
        let tasks = (0..64).map(|m| Arc::new(spec(&format!("some-longer-name-{n}-{m}"), &["a"]))).collect();
        let listed = Listed::Inline(lab::json("[]"));
        let add = AddTasks { tenant: acme(), job, tasks: Arc::new(tasks), listed };
        lab.run(Command::AddTasks(add)).unwrap();
        for _ in 0..20 {
            lab.run(beat(&task)).unwrap();
        }
    }
    fill(&mut lab, "filler");
    lab.pass(2 * DAY);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_rewritten > 0 && expired.rows_carried > 40, "{expired:?}");
    let largest = largest_segment(&dir);
    assert!(largest <= small().log.segment_bytes, "a segment of {largest} bytes had to be made");
    let mut lab = lab.rebuilt(&dir, 0);
    let head = |lab: &Lab| lab.store.state().job(&acme(), job).unwrap().head.clone();
    assert_eq!(head(&lab).counts.total(), 1 + 40 * 64);
    lab.run(complete(&task, "{}")).unwrap();
    assert_eq!(head(&lab).counts.pending, 40 * 64);
    lab.assert_clean();
}

#[test]
fn what_a_follower_has_not_seen_stays() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    fill(&mut lab, "first");
    let seen = lab.store.events_from(Seq(1), 1_000).unwrap().last().unwrap().seq;
    fill(&mut lab, "second");
    let key = RecordKey { kind: RecordKind::Cursor, tenant: Some(acme()), id: "reactor".into() };
    let follow = |lab: &mut Lab, seq: Option<u64>| {
        let value = seq.map(|seq| RecordValue::Bytes(seq.to_le_bytes().as_slice().into()));
        let put = PutRecord { key: key.clone(), value, expires_at: None, expected: None };
        lab.run(Command::PutRecord(put)).unwrap();
        lab.store.flush_rows().unwrap();
    };
    follow(&mut lab, Some(seen.0));
    lab.pass(20 * DAY);
    fill(&mut lab, "third");
    lab.store.expire(lab.now).unwrap();
    let left = lab.store.events_from(Seq(1), 1_000).unwrap();
    assert!(left[0].seq <= seen.next(), "{}", left[0].seq);
    assert!(left[0].seq > Seq(1), "what was seen is gone");
    follow(&mut lab, None);
    lab.store.expire(lab.now).unwrap();
    let left = lab.store.events_from(Seq(1), 1_000).unwrap();
    assert!(left[0].seq > seen.next(), "nobody follows any more");
    lab.assert_clean();
}

#[test]
fn a_blob_whose_event_went_just_before_a_crash_is_found() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    let id = EventId::from_u128((u128::from(lab.now.millis()) << 80) | (7 << 76) | (2 << 62) | 1);
    let key = payload_key(&store_entity("large").id, id);
    lab.store.put_blob(&acme(), &key, b"{}").unwrap();
    let properties = plain(&format!(r#"{{"_s3Overflow":{{"bucket":"local","key":"{key}"}}}}"#));
    lab.run(publish("large", Prepared { id: Some(id), ..properties }, None, None)).unwrap();
    lab.pass(DAY);
    lab.store.sweep_blobs(lab.now).unwrap();
    fill(&mut lab, "old");
    lab.pass(20 * DAY);
    fill(&mut lab, "new");
    // As if the process had ended after the event was dropped and before the blob was removed.
    let blob = dir.join("blobs/acme").join(&key);
    let bytes = std::fs::read(&blob).unwrap();
    let notes = dir.join("blobs/.notes");
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 0);
    std::fs::remove_file(&blob).unwrap();
    std::fs::create_dir(&blob).unwrap();
    lab.store.expire(lab.now).unwrap_err();
    std::fs::remove_dir(&blob).unwrap();
    std::fs::write(&blob, bytes).unwrap();
    drop(lab);
    let mut lab = Lab::keeping(&dir, 10, Timestamp::clamped(lab::START).plus(30 * DAY));
    assert_eq!(types(&lab, store_entity("large")), Vec::<String>::new());
    assert_eq!(lab.store.sweep_blobs(lab.now).unwrap(), 1);
    assert!(!blob.exists());
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 0);
}

fn largest_segment(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("log")).unwrap().map(Result::unwrap);
    files.map(|file| file.metadata().unwrap().len()).max().unwrap()
}
