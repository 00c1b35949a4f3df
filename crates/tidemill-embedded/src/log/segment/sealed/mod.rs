//! Sealed segments: compressed, indexed, never changed in place.
//!
//! A file is a header, blocks of entries in the order of the log, the posting lists of the four timelines, the pages of
//! a directory that finds a list by its key, an index of blocks and pages that stays in memory, and a footer. Everything
//! that is read has a checksum that was checked. Rewriting a segment makes a new file in the place of the old one.

mod block_index;
mod directory;
mod footer;
mod posting_list;
mod scan;
mod segment;
mod writer;

pub(in crate::log) use posting_list::ListCursor;
pub(in crate::log) use scan::scan_blocks;
pub(in crate::log) use segment::SealedSegment;
pub(in crate::log) use writer::{SealedEnd, SealedWriter};
