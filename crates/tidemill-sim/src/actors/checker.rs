//! The checker of health: looks at what was reported before, records what it sees, and raises alarms. Now and then
//! one comes too late, or a check is handed in again because its answer was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::command::{Command, HealthAlert, RecordHealth};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::record::{Record, RecordKey, RecordValue};
use tidemill_model::{Json, TenantId, Timestamp};

use crate::ledger::Ledger;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Checker {
    rng: Rng,
    tenants: Vec<TenantId>,
    /// How many checks were made up; each has its number.
    count: u64,
    /// One that may be handed in again.
    last: Option<RecordHealth>,
}

/// The tasks that what is kept of a check says were told.
pub(crate) fn reported_tasks(kept: &[u8]) -> BTreeSet<String> {
    let text = std::str::from_utf8(kept).unwrap_or_default();
    Json::trusted(text).read().unwrap_or_default()
}

/// The mark by which a check is known in its event and in its alerts.
pub(crate) fn mark_of(properties: &Json) -> Option<String> {
    let (_, rest) = properties.as_str().split_once("check ")?;
    rest.split('"').next().map(|number| format!("check {number}"))
}

impl Checker {
    pub(crate) fn new(rng: Rng, tenants: Vec<TenantId>) -> Self {
        Self { rng, tenants, count: 0, last: None }
    }

    pub(crate) fn check(
        &mut self,
        active: &[&TaskKey],
        ledger: &mut dyn Ledger,
        now: Timestamp,
    ) -> Result<Option<Command>, Fault> {
        if self.rng.chance(200) {
            return Ok(self.last.clone().map(Command::RecordHealth));
        }
        let Some(tenant) = self.rng.pick(&self.tenants).cloned() else { return Ok(None) };
        let before = ledger.record(&RecordKey::health(&tenant))?;
        let (told, expected) = match &before {
            Some(Record { version, value: RecordValue::Bytes(kept), .. }) => (reported_tasks(kept), *version),
            Some(other) => return Err(Fault::Damaged(format!("what is kept of a check is {other:?}"))),
            None => (BTreeSet::new(), 0),
        };
        let own = active.iter().filter(|key| key.tenant == tenant);
        let ill: BTreeSet<String> =
            own.filter(|_| self.rng.chance(300)).map(|key| key.request.to_string()).collect();
        self.count += 1;
        let mark = format!("check {}", self.count);
        let mut alerts = Vec::new();
        let mut tell = |tasks: Vec<&String>, is_raised| {
            if !tasks.is_empty() {
                let text = format!("{mark}: {tasks:?}");
                alerts.push(HealthAlert { text: Arc::from(text), is_raised });
            }
        };
        tell(ill.difference(&told).collect(), true);
        tell(told.difference(&ill).collect(), false);
        let checked = RecordHealth {
            event: self.rng.event_id(now),
            properties: Json::of(&BTreeMap::from([("mark", &mark)])),
            kept: Arc::from(Json::of(&ill).as_str().as_bytes()),
            tenant,
            expected,
            alerts,
        };
        self.last = Some(checked.clone());
        Ok(Some(Command::RecordHealth(checked)))
    }
}
