//! Places in the log.

use std::fmt;

use super::Seq;

/// A place between two groups, from where a replay can start. It stays good when the segment is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// The segment, from 1.
    pub segment: u32,
    /// The byte in the segment as it was first written.
    pub offset: u64,
    /// The number of the first event that comes after this place.
    pub next_seq: Seq,
}

impl LogPosition {
    /// Before everything.
    pub const START: Self = Self { segment: 0, offset: 0, next_seq: Seq::FIRST };
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {} byte {} (next event {})", self.segment, self.offset, self.next_seq)
    }
}
