//! What the functions of a stage do, one file each. They are called with what AWS hands them, any number of times and in
//! any order; each may die at any moment, and what it did then is done again.

mod bus_event;
mod dead_tickets;
mod dispatch;
mod queue_event;
mod reconcile;
mod save_event;
mod target_dead_letter;
mod workflow_event;

pub use bus_event::BusEvent;
pub use dead_tickets::dead_tickets;
pub use dispatch::{Dispatched, dispatch};
pub use queue_event::{BatchAnswer, QueueEvent, QueueRecord};
pub use reconcile::{Reconciled, reconcile};
pub use save_event::save_event;
pub use target_dead_letter::target_dead_letter;
pub use workflow_event::workflow_event;
