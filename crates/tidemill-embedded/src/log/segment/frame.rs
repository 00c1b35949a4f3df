//! Frames: a group as it lies in a segment, behind a header whose checksum covers both.
//!
//! The header names the segment, the frame's number and the first event's, so that what an earlier use of the file
//! left behind can never pass for a frame of this one.

use crate::codec::Reader;
use crate::log::Seq;
use crate::log::entry::FRAME_ALIGN;

/// The length of a frame's header.
pub(in crate::log) const HEADER_BYTES: usize = 40;
/// No text holds it, since 0xff is in no UTF-8: what users send cannot look like a frame.
pub(in crate::log) const MAGIC: [u8; 4] = [0xff, b'T', b'M', 0xfe];
const CHECKED_FROM: usize = 8;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct FrameHeader {
    pub(in crate::log) checksum: u32,
    /// How many bytes of entries follow.
    pub(in crate::log) len: u32,
    pub(in crate::log) segment: u32,
    /// Counts the frames of the whole log, from 1.
    pub(in crate::log) number: u64,
    /// The number of the first event; without events, of the next one.
    pub(in crate::log) first_seq: Seq,
    pub(in crate::log) events: u32,
    pub(in crate::log) controls: u32,
}

impl FrameHeader {
    /// Writes header and entries to `out`, with the checksum filled in.
    pub(in crate::log) fn put(&self, out: &mut Vec<u8>, entries: &[u8]) {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.len.to_le_bytes());
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.first_seq.0.to_le_bytes());
        out.extend_from_slice(&self.events.to_le_bytes());
        out.extend_from_slice(&self.controls.to_le_bytes());
        debug_assert_eq!(out.len() - start, HEADER_BYTES);
        out.extend_from_slice(entries);
        let checksum = crc32fast::hash(&out[start + CHECKED_FROM..]);
        out[start + 4..start + CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a header. The checksum is not looked at.
    pub(in crate::log) fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.array().ok()? != MAGIC {
            return None;
        }
        Some(Self {
            checksum: reader.u32().ok()?,
            len: reader.u32().ok()?,
            segment: reader.u32().ok()?,
            number: reader.u64().ok()?,
            first_seq: Seq(reader.u64().ok()?),
            events: reader.u32().ok()?,
            controls: reader.u32().ok()?,
        })
    }

    /// Whether `frame`, which starts with this header and ends with its entries, has the right checksum.
    pub(in crate::log) fn matches(&self, frame: &[u8]) -> bool {
        frame.len() == HEADER_BYTES + self.len as usize
            && crc32fast::hash(&frame[CHECKED_FROM..]) == self.checksum
    }

    /// How many bytes the frame takes up to where the next one may start.
    pub(in crate::log) fn span(&self) -> u64 {
        span(u64::from(self.len))
    }
}

/// How many bytes a frame with `len` bytes of entries takes up to where the next one may start.
pub(in crate::log) fn span(len: u64) -> u64 {
    (HEADER_BYTES as u64 + len).next_multiple_of(FRAME_ALIGN)
}
