//! Folds: what a set of events says about a task, a job, or all tasks.
//!
//! A fold is a function of the set. In which order the events come, and how often each one comes, makes no difference:
//! they are put in order by (timestamp, id) first. Heads and projections are right when they equal these folds.

mod job;
mod sets;
mod task;

pub use job::{FoldedJob, fold_job};
pub use sets::StateSets;
pub use task::{FoldedTask, fold_task};

use crate::events::event::Event;
use crate::events::known_type::KnownType;
use crate::values::id::EventId;
use crate::work::dag_violation::DagViolations;

/// Why events are no history that the engine could have written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHistory {
    #[error("the properties of event {id} ({}) cannot be read: {problem}", event_type.as_str())]
    Properties { id: EventId, event_type: KnownType, problem: String },
    #[error("there is no Job Created event")]
    NotCreated,
    #[error("event {id} creates the job a second time")]
    CreatedTwice { id: EventId },
    #[error("the tasks of event {id} were moved to the blob store and not put back")]
    NotRehydrated { id: EventId },
    #[error("event {id} counts {found} tasks where the job has {expected}")]
    Totals { id: EventId, found: u32, expected: u32 },
    #[error("the tasks of event {id} do not fit the job")]
    Tasks { id: EventId, source: DagViolations },
}

/// The events in order, each once.
fn in_order<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<&'a Event> {
    let mut events: Vec<&Event> = events.into_iter().collect();
    events.sort_by_key(|event| event.position());
    events.dedup_by_key(|event| event.position());
    events
}

/// The properties of an event as typed data.
fn read<'a, T: serde::Deserialize<'a>>(event: &'a Event, event_type: KnownType) -> Result<T, BadHistory> {
    event.properties.read().map_err(|error| BadHistory::Properties {
        id: event.id,
        event_type,
        problem: error.to_string(),
    })
}
