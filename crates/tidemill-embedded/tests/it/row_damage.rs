//! Damage to the file of the rows: no answer is wrong, nothing panics, and the rows are whole again by themselves.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidemill_conformance::ManualClock;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::Tell;
use tidemill_embedded::{Embedded, Store, StoreOptions};
use tidemill_engine::backend::Fault;
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::commit::{MessageId, TaskKey};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{DeadLetter, DeadLetterState, RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::Reply;
use tidemill_model::{ErrorCategory, JobId, RequestId, Timestamp};

use crate::lab::{Fresh, Lab, acme, diamond, fail, small, submit_job, submit_task, unwatched};
use crate::specimen;

const JOBS: u128 = 40;
const TASKS: usize = 120;

/// How many ways of damage are tried. `TIDEMILL_DAMAGE_SEEDS` asks for more.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test may be asked for more than usual")]
    let asked = std::env::var("TIDEMILL_DAMAGE_SEEDS").ok().and_then(|text| text.parse().ok());
    0..asked.unwrap_or(usual)
}

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

/// Damages bytes of a file in one of many ways and says which. Most of the file is empty, so it looks for what is not.
fn damage(bytes: &mut Vec<u8>, dice: &mut Dice) -> String {
    const PAGE: usize = 4096;
    let mut place = |bytes: &[u8]| loop {
        let at = dice.below(bytes.len());
        let end = (at + 64).min(bytes.len());
        if let Some(found) = bytes[at..end].iter().position(|byte| *byte != 0) {
            return (at + found, dice.below(1 << 16));
        }
    };
    let (at, choice) = place(bytes);
    match choice % 10 {
        0..=5 => {
            let count = [1, 1, 1, 2, 8, 200][choice % 6];
            for _ in 0..count {
                let (at, bit) = place(bytes);
                bytes[at] ^= 1 << (bit % 8);
            }
            format!("{count} flipped bits, one after byte {at}")
        }
        6 => {
            bytes.truncate(at);
            format!("cut at byte {at}")
        }
        7 => {
            // A page of the rows' own form, or one of the disk.
            let page = [PAGE, PAGE + 8][choice / 10 % 2];
            let start = at / page * page;
            let end = (start + page).min(bytes.len());
            bytes[start..end].fill(0);
            format!("{page} bytes from {start} on are zero")
        }
        _ => {
            let page = [PAGE, PAGE + 8][choice / 10 % 2];
            let (other, _) = place(bytes);
            let last = bytes.len() - page;
            let [one, other] = [at, other].map(|at| (at / page * page).min(last / page * page));
            for byte in 0..page {
                bytes.swap(one + byte, other + byte);
            }
            format!("{page} bytes from {one} and from {other} on are swapped")
        }
    }
}

fn copy(from: &Path) -> Fresh {
    fn copy_into(from: &Path, to: &Path) {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            let target = to.join(path.file_name().unwrap());
            if path.is_dir() {
                copy_into(&path, &target);
            } else {
                std::fs::copy(&path, &target).unwrap();
            }
        }
    }
    let to = Fresh::new();
    copy_into(from, &to);
    to
}

