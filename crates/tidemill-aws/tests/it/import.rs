//! An export of a data directory goes into an empty table, and reads back equal.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidemill_aws::{Aws, AwsOptions, Bus, Connection, RestoreError, Restored, create_table, restore};
use tidemill_conformance::{Lab, ManualClock, TestWorld, block_on};
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::{Embedded, Store, StoreOptions};
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::piece::Piece;
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{Record, RecordKey, RecordKind, RecordValue};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::{ErrorCategory, JobId, JobStatus, TenantId};

use crate::bus::Home;
use crate::conformance::TableWorld;
use crate::double::{Double, RUNTIME, double, fresh_name};

/// Jobs at every stage, records of many kinds, and a large event.
async fn fill<W: TestWorld>(lab: &Lab<W>) -> Vec<JobId> {
    let done = lab.submit("A B<A").await;
    while lab.status(done).await == JobStatus::Running {
        lab.pass(10);
        for task in lab.claim(9).await {
            let output = format!(r#"{{"text":"{}"}}"#, "x".repeat(300_000));
            lab.complete(&task, &output).await;
        }
    }
    let failed = lab.submit("A B<A").await;
    for task in lab.claim(9).await {
        lab.fail(&task, ErrorCategory::Auth).await;
    }
    let open = lab.submit("A B C<A+B").await;
    for task in lab.claim(1).await {
        lab.complete(&task, "{}").await;
    }
    vec![done, failed, open]
}

fn export(dir: &std::path::Path) -> Vec<u8> {
    let disk = RealDisk::new(dir).expect("the directory is there");
    let mut store = Store::open(Arc::new(disk), StoreOptions::default()).expect("the store opens");
    let mut lines = Vec::new();
    store.export(&mut lines, &mut |_| {}).expect("it is exported");
    lines
}

/// What a new directory exports that was made of an export.
fn moved(mut lines: &[u8], clock: &ManualClock) -> Vec<u8> {
    let dir = std::env::temp_dir().join(format!("tidemill-moved-{}", fresh_name()));
    let disk = Arc::new(RealDisk::new(&dir).expect("a directory can be made"));
    let now = tidemill_engine::clock::Clock::now(clock);
    Store::import(disk, StoreOptions::default(), &mut lines, now, &mut |_| {}).expect("the export is read");
    let lines = export(&dir);
    std::fs::remove_dir_all(&dir).expect("it was made");
    lines
}

/// Puts the lines of an export into a table, by way of a directory.
async fn import(
    connection: &Connection,
    options: &AwsOptions,
    lines: Vec<u8>,
    clock: &ManualClock,
) -> Result<Restored, RestoreError> {
    use tidemill_engine::clock::Clock;
    let now = clock.now();
    let (pieces, taken) = tokio::sync::mpsc::channel(64);
    let handing = tokio::task::spawn_blocking(move || {
        let dir = std::env::temp_dir().join(format!("tidemill-import-{}", fresh_name()));
        let disk = Arc::new(RealDisk::new(&dir).expect("a directory can be made"));
        let options = StoreOptions::default;
        Store::import(disk.clone(), options(), &mut lines.as_slice(), now, &mut |_| {})
            .expect("the export is read");
        let mut store = Store::open(disk, options()).expect("the store opens");
        store.hand_over(&mut |piece: Piece| pieces.blocking_send(piece).is_ok()).expect("all is handed over");
        std::fs::remove_dir_all(&dir).expect("it was made");
    });
    let restored = restore(connection, options, taken).await;
    handing.await.expect("the export is handed over");
    restored
}

/// All that a home tells: events as JSON, jobs with their tasks, and records.
async fn told<B: Backend>(backend: &B, tenant: &TenantId, jobs: &[JobId]) -> Vec<String> {
    let mut told = Vec::new();
    let mut query = EventQuery::all(tenant.clone(), AccessPath::Tenant);
    query.limit = 1_000;
    for event in backend.events(query).await.expect("it answers").events {
        told.push(event.to_json());
    }
    for job in jobs {
        let found = backend.job(tenant.clone(), *job).await.expect("it answers").expect("it is known");
        let head = &found.head;
        told.push(format!("{:?} {:?} {:?} {}", found.status, head.counts, head.created_at, head.version));
        for task in backend.job_tasks(tenant.clone(), *job, 0, 100).await.expect("it answers") {
            told.push(format!("{:?} {:?} {:?} {:?}", task.task, task.state, task.head, task.spec));
        }
    }
    for kind in RecordKind::ALL {
        // The store's own life is its own.
        if !matches!(kind, RecordKind::System) {
            for (key, record) in backend.all_records(kind, None, 1_000).await.expect("it answers") {
                told.push(format!("{key:?} {record:?}"));
            }
        }
    }
    told.push(format!("{:?}", backend.look(|state| state.queue().len()).await.expect("it answers")));
    told
}

#[test]
fn an_export_reads_back_equal_from_a_table() {
    let Some(double) = double() else { return };
    let clock = ManualClock::default();
    let dir = std::env::temp_dir().join(format!("tidemill-export-{}", fresh_name()));
    let options = || StoreOptions { seed: 7, ..StoreOptions::default() };
    let (jobs, tenant) = {
        let backend = Embedded::open(&dir, options(), Arc::new(clock.clone())).expect("the directory opens");
        let lab = Lab::new(Home(Arc::new(backend)), clock.clone());
        (block_on(fill(&lab)), TenantId::trusted("acme"))
    };
    let lines = export(&dir);
    // The same export in another directory: what it tells is what the table is to tell.
    let at_home = {
        let dir = std::env::temp_dir().join(format!("tidemill-again-{}", fresh_name()));
        let disk = Arc::new(RealDisk::new(&dir).expect("a directory can be made"));
        let now = tidemill_engine::clock::Clock::now(&clock);
        Store::import(disk, options(), &mut lines.as_slice(), now, &mut |_| {}).expect("it is read");
        let backend = Embedded::open(&dir, options(), Arc::new(clock.clone())).expect("it opens");
        let told = block_on(told(&backend, &tenant, &jobs));
        drop(backend);
        std::fs::remove_dir_all(&dir).expect("it was made");
        told
    };
    std::fs::remove_dir_all(&dir).expect("the directory was made");
    RUNTIME.block_on(async {
        let name = fresh_name();
        let connection = double.connect().await;
        create_table(&connection, &name, &name).await.expect("the table is made");
        let options =
            AwsOptions { follow_every: None, ..AwsOptions::new(name.clone(), name, Bus::Loopback, 1) };
        let first = lines.clone();
        let restored = import(&connection, &options, lines.clone(), &clock).await.expect("it is imported");
        assert!(restored.events > 10 && restored.blobs > 0 && restored.rows > 5, "{restored:?}");
        let again = import(&connection, &options, lines, &clock).await;
        assert!(matches!(again, Err(RestoreError::NotEmpty(_))), "{again:?}");

        let world = TableWorld::open(connection.clone(), options.clone(), clock.clone()).await;
        let lab = Lab::new(world, clock.clone());
        let on_aws = told(&*lab.world.backend(), &tenant, &jobs).await;
        for (aws, home) in on_aws.iter().zip(&at_home) {
            assert_eq!(aws, home);
        }
        assert_eq!(on_aws.len(), at_home.len());
        assert_eq!(lab.world.backend().follow(0, 10).await.expect("it answers").len(), 0, "nothing starts");
        let mut exported = Vec::new();
        let done = lab.world.backend().export(&mut exported).await.expect("it is exported");
        assert_eq!((done.tally.events, done.blobs_missing.len()), (restored.events, 0));
        let lines = |text: &[u8]| -> Vec<String> {
            // The table has events by their times, the directory as they were written.
            let mut lines: Vec<_> =
                std::str::from_utf8(text).expect("it is text").lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        let (again, before) = (lines(&moved(&exported, &clock)), lines(&moved(&first, &clock)));
        for (again, before) in again.iter().zip(&before) {
            assert_eq!(again, before);
        }
        assert_eq!(again.len(), before.len());

        // It goes on as it would have gone on at home.
        let open = jobs[2];
        while lab.status(open).await == JobStatus::Running {
            lab.pass(60_000);
            for task in lab.claim(9).await {
                lab.complete(&task, "{}").await;
            }
        }
        lab.check_job(open).await;
        lab.world.backend().flush().await.expect("the rows are written");
        drop(lab);
        let other = Aws::open(connection, AwsOptions { seed: 2, ..options }, Arc::new(clock.clone())).await;
        let other = other.expect("the store opens");
        let found = other.job(tenant, open).await.expect("it answers").expect("it is known");
        assert_eq!(found.status, JobStatus::Completed);
    });
}

/// Whether every task and job of an export has as many events as it says, and every message a task that names it.
fn check_whole(lines: &[u8]) -> usize {
    let mut counts: HashMap<String, u64> = HashMap::new();
    let (mut streams, mut messages, mut named) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for line in std::str::from_utf8(lines).expect("it is text").lines() {
        let line: Value = serde_json::from_str(line).expect("it is JSON");
        let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        match line["kind"].as_str() {
            Some("event") => {
                let id = line["event"]["entityId"].as_str().expect("an event is about something");
                *counts.entry(id.to_owned()).or_default() += 1;
            }
            Some("task") => {
                streams.push((text("requestId"), line["stream"]["events"].as_u64().unwrap_or(0)));
                named.extend(line["message"].as_str().map(str::to_owned));
            }
            Some("job") => streams.push((text("jobId"), line["stream"]["events"].as_u64().unwrap_or(0))),
            Some("message") => drop(messages.insert(text("id"))),
            _ => {}
        }
    }
    assert_eq!(messages, named, "messages and those that tasks name");
    for (id, events) in &streams {
        assert_eq!(counts.remove(id).unwrap_or(0), *events, "events of {id}");
    }
    assert_eq!(counts, HashMap::new(), "events of what is not told of");
    streams.len()
}

/// Jobs come, run and end while the stage is exported, and rows are written all the time. What is exported is of one moment.
#[test]
fn an_export_is_whole_while_others_write() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_name();
        let connection = double.connect().await;
        create_table(&connection, &name, &name).await.expect("the table is made");
        let clock = ManualClock::default();
        let options = |seed| AwsOptions {
            flush_every: 16,
            follow_every: None,
            ..AwsOptions::new(name.clone(), name.clone(), Bus::Loopback, seed)
        };
        let world = TableWorld::open(connection.clone(), options(1), clock.clone()).await;
        let lab = Lab::new(world, clock.clone());
        let work = async || {
            let job = lab.submit("A B<A").await;
            for _ in 0..2 {
                lab.pass(1);
                for task in lab.claim(1).await {
                    lab.complete(&task, r#"{"n":1}"#).await;
                }
            }
            job
        };
        for _ in 0..3 {
            work().await;
        }
        let reader = Aws::open(connection.clone(), options(2), Arc::new(clock.clone())).await;
        let reader = reader.expect("the store opens");
        let mut jobs = 3;
        for round in 0..3 {
            let mut exported = Vec::new();
            let done = tokio::select! {
                done = tokio::time::timeout(Duration::from_secs(60), reader.export(&mut exported)) => {
                    done.expect("it comes to an end").expect("it is exported")
                }
                () = async {
                    loop {
                        work().await;
                        jobs += 1;
                        // On two cores the double would have no time for the export.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                } => unreachable!("work does not end"),
            };
            let told = check_whole(&exported);
            assert!(done.tally.jobs >= 3 && told >= 9, "{round}: {:?}", done.tally);
            // It can be read.
            moved(&exported, &clock);
        }
        assert!(jobs > 3, "others wrote meanwhile");
        // Rows are written again.
        lab.world.backend().flush().await.expect("the rows are written");
        let mut exported = Vec::new();
        let done = reader.export(&mut exported).await.expect("it is exported");
        assert!(done.tally.jobs >= jobs, "{:?} of {jobs}", done.tally);
        check_whole(&exported);
    });
}

/// An empty table, and how processes of it are set up.
async fn empty(double: &Double) -> (Connection, impl Fn(u64) -> AwsOptions + use<>) {
    let (connection, name) = (double.connect().await, fresh_name());
    create_table(&connection, &name, &name).await.expect("the table is made");
    let options = move |seed| AwsOptions {
        follow_every: None,
        ..AwsOptions::new(name.clone(), name.clone(), Bus::Loopback, seed)
    };
    (connection, options)
}

fn record(value: &str) -> Piece {
    let record = Record { version: 1, expires_at: None, value: RecordValue::Bytes(value.as_bytes().into()) };
    Piece::Row(Box::new((RowKey::Record(record_key()), Row::Record(record))))
}

fn record_key() -> RecordKey {
    let tenant = Some(TenantId::trusted("acme"));
    RecordKey { kind: RecordKind::Definition, tenant, id: Arc::from("a") }
}

/// Puts the pieces, and hands over nothing after them.
async fn put(
    connection: &Connection,
    options: &AwsOptions,
    pieces: Vec<Piece>,
) -> Result<Restored, RestoreError> {
    let (hand, taken) = tokio::sync::mpsc::channel(8);
    for piece in pieces {
        hand.send(piece).await.expect("there is room");
    }
    drop(hand);
    restore(connection, options, taken).await
}

/// The store that hands over dies. What was put does not count, and nothing is put over it.
async fn an_import_that_breaks_off_leaves_nothing_to_use(double: &Double) {
    let (connection, options) = empty(double).await;
    let cut = put(&connection, &options(1), vec![record("old")]).await;
    assert!(matches!(cut, Err(RestoreError::CutOff)), "{cut:?}");
    let opened = Aws::open(connection.clone(), options(2), Arc::new(SystemClock::start())).await;
    let fault = opened.err().expect("a half full table is not opened");
    assert!(fault.to_string().contains("did not come to its end"), "{fault}");
    let again = put(&connection, &options(3), vec![record("new"), Piece::End]).await;
    let error = again.expect_err("nothing is put over it");
    assert!(matches!(error, RestoreError::HalfFull(_)), "{error:?}");
    assert!(error.to_string().contains(&options(1).table), "{error}");
}

async fn of_two_imports_one_goes_on(double: &Double) {
    let (connection, options) = empty(double).await;
    let one = |seed| {
        let (connection, options) = (connection.clone(), options(seed));
        async move { put(&connection, &options, vec![record(&seed.to_string()), Piece::End]).await }
    };
    let (first, second) = tokio::join!(one(1), one(2));
    let (winner, other) = if first.is_ok() { ("1", second) } else { ("2", first) };
    assert!(matches!(other, Err(RestoreError::HalfFull(_) | RestoreError::NotEmpty(_))), "{other:?}");
    let store = Aws::open(connection.clone(), options(3), Arc::new(SystemClock::start())).await;
    let found = store.expect("it is whole").record(record_key()).await.expect("it answers");
    let value = found.expect("it is there").value;
    assert!(matches!(&value, RecordValue::Bytes(bytes) if **bytes == *winner.as_bytes()), "{value:?}");
}

/// The store was opened while it was empty, and is written to while the import runs.
async fn an_import_gives_way_to_who_writes_meanwhile(double: &Double) {
    let (connection, options) = empty(double).await;
    let store = Aws::open(connection.clone(), options(1), Arc::new(SystemClock::start())).await;
    let store = store.expect("it opens");
    let (hand, taken) = tokio::sync::mpsc::channel(1);
    let importing = options(2);
    let write_and_end = async {
        // Two fit only when the first was taken, which is after all looks at an empty table.
        hand.send(record("imported")).await.expect("it is taken");
        hand.send(record("imported")).await.expect("it is taken");
        let value = Some(RecordValue::Bytes(b"written".as_slice().into()));
        let key = RecordKey { id: Arc::from("b"), ..record_key() };
        let put = PutRecord { key, value, expires_at: None, expected: None };
        let answers = store.execute(vec![Command::PutRecord(put)]).await.expect("it answers");
        for answer in answers {
            answer.expect("the record is put");
        }
        hand.send(Piece::End).await.expect("it is taken");
    };
    let (restored, ()) = tokio::join!(restore(&connection, &importing, taken), write_and_end);
    assert!(matches!(restored, Err(RestoreError::NotEmpty(_))), "{restored:?}");
}

async fn a_row_that_is_there_already_is_an_error(double: &Double) {
    let (connection, options) = empty(double).await;
    let pieces = vec![record("one"), record("other"), Piece::End];
    let refused = put(&connection, &options(1), pieces).await;
    assert!(matches!(refused, Err(RestoreError::Store(Fault::Damaged(_)))), "{refused:?}");
    // The same once more is what a repeated put looks like.
    let (connection, options) = empty(double).await;
    let pieces = vec![record("one"), record("one"), Piece::End];
    put(&connection, &options(1), pieces).await.expect("nothing else is there");
}

crate::double::on_ministack!(
    an_import_that_breaks_off_leaves_nothing_to_use,
    of_two_imports_one_goes_on,
    an_import_gives_way_to_who_writes_meanwhile,
    a_row_that_is_there_already_is_an_error,
);
crate::double::on_moto!(an_import_that_breaks_off_leaves_nothing_to_use);
