//! The courier: tries what is due, and writes down how it went.
//!
//! What it has to do is known from the records alone. A process that dies between a try and its record tries again:
//! deliveries arrive at least once, each time under the same id.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_model::TenantId;
use tracing::{Instrument as _, debug, debug_span};

use crate::Engine;
use crate::engine::EngineError;
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::DeliveryEnd;
use crate::kernel::notice::Notice;
use crate::kernel::state::DueWay;
use crate::outbound::delivery::{Delivery, DeliveryId, DeliveryKey, Lane, Target, Way};
use crate::outbound::sender::{Parcel, Sender};
use crate::scripts::stop::{First, Stop, any, either};
use crate::warn_seldom;

/// Webhooks and callbacks that are under way at a time.
const WEBHOOKS_MAX: usize = 24;
/// Alerts that are under way at a time, for each place they go to: no webhook holds up an alert.
const ALERTS_MAX: usize = 4;
/// How many deliveries are under way at a time.
pub const IN_FLIGHT_MAX: usize = WEBHOOKS_MAX + 2 * ALERTS_MAX;
/// Webhooks and callbacks that are under way for one tenant: one whose address hangs does not hold up the others.
const TENANT_MAX: usize = WEBHOOKS_MAX / 3;
/// Those of them to one host: one that hangs does not hold up the tenant's others.
const WAY_MAX: usize = TENANT_MAX * 3 / 4;
/// How long to wait before asking a store again that could not answer.
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

/// At most [`IN_FLIGHT_MAX`].
#[derive(Debug, Default)]
struct InFlight(Vec<(Arc<Way>, DeliveryId)>);

/// What became of an attempt to begin a delivery.
#[derive(Debug, PartialEq, Eq)]
enum Begun {
    One(Arc<Way>, DeliveryId),
    /// Somebody else was faster: what is due has changed.
    Raced,
    /// There is nothing, or no place for it.
    Nothing,
}

impl InFlight {
    fn has(&self, key: &DeliveryKey) -> bool {
        self.0.iter().any(|(way, id)| *id == key.id && way.tenant == key.tenant)
    }

    fn count(&self, fits: impl Fn(&Way) -> bool) -> usize {
        self.0.iter().filter(|(way, _)| fits(way)).count()
    }

    fn of_tenant(&self, own: &Way) -> usize {
        self.count(|way| way.lane == own.lane && way.tenant == own.tenant)
    }

    fn of_way(&self, own: &Way) -> usize {
        self.count(|way| way == own)
    }

    fn admits(&self, way: &Way) -> bool {
        let of_lane = self.count(|other| other.lane == way.lane);
        match way.lane {
            Lane::Webhooks => {
                of_lane < WEBHOOKS_MAX && self.of_tenant(way) < TENANT_MAX && self.of_way(way) < WAY_MAX
            }
            Lane::People | Lane::AlertWebhook => of_lane < ALERTS_MAX,
        }
    }

    /// Begins the one whose tenant and host have the fewest under way; of these the one that waits longest.
    fn begin(&mut self, due: &[DueWay]) -> Begun {
        let is_new =
            |due: &&DueWay| !self.0.iter().any(|(way, id)| *id == due.id && way.tenant == due.way.tenant);
        let best = due.iter().filter(is_new).filter(|due| self.admits(&due.way));
        let best =
            best.min_by_key(|due| (self.of_tenant(&due.way), self.of_way(&due.way), due.since, due.id));
        match best {
            Some(DueWay { way, id, .. }) => {
                self.0.push((Arc::clone(way), *id));
                Begun::One(Arc::clone(way), *id)
            }
            None if due.iter().any(|due| !is_new(&due)) => Begun::Raced,
            None => Begun::Nothing,
        }
    }

