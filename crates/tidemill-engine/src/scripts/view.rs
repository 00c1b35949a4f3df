//! Looking at scripts: whether one compiles, and why an event does or does not match.
//!
//! The compiler is not part of the engine: the caller hands it in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tidemill_matcher::Subscription;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{Event, EventId, EventType, ScriptId, SubscriptionId, TenantId, Timestamp};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError};
use crate::kernel::backend::Backend;
use crate::kernel::record::RecordKey;
use crate::scripts::execution::ExecutionId;
use crate::scripts::{RunDone, RunFailed, ScriptRun};

/// Says whether a script can be run at all.
pub trait ScriptCompiler: Send + Sync + 'static {
    fn compile<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        source: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), CompileProblem>> + Send + 'a>>;

    /// Runs a script once; what it asks for is reported and not done. `None` where nothing can run it.
    fn try_out(&self, run: ScriptRun) -> TryOut<'_> {
        drop(run);
        Box::pin(std::future::ready(None))
    }
}

/// A run that is only tried out.
pub type TryOut<'a> = Pin<Box<dyn Future<Output = Option<Result<RunDone, RunFailed>>> + Send + 'a>>;

/// Why a script is not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileProblem {
    /// Lines and columns count from 1.
    #[error("{message} (line {line}, column {column})")]
    Wrong { message: String, line: u32, column: u32 },
    /// It may work later, unchanged.
    #[error("the compiler is not available: {0}")]
    Unavailable(String),
}

/// An event that was looked for by its id.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundEvent {
    pub event: Event,
    /// Its number in the log, if that is known.
    pub number: Option<u64>,
}

/// An event, as far as it matters to subscriptions.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedEvent {
    /// Its data cannot be read, so that no rules are asked and what it runs fails for good.
    pub is_unreadable: bool,
    /// Its number in the log, if that is known.
    pub number: Option<u64>,
    /// None for one that never happened.
    pub id: Option<EventId>,
    pub event_type: EventType,
    pub timestamp: Option<Timestamp>,
    pub data: Value,
}

/// What becomes of an event with one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Matched,
    /// A condition failed.
    Filtered,
    Disabled,
    /// The subscription was made or enabled after the event.
    Before,
    /// The stored rules cannot be read any more, so they match nothing.
    BadRules,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    pub subscription: SubscriptionId,
    pub script: ScriptId,
    pub verdict: Verdict,
    /// What was queued for it; none for an event that never happened.
    pub execution: Option<ExecutionId>,
    /// Every condition of the rules in their order.
    pub conditions: Vec<ExplainedCondition>,
}

/// How one condition fared.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedCondition {
    /// Where it stands in the rules as they are written out, such as `conditions[0]`.
    pub place: String,
    pub field: String,
    pub operator: &'static str,
    pub value: Value,
    /// What the event has there; none if the field is missing, or if it is longer than [`ACTUAL_BYTES_MAX`].
    pub actual: Option<Value>,
    pub passed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub event: ExplainedEvent,
    /// The subscriptions of the event's type, by id.
    pub subscriptions: Vec<Explained>,
    /// How many subscriptions of the tenant are of other types.
    pub other_types: usize,
    /// Whether there are more than are listed.
    pub is_cut: bool,
}

/// How many subscriptions one explanation lists.
pub const EXPLAINED_MAX: usize = 1_000;
/// What is shown of an event's own value, as JSON.
pub const ACTUAL_BYTES_MAX: usize = 1_024;
/// How many events on either side of its place in the log an event is looked for.
const AROUND_MAX: u64 = 2_000;
/// How many events of a span of time are looked at for an event that has no known place in the log.
pub const EVENTS_LOOKED_AT_MAX: usize = 20_000;
const PAGE: usize = 1_000;
/// How far an event's own time may lie from the moment that is known of it, in milliseconds, tried in turn; at last
/// anywhere.
const SPANS: [Option<u64>; 4] = [Some(0), Some(1_000), Some(600_000), None];

