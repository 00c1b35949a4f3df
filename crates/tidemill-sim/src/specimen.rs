//! Specimens: data directories with something of everything, for tests that open what an earlier release wrote.
//!
//! A specimen is a world that was left in the middle of its life, so that work is open, with records of all kinds beside it.
//! The same seed gives the same bytes, as long as the code that writes them is the same.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_embedded::store::retention::Retention;
use tidemill_embedded::{Store, StoreOptions};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::triage::{Bulk, BulkAction, BulkFilter, BulkId, BulkState};
use tidemill_model::{EventId, Json, TenantId, Timestamp};

use crate::clock::VirtualClock;
use crate::disk::SimDisk;
use crate::embedded_ledger::{EmbeddedLedger, draw_options};
use crate::profile::{Profile, draw_policy};
use crate::rng::Rng;
use crate::run::FailedRun;
use crate::violation::Violation;
use crate::world::World;

/// How many kinds of values records have.
const RECORD_VALUES: usize = 15;

/// A data directory as files, and what it says as an export.
pub struct Specimen {
    /// Paths within the directory, with what is in them.
    pub files: Vec<(String, Vec<u8>)>,
    pub export: Vec<u8>,
    /// What should be in it and is not.
    pub lacks: Vec<String>,
}

/// Grows a world for this many steps and leaves it where it is.
pub fn grow(seed: u64, steps: u64) -> Result<Specimen, FailedRun> {
    let mut rng = Rng::new(seed);
    let clock = VirtualClock::start();
    let alerts = AlertTargets { people: true, webhook: true };
    let usual = Policy::default();
    let policy = Policy {
        workflow_webhook: true,
        alerts,
        deliveries_max: usual.deliveries_max,
        idempotency_millis: usual.idempotency_millis,
        ..draw_policy(&mut rng)
    };
    let profile = Profile::of_everything();
    let disk = SimDisk::new(rng.bits());
    let retention = Retention { event_millis: 120_000, heartbeat_millis: 20_000 };
    let options = StoreOptions { retention, ..draw_options(&mut rng, policy.clone(), true) };
    let failure = |violation, trace| FailedRun { seed, violation, trace };
    let told = |fault: Fault| failure(Violation::new("a specimen grows", fault.to_string()), Vec::new());
    let ledger = EmbeddedLedger::create(disk.clone(), options.clone()).map_err(told)?;
    let mut world = World::new(rng, clock.clone(), Box::new(ledger), policy, profile, 0);
    if let Err(violation) = world.live_on(steps) {
        return Err(failure(violation, world.trace.into_lines()));
    }
    drop(world);
    disk.kill();
    finish(&disk, options, clock.now()).map_err(told)
}

/// Adds what no actor makes, writes the rows down, and takes everything off the disk.
fn finish(disk: &SimDisk, options: StoreOptions, now: Timestamp) -> Result<Specimen, Fault> {
    let mut store = Store::open(Arc::new(disk.clone()), options)?;
    for command in extras(now) {
        store.execute(&[command], now)?;
    }
    while store.seal()? {}
    store.flush_rows()?;
    // Behind the checkpoint, so that an open has something to replay.
    store.execute(&[opaque(RecordKind::System, "last-words")], now)?;
    let mut export = Vec::new();
    store.export(&mut export, &mut |_| {}).map_err(|error| Fault::Stopped(error.to_string()))?;
    let lacks = lacks(&store)?;
    drop(store);
    Ok(Specimen { files: disk.files(), export, lacks })
}

fn lacks(store: &Store) -> Result<Vec<String>, Fault> {
    let mut lacks = Vec::new();
    for kind in RecordKind::ALL {
        if store.records(kind)?.is_empty() {
            lacks.push(format!("{kind:?}"));
        }
    }
    let mut values = HashSet::new();
    for kind in RecordKind::ALL {
        values.extend(
            store.records(kind)?.into_iter().map(|(_, record)| std::mem::discriminant(&record.value)),
        );
    }
    if values.len() < RECORD_VALUES {
        lacks.push(format!("{} kinds of values", RECORD_VALUES - values.len()));
    }
    Ok(lacks)
}

fn extras(now: Timestamp) -> Vec<Command> {
    let mut extras: Vec<Command> = [
        RecordKind::ApiKey,
        RecordKind::Script,
        RecordKind::Subscription,
        RecordKind::Schedule,
        RecordKind::Definition,
        RecordKind::System,
    ]
    .into_iter()
    .map(|kind| opaque(kind, "specimen"))
    .collect();
    let bulk = Bulk {
        id: BulkId::mint(EventId::from_u128(77)),
        action: BulkAction::Resume { output: Json::empty_object(), rerun: true },
        filter: BulkFilter::default(),
        cutoff: now,
        rate_per_second: Some(3),
        total: 4,
        done: 4,
        failed: 0,
        skipped: 0,
        state: BulkState::Done,
        after: None,
        created_at: now,
        stepped_at: now,
        ended_at: Some(now),
        by: Some("somebody".into()),
        reason: Some("a specimen".into()),
    };
    let key = RecordKey::bulk(&TenantId::trusted("tenant-0"), bulk.id);
    extras.push(put(key, RecordValue::Bulk(Arc::new(bulk))));
    extras
}

fn opaque(kind: RecordKind, id: &str) -> Command {
    let tenant = (kind != RecordKind::System).then(|| TenantId::trusted("tenant-0"));
    let text = format!(r#"{{"of":"{kind:?}","id":"{id}"}}"#);
    put(RecordKey { kind, tenant, id: id.into() }, RecordValue::Bytes(text.as_bytes().into()))
}

fn put(key: RecordKey, value: RecordValue) -> Command {
    Command::PutRecord(PutRecord { key, value: Some(value), expires_at: None, expected: None })
}
