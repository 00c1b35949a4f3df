//! The worker's own trouble: its disk is full, it has no descriptors left, its spawner is gone.
//!
//! No task is to blame for it, so none pays with an attempt. What cannot be started is given back uncounted and the worker
//! claims nothing until a look at what was wrong finds it well. The looks come after growing pauses, and the first claim after
//! one is a trial of a single task: a look cannot find everything.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::metrics::{SlotMeter, TroubleMark};
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard, watch};
use tokio::time::Instant;

use crate::source::HeldTask;
use crate::spawner::SpawnError;

/// From trouble to the first look, and to the last of ever longer pauses.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long after it began trouble may be why a task failed.
const RECENT: Duration = Duration::from_secs(60);
/// The descriptors that the start of a task takes, with some to spare.
pub(crate) const DESCRIPTORS_TO_START: usize = 8;
/// And those that it takes to keep what a task left.
pub(crate) const DESCRIPTORS_TO_KEEP: usize = 3;
/// How often a run of a task is given back because it found no room on the disk. A task that is the cause itself, each time,
/// fails then.
const GIVEN_BACK_MAX: u32 = 3;
/// Runs that were given back so, as far as they are remembered.
const REMEMBERED_MAX: usize = 10_000;
/// A run that was there when this many spawners died may be the cause, and runs alone.
const DEATHS_MAX: u32 = 3;

/// What a worker lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    OutputDirectory,
    Descriptors,
    Processes,
    Spawner,
    Scripts,
    /// What the parents of a task left.
    Inputs,
    /// Where the artifacts of a task are kept.
    Store,
}

impl Lack {
    /// For readers that may see no paths.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OutputDirectory => "the output directory cannot be used",
            Self::Descriptors => "no more files can be opened",
            Self::Processes => "no more processes can be started",
            Self::Spawner => "the process that starts tasks is gone",
            Self::Scripts => "no script host can be started",
            Self::Inputs => "files of the task's dependencies cannot be had",
            Self::Store => "files of a task cannot be stored",
        }
    }
}

/// Why this worker cannot run a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) lack: Lack,
    detail: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.lack.as_str(), self.detail)
    }
}

impl Trouble {
    pub(crate) fn new(lack: Lack, detail: impl fmt::Display) -> Self {
        Self { lack, detail: detail.to_string() }
    }

    /// Something that could not be done in the output directory.
    pub(crate) fn at(path: &Path, error: &io::Error) -> Self {
        let lack = if lacks_descriptors(error) { Lack::Descriptors } else { Lack::OutputDirectory };
        Self::new(lack, format_args!("{}: {error}", path.display()))
    }

    /// A child that could not be started, unless that is the task's own matter.
    pub(crate) fn of_spawn(error: &SpawnError) -> Option<Self> {
        let lack = match error {
            SpawnError::Gone(_) | SpawnError::Died(_) => Lack::Spawner,
            SpawnError::TooLate => return None,
            SpawnError::Refused { errno } => match Errno::from_raw_os_error(*errno) {
                Errno::MFILE | Errno::NFILE => Lack::Descriptors,
                Errno::AGAIN | Errno::NOMEM => Lack::Processes,
                _ => return None,
            },
        };
        Some(Self::new(lack, error))
    }
}

/// Whether an error says that this machine lacks something, whatever was asked for.
pub(crate) fn is_own(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    lacks_descriptors(error) || matches!(errno, Some(Errno::IO | Errno::NOMEM))
}

fn lacks_descriptors(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// Whether this many descriptors are free.
pub(crate) fn look_at_descriptors(needed: usize) -> Result<(), Trouble> {
    let opened: io::Result<Vec<File>> = (0..needed).map(|_| File::open("/dev/null")).collect();
    opened
        .map(drop)
        .map_err(|error| Trouble::new(Lack::Descriptors, format_args!("{needed} are needed: {error}")))
}

/// How it stands with a worker.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    state: Mutex<State>,
    changed: Notify,
    /// Held by all that run, and by one that runs alone as a whole.
    turns: RwLock<()>,
    /// Those that run alone or wait for it. Nothing is claimed meanwhile.
    suspects: watch::Sender<usize>,
}

