//! Workers: they claim and report, and at times they pause, crash, repeat themselves or speak with a fence long lost.

use std::sync::Arc;

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{
    Begin, Claim, Command, Finish, Heartbeat, Release, Report, Spent, Surroundings,
};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::reply::Reply;
use tidemill_model::events::properties::OverflowRef;
use tidemill_model::{
    ArtifactFile, ErrorCategory, EventId, Fence, Json, Owner, SessionId, TenantId, Timestamp, Usage, WorkerId,
};

use crate::rng::Rng;

/// How many lost leases a worker still speaks for.
const OLD_MAX: usize = 8;
/// How many reports in a thousand are failures when nothing else goes wrong.
const FAILURES_IN_CALM: u32 = 50;

/// The files that go with an output: none for two outputs of three. No number is drawn for them, so that the course of
/// seeds stays as it is.
fn artifacts(value: u64) -> Vec<ArtifactFile> {
    let count = if value.is_multiple_of(3) { 1 + value % 2 } else { 0 };
    let named = |number: u64| ArtifactFile {
        path: format!("r1-a1/artifacts/{value}/{number}"),
        size_bytes: value,
        sha256: format!("{:064x}", value * 10 + number),
    };
    (0..count).map(named).collect()
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    rng: Rng,
    id: WorkerId,
    name: Arc<str>,
    /// It runs on another machine, and lives on when the store's process dies.
    is_remote: bool,
    slots: usize,
    tenants: Option<Arc<[TenantId]>>,
    held: Vec<Held>,
    /// Leases it lost or forgot, for the day it comes back from the dead.
    old: Vec<Held>,
    asleep_until: Option<Timestamp>,
    /// Its inclination: how many reports in a thousand are failures.
    failures: u32,
}

#[derive(Debug, Clone)]
struct Held {
    task: TaskKey,
    fence: Fence,
    begun: bool,
    /// What it reported and heard no answer to.
    reported: Option<(Report, Spent)>,
}

impl Worker {
    pub(crate) fn new(mut rng: Rng, number: usize, tenants: &[TenantId]) -> Self {
        let name = format!("worker-{number}");
        let own: Arc<[TenantId]> = tenants.iter().filter(|_| rng.chance(600)).cloned().collect();
        let serves_all = rng.chance(600) || number == 0;
        Self {
            id: WorkerId::trusted(&name),
            name: Arc::from(name),
            is_remote: rng.chance(500),
            slots: 1 + rng.index(12),
            tenants: (!serves_all).then_some(own),
            held: Vec::new(),
            old: Vec::new(),
            asleep_until: None,
            failures: rng.weighted(&[(3, 50), (2, 250), (1, 600)]),
            rng,
        }
    }

    /// The next thing it says, if it says anything.
    pub(crate) fn act(&mut self, now: Timestamp, generation: u64) -> Option<Command> {
        if self.asleep_until.is_some_and(|until| now < until) {
            return None;
        }
        self.asleep_until = None;
        let room = self.held.len() < self.slots;
        match self.rng.below(100) {
            // It stops for longer than a lease, or its process is gone.
            0..=1 => {
                self.asleep_until = Some(now.plus(self.rng.within(20_000..=150_000)));
                None
            }
            2 => {
                self.die();
                None
            }
            3..=6 => self.speak_from_the_grave(now),
            7..=39 if room => Some(self.claim(generation, self.slots - self.held.len())),
            40..=54 => self.beat_or_begin(),
            55..=58 => self.release(),
            _ if self.held.is_empty() => Some(self.claim(generation, self.slots)),
            _ => {
                let at = self.rng.index(self.held.len());
                Some(self.finish(at, self.failures, now))
            }
        }
    }

    /// Works off what it can, as a worker does in a world without trouble.
    pub(crate) fn claim_calmly(&mut self, generation: u64) -> Command {
        self.tenants = None;
        self.asleep_until = None;
        self.slots = 64;
        self.claim(generation, 64)
    }

    /// Reports on everything it holds.
    pub(crate) fn finish_calmly(&mut self, now: Timestamp) -> Vec<Command> {
        (0..self.held.len()).map(|at| self.finish(at, FAILURES_IN_CALM, now)).collect()
    }

    fn claim(&mut self, generation: u64, max: usize) -> Command {
        Command::Claim(Claim {
            owner: Owner {
                worker: Arc::clone(&self.name),
                generation: (!self.is_remote).then_some(generation),
            },
            worker: self.id.clone(),
            max: 1 + self.rng.index(max),
            tenants: self.tenants.clone(),
            begin: self.rng.chance(600).then(|| self.process_id()),
        })
    }

    fn beat_or_begin(&mut self) -> Option<Command> {
        if self.held.is_empty() {
            return None;
        }
        let at = self.rng.index(self.held.len());
        let process_id = self.process_id();
        let (worker, held) = (self.id.clone(), &mut self.held[at]);
        let (task, fence) = (held.task.clone(), held.fence);
        if !held.begun && self.rng.chance(500) {
            held.begun = true;
            return Some(Command::Begin(Begin {
                task,
                fence,
                worker,
                process_id,
                surroundings: Surroundings::default(),
            }));
        }
        let rss = self.rng.below(1 << 30);
        Some(Command::Heartbeat(Heartbeat { task, fence, worker, process_id, rss, last_activity: None }))
    }

    fn release(&mut self) -> Option<Command> {
        if self.held.is_empty() {
            return None;
        }
        let held = &self.held[self.rng.index(self.held.len())];
        let reason = self.rng.chance(500).then(|| "worker is shutting down".to_owned());
        let (task, fence) = (held.task.clone(), held.fence);
        let spent = self.spent();
        Some(Command::Release(Release { task, fence, worker: self.id.clone(), reason, spent }))
    }

