//! The world: actors, a clock, a ledger and a seed.
//!
//! Every step draws what happens next, lets the ledger decide it as one group and shows the outcome to the oracle. At
//! the end faults stop, time goes on, and everything must come to rest.

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, DeliveryEnd, EndDelivery, Recover, Sweep};
use tidemill_engine::policy::Policy;
use tidemill_engine::reply::Reply;
use tidemill_model::{TenantId, Timestamp};

use crate::actors::checker::Checker;
use crate::actors::courier::Courier;
use crate::actors::operator::Operator;
use crate::actors::producer::Producer;
use crate::actors::scripter::Scripter;
use crate::actors::triager::Triager;
use crate::actors::worker::Worker;
use crate::clock::VirtualClock;
use crate::ledger::Ledger;
use crate::oracle::Oracle;
use crate::profile::{Act, Profile};
use crate::rng::Rng;
use crate::storage::Death;
use crate::trace::{self, Trace};
use crate::violation::Violation;

/// How often the sweep runs, in milliseconds of virtual time.
const SWEEP_MILLIS: u64 = 60_000;
/// How long the world may take to come to rest once faults stop, in milliseconds of virtual time.
const REST_MILLIS_MAX: u64 = 12 * 3_600_000;
/// How long after that the world is looked at once more.
const AFTERMATH_MILLIS: u64 = 20 * 60_000;
/// No delivery waits longer than this for its next try, in milliseconds.
const PAUSE_MILLIS_MAX: u64 = 5 * 60_000;
/// Above this many live tasks producers hold back.
const LIVE_MAX: usize = 80;

/// A world under way.
pub struct World {
    pub(crate) rng: Rng,
    pub(crate) clock: VirtualClock,
    pub(crate) ledger: Box<dyn Ledger>,
    pub(crate) oracle: Oracle,
    pub(crate) profile: Profile,
    pub(crate) trace: Trace,
    pub(crate) generation: u64,
    pub(crate) workers: Vec<Worker>,
    tenants: Vec<TenantId>,
    producer: Producer,
    operator: Operator,
    scripter: Scripter,
    triager: Triager,
    courier: Courier,
    checker: Checker,
    sweep: Sweep,
    swept_at: Timestamp,
    acknowledged: u64,
    /// Blobs that were put away, whether or not an event came to name them.
    pub(crate) blobs_put: Vec<(TenantId, String)>,
    /// Bits of the derived rows have turned over since those were made.
    pub(crate) has_flipped: bool,
}

/// The actor that asks, and so gets the answer.
#[derive(Debug, Clone, Copy)]
enum Sender {
    Producer,
    Operator,
    Worker(usize),
    Timer,
}

/// What a run did, for the summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTally {
    /// Commands that were acknowledged.
    pub commands: u64,
    pub events: u64,
    /// Operations of the simulated disk.
    pub disk_operations: u64,
    /// Times the store was opened again.
    pub restarts: u64,
    /// A digest of the run: the same seed gives the same.
    pub digest: u64,
}

impl RunTally {
    /// Adds another run's numbers. Digests of several runs mean nothing and are left alone.
    pub fn add(&mut self, other: &Self) {
        self.commands += other.commands;
        self.events += other.events;
        self.disk_operations += other.disk_operations;
        self.restarts += other.restarts;
    }
}

