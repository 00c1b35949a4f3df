//! The router follows the log and queues what matches, in the commit that moves its cursor.
//!
//! Matching twice queues once, so a crash at any point loses and repeats nothing. Where nothing matches, the cursor is
//! written only now and then; where nobody is subscribed, the log is not read at all and no cursor holds up retention.
//!
//! All tenants wait for what is done here, so each of them gets only a limited amount of it: a tenant whose events or
//! subscriptions take more goes into a lane.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidemill_matcher::Subscription;
use tidemill_matcher::matcher::Matcher;
use tidemill_model::{Event, SubscriptionId, TenantId};

use crate::Engine;
use crate::engine::{EngineError, ScriptChange};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{RecordKey, RecordKind};
use crate::scripts::host::ScriptHost;
use crate::scripts::lanes::{LANES_MAX, Lanes, Returned, cursor_of};
use crate::scripts::matching::{self, Batch, Index, Place, Wanted};
use crate::scripts::stop::{First, Stop, any, either};
use crate::warn_seldom;

/// Events that are read at a time.
const EVENTS_MAX: usize = 1_000;
/// The cursor is written after this many events without a match, and after `QUIET` without any event.
pub(super) const LAZY_EVENTS: u64 = 10_000;
pub(super) const QUIET: Duration = Duration::from_secs(5);
/// How long to wait before asking a store again that could not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Comparisons that one event may take here, where all tenants wait for it.
const WORK_MAX: usize = 10_000;
/// What the events of one tenant may take of those that are read at a time. A tenant that needs more is put aside.
pub(super) const TURN_WORK_MAX: usize = 50_000;
/// Executions that one event may bring here.
const FAN_OUT_MAX: usize = 1_000;
/// What the subscriptions of one tenant may weigh that are taken in at a time. A tenant that changes more is put aside, and
/// its lane takes them in.
pub(super) const TURN_WEIGHT_MAX: usize = 64 * 1_024;
/// The same where all subscriptions are taken in, before the first event.
const BEGIN_WEIGHT_MAX: usize = 4 << 20;
const PAGE: usize = 1_000;
/// The origin of events that scripts published: it, and how many scripts stand before them.
pub(crate) const SCRIPT_ORIGIN: &str = "script/";

pub(super) struct Router<'a, B, H> {
    engine: &'a Engine<B>,
    host: &'a H,
    stop: &'a Stop,
    lanes: &'a Lanes,
    /// The subscriptions of tenants that are not put aside. A tenant without any is not here.
    tenants: HashMap<TenantId, Index, foldhash::fast::RandomState>,
    /// The last event that was matched; `None` when nobody follows.
    cursor: Option<u64>,
    /// What the cursor's record says.
    place: Place,
    batch: Batch,
    /// Tenants that have a lane of their own.
    apart: BTreeSet<TenantId>,
    /// What each tenant took of the events that were read last.
    spent: HashMap<TenantId, usize, foldhash::fast::RandomState>,
    /// Where the first of the subscriptions begins that came while nobody followed.
    first: Option<u64>,
    seed: u64,
}

/// Why the router stops.
pub(super) enum Ended {
    Stopped,
    /// The store has to be opened again.
    Broken,
}

impl<'a, B: Backend, H: ScriptHost> Router<'a, B, H> {
    pub(super) fn new(
        engine: &'a Engine<B>,
        host: &'a H,
        stop: &'a Stop,
        lanes: &'a Lanes,
        seed: u64,
    ) -> Self {
        Self {
            engine,
            host,
            stop,
            lanes,
            tenants: HashMap::default(),
            cursor: None,
            place: Place::default(),
            batch: Batch::default(),
            apart: BTreeSet::new(),
            spent: HashMap::default(),
            first: None,
            seed,
        }
    }

    /// Follows the log until it must stop or the store breaks.
    pub(super) async fn run(mut self) {
        let mut is_begun = false;
        loop {
            let step = if is_begun { self.step().await } else { self.begin().await };
            match step {
                Ok(()) => is_begun = true,
                Err(Some(Ended::Stopped)) => {
                    // What was matched is known; if this cannot be written it is found out again. `ended` has told why.
                    let _ = self.write_cursor().await;
                    return;
                }
                Err(Some(Ended::Broken)) => return,
                Err(None) => {
                    // Goes on from what is durable.
                    self.batch = Batch::default();
                    is_begun = false;
                    if either(self.host.sleep(PATIENCE), self.stop.wait()).await == First::Two {
                        return;
                    }
                }
            }
        }
    }

