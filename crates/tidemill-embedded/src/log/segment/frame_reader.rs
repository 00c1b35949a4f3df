//! Reads the frames of a segment one after the other, with every check a frame can fail.

use std::io;

use super::frame::{FrameHeader, HEADER_BYTES, MAGIC};
use crate::disk::DiskFile;
use crate::log::Seq;
use crate::log::entry::FRAME_ALIGN;
use crate::log::group::GROUP_BYTES_MAX;

/// How much is read at a time.
const READ_BYTES: usize = 1 << 20;

#[expect(clippy::cast_possible_truncation, reason = "it is 8")]
const ALIGN: usize = FRAME_ALIGN as usize;

/// Goes through the frames of one segment file.
pub(in crate::log) struct FrameReader<'a> {
    file: &'a dyn DiskFile,
    segment: u32,
    /// Where the next frame starts.
    offset: u64,
    /// Nothing is read from here on.
    end: u64,
    expect: Expect,
    buffer: Vec<u8>,
    buffer_at: u64,
}

/// What the next frame must say of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Expect {
    /// `None` for any.
    pub(in crate::log) number: Option<u64>,
    pub(in crate::log) seq: Seq,
}

/// A whole frame with the right checksum.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct Frame<'a> {
    pub(in crate::log) offset: u64,
    pub(in crate::log) header: FrameHeader,
    pub(in crate::log) entries: &'a [u8],
}

impl Frame<'_> {
    /// Where the entries start in the segment.
    pub(in crate::log) fn entries_at(&self) -> u64 {
        self.offset + HEADER_BYTES as u64
    }
}

impl<'a> FrameReader<'a> {
    /// Reads the frames that start at `offset` and end before `end`.
    pub(in crate::log) fn new(
        file: &'a dyn DiskFile,
        segment: u32,
        offset: u64,
        end: u64,
        expect: Expect,
    ) -> Self {
        Self { file, segment, offset, end, expect, buffer: Vec::new(), buffer_at: offset }
    }

    /// Where the next frame starts, or would.
    pub(in crate::log) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next frame; `None` when there is no whole and right one at this place.
    pub(in crate::log) fn next(&mut self) -> io::Result<Option<Frame<'_>>> {
        let offset = self.offset;
        let Some(header) = self.header_at(offset)? else { return Ok(None) };
        let expected = self.expect.number.is_none_or(|number| number == header.number)
            && self.expect.seq == header.first_seq;
        if !expected || !self.is_whole(offset, &header)? {
            return Ok(None);
        }
        self.offset = offset + header.span();
        self.expect.number = Some(header.number + 1);
        self.expect.seq.0 += u64::from(header.events);
        let entries = self.bytes(offset, HEADER_BYTES + header.len as usize)?;
        Ok(entries.map(|frame| Frame { offset, header, entries: &frame[HEADER_BYTES..] }))
    }

    /// The next whole frame at this place or behind it, whatever was expected; `None` when there is no other.
    pub(in crate::log) fn next_whole(&mut self) -> io::Result<Option<Frame<'_>>> {
        let offset = self.offset;
        let here = match self.header_at(offset)? {
            Some(header) => self.is_whole(offset, &header)?,
            None => false,
        };
        if !here {
            let Some(later) = self.find_later()? else { return Ok(None) };
            self.offset = later;
        }
        let offset = self.offset;
        if let Some(header) = self.header_at(offset)? {
            self.expect = Expect { number: None, seq: header.first_seq };
        }
        self.next()
    }

    /// Looks for a whole frame of this segment behind the place where the next one should be.
    pub(in crate::log) fn find_later(&mut self) -> io::Result<Option<u64>> {
        let mut offset = self.offset;
        while offset + HEADER_BYTES as u64 <= self.end {
            let window = self.window(offset)?;
            let found = window
                .chunks_exact(ALIGN)
                .position(|chunk| chunk.starts_with(&MAGIC))
                .map(|chunk| offset + chunk as u64 * FRAME_ALIGN);
            let Some(candidate) = found else {
                let skipped = window.len() as u64 / FRAME_ALIGN * FRAME_ALIGN;
                offset += skipped.max(FRAME_ALIGN);
                continue;
            };
            if candidate > self.offset
                && let Some(header) = self.header_at(candidate)?
                && self.is_whole(candidate, &header)?
            {
                return Ok(Some(candidate));
            }
            offset = candidate + FRAME_ALIGN;
        }
        Ok(None)
    }

    fn header_at(&mut self, offset: u64) -> io::Result<Option<FrameHeader>> {
        let segment = self.segment;
        let bytes = self.bytes(offset, HEADER_BYTES)?;
        Ok(bytes.and_then(FrameHeader::read).filter(|header| header.segment == segment))
    }

    fn is_whole(&mut self, offset: u64, header: &FrameHeader) -> io::Result<bool> {
        let len = header.len as usize;
        if len > GROUP_BYTES_MAX {
            return Ok(false);
        }
        let frame = self.bytes(offset, HEADER_BYTES + len)?;
        Ok(frame.is_some_and(|frame| header.matches(frame)))
    }

    /// As many bytes from `offset` as are at hand, at least a header's unless the file ends.
    fn window(&mut self, offset: u64) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(HEADER_BYTES);
        self.bytes(offset, wanted)?;
        let skipped = usize::try_from(offset - self.buffer_at).unwrap_or(usize::MAX);
        Ok(self.buffer.get(skipped..).unwrap_or_default())
    }

    /// `len` bytes from `offset`, unless the segment ends before.
    fn bytes(&mut self, offset: u64, len: usize) -> io::Result<Option<&[u8]>> {
        if offset + len as u64 > self.end {
            return Ok(None);
        }
        let buffered = self.buffer_at..=self.buffer_at + self.buffer.len() as u64;
        if !(buffered.contains(&offset) && buffered.contains(&(offset + len as u64))) {
            self.fill(offset, len)?;
        }
        let start = usize::try_from(offset - self.buffer_at).unwrap_or(usize::MAX);
        Ok(self.buffer.get(start..).and_then(|rest| rest.get(..len)))
    }

    fn fill(&mut self, offset: u64, len: usize) -> io::Result<()> {
        let left = usize::try_from(self.end - offset).unwrap_or(usize::MAX);
        let wanted = len.max(READ_BYTES).min(left);
        self.buffer.resize(wanted, 0);
        self.buffer_at = offset;
        let mut filled = 0;
        while filled < wanted {
            match self.file.read_at(&mut self.buffer[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}
