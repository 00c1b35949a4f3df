//! The router follows the log and queues what matches, in the commit that moves its cursor.
//!
//! Matching twice queues once, so a crash at any point loses and repeats nothing. Where nothing matches, the cursor is
//! written only now and then; where nobody is subscribed, the log is not read at all and no cursor holds up retention.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::Value;
use tidemill_model::matcher::{MatchCounts, Matcher};
use tidemill_model::{Event, EventType, JobId, RequestId, ScriptId, Subscription, SubscriptionId, TenantId};

use super::host::ScriptHost;
use super::stop::{First, Stop, any, either};
use crate::Engine;
use crate::backend::{Backend, Fault};
use crate::command::{Command, Match, NewExecution};
use crate::engine::{EngineError, ScriptChange};
use crate::execution::SourceEvent;
use crate::record::{RecordKey, RecordKind, RecordValue};
use crate::reply::Reply;

/// Events that are read at a time.
const EVENTS_MAX: usize = 1_000;
/// Executions and bytes of them that are queued in one commit.
const EXECUTIONS_MAX: usize = 1_000;
const COMMIT_BYTES: usize = 4 << 20;
/// Larger properties are looked up when the script runs.
const INLINE_BYTES_MAX: usize = 16 * 1_024;
/// What the copies of one event may take in all before the log has to do.
const COPIES_BYTES_MAX: usize = 1 << 20;
/// The cursor is written after so many events without a match, and after so long without any event.
const LAZY_EVENTS: u64 = 10_000;
const QUIET: Duration = Duration::from_secs(5);
/// A store that could not is asked again after so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// Comparisons that one event may take here; what takes more is finished elsewhere.
const WORK_MAX: usize = 10_000;
const PAGE: usize = 1_000;
/// The origin of events that scripts published: it, and how many scripts stand before them.
pub(crate) const SCRIPT_ORIGIN: &str = "script/";

type Id = (TenantId, SubscriptionId);

/// What is known of a subscription that may match.
#[derive(Debug, Clone)]
struct Target {
    script: ScriptId,
    since: u64,
}

type Index = Arc<RwLock<Matcher<Id, Target>>>;

pub(super) struct Router<'a, B, H> {
    engine: &'a Engine<B>,
    host: &'a H,
    stop: &'a Stop,
    index: Index,
    /// The last event that was matched; `None` when nobody follows.
    cursor: Option<u64>,
    /// What the cursor's record says, and its version.
    written: Option<u64>,
    version: u64,
    batch: Batch,
    /// Where the first of the subscriptions begins that came while nobody followed.
    first: Option<u64>,
    seed: u64,
}

/// What is to be queued.
#[derive(Default)]
struct Batch {
    executions: Vec<NewExecution>,
    bytes: usize,
    counts: MatchCounts,
}

/// Why the router stops.
enum Ended {
    Stopped,
    /// The store has to be opened again.
    Broken,
}

impl<'a, B: Backend, H: ScriptHost> Router<'a, B, H> {
    pub(super) fn new(engine: &'a Engine<B>, host: &'a H, stop: &'a Stop, seed: u64) -> Self {
        let index = Arc::new(RwLock::new(Matcher::new(seed)));
        let batch = Batch::default();
        Self { engine, host, stop, index, cursor: None, written: None, version: 0, batch, first: None, seed }
    }

