//! What workers did and how long work waited, by commands and their answers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_model::{ErrorCategory, Outcome, TenantId, WorkerId};

use crate::kernel::backend::Answer;
use crate::kernel::command::{Command, DeliveryEnd, Report};
use crate::kernel::reply::{Assignment, Ending, Reply};
use crate::metrics::histogram::{Bounds, Histogram, HistogramMetrics, micros};
use crate::metrics::names::{NameMeter, NamedMetrics};

/// A worker that was silent for this long does not count. Idle workers ask for work more often.
pub const WORKER_SEEN: Duration = Duration::from_secs(60);
/// Workers that are remembered. Beyond them new ones are not counted.
const WORKERS_MAX: usize = 10_000;

/// The counters themselves.
#[derive(Debug)]
pub(crate) struct WorkMeter {
    commands: Histogram,
    refused: AtomicU64,
    start: Histogram,
    hop: Histogram,
    claimed: AtomicU64,
    takeovers: AtomicU64,
    released: AtomicU64,
    tasks_submitted: AtomicU64,
    events_published: AtomicU64,
    deliveries_arrived: AtomicU64,
    deliveries_failed: AtomicU64,
    deliveries_dead: AtomicU64,
    ended: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    names: NameMeter,
    workers: Mutex<HashMap<WorkerId, Seen, foldhash::fast::RandomState>>,
}

/// What is known of a worker.
#[derive(Debug, Clone, Copy)]
struct Seen {
    last: Instant,
    /// It claimed within this process, for all tenants.
    is_local: bool,
}

impl Seen {
    fn is_recent(self, now: Instant) -> bool {
        now.duration_since(self.last) <= WORKER_SEEN
    }
}

/// What workers did and how long work waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkMetrics {
    /// From a command to its durable answer. Claims that found nothing are left out.
    pub commands: HistogramMetrics,
    pub commands_refused: u64,
    /// From the moment a task without parents could run to the durable claim of its first attempt.
    pub submit_to_start: HistogramMetrics,
    /// The same for tasks with parents: from the end of the last parent.
    pub hop: HistogramMetrics,
    pub attempts_claimed: u64,
    /// Claims of tasks whose worker fell silent.
    pub takeovers: u64,
    /// Attempts that were given back without an outcome.
    pub attempts_released: u64,
    /// Attempts whose end was reported, by what followed and the class of the error, which is empty for a success.
    pub attempts_ended: BTreeMap<(&'static str, &'static str), u64>,
    /// Workers that reported within [`WORKER_SEEN`].
    pub workers: usize,
    /// Tasks without a job.
    pub tasks_submitted: u64,
    pub events_published: u64,
    /// Tries of deliveries.
    pub deliveries_arrived: u64,
    pub deliveries_failed: u64,
    /// Deliveries that were given up.
    pub deliveries_dead: u64,
}

impl Default for WorkMetrics {
    fn default() -> Self {
        WorkMeter::default().read()
    }
}

/// What is kept of a command while it is on its way.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Claim(WorkerId, bool),
    Heartbeat(WorkerId),
    Finish(WorkerId, TenantId, &'static str),
    Release,
    SubmitTask,
    Delivery { arrives: bool },
    Other,
}

impl Asked {
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            // A worker from elsewhere says which tenants it serves.
            Command::Claim(claim) => Self::Claim(claim.worker.clone(), claim.tenants.is_none()),
            Command::Heartbeat(heartbeat) => Self::Heartbeat(heartbeat.worker.clone()),
            Command::Finish(finish) => {
                Self::Finish(finish.worker.clone(), finish.task.tenant.clone(), class_of(&finish.report))
            }
            Command::Release(_) => Self::Release,
            Command::SubmitTask(_) => Self::SubmitTask,
            Command::EndDelivery(end) => Self::Delivery { arrives: matches!(end.end, DeliveryEnd::Arrived) },
            _ => Self::Other,
        }
    }
}

fn class_of(report: &Report) -> &'static str {
    match report {
        Report::Completed { .. } => "",
        Report::Failed { category, .. } => category.as_str(),
        Report::TimedOut { .. } => ErrorCategory::Timeout.as_str(),
    }
}

