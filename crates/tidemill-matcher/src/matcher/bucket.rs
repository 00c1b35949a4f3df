//! The subscriptions of one tenant to one event type.

use std::sync::Arc;

use serde_json::Value;

use super::alternatives::Alternatives;
use super::conjunction::{Conjunction, Predicate, Tree};
use super::key_map::KeySet;
use super::node::{Catalogue, Node, Tuning};
use super::path_trie::PathTrie;
use super::slab::{Slab, Slot};
use super::value_hash::ValueHasher;
use crate::filter::{Condition, FilterRules};

/// How many subscriptions a tenant may have to one event type.
pub const BUCKET_SUBSCRIPTIONS_MAX: usize = 100_000;
/// How many conditions these may have in all, alternatives spread out. No event is compared more often than this,
/// whatever the rules are.
pub const BUCKET_CONDITIONS_MAX: usize = 1_000_000;
/// How many bytes the values of these conditions may take in memory, about.
pub const BUCKET_BYTES_MAX: usize = 128 * 1024 * 1024;

/// How many conjunctions are fetched from memory at a time, to be tried.
const CANDIDATES_MAX: usize = 32;

/// Why a subscription was not taken in: the tenant has too much of something for this event type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BucketFull {
    #[error("there are {limit} subscriptions to this event type, which is the limit")]
    Subscriptions { limit: usize },
    #[error("filters of this event type would have {count} conditions in all; the limit is {limit}")]
    Conditions { count: usize, limit: usize },
    #[error("filters of this event type would take {count} bytes in all; the limit is {limit}")]
    Bytes { count: usize, limit: usize },
}

/// How much a bucket may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) subscriptions: usize,
    pub(super) conditions: usize,
    pub(super) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            subscriptions: BUCKET_SUBSCRIPTIONS_MAX,
            conditions: BUCKET_CONDITIONS_MAX,
            bytes: BUCKET_BYTES_MAX,
        }
    }
}

/// What one subscription holds of a bucket.
#[derive(Debug)]
pub(super) enum Holding {
    /// It wants every event.
    All,
    Alternatives(Box<[Slot]>),
}

#[derive(Debug)]
pub(super) struct Bucket {
    paths: PathTrie,
    conjunctions: Slab<Conjunction>,
    root: Node,
    /// Subscriptions that want every event.
    all: Vec<Slot>,
    subscriptions: usize,
    conditions: usize,
    bytes: usize,
    tuning: Tuning,
}

