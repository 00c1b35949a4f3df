//! Lanes: a tenant whose events take long to match, or that changes very many subscriptions, is matched on its own,
//! so that no other tenant waits for it.
//!
//! A lane has its own cursor, which begins where the router put the tenant aside and is as durable as the router's.
//! The lanes take turns; each turn ends after an event that took long, or after some subscriptions were taken in. A
//! lane never passes the router, which gets changes to subscriptions first, and takes in the changes it got before it
//! looks at an event. It goes back to the router when it has caught up and was cheap for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tidemill_matcher::Subscription;
use tidemill_matcher::matcher::Matcher;
use tidemill_model::{Event, SubscriptionId, TenantId, Timestamp};

use crate::Engine;
use crate::kernel::backend::Backend;
use crate::kernel::notice::Notice;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{RecordKey, RecordKind, RecordValue};
use crate::scripts::host::ScriptHost;
use crate::scripts::matching::{self, Batch, Index, Place, Wanted};
use crate::scripts::router::{Ended, LAZY_EVENTS, QUIET, TURN_WEIGHT_MAX, TURN_WORK_MAX, ended};
use crate::scripts::stop::{First, Stop, any, either};

/// Events that are read at a time.
const EVENTS_MAX: usize = 1_000;
/// Subscriptions that are read at a time.
const PAGE: usize = 1_000;
/// A tenant that cost little for this long is matched with all others again.
const CHEAP_MILLIS: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(1);
/// No more tenants than these are put aside: each lane reads the log for itself.
pub(super) const LANES_MAX: usize = 64;

/// What the router and the lanes share.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    board: Mutex<Board>,
    /// Rung when there is something new to do for a lane.
    moved: Notice,
    /// Rung when a lane wants to go back to the router.
    pub(super) returned: Notice,
}

#[derive(Debug, Default)]
pub(super) struct Board {
    /// How many lanes were opened so far.
    opened: u64,
    /// How far the router has come.
    followed: u64,
    open: BTreeMap<TenantId, Open>,
}

#[derive(Debug)]
struct Open {
    /// No other lane has it, also none that the same tenant had before.
    number: u64,
    begin: Place,
    /// What the router knew of the tenant's subscriptions, until the lane takes it over. Without it they are read.
    index: Option<Index>,
    /// Subscriptions that changed since the lane last looked.
    changed: BTreeSet<SubscriptionId>,
    /// Where the lane stands, once it wants to go back to the router, and what it knows of the subscriptions.
    done: Option<(u64, Place, Index)>,
}

/// A lane that goes back to the router.
pub(super) struct Returned {
    pub(super) tenant: TenantId,
    pub(super) place: Place,
    pub(super) index: Index,
}

impl Lanes {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The router begins anew with these lanes.
    pub(super) fn begin(&self, open: Vec<(TenantId, Place)>) {
        let mut board = self.board();
        board.open.clear();
        for (tenant, begin) in open {
            board.add(&tenant, begin, None, BTreeSet::new());
        }
        std::mem::drop(board);
        self.moved.ring();
    }

    pub(super) fn has_room(&self) -> bool {
        self.board().open.len() < LANES_MAX
    }

    pub(super) fn open(
        &self,
        tenant: &TenantId,
        begin: Place,
        index: Option<Index>,
        changed: BTreeSet<SubscriptionId>,
    ) {
        self.board().add(tenant, begin, index, changed);
        self.moved.ring();
    }

    /// A lane is to take these in before it looks at an event that the router comes to from now on.
    pub(super) fn changed(&self, tenant: &TenantId, mut ids: BTreeSet<SubscriptionId>) {
        if let Some(open) = self.board().open.get_mut(tenant) {
            open.changed.append(&mut ids);
        }
        self.moved.ring();
    }

    /// The router has come so far.
    pub(super) fn follow(&self, to: u64) {
        let mut board = self.board();
        board.followed = to;
        let is_heard = !board.open.is_empty();
        std::mem::drop(board);
        if is_heard {
            self.moved.ring();
        }
    }

