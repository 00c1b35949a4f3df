//! What people see: tables, times, and a job as it runs.

pub(crate) mod humanize;
mod job_state;
pub(crate) mod line;
mod live;
mod plain;
mod table;
pub(crate) mod terminal;
pub(crate) mod visible;

pub(crate) use job_state::{Change, JobState, SeenEvent, TaskPhase};
pub(crate) use live::LiveTree;
pub(crate) use plain::PlainLines;
pub(crate) use table::{Last, Table};
