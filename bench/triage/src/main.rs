//! Measures error triage on the embedded backend: a million occurrences over 10,000 codes and 100,000 executions.
//!
//! CPU per event is the figure to trust on a shared machine; wall time is printed beside it.
//! `memory MB` is taken before a checkpoint: rows on their way to the store are part of it.

mod over_http;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::Engine;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{EngineConfig, GroupFilter, GroupSort, IngestRequest, NewBulk};
use tidemill_engine::triage::{BulkAction, BulkFilter, BulkState, ErrorMark, TriageKeeper, TriageTimer};
use tidemill_model::workflow::{ErrorCode, ErrorScope, Families, WorkflowMessage};
use tidemill_model::{AppName, Json, TenantId};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CODES: u64 = 10_000;
const EXECUTIONS: u64 = 100_000;
const BATCH: u64 = 100;
/// What is loaded between two looks.
const STEP: u64 = 100_000;
/// The executions that have the code which is resolved, and those that wait on the code of the bulk.
const TOUCHED: u64 = 10_000;
const PARKED: u64 = 1_000;
const USAGE: &str = "usage: tidemill-triage-bench [--dir D] [--events N] [--producers N]";

struct Arguments {
    dir: PathBuf,
    events: u64,
    producers: u64,
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        dir: std::env::temp_dir().join(format!("tidemill-triage-bench-{}", std::process::id())),
        events: 1_000_000,
        producers: 8,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        let value = given.next().ok_or(format!("{argument} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{argument} needs a number"));
        match argument.as_str() {
            "--dir" => parsed.dir = value.into(),
            "--events" => parsed.events = number()?,
            "--producers" => parsed.producers = number()?.max(1),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    Ok(parsed)
}

type Host = Engine<Embedded>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            std::process::exit(1);
        }
    };
    let _ = std::fs::remove_dir_all(&arguments.dir);
    measure(&arguments).await;
    let _ = std::fs::remove_dir_all(&arguments.dir);
}

async fn measure(arguments: &Arguments) {
    let options = StoreOptions { seed: u64::from(std::process::id()), ..StoreOptions::default() };
    let clock = Arc::new(SystemClock::start());
    let backend = Embedded::open(&arguments.dir, options, Arc::clone(&clock) as _).expect("the store opens");
    let engine = Engine::new(backend, clock, 7, EngineConfig::default());
    reading();
    println!(
        "{:>10} {:>10} {:>12} {:>8} {:>9} {:>10} {:>13} {:>9}",
        "events",
        "events/s",
        "CPU us/event",
        "KB/event",
        "top ms",
        "resolve ms",
        "of executions",
        "memory MB"
    );
    let mut loaded = 0;
    while loaded < arguments.events {
        let before = written_bytes();
        let (wall, cpu) = load(&engine, loaded, STEP, arguments.producers).await;
        loaded += STEP;
        let written = written_bytes().saturating_sub(before);
        let top = top(&engine).await;
        let (resolve, resolved) = resolve(&engine).await;
        let resident = resident_mb();
        engine.backend().checkpoint().expect("rows can be written");
        println!(
            "{loaded:>10} {:>10.0} {:>12.1} {:>8.1} {:>9.2} {:>10.2} {resolved:>13} {resident:>9}",
            STEP as f64 / wall.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / STEP as f64,
            written as f64 / 1e3 / STEP as f64,
            top.as_secs_f64() * 1e3,
            resolve.as_secs_f64() * 1e3,
        );
    }
    bulk(&engine).await;
    over_http::measure(&engine, loaded, arguments.producers).await;
    let started = Instant::now();
    engine.backend().checkpoint().expect("rows can be written");
    println!("what was put off: {:.1} s", started.elapsed().as_secs_f64());
}

fn tenant() -> TenantId {
    TenantId::trusted("acme")
}

/// Scatters numbers without a pattern that a tree of keys could profit from.
fn scatter(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 13
}