    /// Reads the subscriptions and the cursor.
    async fn begin(&mut self) -> Result<(), Option<Ended>> {
        self.cursor = None;
        let newest = self.engine.backend().newest();
        self.engine.script_changes().take();
        self.tenants.clear();
        self.first = None;
        let lanes = self.stored_lanes(newest).await?;
        self.apart = lanes.iter().map(|(tenant, _)| tenant.clone()).collect();
        let heavy = self.read_all(newest).await?;
        let record = self.record(RecordKey::scripts_cursor()).await?;
        self.place = Place {
            version: record.as_ref().map_or(0, |record| record.version),
            written: record.and_then(|record| cursor_of(&record.value)),
        };
        self.cursor = match (self.place.written, self.first.take()) {
            (Some(written), _) => Some(written.min(newest)),
            (None, None) => None,
            // The numbers in subscriptions of another log say nothing here: what was imported has happened before.
            (None, Some(_)) if self.was_imported().await? => Some(newest),
            (None, Some(first)) => Some(first),
        };
        self.lanes.begin(lanes);
        // From here on the cursor is what counts, also for the next life.
        self.write_cursor().await?;
        for tenant in heavy {
            self.tenants.remove(&tenant);
            self.put_aside(&tenant, BTreeSet::new()).await?;
        }
        Ok(())
    }

