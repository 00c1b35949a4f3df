//! Histories: the events of one entity, along the pointers that they hold.
//!
//! In either order a page costs its own length and the way to its first event, which jumps make short. An event that
//! is not there any more ends its chain: what is older expired too.
//!
//! The main chain is in order. The chain aside may hold events that came late, out of order among themselves. How far
//! is known, so a stretch of them is sorted that is as long as it takes to be sure of the next one.

use std::collections::{BTreeMap, VecDeque};

use tidemill_model::{Position, Timestamp};

use super::query::{ChainQuery, Order, StoredPage, Window};
use crate::log::session::Session;
use crate::log::{LogError, Seq, StoredEvent};

/// The most events that are read backwards in one go to give them in ascending order.
const STRETCH_MAX: u64 = 4096;

pub(in crate::log) fn chain(session: &mut Session<'_>, query: &ChainQuery) -> Result<StoredPage, LogError> {
    if query.window.limit == 0 {
        return Ok(StoredPage::default());
    }
    let mut strands = Vec::with_capacity(2);
    for (tip, along, lag) in [(query.main, Along::Main, None), (query.aside, Along::Aside, query.lag_millis)]
    {
        if let Some(tip) = read(session, tip)? {
            strands.push(match query.window.order {
                Order::Ascending => Strand::ascending(session, along, tip, &query.window, lag)?,
                Order::Descending => Strand::descending(session, along, tip, &query.window, lag)?,
            });
        }
    }
    let mut page = StoredPage::default();
    while let Some(stored) = next(session, &mut strands, query)? {
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
    query: &ChainQuery,
) -> Result<Option<StoredEvent>, LogError> {
    let window = &query.window;
    for strand in &mut *strands {
        strand.fill(session, query)?;
    }
    let heads = strands.iter_mut().filter(|strand| strand.head.is_some());
    let position = |strand: &&mut Strand| strand.head.as_ref().map(|stored| stored.event.position());
    let first = match window.order {
        Order::Ascending => heads.min_by_key(position),
        Order::Descending => heads.max_by_key(position),
    };
    Ok(first.and_then(|strand| strand.head.take()).filter(|stored| {
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
    /// The next event.
    head: Option<StoredEvent>,
    /// What it takes to sort it, if it is out of order.
    sorting: Option<Sorting>,
    /// Events that were read, in the order of the chain.
    ready: VecDeque<StoredEvent>,
    rest: Rest,
}

/// Events of a chain that is out of order, until none that is still to come can lie before them.
struct Sorting {
    lag_millis: u64,
    /// Those of the window that were read, as many as can be wanted.
    pool: BTreeMap<Position, StoredEvent>,
    /// The earliest moment that was read, or the latest when the chain is read forwards.
    edge: Option<Timestamp>,
    /// How many have left the pool.
    given: usize,
}

impl Sorting {
    fn new(lag_millis: u64) -> Self {
        Self { lag_millis, pool: BTreeMap::new(), edge: None, given: 0 }
    }

    fn take_in(&mut self, stored: StoredEvent, query: &ChainQuery) {
        let (position, window) = (stored.event.position(), &query.window);
        let moment = position.timestamp;
        self.edge = Some(match window.order {
            Order::Ascending => self.edge.map_or(moment, |edge| edge.max(moment)),
            Order::Descending => self.edge.map_or(moment, |edge| edge.min(moment)),
        });
        if window.is_below(&position) || window.is_above(&position) || !query.accepts(&stored) {
            return;
        }
        self.pool.insert(position, stored);
        // The page shows no more, and one beyond it tells that more follow.
        if self.pool.len() + self.given > window.limit.saturating_add(1) {
            match window.order {
                Order::Ascending => self.pool.pop_last(),
                Order::Descending => self.pool.pop_first(),
            };
        }
    }

    /// The next event, if none that is still to come can lie before it.
    fn give(&mut self, order: Order, is_over: bool) -> Option<StoredEvent> {
        let first = match order {
            Order::Ascending => self.pool.first_entry(),
            Order::Descending => self.pool.last_entry(),
        }?;
        let moment = first.key().timestamp;
        let is_sure = is_over
            || self.edge.is_some_and(|edge| match order {
                Order::Ascending => moment < edge.minus(self.lag_millis),
                Order::Descending => moment > edge.plus(self.lag_millis),
            });
        if !is_sure {
            return None;
        }
        self.given += 1;
        Some(first.remove())
    }

    /// Whether nothing of the window can come any more.
    fn is_past(&self, window: &Window) -> bool {
        self.edge.is_some_and(|edge| match window.order {
            Order::Ascending => edge.minus(self.lag_millis) > window.last_moment(),
            Order::Descending => edge.plus(self.lag_millis) < window.first_moment(),
        })
    }
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
        lag: Option<u64>,
    ) -> Result<Self, LogError> {
        // Out of order, all that is newer than an event lies no further before it than the lag.
        let is_above = |stored: &StoredEvent| match lag {
            None => window.is_above(&stored.event.position()),
            Some(lag) => stored.event.timestamp > window.last_moment().plus(lag),
        };
        let mut ready = VecDeque::new();
        let older = if is_above(&tip) {
            along.older(&along.farthest(session, tip, is_above)?)
        } else {
            let older = along.older(&tip);
            ready.push_back(tip);
            older
        };
        Ok(Self { along, head: None, sorting: lag.map(Sorting::new), ready, rest: Rest::Older(older) })
    }

    /// From the oldest event that is not below the window.
    fn ascending(
        session: &mut Session<'_>,
        along: Along,
        tip: StoredEvent,
        window: &Window,
        lag: Option<u64>,
    ) -> Result<Self, LogError> {
        // Out of order, all that is older than an event lies no further behind it than the lag.
        let is_inside = |stored: &StoredEvent| match lag {
            None => !window.is_below(&stored.event.position()),
            Some(lag) => stored.event.timestamp.plus(lag) >= window.first_moment(),
        };
        let rest = if is_inside(&tip) {
            let first = along.farthest(session, tip.clone(), is_inside)?;
            let stretch = (window.limit as u64).saturating_add(1).min(STRETCH_MAX);
            Rest::Newer { tip: Box::new(tip), from: first.links.ordinal, stretch }
        } else {
            Rest::Older(None)
        };
        Ok(Self { along, head: None, sorting: lag.map(Sorting::new), ready: VecDeque::new(), rest })
    }

    /// Sees to it that the next event is there, if there is one.
    fn fill(&mut self, session: &mut Session<'_>, query: &ChainQuery) -> Result<(), LogError> {
        while self.head.is_none() {
            let order = query.window.order;
            if let Some(sorting) = &mut self.sorting {
                let is_past = sorting.is_past(&query.window);
                self.head = sorting.give(order, is_past);
                if is_past || self.head.is_some() {
                    break;
                }
            }
            self.read_on(session)?;
            let next = self.ready.pop_front();
            match (&mut self.sorting, next) {
                (None, next) => {
                    self.head = next;
                    break;
                }
                (Some(sorting), Some(next)) => sorting.take_in(next, query),
                (Some(sorting), None) => {
                    self.head = sorting.give(order, true);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads the next events of the chain, if none is ready.
    fn read_on(&mut self, session: &mut Session<'_>) -> Result<(), LogError> {
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

fn read(session: &mut Session<'_>, seq: Option<Seq>) -> Result<Option<StoredEvent>, LogError> {
    seq.map_or(Ok(None), |seq| session.event(seq))
}
