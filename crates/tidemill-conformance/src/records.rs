//! Control records and blobs.

use std::sync::Arc;

use super::shape::acme;
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{Record, RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};

pub(super) fn record_key(id: &str) -> RecordKey {
    RecordKey { kind: RecordKind::Definition, tenant: Some(acme()), id: Arc::from(id) }
}

fn bytes(value: &[u8]) -> RecordValue {
    RecordValue::Bytes(Arc::from(value))
}

/// Writes a definition of the tenant `acme`.
pub(super) fn put(id: &str, value: &[u8], expected: Option<u64>) -> Command {
    Command::PutRecord(PutRecord {
        key: record_key(id),
        value: Some(bytes(value)),
        expires_at: None,
        expected,
    })
}

fn remove(id: &str, expected: Option<u64>) -> Command {
    Command::PutRecord(PutRecord { key: record_key(id), value: None, expires_at: None, expected })
}

async fn get<W: TestWorld>(lab: &Lab<W>, id: &str) -> Option<(u64, RecordValue)> {
    let record = lab.world.backend().record(record_key(id)).await.expect("the backend works");
    record.map(|Record { version, value, .. }| (version, value))
}

/// Created, read, changed and removed, each on condition of the version.
pub async fn records_have_versions<W: TestWorld>(lab: Lab<W>) {
    assert_eq!(get(&lab, "d-1").await, None);
    let conflict = lab.execute(put("d-1", &[1], Some(1))).await;
    assert_eq!(conflict, Err(Refusal::RecordConflict { expected: 1, actual: 0 }));
    assert_eq!(lab.execute(put("d-1", &[1], Some(0))).await, Ok(Reply::RecordPut { version: 1 }));
    assert_eq!(get(&lab, "d-1").await, Some((1, bytes(&[1]))));
    assert!(lab.execute(put("d-1", &[2], Some(0))).await.is_err(), "it exists");
    assert_eq!(lab.execute(put("d-1", &[2], Some(1))).await, Ok(Reply::RecordPut { version: 2 }));
    assert_eq!(lab.execute(put("d-1", &[3], None)).await, Ok(Reply::RecordPut { version: 3 }));
    assert!(lab.execute(remove("d-1", Some(2))).await.is_err());
    assert_eq!(get(&lab, "d-1").await, Some((3, bytes(&[3]))));
    lab.execute(remove("d-1", Some(3))).await.expect("the version is right");
    assert_eq!(get(&lab, "d-1").await, None);
    assert_eq!(
        lab.execute(put("d-1", &[4], Some(0))).await,
        Ok(Reply::RecordPut { version: 1 }),
        "it was gone"
    );
}

/// Of one kind and owner, by id, by pages; removed ones are not listed.
pub async fn records_are_listed_in_order<W: TestWorld>(lab: Lab<W>) {
    for id in ["b", "a", "d", "c", "a-1", "B"] {
        lab.execute(put(id, id.as_bytes(), None)).await.expect("any version");
    }
    let global = RecordKey { tenant: None, ..record_key("g") };
    let write = PutRecord { key: global, value: Some(bytes(&[1])), expires_at: None, expected: None };
    lab.execute(Command::PutRecord(write)).await.expect("any version");
    let other_kind = RecordKey { kind: RecordKind::Script, ..record_key("s") };
    let write = PutRecord { key: other_kind, value: Some(bytes(&[1])), expires_at: None, expected: None };
    lab.execute(Command::PutRecord(write)).await.expect("any version");
    lab.execute(remove("c", None)).await.expect("any version");
    let (mut listed, mut after): (Vec<String>, Option<Arc<str>>) = (Vec::new(), None);
    loop {
        let backend = lab.world.backend();
        let page = backend.records(RecordKind::Definition, Some(acme()), after.clone(), 2).await;
        let page = page.expect("the backend works");
        let Some((last, _)) = page.last() else { break };
        after = Some(Arc::clone(&last.id));
        listed.extend(page.iter().map(|(key, _)| key.id.to_string()));
    }
    assert_eq!(listed, ["B", "a", "a-1", "b", "d"]);
    let global = lab.world.backend().records(RecordKind::Definition, None, None, 9).await;
    assert_eq!(global.expect("the backend works").len(), 1, "those without a tenant");
}

/// A blob is read as it was written; writing it again replaces it whole.
pub async fn blobs_are_kept_whole<W: TestWorld>(lab: Lab<W>) {
    let backend = lab.world.backend();
    let blob = |key: &str| backend.blob(acme(), key.to_owned());
    assert_eq!(blob("a").await.expect("the backend works"), None);
    // Keys come from entity ids, which are any text: none of them may leave the tenant's own place.
    let keys =
        ["a", "a/b", "../../etc/passwd", "events/../x y/é-payload.json", "A", ".", "events/a/", "a\\b"];
    for (n, key) in (0u8..).zip(keys) {
        backend.put_blob(acme(), key.to_owned(), vec![n; 10]).await.expect("the backend works");
    }
    for (n, key) in (0u8..).zip(keys) {
        assert_eq!(blob(key).await.expect("the backend works"), Some(vec![n; 10]), "{key}");
    }
    let large: Vec<u8> = (0..3_000_000u32).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
    for bytes in [large, Vec::new(), vec![7]] {
        backend.put_blob(acme(), "a".to_owned(), bytes.clone()).await.expect("the backend works");
        assert_eq!(blob("a").await.expect("the backend works"), Some(bytes));
    }
}
