//! Steering from outside: resume, cancel, dead letters, and the repairs that need nobody.

use tidemill_model::{JobId, RequestId, TaskId, TenantId, dag};

use crate::engine::{Engine, EngineError, check, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{
    Advance, Cancel, CancelTask, Command, Discard, Recover, Replay, Resume, ResumeTarget, Sweep,
};
use crate::kernel::commit::MessageId;
use crate::kernel::reply::{Refusal, Reply};

/// How often one call walks over all live work. What is left then is for the next sweep.
const PASSES_MAX: u32 = 64;

impl<B: Backend> Engine<B> {
    /// Opens a new run of all failed tasks of a job, or of the named ones, and tells which.
    pub async fn resume_job(
        &self,
        tenant: TenantId,
        job: JobId,
        tasks: Option<Vec<TaskId>>,
    ) -> Result<Vec<RequestId>, EngineError> {
        if let Some(tasks) = &tasks
            && tasks.len() > dag::JOB_TASKS_MAX
        {
            let (field, count, limit) = ("taskIds", tasks.len(), dag::JOB_TASKS_MAX);
            return Err(Refusal::TooMany { field, count, limit }.into());
        }
        self.resume(Resume { tenant, target: ResumeTarget::Job { job, tasks } }).await
    }

    /// Opens a new run of a failed task, in a job or on its own.
    pub async fn resume_task(&self, tenant: TenantId, request: RequestId) -> Result<(), EngineError> {
        self.resume(Resume { tenant, target: ResumeTarget::Task(request) }).await.map(|_| ())
    }

    async fn resume(&self, resume: Resume) -> Result<Vec<RequestId>, EngineError> {
        let reply = self.execute(Command::Resume(resume)).await?;
        take_reply!(reply, Reply::Resumed { tasks } => tasks)
    }

    /// Ends everything active in a job and tells what that was. Repeating it changes nothing.
    pub async fn cancel(
        &self,
        tenant: TenantId,
        job: JobId,
        by: String,
        reason: Option<String>,
    ) -> Result<Vec<RequestId>, EngineError> {
        let reason = self.checked_reason(&by, reason)?;
        let reply = self.execute(Command::Cancel(Cancel { tenant, job, by, reason })).await?;
        take_reply!(reply, Reply::Cancelled { tasks } => tasks)
    }

    /// Ends a task without a job and tells whether it was active. Repeating it changes nothing; a task that ended
    /// otherwise is refused, as is one of a job.
    pub async fn cancel_task(
        &self,
        tenant: TenantId,
        request: RequestId,
        by: String,
        reason: Option<String>,
    ) -> Result<bool, EngineError> {
        let reason = self.checked_reason(&by, reason)?;
        let reply = self.execute(Command::CancelTask(CancelTask { tenant, request, by, reason })).await?;
        take_reply!(reply, Reply::Cancelled { tasks } => !tasks.is_empty())
    }

    /// A reason as it may be stored.
    fn checked_reason(&self, by: &str, reason: Option<String>) -> Result<Option<String>, EngineError> {
        check::name("by", by)?;
        if let Some(reason) = &reason {
            check::text("reason", reason)?;
        }
        Ok(reason.map(|reason| self.clean(&reason)))
    }

    /// Runs a dead letter's task again.
    pub async fn replay(&self, tenant: TenantId, message: MessageId) -> Result<RequestId, EngineError> {
        let reply = self.execute(Command::Replay(Replay { tenant, message })).await?;
        take_reply!(reply, Reply::Replayed { request } => request)
    }

    /// Puts a dead letter aside. It stays on record.
    pub async fn discard(&self, tenant: TenantId, message: MessageId) -> Result<(), EngineError> {
        let reply = self.execute(Command::Discard(Discard { tenant, message })).await?;
        take_reply!(reply, Reply::Discarded => ())
    }

    /// Dispatches what is ready in a job and was not dispatched. Normally nothing is.
    pub async fn advance(&self, tenant: TenantId, job: JobId) -> Result<u32, EngineError> {
        let reply = self.execute(Command::Advance(Advance { tenant, job })).await?;
        take_reply!(reply, Reply::Advanced { dispatched } => dispatched)
    }

    /// Finds whatever stands still and sets it moving, until nothing more is found. Tells how much was.
    pub async fn sweep(&self) -> Result<u64, EngineError> {
        let mut repaired = 0;
        for _ in 0..PASSES_MAX {
            let found = self.sweep_once().await?;
            repaired += found;
            if found == 0 {
                break;
            }
        }
        Ok(repaired)
    }

    async fn sweep_once(&self) -> Result<u64, EngineError> {
        let mut found = 0;
        let mut from = None;
        loop {
            let reply = self.execute(Command::Sweep(Sweep { after: from })).await?;
            let (repaired, after) =
                take_reply!(reply, Reply::Swept { repaired, after } => (repaired, after))?;
            found += u64::from(repaired);
            if after.is_none() {
                return Ok(found);
            }
            from = after;
        }
    }

    /// Takes back the leases that lives of the data directory before `generation` left behind, and tells how many.
    pub async fn recover(&self, generation: u64) -> Result<u32, EngineError> {
        let reply = self.execute(Command::Recover(Recover { generation })).await?;
        take_reply!(reply, Reply::Recovered { released } => released)
    }
}
