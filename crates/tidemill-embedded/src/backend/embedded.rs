//! Opening, executing, closing.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, PutRecord};
use tidemill_engine::metrics::CommitMeter;
use tidemill_engine::notice::{Listening, Notice};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::JobId;

use super::bell::{Bell, Heard};
use super::progress::{GroupNumber, Progress};
use super::rest_board::JobRest;
use super::work_queue::WorkQueue;
use crate::blob::Blobs;
use crate::data_lock::{DataLock, LockError};
use crate::disk::Disk;
use crate::log::{Group, Log, LogKeeper, LogReader};
use crate::real_disk::RealDisk;
use crate::store::decider::{Decider, Wakeups};
use crate::store::retention::{Expired, push_carried};
use crate::store::rows::row_store::{RowStore, io_fault};
use crate::store::{Store, StoreOptions, group_bytes, wanted};

/// Why a data directory cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("the data directory {dir} cannot be used: {source}")]
    Directory { dir: String, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] Fault),
}

/// The embedded backend on one data directory. Dropping it closes it.
pub struct Embedded {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    _lock: Option<DataLock>,
}

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) options: StoreOptions,
    pub(super) deciding: Mutex<Deciding>,
    /// Held by the thread that writes groups.
    writing: Mutex<Writing>,
    /// Held by the thread that takes rows to write them, before `writing`.
    pub(super) flush_turn: Mutex<()>,
    /// Held while rows are written, or read to make the state anew; after `writing`.
    pub(super) flushing: Mutex<()>,
    pub(super) reader: LogReader,
    pub(super) log_keeper: LogKeeper,
    pub(super) rows: Arc<RowStore>,
    pub(super) blobs: Blobs,
    pub(super) progress: Progress,
    /// What was written, counted.
    pub(super) meter: CommitMeter,
    pub(super) work: WorkQueue,
    pub(super) writer_bell: Bell,
    pub(super) keeper_bell: Bell,
    pub(super) settler_bell: Bell,
    pub(super) timer_bell: Bell,
    /// What the timer waits for, in epoch milliseconds; `u64::MAX` when for nothing.
    pub(super) timer_target: AtomicU64,
    /// Bytes that fit into the log without asking the disk.
    room: AtomicU64,
    /// What found no space and was refused, in bytes; 0 when there is space as far as anybody knows.
    refused_bytes: AtomicU64,
    /// This life of the data directory, until the log has it: on a full disk it is written later, in front of the
    /// first command that is decided. 0 when it is written.
    generation_due: AtomicU64,
    generation: AtomicU64,
    /// The number of the newest event on disk.
    pub(super) synced_seq: AtomicU64,
    /// Rung when there are new events on disk.
    pub(super) grown: Notice,
    /// The number of the newest event that the rows reflect, or that was there at the start.
    pub(super) flushed_seq: AtomicU64,
    pub(super) closing: AtomicBool,
    abandoned: AtomicBool,
    /// Whether the keeper knows that rows have changed.
    pub(super) flush_planned: AtomicBool,
    /// Whether rows that were taken are to be written even if they are few.
    pub(super) settle_soon: AtomicBool,
    /// How many threads write rows now.
    pub(super) settling: AtomicU64,
    /// Rung when rows were taken out of the state, or written.
    pub(super) relieved: Notice,
}

/// The deciding side: state, and the group that is being filled.
pub(super) struct Deciding {
    pub(super) decider: Decider,
    open: Group,
    /// The number of the open group.
    pub(super) number: GroupNumber,
    wakeups: Wakeups,
    /// Groups that nothing more goes into and nobody has begun to write, the oldest first. The newest of them has the
    /// number before the open one's.
    closed: VecDeque<Closed>,
    /// The last group that wrote each record, of groups that are not on disk yet and some that are.
    written: HashMap<RecordKey, GroupNumber, foldhash::fast::RandomState>,
    emptied: Vec<Group>,
}

struct Closed {
    group: Group,
    number: GroupNumber,
    wakeups: Wakeups,
}

