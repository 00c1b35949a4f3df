//! The last bytes of a sealed segment: what is in it and where.

use tidemill_model::Timestamp;

use crate::codec::{BadBytes, Reader};
use crate::log::Seq;
use crate::log::index::postings::Extent;
use crate::log::segment::files::VERSION;
use crate::log::segment::raw_segment::SegmentStart;

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const FOOTER_BYTES: usize = 152;
pub(super) const HEADER_MAGIC: [u8; 8] = *b"TMSEALED";
const FOOTER_MAGIC: [u8; 8] = *b"TMSEALND";
/// From here on nothing is covered by the footer's own checksum.
const CHECKED_BYTES: usize = FOOTER_BYTES - 12;

/// What a sealed segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Footer {
    pub(in crate::log) segment: u32,
    /// The dictionary that blocks are compressed with; 0 for none.
    pub(in crate::log) dictionary: u32,
    pub(super) blocks: u32,
    pub(super) lists: u32,
    pub(super) pages: u32,
    /// The numbers the segment started with. They stay when events are dropped.
    pub(in crate::log) start: SegmentStart,
    /// The numbers of the segment that follows.
    pub(in crate::log) end: SegmentStart,
    /// Where the segment ended as it was first written.
    pub(in crate::log) raw_end: u64,
    pub(in crate::log) events: u64,
    pub(in crate::log) controls: u64,
    /// `None` without events.
    pub(in crate::log) extent: Option<Extent>,
    pub(super) blocks_end: u64,
    pub(super) lists_end: u64,
    pub(super) pages_end: u64,
    pub(super) index_checksum: u32,
}

impl Footer {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for number in [VERSION, self.segment, self.dictionary, self.blocks, self.lists, self.pages] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let moments = self.extent.map_or([0; 4], |extent| {
            [extent.first, extent.last, extent.first_received, extent.last_received].map(Timestamp::millis)
        });
        let sizes = [
            self.start.seq.0,
            self.start.frame,
            self.end.seq.0,
            self.end.frame,
            self.raw_end,
            self.events,
            self.controls,
            moments[0],
            moments[1],
            moments[2],
            moments[3],
            self.blocks_end,
            self.lists_end,
            self.pages_end,
        ];
        for number in sizes {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.index_checksum.to_le_bytes());
        let checksum = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&FOOTER_MAGIC);
        debug_assert_eq!(out.len() - start, FOOTER_BYTES);
    }

    pub(super) fn read(bytes: &[u8; FOOTER_BYTES]) -> Result<Self, BadBytes> {
        let (checked, rest) = bytes.split_at(CHECKED_BYTES);
        let (checksum, magic) = rest.split_at(4);
        if magic != FOOTER_MAGIC || checksum != crc32fast::hash(checked).to_le_bytes() {
            return Err(BadBytes("its footer is wrong"));
        }
        let mut reader = Reader::new(checked);
        reader.u32()?; // the version, which the header tells too
        let (segment, dictionary) = (reader.u32()?, reader.u32()?);
        let (blocks, lists, pages) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let start = SegmentStart { seq: Seq(reader.u64()?), frame: reader.u64()? };
        let end = SegmentStart { seq: Seq(reader.u64()?), frame: reader.u64()? };
        let (raw_end, events, controls) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut moments = [Timestamp::MIN; 4];
        for moment in &mut moments {
            *moment = Timestamp::clamped(reader.u64()?);
        }
        let [first, last, first_received, last_received] = moments;
        let extent = (events > 0).then_some(Extent { first, last, first_received, last_received });
        let (blocks_end, lists_end, pages_end) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let index_checksum = reader.u32()?;
        Ok(Self {
            segment,
            dictionary,
            blocks,
            lists,
            pages,
            start,
            end,
            raw_end,
            events,
            controls,
            extent,
            blocks_end,
            lists_end,
            pages_end,
            index_checksum,
        })
    }
}

/// The footer of a file, if its own checksum is right.
pub(super) fn read_from_end(file: &[u8]) -> Option<Footer> {
    let bytes = file.last_chunk::<FOOTER_BYTES>()?;
    Footer::read(bytes).ok()
}

/// The first bytes of a sealed segment's file.
pub(super) fn header(segment: u32) -> Vec<u8> {
    let mut bytes = HEADER_MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes
}
