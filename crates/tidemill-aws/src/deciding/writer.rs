//! The one task of a process that changes the state: it gathers what is asked for, decides it as one group and puts the
//! group into the log.
//!
//! While a put is on its way more calls arrive; they become the next group. Nobody waits for a group that is not full.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::Command;
use tidemill_engine::notice::Notice;
use tidemill_engine::warn_seldom;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::bus::outbox::{Outbox, Sending};
use crate::deciding::contention::{Contention, OTHERS_FOR};
use crate::deciding::core::{Core, Stuck};
use crate::deciding::shared_core::SharedCore;
use crate::log::commit_log::{CommitLog, LogItem, Nonce, Put};
use crate::rows::row_store::RowStore;
use crate::tickets::held_tickets::HeldTickets;

/// After this many bytes of the log the writer writes the changed rows, however few items they are: a process that
/// opens the store reads everything that is not in the rows.
const FLUSH_BYTES: usize = 16 << 20;

pub(crate) type Answered<T> = oneshot::Sender<Result<T, Fault>>;

/// What the writer is asked for.
pub(crate) enum Ask {
    Execute(Call),
    /// Takes in what others wrote.
    CatchUp(Answered<()>),
    /// Writes down the rows that changed.
    Flush(Answered<()>),
}

pub(crate) struct Call {
    pub(crate) commands: Vec<Command>,
    pub(crate) answer: Answered<Vec<Answer>>,
}

/// The notices that waiting callers listen to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices {
    /// There are new events.
    pub(crate) grown: Notice,
    /// A message may have become deliverable.
    pub(crate) arrived: Notice,
    /// The outbox got further.
    pub(crate) sent: Notice,
}

pub(crate) struct Writer {
    pub(crate) core: Arc<SharedCore>,
    pub(crate) log: CommitLog,
    pub(crate) rows: RowStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outbox: Outbox,
    pub(crate) sendings: mpsc::UnboundedSender<Sending>,
    pub(crate) notices: Notices,
    pub(crate) tickets: Option<HeldTickets>,
    /// How many groups of this process are not sent yet.
    pub(crate) unsent: Arc<AtomicU64>,
    pub(crate) newest: Arc<AtomicU64>,
    /// Differs between processes, and with the count between the puts of one.
    pub(crate) seed: u64,
    pub(crate) puts: u64,
    pub(crate) flush_every: u64,
    pub(crate) follow_every: Option<Duration>,
    pub(crate) flushed: u64,
    pub(crate) flushing: JoinSet<Flushed>,
    /// Grows when the state is made anew: what was taken from the former one does not count for it.
    pub(crate) life: u64,
    pub(crate) contention: Contention,
}

pub(crate) struct Flushed {
    life: u64,
    result: Result<bool, Fault>,
}

