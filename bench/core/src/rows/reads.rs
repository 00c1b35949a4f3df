//! Reads at growing sizes of one store: the latest event of an entity, and pages of a timeline.

use std::hint::black_box;
use std::io::Read;
use std::sync::Arc;

use tidemill_model::Entity;
use tidemill_model::Timestamp;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};

use super::Setting;
use crate::figure::{Figure, Goal, Report};
use crate::latency::Latencies;
use crate::loader::{Loader, Sample};
use crate::machine::Watch;
use crate::store::TestStore;
use crate::work::{self, Hand, claimed};
use crate::workload::{Random, Workload};

const LATEST_READS: usize = 20_000;
const PAGE_READS: usize = 2_000;
const LIVE_TASKS: usize = 1_000;

/// The p50 of each kind of read at one size.
struct Level {
    live: f64,
    finished_task: f64,
    finished_entity: f64,
    open_page: f64,
    sealed_page: f64,
}

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    let sizes: &[u64] = if setting.quick { &[100_000, 1_000_000] } else { &[100_000, 1_000_000, 10_000_000] };
    let workload = Workload::new();
    let store = TestStore::fresh(setting.dir, "reads");
    let loader = Loader::new(&store.backend, &workload);
    let mut levels = Vec::new();
    let mut loaded = 0;
    for size in sizes {
        let watch = Watch::start();
        loader.load_to(*size);
        let spent = watch.stop();
        report.push(
            Figure::new("reads", format!("loading to {}", short(*size)), spent.wall.as_secs_f64(), "s").note(
                format!(
                    "{:.0} events/s in batches, {:.1} µs of CPU each",
                    spent.rate(size - loaded),
                    spent.micros_each(size - loaded)
                ),
            ),
        );
        loaded = *size;
        store.settle();
        levels.push(level(&store, &workload, &loader, *size, report));
    }
    let (first, last) = (&levels[0], &levels[levels.len() - 1]);
    for (what, then, now) in [
        ("latest, live task", first.live, last.live),
        ("latest, finished task", first.finished_task, last.finished_task),
        ("latest, entity at rest", first.finished_entity, last.finished_entity),
        ("page, open segment", first.open_page, last.open_page),
        ("page, sealed segments", first.sealed_page, last.sealed_page),
    ] {
        let what = format!("flatness of {what}: p50 at {}", short(loaded));
        report.push(Figure::new("reads", what, now, "µs").beside(format!("at {}", short(sizes[0])), then));
    }
    store.discard();
}

fn level(
    store: &TestStore,
    workload: &Arc<Workload>,
    loader: &Loader,
    size: u64,
    report: &mut Report,
) -> Level {
    let live = live_tasks(store, workload);
    let sealed = sealed_events(store);
    let is_sealed = |sample: &&Sample| sample.events < sealed;
    let tasks: Vec<Sample> = loader.tasks.lock().unwrap().iter().filter(is_sealed).cloned().collect();
    let entities: Vec<Sample> = loader.entities.lock().unwrap().iter().filter(is_sealed).cloned().collect();
    let at = short(size);
    let mut push = |what: &str, mut found: Latencies, goal: f64| {
        let (p50, p99) = (found.p50(), found.p99());
        let note = format!("p99 {p99:.0} µs");
        report.push(
            Figure::new("reads", format!("{what} at {at}, p50"), p50, "µs")
                .goal(Goal::AtMost(goal))
                .note(note),
        );
        p50
    };
    let live = push("latest, live task", latest(store, &live), 5.0);
    let finished_task = push("latest, finished task", latest(store, &tasks), 30.0);
    let finished_entity = push("latest, entity at rest", latest(store, &entities), 30.0);
    let open_page = push("page of 100, open segment", newest_pages(store, workload), 300.0);
    let sealed_page = push("page of 100, sealed segments", old_pages(store, workload, &tasks), 1_500.0);
    Level { live, finished_task, finished_entity, open_page, sealed_page }
}

/// Tasks that somebody works on, claimed just now. Enough events go after them that a page fits the open segment.
fn live_tasks(store: &TestStore, workload: &Arc<Workload>) -> Vec<Sample> {
    let mut live = Vec::new();
    for (number, tenant) in (0..).zip(&workload.tenants) {
        let tasks = work::tasks(LIVE_TASKS / workload.tenants.len(), |_| Vec::new());
        let hand = Hand::new(1_000, 256);
        let group = [work::submission(tenant, workload.app(number), &tasks), hand.claim()];
        let assigned = claimed(store.backend.execute_blocking(&group).expect("the store works"));
        live.extend(assigned.iter().map(|task| Sample {
            tenant: task.task.tenant.clone(),
            entity: Entity::task(&task.task.request),
            events: 0,
        }));
    }
    live
}

/// Reads each of the samples at most a few times, in disorder.
fn latest(store: &TestStore, samples: &[Sample]) -> Latencies {
    let mut random = Random(11);
    let mut found = Latencies::default();
    for _ in 0..LATEST_READS.min(samples.len() * 4) {
        let Sample { tenant, entity, .. } = &samples[random.below(samples.len())];
        let event = found.time(|| store.backend.latest_blocking(tenant, entity).expect("the store works"));
        assert!(black_box(event).is_some());
    }
    found
}

/// About how many events lie in sealed segments: those before the first one of the open segment, whose file's header
/// tells its number. Everything that can be sealed is.
fn sealed_events(store: &TestStore) -> u64 {
    let files = std::fs::read_dir(store.dir.join("log")).unwrap().flatten().map(|entry| entry.path());
    let open =
        files.filter(|path| path.extension().is_some_and(|end| end == "log")).max().expect("a log is open");
    let mut header = [0; 24];
    std::fs::File::open(open).unwrap().read_exact(&mut header).unwrap();
    u64::from_le_bytes(header[16..].try_into().unwrap())
}

fn newest_pages(store: &TestStore, workload: &Workload) -> Latencies {
    let mut found = Latencies::default();
    for number in 0..PAGE_READS as u64 {
        let query = EventQuery {
            order: Order::Descending,
            limit: 100,
            ..EventQuery::all(workload.tenant(number).clone(), AccessPath::Tenant)
        };
        let page = found.time(|| store.backend.events_blocking(&query).expect("the store works"));
        assert_eq!(black_box(page).events.len(), 100);
    }
    found
}

/// Pages that begin at random moments of the past.
fn old_pages(store: &TestStore, workload: &Workload, tasks: &[Sample]) -> Latencies {
    let mut random = Random(12);
    let moments: Vec<Timestamp> = tasks
        .iter()
        .step_by((tasks.len() / PAGE_READS).max(1))
        .filter_map(|task| {
            store.backend.latest_blocking(&task.tenant, &task.entity).expect("the store works")
        })
        .map(|event| event.timestamp)
        .collect();
    let mut found = Latencies::default();
    for number in 0..PAGE_READS as u64 {
        let query = EventQuery {
            from: Some(moments[random.below(moments.len())]),
            limit: 100,
            ..EventQuery::all(workload.tenant(number).clone(), AccessPath::Tenant)
        };
        let page = found.time(|| store.backend.events_blocking(&query).expect("the store works"));
        assert!(!black_box(page).events.is_empty());
    }
    found
}

fn short(events: u64) -> String {
    if events >= 1_000_000 { format!("{} M", events / 1_000_000) } else { format!("{} k", events / 1_000) }
}
