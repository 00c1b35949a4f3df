//! Checks of health, as timers and callers ask for them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidemill_model::events::properties::{HealthLevel, HealthSummary, TaskHealth, TaskHealthCheck};
use tidemill_model::{AppName, Entity, Event, EventId, Json, KnownType, RequestId, TenantId, Timestamp};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError, take_reply};
use crate::health::{
    APP, Alarms, Change, ENTITY, Finding, FindingKind, HealthReport, Judged, Kept, LastCheck, Lookout,
    TASKS_MAX, text,
};
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, HealthAlert, RecordHealth};
use crate::kernel::record::RecordKey;
use crate::kernel::reply::Reply;
use crate::kernel::site::Origin;

/// How many live tasks are looked at in one go, so that nothing else waits for long.
const PAGE: usize = 1_000;
/// How many parked executions are counted. More are as alarming.
const PARKED_COUNTED_MAX: usize = 10_000;
/// How many examples a finding names.
const EXAMPLES_MAX: usize = 20;
/// The characters of an alert.
const TEXT_CHARS_MAX: usize = 12_000;

/// What a look at all live tasks of a tenant gave.
#[derive(Default)]
struct Sight {
    summary: HealthSummary,
    /// The worst first.
    ill: Vec<Judged>,
    /// The worst first, as many as can be listed.
    healthy: Vec<Judged>,
    /// Those of the alarmed tasks that are processing.
    processing: HashSet<RequestId>,
    pending: Pending,
}

/// Tasks that wait for their start for too long.
#[derive(Default)]
struct Pending {
    count: u64,
    oldest: BTreeSet<(std::cmp::Reverse<u64>, RequestId)>,
}

impl<B: Backend> Engine<B> {
    /// Looks at the live work of a tenant, records what it found, and raises alarms. One check runs at a time.
    pub async fn check_health(&self, tenant: &TenantId) -> Result<HealthReport, EngineError> {
        let _turn = self.inner.health.turn().await;
        let mut lookout = self.inner.backend.look(|state| state.lookout(Some(tenant))).await?;
        self.check_tenant(tenant, lookout.remove(tenant).unwrap_or_default()).await
    }

