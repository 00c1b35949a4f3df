//! Deliveries and their dead letters: in rows that leave memory, and in an export.

use std::sync::Arc;

use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::import_dir::import_into;
use tidemill_engine::command::{
    Command, DeliveryEnd, EndDelivery, PutRecord, ReplayDelivery, Resume, ResumeTarget, SubmitJob,
};
use tidemill_engine::execution::SourceEvent;
use tidemill_engine::outbound::{Delivery, DeliveryId, DeliveryKey, Target};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::Reply;
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::{AppName, EntityId, EntityType, ErrorCategory, EventId, EventType, JobId, Timestamp};

use super::lab::{
    self, DAY, Fresh, Lab, acme, assert_not_imported, json, plain, publish, small, spec, submit_job,
    unwatched,
};

fn id(number: u128) -> DeliveryId {
    DeliveryId(EventId::from_u128(number))
}

fn put(number: u128, target: Target) -> Command {
    let at = Timestamp::clamped(lab::START);
    let delivery = Delivery {
        id: id(number),
        target,
        event: SourceEvent {
            id: EventId::from_u128(7),
            event_type: EventType::new("Execution Resumed").unwrap(),
            timestamp: at,
            app_name: AppName::new("tidemill").unwrap(),
            entity_type: EntityType::new("WORKFLOW").unwrap(),
            entity_id: EntityId::new("e-1").unwrap(),
            data: None,
            hop: 0,
        },
        body: json(r#"{"outcome":"resumed"}"#),
        attempts: 0,
        next_try_at: at,
        created_at: at,
        error: None,
        replay_of: Some(id(99)),
        failed_jobs: None,
    };
    let value = Some(RecordValue::Delivery(Box::new(delivery)));
    let key = RecordKey::delivery(&acme(), id(number));
    Command::PutRecord(PutRecord { key, value, expires_at: None, expected: Some(0) })
}

fn fail(number: u128, attempt: u32) -> Command {
    let end = DeliveryEnd::Failed { error: Arc::from("answered 500") };
    Command::EndDelivery(EndDelivery { tenant: acme(), delivery: id(number), attempt, told: 0, end })
}

fn arrive(number: u128, attempt: u32) -> Command {
    let end = DeliveryEnd::Arrived;
    Command::EndDelivery(EndDelivery { tenant: acme(), delivery: id(number), attempt, told: 0, end })
}

fn due(lab: &Lab) -> Vec<DeliveryKey> {
    lab.store.state().deliveries().due(Timestamp::MAX, 1_000, |_| false).due
}

#[test]
fn deliveries_leave_memory_and_are_known_all_the_same() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    let callback = Target::Callback(Arc::from("https://a.example/hook"));
    for (number, target) in [
        (1, Target::Workflow),
        (2, callback),
        (3, Target::People),
        (4, Target::AlertWebhook),
        (5, Target::Workflow),
    ] {
        lab.run(put(number, target)).unwrap();
    }
    lab.run(arrive(1, 1)).unwrap();
    lab.run(fail(3, 1)).unwrap();
    lab.store.flush_rows().unwrap();
    let in_memory = lab.store.state().records().filter(|(key, _)| key.kind == RecordKind::Delivery).count();
    assert_eq!(in_memory, 0, "the rows have them");
    assert_eq!(due(&lab).len(), 4);
    lab.assert_clean();
    // What follows is in the log alone.
    for attempt in 1..=4 {
        lab.run(fail(2, attempt)).unwrap();
    }
    let (waiting, kept) = (due(&lab), lab.letters());
    assert_eq!((waiting.len(), kept.len()), (3, 1));
    let RecordValue::DeliveryLetter(letter) = &kept[0] else { panic!("{kept:?}") };
    assert_eq!((letter.id, letter.attempts), (id(2), 4));
    let now = lab.now;
    drop(lab);
    let mut lab = Lab::keeping(&dir, 0, now);
    assert_eq!((due(&lab), lab.letters()), (waiting.clone(), kept.clone()));
    lab.assert_clean();

    let text = lab.export();
    let other = Fresh::new();
    let lock = DataLock::take(&other).unwrap();
    import_into(&other, &lock, small(), &mut text.as_bytes(), now, &mut unwatched).unwrap();
    drop(lock);
    let mut imported = Lab::keeping(&other, 0, now);
    assert_eq!(imported.export(), text);
    assert_eq!((due(&imported), imported.letters()), (waiting, kept));
    imported.assert_clean();
    let replay = Command::ReplayDelivery(ReplayDelivery { tenant: acme(), letter: id(2) });
    let Ok(Reply::DeliveryReplayed { delivery }) = imported.run(replay) else { panic!("a replay") };
    assert!(due(&imported).contains(&DeliveryKey { tenant: acme(), id: delivery }));
    imported.run(arrive(5, 1)).unwrap();
    assert_eq!(imported.run(fail(3, 2)).map(|reply| matches!(reply, Reply::DeliveryEnded { .. })), Ok(true));
    let imported = imported.rebuilt(&other, 0);
    assert_eq!(due(&imported).len(), 3);
}