fn outcome_of(ending: Ending) -> &'static str {
    match ending {
        Ending::Done(Outcome::Completed) => "completed",
        Ending::Done(Outcome::Failed) => "failed",
        Ending::Done(Outcome::TimedOut) => "timed_out",
        Ending::Done(Outcome::Cancelled) => "cancelled",
        Ending::Retrying { .. } => "retrying",
        Ending::Parked => "parked",
    }
}

impl Default for WorkMeter {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            commands: Histogram::new(Bounds::LATENCY),
            refused: zero(),
            start: Histogram::new(Bounds::LATENCY),
            hop: Histogram::new(Bounds::LATENCY),
            claimed: zero(),
            takeovers: zero(),
            released: zero(),
            tasks_submitted: zero(),
            events_published: zero(),
            deliveries_arrived: zero(),
            deliveries_failed: zero(),
            deliveries_dead: zero(),
            ended: Mutex::default(),
            names: NameMeter::default(),
            workers: Mutex::default(),
        }
    }
}

impl WorkMeter {
    /// Counts commands that were answered together, `took` after they were sent.
    pub(crate) fn look_at(&self, asked: Vec<Asked>, answers: &[Answer], took: Duration) {
        let is_idle =
            |answer: &Answer| matches!(answer, Ok(Reply::Claimed { tasks, .. }) if tasks.is_empty());
        if !answers.iter().all(is_idle) {
            self.commands.took(took);
        }
        for (asked, answer) in asked.into_iter().zip(answers) {
            let Ok(reply) = answer else {
                count(&self.refused, 1);
                continue;
            };
            match (asked, reply) {
                (Asked::Claim(worker, is_local), Reply::Claimed { tasks, .. }) => {
                    self.seen(worker, is_local);
                    for task in tasks {
                        self.claimed(task, took);
                    }
                }
                (Asked::Heartbeat(worker), _) => self.seen(worker, false),
                (Asked::Finish(worker, tenant, class), Reply::Finished { ending, ended: Some(ended) }) => {
                    self.seen(worker, false);
                    let outcome = outcome_of(*ending);
                    *self.ended().entry((outcome, class)).or_default() += 1;
                    self.names.ended(&tenant, ended.names(), outcome, ended.held_millis);
                }
                (Asked::Release, _) => count(&self.released, 1),
                (Asked::SubmitTask, Reply::TaskSubmitted { repeated: false, .. }) => {
                    count(&self.tasks_submitted, 1);
                }
                (Asked::Delivery { arrives }, Reply::DeliveryEnded { is_dead, .. }) => {
                    count(if arrives { &self.deliveries_arrived } else { &self.deliveries_failed }, 1);
                    count(&self.deliveries_dead, u64::from(*is_dead));
                }
                (_, Reply::Published { events }) => count(&self.events_published, events.len() as u64),
                (_, Reply::Noted { events, .. }) => {
                    let fresh = events.iter().filter(|(_, _, is_repeated)| !is_repeated).count();
                    count(&self.events_published, fresh as u64);
                }
                _ => {}
            }
        }
    }

    fn claimed(&self, task: &Assignment, took: Duration) {
        count(&self.claimed, 1);
        count(&self.takeovers, u64::from(task.is_takeover));
        self.names.claimed(&task.task.tenant, task.name().as_str(), task.job_name.as_deref());
        // What comes later waits for other reasons: a retry's delay, a person, a lost worker.
        if task.is_takeover || task.run > 1 || task.attempt > 1 {
            return;
        }
        let waited = task.waited_millis.saturating_mul(1_000).saturating_add(micros(took));
        let histogram = if task.spec.depends_on.is_empty() { &self.start } else { &self.hop };
        histogram.add(waited);
    }

    fn seen(&self, worker: WorkerId, is_local: bool) {
        let now = Instant::now();
        let mut workers = self.workers();
        if let Some(seen) = workers.get_mut(&worker) {
            *seen = Seen { last: now, is_local: seen.is_local || is_local };
            return;
        }
        if workers.len() >= WORKERS_MAX {
            workers.retain(|_, seen| seen.is_recent(now));
        }
        if workers.len() < WORKERS_MAX {
            workers.insert(worker, Seen { last: now, is_local });
        }
    }

    pub(crate) fn workers_seen(&self) -> usize {
        let (now, mut workers) = (Instant::now(), self.workers());
        workers.retain(|_, seen| seen.is_recent(now));
        workers.len()
    }

