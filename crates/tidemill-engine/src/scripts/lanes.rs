//! Lanes: tenants whose events take long to match are matched on their own, so that nobody else waits for them.
//!
//! A lane has a cursor of its own, which begins where the router put the tenant aside and is as durable as the router's.
//! The lanes take turns; each turn ends after an event that took long. A lane never passes the router, which hears of
//! changes to subscriptions first, and goes back to it when it has caught up and was cheap for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tidemill_model::matcher::Matcher;
use tidemill_model::{Event, SubscriptionId, TenantId, Timestamp};

use super::host::ScriptHost;
use super::matching::{self, Batch, Index, Place, Wanted};
use super::router::{Ended, LAZY_EVENTS, QUIET, TURN_WORK_MAX, ended};
use super::stop::{First, Stop, any, either};
use crate::Engine;
use crate::backend::Backend;
use crate::notice::Notice;
use crate::record::{RecordKind, RecordValue};

/// Events that are read at a time.
const EVENTS_MAX: usize = 1_000;
const PAGE: usize = 1_000;
/// A tenant that cost little for so long is matched with all others again.
const CHEAP_MILLIS: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(1);
/// No more tenants than these are put aside: each lane reads the log for itself.
const LANES_MAX: usize = 64;

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
    /// Counts how often the router began anew; all lanes begin anew with it.
    epoch: u64,
    /// How far the router has come.
    followed: u64,
    open: BTreeMap<TenantId, Open>,
}

#[derive(Debug)]
struct Open {
    begin: Place,
    /// Subscriptions that changed since the lane last looked.
    changed: BTreeSet<SubscriptionId>,
    /// Where the lane stands, once it wants to go back to the router.
    done: Option<(u64, Place)>,
}

impl Lanes {
    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The router begins anew with these lanes.
    pub(super) fn begin(&self, open: Vec<(TenantId, Place)>) {
        let mut board = self.board();
        board.epoch += 1;
        board.open = open.into_iter().map(|(tenant, begin)| (tenant, Open::at(begin))).collect();
        std::mem::drop(board);
        self.moved.ring();
    }

    pub(super) fn has_room(&self) -> bool {
        self.board().open.len() < LANES_MAX
    }

    pub(super) fn open(&self, tenant: &TenantId, begin: Place) {
        self.board().open.insert(tenant.clone(), Open::at(begin));
        self.moved.ring();
    }

    pub(super) fn changed(&self, tenant: &TenantId, id: &SubscriptionId) {
        if let Some(open) = self.board().open.get_mut(tenant) {
            open.changed.insert(id.clone());
        }
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

    /// The lanes that stand where the router stands and want to go back to it. The others go on.
    pub(super) fn returning(&self, cursor: u64) -> Vec<(TenantId, Place)> {
        let mut board = self.board();
        let mut back = Vec::new();
        for (tenant, open) in &mut board.open {
            match open.done.take() {
                Some((at, place)) if at == cursor => back.push((tenant.clone(), place)),
                _ => {}
            }
        }
        for (tenant, _) in &back {
            board.open.remove(tenant);
        }
        back
    }

    /// All lanes, which are closed with this.
    pub(super) fn take_all(&self) -> Vec<TenantId> {
        let mut board = self.board();
        board.epoch += 1;
        std::mem::take(&mut board.open).into_keys().collect()
    }
}

impl Open {
    fn at(begin: Place) -> Self {
        Self { begin, changed: BTreeSet::new(), done: None }
    }
}

/// Drives the lanes.
pub(super) struct LaneRouter<'a, B, H> {
    engine: &'a Engine<B>,
    host: &'a H,
    stop: &'a Stop,
    lanes: &'a Lanes,
    seed: u64,
    epoch: u64,
    /// How far the router had come when its changes were taken in last.
    followed: u64,
    own: BTreeMap<TenantId, Lane>,
}

