//! A set of conjunctions too large to try each: every one hangs in one of several indexes.
//!
//! A conjunction hangs under the comparison that the fewest others hang under when it comes. So a rare value keeps
//! its place for the conjunctions that ask for it, and a frequent one fills up only with those that ask for nothing
//! else.

use std::sync::Arc;

use super::access::{Access, Place, accesses, number_interval, places, text_interval};
use super::conjunction::Conjunction;
use super::event_values::EventValues;
use super::intervals::{Among, Interval, Intervals};
use super::key_map::{KeyMap, join};
use super::node::{Catalogue, DEPTH_MAX, Node};
use super::path_index::{PathIndex, hang, shrink};
use super::path_trie::PathId;
use super::slab::Slot;
use super::value_hash::ValueHasher;

/// How many sets of fields are looked up together; each costs every event a look.
const SIGNATURES_MAX: usize = 128;
/// How many fields are looked at for being absent; each costs every event a look.
const ABSENT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Branch {
    /// Under which comparison each hangs.
    chosen: KeyMap<Slot, Access>,
    signatures: Vec<Signature>,
    paths: KeyMap<PathId, PathIndex>,
    absent: Vec<(PathId, Node)>,
    rest: Vec<Slot>,
}

/// Fields whose values are looked up together.
#[derive(Debug)]
struct Signature {
    paths: Arc<[PathId]>,
    nodes: KeyMap<u64, Node>,
}

impl Branch {
    pub(super) fn len(&self) -> usize {
        self.chosen.len()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.chosen.keys().copied()
    }

    /// Whether nothing hangs anywhere.
    pub(super) fn is_bare(&self) -> bool {
        self.signatures.is_empty() && self.paths.is_empty() && self.absent.is_empty() && self.rest.is_empty()
    }

