//! The courier: tries what is due, and writes down how it went.
//!
//! What it has to do is known from the records alone. A process that dies between a try and its record tries again:
//! deliveries arrive at least once, each time under the same id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_model::TenantId;

use super::delivery::{Delivery, DeliveryKey, Target};
use super::sender::{Parcel, Sender};
use crate::Engine;
use crate::backend::{Backend, Fault};
use crate::command::DeliveryEnd;
use crate::engine::EngineError;
use crate::notice::Notice;
use crate::scripts::stop::{First, Stop, any, either};

/// How many deliveries are under way at a time.
pub const IN_FLIGHT_MAX: usize = 16;
/// How many of them may be of one tenant: one whose address hangs does not hold up the others.
const IN_FLIGHT_TENANT_MAX: usize = IN_FLIGHT_MAX / 2;
/// A store that could not is asked again after so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Delivers for an engine. Clones share everything. There is one for each data directory.
#[derive(Debug)]
pub struct Courier<B, S> {
    engine: Engine<B>,
    shared: Arc<Shared<S>>,
}

#[derive(Debug)]
struct Shared<S> {
    sender: S,
    stop: Stop,
    in_flight: Mutex<InFlight>,
    /// Rung when one is no longer under way.
    freed: Notice,
}

#[derive(Debug, Default)]
struct InFlight(HashMap<TenantId, Vec<DeliveryKey>>);

impl InFlight {
    fn admits(&self, key: &DeliveryKey) -> bool {
        let of_tenant = self.0.get(&key.tenant).map_or(&[][..], Vec::as_slice);
        of_tenant.len() < IN_FLIGHT_TENANT_MAX && !of_tenant.contains(key)
    }

    fn begin(&mut self, key: &DeliveryKey) -> bool {
        let admitted = self.admits(key);
        if admitted {
            self.0.entry(key.tenant.clone()).or_default().push(key.clone());
        }
        admitted
    }

    fn end(&mut self, key: &DeliveryKey) {
        if let Some(of_tenant) = self.0.get_mut(&key.tenant) {
            of_tenant.retain(|other| other != key);
            if of_tenant.is_empty() {
                self.0.remove(&key.tenant);
            }
        }
    }
}

impl<B, S> Clone for Courier<B, S> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<B: Backend, S: Sender> Courier<B, S> {
    pub fn new(engine: Engine<B>, sender: S) -> Self {
        let (in_flight, freed) = (Mutex::default(), Notice::default());
        Self { engine, shared: Arc::new(Shared { sender, stop: Stop::default(), in_flight, freed }) }
    }

    /// Lets [`Courier::work`] end after what it is doing.
    pub fn stop(&self) {
        self.shared.stop.set();
    }

    /// Does one delivery after the other, until it is stopped or the store has to be opened again. Several may run at
    /// once, up to [`IN_FLIGHT_MAX`].
    pub async fn work(&self) {
        let nearer = self.engine.backend().deliveries_nearer();
        let stop = &self.shared.stop;
        while !stop.is_set() {
            let (heard, freed) = (nearer.listen(), self.shared.freed.listen());
            let (found, next) = match self.take().await {
                Ok(taken) => taken,
                Err(EngineError::Fault(Fault::Stopped(_) | Fault::Damaged(_))) => return,
                Err(_) => {
                    if either(self.shared.sender.sleep(PATIENCE), stop.wait()).await == First::Two {
                        return;
                    }
                    continue;
                }
            };
            if let Some(key) = found {
                let done = self.deliver(&key).await;
                self.in_flight(|in_flight| in_flight.end(&key));
                self.shared.freed.ring();
                match done {
                    Err(EngineError::Fault(Fault::Stopped(_) | Fault::Damaged(_))) => return,
                    Err(EngineError::Fault(_)) => any(self.shared.sender.sleep(PATIENCE), stop.wait()).await,
                    // Somebody else did it, or it waits for its next try.
                    Ok(()) | Err(_) => {}
                }
                continue;
            }
            match next {
                Some(pause) => {
                    let pause = self.shared.sender.sleep(pause);
                    any(any(any(heard, freed), pause), stop.wait()).await;
                }
                None => any(any(heard, freed), stop.wait()).await,
            }
        }
    }

    /// Tries what is due now and is wanted, each once, and no more: for those who do not stay. Says how many these were.
    pub async fn work_due(&self, wants: impl Fn(&Target) -> bool) -> Result<usize, EngineError> {
        let mut passed = Vec::new();
        let mut tried = 0;
        loop {
            let now = self.engine.delivery_now();
            let skip = |key: &DeliveryKey| passed.contains(key);
            let due = self.engine.backend().due_deliveries(now, 1, skip).await?;
            let Some(key) = due.due.into_iter().next() else { return Ok(tried) };
            let wanted = self.engine.delivery(&key).await?.is_some_and(|delivery| wants(&delivery.target));
            if wanted {
                self.deliver(&key).await?;
                tried += 1;
            }
            passed.push(key);
        }
    }

    /// Resolves once no webhook and no callback of a tenant waits, or nobody can say. Others have to do the work.
    pub async fn until_told(&self, tenant: &TenantId) {
        loop {
            let freed = self.shared.freed.listen();
            match self.engine.has_webhooks_waiting(tenant).await {
                Ok(true) => any(freed, self.shared.stop.wait()).await,
                Ok(false) | Err(_) => return,
            }
            if self.shared.stop.is_set() {
                return;
            }
        }
    }

    /// The next delivery that is due and not under way, and else how long it is until one is.
    async fn take(&self) -> Result<(Option<DeliveryKey>, Option<Duration>), EngineError> {
        loop {
            let now = self.engine.delivery_now();
            let skip = |key: &DeliveryKey| !self.in_flight(|in_flight| in_flight.admits(key));
            let due = self.engine.backend().due_deliveries(now, 1, skip).await?;
            let Some(key) = due.due.into_iter().next() else {
                let pause = due.next.map(|next| Duration::from_millis(next.since(now).max(1)));
                return Ok((None, pause));
            };
            if self.in_flight(|in_flight| in_flight.begin(&key)) {
                return Ok((Some(key), None));
            }
        }
    }

    async fn deliver(&self, key: &DeliveryKey) -> Result<(), EngineError> {
        let Some(delivery) = self.engine.delivery(key).await? else { return Ok(()) };
        let Delivery { id, target, body, attempts, .. } = delivery;
        let attempt = attempts + 1;
        let parcel = Parcel { id, tenant: key.tenant.clone(), target, body, attempt };
        let end = match self.shared.sender.send(parcel).await {
            Ok(()) => DeliveryEnd::Arrived,
            Err(error) => DeliveryEnd::Failed { error: Arc::from(self.engine.clean(&error.0)) },
        };
        self.engine.end_delivery(key, attempt, end).await
    }

    fn in_flight<T>(&self, look: impl FnOnce(&mut InFlight) -> T) -> T {
        look(&mut self.shared.in_flight.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
