//! What is whole of a damaged data directory is saved, the rest is told, and the damaged one is left as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_embedded::log::{Entry, Log, LogError, LogPosition, Seq};
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::salvage_dir::{KeysLeft, SalvageError, Salvaged, salvage};
use tidemill_engine::command::{Command, Prepared, PutRecord};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::state::row::RowKey;
use tidemill_model::events::overflow::payload_key;
use tidemill_model::{EventId, JobId, Timestamp};

use crate::lab::{
    Fresh, Lab, START, acme, diamond, plain, publish, small, store_entity, submit_job, submit_task, unwatched,
};

const LOG_FILE: &str = "task/logs/z-alone/r1-a1/logs/output.log";

fn large() -> (EventId, String) {
    let id = EventId::from_u128((u128::from(START) << 80) | (7 << 76) | (2 << 62) | 9);
    (id, payload_key(&store_entity("large").id, id))
}

fn api_key() -> RecordKey {
    RecordKey { kind: RecordKind::ApiKey, tenant: None, id: "AAAAAAAAAAAA".into() }
}

/// Finished and open work in several sealed segments and one that is open, a large value, a file of a task, a key.
fn prepared(dir: &Path) {
    let mut lab = Lab::open(dir);
    let (id, key) = large();
    lab.store.put_blob(&acme(), &key, br#"{"text":"large"}"#).unwrap();
    let properties = plain(&format!(r#"{{"_s3Overflow":{{"bucket":"local","key":"{key}"}}}}"#));
    lab.run(publish("large", Prepared { id: Some(id), ..properties }, None, None)).unwrap();
    lab.store.put_blob(&acme(), LOG_FILE, b"what it said").unwrap();
    let value = Some(RecordValue::Bytes(b"{}".as_slice().into()));
    lab.run(Command::PutRecord(PutRecord { key: api_key(), value, expires_at: None, expected: None }))
        .unwrap();
    for number in 1..30 {
        lab.run(submit_job(JobId::from_u128(number), diamond(), None)).unwrap();
        lab.run(publish("s", plain("{}"), None, None)).unwrap();
    }
    lab.work_off();
    lab.seal_all();
    lab.run(submit_job(JobId::from_u128(50), diamond(), None)).unwrap();
    lab.run(submit_task("z-alone", "{}")).unwrap();
    lab.store.flush_rows().unwrap();
    for number in 0..5 {
        lab.run(publish(&format!("late-{number}"), plain("{}"), None, None)).unwrap();
    }
    lab.run(submit_job(JobId::from_u128(51), diamond(), None)).unwrap();
    lab.work_off();
    lab.assert_clean();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            assert!(fs::copy(entry.path(), target).is_ok());
        }
    }
}

/// Every file below a directory with what is in it.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    files
}

/// The events of a log by their numbers.
fn events(dir: &Path) -> BTreeMap<Seq, EventId> {
    let log = Log::open(Arc::new(RealDisk::new(dir).unwrap()), small().log, None).unwrap();
    let mut events = BTreeMap::new();
    let replayed = log.reader().replay::<LogError>(LogPosition::START, |entry| {
        if let Entry::Event(stored) = entry {
            events.insert(stored.seq, stored.event.id);
        }
        Ok(())
    });
    replayed.unwrap();
    events
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(ending));
    files.sort_unstable();
    files
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Where the entries of the open segment end.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).unwrap()
}

type Damage = (&'static str, fn(&Path), Expected);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Nothing is lost.
    Whole,
    /// Events are lost, of which the damage tells the numbers.
    Events,
    /// Only a blob is lost.
    Blob,
}

