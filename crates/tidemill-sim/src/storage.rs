//! Trouble below the store: power losses, killed processes, failing and full disks, and the store's own chores.

use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::command::{Command, Finish, Report};

use crate::disk::{Operation, SimDisk, Trouble};
use crate::ledger::Chore;
use crate::oracle::blob_of;
use crate::violation::Violation;
use crate::world::World;

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// The machine lives on with all that was written.
    Killed,
    /// What was not synced is lost, torn or reordered.
    PowerLoss,
}

/// How far the clock may be set back while the process is away, in milliseconds.
const RESTART_BACK_MILLIS_MAX: u64 = 4 * 3_600_000;
/// The only file whose bits may turn over: everything in it can be made again from the log.
const ROWS: &str = "derived/rows.redb";
/// How many segments are sealed in one go.
const SEALS_MAX: u32 = 4;
/// How often opening may be interrupted before the world lets it be.
const INTERRUPTIONS_MAX: u32 = 3;

impl World {
    /// Something happens to the store rather than in it.
    pub(crate) fn storage_step(&mut self) -> Result<(), Violation> {
        let disk = self.disk().clone();
        match self.rng.below(100) {
            0..=49 => self.do_chore(),
            50..=71 => {
                let operation = disk.operations() + 1 + self.rng.below(60);
                disk.cut_power_at(operation);
                self.trace.note(self.now(), format!("the power will go at operation {operation}"));
                Ok(())
            }
            72..=76 => self.restart(Death::Killed),
            77..=82 => self.restart(Death::PowerLoss),
            83..=90 => {
                self.bring_trouble(&disk);
                Ok(())
            }
            // Rows that have to be made again need space.
            91..=94 if self.has_flipped => self.mend_flips(),
            91..=94 => {
                let capacity = disk.used_bytes() + self.rng.below(96 << 10);
                disk.set_capacity(Some(capacity));
                self.trace.note(self.now(), format!("the disk holds only {capacity} bytes"));
                Ok(())
            }
            95..=96 => self.flip_bits(),
            _ => {
                self.end_troubles();
                Ok(())
            }
        }
    }

    /// Bits of the derived rows turn over, and somebody asks for everything.
    pub(crate) fn flip_bits(&mut self) -> Result<(), Violation> {
        let disk = self.disk().clone();
        if disk.may_fail() {
            return Ok(());
        }
        let count = disk.flip_bits(ROWS, &mut self.rng);
        self.has_flipped |= count > 0;
        self.trace.note(self.now(), format!("{count} bits of the derived rows turn over"));
        self.oracle.inspect(&mut *self.ledger)
    }

    /// The process ends and starts again with rows in which nothing is wrong.
    fn mend_flips(&mut self) -> Result<(), Violation> {
        self.reopen(Death::Killed)?;
        self.oracle.reopened(&mut *self.ledger)?;
        self.verify()?;
        self.has_flipped = false;
        self.begin_life()
    }

    fn bring_trouble(&mut self, disk: &SimDisk) {
        let operation = self.rng.weighted(&[
            (2, Operation::Write),
            (3, Operation::Sync),
            (1, Operation::Allocate),
            (1, Operation::SetLen),
            (1, Operation::Create),
            (1, Operation::Rename),
            (1, Operation::Remove),
            (1, Operation::SyncDir),
            (1, Operation::Read),
        ]);
        let can_be_full = !matches!(operation, Operation::Read | Operation::Remove);
        let trouble = if can_be_full && self.rng.chance(400) { Trouble::Full } else { Trouble::Io };
        let per_mille = self.rng.weighted(&[(1, 20), (1, 150), (1, 1_000)]);
        disk.trouble(operation, trouble, per_mille);
        self.trace.note(self.now(), format!("{operation:?} will fail ({trouble:?}, {per_mille} of 1000)"));
    }

    pub(crate) fn end_troubles(&mut self) {
        if let Some(disk) = self.ledger.disk() {
            disk.end_troubles();
            disk.set_capacity(None);
            disk.never_cut_power();
            self.trace.note(self.now(), "the disk is well again");
        }
    }

