//! Deliveries and the dead letters of those that never arrived.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::{CallbackUrl, EventId, Json, TenantId, Timestamp};

use crate::kernel::record::DeadLetterState;
use crate::outbound::failed_jobs::FailedJobs;
use crate::scripts::execution::SourceEvent;

/// One delivery, and the dead letter it may leave. It goes along with every try, so that the other side can tell a
/// repeated one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeliveryId(pub EventId);

impl DeliveryId {
    pub fn as_u128(self) -> u128 {
        self.0.as_u128()
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which delivery, within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryKey {
    pub tenant: TenantId,
    pub id: DeliveryId,
}

/// Where something is to go. Addresses that the operator set are not stored: they are looked up for every try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "to", content = "url", rename_all = "snake_case")]
pub enum Target {
    /// The operator's webhook for ends of parked executions.
    Workflow,
    /// An address that came with a job.
    Callback(Arc<str>),
    /// The operators of the installation.
    People,
    /// The operator's webhook for alerts.
    AlertWebhook,
    /// The event bus of a stage on AWS; the body is the event as the bus has it.
    Bus,
    /// The holder of a task token of AWS Step Functions.
    TaskToken,
}

impl Target {
    /// What it is called in lists.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Workflow => "workflow-webhook",
            Self::Callback(_) => "callback",
            Self::People => "slack",
            Self::AlertWebhook => "alert-webhook",
            Self::Bus => "event-bus",
            Self::TaskToken => "step-functions",
        }
    }

    /// With which others it is counted.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Workflow | Self::Callback(_) | Self::Bus | Self::TaskToken => Lane::Webhooks,
            Self::People => Lane::People,
            Self::AlertWebhook => Lane::AlertWebhook,
        }
    }

    /// The host and port that a client named; nothing for the operator's own places.
    fn host(&self) -> String {
        match self {
            Self::Callback(url) => {
                CallbackUrl::new(url).map(|url| format!("{}:{}", url.host(), url.port())).unwrap_or_default()
            }
            Self::Workflow | Self::People | Self::AlertWebhook | Self::Bus | Self::TaskToken => String::new(),
        }
    }

    /// The way that deliveries of a tenant take to it.
    pub fn way(&self, tenant: &TenantId) -> Way {
        Way { tenant: tenant.clone(), lane: self.lane(), host: Arc::from(self.host()) }
    }

    /// Alerts are tried until they arrive; all else is given up after some tries.
    pub fn is_alert(&self) -> bool {
        matches!(self, Self::People | Self::AlertWebhook)
    }
}

/// Deliveries that are counted together. One whose other side is away fills no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    Webhooks,
    People,
    AlertWebhook,
}

/// Deliveries that arrive or hang together: of one tenant, in one lane, to one host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    pub tenant: TenantId,
    pub lane: Lane,
    pub host: Arc<str>,
}

/// How often a delivery is tried before it is given up.
const TRIES_MAX: u32 = 4;
/// Alerts are tried at least this often.
const ALERT_PAUSE_MILLIS_MAX: u64 = 5 * 60_000;

/// How long to wait after this many tries failed; `None` gives the delivery up. The first pause is `first_millis`,
/// and each further one is twice as long.
pub fn pause_after(target: &Target, tries: u32, first_millis: u64) -> Option<u64> {
    let doubled = first_millis.saturating_mul(1 << tries.saturating_sub(1).min(32));
    if target.is_alert() {
        Some(doubled.min(ALERT_PAUSE_MILLIS_MAX))
    } else {
        (tries < TRIES_MAX).then_some(doubled)
    }
}

/// A delivery that has not arrived yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    pub id: DeliveryId,
    pub target: Target,
    /// The event that it reports, without its properties.
    pub event: SourceEvent,
    pub body: Json,
    /// How many tries failed.
    pub attempts: u32,
    pub next_try_at: Timestamp,
    pub created_at: Timestamp,
    /// Why the last try failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// The dead letter that it does again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<DeliveryId>,
    /// The failed jobs that an alert reports. Others join them until it is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_jobs: Option<Box<FailedJobs>>,
}

impl Delivery {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        self.event.len()
            + self.body.len()
            + self.error.as_ref().map_or(0, |error| error.len())
            + self.failed_jobs.as_ref().map_or(0, |jobs| jobs.len())
            + target_len(&self.target)
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// How many failed jobs it tells of; 0 if it tells of something else.
    pub fn failed_job_count(&self) -> u32 {
        self.failed_jobs.as_ref().map_or(0, |jobs| jobs.count)
    }
}

fn target_len(target: &Target) -> usize {
    match target {
        Target::Callback(url) => url.len() + 96,
        _ => 96,
    }
}

/// A delivery that was given up. It is never removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryLetter {
    /// The delivery that was given up.
    pub id: DeliveryId,
    pub target: Target,
    pub event: SourceEvent,
    pub body: Json,
    pub error: Arc<str>,
    /// How often it was tried.
    pub attempts: u32,
    pub failed_at: Timestamp,
    pub created_at: Timestamp,
    pub state: DeadLetterState,
    /// The delivery that does it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replayed_by: Option<DeliveryId>,
}

impl DeliveryLetter {
    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        self.event.len() + self.body.len() + self.error.len() + target_len(&self.target)
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_told_apart_by_tenant_lane_and_host() {
        let way = |target: &Target, tenant| target.way(&TenantId::trusted(tenant));
        let to = |url: &str| Target::Callback(Arc::from(url));
        let one = way(&to("https://A.example/x"), "acme");
        assert_eq!(&*one.host, "a.example:443");
        assert_eq!(one, way(&to("https://a.example:443/y?z"), "acme"));
        for other in [
            way(&to("https://a.example/x"), "other"),
            way(&to("https://b.example/x"), "acme"),
            way(&to("http://a.example/x"), "acme"),
            way(&Target::Workflow, "acme"),
            way(&Target::People, "acme"),
            way(&Target::AlertWebhook, "acme"),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn pauses_double_until_all_but_alerts_are_given_up() {
        let callback = Target::Callback(Arc::from("https://a.example"));
        for target in [Target::Workflow, callback] {
            let pauses: Vec<_> = (1..=5).map(|tries| pause_after(&target, tries, 1_000)).collect();
            assert_eq!(pauses, [Some(1_000), Some(2_000), Some(4_000), None, None], "{target:?}");
        }
        for target in [Target::People, Target::AlertWebhook] {
            for (tries, expected) in
                [(1, 1_000), (4, 8_000), (9, 256_000), (10, 300_000), (u32::MAX, 300_000)]
            {
                assert_eq!(pause_after(&target, tries, 1_000), Some(expected), "{target:?} after {tries}");
            }
        }
    }
}
