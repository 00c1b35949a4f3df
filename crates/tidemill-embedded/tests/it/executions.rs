//! Executions of scripts and their dead letters: in rows that leave memory, in a log whose beginning goes, and in an
//! export.

use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::import_dir::import_into;
use tidemill_engine::command::{
    Command, EndExecution, ExecutionEnd, Match, NewExecution, ReplayLetter, ScriptEffect, SubmitJob,
};
use tidemill_engine::execution::{ExecutionId, ExecutionKey, RunError, SourceEvent};
use tidemill_engine::record::{RecordKey, RecordKind};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::{
    AppName, EntityId, EntityType, EventId, EventType, JobId, ScriptId, SubscriptionId, TenantId, Timestamp,
};

use super::lab::{
    self, DAY, Fresh, Lab, acme, assert_not_imported, json, plain, publish, small, spec, submit_job,
    unwatched,
};

fn matched(event: u128) -> NewExecution {
    NewExecution {
        tenant: acme(),
        script: ScriptId::new("greet").unwrap(),
        subscription: SubscriptionId::new("s-1").unwrap(),
        event: SourceEvent {
            id: EventId::from_u128(event),
            event_type: EventType::new("user.created").unwrap(),
            timestamp: Timestamp::clamped(lab::START),
            app_name: AppName::new("shop").unwrap(),
            entity_type: EntityType::new("USER").unwrap(),
            entity_id: EntityId::new("u-1").unwrap(),
            data: Some(json(r#"{"name":"ann"}"#)),
            hop: 2,
        },
    }
}

fn id(event: u128) -> ExecutionId {
    ExecutionId::of(EventId::from_u128(event), &SubscriptionId::new("s-1").unwrap())
}

fn matching(cursor_version: u64, to: Option<u64>, events: impl IntoIterator<Item = u128>) -> Command {
    let executions = events.into_iter().map(matched).collect();
    Command::Match(Match { lane: None, cursor_version, to, executions })
}

fn end(event: u128, attempt: u32, end: ExecutionEnd) -> Command {
    let logs = Some(json(r#"[{"level":"info","text":"hi"}]"#));
    let execution = id(event);
    Command::EndExecution(EndExecution { tenant: acme(), execution, attempt, duration_millis: 4, logs, end })
}

fn success() -> ExecutionEnd {
    ExecutionEnd::Succeeded { result: Some(json("7")), effects: Vec::new() }
}

fn failure(retry_in_millis: Option<u64>) -> ExecutionEnd {
    let error = RunError { class: "timeout".into(), message: "slow".into(), stack: "at greet:1:1".into() };
    ExecutionEnd::Failed { error, retry_in_millis, data: None }
}

/// A job that a script submits.
fn submit(job: u128) -> ExecutionEnd {
    let Command::SubmitJob(submit) = submit_job(JobId::from_u128(job), vec![spec("a", &[])], None) else {
        unreachable!("it is a job")
    };
    let submit: SubmitJob = submit;
    ExecutionEnd::Succeeded { result: None, effects: vec![ScriptEffect::SubmitJob(Box::new(submit))] }
}

fn hops(lab: &Lab, job: u128) -> u32 {
    match lab.store.row(&RowKey::Job(acme(), JobId::from_u128(job))).unwrap() {
        Some(Row::Job(head)) => head.hops,
        other => panic!("{other:?}"),
    }
}

fn due(lab: &Lab) -> Vec<ExecutionKey> {
    let mut due = lab
        .store
        .state()
        .pending()
        .due(Timestamp::MAX, &tidemill_engine::state::Room::of(10_000), |_| false)
        .due;
    due.sort();
    due
}

fn in_memory(lab: &Lab) -> usize {
    lab.store.state().records().filter(|(key, _)| key.kind == RecordKind::Execution).count()
}

#[test]
fn what_waits_leaves_memory_and_is_known_all_the_same() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    lab.run(matching(0, Some(3), 1..=100)).unwrap();
    lab.run(end(1, 1, success())).unwrap();
    lab.run(end(2, 1, failure(Some(2_000)))).unwrap();
    lab.run(end(3, 1, failure(None))).unwrap();
    lab.store.flush_rows().unwrap();
    assert_eq!(in_memory(&lab), 0, "the rows have them");
    let waiting = due(&lab);
    assert_eq!(waiting.len(), 98);
    lab.assert_clean();
    // More of it after the checkpoint, which the log alone has.
    lab.run(matching(1, Some(9), 99..=120)).unwrap();
    lab.run(end(4, 1, success())).unwrap();
    let waiting = due(&lab);
    assert_eq!(waiting.len(), 98 - 1 + 20);
    let now = lab.now;
    drop(lab);
    let mut lab = Lab::keeping(&dir, 0, now);
    assert_eq!(due(&lab), waiting);
    assert!(in_memory(&lab) < 30, "only what the log had after the rows");
    lab.assert_clean();
    lab = lab.rebuilt(&dir, 0);
    assert_eq!(due(&lab), waiting);
    lab.run(end(2, 2, success())).unwrap();
    assert!(lab.run(end(2, 2, success())).is_err());
    assert!(lab.run(end(4, 1, success())).is_err(), "it ended before the restart");
    lab.store.flush_rows().unwrap();
    lab.assert_clean();
    assert_eq!(due(&lab).len(), waiting.len() - 1);
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

#[test]
fn letters_and_what_waits_outlive_the_events_and_what_is_done_does_not() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    lab.run(matching(0, Some(1), 1..=5)).unwrap();
    lab.run(end(1, 1, success())).unwrap();
    lab.run(end(2, 1, failure(None))).unwrap();
    lab.run(end(3, 1, submit(1))).unwrap();
    lab.work_off();
    // A cursor that stands holds up what it has not seen.
    lab.run(matching(1, None, [])).unwrap();
    let (waiting, kept) = (due(&lab), lab.letters());
    assert_eq!((waiting.len(), kept.len(), hops(&lab, 1)), (2, 1, 3));
    fill(&mut lab);
    lab.pass(20 * DAY);
    fill(&mut lab);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0 && expired.rows_carried > 0, "{expired:?}");
    lab.assert_clean();
    for round in 0..2 {
        assert_eq!(
            (due(&lab), lab.letters(), hops(&lab, 1)),
            (waiting.clone(), kept.clone(), 3),
            "round {round}"
        );
        assert!(lab.store.row(&RowKey::Record(RecordKey::execution(&acme(), id(1)))).unwrap().is_some());
        lab = lab.rebuilt(&dir, 10);
    }
    // Those that ended go after 30 days; those that wait and the letters stay.
    lab.pass(11 * DAY);
    lab.store.flush_rows().unwrap();
    lab.store.expire(lab.now).unwrap();
    for event in [1, 2, 3] {
        assert_eq!(lab.store.row(&RowKey::Record(RecordKey::execution(&acme(), id(event)))).unwrap(), None);
    }
    assert_eq!((due(&lab), lab.letters()), (waiting, kept));
    lab.store.flush_rows().unwrap();
    lab.assert_clean();
}

#[test]
fn an_export_takes_executions_and_letters_along() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let mut lab = Lab::begun(&one, 0);
    lab.run(matching(0, Some(1), 1..=5)).unwrap();
    lab.run(end(1, 1, success())).unwrap();
    lab.run(end(2, 1, failure(None))).unwrap();
    lab.run(end(3, 1, submit(1))).unwrap();
    lab.run(end(4, 1, failure(Some(60_000)))).unwrap();
    lab.run(Command::ReplayLetter(ReplayLetter { tenant: acme(), letter: id(2) })).unwrap();
    let text = lab.export();
    let lock = DataLock::take(&two).unwrap();
    import_into(&two, &lock, small(), &mut text.as_bytes(), lab.now, &mut unwatched).unwrap();
    drop(lock);
    let mut copy = Lab::keeping(&two, 0, lab.now);
    copy.assert_clean();
    assert_eq!(copy.export(), text);
    assert_eq!((due(&copy), copy.letters(), hops(&copy, 1)), (due(&lab), lab.letters(), 3));
    copy.run(end(5, 1, success())).unwrap();
    for (from, to) in [("\"status\":\"queued\"", "\"status\":\"lost\""), ("\"hops\":3", "\"hops\":-3")] {
        assert_not_imported(&text, from, to, copy.now);
    }
}

/// What ended more than 30 days ago is forgotten, of every tenant, and nothing else is: not what waits, however old, and
/// not what is newer.
#[test]
fn ended_executions_are_forgotten_after_their_time() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    let moment = |now: Timestamp, n: u64| (u128::from(now.millis() + n) << 80) | u128::from(n);
    let tenants = ["acme", "b", "c"].map(|name| TenantId::new(name).unwrap());
    let mut version = 0;
    let mut fill = |lab: &mut Lab| {
        let now = lab.now;
        for n in 0..30 {
            let tenant = &tenants[usize::try_from(n % 3).unwrap()];
            let new = NewExecution { tenant: tenant.clone(), ..matched(moment(now, n)) };
            let executions = vec![new];
            lab.run(Command::Match(Match {
                lane: None,
                cursor_version: version,
                to: Some(version),
                executions,
            }))
            .unwrap();
            version += 1;
            // One in five waits.
            if n % 5 != 0 {
                let Command::EndExecution(ended) = end(moment(now, n), 1, success()) else { unreachable!() };
                lab.run(Command::EndExecution(EndExecution { tenant: tenant.clone(), ..ended })).unwrap();
            }
        }
    };
    fill(&mut lab);
    lab.now = lab.now.plus(20 * DAY);
    fill(&mut lab);
    lab.store.flush_rows().unwrap();
    let count = |lab: &Lab| lab.store.records(RecordKind::Execution).unwrap().len();
    lab.store.expire(lab.now).unwrap();
    assert_eq!(count(&lab), 60, "nothing is old");
    lab.now = lab.now.plus(11 * DAY);
    lab.store.expire(lab.now).unwrap();
    lab.store.flush_rows().unwrap();
    assert_eq!(count(&lab), 30 + 6, "24 of the first 30 had ended");
    lab.now = lab.now.plus(20 * DAY);
    lab.store.expire(lab.now).unwrap();
    lab.store.flush_rows().unwrap();
    assert_eq!(count(&lab), 12, "what waits is never forgotten");
    assert_eq!(due(&lab).len(), 12);
    lab.assert_clean();
}
