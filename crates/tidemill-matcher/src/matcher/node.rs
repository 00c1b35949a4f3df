//! A set of conjunctions that an event reached, small enough to try each or split further.

use super::access::{Access, Place, accesses};
use super::branch::Branch;
use super::conjunction::Conjunction;
use super::event_values::EventValues;
use super::slab::{Slab, Slot};
use super::value_hash::ValueHasher;

/// How many places an event may pass on its way to a conjunction.
pub(super) const DEPTH_MAX: usize = 6;

#[derive(Debug)]
pub(super) enum Node {
    One(Slot),
    Leaf(Box<Leaf>),
    Branch(Box<Branch>),
}

#[derive(Debug, Default)]
pub(super) struct Leaf(Vec<Slot>);

/// When a set is split: how many it may have. Below that, trying each costs less than looking up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuning {
    /// How many all conjunctions of a bucket may be.
    pub(super) root: usize,
    /// How many a set below the root may have.
    pub(super) leaf: usize,
    /// How long a run of neighbouring bounds may be.
    pub(super) run: usize,
    /// How often one text of an event is searched as a whole.
    pub(super) scans: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { root: 48, leaf: 24, run: 256, scans: 32 }
    }
}

/// What changes need to know of the bucket.
#[derive(Clone, Copy)]
pub(super) struct Catalogue<'b> {
    pub(super) conjunctions: &'b Slab<Conjunction>,
    pub(super) hasher: &'b ValueHasher,
    pub(super) tuning: Tuning,
}

impl Node {
    pub(super) fn empty() -> Self {
        Self::Leaf(Box::default())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Leaf(leaf) => leaf.0.len(),
            Self::Branch(branch) => branch.len(),
        }
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        match self {
            Self::One(slot) => vec![*slot],
            Self::Leaf(leaf) => leaf.0.clone(),
            Self::Branch(branch) => branch.slots().collect(),
        }
    }

    pub(super) fn insert(&mut self, slot: Slot, catalogue: Catalogue<'_>, trail: &mut Vec<Place>) {
        match self {
            Self::One(other) => *self = Self::Leaf(Box::new(Leaf(vec![*other, slot]))),
            Self::Branch(branch) => branch.insert(slot, catalogue, trail),
            Self::Leaf(leaf) => {
                leaf.0.push(slot);
                if leaf.is_due(catalogue, trail) {
                    let mut branch = Branch::default();
                    for slot in &leaf.0 {
                        branch.insert(*slot, catalogue, trail);
                    }
                    *self = Self::Branch(Box::new(branch));
                }
            }
        }
    }

    /// Takes `slot` out and tells whether nothing is left.
    pub(super) fn remove(&mut self, slot: Slot, catalogue: Catalogue<'_>, trail: &mut Vec<Place>) -> bool {
        match self {
            Self::One(other) => *other == slot,
            Self::Leaf(leaf) => {
                if let Some(at) = leaf.0.iter().position(|other| *other == slot) {
                    leaf.0.swap_remove(at);
                }
                leaf.0.is_empty()
            }
            Self::Branch(branch) => {
                branch.remove(slot, catalogue, trail);
                debug_assert!(branch.len() > 0 || branch.is_bare(), "whoever goes leaves nothing behind");
                if branch.len() <= catalogue.tuning.leaf / 4 {
                    *self = Self::Leaf(Box::new(Leaf(branch.slots().collect())));
                }
                self.len() == 0
            }
        }
    }

    /// Everything that an event may match.
    pub(super) fn visit(&self, event: &EventValues<'_>, hasher: &ValueHasher, found: &mut dyn FnMut(Slot)) {
        match self {
            Self::One(slot) => found(*slot),
            Self::Leaf(leaf) => leaf.0.iter().for_each(|slot| found(*slot)),
            Self::Branch(branch) => branch.visit(event, hasher, found),
        }
    }
}

impl Leaf {
    /// Whether it should be split: it is too long, and most of what it holds can be told apart. A leaf that cannot be
    /// split is looked at again only when it has doubled.
    fn is_due(&self, catalogue: Catalogue<'_>, trail: &[Place]) -> bool {
        let limit = if trail.is_empty() { catalogue.tuning.root } else { catalogue.tuning.leaf };
        let before = self.0.len() - 1;
        let doubled = before.is_multiple_of(limit) && (before / limit).is_power_of_two();
        if !doubled || trail.len() >= DEPTH_MAX {
            return false;
        }
        let tells_apart = |slot: &&Slot| {
            let ways = accesses(&catalogue.conjunctions[**slot], trail, catalogue.hasher);
            ways.iter().any(|way| *way != Access::Rest)
        };
        self.0.iter().filter(tells_apart).count() * 2 >= self.0.len()
    }
}
