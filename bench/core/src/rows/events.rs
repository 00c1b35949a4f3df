//! Durable events per second, beside the bare log and SQLite, in rounds that take turns.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidemill_embedded::codec;
use tidemill_embedded::log::{Log, LogConfig, SegmentKind};
use tidemill_embedded::real_disk::RealDisk;
use tidemill_engine::state::trail::{Links, Seq};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;

use super::Setting;
use crate::bare_log::{BareLog, Wake};
use crate::figure::{Figure, Goal, Report};
use crate::latency::{Latencies, median};
use crate::machine::{Spent, Watch};
use crate::sqlite::{SqlEvent, Sqlite};
use crate::store::{TestStore, bytes_on_disk};
use crate::workload::{EVENTS_PER_ENTITY, Random, Workload};

const PRODUCERS: u64 = 64;
/// An entry's tag in the log.
const TAG_BYTES: usize = 4;

/// What one round did.
struct Round {
    events: u64,
    groups: u64,
    spent: Spent,
    latencies: Latencies,
}

impl Round {
    fn rate(&self) -> f64 {
        self.spent.rate(self.events)
    }

    fn cpu(&self) -> f64 {
        self.spent.micros_each(self.events)
    }
}

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let (rounds, round) =
        if setting.quick { (4, Duration::from_millis(800)) } else { (8, Duration::from_millis(1500)) };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "events");
    let mut tide = Tide { store: &store, workload: &workload, next: Default::default() };
    // A first round warms up and tells how large an event is.
    tide.round(round);
    let size = EventSize::of(&tide);
    report.setting(
        "event",
        format!(
            "{} B of JSON without keys, {} B rendered with all keys, {} B in the log; {PRODUCERS} producers",
            size.json, size.rendered, size.stored
        ),
    );
    store.settle();
    let bare = BareLog::start(&setting.dir.join("bare.log"), 256 << 20, Wake::Each);
    let together = BareLog::start(&setting.dir.join("bare-together.log"), 256 << 20, Wake::Together);
    let database = setting.dir.join("events.sqlite");
    remove_database(&database);
    let sqlite = Sqlite::start(&database);

    let (mut ours, mut bares, mut sqls, mut later) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut best = Vec::new();
    for number in 0..rounds {
        ours.push(tide.round(round));
        // What was put off is done here, so that it neither disturbs the control nor is forgotten.
        let watch = Watch::start();
        store.settle();
        later.push(watch.stop());
        bares.push(bare_round(&bare, size.stored, round));
        best.push(bare_round(&together, size.stored, round));
        sqls.push(sql_round(&sqlite, &workload, number, round));
    }
    drop((bare, together, sqlite));

    let rates = |rounds: &[Round]| rounds.iter().map(Round::rate).collect::<Vec<_>>();
    let cpus = |rounds: &[Round]| rounds.iter().map(Round::cpu).collect::<Vec<_>>();
    let batch = |rounds: &[Round]| {
        rounds.iter().map(|r| r.events).sum::<u64>() as f64
            / rounds.iter().map(|r| r.groups).sum::<u64>().max(1) as f64
    };
    let pairs = |a: &[f64], b: &[f64]| median(&a.iter().zip(b).map(|(a, b)| a / b).collect::<Vec<_>>());
    let (our_rates, bare_rates, sql_rates) = (rates(&ours), rates(&bares), rates(&sqls));
    let others = median(&ours.iter().chain(&bares).map(|r| r.spent.others * 100.0).collect::<Vec<_>>());

    let ratio = pairs(&our_rates, &bare_rates);
    let noted = format!(
        "groups of {:.0} and {:.0}; others took {others:.0} % of the CPU",
        batch(&ours),
        batch(&bares)
    );
    report.push(
        Figure::new("events", "durable events, 64 producers", median(&our_rates), "/s")
            .with_ratio("bare log", median(&bare_rates), ratio)
            .goal(Goal::AtLeast(0.5))
            .note(noted),
    );
    report.push(
        Figure::new("events", "the same, moonshot", median(&our_rates), "/s")
            .with_ratio("bare log", median(&bare_rates), ratio)
            .goal(Goal::AtLeast(0.85)),
    );
    let best_rates = rates(&best);
    report.push(
        Figure::new(
            "events",
            "the same, beside a log that wakes a group with one call",
            median(&our_rates),
            "/s",
        )
        .with_ratio("bare log, one wake", median(&best_rates), pairs(&our_rates, &best_rates))
        .note(format!("{:.1} µs of CPU per event there", median(&cpus(&best)))),
    );
    report.push(
        Figure::new("events", "the same", median(&our_rates), "/s")
            .with_ratio("SQLite", median(&sql_rates), pairs(&our_rates, &sql_rates))
            .goal(Goal::AtLeast(4.0))
            .note(format!("SQLite in groups of {:.0}", batch(&sqls))),
    );
    report.push(
        Figure::new("events", "CPU per event", median(&cpus(&ours)), "µs")
            .with_ratio("bare log", median(&cpus(&bares)), pairs(&cpus(&ours), &cpus(&bares)))
            .note(format!("SQLite {:.0} µs", median(&cpus(&sqls)))),
    );
    let put_off: Vec<f64> =
        later.iter().zip(&ours).map(|(spent, round)| spent.micros_each(round.events)).collect();
    report.push(
        Figure::new("events", "CPU per event, work put off", median(&put_off), "µs")
            .note("row flush and sealing that was left at the end of a round"),
    );
    for (what, part) in [("p50", 0.5), ("p99", 0.99), ("longest", 1.0)] {
        let [ours, bares] = [&mut ours, &mut bares].map(|rounds| {
            median(&rounds.iter_mut().map(|round| round.latencies.quantile(part) / 1e3).collect::<Vec<_>>())
        });
        report.push(
            Figure::new("events", format!("acknowledged, {what}"), ours, "ms").beside("bare log", bares),
        );
    }
    report_bytes(store, report);
    remove_database(&database);
    for name in ["bare.log", "bare-together.log"] {
        let _ = std::fs::remove_file(setting.dir.join(name));
    }
}