/// What became of commands that wanted to be decided.
pub(super) enum Turn {
    /// The answers may leave once the group of that number is on disk.
    Decided(Vec<Answer>, GroupNumber),
    /// Nothing was looked at: too much waits for the disk, and this group must be there first.
    Crowded(GroupNumber),
    /// Nothing was looked at: too many rows have changed, and some must be taken first.
    FlushFirst(Listening),
}

pub(super) struct Writing {
    pub(super) log: Log,
    segment: u32,
}

/// Rows are taken out of the state once this many have changed.
pub(super) const FLUSH_ROWS: usize = 16_384;
/// Rows that were taken are written once they have this many bytes. Meanwhile the same amount may gather again.
pub(super) const HELD_BYTES_MAX: usize = 32 << 20;
/// Nothing more is decided while rows are being written and this many others have changed.
const CHANGED_ROWS_MAX: usize = 65_536;
/// Rows are written once the log is this many events ahead of them: an open has to replay those.
pub(super) const FLUSH_EVENTS: u64 = 50_000;

/// A store without room for this many bytes is not ready: most commands that write need less.
const ORDINARY_BYTES: u64 = 128 << 10;

/// A group that grew larger gives its memory back.
const KEPT_GROUP_BYTES: usize = 4 << 20;

impl Embedded {
    /// Opens a data directory on the real disk, making it if needed, and locks it.
    pub fn open(dir: &Path, options: StoreOptions, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let disk = RealDisk::new(dir)
            .map_err(|source| OpenError::Directory { dir: dir.display().to_string(), source })?;
        let lock = DataLock::take(dir)?;
        Self::start(Arc::new(disk), options, clock, Some(lock))
    }

