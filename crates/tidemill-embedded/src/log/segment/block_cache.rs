//! Decompressed blocks that were read lately, within a fixed amount of memory.

use std::sync::{Arc, Mutex};

use crate::log::lock;

/// A block of entries, and which it is.
pub(in crate::log) struct Block {
    pub(in crate::log) key: BlockKey,
    pub(in crate::log) entries: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct BlockKey {
    /// Of the sealed file: a rewritten segment has another.
    pub(in crate::log) generation: u64,
    pub(in crate::log) block: u32,
}

/// A table with one place for each block, shared by many.
pub(in crate::log) struct BlockCache {
    places: Vec<Mutex<Option<Arc<Block>>>>,
    block_bytes_max: usize,
}

impl BlockCache {
    /// A cache of at most `cache_bytes`. Blocks above `block_bytes` (those of one large event) are not kept.
    pub(in crate::log) fn new(cache_bytes: usize, block_bytes: usize) -> Self {
        let count = cache_bytes / block_bytes.max(1);
        Self { places: (0..count).map(|_| Mutex::default()).collect(), block_bytes_max: block_bytes }
    }

    pub(in crate::log) fn get(&self, key: BlockKey) -> Option<Arc<Block>> {
        let place = lock::lock(self.place(key)?);
        place.as_ref().filter(|block| block.key == key).cloned()
    }

    pub(in crate::log) fn put(&self, block: &Arc<Block>) {
        if block.entries.capacity() <= self.block_bytes_max
            && let Some(place) = self.place(block.key)
        {
            *lock::lock(place) = Some(Arc::clone(block));
        }
    }

    fn place(&self, key: BlockKey) -> Option<&Mutex<Option<Arc<Block>>>> {
        let mixed = (key.generation << 32 | u64::from(key.block)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let count = self.places.len() as u64;
        let index = mixed.checked_rem(count)?;
        self.places.get(usize::try_from(index).ok()?)
    }
}
