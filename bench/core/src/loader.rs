//! Fills a store fast: many commands in a group, published events and whole lives of tasks mixed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_embedded::Embedded;
use tidemill_engine::command::Command;
use tidemill_model::{Entity, TenantId};

use crate::work::{self, Hand, claimed};
use crate::workload::{EVENTS_PER_ENTITY, Workload};

/// Commands of published events in one group, and events in one command. Tenants take turns, so that neighbours in
/// the log are of different tenants, as they are under live traffic.
const COMMANDS: u64 = 128;
const EVENTS: u64 = 8;
/// Tasks of one job.
const TASKS: usize = 100;
const THREADS: u64 = 2;
/// How many entities and tasks of each step are kept as samples.
const SAMPLES: u64 = 50;

/// Something that can be asked for.
#[derive(Debug, Clone)]
pub struct Sample {
    pub tenant: TenantId,
    pub entity: Entity,
    /// About how many events there were when its last one was written.
    pub events: u64,
}

pub struct Loader {
    backend: Arc<Embedded>,
    workload: Arc<Workload>,
    step: AtomicU64,
    pub events: AtomicU64,
    /// Entities that got all their events, and finished tasks.
    pub entities: std::sync::Mutex<Vec<Sample>>,
    pub tasks: std::sync::Mutex<Vec<Sample>>,
}

impl Loader {
    pub fn new(backend: &Arc<Embedded>, workload: &Arc<Workload>) -> Self {
        Self {
            backend: Arc::clone(backend),
            workload: Arc::clone(workload),
            step: AtomicU64::new(0),
            events: AtomicU64::new(0),
            entities: std::sync::Mutex::default(),
            tasks: std::sync::Mutex::default(),
        }
    }

    /// Goes on until the store holds about this many events.
    pub fn load_to(&self, events: u64) {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    while self.events.load(Ordering::Relaxed) < events {
                        let step = self.step.fetch_add(1, Ordering::Relaxed);
                        self.publish(step);
                        self.run_job(step, thread as usize);
                    }
                });
            }
        });
    }

    /// A group of published events: each of its entities gets all its events.
    fn publish(&self, step: u64) {
        let entities_per_step = COMMANDS * EVENTS / EVENTS_PER_ENTITY;
        let rows = entities_per_step / EVENTS;
        let commands: Vec<Command> = (0..COMMANDS)
            .map(|command| {
                let row = command % rows;
                let events = (0..EVENTS).map(|place| {
                    let entity = self.workload.entity(999, step * entities_per_step + row * EVENTS + place);
                    self.workload.event(entity, step * COMMANDS * EVENTS + command * EVENTS + place)
                });
                self.workload.publish(row, step, events.collect())
            })
            .collect();
        for answer in self.backend.execute_blocking(&commands).expect("the store works") {
            answer.expect("no event is refused");
        }
        let events = self.events.fetch_add(COMMANDS * EVENTS, Ordering::Relaxed) + COMMANDS * EVENTS;
        let samples = (0..SAMPLES.min(entities_per_step)).map(|number| Sample {
            tenant: self.workload.tenant(number / EVENTS).clone(),
            entity: self.workload.entity(999, step * entities_per_step + number),
            events,
        });
        self.entities.lock().unwrap().extend(samples);
    }

    /// A job that is submitted, claimed and finished.
    fn run_job(&self, step: u64, thread: usize) {
        let tenant = self.workload.tenant(step);
        let tasks = work::tasks(TASKS, |_| Vec::new());
        let hand = Hand::new(thread, TASKS);
        let group = [work::submission(tenant, self.workload.app(step), &tasks), hand.claim()];
        let assigned = claimed(self.backend.execute_blocking(&group).expect("the store works"));
        let reports: Vec<Command> = assigned.iter().map(|task| hand.finish(task)).collect();
        for answer in self.backend.execute_blocking(&reports).expect("the store works") {
            answer.expect("no report is refused");
        }
        let written = TASKS as u64 * 3 + 2;
        let events = self.events.fetch_add(written, Ordering::Relaxed) + written;
        let samples = assigned.iter().take(SAMPLES as usize).map(|task| Sample {
            tenant: task.task.tenant.clone(),
            entity: Entity::task(&task.task.request),
            events,
        });
        self.tasks.lock().unwrap().extend(samples);
    }
}

/// Finishes `total` tasks in jobs of 1,000 by two threads.
pub fn finish_tasks(backend: &Arc<Embedded>, workload: &Workload, total: u64) {
    const JOB: usize = 1_000;
    let jobs = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let jobs = &jobs;
            scope.spawn(move || {
                let hand = Hand::new(thread as usize, 250);
                loop {
                    let job = jobs.fetch_add(1, Ordering::Relaxed);
                    if job * JOB as u64 >= total {
                        return;
                    }
                    let tasks = work::tasks(JOB, |_| Vec::new());
                    let mut group = vec![work::submission(workload.tenant(job), workload.app(job), &tasks)];
                    group.push(hand.claim());
                    loop {
                        let assigned = claimed(backend.execute_blocking(&group).expect("the store works"));
                        if assigned.is_empty() {
                            break;
                        }
                        group = assigned.iter().map(|task| hand.finish(task)).collect();
                        group.push(hand.claim());
                    }
                }
            });
        }
    });
}
