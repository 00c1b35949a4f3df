//! Which rows changed, which are on their way to the store, and which may leave memory.

use std::collections::VecDeque;
use std::sync::Arc;

use tidemill_model::{JobId, TenantId};

use crate::kernel::commit::{MessageId, TaskKey};
use crate::kernel::state::carried_job::CarriedJob;
use crate::kernel::state::job::{Job, JobHead, KeptTask};
use crate::kernel::state::row::{Row, RowKey, StoredTask, list_end, task_lists};
use crate::kernel::state::{Alone, Set, State, TaskPlace};

/// How many rows that were only looked at stay in memory. A job counts with all its tasks.
const VISITORS_MAX: usize = 4_096;

/// Which rows changed and which are on their way to the store.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptRows {
    /// Whether anybody will take them; an in-memory backend does not.
    kept: bool,
    pub(super) dirty: Set<RowKey>,
    in_flight: Set<RowKey>,
    /// Rows that were loaded, the oldest first, each with what it counts.
    visitors: VecDeque<(RowKey, usize)>,
    /// What all of them count.
    visiting: usize,
    /// Messages that the store has seen. The others need no trace when they are settled.
    pub(super) stored_messages: Set<MessageId>,
}

impl KeptRows {
    /// Rows that somebody will take.
    pub(super) fn kept() -> Self {
        Self { kept: true, ..Self::default() }
    }

    pub(super) fn touch(&mut self, key: impl FnOnce() -> RowKey) {
        if self.kept {
            self.dirty.insert(key());
        }
    }

