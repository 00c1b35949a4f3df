//! Keeps time for triage: carries out bulks, raises an alarm for parked executions whose time is nearly over, and
//! gives them up.
//!
//! It wakes when the state says that something is due earlier than before, and when the next moment has come. What it
//! did is known from the records alone, so it goes on after a restart where it stopped.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_model::{TenantId, Timestamp};

use crate::Engine;
use crate::engine::EngineError;
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{Command, LookAfterParked, StepBulk};
use crate::kernel::reply::{Refusal, Reply};
use crate::scripts::stop::{First, Stop, any, either};
use crate::triage::{BulkId, ParkedKey};
use crate::warn_seldom;

/// How many parked executions are looked after at a time.
const PARKED_MAX: usize = 100;
/// How long to wait before asking a store again that could not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Lets time pass.
pub trait TriageTimer: Send + Sync + 'static {
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send;
}

/// Keeps time for an engine. Clones share everything. There is one for each data directory.
#[derive(Debug)]
pub struct TriageKeeper<B, T> {
    engine: Engine<B>,
    timer: Arc<T>,
    stop: Arc<Stop>,
}

impl<B, T> Clone for TriageKeeper<B, T> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), timer: Arc::clone(&self.timer), stop: Arc::clone(&self.stop) }
    }
}

impl<B: Backend, T: TriageTimer> TriageKeeper<B, T> {
    pub fn new(engine: Engine<B>, timer: T) -> Self {
        Self { engine, timer: Arc::new(timer), stop: Arc::default() }
    }

    /// Lets [`TriageKeeper::run`] end after what it is doing.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Does what is due, until it is stopped or the store has to be opened again.
    pub async fn run(&self) {
        let nearer = self.engine.backend().notices().triage_nearer;
        // When the next page of a bulk may be, as far as it is known.
        let mut paced: HashMap<(TenantId, BulkId), Timestamp> = HashMap::new();
        while !self.stop.is_set() {
            let heard = nearer.listen();
            let next = match self.turn(&mut paced).await {
                Ok(next) => next,
                Err(error @ EngineError::Fault(Fault::Stopped(_) | Fault::Damaged(_))) => {
                    warn_seldom!(error, "nothing looks after parked executions and bulks any more");
                    return;
                }
                Err(error) => {
                    warn_seldom!(error, "parked executions and bulks could not be looked after");
                    if either(self.timer.sleep(PATIENCE), self.stop.wait()).await == First::Two {
                        return;
                    }
                    continue;
                }
            };
            let now = self.engine.now();
            match next {
                Some(next) if next <= now => {}
                Some(next) => {
                    let pause = self.timer.sleep(Duration::from_millis(next.since(now)));
                    any(any(heard, pause), self.stop.wait()).await;
                }
                None => any(heard, self.stop.wait()).await,
            }
        }
    }

    /// Does what is due now, and no more: for processes that do not stay.
    pub async fn run_due(&self) -> Result<(), EngineError> {
        let mut paced = HashMap::new();
        while self.turn(&mut paced).await?.is_some_and(|next| next <= self.engine.now()) {}
        Ok(())
    }

    /// Does what is due once. Says when to come again.
    async fn turn(
        &self,
        paced: &mut HashMap<(TenantId, BulkId), Timestamp>,
    ) -> Result<Option<Timestamp>, EngineError> {
        let now = self.engine.now();
        let due = self.engine.backend().look(|state| state.triage().due(now, PARKED_MAX)).await?;
        let mut next = due.next;
        let mut come_at = |at: Timestamp| next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
        if !due.parked.is_empty() {
            self.look_after(due.parked).await?;
            come_at(now);
        }
        paced.retain(|bulk, _| due.bulks.contains(bulk));
        for (tenant, bulk) in due.bulks {
            let key = (tenant.clone(), bulk);
            if let Some(at) = paced.get(&key).filter(|at| **at > now) {
                come_at(*at);
                continue;
            }
            match self.engine.execute(Command::StepBulk(StepBulk { tenant, bulk })).await {
                Ok(Reply::Bulk { next: Some(at), .. }) => {
                    paced.insert(key, at);
                    come_at(at);
                }
                // It was cancelled meanwhile, or it is done.
                Ok(_) | Err(EngineError::Refused(Refusal::BulkEnded(_) | Refusal::NotFound { .. })) => {
                    paced.remove(&key);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(next)
    }

    /// Two tasks of one job are never given up in one commit, so what is left over comes again.
    async fn look_after(&self, keys: Vec<ParkedKey>) -> Result<(), EngineError> {
        self.engine.execute(Command::LookAfterParked(LookAfterParked { keys })).await.map(|_| ())
    }
}
