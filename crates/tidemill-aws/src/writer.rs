//! The one task of a process that changes the state: it gathers what is asked for, decides it as one group and puts the
//! group into the log.
//!
//! While a put is on its way more calls arrive; they become the next group. Nobody waits for a group that is not full.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::Command;
use tidemill_engine::notice::Notice;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::core::{Core, Stuck};
use crate::log::{Log, LogItem, Nonce, Put};
use crate::outbox::{Bus, Outbox, Progress, Sending};
use crate::rows::Rows;
use crate::turnstile::Turnstile;

/// How many commands one group takes, not counting the last call's.
const GROUP_COMMANDS: usize = 2_000;
/// The same while others commit too. What takes long to decide is never put first.
const GROUP_COMMANDS_CONTENDED: usize = 50;
/// For so long after another process committed something, it is expected to do so again.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// For so long a state that runs ahead is kept to go back to.
const OTHERS_FOR: Duration = Duration::from_secs(60);
/// After so many groups in a row, with more waiting, others get a chance. They could not be seen otherwise: who puts one
/// group right after the other is always first.
const GROUPS_IN_A_ROW: u32 = 16;
/// How many puts the chance lasts: whoever lost must read what it lacks, and put.
const CHANCE_PUTS: u32 = 2;
/// What a put is taken to last, at most.
const PUT_TIME_MAX: Duration = Duration::from_millis(50);
/// How many groups are sent side by side.
const SENDS_AT_ONCE: usize = 8;
/// How long the way from the bus to the table may take before an event is believed to be in the table.
const SAVE_LAG: Duration = Duration::from_secs(60);
/// If the outbox stands still for so long, whoever should have sent is believed dead, and others send.
const RECONCILE_EVERY: Duration = Duration::from_secs(10);

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

/// What those who wait listen to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bells {
    /// There are new events.
    pub(crate) grown: Notice,
    /// A message may have become deliverable.
    pub(crate) arrived: Notice,
    /// The outbox got further.
    pub(crate) sent: Notice,
}

pub(crate) struct Writer {
    pub(crate) core: Arc<Turnstile>,
    pub(crate) log: Log,
    pub(crate) rows: Rows,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outbox: Outbox,
    pub(crate) sendings: mpsc::UnboundedSender<Sending>,
    pub(crate) bells: Bells,
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
    pub(crate) turns: Turns,
}

/// What is known of others who put into the same log, and calls that wait for their turn.
#[derive(Default)]
pub(crate) struct Turns {
    /// When another process was last seen to have committed something.
    others_at: Option<Instant>,
    /// Groups one right after the other.
    in_a_row: u32,
    /// What a put takes, on average.
    put_time: Duration,
    /// Calls of a group that was too slow, but for its first ones.
    waiting: VecDeque<Call>,
}

impl Turns {
    fn have_others(&self, within: Duration) -> bool {
        self.others_at.is_some_and(|at| at.elapsed() < within)
    }

    fn group_max(&self) -> usize {
        if self.have_others(CONTENDED_FOR) { GROUP_COMMANDS_CONTENDED } else { GROUP_COMMANDS }
    }

    fn note_put(&mut self, time: Duration) {
        self.put_time = ((self.put_time * 7 + time) / 8).min(PUT_TIME_MAX);
    }

    /// Another process was faster. Only a short group is tried again at once.
    fn lost(&mut self, calls: &mut Vec<Call>) {
        self.others_at = Some(Instant::now());
        self.in_a_row = 0;
        let mut commands = 0;
        let kept = calls.iter().position(|call| {
            commands += call.commands.len();
            commands >= GROUP_COMMANDS_CONTENDED
        });
        let later = kept.map_or_else(Vec::new, |last| calls.split_off(last + 1));
        for call in later.into_iter().rev() {
            self.waiting.push_front(call);
        }
    }

    /// How long to wait before the next group, when there is one right after a group of ours.
    fn chance(&mut self) -> Option<Duration> {
        self.in_a_row += 1;
        let limit = if self.have_others(CONTENDED_FOR) { 1 } else { GROUPS_IN_A_ROW };
        (self.in_a_row >= limit).then(|| {
            self.in_a_row = 0;
            self.put_time * CHANCE_PUTS
        })
    }
}

