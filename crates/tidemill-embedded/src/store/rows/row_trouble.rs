//! Trouble with the rows: a row or a page that is not what was written, or a panic of the store that keeps them.
//!
//! The reader that finds it closes the rows. From then on nothing is answered from them: the healer rebuilds them
//! from the log, and they replace the damaged ones. Without a healer, as while a store is opened or verified, damage
//! is only reported.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tidemill_engine::backend::Fault;

use super::row_heal::Healer;
use super::row_store::{LookError, RowStore};
use crate::store::{ROW_CACHE_BYTES, StoreOptions};

/// The message that rows have to be rebuilt, before the reason.
pub(in crate::store) const MADE_AGAIN: &str = "the derived rows are damaged and are made again from the log";

/// How rows are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowConfig {
    /// Whether checksums are looked at. Always, but for the mistake that the simulation must find.
    pub(in crate::store) is_checked: bool,
    /// How much memory may be used for pages.
    pub(in crate::store) cache_bytes: usize,
}

impl RowConfig {
    pub(crate) const USUAL: Self = Self { is_checked: true, cache_bytes: ROW_CACHE_BYTES };

    pub(in crate::store) fn of(options: &StoreOptions) -> Self {
        #[cfg(feature = "faults")]
        let is_checked = !options.policy.faults.skip_row_checks;
        #[cfg(not(feature = "faults"))]
        let is_checked = true;
        Self { is_checked, cache_bytes: options.row_cache_bytes }
    }
}

/// What repairs the rows, and what is wrong with them.
#[derive(Default)]
pub(crate) struct Trouble {
    healer: OnceLock<Healer>,
    /// Rung when there is trouble, if another thread repairs it; otherwise the reader that finds it does.
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Nothing is repaired meanwhile: the caller wants to see what is there.
    is_left_alone: AtomicBool,
    is_there: AtomicBool,
    problem: Mutex<Option<String>>,
    /// How often they were mended.
    times: AtomicU64,
}

impl Trouble {
    pub(in crate::store) fn mend_with(&self, healer: Healer) {
        // The first one stays.
        let _ = self.healer.set(healer);
    }

    /// From now on trouble only rings the alarm; its listener then calls `heal`.
    pub(crate) fn raise_alarm_with(&self, alarm: impl Fn() + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.alarm.set(Box::new(alarm));
    }

    fn problem(&self) -> MutexGuard<'_, Option<String>> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the rows cannot be used now, if they cannot.
    pub(crate) fn fault(&self) -> Option<Fault> {
        if !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        self.problem().as_ref().map(|problem| {
            Fault::Unavailable(format!(
                "its rows were damaged ({problem}) and are being made again from the log"
            ))
        })
    }

    /// How often the rows were repaired: damage in rows that were replaced since is not reported.
    pub(in crate::store) fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// Whether somebody looks at the rows as they are.
    pub(in crate::store) fn is_left_alone(&self) -> bool {
        self.is_left_alone.load(Ordering::Acquire)
    }

    /// Says whether this is news.
    fn begin(&self, problem: String) -> bool {
        let mut known = self.problem();
        let is_new = known.is_none();
        known.get_or_insert(problem);
        self.is_there.store(true, Ordering::Release);
        is_new
    }

    fn end(&self) {
        let mut problem = self.problem();
        *problem = None;
        self.times.fetch_add(1, Ordering::AcqRel);
        self.is_there.store(false, Ordering::Release);
    }
}

impl RowStore {
    /// Fails, or mends the rows here and now, if there is trouble with them.
    pub(in crate::store) fn check_trouble(&self) -> Result<(), Fault> {
        let Some(fault) = self.trouble.fault() else { return Ok(()) };
        if self.trouble.alarm.get().is_some() {
            return Err(fault);
        }
        self.heal()
    }

    /// Something went wrong with the rows, which had been repaired `times` times. Repairs them if that is necessary
    /// and there is a healer.
    pub(in crate::store) fn mend(&self, fault: Fault, times: u64) -> Result<(), Fault> {
        let Fault::Damaged(problem) = fault else { return Err(fault) };
        let trouble = &self.trouble;
        let Some(healer) = trouble.healer.get().filter(|_| !trouble.is_left_alone()) else {
            return Err(Fault::Damaged(problem));
        };
        if trouble.times() != times {
            return Ok(());
        }
        let sentence = format!("{MADE_AGAIN}: {problem}");
        if trouble.begin(problem) {
            healer.report(&sentence);
        }
        if let Some(alarm) = trouble.alarm.get() {
            alarm();
        }
        self.check_trouble()
    }

    /// How often the rows were rebuilt from the log since the store was opened.
    pub(in crate::store) fn times_rebuilt(&self) -> u64 {
        self.trouble.times()
    }

    /// Whether the rows are damaged and a rebuild is due or under way.
    pub(in crate::store) fn has_trouble(&self) -> bool {
        self.trouble.fault().is_some()
    }

    /// Makes the rows again if there is trouble with them.
    pub(crate) fn heal(&self) -> Result<(), Fault> {
        let Some(healer) = self.trouble.healer.get() else { return Ok(()) };
        let _turn = healer.turn();
        if self.trouble.fault().is_none() {
            return Ok(());
        }
        healer.heal(self)?;
        self.trouble.end();
        healer.report("the derived rows were made again from the log");
        Ok(())
    }

    /// Lets somebody look at the rows as they are, damaged or not.
    pub(in crate::store) fn left_alone<T>(&self, look: impl FnOnce() -> T) -> T {
        self.trouble.is_left_alone.store(true, Ordering::Release);
        let seen = look();
        self.trouble.is_left_alone.store(false, Ordering::Release);
        seen
    }
}

/// Does something with the rows' file. A panic there is damage like any other.
pub(in crate::store) fn guarded<T>(run: impl FnOnce() -> Result<T, LookError>) -> Result<T, LookError> {
    // What the panic leaves behind is not used again: the rows are closed and made anew.
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        Err(LookError::Row(Fault::Damaged(format!("the store of the rows panicked: {text}"))))
    })
}
