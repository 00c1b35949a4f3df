//! One look at the log: the segments as they were when it began, and the block it read last.

use std::sync::Arc;

use tidemill_model::EventId;

use super::entry::{Entries, RawEntry};
use super::segment::block_cache::Block;
use super::segment::raw_segment::{Place, RawSegment};
use super::segment::sealed::SealedSegment;
use super::shared::{Segment, Segments, Shared};
use super::{LogError, Seq, StoredEvent};
use crate::codec::{BadBytes, decode_event, decode_fields};

pub(super) struct Session<'a> {
    shared: &'a Shared,
    pub(super) segments: Arc<Segments>,
    block: Option<Arc<Block>>,
    buffer: Vec<u8>,
}

impl<'a> Session<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, segments: shared.segments(), block: None, buffer: Vec::new() }
    }

    /// The event `seq`; `None` when it expired or is not published.
    pub(super) fn event(&mut self, seq: Seq) -> Result<Option<StoredEvent>, LogError> {
        match self.segments.of(seq).cloned() {
            None => Ok(None),
            Some(Segment::Sealed(sealed)) => self.sealed_event(&sealed, seq),
            Some(Segment::Raw(raw)) => match raw.place_of(seq) {
                Some(place) => self.raw_event(&raw, seq, place).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Adds the events of a segment from the number `from` on until there are `limit`.
    pub(super) fn events_of(
        &mut self,
        segment: &Segment,
        from: Seq,
        limit: usize,
        events: &mut Vec<StoredEvent>,
    ) -> Result<(), LogError> {
        match segment {
            Segment::Raw(raw) => {
                let mut seq = from.max(raw.start.seq);
                while events.len() < limit
                    && let Some(place) = raw.place_of(seq)
                {
                    events.push(self.raw_event(raw, seq, place)?);
                    seq = seq.next();
                }
            }
            Segment::Sealed(sealed) => {
                let first = sealed.block_of(from).unwrap_or(0);
                for number in first..sealed.block_count() {
                    let block = self.block(sealed, number)?;
                    let mut entries = Entries::new(&block.entries, sealed.seq_at(number));
                    let mut next = || {
                        while let Some(entry) = entries.next()? {
                            if let RawEntry::Event { seq, bytes } = entry
                                && seq >= from
                            {
                                return decode_event(seq, bytes).map(Some);
                            }
                        }
                        Ok(None)
                    };
                    let damaged = |BadBytes(problem)| sealed.damaged(sealed.offset_of(number), problem);
                    while let Some(event) = next().map_err(damaged)? {
                        if events.len() == limit {
                            return Ok(());
                        }
                        events.push(event);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn raw_event(
        &mut self,
        raw: &RawSegment,
        seq: Seq,
        place: Place,
    ) -> Result<StoredEvent, LogError> {
        raw.read_place(place, &mut self.buffer)?;
        decode_event(seq, &self.buffer).map_err(|bad| raw.damaged(place, bad))
    }

    pub(super) fn sealed_event(
        &mut self,
        sealed: &SealedSegment,
        seq: Seq,
    ) -> Result<Option<StoredEvent>, LogError> {
        self.sealed_bytes(sealed, seq, |bytes| decode_event(seq, bytes))
    }

    /// The id of an event that must be there.
    pub(super) fn sealed_id(&mut self, sealed: &SealedSegment, seq: Seq) -> Result<EventId, LogError> {
        let id = self.sealed_bytes(sealed, seq, |bytes| decode_fields(bytes).map(|fields| fields.id))?;
        id.ok_or_else(|| missing(sealed, seq))
    }

    fn sealed_bytes<T>(
        &mut self,
        sealed: &SealedSegment,
        seq: Seq,
        decode: impl FnOnce(&[u8]) -> Result<T, BadBytes>,
    ) -> Result<Option<T>, LogError> {
        let Some(number) = sealed.block_of(seq) else { return Ok(None) };
        let block = self.block(sealed, number)?;
        let find = || {
            let mut entries = Entries::new(&block.entries, sealed.seq_at(number));
            while let Some(entry) = entries.next()? {
                match entry {
                    RawEntry::Event { seq: found, bytes } if found == seq => return decode(bytes).map(Some),
                    RawEntry::Event { seq: found, .. } if found > seq => break,
                    _ => {}
                }
            }
            Ok(None)
        };
        find().map_err(|BadBytes(problem)| {
            sealed.damaged(sealed.offset_of(number), &format!("event {seq} {problem}"))
        })
    }

    fn block(&mut self, sealed: &SealedSegment, number: usize) -> Result<Arc<Block>, LogError> {
        let key = sealed.cache_key(number);
        if let Some(block) = self.block.as_ref().filter(|block| block.key == key) {
            return Ok(Arc::clone(block));
        }
        let block = if let Some(block) = self.shared.cache.get(key) {
            block
        } else {
            let block = Arc::new(Block { key, entries: sealed.read_block(number)? });
            self.shared.cache.put(&block);
            block
        };
        Ok(Arc::clone(self.block.insert(block)))
    }
}

/// A posting names an event that its segment does not hold.
pub(super) fn missing(sealed: &SealedSegment, seq: Seq) -> LogError {
    let offset = sealed.block_of(seq).map_or(0, |block| sealed.offset_of(block));
    sealed.damaged(offset, &format!("event {seq} is on a posting list but not in its block"))
}
