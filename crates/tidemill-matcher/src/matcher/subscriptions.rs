//! All subscriptions of all tenants.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::FixedState;
use serde_json::Value;

use super::alternatives::alternatives;
use super::bucket::{Bucket, BucketFull, Holding, Limits};
use super::node::Tuning;
use super::slab::{Slab, Slot};
use super::value_hash::ValueHasher;
use crate::filter::FilterRules;
use tidemill_model::values::id::{EventType, TenantId};

/// Subscriptions with ids `I` and whatever else `T` the caller wants to have at hand when one matches.
///
/// An event type is matched as a whole: there are no wildcards. A disabled subscription is one that is not in here.
#[derive(Debug)]
pub struct Matcher<I, T> {
    hasher: ValueHasher,
    tuning: Tuning,
    limits: Limits,
    tenants: HashMap<TenantId, HashMap<EventType, Slot, FixedState>, FixedState>,
    buckets: Slab<Bucket>,
    subscriptions: Slab<Subscription<I, T>>,
    by_id: HashMap<I, Slot, FixedState>,
}

#[derive(Debug)]
struct Subscription<I, T> {
    id: I,
    payload: T,
    tenant: TenantId,
    event_type: EventType,
    bucket: Slot,
    holding: Holding,
}

/// What became of one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MatchCounts {
    /// How many subscriptions want it.
    pub matched: usize,
    /// How many subscriptions of its tenant and type do not.
    pub filtered: usize,
    /// How many alternatives of rules were tried to find out: the work that was done.
    pub tried: usize,
}

impl<I: Clone + Eq + Hash, T> Matcher<I, T> {
    /// An empty matcher. `seed` should be random and secret, so that nobody can choose values whose hashes fall
    /// together; it has no influence on what matches.
    pub fn new(seed: u64) -> Self {
        Self::tuned(seed, Tuning::default(), Limits::default())
    }

    pub(super) fn tuned(seed: u64, tuning: Tuning, limits: Limits) -> Self {
        Self {
            hasher: ValueHasher::new(seed),
            tuning,
            limits,
            tenants: HashMap::with_hasher(FixedState::with_seed(seed)),
            buckets: Slab::new(),
            subscriptions: Slab::new(),
            by_id: HashMap::with_hasher(FixedState::with_seed(seed)),
        }
    }

    /// Takes in a subscription, in place of one with the same id. Without rules it wants every event of the type. If
    /// there is no room for it nothing changes.
    pub fn insert(
        &mut self,
        id: I,
        tenant: &TenantId,
        event_type: &EventType,
        rules: Option<&FilterRules>,
        payload: T,
    ) -> Result<(), BucketFull> {
        let everything = FilterRules::all();
        let rules = rules.unwrap_or(&everything);
        let split = alternatives(rules);
        if let Some(bucket) = self.bucket(tenant, event_type) {
            let former = self.by_id.get(&id).map(|slot| &self.subscriptions[*slot]);
            let same = former.filter(|former| former.tenant == *tenant && former.event_type == *event_type);
            bucket.check(rules, &split, same.map(|former| &former.holding), self.limits)?;
        }
        self.remove(&id);
        let bucket = self.bucket_or_new(tenant, event_type);
        let (tenant, event_type) = (tenant.clone(), event_type.clone());
        let subscription =
            Subscription { id: id.clone(), payload, tenant, event_type, bucket, holding: Holding::All };
        let slot = self.subscriptions.insert(subscription);
        let holding = self.buckets[bucket].insert(slot, rules, &split, &self.hasher);
        self.subscriptions[slot].holding = holding;
        self.by_id.insert(id, slot);
        Ok(())
    }

    /// Takes out a subscription and gives back what came with it.
    pub fn remove(&mut self, id: &I) -> Option<T> {
        let slot = self.by_id.remove(id)?;
        let gone = self.subscriptions.remove(slot);
        self.buckets[gone.bucket].remove(slot, &gone.holding, &self.hasher);
        self.drop_if_empty(gone.bucket, &gone.tenant, &gone.event_type);
        Some(gone.payload)
    }

    /// Tells `report` every subscription that wants an event of this type with this data, each once, in no order.
    pub fn matches(
        &self,
        tenant: &TenantId,
        event_type: &EventType,
        data: &Value,
        report: impl FnMut(&I, &T),
    ) -> MatchCounts {
        self.matches_within(usize::MAX, tenant, event_type, data, report)
            .expect("nobody has so many conditions")
    }