impl Bucket {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            paths: PathTrie::new(),
            conjunctions: Slab::new(),
            root: Node::empty(),
            all: Vec::new(),
            subscriptions: 0,
            conditions: 0,
            bytes: 0,
            tuning,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.subscriptions
    }

    /// Whether nothing is kept for anybody.
    pub(super) fn is_bare(&self) -> bool {
        let counted = self.subscriptions + self.conditions + self.bytes + self.all.len();
        counted == 0 && self.root.len() == 0 && self.paths.is_empty()
    }

    /// Whether there is room for a subscription, in place of `former` if that is given.
    pub(super) fn check(
        &self,
        rules: &FilterRules,
        split: &Alternatives<'_>,
        former: Option<&Holding>,
        limits: Limits,
    ) -> Result<(), BucketFull> {
        let former_slots = match former {
            Some(Holding::Alternatives(slots)) => &slots[..],
            _ => &[],
        };
        let leaving = || former_slots.iter().map(|slot| &self.conjunctions[*slot]);
        let conditions =
            self.conditions + split.conditions(rules) - leaving().map(Conjunction::conditions).sum::<usize>();
        let bytes = self.bytes + split.bytes(rules) - leaving().map(Conjunction::bytes).sum::<usize>();
        if self.subscriptions - usize::from(former.is_some()) >= limits.subscriptions {
            return Err(BucketFull::Subscriptions { limit: limits.subscriptions });
        }
        if conditions > limits.conditions {
            return Err(BucketFull::Conditions { count: conditions, limit: limits.conditions });
        }
        if bytes > limits.bytes {
            return Err(BucketFull::Bytes { count: bytes, limit: limits.bytes });
        }
        Ok(())
    }

    pub(super) fn insert(
        &mut self,
        subscription: Slot,
        rules: &FilterRules,
        split: &Alternatives<'_>,
        hasher: &ValueHasher,
    ) -> Holding {
        self.subscriptions += 1;
        self.conditions += split.conditions(rules);
        self.bytes += split.bytes(rules);
        if split.conjunctions.iter().any(Vec::is_empty) {
            self.all.push(subscription);
            return Holding::All;
        }
        let lone = split.conjunctions.len() == 1;
        let rules = (!split.exact)
            .then(|| Arc::new(Tree::of(rules.root(), &mut |condition| self.predicate(condition, hasher))));
        let slots = split.conjunctions.iter().map(|conditions| {
            let predicates = conditions.iter().map(|condition| self.predicate(condition, hasher)).collect();
            let slot = self.conjunctions.insert(Conjunction {
                subscription,
                lone,
                rules: rules.clone(),
                predicates,
            });
            let catalogue = Catalogue { conjunctions: &self.conjunctions, hasher, tuning: self.tuning };
            self.root.insert(slot, catalogue, &mut Vec::new());
            slot
        });
        Holding::Alternatives(slots.collect())
    }

    fn predicate(&mut self, condition: &Condition, hasher: &ValueHasher) -> Predicate {
        let Condition { field, operator, value } = condition;
        Predicate { path: self.paths.keep(field, hasher), operator: *operator, value: value.clone() }
    }

    pub(super) fn remove(&mut self, subscription: Slot, holding: &Holding, hasher: &ValueHasher) {
        self.subscriptions -= 1;
        match holding {
            Holding::All => {
                if let Some(at) = self.all.iter().position(|other| *other == subscription) {
                    self.all.swap_remove(at);
                }
            }
            Holding::Alternatives(slots) => {
                for slot in slots {
                    let catalogue =
                        Catalogue { conjunctions: &self.conjunctions, hasher, tuning: self.tuning };
                    self.root.remove(*slot, catalogue, &mut Vec::new());
                    let gone = self.conjunctions.remove(*slot);
                    self.conditions -= gone.conditions();
                    self.bytes -= gone.bytes();
                    for predicate in &gone.predicates {
                        self.paths.give_back(predicate.path);
                    }
                    // The last alternative takes the rules along that all had in common.
                    if let Some(rules) = gone.rules.and_then(Arc::into_inner) {
                        for predicate in rules.predicates() {
                            self.paths.give_back(predicate.path);
                        }
                    }
                }
            }
        }
    }

    /// Reports every subscription that wants an event with this data, once, and how many conjunctions were tried.
    /// When it made `work_max` comparisons it gives up and returns none; then not all may have been reported.
    pub(super) fn matches(
        &self,
        data: &Value,
        hasher: &ValueHasher,
        work_max: usize,
        mut tell: impl FnMut(Slot),
    ) -> Option<usize> {
        self.all.iter().for_each(|subscription| tell(*subscription));
        let event = self.paths.values(data, self.tuning.scans);
        let mut told = KeySet::default();
        let (mut tried, mut enough) = (0, true);
        let mut candidates = Vec::with_capacity(CANDIDATES_MAX);
        let mut try_all = |candidates: &mut Vec<Slot>| {
            // Nothing here waits for anything else, so what lies far away comes from memory side by side.
            for slot in candidates.iter() {
                self.conjunctions[*slot].touch();
            }
            for slot in candidates.drain(..) {
                enough = enough && event.work() < work_max;
                if !enough {
                    break;
                }
                let conjunction = &self.conjunctions[slot];
                if !conjunction.lone && told.contains(&conjunction.subscription) {
                    continue;
                }
                tried += 1;
                if conjunction.holds(&event) {
                    if !conjunction.lone {
                        told.insert(conjunction.subscription);
                    }
                    tell(conjunction.subscription);
                }
            }
        };
        self.root.visit(&event, hasher, &mut |slot| {
            candidates.push(slot);
            if candidates.len() == CANDIDATES_MAX {
                try_all(&mut candidates);
            }
        });
        try_all(&mut candidates);
        enough.then_some(tried)
    }
}
