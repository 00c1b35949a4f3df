//! Operators: they look after dead letters and reach into the queue by hand.

use std::sync::Arc;

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{ChangeVisibility, Command, Delete, Discard, Receive, Replay};
use tidemill_engine::commit::Receipt;
use tidemill_engine::record::DeadLetter;
use tidemill_engine::reply::Reply;
use tidemill_model::TenantId;

use crate::rng::Rng;

/// How many receipts an operator keeps in hand.
const RECEIPTS_MAX: usize = 16;

#[derive(Debug)]
pub(crate) struct Operator {
    rng: Rng,
    tenants: Vec<TenantId>,
    receipts: Vec<(TenantId, Receipt)>,
}

impl Operator {
    pub(crate) fn new(rng: Rng, tenants: Vec<TenantId>) -> Self {
        Self { rng, tenants, receipts: Vec::new() }
    }

    /// Replays or discards one of the letters, open or not, now and then as another tenant.
    pub(crate) fn answer_letter(&mut self, letters: &[(TenantId, DeadLetter)]) -> Option<Command> {
        let (tenant, letter) = self.rng.pick(letters)?;
        let tenant = if self.rng.chance(50) { self.rng.pick(&self.tenants)? } else { tenant }.clone();
        let message = letter.message;
        Some(if self.rng.chance(750) {
            Command::Replay(Replay { tenant, message })
        } else {
            Command::Discard(Discard { tenant, message })
        })
    }

    pub(crate) fn receive(&mut self) -> Command {
        let tenants = self.rng.chance(500).then(|| {
            let tenant = self.rng.pick(&self.tenants).expect("there are tenants");
            Arc::from([tenant.clone()])
        });
        let visibility_millis = self.rng.chance(500).then(|| self.rng.below(60_000));
        Command::Receive(Receive { tenants, max: 1 + self.rng.index(4), visibility_millis })
    }

    /// Deletes a message or hides it, by a receipt that may be stale.
    pub(crate) fn use_receipt(&mut self) -> Option<Command> {
        let (tenant, receipt) = self.rng.pick(&self.receipts)?.clone();
        let tenant = self.rng.chance(700).then_some(tenant);
        Some(if self.rng.chance(600) {
            Command::Delete(Delete { tenant, receipt })
        } else {
            let visible_in_millis = self.rng.below(60_000);
            Command::ChangeVisibility(ChangeVisibility { tenant, receipt, visible_in_millis })
        })
    }

    pub(crate) fn hear(&mut self, answer: &Answer) {
        if let Ok(Reply::Received { messages, .. }) = answer {
            let received =
                messages.iter().map(|(message, receipt, _)| (message.task.tenant.clone(), *receipt));
            self.receipts.extend(received);
            let excess = self.receipts.len().saturating_sub(RECEIPTS_MAX);
            self.receipts.drain(..excess);
        }
    }
}
