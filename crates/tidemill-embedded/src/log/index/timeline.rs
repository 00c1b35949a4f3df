//! Timelines: the events of a tenant, app or type in order, over all segments.
//!
//! A segment is opened only when its first moment comes up, so a page costs what it shows and not what the log holds.

use std::sync::Arc;
use std::vec;

use tidemill_model::Timestamp;

use super::query::{Order, PostingKey, StoredPage, TimelineQuery, Window};
use crate::log::segment::raw_segment::{RawPosting, RawSegment};
use crate::log::segment::sealed::{ListCursor, SealedSegment};
use crate::log::session::{Session, missing};
use crate::log::shared::Segment;
use crate::log::{LogError, StoredEvent};

/// How many postings of a segment in memory are looked up at a time.
const BATCH: usize = 128;

pub(in crate::log) fn timeline(
    session: &mut Session<'_>,
    query: &TimelineQuery,
) -> Result<StoredPage, LogError> {
    let mut merge = Merge::new(session, query);
    let mut page = StoredPage::default();
    while page.events.len() < query.window.limit {
        let Some(event) = merge.next(session)? else { return Ok(page) };
        page.events.push(event);
    }
    if merge.fill(session)? {
        page.next = page.events.last().map(|stored| stored.event.position());
    }
    Ok(page)
}

/// The segments of a query, merged.
struct Merge<'a> {
    key: PostingKey<'a>,
    window: Window,
    /// Segments that are not opened yet; the one to open next is the last.
    waiting: Vec<(Timestamp, Segment)>,
    open: Vec<Source>,
}

/// A segment's part of a timeline, and its next event.
struct Source {
    head: StoredEvent,
    cursor: Cursor,
}

enum Cursor {
    Raw { segment: Arc<RawSegment>, batch: vec::IntoIter<RawPosting>, rest: Option<Window> },
    Sealed { segment: Arc<SealedSegment>, list: ListCursor },
}

impl<'a> Merge<'a> {
    fn new(session: &Session<'_>, query: &'a TimelineQuery) -> Self {
        let window = query.window;
        let (first, last) = (window.first_moment(), window.last_moment());
        let mut waiting: Vec<_> = session
            .segments
            .iter()
            .filter_map(|segment| {
                let extent = segment.extent()?;
                let edge = match window.order {
                    Order::Ascending => extent.first,
                    Order::Descending => extent.last,
                };
                (extent.first <= last && extent.last >= first).then(|| (edge, segment.clone()))
            })
            .collect();
        match window.order {
            Order::Ascending => waiting.sort_by_key(|(edge, _)| std::cmp::Reverse(*edge)),
            Order::Descending => waiting.sort_by_key(|(edge, _)| *edge),
        }
        Self { key: query.key(), window, waiting, open: Vec::new() }
    }

    /// The next event of the timeline.
    fn next(&mut self, session: &mut Session<'_>) -> Result<Option<StoredEvent>, LogError> {
        if !self.fill(session)? {
            return Ok(None);
        }
        let Some(first) = self.first() else { return Ok(None) };
        let source = &mut self.open[first];
        let head = match source.cursor.next(session, &self.key, self.window.limit)? {
            Some(head) => std::mem::replace(&mut source.head, head),
            None => self.open.swap_remove(first).head,
        };
        Ok(Some(head))
    }

    /// Opens every segment that may hold the next event; `false` when there is none.
    fn fill(&mut self, session: &mut Session<'_>) -> Result<bool, LogError> {
        while let Some((edge, _)) = self.waiting.last() {
            let is_due = self.first().is_none_or(|first| {
                let head = self.open[first].head.event.timestamp;
                match self.window.order {
                    Order::Ascending => *edge <= head,
                    Order::Descending => *edge >= head,
                }
            });
            if !is_due {
                break;
            }
            let Some((_, segment)) = self.waiting.pop() else { break };
            if let Some(mut cursor) = Cursor::open(session, &segment, &self.key, &self.window)?
                && let Some(head) = cursor.next(session, &self.key, self.window.limit)?
            {
                self.open.push(Source { head, cursor });
            }
        }
        Ok(!self.open.is_empty())
    }

    /// The open segment whose head comes first.
    fn first(&self) -> Option<usize> {
        let position = |index: &usize| self.open[*index].head.event.position();
        match self.window.order {
            Order::Ascending => (0..self.open.len()).min_by_key(position),
            Order::Descending => (0..self.open.len()).max_by_key(position),
        }
    }
}

impl Cursor {
    fn open(
        session: &mut Session<'_>,
        segment: &Segment,
        key: &PostingKey<'_>,
        window: &Window,
    ) -> Result<Option<Self>, LogError> {
        match segment {
            Segment::Raw(raw) => {
                let batch = Vec::new().into_iter();
                Ok(Some(Self::Raw { segment: Arc::clone(raw), batch, rest: Some(*window) }))
            }
            Segment::Sealed(sealed) => {
                let Some(list) = sealed.list(key)? else { return Ok(None) };
                let list = ListCursor::new(sealed, list, window, |seq| session.sealed_id(sealed, seq))?;
                Ok(Some(Self::Sealed { segment: Arc::clone(sealed), list }))
            }
        }
    }

    fn next(
        &mut self,
        session: &mut Session<'_>,
        key: &PostingKey<'_>,
        limit: usize,
    ) -> Result<Option<StoredEvent>, LogError> {
        let (event, path) = match self {
            Self::Raw { segment, batch, rest } => {
                if batch.len() == 0
                    && let Some(window) = rest
                {
                    let count = BATCH.min(limit.saturating_add(1));
                    let found = segment.postings(key, window, count);
                    match found.last() {
                        Some(last) if found.len() == count => window.after = Some(last.position),
                        _ => *rest = None,
                    }
                    *batch = found.into_iter();
                }
                let Some(posting) = batch.next() else { return Ok(None) };
                (session.raw_event(segment, posting.seq, posting.place)?, &*segment.path)
            }
            Self::Sealed { segment, list } => {
                let Some(posting) = list.next(segment)? else { return Ok(None) };
                let event = session.sealed_event(segment, posting.seq)?;
                (event.ok_or_else(|| missing(segment, posting.seq))?, segment.path())
            }
        };
        // Whatever happened to the lists, no tenant gets another's event.
        if key.fits(&event.event) {
            Ok(Some(event))
        } else {
            let problem = format!("event {} is on a posting list of others", event.seq);
            Err(LogError::corrupt(path, 0, problem))
        }
    }
}
