//! A list of a tenant's jobs, the newest first: those in memory, and between them those that are only stored.
//!
//! Jobs in memory hide what is stored of them; they are few beside the finished ones. The list begins under the
//! lock of a backend, and stored jobs are read without it.

use std::collections::BTreeSet;

use tidemill_model::{JobId, JobStatus, TenantId};

use crate::kernel::backend::JobSnapshot;
use crate::kernel::state::State;
use crate::kernel::state::job::JobHead;

#[derive(Debug)]
pub(super) struct JobList {
    status: Option<JobStatus>,
    before: Option<JobId>,
    limit: usize,
    /// All jobs of the tenant that are in memory.
    live: BTreeSet<JobId>,
    /// Those of them that belong into the list and are not in it yet, the newest last.
    rest: Vec<JobHead>,
    found: Vec<JobSnapshot>,
}

impl JobList {
    /// Begins with the jobs in memory: at most `limit` older than `before`, with this status if there is one.
    pub(super) fn begin(
        state: &State,
        tenant: &TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> Self {
        let mut list =
            Self { status, before, limit, live: BTreeSet::new(), rest: Vec::new(), found: Vec::new() };
        for head in state.jobs().map(|job| &job.head).filter(|head| head.tenant == *tenant) {
            list.live.insert(head.job);
            if list.wants(head) {
                list.rest.push(head.clone());
            }
        }
        list.rest.sort_unstable_by_key(|head| head.job);
        list
    }

    fn wants(&self, head: &JobHead) -> bool {
        self.before.is_none_or(|before| head.job < before)
            && self.status.is_none_or(|status| head.status() == status)
    }

    /// Takes in the next stored job. They come the newest first.
    pub(super) fn push_stored(&mut self, head: JobHead) {
        while let Some(newer) = self.rest.pop_if(|newer| newer.job > head.job) {
            self.found.push(newer.into());
        }
        if !self.live.contains(&head.job) && self.wants(&head) {
            self.found.push(head.into());
        }
    }

    /// Whether no stored job is wanted any more.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= self.limit
    }

    /// The list, when there are no more stored jobs or none is wanted.
    pub(super) fn finish(mut self) -> Vec<JobSnapshot> {
        self.found.extend(self.rest.into_iter().rev().map(JobSnapshot::from));
        self.found.truncate(self.limit);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::kernel::command::Command;
    use crate::kernel::fixture::{Fixture, spec, submit_job, tenant};

    #[test]
    fn jobs_in_memory_hide_what_is_stored_of_them_and_all_come_newest_first() {
        let mut fixture = Fixture::new();
        for id in 1..=3 {
            let submit = submit_job(JobId::from_u128(id), vec![spec("a", &[])]);
            fixture.run(&Command::SubmitJob(submit)).unwrap();
        }
        let mut heads: Vec<JobHead> = fixture.state.jobs().map(|job| job.head.clone()).collect();
        heads.sort_by_key(|head| std::cmp::Reverse(head.job));
        let ids: Vec<JobId> = heads.iter().map(|head| head.job).collect();
        for in_memory in 0..8_u32 {
            let is_live = |at: usize| in_memory >> at & 1 == 1;
            let mut state = State::default();
            for (_, head) in heads.iter().enumerate().filter(|(at, _)| is_live(*at)) {
                state.load_job(head.clone(), [(0, vec![Arc::new(spec("a", &[]))])], Vec::new());
            }
            let list = |status, before, limit| {
                let mut list = JobList::begin(&state, &tenant(), status, before, limit);
                // What is stored of a job in memory is of an earlier moment.
                for (at, head) in
                    heads.iter().enumerate().filter(|(_, head)| before.is_none_or(|id| head.job < id))
                {
                    if !list.is_full() {
                        list.push_stored(JobHead { cancelled: is_live(at), ..head.clone() });
                    }
                }
                list.finish().into_iter().map(|job| job.head.job).collect::<Vec<_>>()
            };
            assert_eq!(list(None, None, 9), ids, "{in_memory}");
            assert_eq!(list(None, None, 2), ids[..2], "{in_memory}");
            assert_eq!(list(None, Some(ids[0]), 9), ids[1..], "{in_memory}");
            assert_eq!(list(Some(JobStatus::Running), None, 9), ids, "{in_memory}");
            assert_eq!(list(Some(JobStatus::Cancelled), None, 9), [] as [JobId; 0], "{in_memory}");
        }
    }
}
