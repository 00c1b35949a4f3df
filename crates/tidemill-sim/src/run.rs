//! One run: a seed, a backend, and either a tally or the story of a failure.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidemill_engine::backend::Fault;
use tidemill_engine::faults::Faults;

use crate::clock::VirtualClock;
use crate::disk::{Operation, SimDisk};
use crate::embedded_ledger::{EmbeddedLedger, draw_options};
use crate::ledger::Ledger;
use crate::memory_ledger::MemoryLedger;
use crate::profile::{Profile, draw_policy};
use crate::rng::Rng;
use crate::trace;
use crate::violation::Violation;
use crate::world::{RunTally, World};

/// Which backend a world runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendKind {
    Memory,
    Embedded,
}

impl BackendKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
        }
    }

    /// The backend of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Memory, Self::Embedded].into_iter().find(|kind| kind.as_str() == name)
    }
}

/// What to run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    pub kind: BackendKind,
    pub steps: u64,
    /// Rules of the engine that are broken on purpose.
    pub faults: Faults,
    /// Syncs that somebody removed: of which kind, and under which paths.
    pub removed_syncs: Vec<(Operation, String)>,
    /// How many of the last steps a failure shows.
    pub trace_max: usize,
    /// In how many steps of a thousand bits of the derived rows turn over, beside those of every world.
    pub flips: u32,
}

impl RunPlan {
    pub fn new(kind: BackendKind) -> Self {
        // A run takes some 10 ms in memory and some 25 ms with a disk.
        let steps = match kind {
            BackendKind::Memory => 300,
            BackendKind::Embedded => 200,
        };
        Self {
            kind,
            steps,
            faults: Faults::default(),
            removed_syncs: Vec::new(),
            trace_max: trace::STEPS_MAX,
            flips: 0,
        }
    }
}

/// A run that broke a promise.
#[derive(Debug)]
pub struct FailedRun {
    pub seed: u64,
    pub violation: Violation,
    /// The last steps in words.
    pub trace: Vec<String>,
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("something panicked").to_owned()
}

/// Runs one seed to its end.
pub fn run(seed: u64, plan: &RunPlan) -> Result<RunTally, FailedRun> {
    let mut rng = Rng::new(seed);
    let clock = VirtualClock::start();
    let mut policy = draw_policy(&mut rng);
    policy.faults = plan.faults;
    let profile = Profile { flips: plan.flips, ..Profile::draw(&mut rng) };
    let failure = |violation, trace| FailedRun { seed, violation, trace };
    let ledger: Box<dyn Ledger> = match plan.kind {
        BackendKind::Memory => Box::new(MemoryLedger::new(clock.clone(), policy.clone(), rng.bits())),
        BackendKind::Embedded => {
            let disk = SimDisk::new(rng.bits());
            for (operation, prefix) in &plan.removed_syncs {
                disk.ignore_sync(*operation, prefix);
            }
            let created =
                EmbeddedLedger::create(disk, draw_options(&mut rng, policy.clone(), profile.clock_back == 0));
            let unopened = |fault: Fault| Violation::new("a new store opens", fault.to_string());
            Box::new(created.map_err(|fault| failure(unopened(fault), Vec::new()))?)
        }
    };
    let mut world = World::new(rng, clock, ledger, policy, profile, plan.trace_max);
    // A panic is a broken promise like any other, and wants its seed told.
    let result = catch_unwind(AssertUnwindSafe(|| world.live(plan.steps)));
    match result.unwrap_or_else(|panic| Err(Violation::new("nothing panics", text_of(&*panic)))) {
        Ok(()) => Ok(world.tally()),
        Err(violation) => Err(failure(violation, world.trace.into_lines())),
    }
}
