//! Intervals, and which of them hold a point.
//!
//! An interval is kept at the smallest block of a fixed halving of all keys that holds it whole, so it reaches over the
//! middle of its block. A point lies in at most one block of each size, and in one half of it: there the intervals
//! that hold it are those that begin before it, or, in the other half, end after it. Nothing has to be balanced.
//! Conjunctions that could be told apart by something else too are kept in [`Runs`], all others one by one. Of the
//! latter, few are kept as a plain list: to look at each costs less than to look for a block of every size.

use std::collections::BTreeSet;
use std::ops::Bound;

use serde_json::Number;

use super::access::Place;
use super::event_values::EventValues;
use super::key_map::KeyMap;
use super::node::Catalogue;
use super::runs::Runs;
use super::slab::Slot;
use super::value_hash::ValueHasher;
use crate::filter::fraction;

/// How long a plain list may be.
const LISTED_MAX: usize = 256;

/// Keys from `low` to `high`, both within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) low: u128,
    pub(super) high: u128,
}

/// The key of a number: in the order of numbers, and equal for some that differ in the last digits only.
pub(super) fn number_key(number: &Number) -> u128 {
    // Makes one of the two zeros.
    let bits = (fraction(number) + 0.0).to_bits();
    let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
    u128::from(ordered) << 64
}

/// The key of a text: its first 16 bytes.
pub(super) fn text_key(text: &str) -> u128 {
    let mut bytes = [0; 16];
    let length = text.len().min(16);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    u128::from_be_bytes(bytes)
}

#[derive(Debug, Default)]
pub(super) struct Intervals {
    listed: Listed,
    /// How many blocks of each size are in use, with the largest first; the size is the number of bits that all keys of
    /// the block share.
    levels: Vec<(u32, u32)>,
    blocks: KeyMap<Block, Crossing>,
    /// How many of those in blocks are kept one by one. While there are some, none is listed.
    singles: usize,
}

/// A few intervals, all of which are looked at. Most of the look is at the upper halves of their ends.
#[derive(Debug, Default)]
struct Listed {
    lows: Vec<u64>,
    highs: Vec<u64>,
    whole: Vec<(Interval, Slot)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Block {
    level: u32,
    shared: u128,
}

/// The intervals that reach over the middle of a block.
#[derive(Debug, Default)]
struct Crossing {
    len: usize,
    by_low: BTreeSet<(u128, Slot)>,
    by_high: BTreeSet<(u128, Slot)>,
    runs_by_low: Runs,
    /// The last comes first, so that what ends after a point is at the beginning here too.
    runs_by_high: Runs,
}

/// What is needed to put a conjunction into a run: the intervals of those that are there, the bucket and the way here.
pub(super) struct Among<'a, 'b> {
    pub(super) interval_of: &'a dyn Fn(Slot) -> Interval,
    pub(super) catalogue: Catalogue<'b>,
    pub(super) trail: &'a mut Vec<Place>,
}

impl Block {
    fn of(interval: Interval) -> Self {
        Self::around(interval.low, (interval.low ^ interval.high).leading_zeros())
    }

    fn around(point: u128, level: u32) -> Self {
        Self { level, shared: point.checked_shr(u128::BITS - level).unwrap_or(0) }
    }
}

/// The half of a key that most comparisons can do with.
fn upper(key: u128) -> u64 {
    (key >> 64) as u64
}

impl Listed {
    fn push(&mut self, interval: Interval, slot: Slot) {
        self.lows.push(upper(interval.low));
        self.highs.push(upper(interval.high));
        self.whole.push((interval, slot));
    }

    /// Takes `slot` out and tells whether it was there.
    fn remove(&mut self, slot: Slot) -> bool {
        let at = self.whole.iter().position(|(_, other)| *other == slot);
        if let Some(at) = at {
            self.lows.swap_remove(at);
            self.highs.swap_remove(at);
            self.whole.swap_remove(at);
        }
        at.is_some()
    }

    fn visit(&self, point: u128, found: &mut dyn FnMut(Slot)) {
        let rough = upper(point);
        for (at, (low, high)) in self.lows.iter().zip(&self.highs).enumerate() {
            if *low <= rough && rough <= *high {
                let (interval, slot) = self.whole[at];
                if interval.low <= point && point <= interval.high {
                    found(slot);
                }
            }
        }
    }
}

impl Intervals {
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.listed.whole.is_empty()
    }

    /// How many intervals are kept at the place of `interval`.
    pub(super) fn crowd(&self, interval: Interval) -> usize {
        let block = Block::of(interval);
        let listed = self.listed.whole.iter().filter(|(other, _)| Block::of(*other) == block).count();
        self.blocks.get(&block).map_or(0, |crossing| crossing.len) + listed
    }

    /// Keeps the interval of `slot`, in a run if there is what a run needs.
    pub(super) fn insert(&mut self, interval: Interval, slot: Slot, among: Option<Among<'_, '_>>) {
        if among.is_some() {
            return self.insert_in_block(interval, slot, among);
        }
        if self.singles == 0 && self.listed.whole.len() < LISTED_MAX {
            return self.listed.push(interval, slot);
        }
        let listed = std::mem::take(&mut self.listed);
        for (interval, slot) in listed.whole.into_iter().chain([(interval, slot)]) {
            self.singles += 1;
            self.insert_in_block(interval, slot, None);
        }
    }