    /// Opens a store on any disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        Self::start(disk, options, clock, None)
    }

    fn start(
        disk: Arc<dyn Disk>,
        options: StoreOptions,
        clock: Arc<dyn Clock>,
        lock: Option<DataLock>,
    ) -> Result<Self, OpenError> {
        let store = Store::open(disk, options)?;
        let Store { options, log, reader, keeper, rows, blobs, decider, .. } = store;
        let shared = Arc::new(Shared {
            clock,
            options,
            progress: Progress::new(),
            meter: CommitMeter::default(),
            room: AtomicU64::new(log.room()),
            refused_bytes: AtomicU64::new(0),
            generation_due: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            synced_seq: AtomicU64::new(log.next_seq().0.saturating_sub(1)),
            flushed_seq: AtomicU64::new(log.next_seq().0.saturating_sub(1)),
            grown: Notice::default(),
            deciding: Mutex::new(Deciding {
                decider,
                open: Group::new(),
                number: 1,
                wakeups: Wakeups::default(),
                closed: VecDeque::new(),
                written: HashMap::default(),
                emptied: Vec::new(),
            }),
            writing: Mutex::new(Writing { segment: log.end().segment, log }),
            flush_turn: Mutex::new(()),
            flushing: Mutex::new(()),
            reader,
            log_keeper: keeper,
            rows,
            blobs,
            work: WorkQueue::default(),
            writer_bell: Bell::default(),
            keeper_bell: Bell::default(),
            settler_bell: Bell::default(),
            timer_bell: Bell::default(),
            timer_target: AtomicU64::new(u64::MAX),
            closing: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            flush_planned: AtomicBool::new(false),
            settle_soon: AtomicBool::new(false),
            settling: AtomicU64::new(0),
            relieved: Notice::default(),
        });
        let keeper = Arc::downgrade(&shared);
        shared.rows.trouble.raise_alarm_with(move || {
            if let Some(shared) = keeper.upgrade() {
                shared.keeper_bell.ring();
            }
        });
        shared.keeper_bell.ring();
        let mut threads = Vec::new();
        for (name, run) in [
            ("tidemill-writer", Shared::run_writer as fn(&Shared)),
            ("tidemill-keeper", Shared::run_keeper),
            ("tidemill-rows", Shared::run_settler),
            ("tidemill-timer", Shared::run_timer),
        ] {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
            threads.push(thread.map_err(|source| OpenError::Directory { dir: name.to_owned(), source })?);
        }
        let backend = Self { shared, threads, _lock: lock };
        backend.begin_generation()?;
        Ok(backend)
    }

    /// Counts this life of the data directory.
    fn begin_generation(&self) -> Result<(), Fault> {
        let last = stored_generation(&self.shared.deciding().decider)?;
        let generation = last + 1;
        self.shared.generation.store(generation, Ordering::Release);
        match self.execute_blocking(&[note_of_generation(generation)]) {
            Err(Fault::Full(_)) => self.shared.generation_due.store(generation, Ordering::Release),
            noted => drop(noted?),
        }
        Ok(())
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// What `Backend::execute` does, for callers that may block. Without others it needs no other thread.
    pub fn execute_blocking(&self, commands: &[Command]) -> Result<Vec<Answer>, Fault> {
        let (answers, number) = self.shared.decide(commands)?;
        self.shared.write_or_wait(number)?;
        Ok(answers)
    }

    /// A number that grows with every change; for `changed`.
    pub fn change(&self) -> u64 {
        self.shared.progress.synced()
    }

    /// Waits until something changed after `change` said `since`.
    pub async fn changed(&self, since: u64) -> Result<(), Fault> {
        self.shared.progress.wait(since + 1).await
    }

    /// Begins to watch a job: the answer resolves when the job comes to rest, or when the caller must look again. A
    /// caller that watches first and then looks misses nothing.
    pub fn watch_rest(&self, job: JobId) -> JobRest<'_> {
        JobRest::watch(&self.shared.progress, job)
    }

    /// Writes the rows that changed, so that the next open has little to replay.
    pub fn checkpoint(&self) -> Result<(), Fault> {
        self.shared.flush_rows().map(|_| ())
    }

    /// Drops what is past its time, as far as checkpoints allow.
    pub fn expire(&self) -> Result<Expired, Fault> {
        self.shared.expire()
    }

    /// Waits until the store has stopped, and says why.
    pub async fn until_stopped(&self) -> Fault {
        loop {
            // A group of this number never comes, so only a stop ends the wait.
            if let Err(fault) = self.shared.progress.wait(u64::MAX).await
                && self.shared.progress.is_stopped()
            {
                return fault;
            }
        }
    }

    /// The life of the data directory: one more than the last time it was opened. Leases of workers in this process
    /// carry it.
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Ends as a killed process would: nothing more is written.
    pub fn abandon(self) {
        self.shared.abandoned.store(true, Ordering::Release);
    }

    /// The clock has moved: callers that wait for a moment look again. Only needed with a clock that jumps.
    pub fn time_passed(&self) {
        self.shared.timer_bell.ring();
    }

    /// Seals what can be sealed.
    pub fn seal_all(&self) -> Result<(), Fault> {
        while self.shared.log_keeper.seal_next()? {}
        Ok(())
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.writer_bell.close();
        self.shared.timer_bell.close();
        self.shared.keeper_bell.close();
        self.shared.settler_bell.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
        if self.shared.abandoned.load(Ordering::Acquire) {
            return;
        }
        // A clean end leaves nothing to replay; if it fails, the log has everything all the same.
        if let Err(fault) = self.shared.write_open_groups() {
            tracing::warn!(error = %fault, "the last groups could not be written when the store was closed");
        }
        if let Err(fault) = self.shared.flush_rows() {
            tracing::warn!(error = %fault, "the last checkpoint could not be written: the next open replays the log");
        }
    }
}

impl Shared {
    pub(super) fn deciding(&self) -> MutexGuard<'_, Deciding> {
        self.deciding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides commands into the open group, for callers that may block. The answers may leave once the group of that
    /// number is on disk.
    pub(super) fn decide(&self, commands: &[Command]) -> Result<(Vec<Answer>, GroupNumber), Fault> {
        loop {
            match self.try_decide(commands)? {
                Turn::Decided(answers, number) => return Ok((answers, number)),
                // What becomes of the others' group is their matter; the next try tells what it means for this one.
                Turn::Crowded(number) => drop(self.write_or_wait(number)),
                Turn::FlushFirst(relieved) => pollster::block_on(relieved),
            }
        }
    }