/// Only Tidemill, for a profiler to look at.
pub fn profile(dir: &Path, seconds: u64) {
    let workload = Workload::new();
    let store = TestStore::fresh(dir, "events");
    let mut tide = Tide { store: &store, workload: &workload, next: Vec::new() };
    for _ in 0..seconds {
        let mut round = tide.round(Duration::from_secs(1));
        let group = round.events as f64 / round.groups as f64;
        let [p50, p99, last] = [0.5, 0.99, 1.0].map(|part| round.latencies.quantile(part) / 1e3);
        eprintln!(
            "{:.0}/s {:.1} µs, groups of {group:.0}, acknowledged after {p50:.2}, {p99:.2}, at most {last:.1} ms",
            round.rate(),
            round.cpu()
        );
    }
    store.discard();
}

/// Tidemill as a thing that takes events.
struct Tide<'a> {
    store: &'a TestStore,
    workload: &'a Arc<Workload>,
    /// Where each producer stands.
    next: Vec<u64>,
}

impl Tide<'_> {
    fn round(&mut self, length: Duration) -> Round {
        self.next.resize(PRODUCERS as usize, 0);
        let syncs = self.store.syncs();
        let (next, workload, backend) = (std::mem::take(&mut self.next), self.workload, &self.store.backend);
        let ends = std::sync::Mutex::new(vec![0; PRODUCERS as usize]);
        let mut round = producers(length, |producer, count| {
            let number = next[producer as usize] + count;
            let entity = workload.entity(producer, number / EVENTS_PER_ENTITY);
            let event = workload.event(entity, number * PRODUCERS + producer);
            let command = workload.publish(producer, number / EVENTS_PER_ENTITY, vec![event]);
            for answer in backend.execute_blocking(&[command]).expect("the store works") {
                answer.expect("no event is refused");
            }
            ends.lock().unwrap()[producer as usize] = number + 1;
        });
        self.next = ends.into_inner().unwrap();
        round.groups = self.store.syncs() - syncs;
        round
    }
}

fn bare_round(bare: &BareLog, bytes: usize, length: Duration) -> Round {
    let before = bare.groups();
    let payload = vec![b'x'; bytes];
    let mut round = producers(length, |_, _| bare.append(&payload));
    round.groups = bare.groups() - before;
    round
}

