//! What a check looks at: live tasks, jobs that stand still, deliveries that wait. All of it is in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_model::{JobId, JobStatus, RequestId, TaskState, TenantId, Timestamp};

use crate::kernel::commit::TaskKey;
use crate::kernel::state::State;
use crate::kernel::state::job::Job;

/// A dispatched task that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveTask {
    pub request: RequestId,
    pub run: u32,
    /// The attempt that is under way or comes next. Counts from 1 within the run.
    pub attempt: u32,
    /// Whether work began in this run: users see it as processing then.
    pub begun: bool,
    pub hold: Hold,
    /// The time of its newest event.
    pub last_event_at: Timestamp,
}

/// Which worker has a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// Nobody. It may be taken from this moment on.
    Nobody { from: Timestamp },
    Worker {
        worker: Arc<str>,
        /// When it took the task.
        since: Timestamp,
        /// Until when its last word lets it keep the task.
        until: Timestamp,
    },
    /// It waits for somebody.
    Parked,
}

/// What else may have stood for too long, of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lookout {
    /// Jobs that are open although nothing of them runs, may run or has failed.
    pub stalled: u32,
    /// The first of them.
    pub stalled_jobs: Vec<JobId>,
    /// Deliveries that have not arrived.
    pub deliveries: usize,
    /// When the oldest of them was made.
    pub oldest_delivery: Option<Timestamp>,
}

/// How many stalled jobs are named.
const STALLED_NAMED_MAX: usize = 20;

impl State {
    /// A tenant's dispatched tasks that are not done, in the order of their ids, after `after`, at most `limit`.
    pub fn live_tasks(&self, tenant: &TenantId, after: Option<&RequestId>, limit: usize) -> Vec<LiveTask> {
        // No id is empty, so all of the tenant's come after it.
        let request = after.cloned().unwrap_or_else(|| RequestId::trusted(""));
        let after = TaskKey { tenant: tenant.clone(), request };
        let own = self.live_after(Some(&after)).take_while(|key| key.tenant == *tenant);
        own.take(limit).filter_map(|key| self.live_task(key)).collect()
    }

    fn live_task(&self, key: &TaskKey) -> Option<LiveTask> {
        let task = self.task(key)?;
        let head = task.entry.head.as_ref()?;
        let last_event_at = task.entry.stream.last_timestamp().unwrap_or(Timestamp::MIN);
        let hold = match &head.state {
            TaskState::Done(_) => return None,
            TaskState::Parked => Hold::Parked,
            TaskState::Leased(lease) => Hold::Worker {
                worker: Arc::clone(&lease.owner.worker),
                since: lease.claimed_at,
                until: lease.until,
            },
            TaskState::Queued => {
                let queued = task.entry.message.and_then(|message| self.queue().get(message));
                // One that has not begun counts from its sending: being taken and dropped again is no start.
                let from = queued
                    .map(|queued| if head.begun { queued.visible_at } else { queued.message.not_before });
                Hold::Nobody { from: from.unwrap_or(last_event_at) }
            }
        };
        Some(LiveTask {
            request: key.request.clone(),
            run: head.run,
            attempt: head.attempts.saturating_add(1),
            begun: head.begun,
            hold,
            last_event_at,
        })
    }

    /// What else may have stood for too long: of one tenant, or of all that have anything open.
    pub fn lookout(&self, tenant: Option<&TenantId>) -> BTreeMap<TenantId, Lookout> {
        let mut found: BTreeMap<TenantId, Lookout> = BTreeMap::new();
        let wants = |own: &TenantId| tenant.is_none_or(|tenant| tenant == own);
        for job in self.jobs().filter(|job| wants(&job.head.tenant) && !job.head.is_at_rest()) {
            if !found.contains_key(&job.head.tenant) {
                found.insert(job.head.tenant.clone(), Lookout::default());
            }
            if let Some(own) = found.get_mut(&job.head.tenant).filter(|_| is_stalled(job)) {
                own.stalled += 1;
                own.stalled_jobs.push(job.head.job);
            }
        }
        for own in found.values_mut() {
            own.stalled_jobs.sort_unstable();
            own.stalled_jobs.truncate(STALLED_NAMED_MAX);
        }
        for (tenant, count, oldest) in self.deliveries().waiting().filter(|(tenant, ..)| wants(tenant)) {
            let own = found.entry(tenant.clone()).or_default();
            (own.deliveries, own.oldest_delivery) = (count, Some(oldest));
        }
        // From one tenant's first task to the next tenant's.
        let mut next = match tenant {
            None => self.live_after(None).next(),
            Some(_) => None,
        };
        while let Some(key) = next {
            found.entry(key.tenant.clone()).or_default();
            let behind = TenantId::trusted(&format!("{}\0", key.tenant));
            let behind = TaskKey { tenant: behind, request: RequestId::trusted("") };
            next = self.live_after(Some(&behind)).next();
        }
        found
    }
}

/// Whether a job is open although nothing is left that could bring it further. No command leaves one so.
pub(crate) fn is_stalled(job: &Job) -> bool {
    let counts = &job.head.counts;
    job.head.status() == JobStatus::Running && counts.pending + counts.processing == 0 && job.ready.is_empty()
}
