//! The deciding core: the engine's state, folded from rows and log, and how far it got.
//!
//! Between two calls it says what the log says up to item `end`. While a group is decided it may run ahead; if the group
//! is not committed then, the state is made anew.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::codec::control::Control;
use tidemill_engine::command::Command;
use tidemill_engine::commit::{Commit, RecordWrite, TaskKey, Visibility};
use tidemill_engine::decision::{Circumstances, decide};
use tidemill_engine::id_source::IdSource;
use tidemill_engine::policy::Policy;
use tidemill_engine::record::RecordKey;
use tidemill_engine::reply::Refusal;
use tidemill_engine::site::Site;
use tidemill_engine::state::State;
use tidemill_engine::state::row::{JobRows, RowKey, is_open};
use tidemill_engine::state::trail::Seq;
use tidemill_model::{Event, EventId, JobId, TenantId, Timestamp};

use crate::bus::outbox::Sending;
use crate::events::recent_events::RecentEvents;
use crate::fault::damaged;
use crate::log::commit_log::{CommitLog, LogItem};
use crate::log::group::{EVENTS_MAX, Entry, Group, first_seq, read_group};
use crate::rows::checkpoint::Flush;
use crate::rows::row_store::{ROWS_AT_ONCE, RowStore};

/// A group that has this part of what it may have takes in no further calls: what others asked for is put soon, and leaves
/// room for a large one.
const GOOD_PART: usize = 16;

pub(crate) struct Core {
    pub(crate) state: State,
    pub(crate) recent: RecentEvents,
    pub(super) rows: RowStore,
    ids: IdSource,
    policy: Policy,
    site: Site,
    /// The core refuses a command that does not fit into a group of this many bytes.
    group_bytes_max: usize,
    /// The number of the newest item of the log that is in the state.
    pub(crate) end: u64,
    /// The number of the newest event.
    pub(crate) newest: u64,
    /// Up to here the listener knows the records that other processes wrote.
    pub(super) told: u64,
    last_id: u128,
    /// The rows that must be in memory when the store is opened, as of the last flush.
    pub(super) open: BTreeSet<RowKey>,
    /// Whether the state is what the log says.
    pub(crate) is_sound: bool,
    /// The state before it ran ahead, to go back to if the group is not committed.
    pub(super) before: Option<Box<State>>,
    /// Gets the records that other processes wrote.
    pub(crate) record_listener: Arc<RecordListener>,
    /// How many bytes of the log are not in a flush.
    pub(crate) unflushed: usize,
}

type Listener = Box<dyn Fn(&RecordKey) + Send + Sync>;

/// The listener for records that other processes wrote, once there is one.
#[derive(Default)]
pub(crate) struct RecordListener(OnceLock<Listener>);

impl RecordListener {
    pub(crate) fn listen(&self, listener: Listener) {
        // There is one engine for each of us.
        let _ = self.0.set(listener);
    }

    pub(super) fn notify(&self, key: &RecordKey) {
        if let Some(listener) = self.0.get() {
            listener(key);
        }
    }
}

/// Why the state cannot go on from where it is.
pub(crate) enum Stuck {
    Fault(Fault),
    /// A row is newer than the state.
    Behind,
}

impl From<Fault> for Stuck {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What a group of calls comes to.
pub(crate) struct Decided {
    /// For each call, an answer for each of its commands. There may be fewer than calls: the others did not fit.
    pub(crate) answers: Vec<Vec<Answer>>,
    pub(crate) group: Group,
    commits: Vec<Commit>,
    /// How many of the commits are in the state.
    applied: usize,
}

impl Decided {
    /// Whether the state has run ahead of the log.
    pub(crate) fn is_ahead(&self) -> bool {
        self.applied > 0
    }
}

impl Core {
    pub(crate) fn new(rows: RowStore, policy: Policy, site: Site, seed: u64, group_bytes_max: usize) -> Self {
        Self {
            state: State::keeping_rows(),
            recent: RecentEvents::default(),
            rows,
            ids: IdSource::new(seed),
            policy,
            site,
            group_bytes_max,
            end: 0,
            newest: 0,
            told: 0,
            last_id: 0,
            open: BTreeSet::new(),
            is_sound: false,
            before: None,
            record_listener: Arc::default(),
            unflushed: 0,
        }
    }