    /// Workers of this process, each with how long it has been silent.
    pub(crate) fn local_workers(&self) -> Vec<(WorkerId, Duration)> {
        let (now, workers) = (Instant::now(), self.workers());
        let local = workers.iter().filter(|(_, seen)| seen.is_local && seen.is_recent(now));
        local.map(|(worker, seen)| (worker.clone(), now.duration_since(seen.last))).collect()
    }

    pub(crate) fn read(&self) -> WorkMetrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let workers = self.workers_seen();
        WorkMetrics {
            commands: self.commands.read(),
            commands_refused: read(&self.refused),
            submit_to_start: self.start.read(),
            hop: self.hop.read(),
            attempts_claimed: read(&self.claimed),
            takeovers: read(&self.takeovers),
            attempts_released: read(&self.released),
            attempts_ended: self.ended().clone(),
            workers,
            tasks_submitted: read(&self.tasks_submitted),
            events_published: read(&self.events_published),
            deliveries_arrived: read(&self.deliveries_arrived),
            deliveries_failed: read(&self.deliveries_failed),
            deliveries_dead: read(&self.deliveries_dead),
        }
    }

    /// Attempts of one tenant by the names of their definitions and jobs.
    pub(crate) fn named(&self, tenant: &TenantId) -> NamedMetrics {
        self.names.read(tenant)
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<(&'static str, &'static str), u64>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> MutexGuard<'_, HashMap<WorkerId, Seen, foldhash::fast::RandomState>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count(counter: &AtomicU64, more: u64) {
    if more > 0 {
        counter.fetch_add(more, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use tidemill_model::{Json, TaskId, TaskName, TaskOptions, TaskSpec};

    use crate::kernel::reply::{Ended, Refusal};

    #[test]
    fn claims_that_find_nothing_and_repeated_reports_do_not_count() {
        let meter = WorkMeter::default();
        let worker = || WorkerId::trusted("w");
        let idle = [Ok(Reply::Claimed { tasks: Vec::new(), next: None })];
        meter.look_at(vec![Asked::Claim(worker(), false)], &idle, Duration::from_millis(3));
        assert_eq!((meter.read().commands.count, meter.read().workers), (0, 1));
        let ending = Ending::Done(Outcome::Completed);
        let spec = TaskSpec {
            task_id: TaskId::trusted("a"),
            name: TaskName::trusted("scrape"),
            depends_on: Vec::new(),
            input: Json::default(),
            options: TaskOptions::default(),
        };
        let ended = Some(Ended { spec: Arc::new(spec), job_name: None, held_millis: 5 });
        let answers = [
            Ok(Reply::Finished { ending, ended }),
            Ok(Reply::Finished { ending, ended: None }),
            Err(Refusal::NothingToResume),
        ];
        let finish = || Asked::Finish(worker(), TenantId::trusted("acme"), "");
        let asked = vec![finish(), finish(), Asked::Other];
        meter.look_at(asked, &answers, Duration::from_millis(3));
        let read = meter.read();
        assert_eq!(read.attempts_ended, BTreeMap::from([(("completed", ""), 1)]));
        let named = meter.named(&TenantId::trusted("acme"));
        let counts = &named[&("scrape".to_owned(), String::new())];
        assert_eq!((counts.ended["completed"], counts.held_millis), (1, 5));
        assert_eq!((read.commands.count, read.commands.sum, read.commands_refused), (1, 3_000, 1));
    }

    #[test]
    fn no_more_workers_are_remembered_than_fit() {
        let meter = WorkMeter::default();
        for number in 0..WORKERS_MAX + 10 {
            meter.seen(WorkerId::trusted(&format!("w-{number}")), false);
        }
        assert_eq!(meter.read().workers, WORKERS_MAX);
        meter.seen(WorkerId::trusted("w-0"), false);
        assert_eq!(meter.read().workers, WORKERS_MAX, "one that is known stays");
        assert_eq!(meter.local_workers(), [], "none of them claimed here");
        meter.seen(WorkerId::trusted("w-1"), true);
        meter.seen(WorkerId::trusted("w-1"), false);
        assert_eq!(meter.local_workers().len(), 1, "a heartbeat does not say where it comes from");
    }
}
