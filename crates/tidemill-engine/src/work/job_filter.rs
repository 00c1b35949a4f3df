//! Jobs by what they are: listed, resumed and cancelled many at a time.

use tidemill_model::{JobId, JobStatus, TenantId, Timestamp};

use crate::engine::limits::{LIST_MAX, MANY_JOBS_MAX};
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, JobSnapshot};
use crate::kernel::reads::Reads as _;
use crate::kernel::reply::Refusal;
use crate::kernel::state::job::JobHead;

/// Which jobs. What is left out matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub status: Option<JobStatus>,
    /// The whole name.
    pub name: Option<String>,
    /// Created at this moment or later.
    pub created_from: Option<Timestamp>,
    /// Created before this moment.
    pub created_before: Option<Timestamp>,
}

/// What was done to many jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ManyJobs {
    /// The jobs that were changed, newest first.
    pub jobs: Vec<JobId>,
    /// Whether a limit was reached, so that repeating the call may change more.
    pub more: bool,
}

/// Ids hold the time they were made, which is before the job was created, by this much at most.
const MINTED_BEFORE_MILLIS: u64 = 3_600_000;

impl JobFilter {
    fn matches(&self, job: &JobSnapshot) -> bool {
        let head: &JobHead = &job.head;
        self.status.is_none_or(|status| job.status == status)
            && self.name.as_ref().is_none_or(|name| head.name.as_deref() == Some(name.as_str()))
            && self.created_from.is_none_or(|from| head.created_at >= from)
            && self.created_before.is_none_or(|before| head.created_at < before)
    }

    /// An id that is above those of all jobs that match.
    fn above(&self) -> Option<JobId> {
        self.created_before.map(|before| JobId::from_u128(u128::from(before.millis() + 1) << 80))
    }

    /// Whether no job with this id or an older one matches.
    fn is_past(&self, job: JobId) -> bool {
        let minted = u64::try_from(job.as_u128() >> 80).unwrap_or(u64::MAX);
        self.created_from.is_some_and(|from| minted < from.millis().saturating_sub(MINTED_BEFORE_MILLIS))
    }
}

impl<B: Backend> Engine<B> {
    /// A tenant's jobs that match, newest first, those before `before` if it is given.
    pub async fn find_jobs(
        &self,
        tenant: TenantId,
        filter: &JobFilter,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobSnapshot>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut from = before.into_iter().chain(filter.above()).min();
        let mut found = Vec::new();
        // Without further conditions each job that is read is one that is wanted.
        let plain = JobFilter { status: filter.status, ..JobFilter::default() } == *filter;
        let page = if plain { limit } else { LIST_MAX };
        loop {
            let jobs = self.inner.backend.jobs(tenant.clone(), filter.status, from, page).await?;
            let is_last = jobs.len() < page;
            for job in jobs {
                let id = job.head.job;
                from = Some(id);
                if filter.is_past(id) {
                    return Ok(found);
                }
                if filter.matches(&job) {
                    found.push(job);
                }
                if found.len() == limit {
                    return Ok(found);
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Resumes the failed tasks of jobs that match; without a status, of failed ones. It ends at the first job that the
    /// tenant has no room for: with what was done until then, or with the refusal if that is nothing.
    pub async fn retry_many(
        &self,
        tenant: TenantId,
        filter: JobFilter,
        limit: usize,
    ) -> Result<ManyJobs, EngineError> {
        let filter = JobFilter { status: filter.status.or(Some(JobStatus::Failed)), ..filter };
        let (jobs, more) = self.pick_jobs(&tenant, &filter, limit).await?;
        let mut changed = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.resume_job(tenant.clone(), job, None).await {
                Ok(_) => changed.push(job),
                // Somebody else was faster.
                Err(EngineError::Refused(Refusal::NothingToResume | Refusal::NotResumable(_))) => {}
                Err(EngineError::Refused(Refusal::TenantFull { .. })) if !changed.is_empty() => {
                    return Ok(ManyJobs { jobs: changed, more: true });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ManyJobs { jobs: changed, more })
    }

    /// Cancels jobs that match; without a status, those that run or are failing.
    pub async fn cancel_many(
        &self,
        tenant: TenantId,
        filter: JobFilter,
        by: &str,
        reason: Option<&str>,
        limit: usize,
    ) -> Result<ManyJobs, EngineError> {
        if let Some(reason) = reason {
            check::text("reason", reason)?;
        }
        let statuses = match filter.status {
            Some(status) => vec![status],
            None => vec![JobStatus::Running, JobStatus::Failing],
        };
        let mut many = ManyJobs::default();
        for status in statuses {
            let left = limit - many.jobs.len();
            if left == 0 {
                many.more = true;
                break;
            }
            let filter = JobFilter { status: Some(status), ..filter.clone() };
            let (jobs, more) = self.pick_jobs(&tenant, &filter, left).await?;
            many.more |= more;
            for job in jobs {
                let cancelled =
                    self.cancel(tenant.clone(), job, by.to_owned(), reason.map(ToOwned::to_owned)).await;
                match cancelled {
                    Ok(_) => many.jobs.push(job),
                    Err(EngineError::Refused(Refusal::JobCompleted(_))) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(many)
    }

    /// The ids of at most `limit` jobs that match, and whether there are more.
    async fn pick_jobs(
        &self,
        tenant: &TenantId,
        filter: &JobFilter,
        limit: usize,
    ) -> Result<(Vec<JobId>, bool), EngineError> {
        check::count("limit", limit, MANY_JOBS_MAX)?;
        let found = self.find_jobs(tenant.clone(), filter, None, limit).await?;
        let jobs: Vec<_> = found.iter().map(|job| job.head.job).collect();
        let more = match jobs.last() {
            Some(last) if jobs.len() == limit => {
                !self.find_jobs(tenant.clone(), filter, Some(*last), 1).await?.is_empty()
            }
            _ => false,
        };
        Ok((jobs, more))
    }
}
