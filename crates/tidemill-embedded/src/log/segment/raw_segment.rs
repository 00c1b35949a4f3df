//! A segment as it is written: a header, then frames, in a file that was made long enough before.
//!
//! The newest one is open for appending; older ones wait to be sealed. Readers see what was published: the postings, and
//! where each event lies, are kept in memory until then.

use std::io;
use std::sync::{Arc, RwLock};

use tidemill_model::Position;

use super::files::{self, VERSION};
use super::frame_reader::{Expect, Frame, FrameReader};
use crate::codec::{BadBytes, Reader, decode_fields};
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::log::entry::{Entries, RawEntry};
use crate::log::group::Group;
use crate::log::index::postings::Postings;
use crate::log::index::query::{Order, PostingKey, Window};
use crate::log::{LogError, LogPosition, Seq, lock};

/// Where the first frame starts.
pub(in crate::log) const FRAMES_AT: u64 = 64;
/// Writes end on a multiple of this, so that the kernel never has to read a page before it can change it.
pub(in crate::log) const PAGE_BYTES: u64 = 4096;
const MAGIC: [u8; 8] = *b"TMSEGMNT";
const HEADER_BYTES: usize = 36;

/// A segment that is not sealed.
pub(in crate::log) struct RawSegment {
    pub(in crate::log) id: u32,
    pub(in crate::log) path: String,
    pub(in crate::log) file: Arc<dyn DiskFile>,
    pub(in crate::log) start: SegmentStart,
    published: RwLock<Published>,
}

/// The numbers a segment starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct SegmentStart {
    pub(in crate::log) seq: Seq,
    pub(in crate::log) frame: u64,
}

/// What readers may see of a segment.
#[derive(Debug)]
pub(in crate::log) struct Published {
    pub(in crate::log) postings: Postings,
    places: Vec<Place>,
    /// Where the published frames end.
    pub(in crate::log) end: u64,
    pub(in crate::log) controls: u64,
    frames: u64,
    /// Where the last frame starts that was here when the segment was opened.
    last_found: u64,
}

/// Where an event's bytes lie in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Place {
    offset: u32,
    len: u32,
}

/// An event on a timeline of this segment.
#[derive(Debug, Clone, Copy)]
pub(in crate::log) struct RawPosting {
    pub(in crate::log) seq: Seq,
    pub(in crate::log) position: Position,
    pub(in crate::log) place: Place,
}

impl RawSegment {
    /// A segment without frames. Its header must be on disk.
    pub(in crate::log) fn new(id: u32, file: Arc<dyn DiskFile>, start: SegmentStart) -> Self {
        let published = Published {
            postings: Postings::default(),
            places: Vec::new(),
            end: FRAMES_AT,
            controls: 0,
            frames: 0,
            last_found: FRAMES_AT,
        };
        Self { id, path: files::raw(id), file, start, published: RwLock::new(published) }
    }

    /// Opens a segment and publishes all whole frames from its beginning on.
    pub(in crate::log) fn open(disk: &dyn Disk, id: u32) -> Result<Self, LogError> {
        let path = files::raw(id);
        let file = disk.open(&path).map_err(LogError::io("open", &path))?;
        let start = read_start(&*file, &path, id)?;
        let segment = Self::new(id, file, start);
        let end = segment.file.len().map_err(LogError::io("read", &path))?;
        let expect = Expect { number: Some(start.frame), seq: start.seq };
        let mut frames = FrameReader::new(&*segment.file, id, FRAMES_AT, end, expect);
        {
            let mut published = lock::write(&segment.published);
            while let Some(frame) = frames.next().map_err(LogError::io("read", &path))? {
                published
                    .publish_frame(&frame)
                    .map_err(|BadBytes(problem)| LogError::corrupt(&path, frame.offset, problem))?;
            }
        }
        let bad = frames.offset();
        if let Some(later) = frames.find_later().map_err(LogError::io("read", &path))? {
            let problem = format!("there is no whole group here, but there is one at byte {later}");
            return Err(LogError::corrupt(&path, bad, problem));
        }
        Ok(segment)
    }

    /// Writes the last group that was found again, just as it is.
    ///
    /// When a sync failed in an earlier life of the process, the kernel may take pages for written that are not, and any
    /// later sync passes. What is written anew does reach the disk with the next one.
    pub(in crate::log) fn write_last_again(&self) -> io::Result<()> {
        let (from, end) = {
            let published = self.published();
            (published.last_found, published.end)
        };
        let mut bytes = vec![0; usize::try_from(end - from).unwrap_or(usize::MAX)];
        read_exact_at(&*self.file, &mut bytes, from)?;
        self.file.write_at(&bytes, from)
    }