    /// The lanes that stand where the router stands, know all subscriptions and want to go back. The others go on.
    pub(super) fn returning(&self, cursor: u64) -> Vec<Returned> {
        let mut board = self.board();
        let mut back = Vec::new();
        for (tenant, open) in &mut board.open {
            match open.done.take() {
                Some((at, place, index)) if at == cursor && open.changed.is_empty() => {
                    back.push(Returned { tenant: tenant.clone(), place, index });
                }
                _ => {}
            }
        }
        for Returned { tenant, .. } in &back {
            board.open.remove(tenant);
        }
        back
    }
}

impl Board {
    fn add(
        &mut self,
        tenant: &TenantId,
        begin: Place,
        index: Option<Index>,
        changed: BTreeSet<SubscriptionId>,
    ) {
        self.opened += 1;
        let open = Open { number: self.opened, begin, index, changed, done: None };
        self.open.insert(tenant.clone(), open);
    }
}

/// Drives the lanes.
pub(super) struct LaneRouter<'a, B, H> {
    engine: &'a Engine<B>,
    host: &'a H,
    stop: &'a Stop,
    lanes: &'a Lanes,
    seed: u64,
    /// How far the router had come when its changes were taken in last.
    followed: u64,
    own: BTreeMap<TenantId, Lane>,
}

struct Lane {
    number: u64,
    index: Index,
    /// Whether not all that is stored has been read yet, and which was read last.
    is_unread: bool,
    read_last: Option<Arc<str>>,
    /// What was read and not taken in yet.
    read: VecDeque<Subscription>,
    /// Subscriptions that are to be taken in before the next event.
    changed: BTreeSet<SubscriptionId>,
    cursor: u64,
    place: Place,
    /// Events of the tenant that were read, and how far.
    events: VecDeque<(u64, Event)>,
    read_to: u64,
    batch: Batch,
    costly_at: Timestamp,
}

impl<'a, B: Backend, H: ScriptHost> LaneRouter<'a, B, H> {
    pub(super) fn new(
        engine: &'a Engine<B>,
        host: &'a H,
        stop: &'a Stop,
        lanes: &'a Lanes,
        seed: u64,
    ) -> Self {
        Self { engine, host, stop, lanes, seed, followed: 0, own: BTreeMap::new() }
    }

    /// Takes the lanes in turn until it must stop or the store breaks.
    pub(super) async fn run(mut self) {
        loop {
            let moved = self.lanes.moved.listen();
            if self.stop.is_set() {
                for (tenant, lane) in &mut self.own {
                    // What was matched is known; if this cannot be written it is found out again. `ended` has told why.
                    let _ = lane.write(self.engine, tenant).await;
                }
                return;
            }
            match self.round().await {
                Ok(true) => {}
                Ok(false) if self.own.is_empty() => any(moved, self.stop.wait()).await,
                Ok(false) => any(any(moved, self.stop.wait()), self.host.sleep(QUIET)).await,
                Err(Some(_)) => return,
                Err(None) => {
                    // Goes on from what is durable.
                    self.own.clear();
                    if either(self.host.sleep(PATIENCE), self.stop.wait()).await == First::Two {
                        return;
                    }
                }
            }
        }
    }

    /// A turn for each lane. Tells whether there is more to do.
    async fn round(&mut self) -> Result<bool, Option<Ended>> {
        self.adopt().await?;
        let mut is_busy = false;
        let tenants: Vec<_> = self.own.keys().cloned().collect();
        for tenant in tenants {
            if self.stop.is_set() {
                return Ok(true);
            }
            if let Some(mut lane) = self.own.remove(&tenant) {
                is_busy |= self.turn(&tenant, &mut lane).await?;
                self.own.insert(tenant, lane);
            }
        }
        Ok(is_busy)
    }

