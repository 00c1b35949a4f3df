//! Where the blocks of a sealed segment are: eight bytes of memory for each.

use crate::codec::{BadBytes, Reader};
use crate::log::Seq;

/// The bytes before a block's data: checksum and length.
pub(super) const BLOCK_HEADER_BYTES: usize = 8;
/// Set in a block's length when it is stored as it is, since compressing did not help.
pub(super) const STORED: u32 = 1 << 31;

/// One block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockPlace {
    offset: u32,
    /// The number of the first event from here on unless there is a hole, counted from the segment's first.
    seq: u32,
}

/// All blocks of a segment.
#[derive(Debug, Default)]
pub(super) struct BlockIndex {
    first_seq: u64,
    places: Vec<BlockPlace>,
}

impl BlockIndex {
    pub(super) fn new(first_seq: Seq) -> Self {
        Self { first_seq: first_seq.0, places: Vec::new() }
    }

    /// Adds a block that starts at `offset`, before the event `seq`.
    pub(super) fn push(&mut self, offset: u64, seq: Seq) {
        let small = |number: u64| u32::try_from(number).expect("segments are shorter than 4 GiB");
        self.places.push(BlockPlace { offset: small(offset), seq: small(seq.0 - self.first_seq) });
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The block that holds the event `seq` if any does.
    pub(super) fn block_of(&self, seq: Seq) -> Option<usize> {
        let wanted = seq.0.checked_sub(self.first_seq)?;
        self.places.partition_point(|place| u64::from(place.seq) <= wanted).checked_sub(1)
    }

    /// The number of the first event of a block unless it says otherwise.
    pub(super) fn seq_at(&self, block: usize) -> Option<Seq> {
        self.places.get(block).map(|place| Seq(self.first_seq + u64::from(place.seq)))
    }

    pub(super) fn offset_of(&self, block: usize) -> Option<u64> {
        self.places.get(block).map(|place| u64::from(place.offset))
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        for place in &self.places {
            out.extend_from_slice(&place.offset.to_le_bytes());
            out.extend_from_slice(&place.seq.to_le_bytes());
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>, first_seq: Seq, count: u32) -> Result<Self, BadBytes> {
        let places = (0..count)
            .map(|_| Ok(BlockPlace { offset: reader.u32()?, seq: reader.u32()? }))
            .collect::<Result<_, _>>();
        Ok(Self { first_seq: first_seq.0, places: places? })
    }
}

/// The checksum of a block's length and data, with its place, so that no block can pass for another.
pub(super) fn block_checksum(segment: u32, block: usize, len: u32, data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&segment.to_le_bytes());
    hasher.update(&(block as u64).to_le_bytes());
    hasher.update(&len.to_le_bytes());
    hasher.update(data);
    hasher.finalize()
}