    /// What readers may see.
    pub(in crate::log) fn published(&self) -> std::sync::RwLockReadGuard<'_, Published> {
        lock::read(&self.published)
    }

    /// Lets readers see a group whose entries lie at `entries_at`.
    pub(in crate::log) fn publish(&self, group: &Group, entries_at: u64, end: u64) {
        let mut published = lock::write(&self.published);
        for event in group.events() {
            published.postings.push(&event.fields());
            published.places.push(place(entries_at + event.offset as u64, event.len));
        }
        published.controls += u64::from(group.control_count());
        published.frames += 1;
        published.end = end;
    }

    /// The numbers that a segment after the published frames would start with.
    pub(in crate::log) fn next_start(&self) -> SegmentStart {
        let published = self.published();
        let seq = Seq(self.start.seq.0 + published.places.len() as u64);
        SegmentStart { seq, frame: self.start.frame + published.frames }
    }

    /// Where the published frames end.
    pub(in crate::log) fn end(&self) -> LogPosition {
        let published = self.published();
        let next_seq = Seq(self.start.seq.0 + published.places.len() as u64);
        LogPosition { segment: self.id, offset: published.end, next_seq }
    }

    /// Where a published event lies.
    pub(in crate::log) fn place_of(&self, seq: Seq) -> Option<Place> {
        let item = usize::try_from(seq.0.checked_sub(self.start.seq.0)?).ok()?;
        self.published().places.get(item).copied()
    }

    /// Puts the bytes of an event in `buffer`.
    pub(in crate::log) fn read_place(&self, place: Place, buffer: &mut Vec<u8>) -> Result<(), LogError> {
        buffer.resize(place.len as usize, 0);
        read_exact_at(&*self.file, buffer, u64::from(place.offset)).map_err(LogError::io("read", &self.path))
    }

    /// The event at `place` has bytes that cannot be read.
    pub(in crate::log) fn damaged(&self, place: Place, BadBytes(problem): BadBytes) -> LogError {
        LogError::corrupt(&self.path, u64::from(place.offset), format!("an event {problem}"))
    }

    /// The first `limit` events of a timeline within `window`.
    pub(in crate::log) fn postings(
        &self,
        key: &PostingKey<'_>,
        window: &Window,
        limit: usize,
    ) -> Vec<RawPosting> {
        let published = self.published();
        let Some(list) = published.postings.list(key) else { return Vec::new() };
        let position = |item| published.postings.position(item);
        let posting = |item: u32| RawPosting {
            seq: Seq(self.start.seq.0 + u64::from(item)),
            position: position(item),
            place: published.places[item as usize],
        };
        let is_below = |item| window.is_below(&position(item));
        let is_above = |item| window.is_above(&position(item));
        match window.order {
            Order::Ascending => list
                .ascending(is_below)
                .take_while(|item| !is_above(*item))
                .take(limit)
                .map(posting)
                .collect(),
            Order::Descending => list
                .descending(is_above)
                .take_while(|item| !is_below(*item))
                .take(limit)
                .map(posting)
                .collect(),
        }
    }

    /// Reads the published frames from `offset` on, where the next event is `seq`.
    pub(in crate::log) fn frames(&self, offset: u64, seq: Seq) -> FrameReader<'_> {
        let number = (offset <= FRAMES_AT).then_some(self.start.frame);
        let end = self.published().end;
        FrameReader::new(&*self.file, self.id, offset.max(FRAMES_AT), end, Expect { number, seq })
    }
}

impl Published {
    fn publish_frame(&mut self, frame: &Frame<'_>) -> Result<(), BadBytes> {
        let mut entries = Entries::new(frame.entries, frame.header.first_seq);
        let (mut events, mut controls) = (0, 0);
        while let Some(entry) = entries.next()? {
            match entry {
                RawEntry::Event { bytes, .. } => {
                    let after = frame.entries_at() + entries.offset() as u64;
                    self.postings.push(&decode_fields(bytes)?);
                    self.places.push(place(after - bytes.len() as u64, bytes.len()));
                    events += 1;
                }
                RawEntry::Control(_) => controls += 1,
                RawEntry::Frame(_) => return Err(BadBytes("holds a group within a group")),
            }
        }
        if (events, controls) != (frame.header.events, frame.header.controls) {
            return Err(BadBytes("does not hold as many entries as it says"));
        }
        self.controls += u64::from(controls);
        self.frames += 1;
        self.last_found = frame.offset;
        self.end = frame.offset + frame.header.span();
        Ok(())
    }
}

/// The numbers that a segment says it starts with.
pub(in crate::log) fn start_of(disk: &dyn Disk, id: u32) -> Result<SegmentStart, LogError> {
    let path = files::raw(id);
    let file = disk.open(&path).map_err(LogError::io("open", &path))?;
    read_start(&*file, &path, id)
}

fn read_start(file: &dyn DiskFile, path: &str, id: u32) -> Result<SegmentStart, LogError> {
    let mut header = [0; HEADER_BYTES];
    read_exact_at(file, &mut header, 0).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => LogError::corrupt(path, 0, "it ends within its header"),
        _ => LogError::io("read", path)(error),
    })?;
    read_header(path, id, &header)
}

/// The first bytes of a segment's file.
pub(in crate::log) fn header(id: u32, start: SegmentStart) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(&start.seq.0.to_le_bytes());
    bytes.extend_from_slice(&start.frame.to_le_bytes());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn read_header(path: &str, id: u32, bytes: &[u8; HEADER_BYTES]) -> Result<SegmentStart, LogError> {
    let mut reader = Reader::new(bytes);
    let mut read = || {
        let (magic, version, segment) = (reader.array::<8>()?, reader.u32()?, reader.u32()?);
        let start = SegmentStart { seq: Seq(reader.u64()?), frame: reader.u64()? };
        Ok::<_, BadBytes>((magic, version, segment, start, reader.u32()?))
    };
    let damaged = |problem| LogError::corrupt(path, 0, problem);
    let (magic, version, segment, start, checksum) = read().map_err(|BadBytes(problem)| damaged(problem))?;
    if magic != MAGIC {
        return Err(damaged("it is not a segment"));
    }
    if version > VERSION {
        return Err(LogError::Newer { file: path.to_owned(), found: version, known: VERSION });
    }
    if checksum != crc32fast::hash(&bytes[..HEADER_BYTES - 4]) || segment != id {
        return Err(damaged("its header is wrong"));
    }
    Ok(start)
}

fn place(offset: u64, len: usize) -> Place {
    let offset = u32::try_from(offset).expect("segments are shorter than 4 GiB");
    Place { offset, len: u32::try_from(len).expect("events are shorter than segments") }
}
