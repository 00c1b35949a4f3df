//! The text of an alert about failed jobs: what their tasks said, and where they are shown.

use tidemill_model::work::last_error::in_short;
use tidemill_model::{JobId, JobStatus, Json, TenantId};

use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError};
use crate::kernel::backend::Backend;
use crate::kernel::commit::TaskKey;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{Record, RecordKey, RecordKind, RecordValue};
use crate::outbound::alert_text::{self, KnownFailure, ToldJob, ToldJobs};
use crate::outbound::{Delivery, DeliveryKey, FailedJob, FailedJobs, JOB_FAILED, Target};
use crate::scripts::{AlertKind, StandingAlert};

/// The characters of a task's error that an alert shows.
const ERROR_CHARS_MAX: usize = 300;
/// The characters of what a standing alert says.
const MESSAGE_CHARS_MAX: usize = 1_000;

impl<B: Backend> Engine<B> {
    /// What is sent of failed jobs, with what is known of them now.
    pub(crate) async fn failed_jobs_body(
        &self,
        key: &DeliveryKey,
        delivery: &Delivery,
        failed: &FailedJobs,
    ) -> Result<Json, EngineError> {
        let mut told = Vec::with_capacity(failed.named.len());
        let mut since = Vec::with_capacity(failed.named.len());
        for job in &failed.named {
            since.push(self.became_of(&key.tenant, job).await?);
            told.push(ToldJob {
                job_id: job.job,
                name: job.name.as_deref().map(|name| self.clean(name)),
                task_id: job.task.clone(),
                failed_tasks: job.tasks,
                last_error: self.last_error_of(&key.tenant, job).await?,
                url: self.page_of(job.job),
            });
        }
        let stage = self.inner.site.environment();
        let known = |place: usize| {
            let ToldJob { last_error, url, .. } = &told[place];
            KnownFailure { error: last_error.clone(), link: url.clone(), since: since[place] }
        };
        let text = alert_text::jobs_failed(&stage, key.tenant.as_str(), failed, known);
        let jobs = Some(ToldJobs { job_count: failed.count, jobs: &told });
        let Delivery { target, event, .. } = delivery;
        Ok(alert_text::body(target, JOB_FAILED, &key.tenant, &stage, &text, event, jobs))
    }

    /// Where the dashboard shows a job.
    fn page_of(&self, job: JobId) -> Option<String> {
        let url = self.inner.dashboard_url.get()?;
        Some(format!("{}/jobs/{job}", url.trim_end_matches('/')))
    }

    /// What the last attempt of a failed task said, in a line. A resume that came meanwhile changes nothing of it.
    async fn last_error_of(&self, tenant: &TenantId, job: &FailedJob) -> Result<Option<String>, EngineError> {
        let task = task_of(tenant, job);
        let last = match job.run {
            Some(run) => self.error_of_run(task, run).await?,
            None => self.task_detail(task).await?.and_then(|detail| detail.last_error),
        };
        Ok(last.map(|last| self.clean_within(&in_short(&last.message), ERROR_CHARS_MAX)))
    }

    /// What became of a job after it failed, if anything did.
    async fn became_of(
        &self,
        tenant: &TenantId,
        job: &FailedJob,
    ) -> Result<Option<&'static str>, EngineError> {
        let Some(now) = self.job(tenant.clone(), job.job).await? else { return Ok(None) };
        Ok(match now.head.status() {
            JobStatus::Completed => Some("completed"),
            JobStatus::Cancelled => Some("cancelled"),
            JobStatus::Failed if now.head.is_at_rest() => {
                let task = self.inner.backend.task(task_of(tenant, job)).await?;
                let run = task.and_then(|task| task.head).map(|head| head.run);
                (job.run.is_some() && run != job.run).then_some("resumed")
            }
            _ => Some("resumed"),
        })
    }

    /// Alerts about failed jobs that people have not got yet.
    pub(crate) async fn untold_failures(
        &self,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<StandingAlert>, EngineError> {
        let mut standing = Vec::new();
        let mut after: Option<RecordKey> = None;
        loop {
            let backend = &self.inner.backend;
            let page = match tenant {
                Some(tenant) => {
                    let after = after.take().map(|key| key.id);
                    backend.records(RecordKind::Delivery, Some(tenant.clone()), after, LIST_MAX).await?
                }
                None => backend.all_records(RecordKind::Delivery, after.take(), LIST_MAX).await?,
            };
            standing.extend(page.iter().filter_map(|(key, record)| self.untold(key, record)));
            if page.len() < LIST_MAX {
                return Ok(standing);
            }
            after = page.last().map(|(key, _)| key.clone());
        }
    }

    fn untold(&self, key: &RecordKey, record: &Record) -> Option<StandingAlert> {
        let RecordValue::Delivery(delivery) = &record.value else { return None };
        let failed = delivery.failed_jobs.as_ref().filter(|_| delivery.target == Target::People)?;
        let names = failed.named.iter().map(|job| match &job.name {
            Some(name) => format!("{} ({})", alert_text::one_line(name), job.job),
            None => job.job.to_string(),
        });
        let names = names.collect::<Vec<_>>().join(", ");
        let jobs = if failed.count == 1 { "1 job".to_owned() } else { format!("{} jobs", failed.count) };
        let more = if failed.named.len() < failed.count as usize { ", …" } else { "" };
        Some(StandingAlert {
            kind: AlertKind::JobFailed,
            tenant_id: key.tenant.clone()?,
            raised_at: delivery.created_at,
            message: self.clean_within(&format!("{jobs} failed: {names}{more}"), MESSAGE_CHARS_MAX),
        })
    }
}

fn task_of(tenant: &TenantId, job: &FailedJob) -> TaskKey {
    TaskKey { tenant: tenant.clone(), request: job.job.request_id(&job.task) }
}
