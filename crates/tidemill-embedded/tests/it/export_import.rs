//! Export and import: what goes out comes back the same, or not at all.

use std::path::Path;

use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::import_dir::import_into;
use tidemill_embedded::store::import::{ImportError, Imported};
use tidemill_embedded::store::retention::Retention;
use tidemill_engine::command::{Command, Prepared, PutRecord};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_engine::state::State;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::overflow::payload_key;
use tidemill_model::{
    AccessPath, ErrorCategory, EventId, JobId, JobStatus, KnownType, RequestId, TaskState, Timestamp,
};

use crate::lab::{
    Fresh, Lab, START, acme, beat, diamond, fail, plain, publish, small, spec, store_entity, submit_job,
    submit_task, unwatched,
};

fn import(dir: &Path, text: &str) -> Result<Imported, ImportError> {
    let lock = DataLock::take(dir).unwrap();
    let now = Timestamp::clamped(START + 1_000_000);
    import_into(dir, &lock, small(), &mut text.as_bytes(), now, &mut unwatched)
}

fn put_record(kind: RecordKind, id: &str) -> Command {
    Command::PutRecord(PutRecord {
        key: RecordKey { kind, tenant: Some(acme()), id: id.into() },
        value: Some(RecordValue::Bytes([0, 255, b'"'].as_slice().into())),
        expires_at: None,
        expected: None,
    })
}

