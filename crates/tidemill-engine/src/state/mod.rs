//! The state: what the log folds into, as far as decisions need it.
//!
//! `apply` is the only thing that changes it, and it only follows commits: folding the same commits again gives the
//! same state, which is what `verify` and `rebuild` rest on. Live work is always here; finished work may be let go
//! (`evict`) once a store holds its rows, and comes back row by row (`load`).

pub mod job;
pub mod queue;
pub mod row;
pub mod stream;
pub mod trail;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tidemill_model::{
    Entity, Event, JobId, KnownType, PublicState, TaskHead, TaskState, TenantId, Timestamp,
};

use crate::commit::{
    Commit, Expect, Message, MessageId, NewTask, RecordWrite, TaskChange, TaskChangeKind, TaskKey, Visibility,
};
use crate::record::{Record, RecordKey};
use job::{Entry, Job, JobHead};
use queue::{Queue, Queued};
use row::{Row, RowKey, TaskRow};
use stream::Stream;
use trail::{Links, Seq};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type Set<K> = HashSet<K, foldhash::fast::RandomState>;

/// How many rows that were only looked at stay in memory.
const VISITORS_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub struct State {
    jobs: Map<JobId, Job>,
    alone: Map<TaskKey, Alone>,
    queue: Queue,
    records: Map<RecordKey, Option<Record>>,
    entities: Map<(TenantId, Entity), Stream>,
    /// Tasks that are dispatched and not done, in order, for the sweep.
    live: BTreeSet<TaskKey>,
    rows: Rows,
    #[cfg(feature = "faults")]
    pub faults: crate::faults::Faults,
}

/// A task without a job.
#[derive(Debug, Clone)]
pub struct Alone {
    pub task: Arc<NewTask>,
    pub entry: Entry,
}

/// Which rows changed and which are on their way to the store.
#[derive(Debug, Default)]
struct Rows {
    /// Whether anybody will take them; an in-memory backend does not.
    kept: bool,
    dirty: Set<RowKey>,
    in_flight: Set<RowKey>,
    visitors: VecDeque<RowKey>,
    /// Messages that the store has seen. The others need no trace when they are settled.
    stored_messages: Set<MessageId>,
}

impl Rows {
    fn touch(&mut self, key: impl FnOnce() -> RowKey) {
        if self.kept {
            self.dirty.insert(key());
        }
    }
}

/// A task as decisions and readers see it.
#[derive(Debug, Clone, Copy)]
pub struct TaskView<'a> {
    pub entry: &'a Entry,
    pub place: Place<'a>,
}

#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    Alone(&'a Arc<NewTask>),
    InJob { job: &'a Job, index: u32 },
}

impl TaskView<'_> {
    /// The state users see; a task nobody announced has none.
    pub fn public_state(&self) -> Option<PublicState> {
        self.entry.public_state().filter(|_| self.entry.stream.version() > 0)
    }
}

impl State {
    /// A state that remembers which rows changed.
    pub fn keeping_rows() -> Self {
        Self { rows: Rows { kept: true, ..Rows::default() }, ..Self::default() }
    }

    pub fn job(&self, tenant: &TenantId, job: JobId) -> Option<&Job> {
        self.jobs.get(&job).filter(|found| found.head.tenant == *tenant)
    }

