//! Kills: a child process at work on a data directory is killed at random moments, again and again.
//!
//! The child is this test binary, run again with a variable set. Several threads of it submit jobs, publish events,
//! claim and finish tasks, and write down rows; each tells the parent over a pipe what was acknowledged to it. After
//! every kill the parent opens the store: whatever was acknowledged must be there, nothing twice, and verify must find
//! nothing. `TIDEMILL_CRASH_KILLS` says how often, `TIDEMILL_CRASH_SEED` repeats the choices of a run.

mod child;
mod ledger;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tidemill_engine::id_source::IdSource;

use self::ledger::Ledger;
use crate::lab::{Fresh, Lab, announce};

/// What tells the child that it is one: the directory, its life, and where each thread goes on.
const CHILD: &str = "TIDEMILL_CRASH_CHILD";
/// A store is used for this many lives, so that it stays small.
const LIVES_PER_STORE: u64 = 12;
/// The child is killed after this many acknowledgements at most, and a little later.
const ACKS_MAX: u64 = 120;
const DELAY_MICROS_MAX: u64 = 4_000;
/// A child that is silent for this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "tests have no other way in")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u64> {
    variable(name).map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")))
}

/// The child's side. Run by name from the parent, and skipped otherwise.
#[test]
#[ignore = "the child process of the crash test"]
fn child_process() {
    if let Some(orders) = variable(CHILD) {
        child::work(&orders);
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_by_kills() {
    let kills = number("TIDEMILL_CRASH_KILLS").unwrap_or(25);
    let seed = number("TIDEMILL_CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()) ^ 0x5eed);
    let mut random = IdSource::new(seed);
    let begun = Instant::now();
    let (mut acknowledged, mut events) = (0, 0);
    let mut killed = 0;
    while killed < kills {
        let dir = Fresh::new();
        let mut ledger = Ledger::default();
        for generation in 1..=LIVES_PER_STORE.min(kills - killed) {
            live_and_die(&dir, generation, &mut ledger, &mut random);
            killed += 1;
            let lab =
                Lab::try_open(&dir).unwrap_or_else(|fault| panic!("seed {seed}, kill {killed}: {fault}"));
            if let Err(problem) = ledger.check(&lab.store) {
                panic!("seed {seed}, kill {killed}: {problem}");
            }
        }
        acknowledged += ledger.acknowledged();
        events += ledger.events();
    }
    let seconds = begun.elapsed().as_secs_f64();
    announce(&format!(
        "seed {seed}: {kills} kills, {acknowledged} acknowledgements, {events} events, {seconds:.1} s"
    ));
    assert!(acknowledged > 10 * kills, "the child hardly got to work");
}

/// One life of the child: it is started, listened to, and killed.
fn live_and_die(dir: &Path, generation: u64, ledger: &mut Ledger, random: &mut IdSource) {
    let orders = format!("{generation}\t{}\t{}", ledger.next_numbers(), dir.display());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_process", "--ignored", "--nocapture", "--test-threads=1"])
        .env(CHILD, orders)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = listen(&mut child);
    let acks = random.random() % ACKS_MAX;
    for _ in 0..acks {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => ledger.take(&line),
            Err(_) => break,
        }
    }
    // Some lives end while the store is still being opened.
    let deadline = Instant::now() + Duration::from_micros(random.random() % DELAY_MICROS_MAX);
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        if let Ok(line) = lines.recv_timeout(left) {
            ledger.take(&line);
        }
    }
    // It must not have ended by itself.
    if let Some(status) = child.try_wait().unwrap() {
        let mut words = String::new();
        let _ = std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut words);
        panic!("the child ended with {status} in life {generation}: {words}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // What was said before the kill counts, heard or not.
    for line in lines {
        ledger.take(&line);
    }
}

/// The lines of the child as they come, until it is dead.
fn listen(child: &mut Child) -> Receiver<String> {
    let out = BufReader::new(child.stdout.take().unwrap());
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in out.split(b'\n') {
            let Ok(line) = line else { return };
            // The test harness talks, too.
            if let Some(line) = line.strip_prefix(b"ack ")
                && sender.send(String::from_utf8(line.to_vec()).unwrap()).is_err()
            {
                return;
            }
        }
    });
    lines
}
