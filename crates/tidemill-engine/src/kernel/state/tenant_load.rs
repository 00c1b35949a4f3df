//! What the unfinished tasks of each tenant come to: counted as they come and go, so that a limit costs nothing to check.
//!
//! Tasks of jobs at rest do not count, whatever they wait for: nothing happens to them by itself, and they are not in
//! memory. A command that wakes such a job first checks whether there is room for them.

use std::collections::BTreeMap;

use tidemill_model::TenantId;

use crate::kernel::state::job::{Job, spec_bytes};
use crate::kernel::state::{Alone, State};

/// Unfinished tasks, and about how many bytes they have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub tasks: usize,
    pub bytes: usize,
}

impl Load {
    /// The load of one task more.
    #[must_use]
    pub fn and(self, bytes: usize) -> Self {
        Self { tasks: self.tasks + 1, bytes: self.bytes + bytes }
    }

    fn of_job(job: &Job) -> Self {
        if job.head.is_at_rest() { Self::default() } else { Self::of_open(job) }
    }

    /// What a job adds once it is woken: nothing, unless it is at rest.
    pub(crate) fn of_woken(job: &Job) -> Self {
        if job.head.is_at_rest() { Self::of_open(job) } else { Self::default() }
    }

    fn of_open(job: &Job) -> Self {
        let counts = &job.head.counts;
        Self { tasks: (counts.waiting + counts.pending + counts.processing) as usize, bytes: job.open_bytes }
    }

    fn of_alone(alone: &Alone) -> Self {
        if alone.entry.is_live() {
            Self::default().and(spec_bytes(&alone.task.spec))
        } else {
            Self::default()
        }
    }
}

/// The loads of all tenants that have any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TenantLoads(BTreeMap<TenantId, Load>);

impl TenantLoads {
    pub(super) fn change(&mut self, tenant: &TenantId, before: Load, after: Load) {
        if before == after {
            return;
        }
        if !self.0.contains_key(tenant) {
            self.0.insert(tenant.clone(), Load::default());
        }
        let load = self.0.get_mut(tenant).expect("it was just put there");
        load.tasks = (load.tasks + after.tasks).saturating_sub(before.tasks);
        load.bytes = (load.bytes + after.bytes).saturating_sub(before.bytes);
        if *load == Load::default() {
            self.0.remove(tenant);
        }
    }
}

impl State {
    /// What a tenant's unfinished tasks come to.
    pub fn load_of(&self, tenant: &TenantId) -> Load {
        self.loads.0.get(tenant).copied().unwrap_or_default()
    }

    /// The same, counted anew: for checks that nothing was forgotten.
    pub fn count_load_of(&self, tenant: &TenantId) -> Load {
        let jobs = self.jobs.values().filter(|job| job.head.tenant == *tenant).map(Load::of_job);
        let alone = self.alone.iter().filter(|(key, _)| key.tenant == *tenant);
        jobs.chain(alone.map(|(_, alone)| Load::of_alone(alone))).fold(Load::default(), |sum, load| Load {
            tasks: sum.tasks + load.tasks,
            bytes: sum.bytes + load.bytes,
        })
    }

    pub(super) fn load_of_job(&self, job: tidemill_model::JobId) -> Load {
        self.jobs.get(&job).map_or_else(Load::default, Load::of_job)
    }

    pub(super) fn load_of_alone(&self, key: &crate::kernel::commit::TaskKey) -> Load {
        self.alone.get(key).map_or_else(Load::default, Load::of_alone)
    }

    /// Books what became of a job that came to `before`.
    pub(super) fn book_job_load(&mut self, tenant: &TenantId, job: tidemill_model::JobId, before: Load) {
        let after = self.load_of_job(job);
        self.loads.change(tenant, before, after);
    }

    /// Books what became of a task on its own that came to `before`.
    pub(super) fn book_alone_load(&mut self, key: &crate::kernel::commit::TaskKey, before: Load) {
        let after = self.load_of_alone(key);
        self.loads.change(&key.tenant, before, after);
    }
}
