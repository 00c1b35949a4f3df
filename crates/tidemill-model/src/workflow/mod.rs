//! Workflow events: what other engines and our own tasks say of executions, their errors and their end.
//!
//! Here is what holds for them in every store: which envelopes are accepted, what a code is, which codes are known,
//! and when two failures are the same error. Counting, parking and resuming are the engine's business.

pub mod catalogue;
pub mod contract;
pub mod error_code;
pub mod family;
pub mod fingerprint;
mod normalise;
pub mod phase_step;
mod raw_object;
pub mod token;

pub use catalogue::{Catalogue, CatalogueEntry, Known};
pub use contract::{
    COUNTY_BYTES_MAX, DEDUPE_BYTES_MAX, ERRORS_MAX, ErrorScope, NO_COUNTY, OTHER_PLACES, Standing,
    StatusEvent, WorkflowBody, WorkflowError, WorkflowMessage, WorkflowStatus,
};
pub use error_code::{ErrorCode, ErrorType, WorkflowRunId, validation_code, validation_hash};
pub use family::{Families, Family, MessageKind};
pub use fingerprint::{ErrorFingerprint, TASK_TYPE, agent_code};
pub use normalise::normalise;
pub use phase_step::{PHASES, PhaseStep, STEPS};
pub use token::{IN_AN_ID, TOKEN_BYTES_MAX, TaskToken, TokenCleaner};
