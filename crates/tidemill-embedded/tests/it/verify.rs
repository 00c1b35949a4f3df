//! Verify finds what was planted, and says what it is; rebuild heals what can be healed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use tidemill_embedded::Store;
use tidemill_embedded::checked_file::CheckedFile;
use tidemill_embedded::disk::Disk as _;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::rows::row_value;
use tidemill_engine::backend::Fault;
use tidemill_model::events::overflow::payload_key;
use tidemill_model::{EventId, JobId};

use crate::lab::{
    Fresh, Lab, acme, diamond, plain, publish, small, store_entity, submit_job, submit_task, unwatched,
};

type Table = TableDefinition<'static, &'static [u8], &'static [u8]>;
const ROWS: Table = TableDefinition::new("rows");
const OPEN: TableDefinition<'static, &'static [u8], ()> = TableDefinition::new("open");

/// The first byte of a row's key tells what it is.
const TASK: u8 = 1;
const JOB: u8 = 2;
const JOB_TASKS: u8 = 3;
const MESSAGE: u8 = 4;
const ENTITY: u8 = 6;

/// A store with finished and open work, all rows written, some segments sealed.
fn prepared(dir: &Path) {
    let mut lab = Lab::open(dir);
    for number in 1..20 {
        lab.run(submit_job(JobId::from_u128(number), diamond(), None)).unwrap();
        lab.run(publish("s", plain("{}"), None, None)).unwrap();
    }
    lab.work_off();
    lab.run(submit_job(JobId::from_u128(50), diamond(), None)).unwrap();
    lab.run(submit_task("z-alone", "{}")).unwrap();
    lab.run(submit_task("z-alone-too", "{}")).unwrap();
    lab.seal_all();
    lab.store.flush_rows().unwrap();
    lab.assert_clean();
}

fn database(dir: &Path) -> redb::Database {
    let file = RealDisk::new(dir).unwrap().open("derived/rows.redb").unwrap();
    redb::Builder::new().create_with_backend(CheckedFile::new(file)).unwrap()
}

/// The rows of one kind, as they are stored, without their checksums.
fn rows(dir: &Path, kind: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let db = database(dir);
    let table = db.begin_read().unwrap().open_table(ROWS).unwrap();
    let rows = table.iter().unwrap().map(|item| {
        let (key, value) = item.unwrap();
        let row = value.value();
        (key.value().to_vec(), row[..row.len() - 4].to_vec())
    });
    rows.filter(|(key, _)| key[0] == kind).collect()
}

fn change(dir: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let db = database(dir);
    let transaction = db.begin_write().unwrap();
    change(&transaction);
    transaction.commit().unwrap();
}

fn set(dir: &Path, key: &[u8], value: &[u8]) {
    change(dir, |transaction| {
        let row = row_value::seal(key, value);
        transaction.open_table(ROWS).unwrap().insert(key, row.as_slice()).unwrap();
    });
}

fn remove(dir: &Path, key: &[u8]) {
    change(dir, |transaction| {
        assert!(transaction.open_table(ROWS).unwrap().remove(key).unwrap().is_some());
    });
}

/// What verify says, and that a rebuild ends it.
fn findings(dir: &Path) -> Vec<String> {
    let findings = Lab::open(dir).store.verify().unwrap();
    assert_eq!(findings.is_clean(), findings.differences.is_empty());
    assert!(!findings.only_log);
    let disk = Arc::new(RealDisk::new(dir).unwrap());
    let rebuilt = Store::rebuild(disk, small(), &mut unwatched).unwrap().verify().unwrap();
    assert!(rebuilt.is_clean(), "{:#?}", rebuilt.differences);
    findings.differences
}

fn assert_found(found: &[String], expected: &str) {
    assert!(found.iter().any(|sentence| sentence.contains(expected)), "{found:#?} instead of {expected:?}");
}

#[test]
fn a_whole_store_is_clean() {
    let fresh = Fresh::new();
    prepared(&fresh);
    let found = Lab::open(&fresh).store.verify().unwrap();
    assert!(found.is_clean() && found.segments > 2 && found.events > 100 && found.rows > 80, "{found:?}");
    assert_eq!(found.tasks, 19 * 4 + 3);
}

#[test]
fn an_altered_row_is_found() {
    let fresh = Fresh::new();
    prepared(&fresh);
    // A finished task takes the row of an open one.
    let tasks = rows(&fresh, TASK);
    let open = tasks.iter().rfind(|(key, _)| key.ends_with(b"_a")).unwrap();
    set(&fresh, &tasks[2].0, &open.1);
    let expected = "task job-00000000000000000000000000000001_c of tenant acme says `attempts: 0`, but the log gives `attempts: 1`";
    assert_found(&findings(&fresh), expected);
}

#[test]
fn an_altered_row_of_open_work_is_found() {
    let fresh = Fresh::new();
    prepared(&fresh);
    let tasks = rows(&fresh, TASK);
    let row_of = |request: &[u8]| tasks.iter().find(|(key, _)| key.ends_with(request)).unwrap();
    set(&fresh, &row_of(b"\0z-alone").0, &row_of(b"\0z-alone-too").1);
    assert_found(
        &findings(&fresh),
        "task z-alone of tenant acme says `request: \"z-alone-too\"`, but the log gives `request: \"z-alone\"`",
    );
}

