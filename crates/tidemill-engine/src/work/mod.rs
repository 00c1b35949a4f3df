//! Work: jobs and tasks, from their submission to their outcome.

pub(crate) mod cancel;
pub(crate) mod cancel_task;
pub(crate) mod detail;
pub(crate) mod job_filter;
pub(crate) mod ran;
pub(crate) mod read;
pub(crate) mod resume;
pub(crate) mod rows;
pub(crate) mod running;
pub(crate) mod statuses;
pub(crate) mod submitting;
pub(crate) mod task_files;
