//! The state: what the log folds into, as far as decisions need it.
//!
//! `apply` is the only thing that changes it, and it only follows commits: folding the same commits again gives the
//! same state, which is what `verify` and `rebuild` rest on. Live work is always here; finished work may be let go
//! (`evict`) once a store holds its rows, and comes back row by row (`load`).

mod apply;
mod carried_job;
mod deliveries;
pub mod job;
mod kept_rows;
mod pending;
pub mod queue;
pub mod row;
pub mod stream;
mod suspicion;
mod tenant_load;
pub mod trail;
mod triage_index;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tidemill_model::{Entity, JobId, PublicState, TenantId, Timestamp};

use crate::kernel::commit::{NewTask, TaskKey};
use crate::kernel::notice::Notice;
use crate::kernel::record::{Record, RecordKey};
pub(crate) use apply::change_head;
use carried_job::CarriedJob;
pub use deliveries::{Deliveries, DueDeliveries, DueWay};
use job::{Job, KeptTask};
use kept_rows::KeptRows;
pub use pending::{DueExecutions, Pending, Room};
use queue::Queue;
use stream::Stream;
pub use suspicion::Suspicion;
pub use tenant_load::Load;
use tenant_load::TenantLoads;
pub use triage_index::{CountedGroup, Expiring, ParkedAt, TriageDue, TriageIndex};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type Set<K> = HashSet<K, foldhash::fast::RandomState>;

/// A copy shares the notices of the original: a listener hears both.
#[derive(Debug, Clone, Default)]
pub struct State {
    jobs: Map<JobId, Job>,
    alone: Map<TaskKey, Alone>,
    queue: Queue,
    records: Map<RecordKey, Option<Record>>,
    entities: Map<(TenantId, Entity), Stream>,
    /// Tasks that are dispatched and not done, in order, for the sweep.
    live: BTreeSet<TaskKey>,
    pending: Pending,
    deliveries: Deliveries,
    triage: TriageIndex,
    suspicion: Suspicion,
    loads: TenantLoads,
    rows: KeptRows,
    /// A job whose rows are being carried.
    carried: Option<CarriedJob>,
    #[cfg(feature = "faults")]
    pub faults: crate::kernel::faults::Faults,
}

/// What a state rings. Those of a copy are the same.
#[derive(Debug, Clone)]
pub struct StateNotices {
    /// Rung when there is another delivery to try, another moment, or one fewer.
    pub deliveries_nearer: Notice,
    /// Rung when something may have to be done for parked executions or bulks earlier than before.
    pub triage_nearer: Notice,
    /// Rung when an execution's wait ends.
    pub triage_ended: Notice,
}

/// A task without a job.
#[derive(Debug, Clone)]
pub struct Alone {
    pub task: Arc<NewTask>,
    pub entry: KeptTask,
}

/// A task as decisions and readers see it.
#[derive(Debug, Clone, Copy)]
pub struct TaskRef<'a> {
    pub entry: &'a KeptTask,
    pub place: TaskPlace<'a>,
}

/// Where a task belongs: nowhere, or to a job at an index of its list.
#[derive(Debug, Clone, Copy)]
pub enum TaskPlace<'a> {
    Alone(&'a Arc<NewTask>),
    InJob { job: &'a Job, index: u32 },
}

impl TaskRef<'_> {
    /// The state users see; a task nobody announced has none.
    pub fn public_state(&self) -> Option<PublicState> {
        self.entry.public_state().filter(|_| self.entry.stream.version() > 0)
    }
}

impl State {
    /// A state that remembers which rows changed.
    pub fn keeping_rows() -> Self {
        Self { rows: KeptRows::kept(), ..Self::default() }
    }

    /// Rings the notices of a state that this one replaces, once for all that happened between.
    pub fn take_over(&mut self, former: &Self) {
        self.deliveries.take_over(&former.deliveries);
        self.triage.take_over(&former.triage);
        let StateNotices { deliveries_nearer, triage_nearer, triage_ended } = self.notices();
        for notice in [deliveries_nearer, triage_nearer, triage_ended] {
            notice.ring();
        }
    }

    pub fn notices(&self) -> StateNotices {
        StateNotices {
            deliveries_nearer: self.deliveries.nearer(),
            triage_nearer: self.triage.nearer(),
            triage_ended: self.triage.ended(),
        }
    }

    pub fn job(&self, tenant: &TenantId, job: JobId) -> Option<&Job> {
        self.jobs.get(&job).filter(|found| found.head.tenant == *tenant)
    }

    pub fn task(&self, key: &TaskKey) -> Option<TaskRef<'_>> {
        if let Some((job, task)) = key.request.parts() {
            let job = self.job(&key.tenant, job)?;
            let index = job.index_of(task)?;
            return Some(TaskRef { entry: &job.node(index).entry, place: TaskPlace::InJob { job, index } });
        }
        self.alone.get(key).map(|alone| TaskRef { entry: &alone.entry, place: TaskPlace::Alone(&alone.task) })
    }

    pub fn record(&self, key: &RecordKey) -> Option<&Record> {
        self.records.get(key).and_then(Option::as_ref)
    }

    /// Executions of scripts that are to run.
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Deliveries on their way.
    pub fn deliveries(&self) -> &Deliveries {
        &self.deliveries
    }

    /// Groups of errors, parked executions and bulks.
    pub fn triage(&self) -> &TriageIndex {
        &self.triage
    }

    /// Which tasks may have crashed the process, and which worker holds what.
    pub fn suspicion(&self) -> &Suspicion {
        &self.suspicion
    }

    /// Takes note of a stored record that decisions may have to know of, without keeping it.
    pub fn note_stored(&mut self, key: &RecordKey, record: &Record) {
        self.pending.note(key, Some(record));
        self.deliveries.note(key, Some(record));
        self.triage.note(key, Some(record));
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Moves messages whose time has come into their lanes. Not a change: the same happens at every look.
    pub fn show_due_messages(&mut self, now: Timestamp) {
        self.queue.show_due_messages(now);
    }

    /// Where the events of an entity stand.
    pub fn stream(&self, tenant: &TenantId, entity: &Entity) -> Option<Stream> {
        match (entity.kind.as_str(), JobId::new(entity.id.as_str())) {
            ("TASK", _) => {
                let request = tidemill_model::RequestId::trusted(entity.id.as_str());
                self.task(&TaskKey { tenant: tenant.clone(), request }).map(|task| task.entry.stream.clone())
            }
            ("JOB", Ok(job)) => self.job(tenant, job).map(|job| job.head.stream.clone()),
            _ => self.entities.get(&(tenant.clone(), entity.clone())).cloned(),
        }
    }

    /// Dispatched tasks that are not done, after `after`, in order.
    pub fn live_after(&self, after: Option<&TaskKey>) -> impl Iterator<Item = &TaskKey> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.live.range::<TaskKey, _>((from, Unbounded))
    }

    pub fn live_len(&self) -> usize {
        self.live.len()
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    pub fn alone(&self) -> impl Iterator<Item = (&TaskKey, &Alone)> {
        self.alone.iter()
    }

    pub fn records(&self) -> impl Iterator<Item = (&RecordKey, Option<&Record>)> {
        self.records.iter().map(|(key, record)| (key, record.as_ref()))
    }

    pub fn entities(&self) -> impl Iterator<Item = (&(TenantId, Entity), &Stream)> {
        self.entities.iter()
    }
}