#[test]
fn a_row_that_is_not_one_is_found() {
    let fresh = Fresh::new();
    prepared(&fresh);
    let (key, mut row) = rows(&fresh, ENTITY).remove(0);
    row.truncate(row.len() - 1);
    set(&fresh, &key, &row);
    let found = findings(&fresh);
    assert_found(&found, "the history of STORE s of tenant acme cannot be read: a row ends too early");
}

#[test]
fn a_dropped_row_is_found() {
    for (kind, expected) in [
        (TASK, "task job-00000000000000000000000000000001_a of tenant acme is missing, but the log gives it"),
        (JOB, "job-00000000000000000000000000000001 of tenant acme is missing, but the log gives it"),
        (
            JOB_TASKS,
            "the task list of job-00000000000000000000000000000001 of tenant acme has other tasks (0) than",
        ),
        (MESSAGE, "message "),
        (ENTITY, "the history of STORE s of tenant acme is missing, but the log gives it"),
    ] {
        let fresh = Fresh::new();
        prepared(&fresh);
        remove(&fresh, &rows(&fresh, kind)[0].0);
        assert_found(&findings(&fresh), expected);
    }
}

#[test]
fn a_row_too_many_is_found() {
    let fresh = Fresh::new();
    prepared(&fresh);
    let (mut key, row) = rows(&fresh, TASK).remove(0);
    *key.last_mut().unwrap() = b'q';
    set(&fresh, &key, &row);
    assert_found(&findings(&fresh), "_q of tenant acme stands, but the log does not give it");
}

#[test]
fn a_wrong_list_of_open_work_is_found() {
    let fresh = Fresh::new();
    prepared(&fresh);
    let jobs = rows(&fresh, JOB);
    let (finished, open) = (&jobs[0].0, &jobs.last().unwrap().0);
    change(&fresh, |transaction| {
        let mut table = transaction.open_table(OPEN).unwrap();
        assert!(table.remove(open.as_slice()).unwrap().is_some());
        table.insert(finished.as_slice(), ()).unwrap();
        table.insert([&open[..open.len() - 1], &[99]].concat().as_slice(), ()).unwrap();
    });
    let found = findings(&fresh);
    assert_found(&found, "0001 of tenant acme is at rest, but the list of open work says open");
    assert_found(&found, "0032 of tenant acme is open, but the list of open work says at rest");
    assert_found(&found, "0063 of tenant acme is listed as open work, but has no row");
}

#[test]
fn a_missing_or_damaged_blob_is_found() {
    let fresh = Fresh::new();
    let mut lab = Lab::open(&fresh);
    let id = EventId::from_u128(7);
    let key = payload_key(&store_entity("large").id, id);
    lab.store.put_blob(&acme(), &key, b"{}").unwrap();
    let properties = plain(&format!(r#"{{"_s3Overflow":{{"bucket":"local","key":"{key}"}}}}"#));
    let properties = tidemill_engine::command::Prepared { id: Some(id), ..properties };
    lab.run(publish("large", properties, None, None)).unwrap();
    lab.assert_clean();
    let path = fresh.join("blobs/acme").join(&key);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let found = lab.store.verify().unwrap();
    assert_eq!(found.differences, [format!("event {id} names the blob {key}, which is damaged")]);
    let read = lab.store.blob(&acme(), &key);
    assert!(matches!(&read, Err(Fault::Damaged(text)) if text.contains(&key)), "{read:?}");
    std::fs::write(&path, b"{}").unwrap();
    assert_eq!(lab.store.blob(&acme(), &key).unwrap().unwrap(), b"{}", "as it was written before");
    lab.assert_clean();
    std::fs::remove_file(path).unwrap();
    let found = lab.store.verify().unwrap();
    assert_eq!(found.differences, [format!("event {id} names the blob {key}, which is missing")]);
}

fn sealed(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let mut sealed: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "sealed")).collect();
    sealed.sort();
    sealed
}

#[test]
fn a_flipped_byte_in_a_sealed_segment_is_found() {
    let fresh = Fresh::new();
    prepared(&fresh);
    let path = sealed(&fresh)[0].clone();
    let whole = std::fs::read(&path).unwrap();
    let mut refused_at_open = 0;
    for at in (0..whole.len()).step_by(whole.len() / 23) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let sentence = match Lab::try_open(&fresh) {
            Err(fault) => {
                refused_at_open += 1;
                fault.to_string()
            }
            Ok(lab) => {
                let found = lab.store.verify().unwrap();
                assert!(found.only_log && !found.is_clean());
                found.differences[0].clone()
            }
        };
        assert!(sentence.contains(&format!("log/{name} is damaged at byte ")), "byte {at}: {sentence}");
        // Rows are all that is left of a damaged segment: they are not thrown away.
        let disk = Arc::new(RealDisk::new(&*fresh).unwrap());
        let refused = Store::rebuild(disk, small(), &mut unwatched).err().unwrap().to_string();
        assert!(refused.contains("is damaged at byte "), "{refused}");
        assert!(!rows(&fresh, TASK).is_empty());
    }
    assert!(refused_at_open < 12, "most damage lets the store open");
    std::fs::write(&path, &whole).unwrap();
    Lab::open(&fresh).assert_clean();
}
