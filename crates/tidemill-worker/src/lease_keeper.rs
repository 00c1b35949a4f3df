//! The leases of a worker's slots, renewed by a thread of its own.
//!
//! Handlers may block every thread of the runtime that they run on: a keeper on that runtime would stand still with them, and
//! their leases would run out. A short task costs an entry in a map instead of a task of its own on the runtime.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{Engine, EngineError, HeartbeatReport};
use tidemill_engine::reply::Refusal;
use tidemill_engine::warn_seldom;
use tidemill_model::{Fence, WorkerId};
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::vitals::held_part;

/// How long a keeper that ends is waited for. It lets go of the store then.
const END_WAIT: Duration = Duration::from_secs(1);

/// Renews what is held, until it is dropped.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    leases: Arc<Leases>,
    stop: Arc<Notify>,
    /// Closed once the keeper has ended.
    ended: Mutex<Receiver<()>>,
}

#[derive(Debug)]
struct Leases {
    table: Mutex<Table>,
    /// Rings when a lease must be looked at sooner than the keeper thinks.
    sooner: Notify,
    interval: Duration,
    /// How long after it was asked for a lease is relied on.
    held: Duration,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    leases: HashMap<u64, Lease>,
    /// When each lease is to be looked at.
    looks: BTreeSet<(Instant, u64)>,
    /// When the keeper looks next, by itself.
    planned: Option<Instant>,
}

#[derive(Debug)]
struct Lease {
    task: TaskKey,
    fence: Fence,
    held_until: Instant,
    look_at: Instant,
    lost: Arc<Notify>,
}

impl LeaseKeeper {
    /// Starts to keep leases. If there can be no thread for it, a task of the current runtime keeps them.
    pub(crate) fn start<B: Backend>(engine: Engine<B>, worker: WorkerId, interval: Duration) -> Self {
        let lease = Duration::from_millis(engine.policy().lease_millis);
        let leases = Arc::new(Leases {
            table: Mutex::default(),
            sooner: Notify::new(),
            interval,
            held: held_part(lease),
        });
        let stop = Arc::new(Notify::new());
        let (ending, ended) = mpsc::channel();
        let keeping = {
            let (leases, stop) = (Arc::clone(&leases), Arc::clone(&stop));
            move || async move {
                tokio::select! {
                    () = stop.notified() => {}
                    () = keep(leases, engine, worker) => {}
                }
            }
        };
        let (tasks, spare) = (Handle::current(), keeping.clone());
        let run = move || {
            // It is dropped last, when nothing of the store is held any more.
            let _ending = ending;
            match Builder::new_current_thread().enable_all().build() {
                Ok(own) => own.block_on(keeping()),
                Err(error) => {
                    warn_seldom!(error, "leases are kept with the drivers of the tasks' own runtime");
                    tasks.block_on(keeping());
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("tidemill-leases".to_owned()).spawn(run) {
            warn_seldom!(error, "leases are kept on the tasks' own runtime");
            tokio::spawn(spare());
        }
        Self { leases, stop, ended: Mutex::new(ended) }
    }

    /// Keeps the lease of a task that was asked for then, until the answer is dropped.
    pub(crate) fn hold(&self, task: TaskKey, fence: Fence, asked_at: Instant) -> Holding<'_> {
        let lost = Arc::new(Notify::new());
        let held_until = asked_at + self.leases.held;
        let look_at = held_until.min(asked_at + self.leases.interval);
        let mut table = self.leases.lock();
        let number = table.next;
        table.next += 1;
        table.looks.insert((look_at, number));
        table.leases.insert(number, Lease { task, fence, held_until, look_at, lost: Arc::clone(&lost) });
        let is_late = table.planned.is_some_and(|planned| look_at < planned);
        drop(table);
        if is_late {
            // The answer was long under way.
            self.leases.sooner.notify_one();
        }
        Holding { leases: &self.leases, number, lost }
    }
}

impl Drop for LeaseKeeper {
    fn drop(&mut self) {
        self.stop.notify_one();
        let ended = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nothing is ever sent: an answer says that the other end is gone, or that it takes too long.
        let _ = ended.recv_timeout(END_WAIT);
    }
}

/// A lease that is being kept.
pub(crate) struct Holding<'a> {
    leases: &'a Leases,
    number: u64,
    lost: Arc<Notify>,
}

impl Holding<'_> {
    /// Returns when somebody else may hold the task.
    pub(crate) async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.leases.lock().remove(self.number);
    }
}

impl Table {
    fn remove(&mut self, number: u64) -> Option<Lease> {
        let lease = self.leases.remove(&number)?;
        self.looks.remove(&(lease.look_at, number));
        Some(lease)
    }

    /// Plans the next look at a lease, if it is still held.
    fn look_again(&mut self, number: u64, at: Instant, held_until: Option<Instant>) {
        let Some(lease) = self.leases.get_mut(&number) else { return };
        self.looks.remove(&(lease.look_at, number));
        lease.held_until = held_until.unwrap_or(lease.held_until);
        lease.look_at = at.min(lease.held_until);
        self.looks.insert((lease.look_at, number));
    }
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be renewed now. The holders of leases that ran out learn it.
    fn due(&self, now: Instant) -> Vec<(u64, TaskKey, Fence)> {
        let mut due = Vec::new();
        let mut table = self.lock();
        while let Some(&(at, number)) = table.looks.first() {
            if at > now {
                break;
            }
            let Some(lease) = table.leases.get(&number) else { break };
            if lease.held_until <= now {
                lease.lost.notify_one();
                table.remove(number);
                continue;
            }
            due.push((number, lease.task.clone(), lease.fence));
            // The call may hang: the lease's end is watched meanwhile.
            let held_until = lease.held_until;
            table.look_again(number, held_until, None);
        }
        due
    }

