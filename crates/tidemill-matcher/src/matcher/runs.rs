//! Conjunctions in the order of a bound, in runs that are sets of their own.
//!
//! Of those whose bound an event passes most may fail elsewhere. A run is passed as a whole and then asked for the
//! rest, so that not each of them has to be tried.

use std::collections::BTreeMap;

use super::access::Place;
use super::event_values::EventValues;
use super::node::{Catalogue, Node};
use super::slab::Slot;
use super::value_hash::ValueHasher;

/// A bound, and whose it is: no two are the same.
type Key = (u128, Slot);

/// Each run is kept under the lowest key it held; it ends where the next begins.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<Key, Node>,
}

impl Runs {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(super) fn insert(
        &mut self,
        slot: Slot,
        bound_of: &dyn Fn(Slot) -> u128,
        catalogue: Catalogue<'_>,
        trail: &mut Vec<Place>,
    ) {
        let key = (bound_of(slot), slot);
        let start = self.runs.range(..=key).next_back().or_else(|| self.runs.first_key_value());
        let Some((start, mut run)) =
            start.map(|(start, _)| *start).and_then(|start| self.runs.remove_entry(&start))
        else {
            self.runs.insert(key, Node::One(slot));
            return;
        };
        run.insert(slot, catalogue, trail);
        if run.len() > catalogue.tuning.run {
            self.halve(&run, bound_of, catalogue, trail);
        } else {
            self.runs.insert(start.min(key), run);
        }
    }

    fn halve(
        &mut self,
        run: &Node,
        bound_of: &dyn Fn(Slot) -> u128,
        catalogue: Catalogue<'_>,
        trail: &mut Vec<Place>,
    ) {
        let mut keys: Vec<Key> = run.slots().into_iter().map(|slot| (bound_of(slot), slot)).collect();
        keys.sort_unstable();
        for half in keys.chunks(keys.len().div_ceil(2)) {
            let mut run = Node::empty();
            for (_, slot) in half {
                run.insert(*slot, catalogue, trail);
            }
            self.runs.insert(half[0], run);
        }
    }

    pub(super) fn remove(
        &mut self,
        slot: Slot,
        bound: u128,
        catalogue: Catalogue<'_>,
        trail: &mut Vec<Place>,
    ) {
        let Some((start, run)) = self.runs.range_mut(..=(bound, slot)).next_back() else { return };
        if run.remove(slot, catalogue, trail) {
            let start = *start;
            self.runs.remove(&start);
        }
    }

    /// Every run with a bound that is not above `point`.
    pub(super) fn visit_up_to(
        &self,
        point: u128,
        event: &EventValues<'_>,
        hasher: &ValueHasher,
        found: &mut dyn FnMut(Slot),
    ) {
        self.runs.range(..=(point, Slot::MAX)).for_each(|(_, run)| run.visit(event, hasher, found));
    }
}
