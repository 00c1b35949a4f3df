//! New ids: UUID version 7 with a counter, so that ids made later sort later.

use tidemill_model::{EventId, Timestamp};

/// Makes ids and the few random numbers that decisions need. Deterministic for a given seed.
#[derive(Debug, Clone)]
pub struct IdSource {
    last: u128,
    random: u64,
}

impl IdSource {
    /// `seed` must differ between processes; 64 random bits will do.
    pub fn new(seed: u64) -> Self {
        Self { last: 0, random: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// A fresh id for `now`, above every id made before.
    pub fn event_id(&mut self, now: Timestamp) -> EventId {
        // 48 bits of time, version 7, 12 bits of counter room, variant, 62 random bits.
        let random = (u128::from(self.next_random()) << 64) | u128::from(self.next_random());
        let time = u128::from(now.millis() & 0xffff_ffff_ffff) << 80;
        let fresh =
            time | (0x7 << 76) | (((random >> 66) & 0x7ff) << 64) | (0b10 << 62) | (random & ((1 << 62) - 1));
        let floor = self.last;
        self.last = if fresh > floor { fresh } else { successor(floor) };
        EventId::from_u128(self.last)
    }

    /// Makes only ids above `id` from now on.
    pub fn rise_above(&mut self, id: EventId) {
        self.last = self.last.max(id.as_u128());
    }

    /// Makes sure that ids made from now on lie above one that exists, and are none of those its maker made after it.
    pub fn observe(&mut self, id: EventId) {
        // While its clock stood still or went back, the maker counted on in the low bits. A step of the counter above
        // them leads away from there, and random low bits lead away from other lives that took the same step.
        let away = step(id.as_u128()) | u128::from(self.next_random() >> 3);
        self.last = self.last.max(away);
    }

    /// Any number.
    pub fn random(&mut self) -> u64 {
        self.next_random()
    }

    fn next_random(&mut self) -> u64 {
        // SplitMix64: ids need to be distinct, not secret.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The next id after `id` that still has version and variant bits in place.
fn successor(id: u128) -> u128 {
    const LOW: u128 = (1 << 62) - 1;
    let low = id & LOW;
    if low < LOW {
        return id + 1;
    }
    // The 62 low bits are used up.
    step(id)
}

/// The first id whose counter is above that of `id`: counts on in the 12 bits, then in the time.
fn step(id: u128) -> u128 {
    let counter = (id >> 64) & 0xfff;
    let base = (id >> 80) + u128::from(counter == 0xfff);
    let counter = if counter == 0xfff { 0 } else { counter + 1 };
    (base << 80) | (0x7 << 76) | (counter << 64) | (0b10 << 62)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_even_when_time_does_not() {
        let mut ids = IdSource::new(1);
        let now = Timestamp::clamped(1_700_000_000_000);
        let mut last = ids.event_id(now);
        for step in 0..10_000u64 {
            let at = if step % 3 == 0 { now.minus(5) } else { now.plus(step / 100) };
            let next = ids.event_id(at);
            assert!(next > last);
            let text = next.to_string();
            assert_eq!(text.as_bytes()[14], b'7', "{text}");
            assert!(matches!(text.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{text}");
            last = next;
        }
    }

    #[test]
    fn ids_rise_above_one_made_elsewhere() {
        let now = Timestamp::clamped(1_700_000_000_000);
        let (mut here, mut there) = (IdSource::new(1), IdSource::new(2));
        for _ in 0..100 {
            let foreign = there.event_id(now);
            here.rise_above(foreign);
            assert!(here.event_id(now) > foreign);
        }
        let before = here.event_id(now);
        here.rise_above(EventId::from_u128(1));
        assert!(here.event_id(now) > before, "never back");
    }

    #[test]
    fn another_life_goes_its_own_way_even_when_the_clock_went_back() {
        let now = Timestamp::clamped(1_700_000_000_000);
        let mut first = IdSource::new(1);
        let seen = first.event_id(now);
        let mut made: Vec<EventId> = (0..100).map(|_| first.event_id(now.minus(5_000))).collect();
        for seed in 2..5 {
            let mut next = IdSource::new(seed);
            next.observe(seen);
            made.extend((0..100).map(|_| next.event_id(now.minus(10_000))));
        }
        assert!(made.iter().all(|id| *id > seen && id.to_string().as_bytes()[14] == b'7'));
        let count = made.len();
        made.sort();
        made.dedup();
        assert_eq!(made.len(), count);
    }

    #[test]
    fn the_successor_keeps_version_and_variant() {
        let full = (5u128 << 80) | (0x7 << 76) | (0xfff << 64) | (0b10 << 62) | ((1 << 62) - 1);
        let next = successor(full);
        assert_eq!(next >> 80, 6);
        assert_eq!((next >> 76) & 0xf, 7);
        assert_eq!((next >> 62) & 0b11, 0b10);
    }
}