    /// The same, but if it takes more than `work_max` comparisons it returns none and reports nothing. A comparison
    /// with a list counts once more for every 8 items, one within a text for every 128 bytes. So a caller that serves
    /// many tenants in turn can put such an event aside, for another thread to finish.
    pub fn matches_within(
        &self,
        work_max: usize,
        tenant: &TenantId,
        event_type: &EventType,
        data: &Value,
        mut report: impl FnMut(&I, &T),
    ) -> Option<MatchCounts> {
        let Some(bucket) = self.bucket(tenant, event_type) else { return Some(MatchCounts::default()) };
        let mut slots = Vec::new();
        let tried = bucket.matches(data, &self.hasher, work_max, |slot| slots.push(slot))?;
        for slot in &slots {
            let subscription = &self.subscriptions[*slot];
            report(&subscription.id, &subscription.payload);
        }
        Some(MatchCounts { matched: slots.len(), filtered: bucket.len() - slots.len(), tried })
    }

    /// Tells `report` every subscription to an event type, whatever its rules. It looks at all there are, so it is for
    /// the rare event whose data cannot be read.
    pub fn each_of(&self, tenant: &TenantId, event_type: &EventType, mut report: impl FnMut(&I, &T)) {
        for slot in self.by_id.values() {
            let known = &self.subscriptions[*slot];
            if known.tenant == *tenant && known.event_type == *event_type {
                report(&known.id, &known.payload);
            }
        }
    }

    /// What came with a subscription.
    pub fn get(&self, id: &I) -> Option<&T> {
        self.by_id.get(id).map(|slot| &self.subscriptions[*slot].payload)
    }

    /// How many subscriptions there are of a tenant to an event type.
    pub fn count(&self, tenant: &TenantId, event_type: &EventType) -> usize {
        self.bucket(tenant, event_type).map_or(0, Bucket::len)
    }

    /// How many subscriptions there are in all.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// How many tenants have any.
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    fn bucket(&self, tenant: &TenantId, event_type: &EventType) -> Option<&Bucket> {
        let slot = self.tenants.get(tenant)?.get(event_type)?;
        Some(&self.buckets[*slot])
    }

    fn bucket_or_new(&mut self, tenant: &TenantId, event_type: &EventType) -> Slot {
        let seeded = || HashMap::with_hasher(FixedState::with_seed(self.hasher.seed()));
        let types = self.tenants.entry(tenant.clone()).or_insert_with(seeded);
        *types.entry(event_type.clone()).or_insert_with(|| self.buckets.insert(Bucket::new(self.tuning)))
    }

