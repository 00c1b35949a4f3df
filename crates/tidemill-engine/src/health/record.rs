//! A check of health: its event, what is kept of it, and its alarms, all at once. No task changes.

use std::sync::Arc;

use tidemill_model::{AppName, Entity, EventId, Json, KnownType, TenantId, Timestamp};

use crate::health::{APP, ENTITY};
use crate::kernel::commit::RecordWrite;
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, Subject};
use crate::kernel::record::{Record, RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::outbound::outbox;

/// Records what a check of health found, and raises its alarms.
#[derive(Debug, Clone)]
pub struct RecordHealth {
    pub tenant: TenantId,
    /// The id of the event, which was made with it.
    pub event: EventId,
    /// The event's properties, or what is left of them in place.
    pub properties: Json,
    /// What is kept of the check.
    pub kept: Arc<[u8]>,
    /// The version of what was kept of the one before; 0 means nothing.
    pub expected: u64,
    pub alerts: Vec<HealthAlert>,
}

impl Decision for RecordHealth {
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        vec![
            RowKey::Entity(self.tenant.clone(), Entity::system(ENTITY)),
            RowKey::Record(RecordKey::health(&self.tenant)),
        ]
    }

    fn log_bytes(&self) -> u64 {
        (self.kept.len() + self.properties.len()) as u64 + 100_000
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        record(state, self, draft)
    }
}

/// Something that a check tells people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthAlert {
    pub text: Arc<str>,
    pub is_raised: bool,
}

pub(crate) fn record(
    state: &State,
    command: &RecordHealth,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let RecordHealth { tenant, event, properties, kept, expected, alerts } = command;
    let key = RecordKey::health(tenant);
    let actual = state.record(&key).map_or(0, |record| record.version);
    let is_behind = actual != *expected;
    #[cfg(feature = "faults")]
    let is_behind = is_behind && !draft.policy().faults.skip_check_version;
    // Alarms are decided by what was reported before, so another check that reported meanwhile counts.
    if is_behind {
        return Err(Refusal::RecordConflict { expected: *expected, actual });
    }
    let value = RecordValue::Bytes(Arc::clone(kept));
    let record = Record { version: actual + 1, expires_at: None, value };
    draft.record(RecordWrite::Put { key, record: Some(record) });
    let entity = Entity::system(ENTITY);
    let last = state.stream(tenant, &entity).and_then(|stream| stream.last_timestamp());
    let mut subject = Subject { tenant: tenant.clone(), app: AppName::trusted(APP), entity, last };
    let id = Some(draft.take_id(*event));
    let by = By { id, ..By::component(Origin::HealthCheck) };
    draft.event(&mut subject, KnownType::TaskHealthCheck, by, properties.clone());
    for alert in alerts {
        outbox::health(tenant, &alert.text, alert.is_raised, draft);
    }
    Ok(Reply::HealthRecorded)
}

#[cfg(test)]
mod tests {
    use tidemill_model::{EventId, JobCounts, Json, TenantId};

    use super::*;
    use crate::health::{Lookout, is_stalled};
    use crate::kernel::command::{Command, HealthAlert};
    use crate::kernel::fixture::{Fixture, key, spec, tenant};
    use crate::kernel::policy::AlertTargets;
    use crate::outbound::Target;

    fn checked(expected: u64, alerts: &[(&str, bool)]) -> Command {
        let alert =
            |(text, is_raised): &(&str, bool)| HealthAlert { text: Arc::from(*text), is_raised: *is_raised };
        Command::RecordHealth(RecordHealth {
            tenant: tenant(),
            event: EventId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + u128::from(expected)),
            properties: Json::trusted(r#"{"summary":{},"tasks":[]}"#),
            kept: Arc::from(format!("kept {expected}").into_bytes()),
            expected,
            alerts: alerts.iter().map(alert).collect(),
        })
    }

