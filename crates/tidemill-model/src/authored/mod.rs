//! What people write: job files, definitions, agents, scripts, and how their fields are read, checked and described.

pub mod agent;
pub mod bounded_value;
pub mod definition;
pub mod document;
pub(crate) mod field_kinds;
pub mod field_problem;
pub(crate) mod fields;
pub mod job_file;
pub mod nearest;
pub mod script;
