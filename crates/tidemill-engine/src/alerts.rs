//! All alerts that stand, of every source.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_model::events::properties::HealthLevel;
use tidemill_model::{AppName, Entity, Json, KnownType, RequestId, TenantId, Timestamp};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError};
use crate::health::{Kept, TaskAlarm, text};
use crate::kernel::backend::Backend;
use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, Subject};
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{HEALTH, RecordKey, RecordKind, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{Expiring, State};
use crate::outbound::outbox;
use crate::scripts::{AlertKind, StandingAlert};

/// Tells that something needs attention, or no longer does.
#[derive(Debug, Clone)]
pub struct Alert {
    pub tenant: TenantId,
    /// What it is about. It stands under this name until it is cleared.
    pub name: &'static str,
    pub is_raised: bool,
    /// In words.
    pub message: String,
    /// A JSON object.
    pub properties: Json,
}

impl Decision for Alert {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![
            RowKey::Entity(self.tenant.clone(), Entity::system(ENTITY)),
            RowKey::Record(RecordKey::alert(&self.tenant, self.name)),
        ]
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(alert(state, self, draft))
    }
}

/// The entity of events about a tenant's scripts as a whole.
pub(crate) const ENTITY: &str = "scripts";

/// The application that alerts come from.
const APP: &str = "tidemill";

/// How many tasks an alert about their health names.
const NAMED_MAX: usize = 3;
/// The characters of what an alert says.
const MESSAGE_CHARS_MAX: usize = 1_000;

impl<B: Backend> Engine<B> {
    /// The alerts about scripts that stand; of one tenant if it is given.
    pub fn alerts(&self, tenant: Option<&TenantId>) -> Vec<StandingAlert> {
        self.inner.board.alerts().standing(tenant)
    }

    /// The alerts that stand: those of scripts, of parked executions that will be given up soon, of the last check of
    /// health, and of failed jobs that were not reported to people yet. Of one tenant if it is given.
    pub async fn standing_alerts(
        &self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<StandingAlert>, EngineError> {
        let mut standing = self.alerts(tenant);
        let now = self.inner.clock.now();
        let expiring = self.inner.backend.look(|state| {
            let index = state.triage();
            let all: Vec<_> = match tenant {
                Some(tenant) => vec![tenant.clone()],
                None => index.tenants().cloned().collect(),
            };
            let told = |tenant: TenantId| index.expiring(&tenant).map(|expiring| (tenant, expiring));
            all.into_iter().filter_map(told).collect::<Vec<_>>()
        });
        standing.extend(expiring.await?.into_iter().map(|(tenant_id, Expiring { count, first })| {
            let minutes = first.deadline.since(now).div_ceil(60_000);
            let minutes = if minutes == 1 { "1 minute".to_owned() } else { format!("{minutes} minutes") };
            let (id, others) = (&first.execution, count - 1);
            let message = match others {
                0 => format!("{id} is parked and will be given up within {minutes}"),
                _ => format!("{id} is parked and will be given up within {minutes}, {others} more later"),
            };
            let kind = AlertKind::ParkedExpiring;
            StandingAlert { kind, tenant_id, raised_at: first.alarm_at, message }
        }));
        match tenant {
            Some(tenant) => {
                let kept = self.kept_health(tenant).await?.0;
                standing.extend(kept.into_iter().flat_map(|kept| self.of_health(tenant, &kept)));
            }
            None => {
                for (tenant, kept) in self.all_kept_health().await? {
                    standing.extend(self.of_health(&tenant, &kept));
                }
            }
        }
        standing.extend(self.untold_failures(tenant).await?);
        Ok(standing)
    }

    /// What is kept of the last checks of all tenants.
    pub(crate) async fn all_kept_health(&self) -> Result<Vec<(TenantId, Kept)>, EngineError> {
        let mut all = Vec::new();
        let mut after: Option<RecordKey> = None;
        loop {
            let records = self.inner.backend.all_records(RecordKind::System, after, LIST_MAX).await?;
            for (key, record) in records.iter().filter(|(key, _)| &*key.id == HEALTH) {
                if let (Some(tenant), Ok(kept)) = (&key.tenant, Kept::read(record)) {
                    all.push((tenant.clone(), kept));
                }
            }
            if records.len() < LIST_MAX {
                return Ok(all);
            }
            after = records.last().map(|(key, _)| key.clone());
        }
    }

    /// One alert for all tasks together, and one for each finding.
    fn of_health(&self, tenant: &TenantId, kept: &Kept) -> Vec<StandingAlert> {
        let alert = |raised_at, message: &str| StandingAlert {
            kind: AlertKind::TaskHealth,
            tenant_id: tenant.clone(),
            raised_at,
            message: self.clean_within(message, MESSAGE_CHARS_MAX),
        };
        let mut alerts = Vec::new();
        let first = kept.alarms.tasks.iter().map(TaskAlarm::since);
        if let Some(raised_at) = first.min() {
            // A task that got better is still in the alarms with the health that was reported.
            let now: HashMap<&RequestId, HealthLevel> =
                kept.report.tasks.iter().map(|task| (&task.request_id, task.health)).collect();
            let tasks = &kept.alarms.tasks;
            let health_of = |at: usize| now.get(&tasks[at].request_id).copied().unwrap_or(tasks[at].health);
            let counted = [HealthLevel::Critical, HealthLevel::Overtime, HealthLevel::Warning]
                .into_iter()
                .filter_map(|own| {
                    let count = (0..tasks.len()).filter(|at| health_of(*at) == own).count();
                    (count > 0).then(|| format!("{count} {}", text::health_word(own)))
                });
            let counted = counted.collect::<Vec<_>>().join(", ");
            let named = tasks.iter().take(NAMED_MAX).map(|alarm| alarm.request_id.as_str());
            let named = named.collect::<Vec<_>>().join(", ");
            let rest = if tasks.len() > NAMED_MAX { ", …" } else { "" };
            let are =
                if tasks.len() == 1 { "1 task is".to_owned() } else { format!("{} tasks are", tasks.len()) };
            alerts.push(alert(raised_at, &format!("{are} not well: {counted} ({named}{rest})")));
        }
        alerts.extend(kept.alarms.findings.iter().filter_map(|alarm| {
            let finding = kept.report.findings.iter().find(|finding| finding.kind == alarm.kind)?;
            Some(alert(alarm.since(), &finding.message))
        }));
        alerts
    }
}

pub(crate) fn alert(state: &State, command: &Alert, draft: &mut Draft<'_, '_>) -> Reply {
    let entity = Entity::system(ENTITY);
    let last = state.stream(&command.tenant, &entity).and_then(|stream| stream.last_timestamp());
    let mut subject = Subject { tenant: command.tenant.clone(), app: AppName::trusted(APP), entity, last };
    let known = if command.is_raised { KnownType::AlertRaised } else { KnownType::AlertCleared };
    let key = RecordKey::alert(&command.tenant, command.name);
    let version = state.record(&key).map_or(0, |record| record.version);
    if command.is_raised {
        let value = RecordValue::Bytes(Arc::from(command.properties.as_str().as_bytes()));
        draft.record(RecordWrite::over(key, version, value));
    } else if version > 0 {
        draft.record(RecordWrite::Put { key, record: None });
    }
    draft.event(&mut subject, known, By::component(Origin::Dispatcher), command.properties.clone());
    outbox::standing(&command.tenant, command.name, &command.message, command.is_raised, draft);
    Reply::Alerted
}