fn damage_rows(dir: &Path, dice: &mut Dice) -> String {
    let path = dir.join("derived/rows.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    let what = damage(&mut bytes, dice);
    std::fs::write(path, bytes).unwrap();
    what
}

/// The specimen with its rows written by this code, and what it says.
fn specimen_of_today() -> (Fresh, String) {
    let found = specimen::unpack("format-2.tar.zst");
    let mut lab = specimen::open(&found.dir);
    lab.store.flush_rows().unwrap();
    let export = lab.export();
    drop(lab);
    (found.dir, export)
}

#[test]
fn a_closed_store_with_damaged_rows_says_what_it_said() {
    let (whole, export) = specimen_of_today();
    for seed in seeds(40) {
        let dir = copy(&whole);
        let what = damage_rows(&dir, &mut Dice::new(seed));
        // Verify reports it, or the open has repaired it.
        let found = specimen::open(&dir).store.verify().unwrap();
        assert!(!found.only_log, "seed {seed}, {what}: {:?}", found.differences);
        let mut lab = specimen::open(&dir);
        assert_eq!(lab.export(), export, "seed {seed}, {what}");
        lab.store.flush_rows().unwrap();
        drop(lab);
        let disk = Arc::new(RealDisk::new(&*dir).unwrap());
        let store = Store::rebuild(disk, specimen::options(), &mut unwatched).unwrap();
        let found = store.verify().unwrap();
        assert!(found.is_clean(), "seed {seed}, {what}: {:?}", found.differences);
    }
}

#[test]
fn rows_that_are_damaged_under_an_open_store_are_made_again() {
    let (whole, export) = specimen_of_today();
    for seed in seeds(25) {
        let dir = copy(&whole);
        let mut dice = Dice::new(seed);
        let mut lab = specimen::open(&dir);
        let path = dir.join("derived/rows.redb");
        let mut bytes = std::fs::read(&path).unwrap();
        let what = damage(&mut bytes, &mut dice);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        assert_eq!(lab.export(), export, "seed {seed}, {what}");
        for number in 0..20 {
            lab.run(submit_task(&format!("later-{number}"), "{}")).unwrap();
        }
        lab.store.flush_rows().unwrap();
        let said = lab.export();
        drop(lab);
        let mut lab = specimen::open(&dir);
        assert_eq!(lab.export(), said, "seed {seed}, {what}");
        // What nobody has asked for since may be damaged still.
        drop(lab);
        let disk = Arc::new(RealDisk::new(&*dir).unwrap());
        let store = Store::rebuild(disk, specimen::options(), &mut unwatched).unwrap();
        assert!(store.verify().unwrap().is_clean(), "seed {seed}, {what}");
    }
}

/// Finished and failed jobs with idempotency keys, tasks on their own, definitions and keys, all at rest and written.
fn prepared() -> Fresh {
    let dir = Fresh::new();
    let mut lab = Lab::open(&dir).at(Timestamp::clamped(ManualClock::START));
    for number in 1..=JOBS {
        lab.run(submit_job(JobId::from_u128(number), diamond(), Some(&format!("key-{number}")))).unwrap();
    }
    for task in lab.claim(5) {
        lab.run(fail(&task, ErrorCategory::Validation)).unwrap();
    }
    lab.work_off();
    for number in 0..TASKS {
        lab.run(submit_task(&format!("alone-{number}"), "{}")).unwrap();
    }
    lab.work_off();
    for number in 0..TASKS {
        for kind in [RecordKind::Definition, RecordKind::ApiKey] {
            let key = RecordKey { kind, tenant: Some(acme()), id: format!("record-{number}").into() };
            let value = Some(RecordValue::Bytes(format!("{kind:?} {number}").as_bytes().into()));
            lab.run(Command::PutRecord(PutRecord { key, value, expires_at: None, expected: None })).unwrap();
        }
    }
    for number in 0..20 {
        let request = RequestId::new(format!("alone-{number}")).unwrap();
        let letter = DeadLetter {
            message: MessageId(number),
            request,
            run: 1,
            reason: "nobody took it".into(),
            since: lab.now,
            state: DeadLetterState::Open,
            last_error: None,
        };
        let key = RecordKey::dead_letter(&acme(), letter.message);
        let value = Some(RecordValue::DeadLetter(letter));
        lab.run(Command::PutRecord(PutRecord { key, value, expires_at: None, expected: None })).unwrap();
    }
    lab.seal_all();
    lab.store.flush_rows().unwrap();
    dir
}

/// Every block of the file has a wrong byte.
pub(crate) fn damage_all(dir: &Path) {
    let path = dir.join("derived/rows.redb");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    for at in (100..bytes).step_by(4_104) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

#[test]
fn a_message_that_went_after_the_rows_were_made_again_stays_away() {
    let dir = prepared();
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&said);
    let tell = Tell::new(move |sentence| heard.lock().unwrap().push(sentence.to_owned()));
    let options = StoreOptions { tell, row_cache_bytes: 0, ..small() };
    let store = Store::open(Arc::new(RealDisk::new(&*dir).unwrap()), options).unwrap();
    let mut lab = Lab { store, now: Timestamp::clamped(ManualClock::START) };
    // The log has its message and the file does not.
    lab.run(submit_task("late", "{}")).unwrap();
    damage_all(&dir);
    // An old key is looked for in the file, so the rows are made again from the log, with the message.
    lab.run(submit_job(JobId::from_u128(7_000), diamond(), Some("key-7"))).unwrap();
    assert!(said.lock().unwrap().iter().any(|sentence| sentence.contains("were made again")), "{said:?}");
    lab.work_off();
    assert_eq!(lab.store.state().queue().iter().count(), 0);
    lab.store.flush_rows().unwrap();
    drop(lab);
    let lab = Lab::open(&dir).at(Timestamp::clamped(ManualClock::START));
    assert_eq!(lab.store.state().queue().iter().count(), 0, "it came back with the rows");
    assert!(lab.store.verify().unwrap().is_clean());
}

/// Asks until there is an answer, as a client does that is told 503.
fn until_answered<T>(mut ask: impl FnMut() -> Result<T, Fault>) -> (T, u64) {
    let mut refused = 0;
    loop {
        match ask() {
            Ok(answer) => return (answer, refused),
            Err(Fault::Unavailable(_)) => {
                refused += 1;
                std::thread::yield_now();
            }
            Err(fault) => panic!("{fault}"),
        }
    }
}

/// Everything that clients ask, as text.
fn everything(backend: &Embedded) -> (Vec<String>, u64) {
    let mut answers = Vec::new();
    let mut refused = 0;
    let mut note = |(answer, times): (String, u64)| {
        answers.push(answer);
        refused += times;
    };
    for number in 1..=JOBS {
        let job = JobId::from_u128(number);
        let again = submit_job(job, diamond(), Some(&format!("key-{number}")));
        note(until_answered(|| {
            let answer = backend.execute_blocking(std::slice::from_ref(&again))?.remove(0);
            assert!(matches!(answer, Ok(Reply::JobSubmitted { repeated: true, .. })), "{answer:?}");
            Ok(format!("{answer:?}"))
        }));
        note(until_answered(|| Ok(format!("{:?}", wait(backend.job(acme(), job))?))));
        note(until_answered(|| Ok(format!("{:?}", wait(backend.job_tasks(acme(), job, 0, 10))?))));
    }
    for number in 0..TASKS {
        let request = RequestId::new(format!("alone-{number}")).unwrap();
        let task = TaskKey { tenant: acme(), request };
        note(until_answered(|| {
            let found = wait(backend.task(task.clone()))?;
            assert!(found.is_some(), "{task:?}");
            Ok(format!("{found:?}"))
        }));
    }
    for kind in [RecordKind::Definition, RecordKind::ApiKey, RecordKind::DeadLetter, RecordKind::Idempotency]
    {
        note(until_answered(|| Ok(format!("{:?}", wait(backend.records(kind, Some(acme()), None, 1_000))?))));
    }
    note(until_answered(|| Ok(format!("{:?}", wait(backend.jobs(acme(), None, None, 1_000))?))));
    (answers, refused)
}

fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_server_answers_rightly_or_not_at_all() {
    let whole = prepared();
    let clock = Arc::new(ManualClock::default());
    let truth = {
        let backend = Embedded::open(&copy(&whole), small(), clock.clone()).unwrap();
        everything(&backend).0
    };
    let mut refusals = 0;
    for seed in seeds(30) {
        let dir = copy(&whole);
        let mut dice = Dice::new(seed);
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&said);
        let tell = Tell::new(move |sentence| heard.lock().unwrap().push(sentence.to_owned()));
        let options = StoreOptions { tell, row_cache_bytes: 0, ..small() };
        let path = dir.join("derived/rows.redb");
        // Half of them before the store is opened, half of them while it is open.
        let mut what = if seed % 2 == 0 { damage_rows(&dir, &mut dice) } else { String::new() };
        let backend = Embedded::open(&dir, options, clock.clone()).unwrap();
        if seed % 2 == 1 {
            let mut bytes = std::fs::read(&path).unwrap();
            what = damage(&mut bytes, &mut dice);
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
        }
        let (answers, refused) = everything(&backend);
        for (answer, truth) in answers.iter().zip(&truth) {
            assert_eq!(answer, truth, "seed {seed}, {what}");
        }
        refusals += refused;
        if refused > 0 {
            let said = said.lock().unwrap().join("; ");
            assert!(
                said.contains("the derived rows are damaged and are made again from the log: "),
                "{said}"
            );
        }
        let (again, _) = everything(&backend);
        assert_eq!(again, truth, "seed {seed}, {what}");
        drop(backend);
        let disk = Arc::new(RealDisk::new(&*dir).unwrap());
        let store = Store::rebuild(disk, small(), &mut unwatched).unwrap();
        assert!(store.verify().unwrap().is_clean(), "seed {seed}, {what}");
    }
    assert!(refusals > 0, "some damage was met while the store was open");
}

#[test]
fn no_flipped_bit_of_a_row_goes_unnoticed() {
    let dir = Fresh::new();
    let mut lab = Lab::open(&dir);
    for number in 0..40 {
        lab.run(submit_task(&format!("needle-{number}-end"), "{}")).unwrap();
    }
    lab.work_off();
    lab.store.flush_rows().unwrap();
    drop(lab);
    let path = dir.join("derived/rows.redb");
    let whole = std::fs::read(&path).unwrap();
    let text = b"needle-7-end";
    let at = whole.windows(text.len()).position(|bytes| bytes == text).unwrap();
    for byte in 0..text.len() + 12 {
        let mut bytes = whole.clone();
        bytes[at + byte] ^= 1 << (byte % 8);
        std::fs::write(&path, &bytes).unwrap();
        let mut lab = Lab::open(&dir);
        // A key that was changed is not found under its name: without a check the task would be made a second time.
        let again = lab.run(submit_task("needle-7-end", "{}"));
        assert!(matches!(again, Ok(Reply::TaskSubmitted { repeated: true, .. })), "byte {byte}: {again:?}");
        lab.assert_clean();
    }
}
