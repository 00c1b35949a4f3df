//! What the router and the lanes have in common: finding the subscriptions that want an event, and what is queued for
//! it.

use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;
use tidemill_matcher::Subscription;
use tidemill_matcher::matcher::{MatchCounts, Matcher};
use tidemill_model::{Event, JobId, RequestId, ScriptId, SubscriptionId, TenantId};

use crate::Engine;
use crate::engine::EngineError;
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{Command, Match, NewExecution};
use crate::kernel::record::RecordValue;
use crate::kernel::reply::Reply;
use crate::scripts::execution::SourceEvent;
use crate::scripts::host::ScriptHost;
use crate::scripts::router::{Ended, SCRIPT_ORIGIN, ended};
use crate::warn_seldom;

/// Executions and bytes of them that are queued in one commit.
const EXECUTIONS_MAX: usize = 1_000;
const COMMIT_BYTES: usize = 4 << 20;
/// Larger properties are looked up when the script runs.
const INLINE_BYTES_MAX: usize = 16 * 1_024;
/// What the copies of one event may take in all before the log has to do.
const COPIES_BYTES_MAX: usize = 1 << 20;
/// Reading this many bytes of an event counts as one comparison.
const BYTES_PER_WORK: usize = 256;
/// What any subscription weighs beside its rules, and what one weighs that is gone, whose rules nobody knows any more.
const SUBSCRIPTION_WEIGHT: usize = 256;
const GONE_WEIGHT: usize = 2 * 1_024;

pub(super) type Id = (TenantId, SubscriptionId);

/// What is known of a subscription that may match.
#[derive(Debug, Clone)]
pub(super) struct Target {
    script: ScriptId,
    since: u64,
}

pub(super) type Index = Arc<RwLock<Matcher<Id, Target>>>;

/// The subscriptions that want an event, and what it took to find them, in comparisons.
pub(super) struct Wanted {
    pub(super) by: Vec<(Id, Target)>,
    pub(super) counts: MatchCounts,
    pub(super) work: usize,
}

/// What is to be queued.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) executions: Vec<NewExecution>,
    pub(super) bytes: usize,
    pub(super) counts: MatchCounts,
}

impl Batch {
    pub(super) fn is_full(&self) -> bool {
        self.executions.len() >= EXECUTIONS_MAX || self.bytes >= COMMIT_BYTES
    }

    /// Tells what was found.
    pub(super) fn count<B: Backend>(&mut self, engine: &Engine<B>) {
        let counts = std::mem::take(&mut self.counts);
        if counts.matched + counts.filtered > 0 {
            engine.script_board().counters.matched(counts.matched as u64, counts.filtered as u64);
        }
    }
}

/// A place in the log, and the record of it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Place {
    /// What the record says; `None` when there is no record.
    pub(super) written: Option<u64>,
    pub(super) version: u64,
}

/// Takes a subscription into an index as it stands; gives back whether it matches anything from now on.
pub(super) fn take(index: &Index, known: &Subscription) -> bool {
    let id = (known.tenant_id.clone(), known.id.clone());
    let (true, Ok(rules)) = (known.enabled, known.rules()) else {
        drop(index, &id);
        return false;
    };
    let target = Target { script: known.script_id.clone(), since: known.since_seq };
    let mut index_mut = index.write().unwrap_or_else(PoisonError::into_inner);
    let taken = index_mut.insert(id.clone(), &known.tenant_id, &known.event_type, Some(&rules), target);
    std::mem::drop(index_mut);
    // If there is no room for it, it matches nothing.
    if taken.is_err() {
        drop(index, &id);
    }
    taken.is_ok()
}

/// What taking in a subscription as it stands now weighs, in bytes of rules about: how long it takes goes with them.
pub(super) fn weight(known: Option<&Subscription>) -> usize {
    known.map_or(GONE_WEIGHT, |known| SUBSCRIPTION_WEIGHT + known.filter_rules.len())
}

/// A subscription as it is stored.
pub(super) fn stored(value: &RecordValue, newest: u64) -> Option<Subscription> {
    let RecordValue::Bytes(bytes) = value else { return None };
    let known: Subscription = serde_json::from_slice(bytes).ok()?;
    // Numbers of another log, which was imported, may lie ahead of this one's.
    Some(Subscription { since_seq: known.since_seq.min(newest), ..known })
}

pub(super) fn drop(index: &Index, id: &Id) {
    index.write().unwrap_or_else(PoisonError::into_inner).remove(id);
}