    /// Decides commands into the open group, unless too much waits for the disk already.
    pub(super) fn try_decide(&self, commands: &[Command]) -> Result<Turn, Fault> {
        self.make_room(commands)?;
        let now = self.clock.now();
        let mut guard = self.deciding();
        let _stop = StopOnPanic { progress: &self.progress, doing: "deciding" };
        if let Some(fault) = self.progress.stopped_fast() {
            return Err(fault);
        }
        if let Some(fault) = self.rows.trouble.fault() {
            return Err(fault);
        }
        let deciding = &mut *guard;
        if deciding.waiting_bytes() >= group_bytes(&self.options.log) {
            return Ok(Turn::Crowded(deciding.newest()));
        }
        if deciding.decider.state.dirty_len() >= CHANGED_ROWS_MAX {
            // Listen first, so that a relief in between is not missed.
            let relieved = self.relieved.listen();
            if self.settling.load(Ordering::Acquire) > 0 {
                return Ok(Turn::FlushFirst(relieved));
            }
        }
        // What cannot be loaded is known before anything is changed.
        deciding.decider.load_all(commands, now)?;
        let before = deciding.open.byte_count();
        let due = self.generation_due.load(Ordering::Acquire);
        if due > 0 {
            // No lease of this life may be written before what tells it from the next one.
            let note = note_of_generation(due);
            deciding.decider.load_all(std::slice::from_ref(&note), now)?;
            self.generation_due.store(0, Ordering::Release);
            let noted = deciding.decider.decide(&note, now, &mut deciding.open, &mut deciding.wakeups);
            if let Err(fault) = noted {
                self.progress.stop(fault.clone());
                return Err(fault);
            }
        }
        let mut answers = Vec::with_capacity(commands.len());
        for command in commands {
            let mut decide =
                || deciding.decider.decide(command, now, &mut deciding.open, &mut deciding.wakeups);
            let mut answer = decide();
            // Those before it are decided, so this one must be too. It changed nothing yet.
            if answer.is_err() && self.rows.trouble.fault().is_some() && self.rows.heal().is_ok() {
                answer = decide();
            }
            match answer {
                Ok(answer) => answers.push(answer),
                Err(fault) => {
                    if deciding.open.byte_count() > before {
                        // Part of the group is applied and cannot be told apart: nothing of it may be acknowledged.
                        self.progress.stop(fault.clone());
                    }
                    return Err(fault);
                }
            }
        }
        let number = deciding.number;
        deciding.written.extend(deciding.wakeups.records.drain(..).map(|key| (key, number)));
        Ok(Turn::Decided(answers, deciding.newest()))
    }

    /// Refuses commands that may not fit on the disk, before anything is decided.
    fn make_room(&self, commands: &[Command]) -> Result<(), Fault> {
        let wanted = wanted(&self.options.log, commands);
        if self.room.load(Ordering::Relaxed) >= wanted {
            return Ok(());
        }
        self.reserve(wanted).inspect_err(|fault| self.note_refusal(fault, wanted))
    }