impl<B: Backend> Engine<B> {
    /// An event by its id and, if that is known, its time, as long as it is stored.
    ///
    /// The id says when the event was written, and nearly all events are in the log in that order. So a binary search
    /// finds its place, and then its neighbours are searched. An event that is not there (a script's, whose id comes
    /// from the event that it ran for, or an imported one) is looked for by its time, and then among the tenant's
    /// newest: a bounded number of each.
    pub async fn find_event(
        &self,
        tenant: &TenantId,
        id: EventId,
        time: Option<Timestamp>,
    ) -> Result<Option<FoundEvent>, EngineError> {
        let written = u64::try_from(id.as_u128() >> 80).unwrap_or(0);
        if let Some((number, event)) = self.find_in_log(tenant, id, written).await? {
            let event = self.rehydrate(event).await?;
            return Ok(Some(FoundEvent { event, number: Some(number) }));
        }
        let moment = time.map_or(written, Timestamp::millis);
        for span in SPANS {
            let bound = |millis| Timestamp::new("eventId", millis).ok();
            let (from, to) = match span {
                Some(span) => (bound(moment.saturating_sub(span)), bound(moment.saturating_add(span))),
                None => (None, None),
            };
            if span.is_some() && (from.is_none() || to.is_none()) {
                continue;
            }
            let path = AccessPath::Tenant;
            let all = EventQuery::all(tenant.clone(), path);
            let mut query = EventQuery { from, to, order: Order::Descending, ..all };
            let mut looked_at = 0;
            while looked_at < EVENTS_LOOKED_AT_MAX {
                let page = self.inner.backend.events(query.clone()).await?;
                looked_at += page.events.len();
                if let Some(event) = page.events.into_iter().find(|event| event.id == id) {
                    let event = self.rehydrate(event).await?;
                    return Ok(Some(FoundEvent { event, number: None }));
                }
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
        }
        Ok(None)
    }

    /// Looks for an event where the log was written at a moment.
    async fn find_in_log(
        &self,
        tenant: &TenantId,
        id: EventId,
        moment: u64,
    ) -> Result<Option<(u64, Event)>, EngineError> {
        let backend = &self.inner.backend;
        let (mut low, mut high) = (0, backend.newest());
        // The last place before which all was written earlier, as far as the clock went forward.
        while low < high {
            let middle = low + (high - low) / 2;
            match backend.follow(middle, 1).await?.first() {
                Some((number, event)) if event.received_at.millis() < moment => low = *number,
                _ => high = middle,
            }
        }
        let begin = low.saturating_sub(AROUND_MAX);
        let mut after = begin;
        while after < low + AROUND_MAX {
            let events = backend.follow(after, PAGE).await?;
            let Some(last) = events.last().map(|(number, _)| *number) else { break };
            let found = events.into_iter().find(|(_, event)| event.id == id && event.tenant == *tenant);
            if found.is_some() {
                return Ok(found);
            }
            after = last;
        }
        Ok(None)
    }

    /// What becomes of an event with each subscription of its type, or with those of one script.
    pub async fn explain(
        &self,
        tenant: &TenantId,
        event: ExplainedEvent,
        script: Option<&ScriptId>,
    ) -> Result<Explanation, EngineError> {
        let (mut subscriptions, mut other_types, mut is_cut) = (Vec::new(), 0, false);
        let mut from = None;
        loop {
            let page = self.subscription_page(tenant, from.take()).await?;
            let is_last = page.len() < LIST_MAX;
            from = page.last().map(|last| Arc::from(last.id.as_str()));
            for subscription in page {
                if script.is_some_and(|script| *script != subscription.script_id) {
                } else if subscription.event_type != event.event_type {
                    other_types += 1;
                } else if subscriptions.len() == EXPLAINED_MAX {
                    is_cut = true;
                } else {
                    let mut answer = explained(&subscription, &event);
                    answer.execution = self.execution_for(tenant, &event, &subscription.id).await?;
                    // It was enabled then, disabled since and enabled again.
                    if answer.execution.is_some() && answer.verdict == Verdict::Before {
                        answer.verdict = Verdict::Matched;
                    }
                    subscriptions.push(answer);
                }
            }
            if is_last {
                return Ok(Explanation { event, subscriptions, other_types, is_cut });
            }
        }
    }

    /// The execution that an event and a subscription have, if there is one.
    async fn execution_for(
        &self,
        tenant: &TenantId,
        event: &ExplainedEvent,
        subscription: &SubscriptionId,
    ) -> Result<Option<ExecutionId>, EngineError> {
        let Some(event) = event.id else { return Ok(None) };
        let id = ExecutionId::of(event, subscription);
        let record = self.inner.backend.record(RecordKey::execution(tenant, id)).await?;
        Ok(record.map(|_| id))
    }
}

impl From<FoundEvent> for ExplainedEvent {
    fn from(FoundEvent { event, number }: FoundEvent) -> Self {
        let data = event.properties.read();
        Self {
            is_unreadable: data.is_err(),
            number,
            id: Some(event.id),
            event_type: event.event_type,
            timestamp: Some(event.timestamp),
            data: data.unwrap_or(Value::Null),
        }
    }
}

fn explained(subscription: &Subscription, event: &ExplainedEvent) -> Explained {
    let mut answer = Explained {
        subscription: subscription.id.clone(),
        script: subscription.script_id.clone(),
        verdict: Verdict::BadRules,
        execution: None,
        conditions: Vec::new(),
    };
    let Ok(rules) = subscription.rules() else { return answer };
    let conditions = rules.explain(&event.data).into_iter().map(|result| ExplainedCondition {
        place: result.place,
        field: result.path.to_owned(),
        operator: result.op.name(),
        value: result.value.clone(),
        actual: result.actual.filter(|actual| actual.to_string().len() <= ACTUAL_BYTES_MAX).cloned(),
        passed: result.passed,
    });
    if !event.is_unreadable {
        answer.conditions = conditions.collect();
    }
    answer.verdict = if !subscription.enabled {
        Verdict::Disabled
    } else if is_older(event, subscription) {
        Verdict::Before
    } else if event.is_unreadable || rules.matches(&event.data) {
        Verdict::Matched
    } else {
        Verdict::Filtered
    };
    answer
}

/// Whether the subscription was made or enabled after the event was there.
fn is_older(event: &ExplainedEvent, subscription: &Subscription) -> bool {
    match (event.number, event.timestamp) {
        (Some(number), _) => number <= subscription.since_seq,
        // A time is what the publisher says it is, so it tells less.
        (None, Some(timestamp)) => timestamp < subscription.created_at,
        (None, None) => false,
    }
}
