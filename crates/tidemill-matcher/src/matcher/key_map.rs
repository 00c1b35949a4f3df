//! Maps whose keys are hashes already, or small numbers.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;
pub(super) type KeySet<K> = HashSet<K, BuildHasherDefault<KeyHasher>>;

/// Takes a hash as it is and spreads a small number. Keys of 64 bits must have gone through [`mix`] or a hash.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = mix(self.0 ^ u64::from(number));
    }

    fn write_u128(&mut self, number: u128) {
        #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
        let (high, low) = ((number >> 64) as u64, number as u64);
        self.0 = join(join(self.0, high), low);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Spreads a number over all bits.
pub(super) fn mix(number: u64) -> u64 {
    let product =
        u128::from(number ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93_a076_1d64_78bd_642f);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    let (high, low) = ((product >> 64) as u64, product as u64);
    high ^ low
}

/// Joins the hash of a part to that of what stands before it.
pub(super) fn join(hash: u64, part: u64) -> u64 {
    mix(hash.rotate_left(23) ^ part)
}