/// An event with its large fields, as far as they are still known.
pub(super) async fn whole<B: Backend>(engine: &Engine<B>, event: &Event) -> Result<Event, Option<Ended>> {
    match engine.rehydrate(event.clone()).await {
        Ok(whole) => Ok(whole),
        Err(EngineError::Fault(fault @ (Fault::Stopped(_) | Fault::Full(_)))) => Err(ended(&fault.into())),
        // What its large fields say is not known any more.
        Err(error) => {
            warn_seldom!(error, event = %event.id, "an event is matched without its large fields");
            Ok(event.clone())
        }
    }
}

/// Finds the subscriptions that want an event, with at most `work_max` comparisons; `None` if it takes more.
pub(super) fn wanted(index: &Index, event: &Event, work_max: usize) -> Option<Wanted> {
    let index = index.read().unwrap_or_else(PoisonError::into_inner);
    let mut by = Vec::new();
    let report = |id: &Id, target: &Target| by.push((id.clone(), target.clone()));
    let Ok(data) = event.properties.read::<Value>() else {
        // An older version let it in. No rules can be asked; each execution fails for good and says why.
        index.each_of(&event.tenant, &event.event_type, report);
        let counts = MatchCounts { matched: by.len(), ..MatchCounts::default() };
        return Some(Wanted { work: index.len(), by, counts });
    };
    let counts = index.matches_within(work_max, &event.tenant, &event.event_type, &data, report)?;
    let work = counts.tried + counts.matched + event.properties.len() / BYTES_PER_WORK;
    Some(Wanted { by, counts, work })
}

/// The same however long it takes, where it holds up nobody.
pub(super) async fn wanted_aside<H: ScriptHost>(
    host: &H,
    index: &Index,
    event: Event,
) -> Result<Wanted, Option<Ended>> {
    let index = Arc::clone(index);
    let wanted = host.aside(move || wanted(&index, &event, usize::MAX)).await;
    wanted.flatten().ok_or(None)
}

/// The subscriptions that want an event with this number: it is not older than they are.
pub(super) fn fresh(by: Vec<(Id, Target)>, number: u64) -> Vec<NewTarget> {
    by.into_iter()
        .filter(|(_, target)| target.since < number)
        .map(|((tenant, subscription), target)| NewTarget { tenant, subscription, script: target.script })
        .collect()
}

pub(super) struct NewTarget {
    tenant: TenantId,
    subscription: SubscriptionId,
    script: ScriptId,
}

impl NewTarget {
    /// What is queued for it.
    pub(super) fn of(self, source: &SourceEvent, batch: &mut Batch) {
        batch.bytes += source.len() + 200;
        let Self { tenant, subscription, script } = self;
        batch.executions.push(NewExecution { tenant, script, subscription, event: source.clone() });
    }
}

/// An event as its executions keep it.
pub(super) async fn source<B: Backend>(
    engine: &Engine<B>,
    event: &Event,
    copies: usize,
) -> Result<SourceEvent, Option<Ended>> {
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
        hop: hop(engine, event).await?,
    })
}

/// How many scripts stand between an event and what came from outside.
async fn hop<B: Backend>(engine: &Engine<B>, event: &Event) -> Result<u32, Option<Ended>> {
    if let Some(hop) = event.context.origin.strip_prefix(SCRIPT_ORIGIN) {
        return Ok(hop.parse().unwrap_or(u32::MAX));
    }
    let job = match event.entity.kind.as_str() {
        "JOB" => JobId::new(event.entity.id.as_str()).ok(),
        "TASK" => RequestId::trusted(event.entity.id.as_str()).job_part(),
        _ => None,
    };
    let Some(job) = job else { return Ok(0) };
    let known = engine.job(event.tenant.clone(), job).await.map_err(|error| ended(&error))?;
    Ok(known.map_or(0, |job| job.head.hops))
}

/// Queues what matched and moves a cursor, in one commit. Does nothing if there is nothing to do.
pub(super) async fn commit<B: Backend>(
    engine: &Engine<B>,
    lane: Option<&TenantId>,
    place: &mut Place,
    to: Option<u64>,
    batch: &mut Batch,
) -> Result<(), Option<Ended>> {
    if !batch.executions.is_empty() || place.written != to {
        let executions = std::mem::take(&mut batch.executions);
        batch.bytes = 0;
        let command = Match { lane: lane.cloned(), cursor_version: place.version, to, executions };
        let reply = engine.execute(Command::Match(command)).await.map_err(|error| ended(&error))?;
        let Reply::Matched { created, cursor_version } = reply else { return Err(None) };
        *place = Place { written: to, version: cursor_version };
        if created > 0 {
            engine.script_board().note_queued(created.into());
        }
    }
    batch.count(engine);
    Ok(())
}
