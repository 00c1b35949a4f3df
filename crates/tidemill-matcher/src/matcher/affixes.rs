//! Beginnings or ends of texts, by their length.

use std::collections::BTreeMap;

use super::key_map::{KeyMap, mix};
use super::node::Node;

/// Texts that others begin with, or, read backwards, end with.
#[derive(Debug, Default)]
pub(super) struct Affixes {
    /// How many keys there are of each length.
    lengths: BTreeMap<u16, u32>,
    pub(super) nodes: KeyMap<u64, Node>,
}

const START: u64 = 0x51_7c_c1_b7_27_22_0a_95;

fn roll(hash: u64, byte: u8) -> u64 {
    (hash.rotate_left(5) ^ u64::from(byte)).wrapping_mul(START)
}

fn finish(hash: u64, seed: u64) -> u64 {
    mix(hash ^ seed)
}

/// The key of a whole beginning or end.
pub(super) fn affix_key<'b>(bytes: impl Iterator<Item = &'b u8>, seed: u64) -> u64 {
    finish(bytes.fold(START, |hash, byte| roll(hash, *byte)), seed)
}

impl Affixes {
    pub(super) fn began(&mut self, length: u16) {
        *self.lengths.entry(length).or_default() += 1;
    }

    pub(super) fn ended(&mut self, length: u16) {
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node whose key the text begins with; `bytes` is the text in the direction of the keys.
    pub(super) fn visit<'b>(
        &self,
        bytes: impl Iterator<Item = &'b u8>,
        seed: u64,
        mut found: impl FnMut(&Node),
    ) {
        let mut lengths = self.lengths.keys().map(|length| usize::from(*length));
        let mut next = lengths.next();
        let mut hash = START;
        for (at, byte) in bytes.enumerate() {
            let Some(length) = next else { return };
            hash = roll(hash, *byte);
            if at + 1 == length {
                if let Some(node) = self.nodes.get(&finish(hash, seed)) {
                    found(node);
                }
                next = lengths.next();
            }
        }
    }
}
