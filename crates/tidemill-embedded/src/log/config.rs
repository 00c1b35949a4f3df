//! Sizes of the log.

use super::segment::raw_segment::PAGE_BYTES;

/// How the log uses the disk. The defaults are measured; tests use smaller ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// The size of a segment that was prepared ahead.
    pub segment_bytes: u64,
    /// The size of a segment that had to be made while the writer waits: the first one, and when none was prepared.
    pub hasty_segment_bytes: u64,
    /// About how many bytes of entries are compressed together in a sealed segment.
    pub block_bytes: usize,
    /// The most memory for decompressed blocks.
    pub cache_bytes: usize,
    /// The size of the dictionary that sealed segments are compressed with; 0 for none.
    pub dictionary_bytes: usize,
    /// How hard sealing compresses.
    pub compression_level: i32,
}

/// Offsets in a segment must fit in 32 bits, with room for one large group.
const SEGMENT_BYTES_MAX: u64 = 2 << 30;

impl LogConfig {
    /// The same, within what the format allows.
    pub(super) fn bounded(self) -> Self {
        let page = |bytes: u64| bytes.clamp(PAGE_BYTES, SEGMENT_BYTES_MAX).next_multiple_of(PAGE_BYTES);
        let segment_bytes = page(self.segment_bytes);
        let hasty_segment_bytes = page(self.hasty_segment_bytes).min(segment_bytes);
        Self { segment_bytes, hasty_segment_bytes, ..self }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            hasty_segment_bytes: 4 << 20,
            block_bytes: 8 << 10,
            cache_bytes: 8 << 20,
            dictionary_bytes: 32 << 10,
            compression_level: 1,
        }
    }
}
