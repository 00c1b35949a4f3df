//! The deciding side of the store: the state in memory, and the group that is being filled.
//!
//! Commands are decided one after the other on the newest applied state. What they change is applied at once and put
//! into the open group; whether the group reaches the disk is the log's matter, and nothing leaves the process before.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::command::Command;
use tidemill_engine::commit::{Commit, RecordWrite, TaskChangeKind, TaskKey};
use tidemill_engine::decision::{Circumstances, decide};
use tidemill_engine::id_source::IdSource;
use tidemill_engine::metrics::JobEvents;
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{Record, RecordKey, RecordKind};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_engine::site::Site;
use tidemill_engine::state::State;
use tidemill_engine::state::row::{Row, RowKey, task_lists};
use tidemill_model::{JobId, JobStatus, TenantId, Timestamp};

use super::commit_size::commit_bytes;
use super::control::{Control, push_controls};
use super::row_key;
use super::rows::row_store::RowStore;
use crate::log::{Entry, GROUP_BYTES_MAX, Group, Seq};

pub(crate) struct Decider {
    pub(crate) state: State,
    rows: Arc<RowStore>,
    ids: IdSource,
    policy: Policy,
    site: Site,
    /// The number the next event gets.
    next_seq: Seq,
    /// Rows that neither memory nor the store has. Known from the moment commands are loaded until they are decided: nothing
    /// is stored meanwhile.
    absent: HashSet<RowKey>,
    /// The rows of the next command are here: it is the only one, and nothing was decided since they were loaded.
    is_ready: bool,
    /// While the log is replayed: how often the rows had been rebuilt when the replay began. Rows that were rebuilt since
    /// reflect entries which the replay has yet to apply.
    pub(super) replayed_on: Option<u64>,
    /// The decider refuses a command that does not fit into a group of this many bytes.
    pub(super) group_bytes_max: usize,
}

/// Whom decisions wake once their group is on disk: callers who wait for work, for an end or for a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wakeups {
    /// Messages that may be deliverable now.
    pub(crate) messages: usize,
    /// Jobs that came to rest or in which all that is left is parked, maybe several times.
    pub(crate) rested: Vec<JobId>,
    /// Records that were written or removed, maybe several times.
    pub(crate) records: Vec<RecordKey>,
    /// What became of jobs.
    pub(crate) jobs: JobEvents,
}

impl Wakeups {
    /// Notes jobs of a commit in which nothing more happens by itself. The commit is applied.
    fn note_rested(&mut self, state: &State, commit: &Commit) {
        let is_end = |kind: &TaskChangeKind| {
            matches!(kind, TaskChangeKind::Finish { .. } | TaskChangeKind::Park { .. })
        };
        let ended = commit.tasks.iter().filter(|change| is_end(&change.kind));
        let of_tasks =
            ended.filter_map(|change| change.task.request.job_part().map(|job| (&change.task.tenant, job)));
        let cancelled = commit.records.iter().filter_map(|record| match record {
            RecordWrite::JobCancelled { tenant, job, .. } => Some((tenant, *job)),
            _ => None,
        });
        for (tenant, job) in of_tasks.chain(cancelled) {
            let is_noted = self.rested.last() == Some(&job);
            if !is_noted && state.job(tenant, job).is_some_and(|job| job.head.has_stopped()) {
                self.rested.push(job);
            }
        }
    }
}

impl Decider {
    pub(crate) fn new(rows: Arc<RowStore>, policy: Policy, site: Site, seed: u64, next_seq: Seq) -> Self {
        #[cfg_attr(not(feature = "faults"), expect(unused_mut, reason = "only faults change it here"))]
        let mut state = State::keeping_rows();
        #[cfg(feature = "faults")]
        {
            state.faults = policy.faults;
        }
        Self {
            state,
            rows,
            ids: IdSource::new(seed),
            policy,
            site,
            next_seq,
            absent: HashSet::new(),
            is_ready: false,
            replayed_on: None,
            group_bytes_max: GROUP_BYTES_MAX,
        }
    }

    /// Ids made from now on lie above this one.
    pub(crate) fn observe(&mut self, id: tidemill_model::EventId) {
        self.ids.observe(id);
    }

    pub(crate) fn set_next_seq(&mut self, next: Seq) {
        self.next_seq = next;
    }

