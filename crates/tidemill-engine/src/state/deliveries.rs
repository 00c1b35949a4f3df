//! Which deliveries are to be tried, and when. The records themselves may have left memory.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_model::{EventId, TenantId, Timestamp};

use super::Map;
use crate::notice::Notice;
use crate::outbound::{DeliveryId, DeliveryKey, Lane};
use crate::record::{Record, RecordKey, RecordKind, RecordValue};

/// So many of a tenant are looked at for one that may be tried. Those that may not are under way, and few.
const LOOK_MAX: usize = 64;

/// Deliveries that have not arrived, by tenant and the moment of their next try.
#[derive(Debug, Clone, Default)]
pub struct Deliveries {
    tenants: BTreeMap<TenantId, BTreeSet<(Timestamp, DeliveryId)>>,
    moments: Map<DeliveryKey, (Timestamp, Lane)>,
    counts: BTreeMap<TenantId, BTreeMap<Lane, usize>>,
    nearer: Notice,
}

/// What is to be tried by some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueDeliveries {
    /// The earliest first.
    pub due: Vec<DeliveryKey>,
    /// When the next one comes due that is not yet.
    pub next: Option<Timestamp>,
    /// How many wait in all, due or not.
    pub pending: usize,
}

impl Deliveries {
    /// Rung when there is another one to try, or an earlier moment.
    pub fn nearer(&self) -> Notice {
        self.nearer.clone()
    }

    /// Rings the bells of another, whose listeners go on with this one.
    pub(super) fn take_over(&mut self, former: &Self) {
        self.nearer = former.nearer();
    }

    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// Whose deliveries wait, how many, and when the oldest was made: ids tell the time.
    pub fn waiting(&self) -> impl Iterator<Item = (&TenantId, usize, Timestamp)> {
        self.tenants.iter().filter_map(|(tenant, waiting)| {
            let oldest = waiting.iter().map(|(_, id)| id.as_u128()).min()?;
            let millis = u64::try_from(oldest >> 80).unwrap_or(u64::MAX);
            Some((tenant, waiting.len(), Timestamp::clamped(millis)))
        })
    }

    /// All that wait, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &DeliveryKey> {
        self.moments.keys()
    }

    /// How many of a tenant wait, due or not.
    pub fn count(&self, tenant: &TenantId, lane: Lane) -> usize {
        self.counts.get(tenant).and_then(|lanes| lanes.get(&lane)).copied().unwrap_or_default()
    }

    /// What is due at `now`, without what `skip` names, at most `limit`.
    pub fn due(&self, now: Timestamp, limit: usize, skip: impl Fn(&DeliveryKey) -> bool) -> DueDeliveries {
        let mut due: Vec<(Timestamp, DeliveryKey)> = Vec::new();
        let mut next: Option<Timestamp> = None;
        for (tenant, waiting) in &self.tenants {
            let key = |id: DeliveryId| DeliveryKey { tenant: tenant.clone(), id };
            let ready = waiting.iter().take_while(|(at, _)| *at <= now).take(LOOK_MAX);
            let ready = ready.map(|(at, id)| (*at, key(*id)));
            due.extend(ready.filter(|(_, key)| !skip(key)).take(limit));
            let first = (now.plus(1), DeliveryId(EventId::from_u128(0)));
            let later = waiting.range(first..).next().map(|(at, _)| *at);
            next = next.into_iter().chain(later).min();
        }
        due.sort();
        due.truncate(limit);
        DueDeliveries {
            due: due.into_iter().map(|(_, key)| key).collect(),
            next,
            pending: self.moments.len(),
        }
    }

    /// Takes note of a record as it stands now.
    pub(super) fn note(&mut self, key: &RecordKey, record: Option<&Record>) {
        if key.kind != RecordKind::Delivery {
            return;
        }
        let Some(key) = key.as_delivery() else { return };
        let after = record.and_then(|record| match &record.value {
            RecordValue::Delivery(delivery) => Some((delivery.next_try_at, delivery.target.lane())),
            _ => None,
        });
        let before = match after {
            Some(after) => self.moments.insert(key.clone(), after),
            None => self.moments.remove(&key),
        };
        if before == after {
            return;
        }
        if let Some((moment, lane)) = before {
            self.take_out(&key, moment, lane);
        }
        if let Some((moment, lane)) = after {
            *self.counts.entry(key.tenant.clone()).or_default().entry(lane).or_default() += 1;
            self.tenants.entry(key.tenant).or_default().insert((moment, key.id));
            self.nearer.ring();
        }
    }

    fn take_out(&mut self, key: &DeliveryKey, moment: Timestamp, lane: Lane) {
        if let Some(waiting) = self.tenants.get_mut(&key.tenant) {
            waiting.remove(&(moment, key.id));
            if waiting.is_empty() {
                self.tenants.remove(&key.tenant);
            }
        }
        if let Some(lanes) = self.counts.get_mut(&key.tenant)
            && let Some(count) = lanes.get_mut(&lane)
        {
            *count -= 1;
            if *count == 0 {
                lanes.remove(&lane);
            }
            if lanes.is_empty() {
                self.counts.remove(&key.tenant);
            }
        }
    }
}