    /// Reports on one of the tasks it holds; `failures` reports in a thousand are failures.
    fn finish(&mut self, at: usize, failures: u32, now: Timestamp) -> Command {
        let (report, spent) = match &self.held[at].reported {
            // It did not hear, so it says the same again.
            Some(reported) => reported.clone(),
            None => (self.report(failures, now), self.spent()),
        };
        let held = &mut self.held[at];
        held.reported = Some((report.clone(), spent.clone()));
        let (task, fence) = (held.task.clone(), held.fence);
        let digest = report.digest();
        Command::Finish(Finish { task, fence, worker: self.id.clone(), report, spent, cause: None, digest })
    }

    /// What an agent would say of its attempt.
    fn spent(&mut self) -> Spent {
        let usage = self.rng.chance(350).then(|| Usage {
            input_tokens: self.rng.below(100),
            output_tokens: self.rng.below(100),
            cache_read_tokens: self.rng.below(100),
            cache_write_tokens: self.rng.below(100),
            turns: u32::try_from(self.rng.below(9)).unwrap_or(0),
            cost_micros: self.rng.below(1_000),
        });
        let session = self.rng.below(1_000);
        let session_id = self.rng.chance(300).then(|| SessionId::trusted(&format!("session-{session}")));
        Spent { usage, session_id }
    }

    fn report(&mut self, failures: u32, now: Timestamp) -> Report {
        if self.rng.chance(failures) {
            if self.rng.chance(150) {
                return Report::TimedOut { timeout_millis: 1_000, elapsed_millis: 1_001, signal: "SIGTERM" };
            }
            let category = self.rng.weighted(&[
                (6, ErrorCategory::Network),
                (2, ErrorCategory::Timeout),
                (1, ErrorCategory::Unknown),
                (2, ErrorCategory::Auth),
                (1, ErrorCategory::Validation),
            ]);
            let retry_after_millis = self.rng.chance(100).then(|| self.rng.below(60_000));
            return Report::Failed { error: "it broke".to_owned(), category, retry_after_millis };
        }
        let value = self.rng.below(1_000);
        let output = Json::trusted(&format!(r#"{{"value":{value}}}"#));
        let overflow = self.rng.chance(40).then(|| self.overflow(now));
        Report::Completed {
            output: overflow.is_none().then_some(output),
            overflow,
            duration_millis: self.rng.below(5_000),
            exit_code: 0,
            artifacts: artifacts(value),
        }
    }

    /// A large output goes to the blob store under the id that its event will have; the world sees to that.
    fn overflow(&mut self, now: Timestamp) -> (EventId, OverflowRef) {
        let id = self.rng.event_id(now);
        let key = format!("events/{}/{id}-payload.json", self.name);
        (id, OverflowRef { bucket: "local".to_owned(), key })
    }

    /// A process that lost its lease long ago still believes in it.
    fn speak_from_the_grave(&mut self, now: Timestamp) -> Option<Command> {
        let held = self.rng.pick(&self.old)?.clone();
        let (task, fence, worker) = (held.task, held.fence, self.id.clone());
        let process_id = self.process_id();
        Some(match self.rng.below(6) {
            0 => Command::Begin(Begin {
                task,
                fence,
                worker,
                process_id,
                surroundings: Surroundings::default(),
            }),
            1 => {
                Command::Heartbeat(Heartbeat { task, fence, worker, process_id, rss: 1, last_activity: None })
            }
            2 => Command::Release(Release { task, fence, worker, reason: None, spent: Spent::default() }),
            _ => {
                let (report, spent) = match held.reported {
                    Some(reported) if self.rng.chance(500) => reported,
                    _ => (self.report(400, now), self.spent()),
                };
                let digest = report.digest();
                Command::Finish(Finish { task, fence, worker, report, spent, cause: None, digest })
            }
        })
    }

    /// What it learns from an answer; `heard` is false when the answer got lost on the way.
    pub(crate) fn hear(&mut self, command: &Command, answer: &Answer, heard: bool) {
        match (command, answer) {
            (Command::Claim(claim), Ok(Reply::Claimed { tasks, .. })) => {
                let begun = claim.begin.is_some();
                let given = tasks.iter().map(|assignment| Held {
                    task: assignment.task.clone(),
                    fence: assignment.fence,
                    begun,
                    reported: None,
                });
                if heard { self.held.extend(given) } else { self.old.extend(given) }
            }
            (
                Command::Finish(Finish { task, fence, .. }) | Command::Release(Release { task, fence, .. }),
                _,
            ) if heard => {
                self.let_go(task, *fence);
            }
            (
                Command::Heartbeat(Heartbeat { task, fence, .. }) | Command::Begin(Begin { task, fence, .. }),
                Err(_),
            ) if heard => {
                self.let_go(task, *fence);
            }
            _ => {}
        }
        while self.old.len() > OLD_MAX {
            let at = self.rng.index(self.old.len());
            self.old.swap_remove(at);
        }
    }

    /// The store's process died, and with it every worker that lives inside.
    pub(crate) fn store_died(&mut self) {
        if !self.is_remote {
            self.die();
        }
    }

    fn die(&mut self) {
        self.old.append(&mut self.held);
    }

    fn let_go(&mut self, task: &TaskKey, fence: Fence) {
        while let Some(at) = self.held.iter().position(|held| held.task == *task && held.fence == fence) {
            let held = self.held.swap_remove(at);
            if self.rng.chance(500) {
                self.old.push(held);
            }
        }
    }

    fn process_id(&mut self) -> u32 {
        u32::try_from(self.rng.within(100..=30_000)).unwrap_or(1)
    }
}