    pub fn task(&self, key: &TaskKey) -> Option<TaskView<'_>> {
        if let Some((job, task)) = key.request.parts() {
            let job = self.job(&key.tenant, job)?;
            let index = job.index_of(task)?;
            return Some(TaskView { entry: &job.node(index).entry, place: Place::InJob { job, index } });
        }
        self.alone.get(key).map(|alone| TaskView { entry: &alone.entry, place: Place::Alone(&alone.task) })
    }

    pub fn record(&self, key: &RecordKey) -> Option<&Record> {
        self.records.get(key).and_then(Option::as_ref)
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Moves messages whose time has come into their lanes. Not a change: the same happens at every look.
    pub fn move_on(&mut self, now: Timestamp) {
        self.queue.move_on(now);
    }

    /// Where the events of an entity stand.
    pub fn stream(&self, tenant: &TenantId, entity: &Entity) -> Option<Stream> {
        match entity.kind.as_str() {
            "TASK" => {
                let request = tidemill_model::RequestId::trusted(entity.id.as_str());
                self.task(&TaskKey { tenant: tenant.clone(), request }).map(|task| task.entry.stream.clone())
            }
            "JOB" => {
                let job = JobId::new(entity.id.as_str()).ok()?;
                self.job(tenant, job).map(|job| job.head.stream.clone())
            }
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

    /// Whether what a commit relies on holds.
    pub fn holds(&self, expect: &Expect) -> bool {
        match expect {
            Expect::Held { task, fence } => self
                .task(task)
                .and_then(|task| task.entry.head.as_ref())
                .is_some_and(|head| head.lease_of(*fence).is_some()),
            Expect::TaskAbsent(task) => self.task(task).is_none(),
            Expect::JobAbsent(job) => !self.jobs.contains_key(job),
            Expect::JobAt { job, version } => {
                self.jobs.get(job).is_some_and(|job| job.head.version == *version)
            }
            Expect::RecordAt { key, version } => {
                self.record(key).map_or(0, |record| record.version) == *version
            }
        }
    }

    /// Makes a commit true. `first` is the number of its first event; the answer is the pointers of each event.
    pub fn apply(&mut self, commit: &Commit, first: Seq) -> Vec<Links> {
        for write in &commit.records {
            self.apply_record(write);
        }
        for change in &commit.tasks {
            self.apply_task(change);
        }
        for message in &commit.enqueue {
            self.apply_enqueue(message);
        }
        for visibility in &commit.visibility {
            self.apply_visibility(visibility);
        }
        for message in &commit.settle {
            self.apply_settle(*message);
        }
        (first.0..).zip(&commit.events).map(|(seq, event)| self.apply_event(Seq(seq), event)).collect()
    }

    pub fn apply_record(&mut self, write: &RecordWrite) {
        match write {
            RecordWrite::Job(new) => {
                let mut job = Job::new(JobHead {
                    tenant: new.tenant.clone(),
                    app: new.app.clone(),
                    job: new.job,
                    request: new.request.clone(),
                    name: new.name.clone(),
                    created_at: new.created_at,
                    completed_at: None,
                    cancelled: false,
                    counts: tidemill_model::JobCounts::default(),
                    stream: Stream::default(),
                    version: 1,
                });
                job.grow(&new.tasks);
                self.rows.touch(|| RowKey::Job(new.tenant.clone(), new.job));
                self.rows.touch(|| RowKey::JobTasks(new.tenant.clone(), new.job, 0));
                self.jobs.insert(new.job, job);
            }
            RecordWrite::JobTasks { job, tasks, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                let first = u32::try_from(found.nodes.len()).unwrap_or(u32::MAX);
                found.grow(tasks);
                found.head.version += 1;
                found.head.completed_at = None;
                let tenant = found.head.tenant.clone();
                self.rows.touch(|| RowKey::Job(tenant.clone(), *job));
                self.rows.touch(|| RowKey::JobTasks(tenant, *job, first));
            }
            RecordWrite::JobCancelled { job, cancelled, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                found.head.cancelled = *cancelled;
                found.head.version += 1;
                let tenant = found.head.tenant.clone();
                self.rows.touch(|| RowKey::Job(tenant, *job));
            }
            RecordWrite::Task(new) => {
                let key = TaskKey { tenant: new.tenant.clone(), request: new.request.clone() };
                self.rows.touch(|| RowKey::Task(key.clone()));
                self.alone.insert(key, Alone { task: Arc::clone(new), entry: Entry::default() });
            }
            RecordWrite::Put { key, record } => {
                self.rows.touch(|| RowKey::Record(key.clone()));
                self.records.insert(key.clone(), record.clone());
            }
        }
    }

    pub fn apply_task(&mut self, change: &TaskChange) {
        let key = &change.task;
        let live = if let Some((job, task)) = key.request.parts() {
            let Some(job) = self.jobs.get_mut(&job) else { return };
            let Some(index) = job.index_of(task) else { return };
            let before = job.node(index).entry.public_state();
            let entry = &mut job.nodes[index as usize].entry;
            change_head(&mut entry.head, &change.kind);
            let live = entry.is_live();
            job.ready.remove(&index);
            job.book(index, before);
            #[cfg(feature = "faults")]
            if self.faults.skip_counter && before != job.node(index).entry.public_state() {
                job.forget_a_completion(index);
            }
            // A heartbeat changes nothing but the lease.
            if !matches!(change.kind, TaskChangeKind::Renew { .. }) {
                job.head.version += 1;
                let (tenant, id) = (job.head.tenant.clone(), job.head.job);
                self.rows.touch(|| RowKey::Job(tenant, id));
            }
            live
        } else {
            let Some(alone) = self.alone.get_mut(key) else { return };
            change_head(&mut alone.entry.head, &change.kind);
            alone.entry.is_live()
        };
        self.rows.touch(|| RowKey::Task(key.clone()));
        if live {
            if !self.live.contains(key) {
                self.live.insert(key.clone());
            }
        } else {
            self.live.remove(key);
        }
    }

    pub fn apply_enqueue(&mut self, message: &Message) {
        let queued = Queued { message: message.clone(), visible_at: message.not_before, deliveries: 0 };
        self.queue.insert(queued);
        self.rows.touch(|| RowKey::Message(message.id));
        // A message of another run stands for nothing, and a duplicate does not displace the one that stands.
        let Some(entry) = self.task(&message.task).map(|task| task.entry) else { return };
        let standing = entry.message.and_then(|standing| self.queue.get(standing));
        let stands = standing.is_some_and(|standing| entry.is_in_run(standing.message.run));
        if stands || !entry.is_in_run(message.run) {
            return;
        }
        if let Some(entry) = self.entry_mut(&message.task) {
            entry.message = Some(message.id);
            self.rows.touch(|| RowKey::Task(message.task.clone()));
        }
    }

    pub fn apply_visibility(&mut self, change: &Visibility) {
        self.queue.set_visible(change.message, change.visible_at, change.received);
        self.rows.touch(|| RowKey::Message(change.message));
        if change.received {
            let Some(message) = self.queue.get(change.message).map(|queued| queued.message.clone()) else {
                return;
            };
            let task = message.task;
            self.queue.took_turn(&task.tenant);
            if let Some(entry) = self.entry_mut(&task).filter(|entry| entry.is_in_run(message.run)) {
                entry.message = Some(change.message);
                self.rows.touch(|| RowKey::Task(task));
            }
        }
    }

    pub fn apply_settle(&mut self, message: MessageId) {
        let Some(queued) = self.queue.remove(message) else { return };
        if self.rows.stored_messages.contains(&message) {
            self.rows.touch(|| RowKey::Message(message));
        } else {
            self.rows.dirty.remove(&RowKey::Message(message));
        }
        let task = queued.message.task;
        if let Some(entry) = self.entry_mut(&task)
            && entry.message == Some(message)
        {
            entry.message = None;
            self.rows.touch(|| RowKey::Task(task));
        }
    }

    /// Takes an event into its entity's stream.
    pub fn apply_event(&mut self, seq: Seq, event: &Event) -> Links {
        let aside = event.event_type.as_str() == KnownType::TaskHeartbeat.as_str();
        let push = |stream: &mut Stream| stream.push(seq, event.timestamp, aside);
        match event.entity.kind.as_str() {
            "TASK" => {
                let request = tidemill_model::RequestId::trusted(event.entity.id.as_str());
                let key = TaskKey { tenant: event.tenant.clone(), request };
                // Unknown only while a log without its beginning is read; the row is carried further on.
                let Some(entry) = self.entry_mut(&key) else { return Links::default() };
                let links = push(&mut entry.stream);
                self.rows.touch(|| RowKey::Task(key));
                links
            }
            "JOB" => {
                let job = JobId::new(event.entity.id.as_str()).ok().and_then(|id| self.jobs.get_mut(&id));
                let Some(job) = job else { return Links::default() };
                let links = push(&mut job.head.stream);
                if event.event_type.as_str() == KnownType::JobCompleted.as_str() {
                    job.head.completed_at = Some(event.timestamp);
                }
                let key = RowKey::Job(event.tenant.clone(), job.head.job);
                self.rows.touch(|| key);
                links
            }
            _ => {
                let key = (event.tenant.clone(), event.entity.clone());
                self.rows.touch(|| RowKey::Entity(key.0.clone(), key.1.clone()));
                push(self.entities.entry(key).or_default())
            }
        }
    }

    fn entry_mut(&mut self, key: &TaskKey) -> Option<&mut Entry> {
        if let Some((job, task)) = key.request.parts() {
            let job = self.jobs.get_mut(&job).filter(|job| job.head.tenant == key.tenant)?;
            let index = job.index_of(task)?;
            return Some(&mut job.nodes[index as usize].entry);
        }
        self.alone.get_mut(key).map(|alone| &mut alone.entry)
    }
}

/// The one place where a task's head moves.
fn change_head(slot: &mut Option<TaskHead>, change: &TaskChangeKind) {
    if let TaskChangeKind::Dispatch = change {
        slot.get_or_insert_with(TaskHead::dispatched);
        return;
    }
    let Some(head) = slot.as_mut() else { return };
    match change {
        TaskChangeKind::Dispatch => {}
        TaskChangeKind::Acquire { fence, owner, until, at, takeover } => {
            head.fence = *fence;
            head.takeovers += u32::from(*takeover);
            head.state = TaskState::Leased(tidemill_model::Lease {
                owner: owner.clone(),
                until: *until,
                claimed_at: *at,
                heartbeats: 0,
            });
        }
        TaskChangeKind::Begin { .. } => head.begun = true,
        TaskChangeKind::Renew { until, .. } => {
            head.begun = true;
            if let TaskState::Leased(lease) = &mut head.state {
                lease.until = lease.until.max(*until);
                lease.heartbeats += 1;
            }
        }
        TaskChangeKind::Release { failed, .. } => {
            head.state = TaskState::Queued;
            if let Some(category) = failed {
                head.attempts += 1;
                head.last_error = Some(*category);
                head.begun = true;
            }
        }
        TaskChangeKind::Revoke { .. } => {
            head.takeovers += 1;
            head.state = TaskState::Queued;
        }
        TaskChangeKind::Finish { fence, outcome, attempts, error } => {
            head.fence = *fence;
            head.attempts = *attempts;
            head.last_error = error.or(head.last_error);
            head.state = TaskState::Done(*outcome);
        }
        TaskChangeKind::Reopen { run } => {
            let fence = head.fence;
            *head = TaskHead { run: *run, fence, ..TaskHead::dispatched() };
        }
    }
}

/// Rows: what goes to the store and what comes back.
impl State {
    /// The rows that changed since the last time, unless some are still on their way. A removed row is `None`.
    pub fn take_dirty(&mut self) -> Option<Vec<(RowKey, Option<Row>)>> {
        if !self.rows.in_flight.is_empty() || self.rows.dirty.is_empty() {
            return None;
        }
        self.rows.in_flight = std::mem::take(&mut self.rows.dirty);
        let keys: Vec<RowKey> = self.rows.in_flight.iter().cloned().collect();
        let rows = keys
            .into_iter()
            .map(|key| {
                let row = self.row(&key);
                if let RowKey::Message(id) = &key {
                    if row.is_some() {
                        self.rows.stored_messages.insert(*id);
                    } else {
                        self.rows.stored_messages.remove(id);
                    }
                }
                (key, row)
            })
            .collect();
        Some(rows)
    }

    pub fn dirty_len(&self) -> usize {
        self.rows.dirty.len()
    }

    /// The rows that were taken are stored: what is finished among them may leave memory.
    pub fn stored(&mut self) {
        for key in std::mem::take(&mut self.rows.in_flight) {
            self.evict(&key);
        }
    }

    /// The rows that were taken could not be stored: they count as changed again.
    pub fn not_stored(&mut self) {
        let taken = std::mem::take(&mut self.rows.in_flight);
        self.rows.dirty.extend(taken);
    }

    /// Whether a row is here or known to be nowhere else.
    pub fn is_loaded(&self, key: &RowKey) -> bool {
        match key {
            RowKey::Task(key) => self.task(key).is_some(),
            RowKey::Job(_, job) | RowKey::JobTasks(_, job, _) => self.jobs.contains_key(job),
            RowKey::Message(id) => self.queue.get(*id).is_some(),
            RowKey::Record(key) => self.records.contains_key(key),
            RowKey::Entity(tenant, entity) => self.entities.contains_key(&(tenant.clone(), entity.clone())),
        }
    }

    /// Takes a row from the store into memory.
    pub fn load(&mut self, key: RowKey, row: Row) {
        match (&key, row) {
            (RowKey::Task(task), Row::Task(TaskRow { alone: Some(alone), entry })) => {
                if entry.is_live() {
                    self.live.insert(task.clone());
                }
                self.alone.insert(task.clone(), Alone { task: alone, entry });
            }
            (RowKey::Message(id), Row::Message(queued)) => {
                self.rows.stored_messages.insert(*id);
                self.queue.insert(queued);
                return;
            }
            (RowKey::Record(record_key), Row::Record(record)) => {
                self.records.insert(record_key.clone(), Some(record));
            }
            (RowKey::Entity(tenant, entity), Row::Entity(stream)) => {
                self.entities.insert((tenant.clone(), entity.clone()), stream);
            }
            _ => return,
        }
        self.visited(key);
    }

    /// Takes a whole job from the store into memory: its head, its tasks in order, and the tasks' entries.
    pub fn load_job(
        &mut self,
        head: JobHead,
        tasks: impl IntoIterator<Item = (u32, Vec<Arc<tidemill_model::TaskSpec>>)>,
        entries: impl IntoIterator<Item = (TaskKey, Entry)>,
    ) {
        let (tenant, id) = (head.tenant.clone(), head.job);
        let mut job = Job::new(JobHead { counts: tidemill_model::JobCounts::default(), ..head });
        for (first, chunk) in tasks {
            // A chunk that was stored after the job grew also holds what came later.
            let known = job.nodes.len().saturating_sub(first as usize);
            job.grow(chunk.get(known..).unwrap_or_default());
        }
        for (key, entry) in entries {
            let Some(index) = key.request.parts().and_then(|(_, task)| job.index_of(task)) else { continue };
            if entry.is_live() {
                self.live.insert(key);
            }
            job.ready.remove(&index);
            job.nodes[index as usize].entry = entry;
            job.book(index, None);
        }
        let dispatched: Vec<u32> =
            job.ready.iter().copied().filter(|i| job.node(*i).entry.head.is_some()).collect();
        for index in dispatched {
            job.ready.remove(&index);
        }
        self.jobs.insert(id, job);
        self.visited(RowKey::Job(tenant, id));
    }

    /// Sets a row to what it was when the log's beginning was dropped.
    pub fn carry(&mut self, key: RowKey, row: Option<Row>) {
        self.rows.touch(|| key.clone());
        match (key, row) {
            (RowKey::Task(key), Some(Row::Task(TaskRow { alone, entry }))) => {
                if entry.is_live() {
                    self.live.insert(key.clone());
                } else {
                    self.live.remove(&key);
                }
                if let Some(task) = alone {
                    self.alone.insert(key, Alone { task, entry });
                } else if let Some((job, task)) = key.request.parts()
                    && let Some(job) = self.jobs.get_mut(&job)
                    && let Some(index) = job.index_of(task)
                {
                    job.place(index, entry);
                }
            }
            (RowKey::Job(_, id), Some(Row::Job(head))) => match self.jobs.get_mut(&id) {
                Some(job) => job.head = head,
                None => {
                    self.jobs.insert(id, Job::new(head));
                }
            },
            (RowKey::JobTasks(_, id, first), Some(Row::JobTasks(tasks))) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    let head = job.head.clone();
                    let known = job.nodes.len().saturating_sub(first as usize);
                    job.grow(tasks.get(known..).unwrap_or_default());
                    job.head = head;
                }
            }
            (RowKey::Message(id), row) => {
                self.queue.remove(id);
                if let Some(Row::Message(queued)) = row {
                    self.queue.insert(queued);
                }
            }
            (RowKey::Record(key), row) => {
                let record =
                    row.and_then(|row| if let Row::Record(record) = row { Some(record) } else { None });
                self.records.insert(key, record);
            }
            (RowKey::Entity(tenant, entity), Some(Row::Entity(stream))) => {
                self.entities.insert((tenant, entity), stream);
            }
            _ => {}
        }
    }

    /// One row as it stands; `None` when it is gone.
    pub fn row(&self, key: &RowKey) -> Option<Row> {
        match key {
            RowKey::Task(key) => self.task(key).map(|task| {
                let alone = match task.place {
                    Place::Alone(alone) => Some(Arc::clone(alone)),
                    Place::InJob { .. } => None,
                };
                Row::Task(TaskRow { alone, entry: task.entry.clone() })
            }),
            RowKey::Job(_, job) => self.jobs.get(job).map(|job| Row::Job(job.head.clone())),
            RowKey::JobTasks(_, job, first) => self.jobs.get(job).map(|job| {
                // Chunks begin where a job began or grew; a chunk ends where the next one begins.
                Row::JobTasks(
                    job.nodes[*first as usize..].iter().map(|node| Arc::clone(&node.spec)).collect(),
                )
            }),
            RowKey::Message(id) => self.queue.get(*id).cloned().map(Row::Message),
            RowKey::Record(key) => self.record(key).cloned().map(Row::Record),
            RowKey::Entity(tenant, entity) => {
                self.entities.get(&(tenant.clone(), entity.clone())).cloned().map(Row::Entity)
            }
        }
    }

    fn visited(&mut self, key: RowKey) {
        if !self.rows.kept {
            return;
        }
        self.rows.visitors.push_back(key);
        while self.rows.visitors.len() > VISITORS_MAX {
            if let Some(oldest) = self.rows.visitors.pop_front() {
                self.evict(&oldest);
            }
        }
    }

    /// Lets a row go if it is finished, unchanged and not on its way.
    fn evict(&mut self, key: &RowKey) {
        if self.rows.dirty.contains(key) || self.rows.in_flight.contains(key) {
            return;
        }
        match key {
            RowKey::Task(task) => {
                if self
                    .alone
                    .get(task)
                    .is_some_and(|alone| !alone.entry.is_live() && alone.entry.message.is_none())
                {
                    self.alone.remove(task);
                }
            }
            RowKey::Job(_, id) => {
                if self.jobs.get(id).is_some_and(|job| job.head.is_at_rest() && job.ready.is_empty()) {
                    self.jobs.remove(id);
                }
            }
            RowKey::Record(record) => {
                self.records.remove(record);
            }
            RowKey::Entity(tenant, entity) => {
                self.entities.remove(&(tenant.clone(), entity.clone()));
            }
            RowKey::JobTasks(..) | RowKey::Message(_) => {}
        }
    }
}