    /// Lets the disk fail, or not: only what the store itself does may meet trouble, never what the oracle asks.
    pub(crate) fn let_fail(&self, on: bool) {
        if let Some(disk) = self.ledger.disk() {
            disk.let_fail(on);
        }
    }

    /// Puts away the large values that a command names. `false` when that failed, so that the command cannot be given.
    pub(crate) fn put_blobs(&mut self, command: &Command) -> Result<bool, Violation> {
        let Command::Finish(Finish {
            task,
            report: Report::Completed { overflow: Some((_, place)), .. },
            ..
        }) = command
        else {
            return Ok(true);
        };
        self.let_fail(true);
        let put = self.ledger.put_blob(&task.tenant, &place.key, blob_of(&place.key));
        self.let_fail(false);
        match put {
            _ if self.ledger.disk().is_some_and(SimDisk::power_is_off) => {
                self.restart(Death::PowerLoss)?;
                Ok(false)
            }
            Ok(()) => {
                self.blobs_put.push((task.tenant.clone(), place.key.clone()));
                Ok(true)
            }
            Err(_) if self.ledger.disk().is_some_and(SimDisk::may_fail) => Ok(false),
            Err(fault) => Err(Violation::new("a store without trouble works", fault.to_string())),
        }
    }

    /// All chores in the order a keeper does them.
    pub(crate) fn keep_house(&mut self) -> Result<(), Violation> {
        self.chore(Chore::Flush)?;
        for _ in 0..SEALS_MAX {
            self.chore(Chore::Seal)?;
        }
        self.chore(Chore::Expire)?;
        self.chore(Chore::SweepBlobs)
    }

    fn do_chore(&mut self) -> Result<(), Violation> {
        if self.rng.chance(250) {
            return self.keep_house();
        }
        let chore = self.rng.weighted(&[
            (4, Chore::Hold),
            (3, Chore::Flush),
            (1, Chore::Prepare),
            (3, Chore::Seal),
            (2, Chore::Expire),
            (1, Chore::SweepBlobs),
        ]);
        self.chore(chore)
    }

    pub(crate) fn chore(&mut self, chore: Chore) -> Result<(), Violation> {
        let now = self.now();
        if chore == Chore::Expire {
            self.oracle.expiring(self.ledger.retention(), now);
        }
        self.let_fail(true);
        let result = self.ledger.chore(chore, now);
        self.let_fail(false);
        self.trace.note(now, format!("{chore:?}: {result:?}"));
        match result {
            _ if self.disk().power_is_off() => self.restart(Death::PowerLoss),
            Ok(_) if chore == Chore::Expire => self.oracle.take_expired_keys(&mut *self.ledger),
            Ok(_) => Ok(()),
            Err(Fault::Full(_)) => {
                self.oracle.take_expired_keys(&mut *self.ledger)?;
                self.oracle.nothing_written(&mut *self.ledger)
            }
            Err(Fault::Damaged(problem)) if !self.disk().may_fail() => {
                Err(Violation::new("a store without trouble works", format!("{chore:?}: {problem}")))
            }
            Err(_) => {
                let death = self.draw_death();
                self.restart(death)
            }
        }
    }

    /// A group was handed in and the power is gone or the store gave up: what became of it shows when it is open again.
    pub(crate) fn suffer(&mut self, fault: &Fault, commands: &[Command]) -> Result<(), Violation> {
        let Some(disk) = self.ledger.disk().cloned() else {
            return Err(Violation::new("a store without trouble works", fault.to_string()));
        };
        match fault {
            Fault::Full(_) if !disk.power_is_off() => {
                self.oracle.nothing_written(&mut *self.ledger)?;
                if self.rng.chance(200) { self.oracle.inspect(&mut *self.ledger) } else { Ok(()) }
            }
            fault if !disk.power_is_off() && !disk.may_fail() => {
                Err(Violation::new("a store without trouble works", fault.to_string()))
            }
            _ => {
                self.oracle.unanswered(commands, self.now());
                let death = if disk.power_is_off() { Death::PowerLoss } else { self.draw_death() };
                self.restart(death)
            }
        }
    }