    /// The same for `own`, for all tenants that have a key, and for all that have anything open or an alarm that
    /// stands. Says how many these were.
    pub async fn check_health_of_all(&self, own: &TenantId) -> Result<usize, EngineError> {
        let _turn = self.inner.health.turn().await;
        let mut tenants = self.inner.backend.look(|state| state.lookout(None)).await?;
        for tenant in self.known_tenants(own).await? {
            tenants.entry(tenant).or_default();
        }
        let count = tenants.len();
        let mut failed = None;
        for (tenant, lookout) in tenants {
            // What goes wrong with one is no reason to leave out the others.
            if let Err(error) = self.check_tenant(&tenant, lookout).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// What the last check of a tenant found.
    pub async fn last_health(&self, tenant: &TenantId) -> Result<Option<HealthReport>, EngineError> {
        Ok(self.kept_health(tenant).await?.0.map(|kept| kept.report))
    }

    /// What the checks of this process counted last.
    pub fn last_checks(&self) -> BTreeMap<TenantId, LastCheck> {
        self.inner.health.last()
    }

    /// How long it is until the next check, if there is one every `every` and `own` is always among the checked.
    pub async fn until_health_check(&self, own: &TenantId, every: Duration) -> Result<Duration, EngineError> {
        let last = self.last_health(own).await?.map(|report| report.checked_at);
        let passed = last.map(|last| Duration::from_millis(self.inner.clock.now().since(last)));
        Ok(passed.map_or(Duration::ZERO, |passed| every.saturating_sub(passed)))
    }

    async fn known_tenants(&self, own: &TenantId) -> Result<BTreeSet<TenantId>, EngineError> {
        let mut tenants = self
            .inner
            .backend
            .look(|state| {
                let index = state.triage();
                let waits = |tenant: &&TenantId| index.parked_count(tenant) > 0;
                index.tenants().filter(waits).cloned().collect::<BTreeSet<_>>()
            })
            .await?;
        tenants.insert(own.clone());
        let mut after = None;
        loop {
            let keys = self.keys(after.as_ref(), LIST_MAX).await?;
            let live = keys.iter().filter(|key| key.revoked_at.is_none());
            tenants.extend(live.flat_map(|key| key.tenants.iter().cloned()));
            if keys.len() < LIST_MAX {
                break;
            }
            after = keys.last().map(|key| key.id.clone());
        }
        let alarmed = self.all_kept_health().await?.into_iter().filter(|(_, kept)| !kept.alarms.is_empty());
        tenants.extend(alarmed.map(|(tenant, _)| tenant));
        Ok(tenants)
    }

    async fn check_tenant(&self, tenant: &TenantId, lookout: Lookout) -> Result<HealthReport, EngineError> {
        let (before, expected) = self.kept_health(tenant).await?;
        let alarms = before.map_or_else(Alarms::default, |kept| kept.alarms);
        let now = self.inner.clock.now();
        let sight = self.look_at(tenant, &alarms, now).await?;
        let findings = self.findings(tenant, &sight.pending, &lookout, now).await?;
        let rules = &self.inner.health_rules;
        let change = alarms.after(&sight.ill, &sight.processing, &findings, rules, now);
        let listed: Vec<&Judged> = sight.ill.iter().chain(&sight.healthy).take(TASKS_MAX).collect();
        let named = change.raised.iter().take(text::LINES_MAX).copied();
        let types = self.last_types(tenant, listed.iter().copied().chain(named)).await?;
        let alerts = self.alerts_of(tenant, &change, &types);
        let tasks = listed.into_iter().map(|task| TaskHealth {
            request_id: task.request.clone(),
            health: task.health,
            elapsed: task.elapsed_millis.0,
            time_since_last_event: task.silent_millis.0,
            last_event_type: types.get(&task.request).cloned().unwrap_or_else(|| "unknown".to_owned()),
            worker_id: task.worker.clone(),
        });
        let (tasks, alarms) = (tasks.collect(), change.after);
        let event_id = self.mint_event_id();
        let report = HealthReport { checked_at: now, event_id, summary: sight.summary, tasks, findings };
        let properties = self.health_event(tenant, &report).await?;
        let kept = Kept { report, alarms };
        let bytes = serde_json::to_vec(&kept).expect("what is kept has string keys only");
        let command = RecordHealth {
            tenant: tenant.clone(),
            event: event_id,
            properties,
            kept: Arc::from(bytes),
            expected,
            alerts,
        };
        let reply = self.execute(Command::RecordHealth(command)).await?;
        take_reply!(reply, Reply::HealthRecorded => ())?;
        self.inner.health.note(tenant, &kept.report);
        Ok(kept.report)
    }

    pub(crate) async fn kept_health(&self, tenant: &TenantId) -> Result<(Option<Kept>, u64), EngineError> {
        let Some(record) = self.inner.backend.record(RecordKey::health(tenant)).await? else {
            return Ok((None, 0));
        };
        Ok((Some(Kept::read(&record)?), record.version))
    }

    async fn look_at(
        &self,
        tenant: &TenantId,
        alarms: &Alarms,
        now: Timestamp,
    ) -> Result<Sight, EngineError> {
        let rules = &self.inner.health_rules;
        let alarmed: HashSet<&RequestId> = alarms.tasks.iter().map(|alarm| &alarm.request_id).collect();
        let mut sight = Sight::default();
        let mut after = None;
        loop {
            let tasks =
                self.inner.backend.look(|state| state.live_tasks(tenant, after.as_ref(), PAGE)).await?;
            let Some(last) = tasks.last() else { break };
            after = Some(last.request.clone());
            for task in &tasks {
                if let Some(judged) = Judged::of(task, now, rules) {
                    if alarmed.contains(&judged.request) {
                        sight.processing.insert(judged.request.clone());
                    }
                    sight.take_in(judged);
                } else if let Some(millis) =
                    task.pending_millis(now).filter(|own| *own > rules.pending_millis)
                {
                    sight.pending.take_in(millis, &task.request);
                }
            }
        }
        sight.ill.sort_unstable();
        sight.healthy.sort_unstable();
        Ok(sight)
    }

    async fn findings(
        &self,
        tenant: &TenantId,
        pending: &Pending,
        lookout: &Lookout,
        now: Timestamp,
    ) -> Result<Vec<Finding>, EngineError> {
        let rules = &self.inner.health_rules;
        let mut findings = Vec::new();
        if let Some((oldest, _)) = pending.oldest.first() {
            findings.push(Finding {
                kind: FindingKind::Pending,
                count: pending.count,
                message: format!(
                    "{} for a start longer than {}, the oldest for {}",
                    counted(pending.count, "task waits", "tasks wait"),
                    text::span(rules.pending_millis),
                    text::span(oldest.0),
                ),
                examples: pending.oldest.iter().map(|(_, request)| request.to_string()).collect(),
            });
        }
        let until = now.minus(rules.parked_millis);
        let parked = self.inner.backend.look(|state| {
            let index = state.triage();
            let all = index.parked_after(tenant, None, None).take_while(|parked| parked.since < until);
            all.take(PARKED_COUNTED_MAX)
                .map(|parked| (parked.since, parked.execution.clone()))
                .collect::<Vec<_>>()
        });
        let parked = parked.await?;
        if let Some((since, _)) = parked.first() {
            let count = parked.len() as u64;
            let more = if parked.len() == PARKED_COUNTED_MAX { " or more" } else { "" };
            findings.push(Finding {
                kind: FindingKind::Parked,
                count,
                message: format!(
                    "{}{more} longer than {}, the oldest for {}",
                    counted(count, "execution is parked", "executions are parked"),
                    text::span(rules.parked_millis),
                    text::span(now.since(*since)),
                ),
                examples: parked.iter().take(EXAMPLES_MAX).map(|(_, id)| id.to_string()).collect(),
            });
        }
        if lookout.stalled > 0 {
            let count = u64::from(lookout.stalled);
            findings.push(Finding {
                kind: FindingKind::StalledJobs,
                count,
                message: format!(
                    "{} although nothing is left that could bring it further",
                    counted(count, "job is open", "jobs are open"),
                ),
                examples: lookout.stalled_jobs.iter().map(ToString::to_string).collect(),
            });
        }
        let waits = lookout.oldest_delivery.map(|oldest| now.since(oldest));
        if let Some(millis) = waits.filter(|millis| *millis > rules.outbound_millis) {
            let count = lookout.deliveries as u64;
            findings.push(Finding {
                kind: FindingKind::Outbound,
                count,
                message: format!(
                    "{} to arrive, the oldest for {}",
                    counted(count, "delivery waits", "deliveries wait"),
                    text::span(millis),
                ),
                examples: Vec::new(),
            });
        }
        Ok(findings)
    }

    /// The types of the tasks' newest events.
    async fn last_types<'j>(
        &self,
        tenant: &TenantId,
        tasks: impl Iterator<Item = &'j Judged>,
    ) -> Result<HashMap<RequestId, String>, EngineError> {
        let mut types = HashMap::new();
        for request in tasks.map(|task| &task.request).collect::<BTreeSet<_>>() {
            let entity = self.inner.site.task(request);
            if let Some(event) = self.inner.backend.latest(tenant.clone(), entity).await? {
                types.insert(request.clone(), event.event_type.to_string());
            }
        }
        Ok(types)
    }

    fn alerts_of(
        &self,
        tenant: &TenantId,
        change: &Change<'_>,
        types: &HashMap<RequestId, String>,
    ) -> Vec<HealthAlert> {
        let stage = self.inner.site.environment();
        let clean = |text: String, is_raised| HealthAlert {
            text: Arc::from(self.clean_within(&text, TEXT_CHARS_MAX)),
            is_raised,
        };
        let mut alerts = Vec::new();
        if !change.raised.is_empty() || !change.raised_findings.is_empty() {
            let type_of = |request: &RequestId| types.get(request).map(String::as_str);
            let said =
                text::raised(&stage, tenant.as_str(), &change.raised, &change.raised_findings, type_of);
            alerts.push(clean(said, true));
        }
        if !change.recovered.is_empty() || !change.recovered_findings.is_empty() {
            let said =
                text::recovered(&stage, tenant.as_str(), &change.recovered, &change.recovered_findings);
            alerts.push(clean(said, false));
        }
        alerts
    }

    /// The properties of the event, without what had to move to the blob store.
    async fn health_event(&self, tenant: &TenantId, report: &HealthReport) -> Result<Json, EngineError> {
        let id: EventId = report.event_id;
        let properties = TaskHealthCheck { summary: report.summary, tasks: report.tasks.clone() };
        let event = Event {
            id,
            tenant: tenant.clone(),
            app: AppName::trusted(APP),
            entity: Entity::system(ENTITY),
            event_type: self.inner.site.event_type(KnownType::TaskHealthCheck),
            timestamp: Timestamp::MIN,
            received_at: Timestamp::MIN,
            context: self.inner.site.context(Origin::HealthCheck, None),
            properties: Json::of(&properties),
            ttl: None,
            beside: None,
        };
        let packed = self.pack(event)?;
        Ok(self.ship(tenant, id, packed).await?.properties)
    }
}

impl Sight {
    fn take_in(&mut self, task: Judged) {
        self.summary.total_processing += 1;
        match task.health {
            HealthLevel::Critical => self.summary.critical += 1,
            HealthLevel::Overtime => self.summary.overtime += 1,
            HealthLevel::Warning => self.summary.warning += 1,
            HealthLevel::Healthy => {
                self.summary.healthy += 1;
                self.healthy.push(task);
                if self.healthy.len() >= 2 * TASKS_MAX {
                    self.healthy.sort_unstable();
                    self.healthy.truncate(TASKS_MAX);
                }
                return;
            }
        }
        self.ill.push(task);
    }
}

impl Pending {
    fn take_in(&mut self, millis: u64, request: &RequestId) {
        self.count += 1;
        self.oldest.insert((std::cmp::Reverse(millis), request.clone()));
        if self.oldest.len() > EXAMPLES_MAX {
            self.oldest.pop_last();
        }
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