    fn reserve(&self, wanted: u64) -> Result<(), Fault> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.log.reserve(wanted)?;
        self.room.store(writing.log.room_ahead(), Ordering::Relaxed);
        Ok(())
    }

    /// Remembers that something found no space, so that the store does not say it is ready while others meet the same.
    pub(super) fn note_refusal(&self, fault: &Fault, bytes: u64) {
        if let Fault::Full(_) = fault {
            let known = self.refused_bytes.load(Ordering::Relaxed);
            let least = if known == 0 { bytes } else { known.min(bytes) };
            self.refused_bytes.store(least.max(1), Ordering::Relaxed);
        }
    }

    /// Whether there is space for an ordinary command, and again for what was refused.
    pub(super) fn check_space(&self) -> Result<(), Fault> {
        if self.room.load(Ordering::Relaxed) < ORDINARY_BYTES {
            self.reserve(ORDINARY_BYTES)?;
        }
        let refused = self.refused_bytes.load(Ordering::Relaxed);
        if refused == 0 {
            return Ok(());
        }
        self.reserve(refused)?;
        self.blobs.check_space(refused).map_err(|error| io_fault(&error))?;
        self.refused_bytes.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Sees to it that a group reaches the disk: by writing it here if nobody else writes, by waiting otherwise.
    pub(super) fn write_or_wait(&self, number: GroupNumber) -> Result<(), Fault> {
        while self.progress.synced() < number {
            let Ok(mut writing) = self.writing.try_lock() else {
                self.writer_bell.ring();
                return self.progress.wait_blocking(number);
            };
            if !self.write_group(&mut writing)? {
                drop(writing);
                return self.progress.wait_blocking(number);
            }
        }
        // It may be on disk, or lost with a full disk: the wait knows.
        self.progress.wait_blocking(number)
    }

    pub(super) fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_open_groups(&self) -> Result<(), Fault> {
        let mut writing = self.writing();
        while self.write_group(&mut writing)? {}
        Ok(())
    }

    /// Takes the oldest group that is not on disk and brings it there. Says whether there was one.
    pub(super) fn write_group(&self, writing: &mut Writing) -> Result<bool, Fault> {
        if let Some(fault) = self.progress.stopped_fast() {
            return Err(fault);
        }
        let _stop = StopOnPanic { progress: &self.progress, doing: "writing" };
        let (closed, dirty, next_visible) = {
            let mut deciding = self.deciding();
            if deciding.closed.is_empty() {
                deciding.close();
            }
            let Some(mut closed) = deciding.closed.pop_front() else { return Ok(false) };
            let state = &deciding.decider.state;
            // A message that was claimed meanwhile, mostly by the worker that finished the task before it, needs no
            // other worker.
            closed.wakeups.messages = closed.wakeups.messages.min(state.queue().ready());
            (closed, state.dirty_len(), state.queue().next_visible())
        };
        let Closed { mut group, number, wakeups } = closed;
        let began = Instant::now();
        match self.append(writing, &group) {
            Ok(()) => {
                // What was answered is counted.
                self.meter.wrote(began.elapsed(), group.event_count(), group.byte_count(), wakeups.jobs);
                // Callers that wait for an answer come before followers of the log.
                self.progress.reached(number);
                if group.event_count() > 0 {
                    self.grown.ring();
                }
            }
            Err(fault @ Fault::Full(_)) => {
                self.note_refusal(&fault, group.byte_count() as u64);
                self.fall_back(writing, &fault);
                return Err(fault);
            }
            Err(fault) => {
                self.progress.stop(fault.clone());
                return Err(fault);
            }
        }
        self.progress.rest.rested(&wakeups.rested);
        if wakeups.messages > 0 {
            self.work.arrived(wakeups.messages);
        }
        if next_visible.is_some_and(|at| at.millis() < self.timer_target.load(Ordering::Relaxed)) {
            self.timer_bell.ring();
        }
        let segment = writing.log.end().segment;
        let rolled = std::mem::replace(&mut writing.segment, segment) != segment;
        let first_change = dirty > 0 && !self.flush_planned.swap(true, Ordering::Relaxed);
        if rolled || first_change || dirty >= FLUSH_ROWS || self.replay_len() >= FLUSH_EVENTS {
            self.keeper_bell.ring();
        }
        let small = group.byte_count() <= KEPT_GROUP_BYTES;
        group.clear();
        let mut deciding = self.deciding();
        deciding.written.retain(|_, written| *written > number);
        if small && deciding.emptied.len() < 4 {
            deciding.emptied.push(group);
        }
        Ok(true)
    }

    fn append(&self, writing: &mut Writing, group: &Group) -> Result<(), Fault> {
        let appended = writing.log.append(group)?;
        let position = appended.end();
        writing.log.sync()?;
        writing.log.publish(group, appended)?;
        self.room.store(writing.log.room_ahead(), Ordering::Relaxed);
        self.synced_seq.store(position.next_seq.0.saturating_sub(1), Ordering::Release);
        Ok(())
    }

    /// The disk was full although room was made: everything decided and not written is undone.
    fn fall_back(&self, writing: &Writing, fault: &Fault) {
        // Rows must not change while the state is made from them.
        let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut deciding = self.deciding();
        deciding.open.clear();
        deciding.closed.clear();
        deciding.written.clear();
        deciding.wakeups = Wakeups::default();
        let lost = deciding.number;
        // One number stands for the state that is left, which is on disk.
        deciding.number += 2;
        match crate::store::decider_from_disk(&self.rows, &writing.log, &self.options) {
            Ok(decider) => {
                if stored_generation(&decider)
                    .is_ok_and(|stored| stored < self.generation.load(Ordering::Acquire))
                {
                    self.generation_due.store(self.generation.load(Ordering::Acquire), Ordering::Release);
                }
                deciding.decider = decider;
                self.progress.lose(lost, fault.clone());
                // Messages are there again that were taken in the groups that are lost.
                self.work.arrived(usize::MAX);
            }
            Err(worse) => self.progress.stop(worse),
        }
    }

    fn run_writer(&self) {
        while self.writer_bell.wait(None) == Heard::Ring {
            // Faults reach waiting callers through the progress.
            while !self.progress.is_stopped() {
                let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
                if !matches!(self.write_group(&mut writing), Ok(true)) {
                    break;
                }
            }
        }
    }
}