    fn insert_in_block(&mut self, interval: Interval, slot: Slot, among: Option<Among<'_, '_>>) {
        let block = Block::of(interval);
        let levels = &mut self.levels;
        let crossing = self.blocks.entry(block).or_insert_with(|| {
            match levels.binary_search_by_key(&block.level, |(level, _)| *level) {
                Ok(at) => levels[at].1 += 1,
                Err(at) => levels.insert(at, (block.level, 1)),
            }
            Crossing::default()
        });
        crossing.len += 1;
        if let Some(Among { interval_of, catalogue, trail }) = among {
            crossing.runs_by_low.insert(slot, &|slot| interval_of(slot).low, catalogue, trail);
            crossing.runs_by_high.insert(slot, &|slot| !interval_of(slot).high, catalogue, trail);
        } else {
            crossing.by_low.insert((interval.low, slot));
            crossing.by_high.insert((interval.high, slot));
        }
    }

    /// Takes out what was kept with the same arguments.
    pub(super) fn remove(&mut self, interval: Interval, slot: Slot, among: Option<Among<'_, '_>>) {
        if among.is_none() {
            if self.listed.remove(slot) {
                return;
            }
            self.singles -= 1;
        }
        let block = Block::of(interval);
        let Some(crossing) = self.blocks.get_mut(&block) else { return };
        crossing.len -= 1;
        if let Some(Among { catalogue, trail, .. }) = among {
            crossing.runs_by_low.remove(slot, interval.low, catalogue, trail);
            crossing.runs_by_high.remove(slot, !interval.high, catalogue, trail);
        } else {
            crossing.by_low.remove(&(interval.low, slot));
            crossing.by_high.remove(&(interval.high, slot));
        }
        if crossing.len == 0 {
            debug_assert!(crossing.runs_by_low.is_empty() && crossing.runs_by_high.is_empty());
            self.blocks.remove(&block);
            if let Ok(at) = self.levels.binary_search_by_key(&block.level, |(level, _)| *level) {
                self.levels[at].1 -= 1;
                if self.levels[at].1 == 0 {
                    self.levels.remove(at);
                }
            }
        }
    }

    /// Every interval that holds `point`, and some neighbours of those in runs.
    pub(super) fn visit(
        &self,
        point: u128,
        event: &EventValues<'_>,
        hasher: &ValueHasher,
        found: &mut dyn FnMut(Slot),
    ) {
        self.listed.visit(point, found);
        for (level, _) in &self.levels {
            let Some(crossing) = self.blocks.get(&Block::around(point, *level)) else { continue };
            let upper_half = point.checked_shr(u128::BITS - 1 - level.min(&127)).unwrap_or(0) & 1 == 1;
            if *level == u128::BITS || !upper_half {
                let until = (Bound::Unbounded, Bound::Included((point, Slot::MAX)));
                crossing.by_low.range(until).for_each(|(_, slot)| found(*slot));
                crossing.runs_by_low.visit_up_to(point, event, hasher, found);
            } else {
                let from = (Bound::Included((point, Slot::MIN)), Bound::Unbounded);
                crossing.by_high.range(from).for_each(|(_, slot)| found(*slot));
                crossing.runs_by_high.visit_up_to(!point, event, hasher, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_in_the_order_of_values() {
        let numbers = [
            json!(-1e300),
            json!(i64::MIN),
            json!(-1.5),
            json!(-1),
            json!(0),
            json!(5e-324),
            json!(1),
            json!(1.5),
            json!(9_007_199_254_740_993_u64),
            json!(u64::MAX),
            json!(1e300),
        ];
        let keys: Vec<u128> = numbers.iter().map(|one| number_key(one.as_number().unwrap())).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert_eq!(number_key(json!(-0.0).as_number().unwrap()), number_key(json!(0).as_number().unwrap()));
        let texts = ["", "\0", "a", "a\0", "ab", "b", "é", "中", "😀"];
        assert!(texts.map(text_key).is_sorted());
    }

    fn any_key() -> impl Strategy<Value = u128> {
        prop_oneof![0..40_u128, (0..40_u128).prop_map(|low| low << 64), Just(u128::MAX), any::<u128>()]
    }

    proptest! {
        #[test]
        fn a_point_finds_the_intervals_that_hold_it(
            ends in prop::collection::vec((any_key(), any_key()), 1..2 * LISTED_MAX),
            gone in prop::collection::vec(any::<bool>(), 2 * LISTED_MAX),
            points in prop::collection::vec(any_key(), 20),
        ) {
            let all: Vec<Interval> =
                ends.iter().map(|(a, b)| Interval { low: *a.min(b), high: *a.max(b) }).collect();
            let mut index = Intervals::default();
            for (slot, interval) in (0..).zip(&all) {
                index.insert(*interval, slot, None);
            }
            for (slot, interval) in (0..).zip(&all).filter(|(slot, _)| gone[*slot as usize]) {
                index.remove(*interval, slot, None);
            }
            let (event, hasher) = (EventValues::new(Vec::new(), 1), ValueHasher::new(0));
            for point in points.into_iter().chain(all.iter().flat_map(|one| [one.low, one.high])) {
                let mut found = Vec::new();
                index.visit(point, &event, &hasher, &mut |slot| found.push(slot));
                found.sort_unstable();
                let expected: Vec<Slot> = (0..)
                    .zip(&all)
                    .filter(|(slot, one)| !gone[*slot as usize] && one.low <= point && point <= one.high)
                    .map(|(slot, _)| slot)
                    .collect();
                prop_assert_eq!(found, expected);
            }
            for (slot, interval) in (0..).zip(&all).filter(|(slot, _)| !gone[*slot as usize]) {
                index.remove(*interval, slot, None);
            }
            prop_assert!(index.is_empty() && index.levels.is_empty());
        }
    }
}