/// The right to run a task here, until it is dropped.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    Beside { _others: RwLockReadGuard<'a, ()> },
    Alone { _all: RwLockWriteGuard<'a, ()>, _suspect: Suspect<'a> },
}

impl Turn<'_> {
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::Alone { .. })
    }
}

/// A task that may be what kills spawners, until it is dropped.
#[derive(Debug)]
pub(crate) struct Suspect<'a>(&'a watch::Sender<usize>);

impl<'a> Suspect<'a> {
    fn new(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Suspect<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

#[derive(Debug, Default)]
struct State {
    stand: Stand,
    /// Before the next look; `None` before the first one.
    pause: Option<Duration>,
    began_at: Option<Instant>,
    given_back: HashMap<(TaskKey, u32), u32>,
    /// The spawners that died while a run was on them beside others.
    deaths: HashMap<(TaskKey, u32), u32>,
}

/// Counts one more for a run. Of too many, those that were counted once are forgotten first.
fn count(counts: &mut HashMap<(TaskKey, u32), u32>, claim: &HeldTask) -> u32 {
    if counts.len() >= REMEMBERED_MAX {
        counts.retain(|_, count| *count > 1);
    }
    if counts.len() >= REMEMBERED_MAX {
        counts.clear();
    }
    let count = counts.entry((claim.task.clone(), claim.run)).or_default();
    *count += 1;
    *count
}

#[derive(Debug, Default)]
enum Stand {
    #[default]
    Sound,
    /// Nothing is claimed.
    Troubled { _mark: TroubleMark },
    /// All seems well again, and one task may show it.
    Trial { is_claimed: bool },
}

/// What may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Allowance {
    All,
    One,
    /// After a pause and a look that finds nothing wrong.
    After(Duration),
    /// Another task is on trial.
    Wait,
}

impl Troubles {
    /// Something is wrong. True when that is new.
    pub(crate) fn began(&self, trouble: &Trouble, meter: &SlotMeter) -> bool {
        let mut state = self.lock();
        if let Stand::Troubled { .. } = state.stand {
            return false;
        }
        state.stand = Stand::Troubled { _mark: meter.trouble(trouble.lack.as_str()) };
        state.began_at = Some(Instant::now());
        state.pause = Some(state.pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(PAUSE_MAX)));
        drop(state);
        self.changed.notify_waiters();
        true
    }

    /// A look found something wrong still.
    pub(crate) fn goes_on(&self) {
        let mut state = self.lock();
        state.pause = state.pause.map(|pause| (pause * 2).min(PAUSE_MAX));
    }

    /// A look found nothing wrong.
    pub(crate) fn seems_over(&self) {
        self.lock().stand = Stand::Trial { is_claimed: false };
        self.changed.notify_waiters();
    }

    /// The task on trial is there.
    pub(crate) fn claimed(&self) {
        if let Stand::Trial { is_claimed } = &mut self.lock().stand {
            *is_claimed = true;
        }
    }

