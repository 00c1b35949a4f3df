//! Checks of health: one event for each that was accepted, none for others, and no alarm is repeated before it was
//! over. The comparison of tasks with their events shows that checks change no task.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{Command, RecordHealth};
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{RecordKey, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::{Event, KnownType, TenantId};

use super::{Deliveries, unreadable};
use crate::actors::checker::{mark_of, reported_tasks};
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

#[derive(Debug, Default)]
pub(super) struct Health {
    tenants: BTreeMap<TenantId, Standing>,
    /// The marks of checks that were taken, and how many alerts each made.
    taken: BTreeMap<String, usize>,
    /// The marks of the events.
    written: BTreeSet<String>,
}

/// What is known of a tenant.
#[derive(Debug, Default)]
struct Standing {
    version: u64,
    told: BTreeSet<String>,
}

impl Health {
    pub(super) fn hear(&mut self, command: &Command, answer: &Answer) -> Result<(), Violation> {
        let Command::RecordHealth(checked) = command else { return Ok(()) };
        let version = self.tenants.entry(checked.tenant.clone()).or_default().version;
        let fits = match answer {
            Ok(Reply::HealthRecorded) => checked.expected == version,
            Err(Refusal::RecordConflict { actual, .. }) => *actual == version && checked.expected != version,
            _ => false,
        };
        demand(fits, "a check counts if it knew what was told", || {
            format!("expected {} at {version}: {answer:?}", checked.expected)
        })?;
        if answer.is_ok() { self.take_over(checked) } else { Ok(()) }
    }

    fn take_over(&mut self, checked: &RecordHealth) -> Result<(), Violation> {
        let standing = self.tenants.entry(checked.tenant.clone()).or_default();
        let again: Vec<_> = standing
            .told
            .iter()
            .filter(|task| {
                checked
                    .alerts
                    .iter()
                    .any(|alert| alert.is_raised && alert.text.contains(&format!("{task:?}")))
            })
            .collect();
        demand(again.is_empty(), "what was told is told again only when it was over", || {
            format!("{again:?}")
        })?;
        standing.version += 1;
        standing.told = reported_tasks(&checked.kept);
        self.taken.extend(mark_of(&checked.properties).map(|mark| (mark, checked.alerts.len())));
        Ok(())
    }

    pub(super) fn take(&mut self, event: &Event) -> Result<(), Violation> {
        if event.event_type.as_str() != KnownType::TaskHealthCheck.as_str() {
            return Ok(());
        }
        let mark = mark_of(&event.properties).unwrap_or_default();
        demand(self.written.insert(mark), "a check is written once", || format!("{event:?}"))
    }

    /// Everything about checks is as it must be.
    pub(super) fn compare(
        &self,
        policy: &Policy,
        deliveries: &Deliveries,
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        let taken: BTreeSet<_> = self.taken.keys().collect();
        let written: BTreeSet<_> = self.written.iter().collect();
        demand(taken == written, "each check that counts has its event, and no other", || {
            format!("{:?}", taken.symmetric_difference(&written).collect::<Vec<_>>())
        })?;
        for (tenant, standing) in &self.tenants {
            let found = ledger.record(&RecordKey::health(tenant)).map_err(unreadable)?;
            let (version, told) = match found.map(|record| (record.version, record.value)) {
                Some((version, RecordValue::Bytes(kept))) => (version, reported_tasks(&kept)),
                _ => (0, BTreeSet::new()),
            };
            demand(version == standing.version && told == standing.told, "what was told is kept", || {
                format!("{tenant}: {told:?} at {version}, not {standing:?}")
            })?;
        }
        let heard = deliveries.of_checks();
        for (mark, alerts) in &self.taken {
            let expected = if policy.alerts.people { *alerts } else { 0 };
            let count = heard.get(mark).copied().unwrap_or_default();
            demand(count == expected, "each alarm of a check is told once", || {
                format!("{mark}: {count}, not {expected}")
            })?;
        }
        Ok(())
    }

    /// A group died with the store: what became of its checks shows in what is kept and in the events.
    pub(super) fn resync(&mut self, commands: &[Command], ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let checks = commands.iter().filter_map(|command| match command {
            Command::RecordHealth(checked) => Some(checked),
            _ => None,
        });
        for checked in checks.clone() {
            let mark = mark_of(&checked.properties).unwrap_or_default();
            if self.written.contains(&mark) && !self.taken.contains_key(&mark) {
                self.take_over(checked)?;
            }
        }
        // Only now: one that came too late may stand before one that counts.
        for checked in checks {
            let found = ledger.record(&RecordKey::health(&checked.tenant)).map_err(unreadable)?;
            let stored = found.map_or(0, |record| record.version);
            let known = self.tenants.entry(checked.tenant.clone()).or_default().version;
            demand(stored == known, "a check is there wholly or not at all", || {
                format!("version {stored}, not {known}")
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_engine::clock::Clock as _;
    use tidemill_model::Json;

    use super::*;
    use crate::clock::VirtualClock;
    use crate::memory_ledger::MemoryLedger;
    use crate::rng::Rng;

    /// Check `number`, which knew the alarms of this version.
    fn check(number: u64, expected: u64) -> Command {
        Command::RecordHealth(RecordHealth {
            event: Rng::new(number).event_id(VirtualClock::start().now()),
            properties: Json::of(&BTreeMap::from([("mark", format!("check {number}"))])),
            kept: Arc::from("[]".as_bytes()),
            tenant: TenantId::trusted("tenant-0"),
            expected,
            alerts: Vec::new(),
        })
    }

    /// What an oracle says that saw `heard` answered and the store die over `lost`, whose `stored` part is there.
    fn resync(heard: &[Command], lost: &[Command], stored: &[Command]) -> Result<(), Violation> {
        let clock = VirtualClock::start();
        let mut ledger = MemoryLedger::new(clock.clone(), Policy::default(), 1);
        let mut health = Health::default();
        for (command, answer) in heard.iter().zip(&ledger.execute(heard, clock.now()).unwrap()) {
            health.hear(command, answer)?;
        }
        ledger.execute(stored, clock.now()).unwrap();
        for (_, event) in ledger.events_after(0).unwrap() {
            health.take(&event)?;
        }
        health.resync(lost, &mut ledger)
    }

    #[test]
    fn checks_of_a_lost_group_are_compared_when_all_of_them_are_known() {
        let (first, late, next) = (check(1, 0), check(2, 0), check(3, 1));
        for group in [[late.clone(), next.clone()], [next.clone(), late.clone()]] {
            resync(std::slice::from_ref(&first), &group, &group).unwrap();
            resync(std::slice::from_ref(&first), &group, &[]).unwrap();
        }
        let foreign = check(4, 1);
        let found = resync(&[first], &[next], &[foreign]).unwrap_err();
        assert_eq!(found.to_string(), "a check is there wholly or not at all: version 2, not 1");
    }
}
