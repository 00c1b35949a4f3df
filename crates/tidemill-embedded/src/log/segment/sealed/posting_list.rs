//! A timeline of a sealed segment: moments and event numbers in order, in chunks behind a table.
//!
//! The head of a list holds its key and, for each chunk, the first moment, the end and a checksum. Ids are not here:
//! where moments are equal they are taken from the events.

use tidemill_model::{EventId, Timestamp};

use super::directory::{self, ListPlace};
use super::segment::SealedSegment;
use crate::codec::{BadBytes, Reader, put_varint, unzigzag, zigzag};
use crate::disk::read_exact_at;
use crate::log::index::query::{Order, PostingKey, Window};
use crate::log::index::sorted_list::SortedList;
use crate::log::{LogError, Seq};

const CHUNK_ITEMS: usize = 128;

/// The head of a list.
#[derive(Debug)]
pub(in crate::log) struct PostingList {
    chunks: Vec<Chunk>,
    count: usize,
    data_at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    first_moment: u64,
    /// Counted from where the first chunk starts.
    end: u32,
    checksum: u32,
}

/// An event on a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::log) struct Posting {
    pub(in crate::log) millis: u64,
    pub(in crate::log) seq: Seq,
}

impl PostingList {
    /// Appends a list to a file that is `offset` long and tells where it is. `posting` gives what an item stands for.
    pub(super) fn write(
        out: &mut Vec<u8>,
        offset: u64,
        key: &[u8],
        list: &SortedList,
        first_seq: Seq,
        posting: impl Fn(u32) -> Posting,
    ) -> ListPlace {
        let mut data = Vec::new();
        let mut chunks = Vec::new();
        let mut before = Posting { millis: 0, seq: first_seq };
        let mut chunk_start = 0;
        let count = list.len();
        for (index, item) in list.iter().enumerate() {
            let item = posting(item);
            if index % CHUNK_ITEMS == 0 {
                before = Posting { millis: item.millis, seq: first_seq };
                chunks.push(Chunk { first_moment: item.millis, end: 0, checksum: 0 });
            }
            put_varint(&mut data, item.millis - before.millis);
            put_varint(&mut data, zigzag(item.seq.0.wrapping_sub(before.seq.0).cast_signed()));
            before = item;
            if (index + 1) % CHUNK_ITEMS == 0 || index + 1 == count {
                let chunk = chunks.last_mut().expect("pushed with its first item");
                chunk.end = u32::try_from(data.len()).expect("segments are shorter than 4 GiB");
                chunk.checksum = crc32fast::hash(&data[chunk_start..]);
                chunk_start = data.len();
            }
        }
        let start = out.len();
        for number in [key.len(), count] {
            let number = u32::try_from(number).expect("segments are shorter than 4 GiB");
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(key);
        for chunk in &chunks {
            out.extend_from_slice(&chunk.first_moment.to_le_bytes());
            out.extend_from_slice(&chunk.end.to_le_bytes());
            out.extend_from_slice(&chunk.checksum.to_le_bytes());
        }
        let checksum = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        let head_len = u32::try_from(out.len() - start).expect("segments are shorter than 4 GiB");
        out.extend_from_slice(&data);
        ListPlace { hash: directory::hash(key), offset, head_len }
    }

    /// Finds the list of `key`; `None` when the segment has no such events.
    pub(in crate::log) fn find(
        segment: &SealedSegment,
        key: &PostingKey<'_>,
    ) -> Result<Option<Self>, LogError> {
        let mut wanted = Vec::with_capacity(128);
        key.put(&mut wanted);
        let hash = directory::hash(&wanted);
        for page in segment.directory().pages_of(hash) {
            for place in segment.directory_page(page)?.iter().filter(|place| place.hash == hash) {
                let (key, list) = Self::open(segment, place)?;
                if key == wanted {
                    return Ok(Some(list));
                }
            }
        }
        Ok(None)
    }

    /// Reads the key and the head of a list.
    pub(super) fn open(segment: &SealedSegment, place: &ListPlace) -> Result<(Vec<u8>, Self), LogError> {
        let mut head = vec![0; place.head_len as usize];
        read_exact_at(segment.file(), &mut head, place.offset)
            .map_err(LogError::io("read", segment.path()))?;
        Self::read(&head, place).map_err(|BadBytes(problem)| segment.damaged(place.offset, problem))
    }

    fn read(head: &[u8], place: &ListPlace) -> Result<(Vec<u8>, Self), BadBytes> {
        let (head, checksum) =
            head.split_at_checked(head.len().wrapping_sub(4)).ok_or(BadBytes("ends too early"))?;
        if checksum != crc32fast::hash(head).to_le_bytes() {
            return Err(BadBytes("a posting list has the wrong checksum"));
        }
        let mut reader = Reader::new(head);
        let (key_len, count) = (reader.u32()?, reader.u32()? as usize);
        let key = reader.take(key_len as usize)?.to_vec();
        let mut chunks = Vec::with_capacity(count.div_ceil(CHUNK_ITEMS));
        while !reader.is_at_end() {
            chunks.push(Chunk { first_moment: reader.u64()?, end: reader.u32()?, checksum: reader.u32()? });
        }
        if chunks.len() != count.div_ceil(CHUNK_ITEMS) {
            return Err(BadBytes("a posting list has the wrong length"));
        }
        Ok((key, Self { chunks, count, data_at: place.offset + u64::from(place.head_len) }))
    }

    /// Reads the postings of a chunk.
    pub(in crate::log) fn chunk(
        &self,
        segment: &SealedSegment,
        number: usize,
    ) -> Result<Vec<Posting>, LogError> {
        let chunk = self.chunks[number];
        let start = number.checked_sub(1).map_or(0, |before| self.chunks[before].end);
        let offset = self.data_at + u64::from(start);
        let damaged = |BadBytes(problem)| segment.damaged(offset, problem);
        let len =
            chunk.end.checked_sub(start).ok_or_else(|| damaged(BadBytes("a posting list runs backwards")))?;
        let mut bytes = vec![0; len as usize];
        read_exact_at(segment.file(), &mut bytes, offset).map_err(LogError::io("read", segment.path()))?;
        if crc32fast::hash(&bytes) != chunk.checksum {
            return Err(damaged(BadBytes("a chunk of a posting list has the wrong checksum")));
        }
        let count = (self.count - number * CHUNK_ITEMS).min(CHUNK_ITEMS);
        read_chunk(&bytes, chunk.first_moment, segment.first_seq(), count).map_err(damaged)
    }

    /// How many chunks there are.
    pub(in crate::log) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// The place on the list of the first event that happened at `millis` or later.
    fn first_from(&self, segment: &SealedSegment, millis: u64) -> Result<usize, LogError> {
        let Some(number) = self.chunks.partition_point(|chunk| chunk.first_moment < millis).checked_sub(1)
        else {
            return Ok(0);
        };
        let within = self.chunk(segment, number)?.partition_point(|posting| posting.millis < millis);
        Ok(number * CHUNK_ITEMS + within)
    }
}

fn read_chunk(
    bytes: &[u8],
    first_moment: u64,
    first_seq: Seq,
    count: usize,
) -> Result<Vec<Posting>, BadBytes> {
    let mut reader = Reader::new(bytes);
    let mut postings = Vec::with_capacity(count);
    let (mut millis, mut seq) = (first_moment, first_seq.0);
    for _ in 0..count {
        millis = millis.wrapping_add(reader.varint()?);
        seq = seq.wrapping_add_signed(unzigzag(reader.varint()?));
        postings.push(Posting { millis, seq: Seq(seq) });
    }
    Ok(postings)
}

/// Goes along the part of a list that lies in a window.
#[derive(Debug)]
pub(in crate::log) struct ListCursor {
    list: PostingList,
    order: Order,
    /// The places on the list that are left.
    start: usize,
    end: usize,
    chunk: Vec<Posting>,
    chunk_number: usize,
}

impl ListCursor {
    /// `id_of` reads the id of an event; it is asked only where moments are equal to that of `window.after`.
    pub(in crate::log) fn new(
        segment: &SealedSegment,
        list: PostingList,
        window: &Window,
        mut id_of: impl FnMut(Seq) -> Result<EventId, LogError>,
    ) -> Result<Self, LogError> {
        let (from, to) = (window.first_moment().millis(), window.last_moment().millis());
        let start = list.first_from(segment, from)?;
        let end = if to >= Timestamp::MAX.millis() { list.count } else { list.first_from(segment, to + 1)? };
        let order = window.order;
        let mut cursor =
            Self { list, order, start, end: end.max(start), chunk: Vec::new(), chunk_number: usize::MAX };
        let Some(after) = window.after else { return Ok(cursor) };
        // Of the events in the same moment as `after`, those up to it were taken. They are sorted by id.
        match order {
            Order::Ascending if after.timestamp.millis() == from => {
                let end = cursor.list.first_from(segment, from + 1)?.min(cursor.end);
                cursor.start = cursor.split(segment, cursor.start, end, |seq| Ok(id_of(seq)? <= after.id))?;
            }
            Order::Descending if after.timestamp.millis() == to => {
                let start = cursor.list.first_from(segment, to)?.max(cursor.start);
                cursor.end = cursor.split(segment, start, cursor.end, |seq| Ok(id_of(seq)? < after.id))?;
            }
            _ => {}
        }
        Ok(cursor)
    }

    /// The next event, if any is left.
    pub(in crate::log) fn next(&mut self, segment: &SealedSegment) -> Result<Option<Posting>, LogError> {
        if self.start >= self.end {
            return Ok(None);
        }
        let place = match self.order {
            Order::Ascending => {
                self.start += 1;
                self.start - 1
            }
            Order::Descending => {
                self.end -= 1;
                self.end
            }
        };
        self.posting(segment, place).map(Some)
    }

    fn posting(&mut self, segment: &SealedSegment, place: usize) -> Result<Posting, LogError> {
        let number = place / CHUNK_ITEMS;
        if self.chunk_number != number {
            self.chunk = self.list.chunk(segment, number)?;
            self.chunk_number = number;
        }
        Ok(self.chunk[place % CHUNK_ITEMS])
    }

    /// The first of the places from `start` to `end` for which `is_before` is false.
    fn split(
        &mut self,
        segment: &SealedSegment,
        mut start: usize,
        mut end: usize,
        mut is_before: impl FnMut(Seq) -> Result<bool, LogError>,
    ) -> Result<usize, LogError> {
        while start < end {
            let middle = start.midpoint(end);
            let seq = self.posting(segment, middle)?.seq;
            if is_before(seq)? {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        Ok(start)
    }
}
