//! Revocations: the engine tells a worker in this process at once that its lease has ended.
//!
//! A command that ends a lease rings here: a cancel, or a claim that took the task over. The head says whether a ring
//! was meant for a lease. Workers elsewhere learn it from the answer to their next heartbeat.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_model::{Fence, TenantId};

use crate::engine::Engine;
use crate::kernel::backend::{Answer, Backend};
use crate::kernel::command::Command;
use crate::kernel::commit::TaskKey;
use crate::kernel::notice::Notice;
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::Reply;

/// Tasks whose leases somebody watches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Revocations {
    watched: Arc<Mutex<Watched>>,
}

/// For each task how many watch it, and what tells them.
type Watched = HashMap<TaskKey, (usize, Notice), foldhash::fast::RandomState>;

/// A task being watched; dropping it ends the watch.
struct Watch {
    revocations: Revocations,
    task: TaskKey,
    changed: Notice,
}

/// What a command may end, kept while the command itself is on its way.
#[derive(Debug, Clone)]
pub(crate) enum Watchable {
    Cancel(TenantId),
    Claim,
    Nothing,
}

impl Watchable {
    pub(crate) fn of(command: &Command) -> Self {
        match command {
            Command::Cancel(cancel) => Self::Cancel(cancel.tenant.clone()),
            Command::CancelTask(cancel) => Self::Cancel(cancel.tenant.clone()),
            Command::Claim(_) => Self::Claim,
            _ => Self::Nothing,
        }
    }
}

impl Revocations {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, task: &TaskKey) -> Watch {
        let mut watched = self.lock();
        let (watchers, changed) = watched.entry(task.clone()).or_default();
        *watchers += 1;
        Watch { revocations: self.clone(), task: task.clone(), changed: changed.clone() }
    }

    /// Tells the watchers of tasks whose leases these commands may have ended.
    pub(crate) fn look_at(&self, asked: &[Watchable], answers: &[Answer]) {
        let watched = self.lock();
        if watched.is_empty() {
            return;
        }
        let ring = |task: &TaskKey| {
            if let Some((_, changed)) = watched.get(task) {
                changed.ring();
            }
        };
        for (asked, answer) in asked.iter().zip(answers) {
            match (asked, answer) {
                (Watchable::Cancel(tenant), Ok(Reply::Cancelled { tasks })) => {
                    for request in tasks {
                        ring(&TaskKey { tenant: tenant.clone(), request: request.clone() });
                    }
                }
                (Watchable::Claim, Ok(Reply::Claimed { tasks, .. })) => {
                    for task in tasks {
                        ring(&task.task);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.revocations.lock();
        let Some((watchers, _)) = watched.get_mut(&self.task) else { return };
        *watchers -= 1;
        if *watchers == 0 {
            watched.remove(&self.task);
        }
    }
}

impl<B: Backend> Engine<B> {
    /// Resolves when the lease of a task is over: it was cancelled, or taken over by another claim in this process. The
    /// watch begins with the call, and a lease that was over before resolves it too.
    pub fn revoked(&self, task: &TaskKey, fence: Fence) -> impl Future<Output = ()> + Send + 'static {
        let watch = self.inner.revocations.watch(task);
        let engine = self.clone();
        async move {
            loop {
                let changed = watch.changed.listen();
                let snapshot = engine.inner.backend.task(watch.task.clone()).await;
                // A store that cannot answer ends nothing.
                let head = snapshot.ok().flatten().and_then(|snapshot| snapshot.head);
                if head.is_some_and(|head| head.lease_of(fence).is_none()) {
                    return;
                }
                changed.await;
            }
        }
    }
}
