//! Timelines: every access path gives its events whole, in order, page by page, and nothing of another tenant.

use tidemill_engine::commit::TaskKey;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{Event, RequestId, TenantId};

use super::{Oracle, unreadable};
use crate::ledger::Ledger;
use crate::rng::Rng;
use crate::violation::{Violation, demand};

impl Oracle {
    /// Asks one question that the seed makes up and compares the answer with all known events.
    pub fn check_timeline(
        &self,
        ledger: &mut dyn Ledger,
        tenants: &[TenantId],
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        let Some(sample) = rng.pick(&self.log) else { return Ok(()) };
        let tenant = if rng.chance(200) { rng.pick(tenants).cloned() } else { None };
        let tenant = tenant.unwrap_or_else(|| sample.tenant.clone());
        let path = AccessPath::narrowest(
            rng.chance(400).then(|| sample.event_type.clone()),
            rng.chance(400).then(|| sample.app.clone()),
            rng.chance(500).then(|| sample.entity.clone()),
        );
        let mut query = EventQuery::all(tenant, path);
        query.limit = usize::try_from(rng.weighted(&[(1, 1), (3, 7), (3, 100), (2, 1_000)])).unwrap_or(1);
        if rng.chance(500) {
            query.order = Order::Descending;
        }
        if rng.chance(300) {
            query.from = Some(sample.timestamp.minus(rng.below(60_000)));
        }
        if rng.chance(300) {
            query.to = Some(sample.timestamp.plus(rng.below(60_000)));
        }
        self.check_query(ledger, query)?;
        self.check_latest(ledger, sample)
    }

    /// The latest event of an entity is the last one by time and id.
    fn check_latest(&self, ledger: &mut dyn Ledger, sample: &Event) -> Result<(), Violation> {
        let own =
            self.log.iter().filter(|event| event.tenant == sample.tenant && event.entity == sample.entity);
        let Some(last) = own.max_by_key(|event| event.position()) else { return Ok(()) };
        let found = ledger.latest(&sample.tenant, &sample.entity).map_err(unreadable)?;
        demand(
            found.as_ref() == Some(last) || self.may_be_gone(last),
            "the latest event is the last one",
            || format!("{found:?}, not {last:?}"),
        )
    }

    fn check_query(&self, ledger: &mut dyn Ledger, query: EventQuery) -> Result<(), Violation> {
        let mut expected: Vec<&Event> =
            self.log.iter().filter(|event| query.matches(event) && !self.may_be_gone(event)).collect();
        expected.sort_by_key(|event| event.position());
        if query.order == Order::Descending {
            expected.reverse();
        }
        let mut expected = expected.into_iter();
        // Three pages show the rule; the first of many would cost as much as a whole run.
        let mut asked = query;
        for _ in 0..3 {
            let page = ledger.events(&asked).map_err(unreadable)?;
            demand(page.events.len() <= asked.limit, "a page is no longer than asked", || {
                format!("{asked:?}")
            })?;
            for found in page.events.iter().filter(|event| !self.may_be_gone(event)) {
                let next = expected.next();
                demand(found.tenant == asked.tenant, "a tenant sees only its own", || format!("{found:?}"))?;
                demand(next == Some(found), "queries give every event once and in order", || {
                    format!("{asked:?} gave {found:?}, not {next:?}")
                })?;
            }
            let Some(next) = page.next else {
                let left = expected.next();
                return demand(left.is_none(), "queries give every event once and in order", || {
                    format!("{asked:?} left out {left:?}")
                });
            };
            asked.after = Some(next);
        }
        Ok(())
    }

    /// A task or job is unknown to everyone but its tenant.
    pub fn check_walls(
        &self,
        ledger: &mut dyn Ledger,
        tenants: &[TenantId],
        rng: &mut Rng,
    ) -> Result<(), Violation> {
        let Some(sample) = rng.pick(&self.log) else { return Ok(()) };
        for tenant in tenants.iter().filter(|tenant| **tenant != sample.tenant) {
            let id = sample.entity.id.as_str();
            if let Ok(job) = id.parse() {
                let seen = ledger.job(tenant, job).map_err(unreadable)?;
                demand(seen.is_none(), "a tenant sees only its own", || format!("{tenant} sees {job}"))?;
            }
            let key = TaskKey { tenant: tenant.clone(), request: RequestId::trusted(id) };
            if !self.history.tasks.contains_key(&key) {
                let seen = ledger.task(&key).map_err(unreadable)?;
                demand(seen.is_none(), "a tenant sees only its own", || format!("{key:?}"))?;
            }
        }
        Ok(())
    }
}