const DAMAGES: [Damage; 13] = [
    ("nothing", |_| {}, Expected::Whole),
    (
        "a flipped bit in the middle of the open segment",
        |dir| {
            change(&files(dir, ".log")[0], |bytes| {
                let at = used(bytes) / 2;
                bytes[at] ^= 4;
            });
        },
        Expected::Events,
    ),
    (
        "flipped bits in two places of the open segment",
        |dir| {
            change(&files(dir, ".log")[0], |bytes| {
                let end = used(bytes);
                bytes[end / 3] ^= 1;
                bytes[end / 3 * 2] ^= 128;
            });
        },
        Expected::Events,
    ),
    (
        "an open segment that was cut",
        |dir| {
            change(&files(dir, ".log")[0], |bytes| {
                let end = used(bytes);
                bytes.truncate(end / 2);
            });
        },
        Expected::Events,
    ),
    (
        "a zeroed page",
        |dir| {
            change(&files(dir, ".log")[0], |bytes| {
                let at = used(bytes) / 2 / 4096 * 4096;
                bytes[at..at + 4096].fill(0);
            });
        },
        Expected::Events,
    ),
    (
        "a header of the open segment that was written over",
        |dir| {
            change(&files(dir, ".log")[0], |bytes| bytes[..16].fill(7));
        },
        Expected::Whole,
    ),
    (
        "a flipped bit in a sealed segment",
        |dir| {
            change(&files(dir, ".sealed")[1], |bytes| bytes[1_500] ^= 2);
        },
        Expected::Events,
    ),
    (
        "a sealed segment that was cut",
        |dir| {
            change(&files(dir, ".sealed")[1], |bytes| {
                let end = bytes.len();
                bytes.truncate(end / 3);
            });
        },
        Expected::Events,
    ),
    (
        "the index of a sealed segment",
        |dir| {
            change(&files(dir, ".sealed")[1], |bytes| {
                let end = bytes.len();
                bytes[end - 160] ^= 1;
            });
        },
        Expected::Whole,
    ),
    (
        "a sealed segment that is missing",
        |dir| {
            fs::remove_file(&files(dir, ".sealed")[1]).unwrap();
        },
        Expected::Events,
    ),
    ("the format", |dir| fs::write(dir.join("log/FORMAT"), "tidemill").unwrap(), Expected::Whole),
    ("the mark", |dir| fs::remove_file(dir.join("log/mark")).unwrap(), Expected::Whole),
    (
        "a blob",
        |dir| {
            let path = contents(&dir.join("blobs/acme/task")).into_keys().next().unwrap();
            change(&path, |bytes| bytes[10] ^= 1);
        },
        Expected::Blob,
    ),
];

fn save(from: &Path, to: &Path) -> Result<Salvaged, SalvageError> {
    salvage(from, to, &small(), Timestamp::clamped(START + 1_000_000), &mut unwatched)
}

#[test]
fn what_is_whole_is_saved_and_the_rest_is_told() {
    let origin = Fresh::new();
    prepared(&origin);
    let all = events(&origin);
    assert!(files(&origin, ".sealed").len() > 3);
    let jobs: BTreeSet<_> = (1..30).chain([50, 51]).map(JobId::from_u128).collect();
    for (name, damage, expected) in DAMAGES {
        for has_rows in [true, false] {
            let name = format!("{name}, {} rows", if has_rows { "with" } else { "without" });
            let (damaged, rescued) = (Fresh::new(), Fresh::new());
            copy(&origin, &damaged);
            damage(&damaged);
            if !has_rows {
                fs::remove_file(damaged.join("derived/rows.redb")).unwrap();
            }
            let before = contents(&damaged);
            let saved = save(&damaged, &rescued).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(contents(&damaged), before, "{name}: the source was changed");
            assert!(saved.findings.is_clean(), "{name}: {:#?}", saved.findings.differences);
            assert_eq!(saved.rows_used, has_rows, "{name}");
            assert_eq!(saved.is_whole(), expected == Expected::Whole, "{name}: {saved:#?}");
            assert_eq!(saved.log.lost.is_empty(), expected != Expected::Events, "{name}: {saved:#?}");

            // Everything that was not told as lost is there.
            let is_lost =
                |seq: &Seq| saved.log.lost.iter().any(|lost| (lost.first_seq..lost.end_seq).contains(seq));
            let kept: BTreeSet<_> = all.iter().filter(|(seq, _)| !is_lost(seq)).map(|(_, id)| *id).collect();
            assert_eq!(
                events(&rescued).into_values().collect::<BTreeSet<_>>(),
                kept,
                "{name}: {:#?}",
                saved.log.lost
            );
            assert_eq!(kept.len() == all.len(), expected != Expected::Events, "{name}");
            // Whose newest events are lost shows in the rows alone, and there if they had them.
            let shows = expected == Expected::Events && has_rows && name.contains("sealed");
            assert!(saved.touched_total > 0 || !shows, "{name}: {saved:#?}");
            assert!(saved.touched_total == 0 || expected == Expected::Events, "{name}: {saved:#?}");
            let lab = Lab::open(&rescued);
            lab.assert_clean();
            // A store that lost a part of its log, and with it perhaps its keys, is not open to everybody.
            let has_key = lab.has_row(&RowKey::Record(api_key()));
            let keys = match (expected == Expected::Events, has_key) {
                (false, _) => KeysLeft::All,
                (true, true) => KeysLeft::Uncertain,
                (true, false) => KeysLeft::Closed,
            };
            assert_eq!(saved.keys, keys, "{name}");
            assert!(has_key || lab.has_row(&RowKey::Record(RecordKey::closed())), "{name}: it is open");
            if has_rows || expected != Expected::Events {
                // Rows know more than what is left of the log, but for what they did not have yet.
                let known: BTreeSet<_> = jobs
                    .iter()
                    .filter(|job| {
                        lab.store.state().job(&acme(), **job).is_some()
                            || lab.has_row(&RowKey::Job(acme(), **job))
                    })
                    .copied()
                    .collect();
                let missing: Vec<_> = jobs.difference(&known).collect();
                assert!(
                    missing.is_empty()
                        || (expected == Expected::Events && missing == [&JobId::from_u128(51)]),
                    "{name}: {missing:?}"
                );
                assert!(lab.has_row(&RowKey::Record(api_key())), "{name}: keys come along");
            }
            let blob = lab.store.blob(&acme(), LOG_FILE).unwrap();
            assert_eq!(blob.is_some(), expected != Expected::Blob, "{name}");
            if kept.contains(&large().0) {
                assert!(lab.store.blob(&acme(), &large().1).unwrap().is_some(), "{name}");
            }
        }
    }
}