    pub(super) fn insert(&mut self, slot: Slot, catalogue: Catalogue<'_>, trail: &mut Vec<Place>) {
        let conjunction = &catalogue.conjunctions[slot];
        let access = self.choose(conjunction, catalogue, trail);
        self.chosen.insert(slot, access);
        if let Some(bounds) = Bounds::of(access, conjunction) {
            let index = self.paths.entry(bounds.path).or_default();
            return bounds.change(index, slot, catalogue, trail, Intervals::insert);
        }
        if access == Access::Rest {
            return self.rest.push(slot);
        }
        for place in places(access, conjunction, trail, catalogue.hasher) {
            if let Some(node) = self.hang(&place, slot) {
                trail.push(place);
                node.insert(slot, catalogue, trail);
                trail.pop();
            }
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, catalogue: Catalogue<'_>, trail: &mut Vec<Place>) {
        let Some(access) = self.chosen.remove(&slot) else { return };
        let conjunction = &catalogue.conjunctions[slot];
        if let Some(bounds) = Bounds::of(access, conjunction) {
            return self.change(bounds.path, |index| {
                bounds.change(index, slot, catalogue, trail, Intervals::remove);
            });
        }
        if access == Access::Rest {
            if let Some(at) = self.rest.iter().position(|other| *other == slot) {
                self.rest.swap_remove(at);
            }
            return;
        }
        for place in places(access, conjunction, trail, catalogue.hasher) {
            trail.push(place.clone());
            self.shrink(&place, |node| node.remove(slot, catalogue, trail));
            trail.pop();
        }
    }

    pub(super) fn visit(&self, event: &EventValues<'_>, hasher: &ValueHasher, found: &mut dyn FnMut(Slot)) {
        for signature in &self.signatures {
            if let Some(node) = signature.key(event, hasher).and_then(|key| signature.nodes.get(&key)) {
                node.visit(event, hasher, found);
            }
        }
        if self.paths.len() < event.all().len() {
            for (path, index) in &self.paths {
                if let Some(value) = event.find(*path) {
                    index.visit(value, event, hasher, found);
                }
            }
        } else {
            for value in event.all() {
                if let Some(index) = self.paths.get(&value.path) {
                    index.visit(value, event, hasher, found);
                }
            }
        }
        for (path, node) in &self.absent {
            if event.find(*path).is_none() {
                node.visit(event, hasher, found);
            }
        }
        self.rest.iter().for_each(|slot| found(*slot));
    }

    /// The way with the least company.
    fn choose(&self, conjunction: &Conjunction, catalogue: Catalogue<'_>, trail: &[Place]) -> Access {
        let ways = accesses(conjunction, trail, catalogue.hasher);
        let narrowing = ways.iter().filter(|way| way.narrows() && **way != Access::Signature).count();
        let options = ways.iter().flat_map(|way| windows(*way, conjunction)).filter_map(|way| {
            let beside = match way {
                // All that are compared for equality are used up at once.
                Access::Signature => ways.iter().any(|way| way.narrows() && !is_equality(*way)),
                _ => narrowing > usize::from(way.narrows()),
            };
            let (crowd, own) = self.company(way, conjunction, catalogue, trail)?;
            Some((own + cost(crowd, way, beside, catalogue.tuning.leaf), way))
        });
        options.min_by_key(|(cost, _)| *cost).map_or(Access::Rest, |(_, way)| way)
    }

    /// How many hang where `way` would lead, and what the way itself costs an event. None if there is no room.
    fn company(
        &self,
        way: Access,
        conjunction: &Conjunction,
        catalogue: Catalogue<'_>,
        trail: &[Place],
    ) -> Option<(usize, usize)> {
        if let Some(bounds) = Bounds::of(way, conjunction) {
            let intervals = self.paths.get(&bounds.path).and_then(|index| match bounds.kind {
                BoundsKind::Numbers => index.numbers(),
                BoundsKind::Texts => index.text_order(),
            });
            // Of those that reach over the same middle, an event finds a half.
            return Some((intervals.map_or(0, |all| all.crowd(bounds.interval) / 2), 12));
        }
        let places = places(way, conjunction, trail, catalogue.hasher);
        if places.iter().any(|place| trail.contains(place)) {
            return None;
        }
        let crowd = places.iter().filter_map(|place| self.at(place)).map(Node::len).max().unwrap_or(0);
        let own = match way {
            Access::Equal(_) => places.len() / 2,
            Access::Signature => match &places[0] {
                Place::Signature(paths, _) if self.signature(paths).is_some() => 6,
                _ if self.signatures.len() < SIGNATURES_MAX => 40,
                _ => return None,
            },
            Access::Prefix(_) | Access::Suffix(_) => 8,
            Access::Contains { .. } => 16,
            Access::Absent(_) if crowd == 0 && self.absent.len() >= ABSENT_MAX => return None,
            // What is there or not says little; anything else comes first, however crowded.
            _ => 256,
        };
        Some((crowd, own))
    }

    fn signature(&self, paths: &[PathId]) -> Option<usize> {
        self.signatures.iter().position(|signature| *signature.paths == *paths)
    }

    fn at(&self, place: &Place) -> Option<&Node> {
        match place {
            Place::Signature(paths, key) => self.signatures[self.signature(paths)?].nodes.get(key),
            Place::Absent(path) => self.absent.iter().find(|(other, _)| other == path).map(|(_, node)| node),
            place => self.paths.get(&place.path()?)?.at(place),
        }
    }

    /// Hangs `first` at a free place, or gives what hangs there.
    fn hang(&mut self, place: &Place, first: Slot) -> Option<&mut Node> {
        match place {
            Place::Signature(paths, key) => {
                let at = self.signature(paths).unwrap_or_else(|| {
                    self.signatures.push(Signature { paths: Arc::clone(paths), nodes: KeyMap::default() });
                    self.signatures.len() - 1
                });
                hang(&mut self.signatures[at].nodes, *key, first)
            }
            Place::Absent(path) => {
                if let Some(at) = self.absent.iter().position(|(other, _)| other == path) {
                    return Some(&mut self.absent[at].1);
                }
                self.absent.push((*path, Node::One(first)));
                None
            }
            place => self.paths.entry(place.path()?).or_default().hang(place, first),
        }
    }

    /// Lets `change` at what hangs at a place, and takes it down if that says that nothing is left.
    fn shrink(&mut self, place: &Place, change: impl FnOnce(&mut Node) -> bool) {
        match place {
            Place::Signature(paths, key) => {
                let Some(at) = self.signature(paths) else { return };
                shrink(&mut self.signatures[at].nodes, *key, change);
                if self.signatures[at].nodes.is_empty() {
                    self.signatures.swap_remove(at);
                }
            }
            Place::Absent(path) => {
                let Some(at) = self.absent.iter().position(|(other, _)| other == path) else { return };
                if change(&mut self.absent[at].1) {
                    self.absent.swap_remove(at);
                }
            }
            place => {
                if let Some(path) = place.path() {
                    self.change(path, |index| index.shrink(place, change));
                }
            }
        }
    }

    fn change(&mut self, path: PathId, change: impl FnOnce(&mut PathIndex)) {
        if let Some(index) = self.paths.get_mut(&path) {
            change(index);
            if index.is_empty() {
                self.paths.remove(&path);
            }
        }
    }
}

/// What a way through an interval is looked up by.
struct Bounds {
    kind: BoundsKind,
    path: PathId,
    interval: Interval,
}

#[derive(Clone, Copy)]
enum BoundsKind {
    Numbers,
    Texts,
}

impl Bounds {
    fn of(access: Access, conjunction: &Conjunction) -> Option<Self> {
        let (kind, at) = match access {
            Access::Numbers(at) => (BoundsKind::Numbers, at),
            Access::Texts(at) => (BoundsKind::Texts, at),
            _ => return None,
        };
        let path = conjunction.predicates[usize::from(at)].path;
        Some(Self { kind, path, interval: kind.interval(conjunction, path) })
    }