    /// A task was started, or is gone for reasons of its own.
    pub(crate) fn is_over(&self) {
        let mut state = self.lock();
        if let Stand::Trial { .. } = state.stand {
            (state.stand, state.pause) = (Stand::Sound, None);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn is_sound(&self) -> bool {
        matches!(self.lock().stand, Stand::Sound)
    }

    /// Whether something is wrong, or was a moment ago: what ended meanwhile may have ended for it.
    pub(crate) fn is_recent(&self) -> bool {
        let state = self.lock();
        matches!(state.stand, Stand::Troubled { .. })
            || state.began_at.is_some_and(|at| at.elapsed() < RECENT)
    }

    pub(crate) fn allowance(&self) -> Allowance {
        let state = self.lock();
        match state.stand {
            Stand::Sound => Allowance::All,
            Stand::Troubled { .. } => Allowance::After(state.pause.unwrap_or(FIRST_PAUSE)),
            Stand::Trial { is_claimed: false } => Allowance::One,
            Stand::Trial { is_claimed: true } => Allowance::Wait,
        }
    }

    /// Waits until something else may be claimed than now.
    pub(crate) async fn changed(&self) {
        let changed = self.changed.notified();
        if self.allowance() == Allowance::Wait {
            changed.await;
        }
    }

    /// Whether a run that found no room may be given back once more. It is counted.
    pub(crate) fn may_give_back(&self, claim: &HeldTask) -> bool {
        count(&mut self.lock().given_back, claim) <= GIVEN_BACK_MAX
    }

    /// A spawner died beside a run, which is given back: another task may be the cause.
    pub(crate) fn lost_spawner(&self, claim: &HeldTask) {
        count(&mut self.lock().deaths, claim);
    }

    /// Waits until a task may run here: beside others, or alone if it may be what kills spawners.
    pub(crate) async fn turn(&self, claim: &HeldTask) -> Turn<'_> {
        let deaths = self.lock().deaths.get(&(claim.task.clone(), claim.run)).copied().unwrap_or(0);
        if deaths < DEATHS_MAX {
            return Turn::Beside { _others: self.turns.read().await };
        }
        let suspect = Suspect::new(&self.suspects);
        Turn::Alone { _all: self.turns.write().await, _suspect: suspect }
    }

    /// Whether a task runs alone, or waits for it.
    pub(crate) fn has_suspects(&self) -> bool {
        *self.suspects.borrow() > 0
    }

    /// Waits until no task runs alone or waits for it.
    pub(crate) async fn without_suspects(&self) {
        // The other side is here, so it cannot be gone.
        let _ = self.suspects.subscribe().wait_for(|suspects| *suspects == 0).await;
    }

    /// A run is over.
    pub(crate) fn forget(&self, claim: &HeldTask) {
        let mut state = self.lock();
        let key = (claim.task.clone(), claim.run);
        state.given_back.remove(&key);
        state.deaths.remove(&key);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_no_fault_of_the_task() {
        for (errno, lack) in [
            (Errno::MFILE, Some(Lack::Descriptors)),
            (Errno::NFILE, Some(Lack::Descriptors)),
            (Errno::AGAIN, Some(Lack::Processes)),
            (Errno::NOMEM, Some(Lack::Processes)),
            (Errno::NOENT, None),
            (Errno::ACCESS, None),
            (Errno::TOOBIG, None),
            (Errno::NOEXEC, None),
        ] {
            let error = SpawnError::Refused { errno: errno.raw_os_error() };
            assert_eq!(Trouble::of_spawn(&error).map(|trouble| trouble.lack), lack, "{errno}");
        }
        let gone = SpawnError::Gone("it ended".to_owned());
        assert_eq!(Trouble::of_spawn(&gone).map(|trouble| trouble.lack), Some(Lack::Spawner));
    }

    #[test]
    fn pauses_grow_until_a_task_was_started() {
        let (troubles, meter) = (Troubles::default(), SlotMeter::default());
        let trouble = Trouble::new(Lack::OutputDirectory, "full");
        assert_eq!(troubles.allowance(), Allowance::All);
        assert!(troubles.began(&trouble, &meter));
        assert!(!troubles.began(&trouble, &meter), "once is enough");
        assert_eq!(meter.read().troubled, 1);
        let seconds = |seconds| Allowance::After(Duration::from_secs(seconds));
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(troubles.allowance(), seconds(pause));
            troubles.goes_on();
        }
        troubles.seems_over();
        assert_eq!((troubles.allowance(), meter.read().troubled), (Allowance::One, 0));
        troubles.claimed();
        assert_eq!(troubles.allowance(), Allowance::Wait);
        // A look that was wrong starts no pauses over.
        assert!(troubles.began(&trouble, &meter));
        assert_eq!(troubles.allowance(), seconds(60));
        troubles.seems_over();
        troubles.claimed();
        troubles.is_over();
        assert_eq!(troubles.allowance(), Allowance::All);
        assert!(troubles.began(&trouble, &meter));
        assert_eq!(troubles.allowance(), seconds(1));
        assert_eq!(meter.read().troubles, 3);
    }
}
