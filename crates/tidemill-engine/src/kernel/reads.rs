//! Reads that join what is in memory with what is only stored, written once for all backends.
//!
//! Memory comes first: what is there hides what is stored of the same thing. Stored rows are read without any lock.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use tidemill_model::{JobId, JobStatus, TenantId};

use crate::kernel::backend::{Backend, Fault, JobSnapshot, TaskSnapshot};
use crate::kernel::commit::TaskKey;
use crate::kernel::job_list::JobList;
use crate::kernel::record::{Record, RecordKey, RecordKind};
use crate::kernel::state::row::{Row, RowKey, RowRange};
use crate::kernel::stored_job;

/// What every backend can be asked. Durable facts only, and nothing of another tenant.
pub trait Reads: Backend + Sized {
    /// A task as it stands.
    fn task(&self, key: TaskKey) -> impl Future<Output = Result<Option<TaskSnapshot>, Fault>> + Send {
        async move {
            match self.find(|state| TaskSnapshot::of(state, &key)).await? {
                None => stored_job::task(self, &key).await,
                found => Ok(found),
            }
        }
    }

    /// A job as it stands.
    fn job(
        &self,
        tenant: TenantId,
        job: JobId,
    ) -> impl Future<Output = Result<Option<JobSnapshot>, Fault>> + Send {
        async move {
            let found = self.find(|state| state.job(&tenant, job).map(|job| job.head.clone())).await?;
            let head = match found {
                None => stored_job::head(self, &tenant, job).await?,
                found => found,
            };
            Ok(head.map(JobSnapshot::from))
        }
    }

    /// A job's tasks in the order they were handed in, from the index `from` on, at most `limit`.
    fn job_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<TaskSnapshot>, Fault>> + Send {
        async move {
            let found = self.find(|state| {
                state.job(&tenant, job).map(|_| TaskSnapshot::of_job(state, &tenant, job, from, limit))
            });
            match found.await? {
                Some(tasks) => Ok(tasks),
                None => stored_job::tasks(self, &tenant, job, from, limit).await,
            }
        }
    }

    /// A tenant's jobs, newest first, those before `before` if it is given, at most `limit`.
    fn jobs(
        &self,
        tenant: TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<JobSnapshot>, Fault>> + Send {
        async move {
            let list = self.look(|state| JobList::begin(state, &tenant, status, before, limit)).await?;
            let scanned = self.scan(RowRange::Jobs { tenant, before }, list, |list, _, row| {
                if let Row::Job(head) = row {
                    list.push_stored(head);
                }
                !list.is_full()
            });
            Ok(scanned.await?.finish())
        }
    }

    /// Records of one kind and tenant in the order of their ids, after `after`, at most `limit`.
    fn records(
        &self,
        kind: RecordKind,
        tenant: Option<TenantId>,
        after: Option<Arc<str>>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(RecordKey, Record)>, Fault>> + Send {
        async move {
            let range = RowRange::Records { kind, tenant: tenant.clone(), after: after.clone() };
            let fits = |key: &RecordKey| {
                key.kind == kind && key.tenant == tenant && after.as_ref().is_none_or(|after| key.id > *after)
            };
            records_that(self, fits, range, limit).await
        }
    }

    /// Records of one kind, of all tenants, in the order of tenants and ids, after `after`, at most `limit`. For the
    /// engine's own work, never for a tenant's question.
    fn all_records(
        &self,
        kind: RecordKind,
        after: Option<RecordKey>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<(RecordKey, Record)>, Fault>> + Send {
        async move {
            let range = RowRange::AllRecords { kind, after: after.clone() };
            let fits = |key: &RecordKey| key.kind == kind && after.as_ref().is_none_or(|after| key > after);
            records_that(self, fits, range, limit).await
        }
    }
}

impl<B: Backend> Reads for B {}

/// Records in order, at most `limit`: those in memory that fit as they are there, the others of the range as they were
/// stored.
async fn records_that<B: Backend>(
    backend: &B,
    fits: impl Fn(&RecordKey) -> bool + Send,
    range: RowRange,
    limit: usize,
) -> Result<Vec<(RecordKey, Record)>, Fault> {
    let changed = backend.look(move |state| {
        let own = state.records().filter(|(key, _)| fits(key));
        own.map(|(key, record)| (key.clone(), record.cloned())).collect::<BTreeMap<_, _>>()
    });
    let seed = (changed.await?, BTreeMap::new());
    let scanned = backend.scan(range, seed, move |(changed, found), key, row| {
        if let (RowKey::Record(key), Row::Record(record)) = (key, row)
            && !changed.contains_key(&key)
        {
            found.insert(key, record);
        }
        found.len() < limit
    });
    let (changed, mut found) = scanned.await?;
    found.extend(changed.into_iter().filter_map(|(key, record)| Some((key, record?))));
    Ok(found.into_iter().take(limit).collect())
}