impl World {
    pub(crate) fn new(
        mut rng: Rng,
        clock: VirtualClock,
        ledger: Box<dyn Ledger>,
        policy: Policy,
        profile: Profile,
        trace_max: usize,
    ) -> Self {
        let tenants: Vec<TenantId> =
            (0..=rng.index(3)).map(|number| TenantId::trusted(&format!("tenant-{number}"))).collect();
        let workers = (0..2 + rng.index(4)).map(|number| Worker::new(rng.fork(), number, &tenants)).collect();
        let swept_at = clock.now();
        Self {
            producer: Producer::new(rng.fork(), tenants.clone()),
            operator: Operator::new(rng.fork(), tenants.clone()),
            scripter: Scripter::new(rng.fork(), tenants.clone()),
            triager: Triager::new(rng.fork(), tenants.clone()),
            courier: Courier::new(rng.fork(), tenants.clone()),
            checker: Checker::new(rng.fork(), tenants.clone()),
            oracle: Oracle::new(policy),
            trace: Trace::new(trace_max),
            generation: 1,
            sweep: Sweep::default(),
            acknowledged: 0,
            blobs_put: Vec::new(),
            has_flipped: false,
            rng,
            clock,
            ledger,
            profile,
            workers,
            tenants,
            swept_at,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// This many steps, and then rest.
    pub(crate) fn live(&mut self, steps: u64) -> Result<(), Violation> {
        for _ in 0..steps {
            self.step()?;
        }
        self.come_to_rest()
    }

    /// This many steps, and then the disk is well again. Whatever is open stays open.
    pub(crate) fn live_on(&mut self, steps: u64) -> Result<(), Violation> {
        for _ in 0..steps {
            self.step()?;
        }
        self.end_troubles();
        self.keep_house()
    }

    /// Something happens.
    fn step(&mut self) -> Result<(), Violation> {
        self.let_time_pass();
        self.oracle.time_is(self.now());
        if self.now().since(self.swept_at) >= SWEEP_MILLIS || self.sweep.after.is_some() {
            self.swept_at = self.now();
            let sweep = self.sweep.clone();
            return self.submit(vec![(Sender::Timer, Command::Sweep(sweep))]);
        }
        if self.rng.chance(80) {
            return self.look();
        }
        if self.ledger.disk().is_some() && self.rng.chance(self.profile.storage) {
            return self.storage_step();
        }
        if self.profile.flips > 0 && self.rng.chance(self.profile.flips) {
            return self.flip_bits();
        }
        if self.ledger.disk().is_none() && self.rng.chance(5) {
            return self.begin_life();
        }
        let size = 1 + self.rng.index(self.profile.group_max);
        let mut group = Vec::with_capacity(size);
        for _ in 0..size {
            group.extend(self.draw()?);
        }
        self.submit(group)
    }

    fn let_time_pass(&mut self) {
        let millis = match self.rng.below(100) {
            0..=39 => 0,
            40..=79 => self.rng.below(300),
            80..=97 => self.rng.below(5_000),
            98 if self.rng.chance(100) => self.rng.below(1_200_000),
            _ => self.rng.below(70_000),
        };
        self.clock.pass(millis);
        if self.rng.chance(self.profile.clock_back) {
            let back = if self.rng.chance(800) { self.rng.below(2_000) } else { self.rng.below(120_000) };
            self.clock.step_back(back);
            self.trace.note(self.now(), format!("the clock goes back by {back} ms"));
        }
    }

    /// Readers ask for events and look over walls.
    fn look(&mut self) -> Result<(), Violation> {
        match self.rng.below(20) {
            0 => self.oracle.inspect(&mut *self.ledger),
            1..=3 => self.oracle.check_walls(&mut *self.ledger, &self.tenants, &mut self.rng),
            _ => self.oracle.check_timeline(&mut *self.ledger, &self.tenants, &mut self.rng),
        }
    }

    fn draw(&mut self) -> Result<Option<(Sender, Command)>, Violation> {
        let now = self.now();
        let act = self.rng.weighted(&self.profile.acts);
        let crowded = self.oracle.active().len() > LIVE_MAX;
        let command = match act {
            Act::Work => {
                let at = self.rng.index(self.workers.len());
                let Some(command) = self.workers[at].act(now, self.generation) else { return Ok(None) };
                let whole = self.put_blobs(&command)?;
                return Ok(whole.then_some((Sender::Worker(at), command)));
            }
            Act::SubmitJob | Act::AddTasks | Act::SubmitTask if crowded => None,
            Act::SubmitJob => Some(self.producer.submit_job(now)),
            Act::ResubmitJob => self.producer.resubmit_job(now),
            Act::AddTasks => self.producer.add_tasks(),
            Act::ChangeTasks => self.producer.change_tasks(),
            Act::SubmitTask => Some(self.producer.submit_task()),
            Act::ResubmitTask => self.producer.resubmit_task(),
            Act::Send => Some(self.producer.send()),
            Act::Cancel => self.producer.cancel(),
            Act::Resume => self.producer.resume(),
            Act::Advance => self.producer.advance(),
            Act::SetBudget => self.producer.set_budget(),
            Act::Trespass => self.producer.trespass(),
            Act::Publish => Some(self.producer.publish(now)),
            Act::PutRecord => Some(self.producer.put_record()),
            Act::Forget => self.producer.forget(),
            Act::AnswerLetter => {
                let letters = self.oracle.list_letters(&mut *self.ledger)?;
                self.operator.answer_letter(&letters)
            }
            Act::Receive => {
                return Ok(Some((Sender::Operator, self.operator.receive())));
            }
            Act::UseReceipt => self.operator.use_receipt(),
            Act::MatchEvents => Some(self.scripter.match_events(self.oracle.log(), self.oracle.executions())),
            Act::EndExecution => self.scripter.end_execution(self.oracle.executions()),
            Act::AnswerScriptLetter => self.scripter.answer_letter(self.oracle.executions()),
            Act::TellWorkflow => Some(self.triager.publish_events(now)),
            Act::MarkErrors => Some(self.triager.mark(now)),
            Act::Unpark if self.rng.chance(500) => self.triager.unpark_task(&self.oracle.parked()),
            Act::Unpark => self.triager.unpark(now),
            Act::EndDelivery => self.courier.end_delivery(self.oracle.deliveries(), now),
            Act::AnswerDeliveryLetter => self.courier.answer_letter(self.oracle.deliveries()),
            Act::CheckHealth => {
                let unreadable = |fault: Fault| Violation::new("what was told is known", fault.to_string());
                let checked = self.checker.check(&self.oracle.active(), &mut *self.ledger, now);
                checked.map_err(unreadable)?
            }
        };
        Ok(command.map(|command| (Sender::Producer, command)))
    }

    /// Hands a group in and lets everyone see what became of it.
    fn submit(&mut self, group: Vec<(Sender, Command)>) -> Result<(), Violation> {
        if group.is_empty() {
            return Ok(());
        }
        let (senders, commands): (Vec<Sender>, Vec<Command>) = group.into_iter().unzip();
        let Some(answers) = self.execute(&commands)? else { return Ok(()) };
        for ((sender, command), answer) in senders.into_iter().zip(&commands).zip(&answers) {
            let heard = !self.rng.chance(self.profile.lost_answers);
            match sender {
                Sender::Worker(at) => self.workers[at].hear(command, answer, heard),
                Sender::Producer if heard => self.producer.hear(command, answer),
                Sender::Operator if heard => self.operator.hear(answer),
                Sender::Producer | Sender::Operator => {}
                Sender::Timer => self.hear_sweep(answer)?,
            }
        }
        Ok(())
    }

    fn hear_sweep(&mut self, answer: &Answer) -> Result<(), Violation> {
        if let Ok(Reply::Swept { after, .. }) = answer {
            let whole = self.sweep.after.is_none() && after.is_none();
            self.sweep.after.clone_from(after);
            if whole {
                let now = self.now();
                return self.oracle.check_swept(&mut *self.ledger, now);
            }
        }
        Ok(())
    }

    /// Executes a group. `None` when there is no answer: the store was full, or died and is open again.
    pub(crate) fn execute(&mut self, commands: &[Command]) -> Result<Option<Vec<Answer>>, Violation> {
        let now = self.now();
        self.let_fail(true);
        let result = self.ledger.execute(commands, now);
        self.let_fail(false);
        match result {
            Ok(answers) => {
                self.trace.note(now, trace::group(commands, Some(&answers)));
                self.acknowledged += commands.len() as u64;
                if self.ledger.disk().is_some_and(crate::disk::SimDisk::power_is_off) {
                    self.answered_in_the_dark(commands, &answers)?;
                    return Ok(None);
                }
                self.oracle.acknowledged(commands, &answers, &mut *self.ledger, now)?;
                Ok(Some(answers))
            }
            Err(fault) => {
                self.trace.note(now, format!("{} => {fault}", trace::group(commands, None)));
                self.suffer(&fault, commands)?;
                Ok(None)
            }
        }
    }

    /// The process starts anew: what lived in it is gone, and its leases are taken back.
    pub(crate) fn begin_life(&mut self) -> Result<(), Violation> {
        self.workers.iter_mut().for_each(Worker::store_died);
        self.sweep = Sweep::default();
        // A process that starts looks for what stands still before long, whatever its clock shows.
        self.swept_at = Timestamp::MIN;
        self.generation += 1;
        let recover = Command::Recover(Recover { generation: self.generation });
        self.execute(&[recover]).map(drop)
    }

    /// Faults stop, workers work, time goes on: everything comes to rest.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), Violation> {
        self.end_troubles();
        self.profile.lost_answers = 0;
        let begin = self.now();
        while !self.oracle.active().is_empty() || self.sweep.after.is_some() {
            if self.now().since(begin) > REST_MILLIS_MAX {
                let stuck: Vec<String> =
                    self.oracle.active().iter().take(5).map(|key| format!("{key:?}")).collect();
                return Err(Violation::new("everything comes to an end", stuck.join(", ")));
            }
            self.work_calmly()?;
            if let Some(command) = self.triager.unpark_task(&self.oracle.parked()) {
                self.submit(vec![(Sender::Producer, command)])?;
            }
            if self.now().since(self.swept_at) >= SWEEP_MILLIS || self.sweep.after.is_some() {
                self.swept_at = self.now();
                let sweep = self.sweep.clone();
                self.submit(vec![(Sender::Timer, Command::Sweep(sweep))])?;
            }
        }
        self.submit(vec![(Sender::Timer, Command::Sweep(Sweep::default()))])?;
        self.deliver_all()?;
        self.oracle.inspect(&mut *self.ledger)?;
        if self.ledger.disk().is_some() {
            // Long enough for all that may expire and for blobs that nobody came to name.
            // What was stored before the clock was set back is young until it is there again.
            let behind = self.oracle.latest().since(self.now());
            self.clock.pass(behind + AFTERMATH_MILLIS);
            self.oracle.time_is(self.now());
            self.keep_house()?;
            self.oracle.check_unnamed_blobs(&self.blobs_put, &mut *self.ledger)?;
            self.restart(Death::PowerLoss)?;
            self.rebuild()?;
        }
        for _ in 0..5 {
            self.oracle.check_timeline(&mut *self.ledger, &self.tenants, &mut self.rng)?;
        }
        self.oracle.check_rest(&mut *self.ledger)
    }

    /// Every receiver takes what comes. All deliveries come due.
    fn deliver_all(&mut self) -> Result<(), Violation> {
        let begin = self.now();
        loop {
            let waiting = self.oracle.deliveries().waiting();
            if waiting.is_empty() {
                return Ok(());
            }
            if self.now().since(begin) > REST_MILLIS_MAX {
                return Err(Violation::new("every delivery comes due", format!("{waiting:?}")));
            }
            let unreadable = |fault: Fault| Violation::new("what is due is known", fault.to_string());
            let due = self.ledger.due_deliveries(self.now()).map_err(unreadable)?;
            let mut group = Vec::new();
            for key in &due {
                let known = waiting.iter().find(|(waiting, _, next)| waiting == key && self.is_due(*next));
                let Some((_, attempt, _)) = known else {
                    return Err(Violation::new("what is due waits", format!("{key:?}")));
                };
                let (tenant, delivery, end) = (key.tenant.clone(), key.id, DeliveryEnd::Arrived);
                let told = self.oracle.deliveries().failed_jobs_in(key);
                let command = EndDelivery { tenant, delivery, attempt: *attempt, told, end };
                group.push((Sender::Timer, Command::EndDelivery(command)));
            }
            self.submit(group)?;
            if due.is_empty() {
                self.clock.pass(60_000);
                self.oracle.time_is(self.now());
            }
        }
    }

    /// Whether a delivery may be tried that is to be at `next`: then, or at once if it would wait longer than any does
    /// because the clock was set back.
    fn is_due(&self, next: Timestamp) -> bool {
        next <= self.now() || next.since(self.now()) > PAUSE_MILLIS_MAX
    }

    /// Every worker finishes what it holds and takes more; time goes on when there is nothing to do.
    fn work_calmly(&mut self) -> Result<(), Violation> {
        let events = self.oracle.events();
        for at in 0..self.workers.len() {
            let mut group: Vec<(Sender, Command)> = Vec::new();
            let now = self.now();
            for finish in self.workers[at].finish_calmly(now) {
                if self.put_blobs(&finish)? {
                    group.push((Sender::Worker(at), finish));
                }
            }
            group.push((Sender::Worker(at), self.workers[at].claim_calmly(self.generation)));
            self.submit(group)?;
        }
        let idle = self.oracle.events() == events;
        self.clock.pass(if idle { 5_000 } else { 20 });
        self.oracle.time_is(self.now());
        Ok(())
    }

    pub(crate) fn tally(&self) -> RunTally {
        let disk = self.ledger.disk();
        RunTally {
            commands: self.acknowledged,
            events: self.oracle.events(),
            disk_operations: disk.map_or(0, crate::disk::SimDisk::operations),
            restarts: self.generation - 1,
            digest: self.oracle.digest() ^ disk.map_or(0, crate::disk::SimDisk::digest),
        }
    }
}