impl Writer {
    pub(crate) async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        loop {
            if let Some(call) = self.contention.waiting.pop_front() {
                self.work(Ask::Execute(call), &mut asks).await;
                continue;
            }
            let idle = self.follow_every;
            tokio::select! {
                ask = asks.recv() => {
                    let Some(ask) = ask else { return };
                    self.work(ask, &mut asks).await;
                }
                Some(done) = self.flushing.join_next() => {
                    if let Ok(flushed) = done {
                        self.note_flushed(&flushed).await;
                    }
                }
                () = pause(idle) => self.look_around().await,
            }
        }
    }

    /// Nobody asked for anything: looks what others did and whether time has made something deliverable.
    async fn look_around(&mut self) {
        // The next caller gets the fault.
        if let Err(fault) = self.catch_up().await {
            warn_seldom!(fault, "what others committed could not be read");
        }
        let now = self.clock.now();
        let ready = self.core.look(|core| {
            core.state.show_due_messages(now);
            core.state.queue().ready()
        });
        if ready.await > 0 {
            self.notices.arrived.ring();
        }
    }

    async fn work(&mut self, first: Ask, asks: &mut mpsc::UnboundedReceiver<Ask>) {
        let mut calls = Vec::new();
        let mut commands = 0;
        let mut readers = Vec::new();
        let mut next = Some(first);
        while let Some(ask) = next {
            match ask {
                // The caller has given up, and may have done something else since.
                Ask::Execute(call) if call.answer.is_closed() => {}
                Ask::Execute(call) => {
                    commands += call.commands.len();
                    calls.push(call);
                }
                Ask::CatchUp(reader) => readers.push(reader),
                Ask::Flush(answer) => {
                    // The caller may have given up.
                    let _ = answer.send(self.flush_now().await);
                }
            }
            next = if commands >= self.contention.group_max() {
                None
            } else {
                self.contention.waiting.pop_front().map(Ask::Execute).or_else(|| asks.try_recv().ok())
            };
        }
        let has_calls = !calls.is_empty();
        let is_newest = has_calls && self.commit(calls).await;
        if !readers.is_empty() {
            let caught_up = if is_newest { Ok(()) } else { self.catch_up().await };
            for reader in readers {
                // The caller may have given up.
                let _ = reader.send(caught_up.clone());
            }
        }
        if !has_calls || (asks.is_empty() && self.contention.waiting.is_empty()) {
            self.contention.in_a_row = 0;
        } else if let Some(gap) = self.contention.gap() {
            tokio::time::sleep(gap).await;
        }
    }

    /// Decides the calls and commits them as one group. Says whether the state is the newest now.
    async fn commit(&mut self, mut calls: Vec<Call>) -> bool {
        let mut core = self.core.take().await;
        let span = tracing::debug_span!("aws_commit", number = core.end + 1, calls = calls.len());
        let committed = self.try_commit(&mut core, &mut calls).instrument(span).await;
        core.go_back();
        match committed {
            Ok(answers) => {
                self.flush_if_due(&mut core);
                drop(core);
                for (call, answers) in calls.into_iter().zip(answers) {
                    // The caller may have given up.
                    let _ = call.answer.send(Ok(answers));
                }
                true
            }
            Err(fault) => {
                for call in calls {
                    // The caller may have given up; the others report the fault.
                    let _ = call.answer.send(Err(fault.clone()));
                }
                false
            }
        }
    }

    /// Calls that do not fit any more when another process was faster are put aside.
    async fn try_commit(
        &mut self,
        core: &mut Core,
        calls: &mut Vec<Call>,
    ) -> Result<Vec<Vec<Answer>>, Fault> {
        loop {
            self.make_sound(core).await?;
            let commands = calls.iter().map(|call| call.commands.as_slice());
            let has_others = self.contention.have_others(OTHERS_FOR);
            let decided = match core.decide(commands, self.clock.now(), has_others).await {
                Ok(decided) => decided,
                Err(Stuck::Behind) => {
                    core.go_back();
                    self.go_on(core).await?;
                    continue;
                }
                Err(Stuck::Fault(fault)) => return Err(fault),
            };
            // What did not fit is for the next group.
            for call in calls.drain(decided.answers.len()..).rev() {
                self.contention.waiting.push_front(call);
            }
            if decided.group.is_empty() {
                // Nothing to commit; what was refused or not found must rest on the newest state all the same.
                let end = core.end;
                self.go_on(core).await?;
                if core.end == end {
                    return Ok(decided.answers);
                }
                continue;
            }
            let nonce = self.nonce();
            let (now, began) = (self.clock.now(), Instant::now());
            let put = self.log.put(core.end + 1, &nonce, decided.group.bytes(), now).await?;
            self.contention.note_put(began.elapsed());
            match put {
                Put::Ours => {
                    let (answers, sending) = core.committed(decided);
                    self.wake_waiters(core, &sending);
                    self.unsent.fetch_add(1, Ordering::AcqRel);
                    // Nobody receives when the process ends.
                    let _ = self.sendings.send(sending);
                    return Ok(answers);
                }
                // A state that ran ahead goes back, or is made anew.
                Put::Theirs(item) => {
                    self.contention.lost(calls);
                    core.go_back();
                    self.go_on_with(core, Some(&item)).await?;
                }
            }
        }
    }

    /// Makes the state anew if it is not what the log says.
    async fn make_sound(&mut self, core: &mut Core) -> Result<(), Fault> {
        if core.is_sound {
            return Ok(());
        }
        let sent = self.outbox.cursor().await?;
        self.life += 1;
        core.rebuild(&self.log, sent).await?;
        self.newest.fetch_max(core.newest, Ordering::AcqRel);
        self.notices.grown.ring();
        self.notices.arrived.ring();
        if let Some(tickets) = &self.tickets {
            tickets.all_moved();
        }
        Ok(())
    }

    /// Takes in what the log has beyond the state.
    async fn go_on(&mut self, core: &mut Core) -> Result<(), Fault> {
        self.go_on_with(core, None).await
    }

    /// The same, when the next item is known.
    async fn go_on_with(&mut self, core: &mut Core, next: Option<&LogItem>) -> Result<(), Fault> {
        if core.is_sound {
            let mut seen = Vec::new();
            let mut each = |sending| seen.push(sending);
            let gone_on = match next {
                Some(next) => core.catch_up_with(&self.log, next, &mut each).await,
                None => core.catch_up(&self.log, &mut each).await,
            };
            if !seen.is_empty() {
                self.contention.saw_others();
            }
            for sending in &seen {
                self.wake_waiters(core, sending);
            }
            match gone_on {
                Ok(()) => return Ok(()),
                Err(Stuck::Behind) => core.is_sound = false,
                Err(Stuck::Fault(fault)) => return Err(fault),
            }
        }
        self.make_sound(core).await
    }

    async fn catch_up(&mut self) -> Result<(), Fault> {
        let mut core = self.core.take().await;
        self.make_sound(&mut core).await?;
        self.go_on(&mut core).await?;
        self.flush_if_due(&mut core);
        Ok(())
    }

    /// Wakes the callers that wait for what a group brought.
    fn wake_waiters(&self, core: &Core, sending: &Sending) {
        if !sending.events.is_empty() {
            self.newest.fetch_max(core.newest, Ordering::AcqRel);
            self.notices.grown.ring();
        }
        if !sending.enqueue.is_empty() || !sending.moved.is_empty() {
            self.notices.arrived.ring();
        }
        if let Some(tickets) = &self.tickets {
            tickets.moved(&sending.moved);
        }
    }

    fn nonce(&mut self) -> Nonce {
        self.puts += 1;
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.seed.to_be_bytes());
        nonce[8..].copy_from_slice(&self.puts.to_be_bytes());
        nonce
    }

    fn flush_if_due(&mut self, core: &mut Core) {
        let is_due =
            core.end - self.flushed.min(core.end) >= self.flush_every || core.unflushed >= FLUSH_BYTES;
        if !is_due || !self.flushing.is_empty() {
            return;
        }
        let Some(flush) = core.take_flush() else { return };
        self.flushed = flush.at;
        let (rows, life, nonce, now) = (self.rows.clone(), self.life, self.object_name(), self.clock.now());
        self.flushing.spawn(async move { Flushed { life, result: rows.flush(&flush, &nonce, now).await } });
    }

    async fn note_flushed(&mut self, flushed: &Flushed) {
        if flushed.life != self.life {
            return;
        }
        let mut core = self.core.take().await;
        match &flushed.result {
            Ok(true) => core.state.stored(),
            Ok(false) => core.state.not_stored(),
            Err(fault) => {
                warn_seldom!(fault, "a checkpoint could not be written");
                core.state.not_stored();
            }
        }
    }

    async fn flush_now(&mut self) -> Result<(), Fault> {
        while let Some(done) = self.flushing.join_next().await {
            if let Ok(flushed) = done {
                self.note_flushed(&flushed).await;
            }
        }
        let mut core = self.core.take().await;
        self.make_sound(&mut core).await?;
        let Some(flush) = core.take_flush() else { return Ok(()) };
        self.flushed = flush.at;
        let nonce = self.object_name();
        match self.rows.flush(&flush, &nonce, self.clock.now()).await {
            Ok(true) => core.state.stored(),
            Ok(false) => core.state.not_stored(),
            Err(fault) => {
                core.state.not_stored();
                return Err(fault);
            }
        }
        Ok(())
    }

    fn object_name(&mut self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.nonce()))
    }
}

async fn pause(idle: Option<Duration>) {
    match idle {
        Some(idle) => tokio::time::sleep(idle).await,
        None => std::future::pending().await,
    }
}