/// Fills several segments and seals them, with a checkpoint behind.
fn fill(lab: &mut Lab) {
    for n in 0..200 {
        let padding = "x".repeat(400);
        let event = publish("filler", plain(&format!(r#"{{"n":{n},"padding":"{padding}"}}"#)), None, None);
        lab.run(event).unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
}

fn callback_of(lab: &Lab, job: JobId) -> Option<Arc<str>> {
    match lab.store.row(&RowKey::Job(acme(), job)).unwrap() {
        Some(Row::Job(head)) => head.callback,
        other => panic!("{other:?}"),
    }
}

/// The callback of a job outlives the entries that named it, in every way in which a store is rebuilt.
#[test]
fn a_callback_outlives_the_log_of_its_job() {
    let url: Arc<str> = Arc::from("https://a.example/done");
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    let job = JobId::from_u128(1);
    let Command::SubmitJob(submit) = submit_job(job, vec![spec("a", &[]), spec("b", &["a"])], None) else {
        unreachable!("it is a job")
    };
    lab.run(Command::SubmitJob(SubmitJob { callback: Some(Arc::clone(&url)), ..submit })).unwrap();
    let task = lab.claim(1).remove(0);
    lab.run(lab::fail(&task, ErrorCategory::Auth)).unwrap();
    assert_eq!(due(&lab).len(), 1);
    fill(&mut lab);
    lab.pass(20 * DAY);
    fill(&mut lab);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_rewritten > 0 && expired.rows_carried > 0, "{expired:?}");
    lab.assert_clean();
    let waiting = due(&lab);
    assert_eq!(waiting.len(), 1, "it waits for longer than its event is kept");
    lab = lab.rebuilt(&dir, 10);
    assert_eq!((callback_of(&lab, job), due(&lab)), (Some(Arc::clone(&url)), waiting.clone()));

    let (text, now) = (lab.export(), lab.now);
    assert!(text.contains(r#""callbackUrl":"https://a.example/done""#), "{text}");
    let other = Fresh::new();
    let lock = DataLock::take(&other).unwrap();
    import_into(&other, &lock, small(), &mut text.as_bytes(), now, &mut unwatched).unwrap();
    drop(lock);
    let mut imported = Lab::keeping(&other, 10, now);
    assert_eq!((callback_of(&imported, job), due(&imported)), (Some(Arc::clone(&url)), waiting));
    // The job goes on there, and its callback is called when it comes to rest again.
    let target = ResumeTarget::Job { job, tasks: None };
    imported.run(Command::Resume(Resume { tenant: acme(), target })).unwrap();
    imported.work_off();
    let told = due(&imported);
    assert_eq!(told.len(), 2);
    imported.assert_clean();
    assert_eq!(due(&imported.rebuilt(&other, 10)), told);
    assert_not_imported(&text, "https://a.example/done\",\"stream", "ftp://a.example/done\",\"stream", now);
}
