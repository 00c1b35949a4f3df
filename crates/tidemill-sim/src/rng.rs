//! Randomness: a small generator of our own, so that a seed means the same run on every machine and in every release.

use std::ops::RangeInclusive;

use tidemill_model::{EventId, Timestamp};

/// xoshiro256**, seeded by `SplitMix64`. Distinct, not secret.
#[derive(Debug, Clone)]
pub struct Rng {
    words: [u64; 4],
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { words: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    /// A generator of its own, so that what one actor draws does not shift what another one gets.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.bits())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.words;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.words = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number from 0 up to, but not including, `end`; 0 when `end` is.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of a plain scale is far below what any run could show.
        let wide = u128::from(self.bits()) * u128::from(end);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// An index into something of this length.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// A UUID of version 7, as a server would mint it.
    pub fn event_id(&mut self, now: Timestamp) -> EventId {
        let high = (u128::from(now.millis()) << 16) | 0x7000 | u128::from(self.below(0x1000));
        let low = (self.bits() >> 2) | (1 << 63);
        EventId::from_u128((high << 64) | u128::from(low))
    }

    /// True `per_mille` times in a thousand.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1_000) < u64::from(per_mille)
    }

    /// One of the items, if there are any.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { items.get(self.index(items.len())) }
    }

    /// One of the items, each as likely as its weight says.
    pub fn weighted<T: Copy>(&mut self, items: &[(u32, T)]) -> T {
        let total: u64 = items.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut left = self.below(total);
        for (weight, item) in items {
            let weight = u64::from(*weight);
            if left < weight {
                return *item;
            }
            left -= weight;
        }
        items[items.len() - 1].1
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_means_the_same_numbers() {
        // Written down, so that a change of the generator cannot pass unnoticed: it would rename every seed.
        let mut rng = Rng::new(1);
        let drawn: Vec<u64> = (0..3).map(|_| rng.bits()).collect();
        assert_eq!(
            drawn,
            [12_966_619_160_104_079_557, 9_600_361_134_598_540_522, 10_590_380_919_521_690_900]
        );
    }

    #[test]
    fn draws_stay_in_their_bounds_and_reach_them() {
        let mut rng = Rng::new(7);
        let drawn: Vec<u64> = (0..1_000).map(|_| rng.within(3..=5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        assert!((0..1_000).all(|_| !rng.chance(0) && rng.chance(1_000)));
        assert!((0..1_000).all(|_| rng.weighted(&[(0, 'a'), (1, 'b'), (0, 'c')]) == 'b'));
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