fn envelope(number: u64, code: &str, token: Option<&str>, execution: u64) -> String {
    let token = token.map_or_else(String::new, |token| format!(r#""taskToken":"{token}","#));
    // Codes name their county, or hash it: a code is seen in one county.
    let county = code.bytes().fold(0_u64, |sum, byte| sum * 31 + u64::from(byte)) % 60;
    format!(
        r#"{{"id":"bus-{number}","source":"elephant.workflow","detail-type":"WorkflowEvent","detail":{{"executionId":"arn:aws:states:us-east-1:123456789012:execution:elephant:run-{execution:07}","county":"county-{county}","dataGroupLabel":"County","status":"FAILED","phase":"Transform","step":"Transform",{token}"errors":[{{"code":"{code}","details":{{"message":"no such column","path":"/deed/date","line":{number}}}}}]}}}}"#
    )
}

/// The occurrence of this number: one in a hundred is of the code that is resolved.
fn occurrence(number: u64) -> String {
    if number % 100 == 0 {
        return envelope(number, "20Cook", None, number / 100 % TOUCHED);
    }
    let (code, execution) = (scatter(number) % CODES, scatter(number ^ 0xabcd) % EXECUTIONS);
    envelope(number, &format!("30{code:05}"), None, execution)
}

fn read(texts: &[String], families: &Families) -> Vec<WorkflowMessage> {
    let read = |text: &String| {
        let json = Json::parse(text.clone()).expect("it is JSON");
        WorkflowMessage::read("", &json, families).expect("it is valid")
    };
    texts.iter().map(read).collect()
}

/// What reading the JSON alone takes.
fn reading() {
    let texts: Vec<_> = (0..10_000).map(occurrence).collect();
    let before = cpu();
    let read = read(&texts, &Families::default());
    let per_event = (cpu() - before).as_secs_f64() * 1e6 / read.len() as f64;
    println!("reading and checking JSON: {per_event:.1} us of CPU an event; it is part of the figures below");
}

async fn ingest(engine: &Host, texts: &[String]) {
    let messages = read(texts, engine.families());
    let request =
        IngestRequest { tenant: tenant(), app: AppName::trusted("flow"), origin: "bench".into(), messages };
    engine.ingest(request).await.expect("they are taken");
}

/// Loads events in batches, several producers side by side. Says what it took.
async fn load(engine: &Host, first: u64, count: u64, producers: u64) -> (Duration, Duration) {
    let batches: Vec<Vec<String>> = (first..first + count)
        .step_by(BATCH as usize)
        .map(|first| (first..first + BATCH).map(occurrence).collect())
        .collect();
    let batches = Arc::new(batches);
    let (started, before) = (Instant::now(), cpu());
    let running: Vec<_> = (0..producers)
        .map(|producer| {
            let (engine, batches) = (engine.clone(), Arc::clone(&batches));
            tokio::spawn(async move {
                for batch in batches.iter().skip(producer as usize).step_by(producers as usize) {
                    ingest(&engine, batch).await;
                }
            })
        })
        .collect();
    for producer in running {
        producer.await.expect("it ends well");
    }
    (started.elapsed(), cpu() - before)
}

/// The median of some looks at the ten most frequent causes.
async fn top(engine: &Host) -> Duration {
    let mut took = Vec::new();
    for _ in 0..21 {
        let started = Instant::now();
        let page = engine.error_groups(&tenant(), &GroupFilter::default(), GroupSort::Count, 0, 10).await;
        took.push(started.elapsed());
        assert_eq!(page.expect("it works").groups.len(), 10);
    }
    took.sort();
    took[took.len() / 2]
}

/// Resolves the code that most executions have, and lets it be as it was. Says of how many it was.
async fn resolve(engine: &Host) -> (Duration, u64) {
    let code = ErrorCode::trusted("20Cook");
    let scope = || ErrorScope::Code(code.clone());
    let started = Instant::now();
    let marked = engine.mark_errors(tenant(), scope(), ErrorMark::Resolve, None, None).await;
    let took = started.elapsed();
    let changed = marked.expect("it is known").changed;
    assert!(changed > 0, "{changed}");
    engine.mark_errors(tenant(), scope(), ErrorMark::Reopen, None, None).await.expect("it is known");
    (took, changed)
}

struct Tokio;

impl TriageTimer for Tokio {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// Parks executions on one code and resumes them all.
async fn bulk(engine: &Host) {
    for first in (0..PARKED).step_by(BATCH as usize) {
        let parked = |number: u64| {
            envelope(2_000_000_000 + number, "20Bulk", Some(&format!("token-{number}")), number)
        };
        let texts: Vec<_> = (first..first + BATCH).map(parked).collect();
        ingest(engine, &texts).await;
    }
    let keeper = TriageKeeper::new(engine.clone(), Tokio);
    let running = tokio::spawn({
        let keeper = keeper.clone();
        async move { keeper.run().await }
    });
    let request = NewBulk {
        tenant: tenant(),
        action: BulkAction::Resume { output: Json::trusted(r#"{"resolved":true}"#), rerun: false },
        filter: BulkFilter { code: Some(ErrorCode::trusted("20Bulk")), ..BulkFilter::default() },
        rate_per_second: None,
        by: None,
        reason: None,
    };
    let started = Instant::now();
    let bulk = engine.start_bulk(request).await.expect("it is valid");
    loop {
        let shown = engine.bulk(&tenant(), bulk.id).await.expect("it works").expect("it is there");
        if shown.state != BulkState::Running {
            println!(
                "{} parked executions resumed in {:.0} ms",
                shown.done,
                started.elapsed().as_secs_f64() * 1e3
            );
            assert_eq!(shown.done, PARKED);
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    keeper.stop();
    running.await.expect("it ends well");
}

/// User and system time of this process so far, all threads included.
fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the struct is ours and as large as the call expects.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// What this process had the disk write so far.
fn written_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn resident_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4 / 1_024
}
