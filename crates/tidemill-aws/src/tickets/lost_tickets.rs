//! Tickets that the queue lost or gave up: new ones are sent while their messages stand.

use tidemill_engine::backend::Fault;
use tidemill_engine::commit::MessageId;
use tidemill_model::Timestamp;

use crate::backend::Aws;
use crate::tickets::held_tickets::HeldTickets;
use crate::tickets::ticket::{self, Standing, Ticket};

/// How many tickets are sent at most when some were lost. Others follow the next time.
const MENDED_MAX: usize = 1_000;

impl Aws {
    /// Sends a new ticket for one that the queue gave up, unless nothing is left to do.
    pub(crate) async fn renew_ticket(&self, ticket: Ticket, message: MessageId) -> Result<(), Fault> {
        let now = self.clock.now();
        let at = match self.fresh(|core| Standing::of(core.state.queue(), message, now)).await? {
            Standing::Over => return Ok(()),
            Standing::Later(at) => at,
            Standing::Now(_) => now,
        };
        self.send_tickets(vec![(ticket, at)]).await
    }

    /// Sends tickets for messages that may be claimed, as many as the queue lacks. Tells how many.
    pub async fn mend_tickets(&self) -> Result<usize, Fault> {
        let Some(queue) = self.outbox.queue_url.clone() else { return Ok(0) };
        let sqs = self.connection.sqs.clone();
        let there = self.call(async move { ticket::count(&sqs, &queue).await }).await?;
        let now = self.clock.now();
        let lacking = self.fresh(|core| {
            let queue = core.state.queue();
            let lacking = queue.len().saturating_sub(there).min(MENDED_MAX);
            let mut ready: Vec<_> = queue.iter().filter(|queued| queued.visible_at <= now).collect();
            ready.sort_unstable_by_key(|queued| (queued.visible_at, queued.message.id));
            let ready = ready.into_iter().take(lacking);
            ready.map(|queued| (Ticket::of(&queued.message), now)).collect::<Vec<_>>()
        });
        let lacking = lacking.await?;
        let count = lacking.len();
        self.send_tickets(lacking).await?;
        Ok(count)
    }

    async fn send_tickets(&self, tickets: Vec<(Ticket, Timestamp)>) -> Result<(), Fault> {
        let Some(queue) = self.outbox.queue_url.clone() else {
            return Err(Fault::Unavailable("no queue for tickets is set".to_owned()));
        };
        let (sqs, now) = (self.connection.sqs.clone(), self.clock.now());
        self.call(async move { ticket::send(&sqs, &queue, tickets, now).await }).await
    }

    /// How many tickets this process holds.
    pub fn tickets_held(&self) -> usize {
        self.tickets.as_ref().map_or(0, HeldTickets::held)
    }
}