    #[test]
    fn event_record_and_alerts_come_together_and_no_task_changes() {
        let mut fixture = Fixture::new();
        fixture.policy.alerts = AlertTargets { people: true, webhook: true };
        fixture.submit_task("t-1");
        fixture.claim(1);
        let before = fixture.state.task(&key("t-1")).unwrap().entry.clone();
        let told = [("t-1 is stuck", true), ("t-2 is well", false)];
        let (commit, _) = fixture.run(&checked(0, &told)).unwrap();
        let [event] = &commit.events[..] else { panic!("one event") };
        assert_eq!((event.event_type.as_str(), event.entity.kind.as_str()), ("Task Health Check", "SYSTEM"));
        assert_eq!((event.entity.id.as_str(), &*event.context.origin), ("health-check", "health-check"));
        assert!(commit.tasks.is_empty() && commit.enqueue.is_empty() && commit.visibility.is_empty());
        assert_eq!(fixture.state.task(&key("t-1")).unwrap().entry, &before);
        let deliveries: Vec<_> = fixture
            .state
            .records()
            .filter_map(|(_, record)| match &record?.value {
                RecordValue::Delivery(delivery) => Some((**delivery).clone()),
                _ => None,
            })
            .collect();
        assert_eq!(deliveries.len(), 4);
        for (text, is_raised) in told {
            for target in [Target::People, Target::AlertWebhook] {
                let of = |delivery: &&crate::outbound::Delivery| {
                    delivery.target == target && delivery.body.as_str().contains(text)
                };
                let delivery = deliveries.iter().find(of).unwrap();
                assert_eq!(delivery.event.id, event.id);
                if target == Target::AlertWebhook {
                    let said = format!(r#""isRaised":{is_raised}"#);
                    assert!(delivery.body.as_str().contains(&said), "{}", delivery.body.as_str());
                }
            }
        }
        assert!(!event.properties.as_str().contains("stuck"), "alerts are no part of it");
    }

    #[test]
    fn a_job_is_stalled_when_nothing_is_left_that_could_bring_it_further() {
        let mut fixture = Fixture::new();
        let id = fixture.submit_job(vec![spec("a", &[]), spec("b", &["a"])]);
        let job = fixture.state.job(&tenant(), id).unwrap();
        let with = |counts: [u32; 5]| {
            let mut job = job.clone();
            let [waiting, pending, processing, completed, failed] = counts;
            job.head.counts = JobCounts { waiting, pending, processing, completed, failed, parked: 0 };
            job
        };
        for (what, counts, expected) in [
            ("one waits for a start", [1, 1, 0, 0, 0], false),
            ("one runs", [1, 0, 1, 0, 0], false),
            ("nothing moves", [1, 0, 0, 1, 0], true),
            ("nothing ever moved", [2, 0, 0, 0, 0], true),
            ("one has failed", [1, 0, 0, 0, 1], false),
            ("all are done", [0, 0, 0, 2, 0], false),
        ] {
            assert_eq!(is_stalled(&with(counts)), expected, "{what}");
        }
        let mut job = with([2, 0, 0, 0, 0]);
        job.ready.insert(0);
        assert!(!is_stalled(&job), "one is ready: the next sweep starts it");
        job.ready.clear();
        job.head.cancelled = true;
        assert!(!is_stalled(&job), "nobody wants it to go on");
    }

    #[test]
    fn what_is_open_is_found_by_its_tenant() {
        let mut fixture = Fixture::new();
        assert!(fixture.state.lookout(None).is_empty());
        fixture.submit_task("t-1");
        fixture.submit_job(vec![spec("a", &[])]);
        fixture.policy.alerts = AlertTargets { people: true, webhook: false };
        fixture.run(&checked(0, &[("x", true)])).unwrap();
        let all = fixture.state.lookout(None);
        let own = Lookout { deliveries: 1, oldest_delivery: Some(fixture.now), ..Lookout::default() };
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [(tenant(), own.clone())]);
        assert_eq!(fixture.state.lookout(Some(&tenant())).get(&tenant()), Some(&own));
        let other = TenantId::trusted("acm");
        assert!(fixture.state.lookout(Some(&other)).is_empty());
        assert!(fixture.state.live_tasks(&other, None, 9).is_empty());
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = fixture.state.live_tasks(&tenant(), after.as_ref(), 1);
            let Some(last) = page.last() else { break };
            after = Some(last.request.clone());
            found.extend(page);
        }
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|task| !task.begun && task.last_event_at == fixture.now));
    }

    #[test]
    fn who_checked_by_what_is_no_longer_so_is_refused_and_tells_nothing() {
        let mut fixture = Fixture::new();
        fixture.policy.alerts = AlertTargets { people: true, webhook: false };
        fixture.run(&checked(0, &[])).unwrap();
        let conflict = Refusal::RecordConflict { expected: 0, actual: 1 };
        assert_eq!(fixture.run(&checked(0, &[("x", true)])).unwrap_err(), conflict);
        assert!(fixture.state.deliveries().is_empty());
        fixture.run(&checked(1, &[("x", true)])).unwrap();
        assert!(!fixture.state.deliveries().is_empty());
    }
}