    /// Takes in all subscriptions. Gives back tenants that have too many for that: their lanes are to do it.
    async fn read_all(&mut self, newest: u64) -> Result<BTreeSet<TenantId>, Option<Ended>> {
        let mut weights: HashMap<TenantId, usize, foldhash::fast::RandomState> = HashMap::default();
        let mut heavy = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.engine.backend().all_records(RecordKind::Subscription, after.take(), PAGE).await;
            let page = page.map_err(|fault| ended(&fault.into()))?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(key, _)| key.clone());
            for (_, record) in page {
                let Some(known) = matching::stored(&record.value, newest) else { continue };
                let tenant = &known.tenant_id;
                if self.apart.contains(tenant) {
                    continue;
                }
                let weight = weights.entry(tenant.clone()).or_default();
                // One that is disabled is not taken in.
                *weight += if known.enabled { matching::weight(Some(&known)) } else { 0 };
                if *weight > BEGIN_WEIGHT_MAX && self.apart.len() + heavy.len() < LANES_MAX {
                    heavy.insert(tenant.clone());
                }
                if heavy.contains(tenant) {
                    self.note_first(&known);
                } else {
                    self.take(&known);
                }
            }
            if is_last {
                break;
            }
        }
        // Nobody waits for a tenant that is alone.
        if weights.len() + self.apart.len() == 1
            && let Some(tenant) = heavy.first().cloned()
            && self.read_own(&tenant, newest).await?
        {
            heavy.clear();
        }
        Ok(heavy)
    }

    /// Takes in all subscriptions of a tenant. Tells whether that was done before somebody else came.
    async fn read_own(&mut self, tenant: &TenantId, newest: u64) -> Result<bool, Option<Ended>> {
        let mut after = None;
        loop {
            let (kind, whose) = (RecordKind::Subscription, Some(tenant.clone()));
            let page = self.engine.backend().records(kind, whose, after.take(), PAGE).await;
            let page = page.map_err(|fault| ended(&fault.into()))?;
            after = page.last().map(|(key, _)| Arc::clone(&key.id));
            let is_last = page.len() < PAGE;
            page.iter()
                .filter_map(|(_, record)| matching::stored(&record.value, newest))
                .for_each(|known| self.take(&known));
            if is_last {
                return Ok(true);
            }
            if self.engine.script_changes().has_change_of_another(tenant) {
                return Ok(false);
            }
        }
    }

    /// The lanes of a former life.
    async fn stored_lanes(&self, newest: u64) -> Result<Vec<(TenantId, Place)>, Option<Ended>> {
        let cursors = self.engine.backend().all_records(RecordKind::Cursor, None, PAGE).await;
        let cursors = cursors.map_err(|fault| ended(&fault.into()))?;
        let lanes = cursors.into_iter().filter_map(|(key, record)| {
            let tenant = key.tenant.clone()?;
            let is_ours = key == RecordKey::scripts_cursor_of(Some(&tenant));
            let written = cursor_of(&record.value).map(|written| written.min(newest));
            is_ours.then_some((tenant, Place { written, version: record.version }))
        });
        Ok(lanes.collect())
    }

    async fn was_imported(&self) -> Result<bool, Option<Ended>> {
        let key = RecordKey { kind: RecordKind::System, tenant: None, id: Arc::from("import") };
        Ok(self.record(key).await?.is_some())
    }

    async fn record(&self, key: RecordKey) -> Result<Option<crate::kernel::record::Record>, Option<Ended>> {
        self.engine.backend().record(key).await.map_err(|fault| ended(&fault.into()))
    }

    async fn step(&mut self) -> Result<(), Option<Ended>> {
        if self.stop.is_set() {
            return Err(Some(Ended::Stopped));
        }
        let (changed, returned) = (self.engine.script_changes().listen(), self.lanes.returned.listen());
        self.catch_up().await?;
        if self.is_idle() {
            self.cursor = None;
            self.write_cursor().await?;
            any(changed, self.stop.wait()).await;
            return Ok(());
        }
        let Some(cursor) = self.cursor else {
            // Somebody subscribed. From here on the cursor is what counts, also for the next life.
            let since = self.engine.backend().newest();
            self.cursor = Some(self.first.take().unwrap_or(since).min(since));
            return self.write_cursor().await;
        };
        self.take_back(cursor).await?;
        if self.is_idle() {
            return Ok(());
        }
        let newest = self.engine.backend().newest();
        let events = self.engine.backend().follow(cursor, EVENTS_MAX).await;
        let events = events.map_err(|fault| ended(&fault.into()))?;
        // An event that was published after a subscription was acknowledged must meet it.
        self.catch_up().await?;
        if events.is_empty() {
            // Events that expired are passed over.
            self.cursor = Some(cursor.max(newest));
            let here = self.cursor.unwrap_or(newest);
            self.lanes.follow(here);
            let arrived = self.engine.backend().committed(here);
            let waited = any(any(arrived, changed), any(self.stop.wait(), returned));
            if self.place.written == self.cursor {
                waited.await;
            } else if either(waited, self.host.sleep(QUIET)).await == First::Two {
                self.write_cursor().await?;
            }
            return Ok(());
        }
        self.spent.clear();
        for (number, event) in &events {
            self.look_at(*number, event).await?;
            self.cursor = Some(*number);
            if self.batch.is_full() {
                self.write_cursor().await?;
            }
        }
        let cursor = self.cursor.unwrap_or(cursor);
        self.lanes.follow(cursor);
        let behind = cursor.saturating_sub(self.place.written.unwrap_or(0));
        let is_due = !self.batch.executions.is_empty() || behind >= LAZY_EVENTS;
        if is_due {
            return self.write_cursor().await;
        }
        self.batch.count(self.engine);
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.tenants.is_empty() && self.apart.is_empty()
    }

    /// Whether nobody else waits for what is done for a tenant.
    fn is_alone(&self, tenant: &TenantId) -> bool {
        self.apart.is_empty() && self.tenants.keys().all(|other| other == tenant)
    }

    /// Takes in what was written since the last look, or lets a lane do it.
    async fn catch_up(&mut self) -> Result<(), Option<Ended>> {
        let mut changed: BTreeMap<TenantId, BTreeSet<SubscriptionId>> = BTreeMap::new();
        for change in self.engine.script_changes().take() {
            let ScriptChange::Subscription(tenant, id) = change else { continue };
            changed.entry(tenant).or_default().insert(id);
        }
        let is_one = changed.len() == 1;
        for (tenant, ids) in changed {
            if self.apart.contains(&tenant) {
                self.lanes.changed(&tenant, ids);
            } else {
                let is_alone = is_one && self.is_alone(&tenant);
                self.take_changes(&tenant, ids, is_alone).await?;
            }
        }
        Ok(())
    }

    /// Takes in what a tenant changed. If that is too much, those that are left are for its lane.
    async fn take_changes(
        &mut self,
        tenant: &TenantId,
        mut ids: BTreeSet<SubscriptionId>,
        is_alone: bool,
    ) -> Result<(), Option<Ended>> {
        // Where a lane would begin is known once somebody follows.
        let has_room = self.cursor.is_some() && self.lanes.has_room();
        let mut weight = 0;
        while let Some(id) = ids.first() {
            let known = self.engine.subscription(tenant, id).await.map_err(|error| ended(&error))?;
            weight += matching::weight(known.as_ref());
            if weight > TURN_WEIGHT_MAX && has_room {
                // Nobody waits for a tenant that is alone, until somebody comes.
                if !is_alone || self.engine.script_changes().has_change_of_another(tenant) {
                    return self.put_aside(tenant, ids).await;
                }
                weight = 0;
            }
            match known {
                Some(known) => self.take(&known),
                None => self.drop(tenant, id),
            }
            ids.pop_first();
        }
        Ok(())
    }

    fn take(&mut self, known: &Subscription) {
        let index = self
            .tenants
            .entry(known.tenant_id.clone())
            .or_insert_with(|| Arc::new(RwLock::new(Matcher::new(self.seed))));
        if matching::take(index, known) {
            self.note_first(known);
        } else {
            self.forget_if_empty(&known.tenant_id);
        }
    }

    fn note_first(&mut self, known: &Subscription) {
        if known.enabled && self.cursor.is_none() {
            let first = self.first.unwrap_or(u64::MAX);
            self.first = Some(first.min(known.since_seq));
        }
    }

    fn drop(&mut self, tenant: &TenantId, id: &SubscriptionId) {
        if let Some(index) = self.tenants.get(tenant) {
            matching::drop(index, &(tenant.clone(), id.clone()));
            self.forget_if_empty(tenant);
        }
    }

    fn forget_if_empty(&mut self, tenant: &TenantId) {
        let is_empty = |index: &Index| index.read().unwrap_or_else(PoisonError::into_inner).is_empty();
        if self.tenants.get(tenant).is_some_and(is_empty) {
            self.tenants.remove(tenant);
        }
    }

    /// Finds the subscriptions that want an event.
    async fn look_at(&mut self, number: u64, event: &Event) -> Result<(), Option<Ended>> {
        // A tenant that is put aside is not here.
        let Some(index) = self.tenants.get(&event.tenant) else { return Ok(()) };
        let count = |index: &Index| {
            index.read().unwrap_or_else(PoisonError::into_inner).count(&event.tenant, &event.event_type)
        };
        if count(index) == 0 {
            return Ok(());
        }
        let index = Arc::clone(index);
        let may_part = !self.is_alone(&event.tenant) && self.lanes.has_room();
        let spent = self.spent.get(&event.tenant).copied().unwrap_or(0);
        if may_part && spent >= TURN_WORK_MAX {
            return self.put_aside(&event.tenant, BTreeSet::new()).await;
        }
        let whole = matching::whole(self.engine, event).await?;
        let Wanted { by, counts, work } = match matching::wanted(&index, &whole, WORK_MAX) {
            Some(wanted) => wanted,
            None if may_part => return self.put_aside(&event.tenant, BTreeSet::new()).await,
            None => matching::wanted_aside(self.host, &index, whole).await?,
        };
        if may_part && by.len() > FAN_OUT_MAX {
            return self.put_aside(&event.tenant, BTreeSet::new()).await;
        }
        *self.spent.entry(event.tenant.clone()).or_default() += work;
        let fresh = matching::fresh(by, number);
        self.batch.counts.matched += fresh.len();
        self.batch.counts.filtered += counts.filtered;
        if fresh.is_empty() {
            return Ok(());
        }
        let source = matching::source(self.engine, event, fresh.len()).await?;
        for target in fresh {
            target.of(&source, &mut self.batch);
            // One event may be wanted by very many. Those that are queued before the cursor moves are queued once.
            if self.batch.is_full() {
                self.write_cursor().await?;
            }
        }
        Ok(())
    }

    /// Gives a tenant a lane of its own from here on, which takes in first what has `changed`. What was matched so far is
    /// written before, so that either cursor stands before what is not.
    async fn put_aside(
        &mut self,
        tenant: &TenantId,
        changed: BTreeSet<SubscriptionId>,
    ) -> Result<(), Option<Ended>> {
        self.write_cursor().await?;
        let mut place = Place::default();
        matching::commit(self.engine, Some(tenant), &mut place, self.cursor, &mut Batch::default()).await?;
        self.apart.insert(tenant.clone());
        self.lanes.open(tenant, place, self.tenants.remove(tenant), changed);
        Ok(())
    }

    /// Takes tenants back whose lanes stand here.
    async fn take_back(&mut self, cursor: u64) -> Result<(), Option<Ended>> {
        if self.apart.is_empty() {
            return Ok(());
        }
        let back = self.lanes.returning(cursor);
        if !back.is_empty() {
            self.write_cursor().await?;
        }
        for Returned { tenant, mut place, index } in back {
            matching::commit(self.engine, Some(&tenant), &mut place, None, &mut Batch::default()).await?;
            self.apart.remove(&tenant);
            self.tenants.insert(tenant.clone(), index);
            self.forget_if_empty(&tenant);
        }
        Ok(())
    }

    /// Queues what matched and moves the cursor, in one commit.
    async fn write_cursor(&mut self) -> Result<(), Option<Ended>> {
        matching::commit(self.engine, None, &mut self.place, self.cursor, &mut self.batch).await
    }
}

/// What an error means for the router: it ends, or goes on from what is durable.
pub(super) fn ended(error: &EngineError) -> Option<Ended> {
    // A conflict is the store's way to say that another was first.
    if !matches!(error, EngineError::Refused(_)) {
        warn_seldom!(error, "the router of scripts goes back to what is durable");
    }
    match error {
        EngineError::Fault(Fault::Stopped(_) | Fault::Newer(_)) => Some(Ended::Broken),
        _ => None,
    }
}