/// A store with something of everything in it: open, leased, delayed, failed, cancelled, buried and finished work.
fn rich(dir: &Path) -> Lab {
    let mut lab = Lab::open(dir);
    lab.run(submit_job(JobId::from_u128(1), diamond(), Some("once"))).unwrap();
    lab.work_off();
    lab.store.flush_rows().unwrap();
    lab.run(submit_job(JobId::from_u128(2), diamond(), None)).unwrap();
    lab.work_off();
    lab.run(submit_task("dead", "{ }")).unwrap();
    for _ in 0..2 {
        lab.pass(60_000);
        let tasks = lab.claim(1);
        lab.run(fail(&tasks[0], ErrorCategory::Network)).unwrap();
    }
    lab.run(submit_job(JobId::from_u128(3), diamond(), None)).unwrap();
    let tasks = lab.claim(1);
    lab.run(fail(&tasks[0], ErrorCategory::Auth)).unwrap();
    lab.run(submit_job(JobId::from_u128(4), diamond(), None)).unwrap();
    lab.claim(1);
    lab.run(Command::Cancel(tidemill_engine::command::Cancel {
        tenant: acme(),
        job: JobId::from_u128(4),
        by: "me".into(),
        reason: Some("because".into()),
    }))
    .unwrap();
    // One retry under way, then leases, one of them with heartbeats.
    lab.run(submit_task("delayed", "{\"line\":\n\r\n 1}")).unwrap();
    let tasks = lab.claim(1);
    lab.run(fail(&tasks[0], ErrorCategory::Network)).unwrap();
    lab.run(submit_job(
        JobId::from_u128(5),
        vec![spec("x", &[]), spec("y", &[]), spec("z", &["x", "y"])],
        None,
    ))
    .unwrap();
    let tasks = lab.claim(1);
    lab.run(beat(&tasks[0])).unwrap();
    lab.run(beat(&tasks[0])).unwrap();
    for number in 0..200 {
        let properties = format!("{{\n\t\"number\": {number},\r\n \"text\": \"a\\nb \u{1f980}\" }}");
        lab.run(publish(&format!("s {}", number % 7), plain(&properties), None, None)).unwrap();
    }
    let late = Timestamp::clamped(START - 5_000);
    lab.run(publish("s 1", plain("{}"), Some(late), Some(4_000_000_000))).unwrap();
    let id = EventId::from_u128((u128::from(lab.now.millis()) << 80) | (7 << 76) | (2 << 62));
    let key = payload_key(&store_entity("large").id, id);
    let large = vec![7; (1 << 20) + 5];
    lab.store.put_blob(&acme(), &key, &large).unwrap();
    let properties = format!(r#"{{"_s3Overflow":{{"bucket":"local","key":"{key}"}}}}"#);
    let properties = Prepared { id: Some(id), ..plain(&properties) };
    lab.run(publish("large", properties, None, None)).unwrap();
    for kind in [RecordKind::Definition, RecordKind::Script, RecordKind::Cursor, RecordKind::ApiKey] {
        lab.run(put_record(kind, "secret-or-not")).unwrap();
    }
    lab.seal_all();
    lab.assert_clean();
    lab
}

/// What decisions and readers see of a state, in order, without what an export leaves out.
fn seen(state: &State) -> Vec<String> {
    let mut seen = Vec::new();
    for job in state.jobs() {
        let head = &job.head;
        seen.push(format!(
            "{} {:?} {:?} {} {}",
            head.job,
            head.status(),
            head.counts,
            head.version,
            head.cancelled
        ));
        seen.push(format!("{} {:?} {:?} {:?}", head.job, job.ready, job.processing, job.failed));
        for (node, index) in job.nodes.iter().zip(0u32..) {
            let head = node.entry.head.clone().map(unleased);
            let version = node.entry.stream.version();
            seen.push(format!(
                "{} {} {head:?} {version} {:?}",
                job.request_of(index),
                node.missing,
                node.entry.message
            ));
        }
    }
    for (key, alone) in state.alone() {
        let head = alone.entry.head.clone().map(unleased);
        seen.push(format!("{key:?} {head:?} {:?} {:?}", alone.entry.message, alone.task));
    }
    seen.extend(state.queue().iter().map(|queued| format!("{:?} {}", queued.message, queued.deliveries)));
    seen.extend(state.live_after(None).map(|key| format!("live {key:?}")));
    // Line breaks between values come back as spaces.
    let mut seen: Vec<String> = seen.iter().map(|text| text.replace(['\n', '\r'], " ")).collect();
    seen.sort();
    seen
}

fn unleased(mut head: tidemill_model::TaskHead) -> tidemill_model::TaskHead {
    // What a worker may still ask about ends with its lease.
    (head.failed_fence, head.reported, head.crashes) = (None, None, 0);
    if matches!(head.state, TaskState::Leased(_)) {
        head.state = TaskState::Queued;
    }
    head
}

pub(crate) fn events_of(lab: &Lab, path: AccessPath) -> Vec<tidemill_model::Event> {
    let mut query = EventQuery::all(acme(), path);
    let mut events = Vec::new();
    loop {
        let page = lab.store.events(&query).unwrap();
        events.extend(page.events);
        query.after = page.next;
        if query.after.is_none() {
            return events;
        }
    }
}

#[test]
fn an_export_comes_back_byte_by_byte() {
    let (one, two, three) = (Fresh::new(), Fresh::new(), Fresh::new());
    let mut lab = rich(&one);
    let first = lab.export();
    let imported = import(&two, &first).unwrap();
    assert_eq!(imported.messages_made, 0);
    assert!(imported.tally.blobs == 1 && imported.tally.jobs == 5, "{imported:?}");
    let mut copy = Lab::open(&two).at(lab.now);
    copy.assert_clean();
    let second = copy.export();
    for (number, (a, b)) in first.lines().zip(second.lines()).enumerate() {
        assert_eq!(a, b, "line {}", number + 1);
    }
    assert_eq!(first.len(), second.len());
    import(&three, &second).unwrap();
    assert_eq!(Lab::open(&three).export(), first);
    assert_eq!(seen(copy.store.state()), seen(lab.store.state()));

    // Every access path gives the same events, ids and times, but for line breaks between values.
    let flat = |events: Vec<tidemill_model::Event>| -> Vec<String> {
        events.iter().map(|event| event.to_json().replace(['\n', '\r'], " ")).collect()
    };
    for path in [
        AccessPath::Tenant,
        AccessPath::Entity(store_entity("s 1")),
        AccessPath::Entity(tidemill_model::Entity::job(JobId::from_u128(5))),
        AccessPath::Entity(tidemill_model::Entity::task(&RequestId::new("dead").unwrap())),
    ] {
        let (have, want) = (flat(events_of(&copy, path.clone())), flat(events_of(&lab, path.clone())));
        assert!(!want.is_empty(), "{path:?}");
        assert_eq!(have, want, "{path:?}");
    }
    let large = events_of(&copy, AccessPath::Entity(store_entity("large")));
    let key = payload_key(&store_entity("large").id, large[0].id);
    assert_eq!(copy.store.blob(&acme(), &key).unwrap(), Some(vec![7; (1 << 20) + 5]));
}

#[test]
fn an_export_holds_no_secrets_and_no_leases() {
    let fresh = Fresh::new();
    let text = rich(&fresh).export();
    for absent in
        ["\"apiKey\"", "\"cursor\"", "\"record\":\"system\"", "\"leased\"", "\"until\"", "\"owner\""]
    {
        assert!(!text.contains(absent), "{absent}");
    }
    assert!(text.contains(r#""record":"definition""#));
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
}

#[test]
fn work_goes_on_after_an_import() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let text = rich(&one).export();
    import(&two, &text).unwrap();
    let mut lab = Lab::open(&two).at(Timestamp::clamped(START + 10_000_000));
    // Nothing was started: the last event is the one that was exported last.
    let before = events_of(&lab, AccessPath::Tenant).len();
    assert_eq!(
        lab.run(submit_task("dead", "{}")),
        Err(Refusal::RequestTaken(RequestId::new("dead").unwrap()))
    );
    let Ok(Reply::JobSubmitted { job, repeated, .. }) =
        lab.run(submit_job(JobId::from_u128(99), diamond(), Some("once")))
    else {
        panic!("the same request is answered with the same job");
    };
    assert!(repeated && job == JobId::from_u128(1), "{job}");
    assert_eq!(events_of(&lab, AccessPath::Tenant).len(), before);
    // The leased task, its sibling, the join, and the task that waited for its next attempt.
    let tasks = lab.claim(8);
    let leased = tasks.iter().find(|task| task.task.request.as_str().ends_with("_x")).unwrap();
    assert_eq!(leased.fence.0, 2, "the right of the worker before is void");
    for task in tasks {
        lab.run(crate::lab::complete(&task, "{}")).unwrap();
    }
    assert_eq!(lab.work_off(), 1);
    let job = lab.store.state().job(&acme(), JobId::from_u128(5)).unwrap();
    assert_eq!(job.head.status(), JobStatus::Completed);
    lab.store.flush_rows().unwrap();
    lab.seal_all();
    lab.assert_clean();
    drop(lab);
    Lab::open(&two).assert_clean();
}

#[test]
fn open_tasks_without_a_message_get_one() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let mut lab = Lab::open(&one);
    lab.run(submit_job(JobId::from_u128(1), diamond(), None)).unwrap();
    let text = lab.export();
    let without: String = text
        .lines()
        .filter(|line| !line.contains(r#""kind":"message""#))
        .fold(String::new(), |all, line| all + &line.replace(r#""messages":1"#, r#""messages":0"#) + "\n");
    assert_eq!(import(&two, &without).unwrap().messages_made, 1);
    let mut copy = Lab::open(&two).at(Timestamp::clamped(START + 1_000_000));
    copy.assert_clean();
    assert_eq!(copy.work_off(), 4);
}

#[test]
fn histories_that_lost_their_beginning_keep_their_numbers() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let mut options = small();
    options.retention = Retention { event_millis: 1_000_000, heartbeat_millis: 1_000 };
    let disk = tidemill_embedded::real_disk::RealDisk::new(&*one).unwrap();
    let store = tidemill_embedded::Store::open(std::sync::Arc::new(disk), options).unwrap();
    let mut lab = Lab { store, now: Timestamp::clamped(START) };
    lab.run(submit_job(JobId::from_u128(1), diamond(), None)).unwrap();
    let tasks = lab.claim(1);
    for _ in 0..100 {
        lab.run(beat(&tasks[0])).unwrap();
    }
    lab.run(crate::lab::complete(&tasks[0], "{}")).unwrap();
    lab.work_off();
    for number in 0..300 {
        let old = if number < 250 { "old" } else { "new" };
        lab.run(publish(old, plain(&format!(r#"{{"filler":"{}"}}"#, "x".repeat(200))), None, None)).unwrap();
        lab.run(publish("both", plain("{}"), None, None)).unwrap();
        let back = [0, 40, 700, 3][number % 4];
        lab.run(publish("late", plain("{}"), Some(lab.now.minus(back)), None)).unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
    lab.pass(1_000_001);
    // Late when it was written; of what came before it nothing will be left.
    lab.run(publish("late", plain(r#"{"n":1}"#), Some(lab.now.minus(1_000_500)), None)).unwrap();
    for _ in 0..40 {
        lab.run(publish("new", plain(&format!(r#"{{"filler":"{}"}}"#, "x".repeat(2_000))), None, None))
            .unwrap();
        lab.run(publish("both", plain("{}"), None, None)).unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.events > 300 && expired.segments_dropped > 0, "{expired:?}");
    lab.store.flush_rows().unwrap();
    lab.assert_clean();
    let first = lab.export();
    assert!(first.contains(r#""kind":"entity""#));
    import(&two, &first).unwrap();
    let mut copy = Lab::open(&two).at(lab.now);
    copy.assert_clean();
    assert_eq!(copy.export(), first);
    assert_eq!(seen(copy.store.state()), seen(lab.store.state()));
    for entity in ["old", "new", "both", "late"] {
        let path = AccessPath::Entity(store_entity(entity));
        assert_eq!(events_of(&copy, path.clone()), events_of(&lab, path), "{entity}");
        copy.run(publish(entity, plain("{}"), None, None)).unwrap();
        let latest = copy.store.latest(&acme(), &store_entity(entity)).unwrap().unwrap();
        assert_eq!(latest.timestamp, copy.now, "{entity}");
    }
    assert!(first.contains(r#""late":true"#));
    copy.assert_clean();
    drop(copy);
    Lab::open(&two).assert_clean();
    assert!(!first.contains(KnownType::TaskHeartbeat.as_str()));
}

#[test]
fn only_an_empty_store_takes_an_import() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let text = rich(&one).export();
    Lab::open(&two).run(publish("s", plain("{}"), None, None)).unwrap();
    let refused = import(&two, &text).unwrap_err().to_string();
    assert_eq!(refused, "the store is not empty: it holds 1 events; import into a new data directory");
    assert_eq!(events_of(&Lab::open(&two), AccessPath::Tenant).len(), 1);
    // A store that was only opened, and what an import that died left behind, are no obstacle.
    let three = Fresh::new();
    Lab::open(&three).run(put_system_record()).unwrap();
    std::fs::create_dir_all(three.join("import.partial/log")).unwrap();
    std::fs::write(three.join("import.partial/log/FORMAT"), "?").unwrap();
    import(&three, &text).unwrap();
    assert_eq!(Lab::open(&three).export(), text);
    assert!(!three.join("import.partial").exists());
}

fn put_system_record() -> Command {
    Command::PutRecord(PutRecord {
        key: RecordKey { kind: RecordKind::System, tenant: None, id: "generation".into() },
        value: Some(RecordValue::Bytes([1].as_slice().into())),
        expires_at: None,
        expected: None,
    })
}

#[test]
fn a_bad_line_is_named_and_nothing_is_stored() {
    let one = Fresh::new();
    let text = rich(&one).export();
    let cut = &text[..text.len() - 20];
    let without_end = text.rsplit_once("{\"kind\":\"end\"").unwrap().0.to_owned();
    let twice = {
        let line = text.lines().find(|line| line.contains(r#""kind":"message","#)).unwrap();
        text.replacen(line, &format!("{line}\n{line}"), 1)
    };
    // The first job once more, under a tenant that comes later.
    let shared = {
        let lines: Vec<&str> = text.lines().collect();
        let is_job = |line: &&&str| line.starts_with(r#"{"kind":"job","#);
        let job = lines.iter().find(is_job).unwrap();
        let at = lines.iter().rposition(|line| line.starts_with(r#"{"kind":"job"#)).unwrap();
        let behind = lines[at + 1..].iter().take_while(|line| line.contains(r#""requestId":"job-"#)).count();
        let copy = job.replace(r#""tenantId":"acme""#, r#""tenantId":"zebra""#);
        let mut lines: Vec<String> = lines.into_iter().map(str::to_owned).collect();
        lines.insert(at + 1 + behind, copy);
        lines.join("\n") + "\n"
    };
    // The first line of a kind that holds `from`, changed.
    let changed = |kind: &str, from: &str, to: &str| {
        let kind = format!("{{\"kind\":\"{kind}\",");
        let line = text.lines().find(|line| line.starts_with(&kind) && line.contains(from)).unwrap();
        text.replacen(line, &line.replacen(from, to, 1), 1)
    };
    for (text, expected) in [
        (String::new(), "the export ends after line 0 without an end line: it was cut"),
        ("hello\n".to_owned(), "line 1: the line is wrong: expected value"),
        (text.split_once('\n').unwrap().1.to_owned(), "line 1: kind is not header, which comes first"),
        (
            changed("header", "\"version\":1", "\"version\":2,\"more\":1"),
            "the export has version 2; this release reads versions up to 1",
        ),
        (changed("header", "tidemill-export", "other"), "line 1: format is \"other\" version 1"),
        (cut.to_owned(), "it does not end: the export was cut"),
        (without_end, "without an end line: it was cut"),
        (format!("{text}{{}}\n"), "it comes after the end line"),
        (changed("event", "\"tenantId\":\"acme\",", ""), "line 2: event.tenantId is missing"),
        (changed("event", "\"ordinal\":1,", "\"ordinal\":0,"), "ordinal is 0, but 1 events of"),
        (changed("event", "EVENT#Task Pending", "EVENT#Task"), "line 3: event.GSI4PK is \"EVENT#Task\""),
        (
            changed("event", "\"eventType\":\"Task Pending\"", "\"eventType\":7"),
            "event.eventType is not a string",
        ),
        (
            changed("job", "\"createdAt\":17", "\"createdAt\":\"17\",\"x\":17"),
            "createdAt is wrong: invalid type: string",
        ),
        (
            changed("job", "\"jobId\":\"job-0", "\"jobId\":\"job-g"),
            "jobId is wrong: jobId is not of the form",
        ),
        (changed("job", "\"changes\":", "\"changed\":"), "changes is missing"),
        (
            changed("job", "\"changes\":", "\"colour\":1,\"changes\":"),
            "colour is not known here, or given twice",
        ),
        (changed("jobTasks", "\"first\":0,", "\"first\":3,"), "first is 3, but 0 tasks came before"),
        (changed("jobTasks", "\"taskId\":\"b\",", ""), "tasks[1] is wrong: missing field `taskId`"),
        (changed("jobTasks", "\"dependsOn\":[\"a\"]", "\"dependsOn\":[\"q\"]"), "tasks is wrong: "),
        (changed("jobTasks", "\"taskId\":\"d\"", "\"taskId\":\"e\""), "_d is not a task of job-"),
        (
            changed("task", "\"state\":\"queued\"", "\"state\":\"asleep\""),
            "head.state is \"asleep\", which it cannot be",
        ),
        (changed("task", "\"stream\":{\"events\":3", "\"stream\":{\"events\":2"), "stream.events is 2, but"),
        (
            changed("record", "\"record\":\"definition\"", "\"record\":\"apiKey\""),
            "record is \"apiKey\", which it",
        ),
        (twice, "the line comes twice or out of order"),
        (shared, ", which is that of another job"),
        (changed("task", "\"fence\":", "\"fence\":1844674407370955161"), "; the limit is 9007199254740992"),
        (changed("task", "\"run\":", "\"run\":429496729"), "; the limit is 1000000000"),
        (changed("task", "\"attempts\":", "\"attempts\":429496729"), "; the limit is 1000000000"),
        (changed("task", "\"events\":", "\"events\":1844674407370955161"), "stream.events is 18446744"),
        (changed("end", "\"events\":", "\"events\":1"), "the line counts ExportTally { events: 1"),
    ] {
        let fresh = Fresh::new();
        let refused = import(&fresh, &text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused:?} instead of {expected:?}");
        assert!(!fresh.join("log").exists() && !fresh.join("import.partial").exists());
        assert!(Lab::open(&fresh).store.state().jobs().next().is_none());
    }
}
