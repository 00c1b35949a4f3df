//! Error triage: what is kept of errors, of the executions that had them, and of those that wait for somebody.
//!
//! Here are the records, what they say, the decisions that change them, always in the commit of the event that
//! reports the change, the keeper of their times, and the methods for callers.

mod bulk;
pub(crate) mod bulk_steps;
mod cell;
pub(crate) mod changes;
mod error;
mod execution;
mod group;
pub(crate) mod ingest;
mod item;
mod keeper;
pub(crate) mod marks;
pub(crate) mod notes;
mod parked;
#[cfg(test)]
pub(crate) mod property;
pub(crate) mod rows;
pub(crate) mod tasks;
mod token;
pub(crate) mod view;

pub use bulk::{Bulk, BulkAction, BulkFilter, BulkId, BulkState};
pub use cell::{CELLS_MAX, Cell, ErrorCounts, GroupCell};
pub use error::{OCCURRENCES_MAX, Occurrence, TriageError};
pub use execution::{CODES_MAX, SEEN_MAX, Seen, TokenState, TriageExecution, Unparked};
pub use group::{ErrorGroup, ErrorState, GroupKind, HOURS_MAX, Ignored, Mark, SAMPLES_MAX, Sample, Settled};
pub use item::{ErrorMark, MarkItem, NewToken, StatusItem, Until, WorkflowItem};
pub use keeper::{TriageKeeper, TriageTimer};
pub use parked::{Parked, ParkedKey};
pub use token::{StoredToken, TokenFault, TokenSealer, TokenTaken};

/// How many distinct codes of errors a tenant may have.
pub const ERROR_GROUPS_MAX: usize = 100_000;
/// The group of task errors that came when there was no room for another code.
pub const OTHER_CODE: &str = "99other";
/// The kind of entity that workflow events are about.
pub const WORKFLOW_ENTITY: &str = "WORKFLOW";
/// The kind of entity that marks of a code are about.
pub const ERROR_ENTITY: &str = "ERROR_CODE";
