//! How work comes to be: jobs, tasks on their own, further tasks, other work for tasks that did not complete.

pub(crate) mod add_tasks;
pub(crate) mod change_tasks;
pub(crate) mod changing;
pub(crate) mod job_file;
pub(crate) mod submit_job;
pub(crate) mod submit_task;
pub(crate) mod tenant_limit;