pub(crate) struct Flushed {
    life: u64,
    result: Result<bool, Fault>,
}

impl Writer {
    pub(crate) async fn run(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) {
        loop {
            if let Some(call) = self.turns.waiting.pop_front() {
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
        // Whoever asks next is told what is wrong.
        let _ = self.catch_up().await;
        let now = self.clock.now();
        let ready = self.core.look(|core| {
            core.state.move_on(now);
            core.state.queue().ready()
        });
        if ready.await > 0 {
            self.bells.arrived.ring();
        }
    }

    async fn work(&mut self, first: Ask, asks: &mut mpsc::UnboundedReceiver<Ask>) {
        let mut calls = Vec::new();
        let mut commands = 0;
        let mut readers = Vec::new();
        let mut next = Some(first);
        while let Some(ask) = next {
            match ask {
                Ask::Execute(call) => {
                    commands += call.commands.len();
                    calls.push(call);
                }
                Ask::CatchUp(reader) => readers.push(reader),
                Ask::Flush(answer) => {
                    let _ = answer.send(self.flush_now().await);
                }
            }
            next = if commands >= self.turns.group_max() {
                None
            } else {
                self.turns.waiting.pop_front().map(Ask::Execute).or_else(|| asks.try_recv().ok())
            };
        }
        let has_calls = !calls.is_empty();
        let is_newest = has_calls && self.commit(calls).await;
        if !readers.is_empty() {
            let caught_up = if is_newest { Ok(()) } else { self.catch_up().await };
            for reader in readers {
                let _ = reader.send(caught_up.clone());
            }
        }
        if !has_calls || (asks.is_empty() && self.turns.waiting.is_empty()) {
            self.turns.in_a_row = 0;
        } else if let Some(chance) = self.turns.chance() {
            tokio::time::sleep(chance).await;
        }
    }

    /// Decides the calls and commits them as one group. Says whether the state is the newest now.
    async fn commit(&mut self, mut calls: Vec<Call>) -> bool {
        let mut core = self.core.take().await;
        let committed = self.try_commit(&mut core, &mut calls).await;
        core.go_back();
        match committed {
            Ok(answers) => {
                self.flush_if_due(&mut core);
                drop(core);
                for (call, answers) in calls.into_iter().zip(answers) {
                    let _ = call.answer.send(Ok(answers));
                }
                true
            }
            Err(fault) => {
                for call in calls {
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
            let has_others = self.turns.have_others(OTHERS_FOR);
            let decided = match core.decide(commands, self.clock.now(), has_others).await {
                Ok(decided) => decided,
                Err(Stuck::Behind) => {
                    core.go_back();
                    self.go_on(core).await?;
                    continue;
                }
                Err(Stuck::Fault(fault)) => return Err(fault),
            };
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
            let began = Instant::now();
            let put = self.log.put(core.end + 1, &nonce, decided.group.bytes()).await?;
            self.turns.note_put(began.elapsed());
            match put {
                Put::Ours => {
                    let (answers, sending) = core.committed(decided);
                    self.tell(core, &sending);
                    // Nobody receives when the process ends.
                    let _ = self.sendings.send(sending);
                    return Ok(answers);
                }
                // A state that ran ahead goes back, or is made anew.
                Put::Theirs(item) => {
                    self.turns.lost(calls);
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
        // What is to be sent was handed over when it was seen first.
        core.rebuild(&self.log, sent, &mut |_| {}).await?;
        self.newest.fetch_max(core.newest, Ordering::AcqRel);
        self.bells.grown.ring();
        self.bells.arrived.ring();
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
                self.turns.others_at = Some(Instant::now());
            }
            for sending in &seen {
                self.tell(core, sending);
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

    /// Wakes those who wait for what a group brought.
    fn tell(&self, core: &Core, sending: &Sending) {
        if !sending.events.is_empty() {
            self.newest.fetch_max(core.newest, Ordering::AcqRel);
            self.bells.grown.ring();
        }
        if !sending.enqueue.is_empty() || sending.stirred {
            self.bells.arrived.ring();
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
        if core.end - self.flushed.min(core.end) < self.flush_every || !self.flushing.is_empty() {
            return;
        }
        let Some(flush) = core.take_flush() else { return };
        self.flushed = flush.at;
        let (rows, life, nonce) = (self.rows.clone(), self.life, self.object_name());
        self.flushing.spawn(async move { Flushed { life, result: rows.flush(&flush, &nonce).await } });
    }

    async fn note_flushed(&mut self, flushed: &Flushed) {
        if flushed.life != self.life {
            return;
        }
        let mut core = self.core.take().await;
        match flushed.result {
            Ok(true) => core.state.stored(),
            Ok(false) | Err(_) => core.state.not_stored(),
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
        match self.rows.flush(&flush, &nonce).await {
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

/// Sends what was committed, and moves the cursor behind it.
pub(crate) struct Sender {
    pub(crate) outbox: Outbox,
    pub(crate) log: Log,
    pub(crate) core: Arc<Turnstile>,
    pub(crate) progress: Progress,
    pub(crate) bells: Bells,
    /// Up to where all is sent, for those who wait for it.
    pub(crate) sent: Arc<AtomicU64>,
}

impl Sender {
    pub(crate) async fn run(mut self, mut sendings: mpsc::UnboundedReceiver<Sending>) {
        let mut sending: JoinSet<u64> = JoinSet::new();
        // Groups that are sent, and when they are believed to be in the table.
        let mut saved: VecDeque<(Instant, u64)> = VecDeque::new();
        let mut stood_at = None;
        loop {
            let has_room = sending.len() < SENDS_AT_ONCE;
            let next_saved = saved.front().map(|(at, _)| *at);
            tokio::select! {
                next = sendings.recv(), if has_room => {
                    let Some(next) = next else { return };
                    let outbox = self.outbox.clone();
                    sending.spawn(async move {
                        outbox.send(&next).await;
                        next.number
                    });
                }
                Some(done) = sending.join_next() => {
                    let Ok(number) = done else { continue };
                    if self.progress.note(number) {
                        self.moved(&mut saved).await;
                    } else if self.progress.has_gap()
                        && let Ok(cursor) = self.outbox.cursor().await
                        && self.progress.rise_to(cursor)
                    {
                        self.moved(&mut saved).await;
                    }
                }
                () = until(next_saved) => {
                    if let Some((_, number)) = saved.pop_front() {
                        self.core.look(|core| core.recent.saved(number)).await;
                    }
                }
                () = tokio::time::sleep(RECONCILE_EVERY) => self.reconcile(&mut stood_at, &mut saved).await,
            }
        }
    }

    async fn moved(&self, saved: &mut VecDeque<(Instant, u64)>) {
        let sent = self.progress.sent;
        // If that fails the next one moves it.
        let _ = self.outbox.move_cursor(sent).await;
        match self.outbox.bus {
            Bus::Loopback => self.core.look(|core| core.recent.saved(sent)).await,
            Bus::Named(_) => saved.push_back((Instant::now() + SAVE_LAG, sent)),
        }
        self.sent.fetch_max(sent, Ordering::AcqRel);
        self.bells.sent.ring();
    }

    /// Sends what somebody else committed and did not send, if nobody got further since the last look.
    async fn reconcile(&mut self, stood_at: &mut Option<u64>, saved: &mut VecDeque<(Instant, u64)>) {
        let Ok(cursor) = self.outbox.cursor().await else { return };
        let end = self.core.look(|core| core.end).await;
        if stood_at.replace(cursor) == Some(cursor) && cursor < end {
            let Ok(items) = self.log.from(cursor + 1).await else { return };
            for item in items {
                let Ok(sending) = Core::read_events(&item) else { return };
                self.outbox.send(&sending).await;
                self.progress.note(item.number);
            }
        }
        if self.progress.rise_to(cursor) || self.progress.sent > cursor {
            self.moved(saved).await;
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