    /// Decides a command, applies its commit and puts it into `group`.
    pub(crate) fn decide(
        &mut self,
        command: &Command,
        now: Timestamp,
        group: &mut Group,
        wakeups: &mut Wakeups,
    ) -> Result<Answer, Fault> {
        self.state.show_due_messages(now);
        if let Some(answer) = self.answer_by_head(command)? {
            return Ok(answer);
        }
        if !std::mem::take(&mut self.is_ready) {
            self.load_for(command, now)?;
        }
        let mut circumstances =
            Circumstances { now, ids: &mut self.ids, policy: &self.policy, site: &self.site };
        let (commit, reply) = match decide(&self.state, command, &mut circumstances) {
            Ok(decided) => decided,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if commit.is_empty() {
            return Ok(Ok(reply));
        }
        let size_bytes = commit_bytes(&commit);
        if size_bytes.saturating_add(group.byte_count()) > self.group_bytes_max {
            let limit_bytes = self.group_bytes_max;
            return Ok(Err(Refusal::TooLarge { field: command.large_field(), size_bytes, limit_bytes }));
        }
        wakeups.messages += commit.enqueue.iter().filter(|message| message.not_before <= now).count();
        wakeups.messages += commit.visibility.iter().filter(|change| change.visible_at <= now).count();
        let links = self.state.apply(&commit, self.next_seq);
        wakeups.note_rested(&self.state, &commit);
        wakeups.jobs.note(&commit);
        wakeups.records.extend(commit.records.iter().filter_map(|write| match write {
            RecordWrite::Put { key, .. } => Some(key.clone()),
            _ => None,
        }));
        group.make_room(size_bytes);
        push_controls(group, &commit);
        for (event, links) in commit.events.iter().zip(&links) {
            group.push_event(self.next_seq, event, links);
            self.next_seq = self.next_seq.next();
        }
        Ok(Ok(reply))
    }

    /// What a command gets that a job at rest has no part in: its head is enough to know it, without its tasks.
    fn answer_by_head(&self, command: &Command) -> Result<Option<Answer>, Fault> {
        let (tenant, job, cancelled) = match command {
            Command::Cancel(cancel) => {
                (&cancel.tenant, cancel.job, Ok(Reply::Cancelled { tasks: Vec::new() }))
            }
            Command::AddTasks(add) => (&add.tenant, add.job, Err(Refusal::JobCancelled(add.job))),
            _ => return Ok(None),
        };
        let key = RowKey::Job(tenant.clone(), job);
        if self.state.is_loaded(&key) {
            return Ok(None);
        }
        let Some(Row::Job(head)) = self.rows.get(&key)? else { return Ok(None) };
        Ok(match head.status() {
            JobStatus::Completed => Some(Err(Refusal::JobCompleted(job))),
            JobStatus::Cancelled => Some(cancelled),
            JobStatus::Running | JobStatus::Failing | JobStatus::Failed => None,
        })
    }

    /// Loads the rows that commands need, as far as they are known before the first is decided.
    pub(crate) fn load_all(&mut self, commands: &[Command], now: Timestamp) -> Result<(), Fault> {
        self.state.evict_cached_rows();
        self.absent.clear();
        self.is_ready = false;
        commands.iter().try_for_each(|command| self.load_for(command, now))?;
        // What others need may depend on the time, which moves on with the decision.
        self.is_ready = matches!(commands, [Command::Publish(_)]);
        Ok(())
    }

    /// Loads the rows a command needs. A dead letter's task is known only once the letter is here, hence twice.
    fn load_for(&mut self, command: &Command, now: Timestamp) -> Result<(), Fault> {
        if self.answer_by_head(command)?.is_some() {
            return Ok(());
        }
        for _ in 0..2 {
            let keys = command.touches(&self.state, now);
            let mut found = false;
            for key in keys {
                if self.absent.contains(&key) {
                    continue;
                }
                if self.load(&key)? {
                    found = true;
                } else if !self.state.is_loaded(&key) {
                    self.absent.insert(key);
                }
            }
            if !found {
                break;
            }
        }
        Ok(())
    }

    /// Brings a row into memory if it is not there and the store has it.
    pub(crate) fn load(&mut self, key: &RowKey) -> Result<bool, Fault> {
        if self.state.is_loaded(key) {
            return Ok(false);
        }
        if let RowKey::Job(tenant, job) | RowKey::JobTasks(tenant, job, _) = key {
            let job = self.rows.job(tenant, *job)?;
            self.check_rebuilt()?;
            let Some(job) = job else { return Ok(false) };
            self.state.load_job(job.head, job.tasks, job.entries);
            return Ok(true);
        }
        if let RowKey::Task(task) = key
            && let Some(job) = task.request.job_part()
        {
            return self.load(&RowKey::Job(task.tenant.clone(), job));
        }
        let row = self.rows.get(key)?;
        self.check_rebuilt()?;
        let Some(row) = row else { return Ok(false) };
        self.state.load(key.clone(), row);
        Ok(true)
    }

    /// Fails if a replay is under way and the rows were rebuilt since it began.
    fn check_rebuilt(&self) -> Result<(), Fault> {
        match self.replayed_on {
            Some(times) if times != self.rows.times_rebuilt() => {
                Err(Fault::Unavailable("the rows were rebuilt while the log was replayed on them".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Loads everything that is open: jobs, live tasks, messages, and records that stay in memory.
    pub(crate) fn load_open(&mut self) -> Result<(), Fault> {
        for key in self.rows.open_keys()? {
            if let RowKey::Record(record) = &key
                && matches!(record.kind, RecordKind::Execution | RecordKind::Delivery)
            {
                // Only that it is to run, and when. There may be very many.
                if let Some(Row::Record(found)) = self.rows.get(&key)? {
                    self.state.note_stored(record, &found);
                }
                continue;
            }
            self.load(&key)?;
        }
        let mut messages = Vec::new();
        self.rows.scan(&[super::row_key::MESSAGE], &mut |key, row| {
            messages.push((key, row));
            true
        })?;
        for (key, row) in messages {
            self.state.load(key, row);
        }
        Ok(())
    }

    /// Applies an entry of the log again, after a crash or for a rebuild.
    pub(crate) fn replay(&mut self, entry: &Entry<'_>) -> Result<(), Fault> {
        self.state.evict_cached_rows();
        match entry {
            Entry::Event(stored) => {
                self.state.end_carry();
                let event = &stored.event;
                let key = entity_row(event);
                self.load(&key)?;
                self.state.apply_event(stored.seq, event);
                self.next_seq = stored.seq.next();
            }
            Entry::Control(bytes) => {
                self.replay_control(Control::read(bytes)?)?;
            }
        }
        Ok(())
    }

    fn replay_control(&mut self, control: Control) -> Result<(), Fault> {
        use tidemill_engine::commit::RecordWrite;
        // The rows of a job are carried one right after the other; what comes between says that a crash did.
        if !matches!(control, Control::Carry(..)) {
            self.state.end_carry();
        }
        match control {
            Control::Record(write) => {
                if let RecordWrite::AloneSpec { task, .. } = &write {
                    self.load(&RowKey::Task(task.clone()))?;
                }
                if let RecordWrite::JobTasks { tenant, job, .. }
                | RecordWrite::JobSpecs { tenant, job, .. }
                | RecordWrite::JobCancelled { tenant, job, .. }
                | RecordWrite::JobAllowance { tenant, job, .. }
                | RecordWrite::JobHops { tenant, job, .. }
                | RecordWrite::JobCallback { tenant, job, .. } = &write
                {
                    self.load(&RowKey::Job(tenant.clone(), *job))?;
                }
                self.state.apply_record(&write);
            }
            Control::Task(change) => {
                self.load(&RowKey::Task(change.task.clone()))?;
                self.state.apply_task(&change);
            }
            Control::Enqueue(message) => {
                self.load(&RowKey::Task(message.task.clone()))?;
                self.state.apply_enqueue(&message);
            }
            Control::Visibility(change) => {
                self.load_task_of(change.message)?;
                self.state.apply_visibility(&change);
            }
            Control::Settle(message) => {
                self.load_task_of(message)?;
                self.state.apply_settle(message);
            }
            Control::Carry(key, row) => self.state.carry(key, row),
        }
        Ok(())
    }

    fn load_task_of(&mut self, message: tidemill_engine::commit::MessageId) -> Result<(), Fault> {
        if let Some(queued) = self.state.queue().get(message) {
            let key = RowKey::Task(queued.message.task.clone());
            self.load(&key)?;
        }
        Ok(())
    }

    /// The keys of all rows of a job, the job first.
    pub(crate) fn job_keys(&self, tenant: &TenantId, job: JobId) -> Result<Vec<RowKey>, Fault> {
        let mut keys = vec![RowKey::Job(tenant.clone(), job)];
        if let Some(found) = self.state.job(tenant, job) {
            let lists = task_lists(0, found.nodes.len());
            keys.extend(lists.map(|first| RowKey::JobTasks(tenant.clone(), job, first)));
            let dispatched = (0u32..).zip(&found.nodes).filter(|(_, node)| node.entry.head.is_some());
            keys.extend(dispatched.map(|(index, _)| {
                RowKey::Task(TaskKey { tenant: tenant.clone(), request: found.request_of(index) })
            }));
        } else if let Some(rows) = self.rows.job(tenant, job)? {
            keys.extend(rows.tasks.iter().map(|(first, _)| RowKey::JobTasks(tenant.clone(), job, *first)));
            keys.extend(rows.entries.into_iter().map(|(key, _)| RowKey::Task(key)));
        }
        Ok(keys)
    }

    /// The stored records of a kind, of all tenants.
    pub(crate) fn stored_records(&self, kind: RecordKind) -> Result<BTreeMap<RecordKey, Record>, Fault> {
        let mut found = BTreeMap::new();
        self.rows.scan(&row_key::records_of_all(kind), &mut |key, row| {
            if let (RowKey::Record(key), Row::Record(record)) = (key, row) {
                found.insert(key, record);
            }
            true
        })?;
        Ok(found)
    }

    /// A row as it stands, in memory or stored.
    pub(crate) fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        if self.state.is_loaded(key) { Ok(self.state.row(key)) } else { self.rows.get(key) }
    }
}

/// The row that keeps the stream of an event's entity.
pub(crate) fn entity_row(event: &tidemill_model::Event) -> RowKey {
    RowKey::of_entity(&event.tenant, &event.entity)
}