    pub(crate) fn read_events(item: &LogItem) -> Result<Sending, Fault> {
        let mut sending = Sending::new(item.number);
        let mut events = Vec::new();
        let Some(group) = &item.group else { return Ok(sending) };
        for entry in read_group(item.number, group)? {
            match entry {
                Entry::Event(seq, event) => events.push((seq.0, event)),
                Entry::Control(Control::Enqueue(message)) => sending.enqueue.push(message),
                Entry::Control(Control::Visibility(change)) => sending.moved.push(change.message),
                Entry::Control(Control::Settle(message)) => sending.moved.push(message),
                Entry::Control(_) => {}
            }
        }
        sending.events = Arc::new(events);
        Ok(sending)
    }

    /// Takes in what the log has beyond the state.
    pub(crate) async fn catch_up(
        &mut self,
        log: &CommitLog,
        each: &mut (dyn FnMut(Sending) + Send),
    ) -> Result<(), Stuck> {
        loop {
            let items = log.from(self.end + 1).await?;
            let is_last = items.len() <= 1;
            for item in &items {
                self.take_in(item, each).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Takes in the item that another process put first, and those right behind it.
    pub(crate) async fn catch_up_with(
        &mut self,
        log: &CommitLog,
        theirs: &LogItem,
        each: &mut (dyn FnMut(Sending) + Send),
    ) -> Result<(), Stuck> {
        self.take_in(theirs, each).await?;
        for item in log.behind(theirs).await? {
            self.take_in(&item, each).await?;
        }
        Ok(())
    }

    async fn take_in(&mut self, item: &LogItem, each: &mut (dyn FnMut(Sending) + Send)) -> Result<(), Stuck> {
        if item.group.is_none() {
            return Err(Stuck::Behind);
        }
        let sending = Self::read_events(item)?;
        // A fault in the middle leaves a state that is neither here nor there.
        self.is_sound = false;
        self.replay(item).await?;
        self.is_sound = true;
        (self.end, self.told) = (item.number, item.number);
        self.unflushed += item.group.as_ref().map_or(0, Vec::len);
        self.recent.push(item.number, Arc::clone(&sending.events));
        if let Some((number, event)) = sending.events.last() {
            self.newest = *number;
            self.note_id(event.id.as_u128());
        }
        each(sending);
        Ok(())
    }

    pub(super) fn note_id(&mut self, id: u128) {
        if id > 0 {
            self.last_id = self.last_id.max(id);
            self.ids.observe(EventId::from_u128(id));
        }
    }

    async fn replay(&mut self, item: &LogItem) -> Result<(), Stuck> {
        self.state.evict_cached_rows();
        let Some(group) = &item.group else { return Err(Stuck::Behind) };
        let entries = read_group(item.number, group)?;
        // What it changes is brought into memory first, all at once. What the table does not have is new.
        let mut wanted: BTreeSet<_> = entries.iter().filter_map(|entry| self.row_of(entry)).collect();
        // What begins here has no row that counts. There may be one already, of a later moment.
        for key in entries.iter().filter_map(row_begun) {
            wanted.remove(&key);
        }
        let wanted: Vec<_> = wanted.into_iter().filter(|key| !self.state.is_loaded(key)).collect();
        self.load_many(&wanted).await?;
        for entry in entries {
            match entry {
                Entry::Event(seq, event) => drop(self.state.apply_event(seq, &event)),
                Entry::Control(control) => self.replay_control(control)?,
            }
        }
        Ok(())
    }

    /// The row that must be in memory before an entry of the log is applied.
    fn row_of(&self, entry: &Entry) -> Option<RowKey> {
        let key = match entry {
            Entry::Event(_, event) => RowKey::of_entity(&event.tenant, &event.entity),
            Entry::Control(Control::Record(
                RecordWrite::JobTasks { tenant, job, .. }
                | RecordWrite::JobSpecs { tenant, job, .. }
                | RecordWrite::JobCancelled { tenant, job, .. }
                | RecordWrite::JobAllowance { tenant, job, .. }
                | RecordWrite::JobHops { tenant, job, .. }
                | RecordWrite::JobCallback { tenant, job, .. },
            )) => RowKey::Job(tenant.clone(), *job),
            Entry::Control(Control::Record(RecordWrite::AloneSpec { task, .. })) => {
                RowKey::Task(task.clone())
            }
            Entry::Control(Control::Task(change)) => RowKey::Task(change.task.clone()),
            Entry::Control(Control::Enqueue(message)) => RowKey::Task(message.task.clone()),
            Entry::Control(Control::Visibility(Visibility { message, .. }) | Control::Settle(message)) => {
                RowKey::Task(self.state.queue().get(*message)?.message.task.clone())
            }
            Entry::Control(Control::Record(_) | Control::Carry(..)) => return None,
        };
        Some(with_job(key))
    }

    fn replay_control(&mut self, control: Control) -> Result<(), Stuck> {
        match control {
            Control::Record(write) => {
                if let RecordWrite::Put { key, .. } = &write {
                    self.record_listener.notify(key);
                }
                self.state.apply_record(&write);
            }
            Control::Task(change) => self.state.apply_task(&change),
            Control::Enqueue(message) => self.state.apply_enqueue(&message),
            Control::Visibility(change) => self.state.apply_visibility(&change),
            Control::Settle(message) => self.state.apply_settle(message),
            Control::Carry(..) => {
                return Err(damaged("the log carries rows, which it never does here").into());
            }
        }
        Ok(())
    }

    /// Whether the state says all that is known of a row: it, or the job that it is loaded with, is in memory.
    pub(crate) fn is_here(&self, key: &RowKey) -> bool {
        self.state.is_loaded(&with_job(key.clone()))
    }

    /// Refuses a row that is newer than the state: what it says has happened in part already.
    pub(super) fn check_at(&self, at: u64) -> Result<(), Stuck> {
        if at > self.end { Err(Stuck::Behind) } else { Ok(()) }
    }

    /// Brings a row into memory if it is not there and the table has it. Says whether it did.
    async fn load(&mut self, key: &RowKey) -> Result<bool, Stuck> {
        if self.state.is_loaded(key) {
            return Ok(false);
        }
        if let Some((tenant, job)) = job_of(key) {
            if self.state.is_loaded(&RowKey::Job(tenant.clone(), job)) {
                return Ok(false);
            }
            let Some(job) = self.rows.job(tenant, job).await? else { return Ok(false) };
            self.check_at(job.at)?;
            let JobRows { head, tasks, entries } = job.rows;
            self.state.load_job(head, tasks, entries);
            return Ok(true);
        }
        let Some(found) = self.rows.get(key).await? else { return Ok(false) };
        self.check_at(found.at)?;
        let Some(row) = found.row else { return Ok(false) };
        self.state.load(key.clone(), row);
        Ok(true)
    }

    /// Loads the rows that commands need. Some are known only once others are here, hence twice.
    async fn load_for(
        &mut self,
        commands: &[&Command],
        now: Timestamp,
        absent: &mut HashSet<RowKey>,
    ) -> Result<(), Stuck> {
        for _ in 0..2 {
            let wanted = self.touched(commands, now, absent);
            let has_found = self.load_many(&wanted).await?;
            absent.extend(wanted.into_iter().filter(|key| !self.state.is_loaded(key)));
            if !has_found {
                break;
            }
        }
        Ok(())
    }

    /// The rows that commands need and that may be in the table, as far as they are known.
    fn touched(&self, commands: &[&Command], now: Timestamp, absent: &HashSet<RowKey>) -> Vec<RowKey> {
        let mut wanted = BTreeSet::new();
        for command in commands {
            for key in command.touches(&self.state, now) {
                let key = with_job(key);
                if !absent.contains(&key) && !self.state.is_loaded(&key) {
                    wanted.insert(key);
                }
            }
        }
        wanted.into_iter().collect()
    }

    /// Brings rows into memory that are not there, together. Says whether the table had some.
    async fn load_many(&mut self, keys: &[RowKey]) -> Result<bool, Stuck> {
        if let [key] = keys {
            return self.load(key).await;
        }
        let (mut jobs, mut alone) = (Vec::new(), Vec::new());
        for key in keys {
            match job_of(key) {
                Some((tenant, job)) => jobs.push((tenant.clone(), job)),
                None => alone.push(key.clone()),
            }
        }
        let mut has_found = self.load_jobs(jobs).await?;
        for some in alone.chunks(ROWS_AT_ONCE) {
            for (key, found) in self.rows.get_many(some).await? {
                self.check_at(found.at)?;
                if let Some(row) = found.row {
                    self.state.load(key, row);
                    has_found = true;
                }
            }
        }
        Ok(has_found)
    }

    /// Decides the calls one after the other, as the group that follows the log's end, until it is full.
    ///
    /// The last commit is not applied: most groups have one, and if another process was faster nothing has to be undone.
    /// When there are others (`is_contended`), a copy of the state is kept from before the first one that is: memory for
    /// a moment, instead of reading everything again.
    pub(crate) async fn decide<'c>(
        &mut self,
        calls: impl Iterator<Item = &'c [Command]>,
        now: Timestamp,
        is_contended: bool,
    ) -> Result<Decided, Stuck> {
        self.state.evict_cached_rows();
        self.state.show_due_messages(now);
        let mut decided =
            Decided { answers: Vec::new(), group: Group::default(), commits: Vec::new(), applied: 0 };
        let mut absent = HashSet::new();
        let calls: Vec<&[Command]> = calls.collect();
        // What all of them need is read together.
        let commands: Vec<&Command> = calls.iter().copied().flatten().collect();
        self.load_for(&commands, now, &mut absent).await?;
        'calls: for commands in calls {
            if decided.group.byte_count() > self.group_bytes_max / GOOD_PART
                || decided.group.event_count() > EVENTS_MAX / GOOD_PART
            {
                break;
            }
            let mut answers = Vec::with_capacity(commands.len());
            for command in commands {
                if is_contended && self.before.is_none() && !decided.commits.is_empty() {
                    self.before = Some(Box::new(self.state.clone()));
                }
                self.apply_decided(&mut decided);
                self.is_sound = !decided.is_ahead();
                // The commands before it may have made others known.
                if decided.is_ahead() {
                    self.load_for(&[command], now, &mut absent).await?;
                }
                let answer = self.decide_one(command, now, &mut decided);
                let is_too_large = matches!(&answer, Err(Refusal::TooLarge { limit_bytes, .. }) if *limit_bytes == self.group_bytes_max);
                if is_too_large && answers.is_empty() && !decided.group.is_empty() {
                    // Alone it may fit.
                    break 'calls;
                }
                answers.push(answer);
            }
            decided.answers.push(answers);
        }
        self.is_sound = !decided.is_ahead();
        Ok(decided)
    }

    fn decide_one(&mut self, command: &Command, now: Timestamp, decided: &mut Decided) -> Answer {
        let mut circumstances =
            Circumstances { now, ids: &mut self.ids, policy: &self.policy, site: &self.site };
        let (commit, reply) = decide(&self.state, command, &mut circumstances)?;
        if commit.is_empty() {
            return Ok(reply);
        }
        let (bytes, events) = (decided.group.byte_count(), decided.group.event_count());
        decided.group.push(&commit);
        if decided.group.byte_count() > self.group_bytes_max || decided.group.event_count() >= EVENTS_MAX {
            let size_bytes = decided.group.byte_count() - bytes;
            decided.group.cut(bytes, events);
            return Err(Refusal::TooLarge { field: "tasks", size_bytes, limit_bytes: self.group_bytes_max });
        }
        decided.commits.push(commit);
        Ok(reply)
    }

    /// Applies what was decided, so that the next command sees it.
    fn apply_decided(&mut self, decided: &mut Decided) {
        let before: usize = decided.commits[..decided.applied].iter().map(|commit| commit.events.len()).sum();
        let mut seq = Seq(first_seq(self.end + 1).0 + before as u64);
        for commit in &decided.commits[decided.applied..] {
            self.state.apply(commit, seq);
            seq = Seq(seq.0 + commit.events.len() as u64);
        }
        decided.applied = decided.commits.len();
    }

    /// What was decided is not in the log, or nobody knows: goes back to what the log said before, if that was kept.
    pub(crate) fn go_back(&mut self) {
        if let Some(before) = self.before.take() {
            self.state = *before;
            self.is_sound = true;
        }
    }

    /// The group is in the log: makes all of it true and tells what is to be sent.
    pub(crate) fn committed(&mut self, mut decided: Decided) -> (Vec<Vec<Answer>>, Sending) {
        self.apply_decided(&mut decided);
        self.before = None;
        self.is_sound = true;
        self.end += 1;
        self.told = self.end;
        self.unflushed += decided.group.byte_count();
        let mut sending = Sending::new(self.end);
        let mut events: Vec<(u64, Event)> = Vec::new();
        let first = first_seq(self.end).0;
        for commit in decided.commits {
            sending.enqueue.extend(commit.enqueue);
            sending.moved.extend(commit.visibility.iter().map(|change| change.message));
            sending.moved.extend(commit.settle);
            events.extend((first + events.len() as u64..).zip(commit.events));
        }
        if let Some((number, event)) = events.last() {
            self.newest = *number;
            self.last_id = self.last_id.max(event.id.as_u128());
        }
        sending.events = Arc::new(events);
        self.recent.push(self.end, Arc::clone(&sending.events));
        (decided.answers, sending)
    }

    /// The rows that changed, with all that goes into a checkpoint.
    pub(crate) fn take_flush(&mut self) -> Option<Flush> {
        let rows = self.state.take_dirty()?;
        self.unflushed = 0;
        for (key, row) in &rows {
            let is_open = match (key, row) {
                (RowKey::Message(_), row) => Some(row.is_some()),
                (key, Some(row)) => is_open(key, row),
                (RowKey::Record(record), None) if record.kind.may_be_open() => Some(false),
                (_, None) => None,
            };
            match is_open {
                Some(true) => drop(self.open.insert(key.clone())),
                Some(false) => drop(self.open.remove(key)),
                None => {}
            }
        }
        Some(Flush { at: self.end, last_id: self.last_id, rows, open: self.open.clone() })
    }
}

/// The row of the job or task that begins with an entry of the log.
fn row_begun(entry: &Entry) -> Option<RowKey> {
    match entry {
        Entry::Control(Control::Record(RecordWrite::Job(new))) => {
            Some(RowKey::Job(new.tenant.clone(), new.job))
        }
        Entry::Control(Control::Record(RecordWrite::Task(new))) => {
            Some(RowKey::Task(TaskKey { tenant: new.tenant.clone(), request: new.request.clone() }))
        }
        _ => None,
    }
}

/// The job that a row is loaded with.
pub(super) fn job_of(key: &RowKey) -> Option<(&TenantId, JobId)> {
    match key {
        RowKey::Job(tenant, job) | RowKey::JobTasks(tenant, job, _) => Some((tenant, *job)),
        RowKey::Task(task) => task.request.job_part().map(|job| (&task.tenant, job)),
        _ => None,
    }
}

/// The row itself, or that of the job that it is loaded with.
fn with_job(key: RowKey) -> RowKey {
    match job_of(&key) {
        Some((tenant, job)) => RowKey::Job(tenant.clone(), job),
        None => key,
    }
}