    /// The power went while the answers were on their way out: what they say must be there all the same.
    pub(crate) fn answered_in_the_dark(
        &mut self,
        commands: &[Command],
        answers: &[Answer],
    ) -> Result<(), Violation> {
        let now = self.now();
        self.reopen(Death::PowerLoss)?;
        self.oracle.acknowledged(commands, answers, &mut *self.ledger, now)?;
        self.oracle.reopened(&mut *self.ledger)?;
        self.begin_life()
    }

    pub(crate) fn restart(&mut self, death: Death) -> Result<(), Violation> {
        self.reopen(death)?;
        self.oracle.reopened(&mut *self.ledger)?;
        if self.rng.chance(150) {
            self.verify()?;
        }
        self.begin_life()
    }

    /// What the store finds wrong with itself.
    pub(crate) fn verify(&mut self) -> Result<(), Violation> {
        let findings = self.ledger.verify();
        let findings =
            findings.map_err(|fault| Violation::new("a store can be verified", fault.to_string()))?;
        if findings.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.has_flipped) {
            // Verify reports it, and the operator then rebuilds the rows.
            return self.rebuild();
        }
        Err(Violation::new("the store finds nothing wrong with itself", findings.join("; ")))
    }

    /// The process dies and starts again; that may be interrupted too.
    fn reopen(&mut self, death: Death) -> Result<(), Violation> {
        let disk = self.disk().clone();
        let mut death = death;
        for interruption in 0.. {
            self.trace.note(self.now(), format!("the process dies: {death:?}"));
            match death {
                Death::Killed => disk.kill(),
                Death::PowerLoss => disk.crash(&mut self.rng),
            }
            if self.rng.chance(700) || interruption >= INTERRUPTIONS_MAX {
                self.end_troubles();
            }
            if interruption < INTERRUPTIONS_MAX && self.rng.chance(250) {
                disk.cut_power_at(disk.operations() + 1 + self.rng.below(25));
            }
            if self.profile.clock_back > 0 && self.rng.chance(200) {
                // Somebody set it right, or it was wrong for long.
                let most = self.rng.weighted(&[(3, 60_000), (1, RESTART_BACK_MILLIS_MAX)]);
                let back = self.rng.below(most);
                self.clock.step_back(back);
                self.trace.note(self.now(), format!("meanwhile the clock goes back by {back} ms"));
            }
            self.let_fail(true);
            let opened = self.ledger.reopen(&mut self.rng);
            self.let_fail(false);
            match opened {
                _ if disk.power_is_off() => death = Death::PowerLoss,
                Ok(()) => return Ok(()),
                Err(fault) if disk.may_fail() => {
                    self.trace.note(self.now(), format!("it does not open: {fault}"));
                    death = self.draw_death();
                }
                Err(fault) => return Err(Violation::new("a store opens again", fault.to_string())),
            }
        }
        unreachable!("after so many interruptions nothing interrupts it")
    }

    /// Everything derived is made again from the log, and is what it was.
    pub(crate) fn rebuild(&mut self) -> Result<(), Violation> {
        self.disk().kill();
        let rebuilt = self.ledger.rebuild();
        rebuilt.map_err(|fault| Violation::new("a store can be rebuilt", fault.to_string()))?;
        self.trace.note(self.now(), "everything is made again from the log");
        self.has_flipped = false;
        self.oracle.reopened(&mut *self.ledger)?;
        self.verify()
    }

    fn draw_death(&mut self) -> Death {
        if self.rng.chance(500) { Death::Killed } else { Death::PowerLoss }
    }

    fn disk(&self) -> &SimDisk {
        self.ledger.disk().expect("only a ledger with a disk has trouble with it")
    }
}