    /// Hears what the router did: lanes that came, went, or have other subscriptions.
    async fn adopt(&mut self) -> Result<(), Option<Ended>> {
        let come = {
            let mut board = self.lanes.board();
            self.followed = board.followed;
            self.own
                .retain(|tenant, lane| board.open.get(tenant).is_some_and(|open| open.number == lane.number));
            let mut come = Vec::new();
            for (tenant, open) in &mut board.open {
                let mut changed = std::mem::take(&mut open.changed);
                if !changed.is_empty() {
                    // It does not know all of them any more.
                    open.done = None;
                }
                if let Some(lane) = self.own.get_mut(tenant) {
                    lane.changed.append(&mut changed);
                } else {
                    let (number, begin, index) = (open.number, open.begin, open.index.take());
                    come.push((tenant.clone(), Open { number, begin, index, changed, done: None }));
                }
            }
            come
        };
        for (tenant, open) in come {
            let lane = self.begin(&tenant, open).await?;
            self.own.insert(tenant, lane);
        }
        Ok(())
    }

    /// A lane that knows what the router knew, or else nothing yet.
    async fn begin(&self, tenant: &TenantId, open: Open) -> Result<Lane, Option<Ended>> {
        let Open { number, begin, index, changed, .. } = open;
        // What was written last counts, which may be more than the router knew.
        let key = RecordKey::scripts_cursor_of(Some(tenant));
        let record = self.engine.backend().record(key).await.map_err(|fault| ended(&fault.into()))?;
        let place = record.map_or(begin, |record| Place {
            written: cursor_of(&record.value).or(begin.written),
            version: record.version,
        });
        let cursor = place.written.unwrap_or(0);
        Ok(Lane {
            number,
            is_unread: index.is_none(),
            read_last: None,
            read: VecDeque::new(),
            index: index.unwrap_or_else(|| Arc::new(RwLock::new(Matcher::new(self.seed)))),
            changed,
            cursor,
            place,
            events: VecDeque::new(),
            read_to: cursor,
            batch: Batch::default(),
            costly_at: self.engine.now(),
        })
    }

    /// Takes in some of the subscriptions that a lane does not know yet. Tells whether there were any.
    async fn take_in(&self, tenant: &TenantId, lane: &mut Lane) -> Result<bool, Option<Ended>> {
        if lane.is_unread && lane.read.is_empty() {
            let backend = self.engine.backend();
            let newest = backend.newest();
            let (kind, whose) = (RecordKind::Subscription, Some(tenant.clone()));
            let page = backend.records(kind, whose, lane.read_last.take(), PAGE).await;
            let page = page.map_err(|fault| ended(&fault.into()))?;
            lane.read_last = page.last().map(|(key, _)| Arc::clone(&key.id));
            lane.is_unread = page.len() == PAGE;
            let stored = page.iter().filter_map(|(_, record)| matching::stored(&record.value, newest));
            lane.read = stored.collect();
        }
        let (mut known, mut gone, mut weight) = (Vec::new(), Vec::new(), 0);
        while weight < TURN_WEIGHT_MAX {
            if let Some(next) = lane.read.pop_front() {
                weight += matching::weight(Some(&next));
                known.push(next);
                continue;
            }
            // What changed is not older than what was read.
            let next = if lane.is_unread { None } else { lane.changed.pop_first() };
            let Some(id) = next else { break };
            let stands = self.engine.subscription(tenant, &id).await.map_err(|error| ended(&error))?;
            weight += matching::weight(stands.as_ref());
            match stands {
                Some(stands) => known.push(stands),
                None => gone.push((tenant.clone(), id)),
            }
        }
        if known.is_empty() && gone.is_empty() {
            return Ok(lane.is_unread);
        }
        if weight >= TURN_WEIGHT_MAX {
            lane.costly_at = self.engine.now();
        }
        let index = Arc::clone(&lane.index);
        let taken = self.host.aside(move || {
            for known in &known {
                matching::take(&index, known);
            }
            for id in &gone {
                matching::drop(&index, id);
            }
        });
        taken.await.ok_or(None)?;
        Ok(true)
    }

