//! Readers of the log: single events, timelines, histories, and everything in order.

use std::sync::Arc;

use super::entry::{Entries, Entry, RawEntry};
use super::index::chain;
use super::index::postings::Extent;
use super::index::query::{ChainQuery, StoredPage, TimelineQuery};
use super::index::timeline;
use super::segment::raw_segment::RawSegment;
use super::segment::sealed::SealedSegment;
use super::session::Session;
use super::shared::{Segment, Shared};
use super::{LogError, LogPosition, Seq, StoredEvent};
use crate::codec::{BadBytes, decode_event};

/// Looks at what was published. Cheap to clone, for any number of threads.
#[derive(Clone)]
pub struct LogReader {
    shared: Arc<Shared>,
}

/// What is known about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    pub id: u32,
    pub kind: SegmentKind,
    /// The number of its first event, as first written.
    pub first_seq: Seq,
    /// The number after its last event's, as first written.
    pub end_seq: Seq,
    /// How many events it holds now.
    pub events: u64,
    pub controls: u64,
    /// The first and last moments of its events; `None` without events.
    pub extent: Option<Extent>,
    /// How many bytes of the file are in use.
    pub bytes: u64,
}

/// The form of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentKind {
    /// The one that groups are appended to.
    Open,
    /// Waits to be sealed.
    Full,
    Sealed,
}

impl LogReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The event `seq`; `None` when it expired or is not published.
    pub fn read(&self, seq: Seq) -> Result<Option<StoredEvent>, LogError> {
        Session::new(&self.shared).event(seq)
    }

    /// Up to `limit` events from the number `from` on, by number. Expired ones are left out.
    pub fn read_from(&self, from: Seq, limit: usize) -> Result<Vec<StoredEvent>, LogError> {
        let mut session = Session::new(&self.shared);
        let mut events = Vec::new();
        let segments = Arc::clone(&session.segments);
        for segment in segments.iter().filter(|segment| segment.next_start().seq > from) {
            if events.len() < limit {
                session.events_of(segment, from, limit, &mut events)?;
            }
        }
        Ok(events)
    }

    /// A page of a timeline.
    pub fn timeline(&self, query: &TimelineQuery) -> Result<StoredPage, LogError> {
        timeline::timeline(&mut Session::new(&self.shared), query)
    }

    /// A page of an entity's history.
    pub fn chain(&self, query: &ChainQuery) -> Result<StoredPage, LogError> {
        chain::chain(&mut Session::new(&self.shared), query)
    }

    /// The place behind the last published group.
    pub fn end(&self) -> LogPosition {
        match self.shared.segments().last() {
            Some(Segment::Raw(raw)) => raw.end(),
            _ => LogPosition::START,
        }
    }

    /// Visits every published entry behind `from` in order and tells where it ended.
    pub fn replay<E: From<LogError>>(
        &self,
        from: LogPosition,
        mut visit: impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<LogPosition, E> {
        let segments = self.shared.segments();
        let end = self.end();
        if (from.segment, from.offset) > (end.segment, end.offset) {
            return Err(LogError::Lost { found: end, known: from, known_by: "the caller" }.into());
        }
        let mut reached = from;
        for segment in segments.iter().filter(|segment| segment.id() >= from.segment) {
            let from = if segment.id() == from.segment {
                from
            } else {
                LogPosition { segment: segment.id(), offset: 0, next_seq: segment.start().seq }
            };
            reached = replay_segment(segment, from, &mut visit)?;
        }
        Ok(reached)
    }

    /// Visits every published entry of one segment in order.
    pub fn scan<E: From<LogError>>(
        &self,
        segment: u32,
        mut visit: impl FnMut(Entry<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let segments = self.shared.segments();
        let found = segments.get(segment).ok_or(LogError::NoSuchSegment { segment })?;
        let from = LogPosition { segment, offset: 0, next_seq: found.start().seq };
        replay_segment(found, from, &mut visit).map(|_| ())
    }

    /// All segments, the oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let segments = self.shared.segments();
        let last = segments.last().map(Segment::id);
        segments.iter().map(|segment| info(segment, Some(segment.id()) == last)).collect()
    }
}

