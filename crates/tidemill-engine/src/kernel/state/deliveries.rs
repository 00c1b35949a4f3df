//! Which deliveries are to be tried, and when. The records themselves may have left memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemill_model::{EventId, TenantId, Timestamp};

use crate::kernel::clock::AHEAD_MILLIS_MAX;
use crate::kernel::notice::Notice;
use crate::kernel::record::{Record, RecordKey, RecordKind, RecordValue};
use crate::kernel::state::Map;
use crate::outbound::{DeliveryId, DeliveryKey, Lane, Way};

/// No delivery waits longer than five minutes for its next try. One that is to wait longer than this, in milliseconds, was
/// put off by a clock that has been set back since.
const FAR_MILLIS: u64 = 5 * 60_000 + AHEAD_MILLIS_MAX;
/// How many of one way are looked at to find one that may be tried. Those that may not are under way, and few.
const LOOK_MAX: usize = 64;
/// How many alerts about failed jobs are looked at where no tenant bounds them.
const GATHERINGS_MAX: usize = 64;

/// Deliveries that have not arrived, by their way and the moment of their next try.
#[derive(Debug, Clone, Default)]
pub struct Deliveries {
    ways: BTreeMap<Arc<Way>, BTreeSet<(Timestamp, DeliveryId)>>,
    moments: Map<DeliveryKey, (Timestamp, Arc<Way>)>,
    counts: BTreeMap<TenantId, BTreeMap<Lane, usize>>,
    /// Alerts about failed jobs, which others may join.
    gathering: BTreeMap<(TenantId, Lane), BTreeSet<DeliveryId>>,
    nearer: Notice,
}

/// What is to be tried by some moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueDeliveries {
    /// The earliest first.
    pub due: Vec<DeliveryKey>,
    /// The earliest of each way, in no order.
    pub ways: Vec<DueWay>,
    /// When the next one comes due that is not yet.
    pub next: Option<Timestamp>,
    /// How many wait in all, due or not.
    pub pending: usize,
}

/// The delivery that comes next on one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueWay {
    pub way: Arc<Way>,
    /// When it came due.
    pub since: Timestamp,
    pub id: DeliveryId,
}