    /// Matches events of a lane until one or several took long. Tells whether there may be more.
    async fn turn(&self, tenant: &TenantId, lane: &mut Lane) -> Result<bool, Option<Ended>> {
        if self.take_in(tenant, lane).await? {
            return Ok(true);
        }
        if lane.events.is_empty() {
            lane.cursor = lane.cursor.max(lane.read_to);
            let followed = self.followed;
            if lane.cursor >= followed {
                return self.rest(tenant, lane).await.map(|()| false);
            }
            let events = self.engine.backend().follow(lane.cursor, EVENTS_MAX).await;
            let events = events.map_err(|fault| ended(&fault.into()))?;
            // Events that expired are passed over.
            let last = events.last().map_or(followed, |(number, _)| *number);
            lane.read_to = last.min(followed);
            let own = |(number, event): &(u64, Event)| event.tenant == *tenant && *number <= followed;
            lane.events = events.into_iter().filter(own).collect();
        }
        let mut work = 0;
        while work < TURN_WORK_MAX {
            let Some((number, event)) = lane.events.pop_front() else { break };
            work += self.look_at(tenant, lane, number, &event).await?;
            lane.cursor = number;
        }
        if work >= TURN_WORK_MAX {
            lane.costly_at = self.engine.now();
        }
        if lane.events.is_empty() {
            lane.cursor = lane.cursor.max(lane.read_to);
        }
        let behind = lane.cursor.saturating_sub(lane.place.written.unwrap_or(0));
        if !lane.batch.executions.is_empty() || behind >= LAZY_EVENTS {
            lane.write(self.engine, tenant).await?;
        } else {
            lane.batch.count(self.engine);
        }
        Ok(true)
    }

    async fn look_at(
        &self,
        tenant: &TenantId,
        lane: &mut Lane,
        number: u64,
        event: &Event,
    ) -> Result<usize, Option<Ended>> {
        let whole = matching::whole(self.engine, event).await?;
        let Wanted { by, counts, work } = matching::wanted_aside(self.host, &lane.index, whole).await?;
        let fresh = matching::fresh(by, number);
        lane.batch.counts.matched += fresh.len();
        lane.batch.counts.filtered += counts.filtered;
        if fresh.is_empty() {
            return Ok(work);
        }
        let source = matching::source(self.engine, event, fresh.len()).await?;
        for target in fresh {
            target.of(&source, &mut lane.batch);
            // One event may be wanted by very many. Those that are queued before the cursor moves are queued once.
            if lane.batch.is_full() {
                lane.write(self.engine, tenant).await?;
            }
        }
        Ok(work)
    }

    /// A lane that has caught up goes back to the router if it was cheap for a while.
    async fn rest(&self, tenant: &TenantId, lane: &mut Lane) -> Result<(), Option<Ended>> {
        if self.engine.now().since(lane.costly_at) < CHEAP_MILLIS {
            return Ok(());
        }
        // Nothing is left to be written then, until the router has come further.
        lane.write(self.engine, tenant).await?;
        let mut board = self.lanes.board();
        if let Some(open) = board.open.get_mut(tenant).filter(|open| open.number == lane.number) {
            open.done = Some((lane.cursor, lane.place, Arc::clone(&lane.index)));
            self.lanes.returned.ring();
        }
        Ok(())
    }
}

impl Lane {
    async fn write<B: Backend>(
        &mut self,
        engine: &Engine<B>,
        tenant: &TenantId,
    ) -> Result<(), Option<Ended>> {
        matching::commit(engine, Some(tenant), &mut self.place, Some(self.cursor), &mut self.batch).await
    }
}

/// The number that a cursor's record holds.
pub(super) fn cursor_of(value: &RecordValue) -> Option<u64> {
    match value {
        RecordValue::Bytes(bytes) => bytes.as_ref().try_into().ok().map(u64::from_le_bytes),
        _ => None,
    }
}
