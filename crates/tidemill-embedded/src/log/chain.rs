//! Histories: the events of one entity, along the pointers that they hold.
//!
//! In either order a page costs its own length and the way to its first event, which jumps make short. An event that
//! is not there any more ends its chain: what is older expired too.

use std::collections::VecDeque;

use super::query::{ChainQuery, Order, Page, Window};
use super::session::Session;
use super::{LogError, Seq, StoredEvent};

/// The most events that are read backwards in one go to give them in ascending order.
const STRETCH_MAX: u64 = 4096;

pub(super) fn chain(session: &mut Session<'_>, query: &ChainQuery) -> Result<Page, LogError> {
    if query.window.limit == 0 {
        return Ok(Page::default());
    }
    if !query.ordered {
        return disordered(session, query);
    }
    let mut strands = Vec::with_capacity(2);
    for (tip, along) in [(query.main, Along::Main), (query.aside, Along::Aside)] {
        if let Some(tip) = read(session, tip)? {
            strands.push(match query.window.order {
                Order::Ascending => Strand::ascending(session, along, tip, &query.window)?,
                Order::Descending => Strand::descending(session, along, tip, &query.window)?,
            });
        }
    }
    let mut page = Page::default();
    while let Some(stored) = next(session, &mut strands, &query.window)? {
        if page.events.len() == query.window.limit {
            page.next = page.events.last().map(|stored| stored.event.position());
            break;
        }
        if query.accepts(&stored) {
            page.events.push(stored);
        }
    }
    Ok(page)
}

/// The next event of either strand that lies in the window.
fn next(
    session: &mut Session<'_>,
    strands: &mut [Strand],
    window: &Window,
) -> Result<Option<StoredEvent>, LogError> {
    for strand in &mut *strands {
        strand.fill(session)?;
    }
    let heads = strands.iter_mut().filter(|strand| !strand.ready.is_empty());
    let position = |strand: &&mut Strand| strand.ready.front().map(|stored| stored.event.position());
    let first = match window.order {
        Order::Ascending => heads.min_by_key(position),
        Order::Descending => heads.max_by_key(position),
    };
    Ok(first.and_then(|strand| strand.ready.pop_front()).filter(|stored| {
        let position = stored.event.position();
        !window.is_below(&position) && !window.is_above(&position)
    }))
}

/// Which pointers a chain goes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    Main,
    Aside,
}

impl Along {
    fn older(self, stored: &StoredEvent) -> Option<Seq> {
        match self {
            Self::Main => stored.links.prev,
            Self::Aside => stored.links.aside,
        }
    }

    /// The oldest event that still `holds`. It must hold for `start`, and for none behind the first it does not hold
    /// for.
    fn farthest(
        self,
        session: &mut Session<'_>,
        start: StoredEvent,
        holds: impl Fn(&StoredEvent) -> bool,
    ) -> Result<StoredEvent, LogError> {
        let mut current = start;
        loop {
            if let Some(target) = read(session, current.links.jump)?.filter(&holds) {
                current = target;
                continue;
            }
            // A jump to the event before was tried already.
            let older = self.older(&current).filter(|older| Some(*older) != current.links.jump);
            match read(session, older)?.filter(&holds) {
                Some(older) => current = older,
                None => return Ok(current),
            }
        }
    }
}

/// One chain of an entity, read in the order of a window.
struct Strand {
    along: Along,
    /// The next events.
    ready: VecDeque<StoredEvent>,
    rest: Rest,
}

/// What comes after the events that are ready.
enum Rest {
    Older(Option<Seq>),
    /// Up to `tip`, from the place `from` on; `stretch` of them are read next.
    Newer {
        tip: Box<StoredEvent>,
        from: u64,
        stretch: u64,
    },
}

impl Strand {
    /// From the newest event that is not above the window.
    fn descending(
        session: &mut Session<'_>,
        along: Along,
        tip: StoredEvent,
        window: &Window,
    ) -> Result<Self, LogError> {
        let is_above = |stored: &StoredEvent| window.is_above(&stored.event.position());
        let mut ready = VecDeque::new();
        let older = if is_above(&tip) {
            along.older(&along.farthest(session, tip, is_above)?)
        } else {
            let older = along.older(&tip);
            ready.push_back(tip);
            older
        };
        Ok(Self { along, ready, rest: Rest::Older(older) })
    }

    /// From the oldest event that is not below the window.
    fn ascending(
        session: &mut Session<'_>,
        along: Along,
        tip: StoredEvent,
        window: &Window,
    ) -> Result<Self, LogError> {
        let is_inside = |stored: &StoredEvent| !window.is_below(&stored.event.position());
        let rest = if is_inside(&tip) {
            let first = along.farthest(session, tip.clone(), is_inside)?;
            let stretch = (window.limit as u64).saturating_add(1).min(STRETCH_MAX);
            Rest::Newer { tip: Box::new(tip), from: first.links.ordinal, stretch }
        } else {
            Rest::Older(None)
        };
        Ok(Self { along, ready: VecDeque::new(), rest })
    }

    /// Sees to it that the next event is ready, if there is one.
    fn fill(&mut self, session: &mut Session<'_>) -> Result<(), LogError> {
        if !self.ready.is_empty() {
            return Ok(());
        }
        let along = self.along;
        match &mut self.rest {
            Rest::Older(older) => {
                if let Some(stored) = read(session, older.take())? {
                    *older = along.older(&stored);
                    self.ready.push_back(stored);
                }
            }
            Rest::Newer { tip, from, stretch } if tip.links.ordinal >= *from => {
                let last = from.saturating_add(*stretch - 1);
                let end = along
                    .farthest(session, StoredEvent::clone(tip), |stored| stored.links.ordinal >= last)?;
                let first = std::mem::replace(from, end.links.ordinal + 1);
                *stretch = (*stretch * 2).min(STRETCH_MAX);
                let mut current = Some(end);
                while let Some(stored) = current.take_if(|stored| stored.links.ordinal >= first) {
                    current = read(session, along.older(&stored))?;
                    self.ready.push_front(stored);
                }
            }
            Rest::Newer { .. } => {}
        }
        Ok(())
    }
}

/// Reads the whole history and sorts what is wanted of it.
fn disordered(session: &mut Session<'_>, query: &ChainQuery) -> Result<Page, LogError> {
    let window = &query.window;
    let mut found = Vec::new();
    for (tip, along) in [(query.main, Along::Main), (query.aside, Along::Aside)] {
        let mut current = read(session, tip)?;
        while let Some(stored) = current {
            current = read(session, along.older(&stored))?;
            let position = stored.event.position();
            if window.is_below(&position) || window.is_above(&position) || !query.accepts(&stored) {
                continue;
            }
            found.push(stored);
            // Keeps the memory within that of a few pages, however long the history is.
            if found.len() > window.limit.saturating_add(64).saturating_mul(4) {
                sort(&mut found, window.order);
                found.truncate(window.limit + 1);
            }
        }
    }
    sort(&mut found, window.order);
    let more = found.len() > window.limit;
    found.truncate(window.limit);
    let next = found.last().filter(|_| more).map(|stored| stored.event.position());
    Ok(Page { events: found, next })
}

fn sort(found: &mut [StoredEvent], order: Order) {
    found.sort_unstable_by_key(|stored| stored.event.position());
    if order == Order::Descending {
        found.reverse();
    }
}

fn read(session: &mut Session<'_>, seq: Option<Seq>) -> Result<Option<StoredEvent>, LogError> {
    seq.map_or(Ok(None), |seq| session.event(seq))
}