    fn drop_if_empty(&mut self, bucket: Slot, tenant: &TenantId, event_type: &EventType) {
        if self.buckets[bucket].len() > 0 {
            return;
        }
        let gone = self.buckets.remove(bucket);
        debug_assert!(gone.is_bare(), "whoever goes leaves nothing behind");
        if let Some(types) = self.tenants.get_mut(tenant) {
            types.remove(event_type);
            if types.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(value: &Value) -> FilterRules {
        FilterRules::parse(value).unwrap()
    }

    fn names() -> (TenantId, TenantId, EventType, EventType) {
        let tenant = |name| TenantId::new(name).unwrap();
        let event_type = |name| EventType::new(name).unwrap();
        (tenant("one"), tenant("two"), event_type("user.created"), event_type("user.gone"))
    }

    #[test]
    fn sc_02_sc_05_all_subscriptions_of_the_tenant_and_type_are_told_and_no_other() {
        let (one, two, created, gone) = names();
        let mut matcher = Matcher::new(1);
        let admin = rules(&json!({"role": "admin"}));
        matcher.insert(1, &one, &created, Some(&admin), "first").unwrap();
        matcher.insert(2, &one, &created, None, "second").unwrap();
        matcher.insert(3, &one, &created, Some(&rules(&json!({"role": "guest"}))), "third").unwrap();
        matcher.insert(4, &two, &created, Some(&admin), "of another").unwrap();
        matcher.insert(5, &one, &gone, Some(&admin), "of another type").unwrap();
        let mut told = Vec::new();
        let event = json!({"role": "admin"});
        let counts = matcher.matches(&one, &created, &event, |id, payload| told.push((*id, *payload)));
        told.sort_unstable();
        assert_eq!(told, [(1, "first"), (2, "second")]);
        assert_eq!((counts.matched, counts.filtered), (2, 1));
        assert_eq!(matcher.matches(&two, &gone, &event, |_, _| ()), MatchCounts::default());
        assert_eq!((matcher.len(), matcher.count(&one, &created), matcher.get(&3)), (5, 3, Some(&"third")));
    }

    #[test]
    fn sc_04_a_subscription_that_is_taken_out_is_not_told_and_one_that_comes_again_is() {
        let (one, two, created, _) = names();
        let mut matcher = Matcher::new(1);
        let event = json!({"n": 1});
        let told = |matcher: &Matcher<u32, u32>, tenant: &TenantId| {
            let mut told = Vec::new();
            matcher.matches(tenant, &created, &event, |_, payload| told.push(*payload));
            told
        };
        matcher.insert(1, &one, &created, None, 10).unwrap();
        assert_eq!(told(&matcher, &one), [10]);
        assert_eq!(matcher.remove(&1), Some(10));
        assert_eq!((told(&matcher, &one), matcher.remove(&1)), (Vec::new(), None));
        matcher.insert(1, &one, &created, Some(&rules(&json!({"n": 1}))), 11).unwrap();
        assert_eq!(told(&matcher, &one), [11]);
        matcher.insert(1, &two, &created, None, 12).unwrap();
        assert_eq!((told(&matcher, &one), told(&matcher, &two)), (Vec::new(), vec![12]));
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let (one, two, created, _) = names();
        let limits = Limits { subscriptions: 2, conditions: 3, bytes: 1000 };
        let mut matcher = Matcher::tuned(1, Tuning::default(), limits);
        let of = |count: usize| rules(&(0..count).map(|at| (format!("f{at}"), json!(at))).collect());
        matcher.insert(1, &one, &created, Some(&of(1)), ()).unwrap();
        matcher.insert(2, &one, &created, Some(&of(2)), ()).unwrap();
        let third = matcher.insert(3, &one, &created, None, ());
        assert_eq!(third, Err(BucketFull::Subscriptions { limit: 2 }));
        let longer = matcher.insert(1, &one, &created, Some(&of(2)), ());
        assert_eq!(longer, Err(BucketFull::Conditions { count: 4, limit: 3 }));
        let larger = rules(&json!({"a": "x".repeat(1000)}));
        let large = matcher.insert(1, &one, &created, Some(&larger), ());
        assert!(matches!(large, Err(BucketFull::Bytes { count: 1000.., limit: 1000 })), "{large:?}");
        let counts = matcher.matches(&one, &created, &json!({"f0": 0, "f1": 1}), |_, ()| ());
        assert_eq!((counts.matched, counts.filtered), (2, 0), "both are as they were");
        matcher.insert(1, &one, &created, Some(&of(1)), ()).unwrap();
        matcher.insert(1, &two, &created, Some(&of(3)), ()).unwrap();
        matcher.insert(3, &one, &created, Some(&of(1)), ()).unwrap();
    }

    /// What an event costs goes with what it matches, not with how many subscriptions there are.
    #[test]
    fn sc_07_a_hundred_times_the_subscriptions_take_no_more_tries() {
        let (one, _, created, _) = names();
        let event =
            json!({"store": {"id": 7}, "amount": 75, "message": "the order of store 7 is late", "vip": true});
        for (name, rules_of) in [
            ("a value", (|at| json!({"store.id": at / 10})) as fn(usize) -> Value),
            ("a value beside others", |at| json!({"store.id": at / 10, "vip": true, "amount": {"gt": 1}})),
            ("a span", |at| json!({"amount": {"gte": at / 10 * 10, "lt": at / 10 * 10 + 10}, "vip": true})),
            ("a list", |at| json!({"store.id": {"in": [at / 10, 1_000_000 + at]}})),
            ("a part of a text", |at| json!({"message": {"contains": format!("store {} is", at / 10)}})),
            ("either", |at| {
                json!({"logic": "OR", "conditions": [
                    {"field": "store.id", "op": "eq", "value": at / 10}, {"field": "amount", "op": "eq", "value": 1_000 + at}
                ]})
            }),
        ] {
            let tried = [100, 10_000].map(|count| {
                let mut matcher = Matcher::new(1);
                for at in 0..count {
                    matcher.insert(at, &one, &created, Some(&rules(&rules_of(at))), ()).unwrap();
                }
                let counts = matcher.matches(&one, &created, &event, |_, ()| ());
                assert_eq!((counts.matched, counts.filtered), (10, count - 10), "{name}");
                counts.tried
            });
            assert!(tried[1] <= tried[0].max(20), "{name}: {tried:?}");
        }
    }

    #[test]
    fn an_event_that_takes_too_long_is_put_aside_whole() {
        let (one, _, created, _) = names();
        let mut matcher = Matcher::new(1);
        for id in 0..100 {
            matcher.insert(id, &one, &created, Some(&rules(&json!({"a": {"ne": id}}))), ()).unwrap();
        }
        let mut told = 0;
        assert_eq!(matcher.matches_within(99, &one, &created, &json!({}), |_, ()| told += 1), None);
        assert_eq!(told, 0);
        let counts = matcher.matches_within(100, &one, &created, &json!({"a": 5}), |_, ()| told += 1);
        assert_eq!((told, counts), (99, Some(MatchCounts { matched: 99, filtered: 1, tried: 100 })));
    }
}