    fn change(
        &self,
        index: &mut PathIndex,
        slot: Slot,
        catalogue: Catalogue<'_>,
        trail: &mut Vec<Place>,
        change: impl FnOnce(&mut Intervals, Interval, Slot, Option<Among<'_, '_>>),
    ) {
        let Self { kind, path, interval } = *self;
        trail.push(match kind {
            BoundsKind::Numbers => Place::Numbers(path),
            BoundsKind::Texts => Place::Texts(path),
        });
        // What a run would be asked for next. It does not change while the conjunction is here.
        let further = trail.len() < DEPTH_MAX
            && accesses(&catalogue.conjunctions[slot], trail, catalogue.hasher)
                .iter()
                .any(|way| way.narrows());
        let interval_of = |slot: Slot| kind.interval(&catalogue.conjunctions[slot], path);
        let among = further.then_some(Among { interval_of: &interval_of, catalogue, trail });
        let intervals = |intervals: &mut Intervals| change(intervals, interval, slot, among);
        match kind {
            BoundsKind::Numbers => index.change_numbers(intervals),
            BoundsKind::Texts => index.change_text_order(intervals),
        }
        trail.pop();
    }
}

impl BoundsKind {
    fn interval(self, conjunction: &Conjunction, path: PathId) -> Interval {
        match self {
            Self::Numbers => number_interval(conjunction, path),
            Self::Texts => text_interval(conjunction, path),
        }
    }
}

/// What it costs an event to find `crowd` conjunctions with one it wants. `beside` says whether they could be told
/// apart further on; then each doubling costs one more look. An equal value is worth more than a part or a bound,
/// which most events may have.
fn cost(crowd: usize, way: Access, beside: bool, leaf_max: usize) -> usize {
    if !beside || crowd <= leaf_max || !way.narrows() {
        return 4 * crowd;
    }
    let doublings = (crowd / leaf_max).ilog2() as usize;
    4 * leaf_max + doublings * if is_equality(way) { 8 } else { 24 }
}

impl Signature {
    /// The key of an event that has all the fields.
    fn key(&self, event: &EventValues<'_>, hasher: &ValueHasher) -> Option<u64> {
        self.paths
            .iter()
            .try_fold(hasher.seed(), |key, path| Some(join(key, event.find(*path)?.hash(hasher))))
    }
}

fn is_equality(way: Access) -> bool {
    matches!(way, Access::Equal(_) | Access::Signature)
}

/// A way through a part of a text is one for each of its windows.
fn windows(way: Access, conjunction: &Conjunction) -> Vec<Access> {
    let Access::Contains { predicate, .. } = way else { return vec![way] };
    let value = &conjunction.predicates[usize::from(predicate)].value;
    let count = value.as_str().map_or(1, |text| super::grams::grams(text, 0).count());
    (0..u16::try_from(count).unwrap_or(u16::MAX)).map(|gram| Access::Contains { predicate, gram }).collect()
}