impl Deciding {
    /// Puts a row into the open group as it stands; see `Control::Carry`. Says whether there is such a row.
    pub(super) fn push_carried(&mut self, key: &RowKey) -> Result<bool, Fault> {
        push_carried(&self.decider, key, &mut self.open)
    }

    /// Lets nothing more into the open group.
    pub(super) fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let fresh = self.emptied.pop().unwrap_or_default();
        let group = std::mem::replace(&mut self.open, fresh);
        let wakeups = std::mem::take(&mut self.wakeups);
        self.closed.push_back(Closed { group, number: self.number, wakeups });
        self.number += 1;
    }

    pub(super) fn open_bytes(&self) -> usize {
        self.open.byte_count()
    }

    /// How much was decided and is not being written.
    fn waiting_bytes(&self) -> usize {
        self.closed.iter().map(|closed| closed.group.byte_count()).sum::<usize>() + self.open.byte_count()
    }

    /// The group that a record as it stands is on disk with; 0 when it is there already.
    pub(super) fn group_of(&self, record: &RecordKey) -> GroupNumber {
        self.written.get(record).copied().unwrap_or(0)
    }

    /// The newest group that holds anything decided so far.
    pub(super) fn newest(&self) -> GroupNumber {
        if self.open.is_empty() { self.number - 1 } else { self.number }
    }
}

/// The record that counts the lives of a data directory.
fn generation_key() -> RecordKey {
    RecordKey { kind: RecordKind::System, tenant: None, id: "generation".into() }
}

fn note_of_generation(generation: u64) -> Command {
    let value = Some(RecordValue::Bytes(generation.to_le_bytes().as_slice().into()));
    Command::PutRecord(PutRecord { key: generation_key(), value, expires_at: None, expected: None })
}

/// The last life that the store has; 0 before the first.
fn stored_generation(decider: &Decider) -> Result<u64, Fault> {
    Ok(match decider.row(&RowKey::Record(generation_key()))? {
        Some(Row::Record(record)) => match &record.value {
            RecordValue::Bytes(bytes) => bytes.as_ref().try_into().map_or(0, u64::from_le_bytes),
            _ => 0,
        },
        _ => 0,
    })
}

/// Stops the store when its thread panics: what was applied and what was written cannot be told apart then.
struct StopOnPanic<'a> {
    progress: &'a Progress,
    doing: &'static str,
}

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.progress.stop(Fault::Stopped(format!("it panicked while {}", self.doing)));
        }
    }
}
