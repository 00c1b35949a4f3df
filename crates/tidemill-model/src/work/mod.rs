//! Work: graphs of tasks, what a task is to do, where it stands, how it fails and is tried again.

pub mod artifact;
pub(crate) mod backoff;
pub mod callback_url;
pub mod dag;
pub mod dag_progress;
pub mod dag_violation;
pub mod error_class;
pub mod error_table;
pub mod head;
pub mod last_error;
pub mod log_record;
pub mod retry;
pub mod runner_spec;
pub mod task_input;
pub mod task_secrets;
pub mod task_spec;
pub mod trace_context;
