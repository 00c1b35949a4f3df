//! The courier: mostly delivers what is due, now and then too early, twice, or over the wall.

use std::sync::Arc;

use tidemill_engine::command::{Command, DeliveryEnd, DiscardDelivery, EndDelivery, ReplayDelivery};
use tidemill_engine::outbound::DeliveryKey;
use tidemill_model::{TenantId, Timestamp};

use crate::oracle::Deliveries;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Courier {
    rng: Rng,
    tenants: Vec<TenantId>,
    /// How many tries in a thousand fail.
    failures: u32,
}

impl Courier {
    pub(crate) fn new(mut rng: Rng, tenants: Vec<TenantId>) -> Self {
        let failures = rng.weighted(&[(1, 200), (1, 600), (1, 950)]);
        Self { rng, tenants, failures }
    }

    /// Ends a try.
    pub(crate) fn end_delivery(&mut self, known: &Deliveries, now: Timestamp) -> Option<Command> {
        let waiting = known.waiting();
        let due: Vec<_> = waiting.iter().filter(|(_, _, next)| *next <= now).collect();
        let (key, mut attempt) = match self.rng.below(20) {
            0 => (self.rng.pick(&known.all())?.clone(), 1),
            1 | 2 => self.rng.pick(&waiting).map(|(key, attempt, _)| (key.clone(), *attempt))?,
            _ => self.rng.pick(&due).map(|(key, attempt, _)| (key.clone(), *attempt))?,
        };
        if self.rng.chance(50) {
            attempt += 1;
        }
        let told = known.failed_jobs_in(&key);
        let DeliveryKey { mut tenant, id: delivery } = key;
        if self.rng.chance(30) {
            tenant = self.rng.pick(&self.tenants)?.clone();
        }
        let end = if self.rng.chance(self.failures) {
            DeliveryEnd::Failed { error: Arc::from("answered 500") }
        } else {
            DeliveryEnd::Arrived
        };
        Some(Command::EndDelivery(EndDelivery { tenant, delivery, attempt, told, end }))
    }

    /// Replays or discards a dead letter, open or not, now and then as another tenant.
    pub(crate) fn answer_letter(&mut self, known: &Deliveries) -> Option<Command> {
        let DeliveryKey { mut tenant, id: letter } = self.rng.pick(&known.letters())?.clone();
        if self.rng.chance(50) {
            tenant = self.rng.pick(&self.tenants)?.clone();
        }
        Some(if self.rng.chance(700) {
            Command::ReplayDelivery(ReplayDelivery { tenant, letter })
        } else {
            Command::DiscardDelivery(DiscardDelivery { tenant, letter })
        })
    }
}