fn sql_round(sqlite: &Sqlite, workload: &Workload, number: u64, length: Duration) -> Round {
    let before = sqlite.groups();
    let body: Arc<str> = "x".repeat(760).into();
    let started = Instant::now();
    let mut round = producers(length, |producer, count| {
        let entity = workload.entity(producer, (number << 24) | (count / EVENTS_PER_ENTITY));
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(started.elapsed().as_nanos() as u64).to_be_bytes());
        id[8..].copy_from_slice(&Random(producer << 32 | count).next().to_be_bytes());
        sqlite.append(SqlEvent {
            tenant: (producer % 4) as i64,
            app: (count / EVENTS_PER_ENTITY % 3) as i64,
            kind: ((count * PRODUCERS + producer) % 6) as i64,
            entity: entity.id.as_str().to_owned(),
            at: (number * 100_000 + started.elapsed().as_millis() as u64) as i64,
            id,
            body: Arc::clone(&body),
        });
    });
    round.groups = sqlite.groups() - before;
    round
}

/// Runs the producers for a while; each calls `work` with its number and how often it did so before.
fn producers(length: Duration, work: impl Fn(u64, u64) + Sync) -> Round {
    let stop = AtomicBool::new(false);
    let events = AtomicU64::new(0);
    let all = std::sync::Mutex::new(Vec::new());
    let watch = Watch::start();
    std::thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (stop, events, all, work) = (&stop, &events, &all, &work);
            scope.spawn(move || {
                let mut latencies = Latencies::default();
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    latencies.time(|| work(producer, count));
                    count += 1;
                }
                events.fetch_add(count, Ordering::Relaxed);
                all.lock().unwrap().push(latencies);
            });
        }
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
    });
    let spent = watch.stop();
    let mut latencies = Latencies::default();
    all.into_inner().unwrap().into_iter().for_each(|own| latencies.append(own));
    Round { events: events.into_inner(), groups: 0, spent, latencies }
}

/// How many bytes an event takes in its several forms, on average.
struct EventSize {
    json: usize,
    rendered: usize,
    stored: usize,
}

impl EventSize {
    fn of(tide: &Tide<'_>) -> Self {
        let query =
            EventQuery { limit: 500, ..EventQuery::all(tide.workload.tenant(0).clone(), AccessPath::Tenant) };
        let page = tide.store.backend.events_blocking(&query).expect("the store works");
        let (mut json, mut rendered, mut stored) = (0, 0, 0);
        let mut out = Vec::new();
        for event in &page.events {
            let text = event.to_json();
            rendered += text.len();
            let parsed: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
            let is_key = |name: &str| name.ends_with("PK") || name.ends_with("SK");
            let plain: serde_json::Map<_, _> = parsed.into_iter().filter(|(name, _)| !is_key(name)).collect();
            json += serde_json::to_string(&plain).unwrap().len();
            out.clear();
            let links = Links {
                prev: Some(Seq(4_000)),
                aside: None,
                jump: Some(Seq(3_000)),
                ordinal: 3,
                is_aside: false,
            };
            codec::encode_event(&mut out, Seq(5_000), event, &links);
            stored += out.len() + TAG_BYTES;
        }
        let count = page.events.len().max(1);
        Self { json: json / count, rendered: rendered / count, stored: stored / count }
    }
}

/// Closes the store and looks at its files.
fn report_bytes(store: TestStore, report: &mut Report) {
    store.settle();
    let TestStore { backend, dir, .. } = store;
    drop(backend);
    let disk = RealDisk::new(&dir).expect("the directory can be used");
    let log = Log::open(Arc::new(disk), LogConfig::default(), None).expect("the log opens");
    let segments = log.reader().segments();
    let each = |kind: SegmentKind| {
        let of_kind = || segments.iter().filter(|segment| segment.kind == kind);
        let (bytes, events) =
            (of_kind().map(|s| s.bytes).sum::<u64>(), of_kind().map(|s| s.events).sum::<u64>());
        (events > 0).then(|| bytes as f64 / events as f64)
    };
    let events: u64 = segments.iter().map(|segment| segment.events).sum();
    for (what, kind) in [("raw", SegmentKind::Open), ("sealed", SegmentKind::Sealed)] {
        if let Some(bytes) = each(kind) {
            report.push(Figure::new("events", format!("bytes per event, {what}"), bytes, "B").note(
                match kind {
                    SegmentKind::Open => "group headers included",
                    _ => "postings included",
                },
            ));
        }
    }
    let rows = bytes_on_disk(&dir.join("derived"));
    let note = format!("file size; one row per entity, {events} events");
    report.push(
        Figure::new("events", "bytes per event, derived rows", rows as f64 / events as f64, "B").note(note),
    );
    drop(log);
    let _ = std::fs::remove_dir_all(&dir);
}

fn remove_database(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", path.display()));
    }
}