    /// Follows the log until it is told to stop or the store breaks.
    pub(super) async fn run(mut self) {
        let mut is_begun = false;
        loop {
            let step = if is_begun { self.step().await } else { self.begin().await };
            match step {
                Ok(()) => is_begun = true,
                Err(Some(Ended::Stopped)) => {
                    // What was matched is known; if this cannot be written it is found out again.
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
        let mut after = None;
        self.clear();
        loop {
            let page = self.engine.backend().all_records(RecordKind::Subscription, after.take(), PAGE).await;
            let page = page.map_err(|fault| ended(&fault.into()))?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(key, _)| key.clone());
            for (_, record) in page {
                let RecordValue::Bytes(bytes) = &record.value else { continue };
                let Ok(mut known) = serde_json::from_slice::<Subscription>(bytes) else { continue };
                // Numbers of another log, which was imported, may lie ahead of this one's.
                known.since_seq = known.since_seq.min(newest);
                self.take(&known);
            }
            if is_last {
                break;
            }
        }
        let record = self.record(RecordKey::scripts_cursor()).await?;
        self.version = record.as_ref().map_or(0, |record| record.version);
        self.written = record.and_then(|record| match record.value {
            RecordValue::Bytes(bytes) => bytes.as_ref().try_into().ok().map(u64::from_le_bytes),
            _ => None,
        });
        self.cursor = match (self.written, self.first.take()) {
            (Some(written), _) => Some(written.min(newest)),
            (None, None) => None,
            // The numbers in subscriptions of another log say nothing here: what was imported has happened before.
            (None, Some(_)) if self.was_imported().await? => Some(newest),
            (None, Some(first)) => Some(first),
        };
        // From here on the cursor is what counts, also for the next life.
        if self.written.is_none() { self.write_cursor().await } else { Ok(()) }
    }

    async fn was_imported(&self) -> Result<bool, Option<Ended>> {
        let key = RecordKey { kind: RecordKind::System, tenant: None, id: Arc::from("import") };
        Ok(self.record(key).await?.is_some())
    }

    async fn record(&self, key: RecordKey) -> Result<Option<crate::record::Record>, Option<Ended>> {
        self.engine.backend().record(key).await.map_err(|fault| ended(&fault.into()))
    }

    async fn step(&mut self) -> Result<(), Option<Ended>> {
        if self.stop.is_set() {
            return Err(Some(Ended::Stopped));
        }
        let changed = self.engine.script_changes().listen();
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
        let newest = self.engine.backend().newest();
        let events = self.engine.backend().follow(cursor, EVENTS_MAX).await;
        let events = events.map_err(|fault| ended(&fault.into()))?;
        // Whoever published one of these after a subscription was acknowledged meets it.
        self.catch_up().await?;
        if events.is_empty() {
            // Events that expired are passed over.
            self.cursor = Some(cursor.max(newest));
            let here = self.cursor.unwrap_or(newest);
            let arrived = self.engine.backend().committed(here);
            let waited = any(any(arrived, changed), self.stop.wait());
            if self.written == self.cursor {
                waited.await;
            } else if either(waited, self.host.sleep(QUIET)).await == First::Two {
                self.write_cursor().await?;
            }
            return Ok(());
        }
        for (number, event) in &events {
            self.look_at(*number, event).await?;
            self.cursor = Some(*number);
            if self.batch.executions.len() >= EXECUTIONS_MAX || self.batch.bytes >= COMMIT_BYTES {
                self.write_cursor().await?;
            }
        }
        let behind = self.cursor.unwrap_or(0).saturating_sub(self.written.unwrap_or(0));
        if !self.batch.executions.is_empty() || behind >= LAZY_EVENTS {
            self.write_cursor().await?;
        } else {
            self.count();
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.index.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn clear(&mut self) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        *index = Matcher::new(self.seed);
        drop(index);
        self.first = None;
    }

    /// Takes in what was written since the last look.
    async fn catch_up(&mut self) -> Result<(), Option<Ended>> {
        for change in self.engine.script_changes().take() {
            let ScriptChange::Subscription(tenant, id) = change else { continue };
            let known = self.engine.subscription(&tenant, &id).await;
            match known.map_err(|error| ended(&error))? {
                Some(known) => self.take(&known),
                None => self.drop(&(tenant, id)),
            }
        }
        Ok(())
    }

    fn take(&mut self, known: &Subscription) {
        let id = (known.tenant_id.clone(), known.id.clone());
        let rules = known.rules();
        let (true, Ok(rules)) = (known.enabled, rules) else { return self.drop(&id) };
        let target = Target { script: known.script_id.clone(), since: known.since_seq };
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        let taken = index.insert(id.clone(), &known.tenant_id, &known.event_type, Some(&rules), target);
        drop(index);
        match taken {
            Ok(()) => {
                if self.cursor.is_none() {
                    let first = self.first.unwrap_or(u64::MAX);
                    self.first = Some(first.min(known.since_seq));
                }
            }
            // There is no room for it: it matches nothing, and whoever asks is told so.
            Err(_) => self.drop(&id),
        }
    }

    fn drop(&mut self, id: &Id) {
        self.index.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Finds who wants an event.
    async fn look_at(&mut self, number: u64, event: &Event) -> Result<(), Option<Ended>> {
        let is_wanted = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            index.count(&event.tenant, &event.event_type) > 0
        };
        if !is_wanted {
            return Ok(());
        }
        let whole = match self.engine.rehydrate(event.clone()).await {
            Ok(whole) => whole,
            Err(EngineError::Fault(fault @ (Fault::Stopped(_) | Fault::Full(_)))) => {
                return Err(ended(&fault.into()));
            }
            // What its large fields say is not known any more.
            Err(_) => event.clone(),
        };
        let data: Value = whole.properties.read().unwrap_or(Value::Null);
        let data = Arc::new(data);
        let found = self.wanted_by(&event.tenant, &event.event_type, &data).await;
        let (targets, counts) = found.ok_or(None)?;
        let fresh: Vec<_> = targets.into_iter().filter(|(_, target)| target.since < number).collect();
        self.batch.counts.matched += fresh.len();
        self.batch.counts.filtered += counts.filtered;
        if fresh.is_empty() {
            return Ok(());
        }
        let source = self.source(event, fresh.len()).await?;
        for ((tenant, subscription), target) in fresh {
            self.batch.bytes += source.len() + 200;
            let (script, event) = (target.script, source.clone());
            self.batch.executions.push(NewExecution { tenant, script, subscription, event });
            // One event may be wanted by very many. Those that are queued before the cursor moves are queued once.
            if self.batch.executions.len() >= EXECUTIONS_MAX || self.batch.bytes >= COMMIT_BYTES {
                self.write_cursor().await?;
            }
        }
        Ok(())
    }

    async fn wanted_by(
        &self,
        tenant: &TenantId,
        event_type: &EventType,
        data: &Arc<Value>,
    ) -> Option<(Vec<(Id, Target)>, MatchCounts)> {
        let (quick, found) = {
            let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
            let mut found = Vec::new();
            let report = |id: &Id, target: &Target| found.push((id.clone(), target.clone()));
            (index.matches_within(WORK_MAX, tenant, event_type, data, report), found)
        };
        if let Some(counts) = quick {
            return Some((found, counts));
        }
        let (index, data) = (Arc::clone(&self.index), Arc::clone(data));
        let (tenant, event_type) = (tenant.clone(), event_type.clone());
        self.host
            .aside(move || {
                let index = index.read().unwrap_or_else(PoisonError::into_inner);
                let mut found = Vec::new();
                let report = |id: &Id, target: &Target| found.push((id.clone(), target.clone()));
                let counts = index.matches(&tenant, &event_type, &data, report);
                (found, counts)
            })
            .await
    }

    /// An event as its executions keep it.
    async fn source(&self, event: &Event, copies: usize) -> Result<SourceEvent, Option<Ended>> {
        let size = event.properties.len();
        let is_inline = size <= INLINE_BYTES_MAX && size.saturating_mul(copies) <= COPIES_BYTES_MAX;
        Ok(SourceEvent {
            id: event.id,
            event_type: event.event_type.clone(),
            timestamp: event.timestamp,
            app_name: event.app.clone(),
            entity_type: event.entity.kind.clone(),
            entity_id: event.entity.id.clone(),
            data: is_inline.then(|| event.properties.clone()),
            hop: self.hop(event).await?,
        })
    }

    /// How many scripts stand between an event and what came from outside.
    async fn hop(&self, event: &Event) -> Result<u32, Option<Ended>> {
        if let Some(hop) = event.context.origin.strip_prefix(SCRIPT_ORIGIN) {
            return Ok(hop.parse().unwrap_or(u32::MAX));
        }
        let job = match event.entity.kind.as_str() {
            "JOB" => JobId::new(event.entity.id.as_str()).ok(),
            "TASK" => RequestId::trusted(event.entity.id.as_str()).job_part(),
            _ => None,
        };
        let Some(job) = job else { return Ok(0) };
        let known = self.engine.job(event.tenant.clone(), job).await.map_err(|error| ended(&error))?;
        Ok(known.map_or(0, |job| job.head.hops))
    }

    /// Queues what matched and moves the cursor, in one commit.
    async fn write_cursor(&mut self) -> Result<(), Option<Ended>> {
        if self.batch.executions.is_empty() && self.written == self.cursor {
            self.count();
            return Ok(());
        }
        let executions = std::mem::take(&mut self.batch.executions);
        self.batch.bytes = 0;
        let command = Command::Match(Match { cursor_version: self.version, to: self.cursor, executions });
        let reply = self.engine.run_command(command).await.map_err(|error| ended(&error))?;
        let Reply::Matched { created, cursor_version } = reply else { return Err(None) };
        self.version = cursor_version;
        self.written = self.cursor;
        self.count();
        if created > 0 {
            self.engine.script_board().note_queued(created.into());
        }
        Ok(())
    }

    fn count(&mut self) {
        let counts = std::mem::take(&mut self.batch.counts);
        if counts.matched + counts.filtered > 0 {
            let board = self.engine.script_board();
            board.counters.matched(counts.matched as u64, counts.filtered as u64);
        }
    }
}

/// What an error means for the router: it ends, or goes on from what is durable.
fn ended(error: &EngineError) -> Option<Ended> {
    match error {
        EngineError::Fault(Fault::Stopped(_) | Fault::Newer(_)) => Some(Ended::Broken),
        _ => None,
    }
}