    fn next_look(&self, now: Instant) -> Instant {
        // Whatever is asked for later is to be looked at later than this.
        let latest = now + self.interval.min(self.held);
        let mut table = self.lock();
        let next = table.looks.first().map_or(latest, |(at, _)| latest.min(*at));
        table.planned = Some(next);
        next
    }

    fn renewed(&self, number: u64, asked_at: Instant, answer: &Result<(), EngineError>) {
        let mut table = self.lock();
        match answer {
            // The store counts from when it got the call, which was later.
            Ok(()) => table.look_again(number, asked_at + self.interval, Some(asked_at + self.held)),
            Err(EngineError::Refused(Refusal::LeaseLost { .. } | Refusal::NotFound { .. })) => {
                if let Some(lease) = table.remove(number) {
                    lease.lost.notify_one();
                }
            }
            Err(error) => {
                warn_seldom!(error, "a lease could not be prolonged; it is tried again");
                table.look_again(number, Instant::now() + self.interval / 4, None);
            }
        }
        drop(table);
        self.sooner.notify_one();
    }
}

async fn keep<B: Backend>(leases: Arc<Leases>, engine: Engine<B>, worker: WorkerId) {
    loop {
        let now = Instant::now();
        for (number, task, fence) in leases.due(now) {
            let beat = HeartbeatReport {
                task,
                fence,
                worker: worker.clone(),
                process_id: std::process::id(),
                rss: 0,
                last_activity: None,
            };
            // Each on its own: one that hangs must not delay the others.
            let (leases, engine) = (Arc::clone(&leases), engine.clone());
            tokio::spawn(async move {
                let asked_at = Instant::now();
                let answer = engine.heartbeat(beat).await.map(drop);
                leases.renewed(number, asked_at, &answer);
            });
        }
        tokio::select! {
            () = tokio::time::sleep_until(leases.next_look(now)) => {}
            () = leases.sooner.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases() -> Leases {
        Leases {
            table: Mutex::default(),
            sooner: Notify::new(),
            interval: Duration::from_secs(20),
            held: Duration::from_secs(40),
        }
    }

    fn held(leases: &Leases, now: Instant) -> Arc<Notify> {
        let lost = Arc::new(Notify::new());
        let task = TaskKey {
            tenant: tidemill_model::TenantId::trusted("t"),
            request: tidemill_model::RequestId::standalone("a").unwrap(),
        };
        let (held_until, look_at) = (now + leases.held, now + leases.interval);
        let mut table = leases.lock();
        table.looks.insert((look_at, 7));
        table.leases.insert(7, Lease { task, fence: Fence(1), held_until, look_at, lost: Arc::clone(&lost) });
        lost
    }

    fn is_told(lost: &Notify) -> bool {
        use std::task::{Context, Waker};
        std::pin::pin!(lost.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_lease_is_renewed_at_every_interval_and_lost_when_no_answer_comes() {
        let (leases, start) = (leases(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let lost = held(&leases, start);
        assert!(leases.due(after(19)).is_empty());
        assert_eq!(leases.due(after(20)).len(), 1);
        assert!(leases.due(after(21)).is_empty(), "the call is under way");
        leases.renewed(7, after(20), &Ok(()));
        assert_eq!(leases.next_look(after(22)), after(40));
        assert_eq!(leases.due(after(40)).len(), 1);
        assert!(leases.due(after(59)).is_empty(), "still held by the renewal of second 20");
        assert!(!is_told(&lost));
        assert!(leases.due(after(60)).is_empty(), "the call of second 40 never came back");
        assert!(is_told(&lost));
        assert!(leases.lock().leases.is_empty() && leases.lock().looks.is_empty());
    }

    #[test]
    fn a_refusal_ends_a_lease_at_once_and_a_fault_tries_again_sooner() {
        let (leases, start) = (leases(), Instant::now());
        let lost = held(&leases, start);
        let fault = tidemill_engine::backend::Fault::Full("full".into());
        leases.renewed(7, start, &Err(EngineError::Fault(fault)));
        assert!(leases.next_look(start) < start + Duration::from_secs(20));
        assert!(!is_told(&lost));
        let refusal = Refusal::NotFound { what: "task", id: "a".to_owned() };
        leases.renewed(7, start, &Err(EngineError::Refused(refusal)));
        assert!(is_told(&lost));
        assert!(leases.lock().looks.is_empty());
    }

    #[tokio::test]
    async fn a_lease_that_was_long_under_way_wakes_the_keeper() {
        let (_, ended) = mpsc::channel();
        let keeper =
            LeaseKeeper { leases: Arc::new(leases()), stop: Arc::default(), ended: Mutex::new(ended) };
        let task = TaskKey {
            tenant: tidemill_model::TenantId::trusted("t"),
            request: tidemill_model::RequestId::standalone("a").unwrap(),
        };
        let now = Instant::now();
        keeper.leases.next_look(now);
        let is_woken = || tokio::time::timeout(Duration::ZERO, keeper.leases.sooner.notified());
        let _soon = keeper.hold(task.clone(), Fence(1), now);
        assert!(is_woken().await.is_err(), "it looks early enough by itself");
        let _late = keeper.hold(task, Fence(2), now - Duration::from_secs(3));
        assert!(is_woken().await.is_ok());
        assert_eq!(keeper.leases.next_look(now), now + Duration::from_secs(17));
    }
}