impl Deliveries {
    /// Rung when there is another one to try, another moment, or one fewer.
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
        let mut found: BTreeMap<&TenantId, (usize, Timestamp)> = BTreeMap::new();
        for (way, waiting) in &self.ways {
            let Some(oldest) = waiting.iter().map(|(_, id)| id.as_u128()).min() else { continue };
            let made_at = Timestamp::clamped(u64::try_from(oldest >> 80).unwrap_or(u64::MAX));
            let (count, first) = found.entry(&way.tenant).or_insert((0, made_at));
            (*count, *first) = (*count + waiting.len(), made_at.min(*first));
        }
        found.into_iter().map(|(tenant, (count, first))| (tenant, count, first))
    }

    /// All that wait, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &DeliveryKey> {
        self.moments.keys()
    }

    /// How many of a tenant wait, due or not.
    pub fn count(&self, tenant: &TenantId, lane: Lane) -> usize {
        self.counts.get(tenant).and_then(|lanes| lanes.get(&lane)).copied().unwrap_or_default()
    }

    /// The newest alert about failed jobs of a tenant.
    pub fn gathering(&self, tenant: &TenantId, lane: Lane) -> Option<DeliveryKey> {
        let id = *self.gathering.get(&(tenant.clone(), lane))?.last()?;
        Some(DeliveryKey { tenant: tenant.clone(), id })
    }

    /// The newest alerts about failed jobs, of one tenant if it is given. Without one these are the first few.
    pub fn gatherings(&self, tenant: Option<&TenantId>) -> Vec<DeliveryKey> {
        if let Some(tenant) = tenant {
            let lanes = [Lane::People, Lane::AlertWebhook].into_iter();
            return lanes.filter_map(|lane| self.gathering(tenant, lane)).collect();
        }
        let newest = self.gathering.iter().filter_map(|((tenant, _), ids)| Some((tenant, *ids.last()?)));
        let keys = newest.map(|(tenant, id)| DeliveryKey { tenant: tenant.clone(), id });
        keys.take(GATHERINGS_MAX).collect()
    }

    /// What is due at `now`, without what `skip` names, at most `limit`.
    pub fn due(&self, now: Timestamp, limit: usize, skip: impl Fn(&DeliveryKey) -> bool) -> DueDeliveries {
        let mut due: Vec<(Timestamp, DeliveryKey)> = Vec::new();
        let mut ways = Vec::new();
        let mut next: Option<Timestamp> = None;
        for (way, waiting) in &self.ways {
            let key = |id: DeliveryId| DeliveryKey { tenant: way.tenant.clone(), id };
            let far = (now.plus(FAR_MILLIS), DeliveryId(EventId::from_u128(0)));
            let put_off = waiting.range(far..).filter(|(at, _)| at.since(now) >= FAR_MILLIS).take(LOOK_MAX);
            let ready = waiting.iter().take_while(|(at, _)| *at <= now).take(LOOK_MAX).chain(put_off);
            let ready = ready.map(|(at, id)| (*at, key(*id)));
            let mut ready = ready.filter(|(_, key)| !skip(key)).peekable();
            if let Some((since, key)) = ready.peek() {
                ways.push(DueWay { way: Arc::clone(way), since: *since, id: key.id });
            }
            due.extend(ready.take(limit));
            let first = (now.plus(1), DeliveryId(EventId::from_u128(0)));
            let later = waiting.range(first..far).next().map(|(at, _)| *at);
            next = next.into_iter().chain(later).min();
        }
        due.sort();
        due.truncate(limit);
        DueDeliveries {
            due: due.into_iter().map(|(_, key)| key).collect(),
            ways,
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
        self.note_gathering(&key, record);
        let after = record.and_then(|record| match &record.value {
            RecordValue::Delivery(delivery) => {
                Some((delivery.next_try_at, self.known(delivery.target.way(&key.tenant))))
            }
            _ => None,
        });
        let before = match after {
            Some(ref after) => self.moments.insert(key.clone(), after.clone()),
            None => self.moments.remove(&key),
        };
        if before == after {
            return;
        }
        if let Some((moment, way)) = before {
            self.take_out(&key, moment, &way);
        }
        if let Some((moment, way)) = after {
            *self.counts.entry(key.tenant).or_default().entry(way.lane).or_default() += 1;
            self.ways.entry(way).or_default().insert((moment, key.id));
        }
        self.nearer.ring();
    }

    fn note_gathering(&mut self, key: &DeliveryKey, record: Option<&Record>) {
        match record.map(|record| &record.value) {
            Some(RecordValue::Delivery(delivery)) if delivery.failed_jobs.is_some() => {
                let lane = (key.tenant.clone(), delivery.target.lane());
                self.gathering.entry(lane).or_default().insert(key.id);
            }
            Some(_) => {}
            None => {
                for lane in [Lane::People, Lane::AlertWebhook] {
                    let lane = (key.tenant.clone(), lane);
                    if let Some(ids) = self.gathering.get_mut(&lane)
                        && ids.remove(&key.id)
                        && ids.is_empty()
                    {
                        self.gathering.remove(&lane);
                    }
                }
            }
        }
    }

    /// The same way, kept once.
    fn known(&self, way: Way) -> Arc<Way> {
        self.ways.get_key_value(&way).map_or_else(|| Arc::new(way), |(known, _)| Arc::clone(known))
    }

    fn take_out(&mut self, key: &DeliveryKey, moment: Timestamp, way: &Arc<Way>) {
        if let Some(waiting) = self.ways.get_mut(way) {
            waiting.remove(&(moment, key.id));
            if waiting.is_empty() {
                self.ways.remove(way);
            }
        }
        if let Some(lanes) = self.counts.get_mut(&key.tenant)
            && let Some(count) = lanes.get_mut(&way.lane)
        {
            *count -= 1;
            if *count == 0 {
                lanes.remove(&way.lane);
            }
            if lanes.is_empty() {
                self.counts.remove(&key.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_off_by_another_clock_is_due() {
        let at = |minutes: u64| Timestamp::clamped(1_800_000_000_000 + minutes * 60_000);
        let id = |n| DeliveryId(EventId::from_u128(n));
        let way = Arc::new(Way { tenant: TenantId::trusted("a"), lane: Lane::People, host: Arc::from("") });
        let mut deliveries = Deliveries::default();
        let waiting = BTreeSet::from([(at(0), id(1)), (at(5), id(2)), (at(600), id(3))]);
        deliveries.ways.insert(way, waiting);
        for (now, expected, next) in
            [(600, vec![1, 2, 3], None), (0, vec![1, 3], Some(5)), (599, vec![1, 2], Some(600))]
        {
            let found = deliveries.due(at(now), 9, |_| false);
            let ids: Vec<u128> = found.due.iter().map(|key| key.id.as_u128()).collect();
            assert_eq!((ids, found.next), (expected, next.map(at)), "minute {now}");
        }
    }
}
