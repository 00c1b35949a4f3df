//! dlq-processor: tickets that were received too often.
//!
//! That says nothing of the task: the ticket may have come to workers that were busy, or died. The state says how the task
//! stands. If it is over the ticket is dropped; else it gets a new one. Tasks that kill their workers are given up by the
//! claim that finds them taken over too often, which writes `Task Failed`.

use tidemill_engine::backend::Fault;
use tidemill_engine::engine::Engine;
use tidemill_engine::warn_seldom;

use super::queue_event::{BatchAnswer, QueueEvent};
use crate::backend::Aws;
use crate::tickets::ticket::Ticket;

/// What is no ticket stays in the queue for people to look at.
pub async fn dead_tickets(engine: &Engine<Aws>, event: &QueueEvent) -> BatchAnswer {
    let mut answer = BatchAnswer::default();
    for record in &event.records {
        let Some((ticket, message)) = Ticket::read(&record.body) else {
            answer.again(record);
            continue;
        };
        let renewed: Result<(), Fault> = engine.backend().renew_ticket(ticket, message).await;
        if let Err(fault) = renewed {
            warn_seldom!(fault, "a dead ticket could not be renewed; it comes again");
            answer.again(record);
        }
    }
    answer
}