fn info(segment: &Segment, is_last: bool) -> SegmentInfo {
    let (kind, events, controls, bytes) = match segment {
        Segment::Raw(raw) => {
            let published = raw.published();
            let kind = if is_last { SegmentKind::Open } else { SegmentKind::Full };
            (kind, published.postings.len() as u64, published.controls, published.end)
        }
        Segment::Sealed(sealed) => {
            let footer = sealed.footer();
            (SegmentKind::Sealed, footer.events, footer.controls, sealed.bytes())
        }
    };
    let (first_seq, end_seq) = (segment.start().seq, segment.next_start().seq);
    SegmentInfo {
        id: segment.id(),
        kind,
        first_seq,
        end_seq,
        events,
        controls,
        extent: segment.extent(),
        bytes,
    }
}

fn replay_segment<E: From<LogError>>(
    segment: &Segment,
    from: LogPosition,
    visit: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
) -> Result<LogPosition, E> {
    match segment {
        Segment::Raw(raw) => replay_raw(raw, from, visit),
        Segment::Sealed(sealed) => replay_sealed(sealed, from, visit),
    }
}

fn replay_raw<E: From<LogError>>(
    raw: &RawSegment,
    from: LogPosition,
    visit: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
) -> Result<LogPosition, E> {
    let end = raw.end();
    let mut frames = raw.frames(from.offset, from.next_seq);
    while frames.offset() < end.offset {
        let offset = frames.offset();
        let damaged = |problem| E::from(LogError::corrupt(&raw.path, offset, problem));
        let frame = frames.next().map_err(LogError::io("read", &raw.path))?;
        let frame = frame.ok_or_else(|| damaged("there is no whole group here"))?;
        let mut entries = Entries::new(frame.entries, frame.header.first_seq);
        while let Some(entry) = entries.next().map_err(|BadBytes(problem)| damaged(problem))? {
            visit_entry(entry, visit, damaged)?;
        }
    }
    Ok(end)
}

fn replay_sealed<E: From<LogError>>(
    sealed: &SealedSegment,
    from: LogPosition,
    visit: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
) -> Result<LogPosition, E> {
    let footer = sealed.footer();
    let end = LogPosition { segment: sealed.id(), offset: footer.raw_end, next_seq: footer.end.seq };
    let mut group = 0;
    for block in first_block(sealed, from.offset)?..sealed.block_count() {
        let bytes = sealed.read_block(block)?;
        let damaged = |problem| E::from(sealed.damaged(sealed.offset_of(block), problem));
        let mut entries = Entries::new(&bytes, sealed.seq_at(block));
        while let Some(entry) = entries.next().map_err(|BadBytes(problem)| damaged(problem))? {
            if let RawEntry::Frame(offset) = entry {
                group = offset;
            } else if group >= from.offset {
                visit_entry(entry, visit, damaged)?;
            }
        }
    }
    Ok(end)
}

/// The last block that starts with a group before `offset`. Each block names the group it starts with.
fn first_block(sealed: &SealedSegment, offset: u64) -> Result<usize, LogError> {
    let (mut start, mut end) = (0, sealed.block_count());
    while start < end {
        let middle = start.midpoint(end);
        let bytes = sealed.read_block(middle)?;
        let first = Entries::new(&bytes, sealed.seq_at(middle)).next();
        let Ok(Some(RawEntry::Frame(group))) = first else {
            return Err(sealed.damaged(sealed.offset_of(middle), "a block does not name its group"));
        };
        if group < offset {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    Ok(start.saturating_sub(1))
}

fn visit_entry<E>(
    entry: RawEntry<'_>,
    visit: &mut impl FnMut(Entry<'_>) -> Result<(), E>,
    damaged: impl Fn(&'static str) -> E,
) -> Result<(), E> {
    match entry {
        RawEntry::Event { seq, bytes } => {
            visit(Entry::Event(decode_event(seq, bytes).map_err(|BadBytes(problem)| damaged(problem))?))
        }
        RawEntry::Control(bytes) => visit(Entry::Control(bytes)),
        RawEntry::Frame(_) => Ok(()),
    }
}
