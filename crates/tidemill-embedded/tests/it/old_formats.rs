//! What an earlier form of the data directory holds is there, and goes on from there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::record::{RecordKind, RecordValue};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::{JobId, JobStatus, TenantId, Timestamp};

use crate::lab::{Lab, plain, publish, submit_task, unwatched};
use crate::specimen::{NOW, open, options, unpack};

/// Every form that a data directory ever had.
const FORMATS: [&str; 2] = ["format-1.tar.zst", "format-2.tar.zst"];

/// Whether `new` says at least what `old` said: later exports may say more.
fn says(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            old.iter().all(|(key, old)| new.get(key).is_some_and(|new| says(new, old)))
        }
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(new, old)| says(new, old))
        }
        _ => new == old,
    }
}

fn assert_says(lab: &mut Lab, name: &str, export: &[String]) {
    let now = lab.export();
    let now: Vec<&str> = now.lines().collect();
    assert_eq!(now.len(), export.len(), "{name}");
    // The first line is about the export itself.
    for (new, old) in now.iter().zip(export).skip(1) {
        let [new, old]: [Value; 2] = [new, old.as_str()].map(|line| serde_json::from_str(line).unwrap());
        assert!(says(&new, &old), "{name}: {new} instead of {old}");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let files = std::fs::read_dir(dir).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_specimen_has_something_of_everything() {
    for name in FORMATS {
        let specimen = unpack(name);
        let lines: Vec<Value> =
            specimen.export.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        for kind in ["event", "blob", "job", "jobTasks", "task", "message", "record", "entity"] {
            assert!(lines.iter().any(|line| line["kind"] == kind), "{name}: {kind}");
        }
        let attempted = |line: &Value| line["head"]["attempts"].as_u64() > Some(1);
        assert!(lines.iter().any(attempted), "{name}: a task of several attempts");
        let lab = open(&specimen.dir);
        for kind in RecordKind::ALL {
            assert!(!lab.store.records(kind).unwrap().is_empty(), "{name}: {kind:?}");
        }
        let statuses: BTreeSet<JobStatus> = lines
            .iter()
            .filter(|line| line["kind"] == "job")
            .map(|line| {
                let tenant = TenantId::new(line["tenantId"].as_str().unwrap()).unwrap();
                let job = JobId::new(line["jobId"].as_str().unwrap()).unwrap();
                match lab.store.row(&RowKey::Job(tenant, job)).unwrap() {
                    Some(Row::Job(head)) => head.status(),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        for status in [JobStatus::Completed, JobStatus::Running, JobStatus::Cancelled] {
            assert!(statuses.contains(&status), "{name}: {statuses:?}");
        }
        let files = names(&specimen.dir.join("log"));
        for (end, least) in [(".sealed", 2), (".log", 1)] {
            assert!(files.iter().filter(|name| name.ends_with(end)).count() >= least, "{name}: {files:?}");
        }
    }
}

#[test]
fn what_an_earlier_form_holds_is_there() {
    for name in FORMATS {
        let specimen = unpack(name);
        let mut lab = open(&specimen.dir);
        lab.assert_clean();
        assert_says(&mut lab, name, &specimen.export);
        lab.store.flush_rows().unwrap();
        drop(lab);
        let mut lab = open(&specimen.dir);
        lab.assert_clean();
        assert_says(&mut lab, name, &specimen.export);
        drop(lab);
        let disk = Arc::new(RealDisk::new(&*specimen.dir).unwrap());
        let store = Store::rebuild(disk, options(), &mut unwatched).unwrap();
        let mut lab = Lab { store, now: Timestamp::clamped(NOW) };
        lab.assert_clean();
        assert_says(&mut lab, name, &specimen.export);
    }
}

/// The work that was open is done, new work comes, and all that the old segments alone knew is carried into new ones.
#[test]
fn an_earlier_form_goes_on_and_is_carried_over() {
    for name in FORMATS {
        let specimen = unpack(name);
        let mut lab = open(&specimen.dir);
        assert!(lab.work_off() > 0, "{name}");
        let count = |lab: &Lab| RecordKind::ALL.map(|kind| lab.store.records(kind).unwrap().len());
        for number in 0..300 {
            lab.run(submit_task(&format!("later-{number}"), r#"{"some": "more bytes than none at all"}"#))
                .unwrap();
            lab.run(publish("s", plain("{}"), None, None)).unwrap();
        }
        lab.work_off();
        // All followers of the log have come to its end, or nothing would expire.
        for (key, record) in lab.store.records(RecordKind::Cursor).unwrap() {
            let value = Some(RecordValue::Bytes((1_u64 << 40).to_le_bytes().as_slice().into()));
            let expected = Some(record.version);
            lab.run(Command::PutRecord(PutRecord { key, value, expires_at: None, expected })).unwrap();
        }
        lab.assert_clean();
        let records = count(&lab);
        lab.seal_all();
        lab.store.flush_rows().unwrap();
        let now = lab.now;
        drop(lab);
        let retention = Retention { event_millis: 1_000, heartbeat_millis: 1_000 };
        let store = Store::open(
            Arc::new(RealDisk::new(&*specimen.dir).unwrap()),
            StoreOptions { retention, ..options() },
        );
        let mut lab = Lab { store: store.unwrap(), now };
        lab.pass(10 * 60_000);
        let expired = lab.store.expire(lab.now).unwrap();
        assert!(expired.events > 0 && expired.rows_carried > 0, "{name}: {expired:?}");
        lab.assert_clean();
        drop(lab);
        std::fs::remove_file(specimen.dir.join("derived/rows.redb")).unwrap();
        let lab = open(&specimen.dir);
        lab.assert_clean();
        // Idempotency keys, executions and the like may have run out; nothing else has.
        for ((kind, before), after) in RecordKind::ALL.into_iter().zip(records).zip(count(&lab)) {
            assert!(after > 0 || before == 0 || is_forgotten(kind), "{name}: {kind:?}");
        }
    }
}

fn is_forgotten(kind: RecordKind) -> bool {
    matches!(kind, RecordKind::Idempotency | RecordKind::Execution | RecordKind::Token | RecordKind::Triage)
}