/// Where no rows tell of a job whose first event is lost, it is gone: by its id, as long as anything of it is left.
#[test]
fn jobs_that_are_gone_are_named() {
    let origin = Fresh::new();
    let mut lab = Lab::open(&origin);
    let jobs: BTreeSet<_> = (1..4).map(JobId::from_u128).collect();
    for job in &jobs {
        lab.run(submit_job(*job, diamond(), None)).unwrap();
        lab.work_off();
    }
    drop(lab);
    let with_rows = Fresh::new();
    copy(&origin, &with_rows);
    Lab::open(&with_rows).store.flush_rows().unwrap();
    let end = used(&fs::read(&files(&origin, ".log")[0]).unwrap());
    let mut gone_once = BTreeSet::new();
    for at in (512..end).step_by(600) {
        for (origin, has_rows) in [(&with_rows, true), (&origin, false)] {
            let (damaged, rescued) = (Fresh::new(), Fresh::new());
            copy(origin, &damaged);
            change(&files(&damaged, ".log")[0], |bytes| bytes[at] ^= 1);
            let saved = save(&damaged, &rescued).unwrap();
            assert_eq!(saved.rows_used, has_rows);
            let lab = Lab::open(&rescued);
            let is_missing = |job: &&JobId| {
                lab.store.state().job(&acme(), **job).is_none() && !lab.has_row(&RowKey::Job(acme(), **job))
            };
            let missing: BTreeSet<_> = jobs.iter().filter(is_missing).copied().collect();
            let gone: BTreeSet<_> = saved.gone.iter().map(|gone| gone.job).collect();
            assert_eq!((&gone, saved.gone_total), (&missing, missing.len() as u64), "byte {at}: {saved:#?}");
            assert!(gone.is_empty() || !has_rows, "byte {at}: rows tell of every job");
            gone_once.extend(gone);
        }
    }
    assert_eq!(gone_once, jobs, "the first event of each was hit");
}

/// A large value that an event names is gone: that is told, and nothing else is lost with it.
#[test]
fn a_lost_value_costs_nothing_else() {
    let origin = Fresh::new();
    prepared(&origin);
    let all: BTreeSet<_> = events(&origin).into_values().collect();
    for (name, is_gone) in [("missing", true), ("damaged", false)] {
        let (damaged, rescued) = (Fresh::new(), Fresh::new());
        copy(&origin, &damaged);
        let is_payload = |path: &PathBuf| path.to_string_lossy().ends_with("payload.json");
        let blobs: Vec<_> = contents(&damaged).into_keys().filter(is_payload).collect();
        let [blob] = &blobs[..] else { panic!("{blobs:?}") };
        if is_gone {
            fs::remove_file(damaged.join(blob)).unwrap();
        } else {
            change(&damaged.join(blob), |bytes| bytes[3] ^= 1);
        }
        let saved = save(&damaged, &rescued).unwrap();
        assert!(!saved.is_whole() && !saved.blobs_lost.is_empty(), "{name}: {saved:#?}");
        assert!(saved.findings.is_clean_but_for_blobs(), "{name}: {:#?}", saved.findings.differences);
        assert_eq!(saved.findings.blobs_lost, 1, "{name}: verify tells the truth of it");
        assert!(events(&rescued).into_values().eq(all.iter().copied()), "{name}: every event is there");
    }
}

