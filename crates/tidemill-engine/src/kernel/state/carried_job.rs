//! A job that is carried: its rows as they come, until it is whole.
//!
//! A large job is carried in several groups. If a crash came between them, what is there must not count: the entries
//! that made the job still stand, and it is carried anew before they go. So its rows take effect with the last of them.

use std::sync::Arc;

use tidemill_model::{JobId, TaskSpec};

use crate::kernel::commit::TaskKey;
use crate::kernel::state::job::{JobHead, KeptTask};

#[derive(Debug, Clone)]
pub(super) struct CarriedJob {
    pub(super) head: JobHead,
    pub(super) lists: Vec<(u32, Vec<Arc<TaskSpec>>)>,
    pub(super) entries: Vec<(TaskKey, KeptTask)>,
    /// How many tasks the lists name.
    listed: usize,
    /// How many of the entries were dispatched.
    dispatched: u32,
}

impl CarriedJob {
    pub(super) fn new(head: JobHead) -> Self {
        Self { head, lists: Vec::new(), entries: Vec::new(), listed: 0, dispatched: 0 }
    }

    pub(super) fn is_of(&self, job: JobId) -> bool {
        self.head.job == job
    }

    pub(super) fn add_tasks(&mut self, first: u32, tasks: Vec<Arc<TaskSpec>>) {
        self.listed = self.listed.max(first as usize + tasks.len());
        self.lists.push((first, tasks));
    }

    pub(super) fn add_entry(&mut self, task: TaskKey, entry: KeptTask) {
        self.dispatched += u32::from(entry.head.is_some());
        self.entries.push((task, entry));
    }

    /// The head counts all tasks and those that were never dispatched, which have no row of their own.
    pub(super) fn is_whole(&self) -> bool {
        let counts = &self.head.counts;
        self.listed >= counts.total() as usize && self.dispatched + counts.waiting >= counts.total()
    }
}