struct Lane {
    index: Index,
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
        Self { engine, host, stop, lanes, seed, epoch: 0, followed: 0, own: BTreeMap::new() }
    }

    /// Takes the lanes in turn until it is told to stop or the store breaks.
    pub(super) async fn run(mut self) {
        loop {
            let moved = self.lanes.moved.listen();
            if self.stop.is_set() {
                for (tenant, lane) in &mut self.own {
                    // What was matched is known; if this cannot be written it is found out again.
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

    /// Takes in what the router did: lanes that came, went, or have other subscriptions.
    async fn adopt(&mut self) -> Result<(), Option<Ended>> {
        let (come, changed) = {
            let mut board = self.lanes.board();
            self.followed = board.followed;
            if board.epoch != self.epoch {
                self.epoch = board.epoch;
                self.own.clear();
            }
            self.own.retain(|tenant, _| board.open.contains_key(tenant));
            let come = board.open.iter().filter(|(tenant, _)| !self.own.contains_key(*tenant));
            let come: Vec<_> = come.map(|(tenant, open)| (tenant.clone(), open.begin)).collect();
            let changed: Vec<_> = board
                .open
                .iter_mut()
                .flat_map(|(tenant, open)| {
                    std::mem::take(&mut open.changed).into_iter().map(move |id| (tenant.clone(), id))
                })
                .collect();
            (come, changed)
        };
        for (tenant, id) in changed {
            let Some(lane) = self.own.get(&tenant) else { continue };
            let known = self.engine.subscription(&tenant, &id).await;
            match known.map_err(|error| ended(&error))? {
                Some(known) => {
                    matching::take(&lane.index, &known);
                }
                None => matching::drop(&lane.index, &(tenant, id)),
            }
        }
        for (tenant, begin) in come {
            let lane = self.begin(&tenant, begin).await?;
            self.own.insert(tenant, lane);
        }
        Ok(())
    }

    /// A lane with all subscriptions of its tenant. They are read after the router began to tell of changes.
    async fn begin(&self, tenant: &TenantId, begin: Place) -> Result<Lane, Option<Ended>> {
        let index: Index = Arc::new(RwLock::new(Matcher::new(self.seed)));
        let newest = self.engine.backend().newest();
        let mut after = None;
        loop {
            let (kind, whose) = (RecordKind::Subscription, Some(tenant.clone()));
            let page = self.engine.backend().records(kind, whose, after.take(), PAGE).await;
            let page = page.map_err(|fault| ended(&fault.into()))?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(key, _)| Arc::clone(&key.id));
            let own = Arc::clone(&index);
            let taken = self.host.aside(move || {
                for (_, record) in page {
                    let RecordValue::Bytes(bytes) = &record.value else { continue };
                    let Ok(mut known) = serde_json::from_slice::<tidemill_model::Subscription>(bytes) else {
                        continue;
                    };
                    known.since_seq = known.since_seq.min(newest);
                    matching::take(&own, &known);
                }
            });
            taken.await.ok_or(None)?;
            if is_last {
                break;
            }
        }
        // What was written last counts, which may be more than the router knew.
        let key = crate::record::RecordKey::scripts_cursor_of(Some(tenant));
        let record = self.engine.backend().record(key).await.map_err(|fault| ended(&fault.into()))?;
        let place = record.map_or(begin, |record| Place {
            written: cursor_of(&record.value).or(begin.written),
            version: record.version,
        });
        let cursor = place.written.unwrap_or(0);
        let costly_at = self.engine.script_now();
        let (events, batch) = (VecDeque::new(), Batch::default());
        Ok(Lane { index, cursor, place, events, read_to: cursor, batch, costly_at })
    }

    /// Matches events of a lane until one or several took long. Tells whether there may be more.
    async fn turn(&self, tenant: &TenantId, lane: &mut Lane) -> Result<bool, Option<Ended>> {
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
            lane.costly_at = self.engine.script_now();
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
        if self.engine.script_now().since(lane.costly_at) < CHEAP_MILLIS {
            return Ok(());
        }
        // Nothing is left to be written then, until the router has come further.
        lane.write(self.engine, tenant).await?;
        if let Some(open) = self.lanes.board().open.get_mut(tenant) {
            open.done = Some((lane.cursor, lane.place));
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
