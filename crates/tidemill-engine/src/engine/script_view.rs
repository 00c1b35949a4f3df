//! Looking at scripts: whether one compiles, and why an event does or does not match.
//!
//! The compiler is not part of the engine: whoever sets it up hands it in.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use tidemill_model::access_path::AccessPath;
use tidemill_model::event_query::EventQuery;
use tidemill_model::{
    Event, EventId, EventType, ScriptId, Subscription, SubscriptionId, TenantId, Timestamp,
};

use super::limits::LIST_MAX;
use super::{Engine, EngineError};
use crate::backend::Backend;
use crate::execution::ExecutionId;
use crate::record::RecordKey;

/// Says whether a script can be run at all.
pub trait ScriptCompiler: Send + Sync + 'static {
    fn compile<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        source: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), CompileProblem>> + Send + 'a>>;
}

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

/// An event, as far as it matters to subscriptions.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedEvent {
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
    /// The event is older than the subscription.
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
/// How many events a search by id looks at.
const LOOKED_AT_MAX: usize = 50_000;
/// How far an event's own time may lie from the moment in its id, in milliseconds, tried in turn.
const SPANS: [u64; 3] = [0, 1_000, 60_000];

impl<B: Backend> Engine<B> {
    /// An event by its id. The id tells when it was written; one whose own time is more than a minute away is not found.
    pub async fn find_event(&self, tenant: &TenantId, id: EventId) -> Result<Option<Event>, EngineError> {
        let moment = u64::try_from(id.as_u128() >> 80).unwrap_or(0);
        for span in SPANS {
            let bound = |millis| Timestamp::new("eventId", millis).ok();
            let (from, to) = (bound(moment.saturating_sub(span)), bound(moment.saturating_add(span)));
            let (Some(from), Some(to)) = (from, to) else { return Ok(None) };
            let path = AccessPath::Tenant;
            let mut query =
                EventQuery { from: Some(from), to: Some(to), ..EventQuery::all(tenant.clone(), path) };
            let mut seen = 0;
            while seen < LOOKED_AT_MAX {
                let page = self.inner.backend.events(query.clone()).await?;
                seen += page.events.len();
                if let Some(event) = page.events.into_iter().find(|event| event.id == id) {
                    return self.rehydrate(event).await.map(Some);
                }
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
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

impl From<Event> for ExplainedEvent {
    fn from(event: Event) -> Self {
        Self {
            id: Some(event.id),
            event_type: event.event_type,
            timestamp: Some(event.timestamp),
            data: event.properties.read().unwrap_or(Value::Null),
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
    answer.conditions = conditions.collect();
    answer.verdict = if !subscription.enabled {
        Verdict::Disabled
    } else if event.timestamp.is_some_and(|timestamp| timestamp < subscription.created_at) {
        Verdict::Before
    } else if rules.matches(&event.data) {
        Verdict::Matched
    } else {
        Verdict::Filtered
    };
    answer
}
