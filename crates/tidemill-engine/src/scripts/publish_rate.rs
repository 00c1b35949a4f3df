//! How many events a tenant's scripts may publish in a second.

use std::collections::HashMap;

use tidemill_model::{TenantId, Timestamp};

/// Tenants that are remembered before those that are at rest are forgotten.
const TENANTS_MAX: usize = 10_000;
const SECOND_MICROS: u64 = 1_000_000;

/// One allowance for each tenant: a second's worth at once, and as many in each second. What a run asks for is taken
/// whole if anything is left, so that a run with more calls than the rate has can pass, and the next ones wait for it.
#[derive(Debug)]
pub(super) struct PublishRate {
    per_second: u64,
    /// When what each tenant published would all be paid for, in microseconds.
    paid_at: HashMap<TenantId, u64, foldhash::fast::RandomState>,
}

impl PublishRate {
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second: u64::from(per_second.max(1)), paid_at: HashMap::default() }
    }

    pub(super) fn per_second(&self) -> u64 {
        self.per_second
    }

    /// Takes this many events from a tenant's allowance; nothing if it is used up.
    pub(super) fn take(&mut self, tenant: &TenantId, events: usize, now: Timestamp) -> bool {
        let now = now.millis().saturating_mul(1_000);
        if self.paid_at.len() >= TENANTS_MAX && !self.paid_at.contains_key(tenant) {
            self.paid_at.retain(|_, paid_at| *paid_at > now);
        }
        let paid_at = self.paid_at.entry(tenant.clone()).or_insert(now);
        // A clock that went back must not shut a tenant out for longer than the answer said.
        let ahead = paid_at.saturating_sub(now);
        if ahead >= SECOND_MICROS {
            return false;
        }
        *paid_at = now + ahead + events as u64 * SECOND_MICROS / self.per_second;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_for_each_tenant() {
        let mut rate = PublishRate::new(100);
        let (acme, other) = (TenantId::trusted("acme"), TenantId::trusted("other"));
        let at = |millis: u64| Timestamp::clamped(1_800_000_000_000 + millis);
        let taken = |rate: &mut PublishRate, tenant, millis| {
            (0..1_000).filter(|_| rate.take(tenant, 1, at(millis))).count()
        };
        assert_eq!(taken(&mut rate, &acme, 0), 100);
        assert_eq!(taken(&mut rate, &other, 0), 100, "each has its own");
        assert_eq!(taken(&mut rate, &acme, 500), 50);
        assert_eq!(taken(&mut rate, &acme, 10_000), 100, "what was not used is not saved up");
        assert!(rate.take(&other, 1_000, at(20_000)), "a run may ask for more than a second has");
        assert!(!rate.take(&other, 1, at(28_000)), "and the next ones wait for it");
        assert!(rate.take(&other, 1, at(29_001)));
    }
}
