//! Workflow events: what other engines and our own tasks say of executions, their errors and their end.
//!
//! Here is what is true of them whoever stores them: which envelopes are accepted, what a code is, which codes are
//! known, and when two failures are the same error. Counting, parking and resuming are the engine's business.

pub mod catalogue;
pub mod contract;
pub mod error_code;
pub mod family;
pub mod fingerprint;
mod normalise;
pub mod place;
mod raw_object;
pub mod token;

pub use catalogue::{Catalogue, CatalogueEntry, Known};
pub use contract::{
    COUNTY_BYTES_MAX, DEDUPE_BYTES_MAX, ERRORS_MAX, ErrorScope, NO_COUNTY, OTHER_PLACES, Standing,
    StatusEvent, WorkflowBody, WorkflowError, WorkflowMessage, WorkflowStatus,
};
pub use error_code::{ErrorCode, ErrorType, ExecutionId, validation_code, validation_hash};
pub use family::{Families, Family, MessageKind};
pub use fingerprint::{ErrorFingerprint, TASK_TYPE};
pub use normalise::normalise;
pub use place::{PHASES, Place, STEPS};
pub use token::{IN_AN_ID, TOKEN_BYTES_MAX, TaskToken, TokenCleaner};