    /// The rows that list a job's tasks from the index `from` on, up to `count`.
    pub(super) fn touch_lists(&mut self, tenant: &TenantId, job: JobId, from: usize, count: usize) {
        for first in task_lists(from, count) {
            self.touch(|| RowKey::JobTasks(tenant.clone(), job, first));
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

    /// Notes messages that the store has, no matter which process put them there: those that are gone here are
    /// removed there.
    pub fn found_stored(&mut self, messages: &[MessageId]) {
        for id in messages {
            self.rows.stored_messages.insert(*id);
            if self.queue.get(*id).is_none() {
                self.rows.touch(|| RowKey::Message(*id));
            }
        }
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
            // All messages are here: one that is not is gone, whatever a store still keeps of it.
            RowKey::Message(_) => true,
            RowKey::Record(key) => self.records.contains_key(key),
            RowKey::Entity(tenant, entity) => self.entities.contains_key(&(tenant.clone(), entity.clone())),
        }
    }

    /// Takes a row from the store into memory.
    pub fn load(&mut self, key: RowKey, row: Row) {
        match (&key, row) {
            (RowKey::Task(task), Row::Task(StoredTask { alone: Some(alone), entry, .. })) => {
                if entry.is_live() {
                    self.live.insert(task.clone());
                }
                self.suspicion.note(task, entry.head.as_ref());
                let load = self.load_of_alone(task);
                self.alone.insert(task.clone(), Alone { task: alone, entry });
                self.book_alone_load(task, load);
            }
            (RowKey::Message(id), Row::Message(queued)) => {
                self.rows.stored_messages.insert(*id);
                self.queue.insert(queued);
                return;
            }
            (RowKey::Record(record_key), Row::Record(record)) => {
                self.pending.note(record_key, Some(&record));
                self.deliveries.note(record_key, Some(&record));
                self.triage.note(record_key, Some(&record));
                self.records.insert(record_key.clone(), Some(record));
            }
            (RowKey::Entity(tenant, entity), Row::Entity(stream)) => {
                self.entities.insert((tenant.clone(), entity.clone()), stream);
            }
            _ => return,
        }
        self.visited(key, 1);
    }

    /// Takes a whole job from the store into memory: its head, its tasks in order, and the tasks' entries.
    pub fn load_job(
        &mut self,
        head: JobHead,
        tasks: impl IntoIterator<Item = (u32, Vec<Arc<tidemill_model::TaskSpec>>)>,
        entries: impl IntoIterator<Item = (TaskKey, KeptTask)>,
    ) {
        let (tenant, id) = (head.tenant.clone(), head.job);
        let job = self.assemble(head, tasks, entries);
        let count = 1 + job.nodes.len();
        let load = self.load_of_job(id);
        self.jobs.insert(id, job);
        self.book_job_load(&tenant, id, load);
        self.visited(RowKey::Job(tenant, id), count);
    }

    /// Puts a job together from its parts and notes which of its tasks are live.
    fn assemble(
        &mut self,
        head: JobHead,
        tasks: impl IntoIterator<Item = (u32, Vec<Arc<tidemill_model::TaskSpec>>)>,
        entries: impl IntoIterator<Item = (TaskKey, KeptTask)>,
    ) -> Job {
        let mut job = Job::new(JobHead { counts: tidemill_model::JobCounts::default(), ..head });
        for (first, chunk) in tasks {
            // A chunk that was stored after the job grew also holds what came later.
            let known = job.nodes.len().saturating_sub(first as usize);
            job.grow(chunk.get(known..).unwrap_or_default());
        }
        for (key, entry) in entries {
            let Some(index) = key.request.parts().and_then(|(_, task)| job.index_of(task)) else { continue };
            self.suspicion.note(&key, entry.head.as_ref());
            if entry.is_live() {
                self.live.insert(key);
            } else {
                self.live.remove(&key);
            }
            job.ready.remove(&index);
            job.told_at = job.told_at.max(entry.stream.last_timestamp());
            job.nodes[index as usize].entry = entry;
            job.book(index, None);
        }
        let dispatched: Vec<u32> =
            job.ready.iter().copied().filter(|i| job.node(*i).entry.head.is_some()).collect();
        for index in dispatched {
            job.ready.remove(&index);
        }
        job
    }

    /// Whether the rows of a job are being carried and more of them are to come.
    pub fn is_carrying(&self) -> bool {
        self.carried.is_some()
    }

    /// Forgets the rows of a job that was not carried whole.
    pub fn end_carry(&mut self) {
        self.carried = None;
    }

    /// Sets a row to what it was when the log's beginning was dropped. The rows of a job count once all are here.
    pub fn carry(&mut self, key: RowKey, row: Option<Row>) {
        match (&key, row) {
            (RowKey::Job(..), Some(Row::Job(head))) => self.carried = Some(CarriedJob::new(head)),
            (RowKey::JobTasks(_, job, first), Some(Row::JobTasks(tasks))) => {
                if let Some(carried) = self.carried.as_mut().filter(|carried| carried.is_of(*job)) {
                    carried.add_tasks(*first, tasks);
                }
            }
            (RowKey::Task(task), Some(Row::Task(StoredTask { alone: None, entry, .. }))) => {
                let job = task.request.job_part();
                if let Some(carried) =
                    self.carried.as_mut().filter(|carried| job.is_some_and(|job| carried.is_of(job)))
                {
                    carried.add_entry(task.clone(), entry);
                }
            }
            (_, row) => return self.carry_row(key, row),
        }
        if let Some(whole) = self.carried.take_if(|carried| carried.is_whole()) {
            self.take_carried(whole);
        }
    }

    fn take_carried(&mut self, carried: CarriedJob) {
        let CarriedJob { head, lists, entries, .. } = carried;
        let (tenant, id) = (head.tenant.clone(), head.job);
        for (key, _) in &entries {
            self.rows.touch(|| RowKey::Task(key.clone()));
        }
        let job = self.assemble(head, lists, entries);
        self.rows.touch_lists(&tenant, id, 0, job.nodes.len());
        let load = self.load_of_job(id);
        self.jobs.insert(id, job);
        self.book_job_load(&tenant, id, load);
        self.rows.touch(|| RowKey::Job(tenant, id));
    }

    fn carry_row(&mut self, key: RowKey, row: Option<Row>) {
        self.rows.touch(|| key.clone());
        match (key, row) {
            (RowKey::Task(key), Some(Row::Task(StoredTask { alone, entry, .. }))) => {
                if entry.is_live() {
                    self.live.insert(key.clone());
                } else {
                    self.live.remove(&key);
                }
                self.suspicion.note(&key, entry.head.as_ref());
                if let Some(task) = alone {
                    let load = self.load_of_alone(&key);
                    self.alone.insert(key.clone(), Alone { task, entry });
                    self.book_alone_load(&key, load);
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
                self.pending.note(&key, record.as_ref());
                self.deliveries.note(&key, record.as_ref());
                self.triage.note(&key, record.as_ref());
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
                let (alone, index) = match task.place {
                    TaskPlace::Alone(alone) => (Some(Arc::clone(alone)), None),
                    TaskPlace::InJob { index, .. } => (None, Some(index)),
                };
                Row::Task(StoredTask { alone, entry: task.entry.clone(), index })
            }),
            RowKey::Job(tenant, job) => self.job(tenant, *job).map(|job| Row::Job(job.head.clone())),
            RowKey::JobTasks(tenant, job, first) => self.job(tenant, *job).map(|job| {
                let first = *first as usize;
                let nodes = job.nodes.get(first..list_end(first, job.nodes.len())).unwrap_or_default();
                Row::JobTasks(nodes.iter().map(|node| Arc::clone(&node.spec)).collect())
            }),
            RowKey::Message(id) => self.queue.get(*id).cloned().map(Row::Message),
            RowKey::Record(key) => self.record(key).cloned().map(Row::Record),
            RowKey::Entity(tenant, entity) => {
                self.entities.get(&(tenant.clone(), entity.clone())).cloned().map(Row::Entity)
            }
        }
    }

    fn visited(&mut self, key: RowKey, count: usize) {
        if self.rows.kept {
            self.rows.visitors.push_back((key, count));
            self.rows.visiting += count;
        }
    }

    /// Evicts rows that were only looked at, if they are many. Not between the loading of a row and its use.
    ///
    /// The newest one stays, however large: it may be asked for again and again.
    pub fn evict_cached_rows(&mut self) {
        while self.rows.visiting > VISITORS_MAX && self.rows.visitors.len() > 1 {
            if let Some((oldest, count)) = self.rows.visitors.pop_front() {
                self.rows.visiting -= count;
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
                // One that is gone needs no memory, whatever its kind.
                let is_gone = self.records.get(record).is_some_and(Option::is_none);
                if is_gone || !record.kind.stays_in_memory() {
                    self.records.remove(record);
                }
            }
            RowKey::Entity(tenant, entity) => {
                self.entities.remove(&(tenant.clone(), entity.clone()));
            }
            RowKey::JobTasks(..) | RowKey::Message(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::{AppName, Json, RequestId, TaskId, TaskName, TaskOptions, TaskSpec, Timestamp};

    use super::*;
    use crate::kernel::commit::{NewJob, RecordWrite, TaskChange, TaskChangeKind};

    fn specs(range: std::ops::Range<usize>) -> Vec<Arc<TaskSpec>> {
        range
            .map(|index| {
                Arc::new(TaskSpec {
                    task_id: TaskId::new(format!("t{index}")).unwrap(),
                    name: TaskName::new("n").unwrap(),
                    depends_on: Vec::new(),
                    input: Json::empty_object(),
                    options: TaskOptions::default(),
                })
            })
            .collect()
    }

    #[test]
    fn a_job_of_any_size_comes_back_from_its_rows() {
        for (begun, added) in [(1, 0), (63, 1), (64, 0), (64, 1), (65, 63), (70, 100), (500, 3)] {
            let (tenant, job) = (TenantId::new("t").unwrap(), JobId::from_u128(7));
            let mut state = State::keeping_rows();
            state.apply_record(&RecordWrite::Job(Arc::new(NewJob {
                tenant: tenant.clone(),
                app: AppName::new("a").unwrap(),
                job,
                request: RequestId::new("r").unwrap(),
                name: None,
                created_at: Timestamp::MIN,
                tasks: specs(0..begun),
            })));
            let mut stored = std::collections::BTreeMap::new();
            let mut flush = |state: &mut State| {
                stored.extend(state.take_dirty().into_iter().flatten());
                state.stored();
            };
            flush(&mut state);
            let tasks = Arc::new(specs(begun..begun + added));
            state.apply_record(&RecordWrite::JobTasks { tenant: tenant.clone(), job, tasks });
            flush(&mut state);

            let Some(Some(Row::Job(head))) = stored.remove(&RowKey::Job(tenant.clone(), job)) else {
                panic!()
            };
            let lists = stored.into_iter().filter_map(|(key, row)| match (key, row) {
                (RowKey::JobTasks(_, _, first), Some(Row::JobTasks(tasks))) => Some((first, tasks)),
                _ => None,
            });
            let mut again = State::default();
            again.load_job(head, lists, []);
            let found = again.job(&tenant, job).unwrap();
            let ids: Vec<_> = found.nodes.iter().map(|node| node.spec.task_id.to_string()).collect();
            let expected: Vec<_> = (0..begun + added).map(|index| format!("t{index}")).collect();
            assert_eq!(ids, expected, "{begun} and {added}");
        }
    }

    #[test]
    fn a_job_that_was_carried_in_part_stays_as_it_was() {
        let (tenant, job) = (TenantId::new("t").unwrap(), JobId::from_u128(7));
        let new = RecordWrite::Job(Arc::new(NewJob {
            tenant: tenant.clone(),
            app: AppName::new("a").unwrap(),
            job,
            request: RequestId::new("r").unwrap(),
            name: None,
            created_at: Timestamp::MIN,
            tasks: specs(0..100),
        }));
        let mut state = State::keeping_rows();
        state.apply_record(&new);
        for index in 0..30 {
            let task = TaskKey {
                tenant: tenant.clone(),
                request: job.request_id(&TaskId::new(format!("t{index}")).unwrap()),
            };
            state.apply_task(&TaskChange { task, kind: TaskChangeKind::Dispatch });
        }
        let rows = |state: &State| {
            let mut keys = vec![RowKey::Job(tenant.clone(), job)];
            keys.extend(
                task_lists(0, state.jobs[&job].nodes.len())
                    .map(|first| RowKey::JobTasks(tenant.clone(), job, first)),
            );
            let dispatched = state.live.iter().cloned().map(RowKey::Task);
            keys.extend(dispatched);
            keys.into_iter().map(|key| (key.clone(), state.row(&key))).collect::<Vec<_>>()
        };
        let first = rows(&state);
        let added = RecordWrite::JobTasks { tenant: tenant.clone(), job, tasks: Arc::new(specs(100..170)) };
        for whole in [0, 1, 2, 3, 20, first.len() - 1] {
            // A log whose beginning is gone: a carry that a crash cut short, what happened then, and a carry that was
            // finished.
            let mut again = State::keeping_rows();
            for (key, row) in &first[..whole] {
                again.carry(key.clone(), row.clone());
            }
            assert!(again.job(&tenant, job).is_none(), "{whole} rows are not the job");
            again.apply_record(&added);
            let mut grown = State::keeping_rows();
            grown.carry(first[0].0.clone(), first[0].1.clone());
            for (key, row) in &first[1..] {
                grown.carry(key.clone(), row.clone());
            }
            grown.apply_record(&added);
            for (key, row) in rows(&grown) {
                again.carry(key, row);
            }
            assert!(!again.is_carrying());
            assert_eq!(rows(&again), rows(&grown), "after {whole} rows");
            assert_eq!(again.job(&tenant, job).unwrap().nodes.len(), 170);
        }
        // With the beginning still there nothing is lost either.
        for (key, row) in &first[..2] {
            state.carry(key.clone(), row.clone());
        }
        assert_eq!(rows(&state), first);
    }

    #[test]
    fn jobs_that_were_looked_at_count_with_their_tasks() {
        let tenant = TenantId::new("t").unwrap();
        let mut state = State::keeping_rows();
        let head = |number: u128| {
            let mut job = Job::new(JobHead {
                tenant: tenant.clone(),
                app: AppName::new("a").unwrap(),
                job: JobId::from_u128(number),
                request: RequestId::new("r").unwrap(),
                name: None,
                created_at: Timestamp::MIN,
                completed_at: None,
                cancelled: true,
                counts: tidemill_model::JobCounts::default(),
                stream: crate::kernel::state::stream::Stream::default(),
                version: 1,
                allowance: None,
                callback: None,
                hops: 0,
            });
            job.head.counts = tidemill_model::JobCounts::default();
            job.head
        };
        // A task that waits for one that is not there: the job is at rest, as after a cancel.
        let waiting = |count: usize| {
            let tasks = specs(0..count).into_iter().map(|spec| {
                Arc::new(TaskSpec { depends_on: vec![TaskId::new("gone").unwrap()], ..(*spec).clone() })
            });
            tasks.collect::<Vec<_>>()
        };
        for number in 0..20 {
            state.evict_cached_rows();
            state.load_job(head(number), [(0, waiting(VISITORS_MAX / 2))], []);
            assert!(state.jobs.contains_key(&JobId::from_u128(number)), "it is there to be used");
        }
        state.evict_cached_rows();
        assert_eq!(state.jobs.len(), 1, "the others have left");
        state.load_job(head(99), [(0, waiting(10 * VISITORS_MAX))], []);
        state.evict_cached_rows();
        assert_eq!(state.jobs.len(), 1, "the newest stays, however large");
    }
}
