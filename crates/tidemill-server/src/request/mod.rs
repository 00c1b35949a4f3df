//! What a request brings: its id, its body, its parameters, cursors, and jobs as people write them.

pub(crate) mod asked;
pub(crate) mod body;
pub(crate) mod body_budget;
pub(crate) mod given_job;
pub(crate) mod job_text;
pub(crate) mod json_body;
pub(crate) mod list_cursor;
pub(crate) mod param;