/// With the first segment the key is lost. Nobody knows then whether there was one.
#[test]
fn a_store_that_lost_its_keys_stays_closed() {
    let origin = Fresh::new();
    prepared(&origin);
    fs::remove_file(&files(&origin, ".sealed")[0]).unwrap();
    for (has_rows, expected) in [(true, KeysLeft::Uncertain), (false, KeysLeft::Closed)] {
        if !has_rows {
            fs::remove_file(origin.join("derived/rows.redb")).unwrap();
        }
        let rescued = Fresh::new();
        let saved = save(&origin, &rescued).unwrap();
        assert!(saved.findings.is_clean(), "{:#?}", saved.findings.differences);
        assert_eq!(saved.keys, expected);
        let lab = Lab::open(&rescued);
        assert_eq!(lab.has_row(&RowKey::Record(api_key())), has_rows);
        assert!(lab.has_row(&RowKey::Record(RecordKey::closed())), "it is open to everybody");
    }
}

/// Any damage to any file of the log, of which a seed decides where and how: the new store verifies, and holds all events
/// that were not told as lost.
#[test]
fn any_damage_leaves_what_is_whole() {
    let origin = Fresh::new();
    prepared(&origin);
    let all = events(&origin);
    let mark = fs::read(origin.join("log/mark")).ok();
    for seed in 0..20_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % limit as u64).unwrap()
        };
        let (damaged, rescued) = (Fresh::new(), Fresh::new());
        copy(&origin, &damaged);
        for _ in 0..=below(3) {
            let files = files(&damaged, "");
            let path = &files[below(files.len())];
            let length = fs::metadata(path).unwrap().len().max(1);
            let at = below(usize::try_from(length).unwrap());
            match below(4) {
                0 => change(path, |bytes| bytes.truncate(at)),
                1 => change(path, |bytes| bytes.iter_mut().skip(at).take(512).for_each(|byte| *byte = 0)),
                2 => fs::remove_file(path).unwrap(),
                _ => change(path, |bytes| bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 8)),
            }
        }
        if below(2) == 0 {
            fs::remove_file(damaged.join("derived/rows.redb")).unwrap();
        }
        let saved = save(&damaged, &rescued).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(saved.findings.is_clean(), "seed {seed}: {:#?}", saved.findings.differences);
        let is_lost =
            |seq: &Seq| saved.log.lost.iter().any(|lost| (lost.first_seq..lost.end_seq).contains(seq));
        let found: BTreeSet<_> = events(&rescued).into_values().collect();
        for (seq, id) in &all {
            // Without the mark nobody knows what came behind the last whole group.
            let is_told = is_lost(seq) || fs::read(damaged.join("log/mark")).ok() != mark;
            assert!(
                found.contains(id) || is_told,
                "seed {seed}: event {seq} is missing: {:#?}",
                saved.log.lost
            );
        }
    }
}

#[test]
fn a_directory_in_use_or_a_full_target_is_refused() {
    let (origin, target) = (Fresh::new(), Fresh::new());
    prepared(&origin);
    fs::write(target.join("x"), "").unwrap();
    assert!(matches!(save(&origin, &target), Err(SalvageError::NotEmpty { .. })));
    for inside in [origin.to_path_buf(), origin.join("saved"), origin.join("log/../a/b")] {
        let saved = save(&origin, &inside);
        assert!(matches!(saved, Err(SalvageError::Inside { .. })), "{}: {saved:?}", inside.display());
        assert!(!origin.join("saved").exists() && !origin.join("a").exists(), "it is only read");
    }
    let nothing = Fresh::new();
    assert!(matches!(save(&nothing, &Fresh::new()), Err(SalvageError::NoLog { .. })));
    let _lock = tidemill_embedded::data_lock::DataLock::take(&origin).unwrap();
    assert!(matches!(save(&origin, &Fresh::new()), Err(SalvageError::Held(_))));
}
