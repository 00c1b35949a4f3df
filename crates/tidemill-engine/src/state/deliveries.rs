//! Which deliveries are to be tried, and when. The records themselves may have left memory.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_model::{EventId, TenantId, Timestamp};

use super::Map;
use crate::notice::Notice;
use crate::outbound::{DeliveryId, DeliveryKey};
use crate::record::{Record, RecordKey, RecordKind, RecordValue};

/// So many of a tenant are looked at for one that may be tried. Those that may not are under way, and few.
const LOOK_MAX: usize = 64;

/// Deliveries that have not arrived, by tenant and the moment of their next try.
#[derive(Debug, Default)]
pub struct Deliveries {
    tenants: BTreeMap<TenantId, BTreeSet<(Timestamp, DeliveryId)>>,
    moments: Map<DeliveryKey, Timestamp>,
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
        let moment = record.and_then(|record| match &record.value {
            RecordValue::Delivery(delivery) => Some(delivery.next_try_at),
            _ => None,
        });
        let before = match moment {
            Some(moment) => self.moments.insert(key.clone(), moment),
            None => self.moments.remove(&key),
        };
        if before == moment {
            return;
        }
        if let Some(before) = before
            && let Some(waiting) = self.tenants.get_mut(&key.tenant)
        {
            waiting.remove(&(before, key.id));
            if waiting.is_empty() {
                self.tenants.remove(&key.tenant);
            }
        }
        if let Some(moment) = moment {
            self.tenants.entry(key.tenant).or_default().insert((moment, key.id));
            self.nearer.ring();
        }
    }
}