    fn end(&mut self, way: &Way, id: DeliveryId) {
        self.0.retain(|(other, own)| *own != id || **other != *way);
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
        let nearer = self.engine.backend().notices().deliveries_nearer;
        let stop = &self.shared.stop;
        while !stop.is_set() {
            let (heard, freed) = (nearer.listen(), self.shared.freed.listen());
            let (found, next) = match self.take().await {
                Ok(taken) => taken,
                Err(EngineError::Fault(Fault::Stopped(_))) => return,
                Err(error) => {
                    warn_seldom!(error, "what is due for delivery could not be looked up");
                    if either(self.shared.sender.sleep(PATIENCE), stop.wait()).await == First::Two {
                        return;
                    }
                    continue;
                }
            };
            if let Some((way, id)) = found {
                let span = debug_span!("delivery", tenant = %way.tenant, delivery = %id);
                let key = DeliveryKey { tenant: way.tenant.clone(), id };
                let done = self.deliver(&key).instrument(span).await;
                self.in_flight(|in_flight| in_flight.end(&way, id));
                self.shared.freed.ring();
                match done {
                    Err(EngineError::Fault(Fault::Stopped(_))) => return,
                    Err(EngineError::Fault(fault)) => {
                        warn_seldom!(fault, "how a delivery went could not be recorded");
                        any(self.shared.sender.sleep(PATIENCE), stop.wait()).await;
                    }
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

    /// Tries what is due now and is wanted, each once, and no more: for processes that do not stay. Returns how many
    /// these were.
    pub async fn work_due(&self, wants: impl Fn(&Target) -> bool) -> Result<usize, EngineError> {
        let mut passed = Vec::new();
        let mut tried = 0;
        loop {
            let now = self.engine.now();
            let skip = |key: &DeliveryKey| passed.contains(key);
            let due = self.engine.backend().look(|state| state.deliveries().due(now, 1, skip)).await?;
            let Some(key) = due.due.into_iter().next() else { return Ok(tried) };
            let wanted = self.engine.delivery(&key).await?.is_some_and(|delivery| wants(&delivery.target));
            if wanted {
                match self.deliver(&key).await {
                    // Somebody else did it, or it waits for its next try.
                    Ok(()) | Err(EngineError::Refused(_)) => tried += 1,
                    Err(error) => return Err(error),
                }
            }
            passed.push(key);
        }
    }

    /// Resolves once no webhook, no callback and no alert about a failed job of a tenant waits, or nobody can say. Others have to do the work.
    pub async fn until_delivered(&self, tenant: &TenantId) {
        loop {
            let freed = self.shared.freed.listen();
            match self.engine.has_webhooks_waiting(tenant).await {
                Ok(true) => any(freed, self.shared.stop.wait()).await,
                Ok(false) => return,
                Err(error) => {
                    warn_seldom!(error, "nobody can say whether webhooks are still to be sent");
                    return;
                }
            }
            if self.shared.stop.is_set() {
                return;
            }
        }
    }

    /// The next delivery that is due, not under way and has a place, and else how long it is until one comes due.
    async fn take(&self) -> Result<(Option<(Arc<Way>, DeliveryId)>, Option<Duration>), EngineError> {
        loop {
            let now = self.engine.now();
            let skip = |key: &DeliveryKey| self.in_flight(|in_flight| in_flight.has(key));
            let due = self.engine.backend().look(|state| state.deliveries().due(now, 0, skip)).await?;
            match self.in_flight(|in_flight| in_flight.begin(&due.ways)) {
                Begun::One(way, id) => return Ok((Some((way, id)), None)),
                Begun::Raced => {}
                Begun::Nothing => {
                    let pause = due.next.map(|next| Duration::from_millis(next.since(now).max(1)));
                    return Ok((None, pause));
                }
            }
        }
    }

    async fn deliver(&self, key: &DeliveryKey) -> Result<(), EngineError> {
        let Some(delivery) = self.engine.delivery(key).await? else { return Ok(()) };
        let told = delivery.failed_job_count();
        let body = match &delivery.failed_jobs {
            Some(jobs) => self.engine.failed_jobs_body(key, &delivery, jobs).await?,
            None => delivery.body,
        };
        let Delivery { id, target, attempts, .. } = delivery;
        let (attempt, to) = (attempts + 1, target.name());
        let parcel = Parcel { id, tenant: key.tenant.clone(), target, body, attempt };
        let end = match self.shared.sender.send(parcel).await {
            Ok(()) => {
                debug!(attempt, "delivered");
                DeliveryEnd::Arrived
            }
            Err(error) => {
                let error = self.engine.clean(&error.0);
                // The name of the place and not its address, which may hold a secret.
                warn_seldom!(error, to, attempt, tenant = %key.tenant, "a delivery did not arrive");
                DeliveryEnd::Failed { error: Arc::from(error) }
            }
        };
        self.engine.end_delivery(key, attempt, told, end).await
    }

    fn in_flight<T>(&self, look: impl FnOnce(&mut InFlight) -> T) -> T {
        look(&mut self.shared.in_flight.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::{EventId, Timestamp};

    use super::*;

    fn due(tenant: &str, lane: Lane, host: &str, since: u64, id: u128) -> DueWay {
        let way = Way { tenant: TenantId::trusted(tenant), lane, host: Arc::from(host) };
        let since = Timestamp::clamped(1_800_000_000_000 + since);
        DueWay { way: Arc::new(way), since, id: DeliveryId(EventId::from_u128(id)) }
    }

    /// Begins all that it can of what never ends.
    fn fill(in_flight: &mut InFlight, tenant: &str, lane: Lane, host: &str, first: u128) -> usize {
        let mut ids = first..;
        let mut begin = || in_flight.begin(&[due(tenant, lane, host, 0, ids.next().unwrap())]);
        std::iter::from_fn(|| matches!(begin(), Begun::One(..)).then_some(())).count()
    }

    #[test]
    fn who_hangs_holds_up_nobody_else() {
        let mut in_flight = InFlight::default();
        assert_eq!(fill(&mut in_flight, "a", Lane::Webhooks, "hang", 100), WAY_MAX);
        assert_eq!(fill(&mut in_flight, "b", Lane::Webhooks, "hang", 200), WAY_MAX);
        let waiting = [
            due("a", Lane::Webhooks, "hang", 1, 300),
            due("a", Lane::Webhooks, "good", 9, 301),
            due("c", Lane::Webhooks, "good", 9, 302),
            due("a", Lane::People, "", 9, 303),
        ];
        let mut begun = Vec::new();
        while let Begun::One(_, id) = in_flight.begin(&waiting[..]) {
            begun.push(id.as_u128());
            if begun.len() == 3 {
                break;
            }
        }
        assert_eq!(begun, [302, 303, 301], "those with the fewest under way come first");
        assert_eq!(in_flight.begin(&waiting[..1]), Begun::Nothing, "its way is full");
        assert_eq!(in_flight.begin(&waiting[1..2]), Begun::Raced, "it is under way already");
        in_flight.end(&waiting[0].way, DeliveryId(EventId::from_u128(100)));
        assert!(matches!(in_flight.begin(&waiting[..1]), Begun::One(..)));
    }

    #[test]
    fn alerts_have_places_of_their_own_and_all_together_are_bounded() {
        let mut in_flight = InFlight::default();
        let mut webhooks = 0;
        for (at, tenant) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            for (host, more) in [("one", 0), ("two", 100), ("three", 200)] {
                webhooks += fill(&mut in_flight, tenant, Lane::Webhooks, host, 1_000 * at as u128 + more);
            }
        }
        assert_eq!(webhooks, WEBHOOKS_MAX);
        assert_eq!(fill(&mut in_flight, "a", Lane::People, "", 7_000), ALERTS_MAX);
        assert_eq!(fill(&mut in_flight, "a", Lane::AlertWebhook, "", 8_000), ALERTS_MAX);
        assert_eq!(in_flight.0.len(), IN_FLIGHT_MAX);
    }
}
