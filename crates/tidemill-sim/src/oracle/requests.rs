//! Requests: what was asked for once, and must not be done twice.

use std::collections::BTreeMap;

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{Once, PutRecord, SubmitJob, SubmitTask};
use tidemill_engine::commit::{NewTask, TaskKey};
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{Effect, Record, RecordKey, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::Timestamp;

use crate::violation::{Violation, demand};

/// Keys, records and standalone tasks, by the answers alone.
#[derive(Debug, Default)]
pub(super) struct Requests {
    keys: BTreeMap<RecordKey, Remembered>,
    pub(super) alone: BTreeMap<TaskKey, NewTask>,
    pub(super) records: BTreeMap<RecordKey, Option<(u64, RecordValue)>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    body_hash: [u8; 32],
    effect: Effect,
    /// `None` for ever.
    expires_at: Option<Timestamp>,
}

impl Remembered {
    fn is_over(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// Whether a request made something new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    New,
    Nothing,
}

impl Requests {
    pub(super) fn submitted_job(
        &mut self,
        submit: &SubmitJob,
        answer: &Answer,
        now: Timestamp,
        policy: &Policy,
    ) -> Result<Made, Violation> {
        let job = &submit.job;
        match (self.earlier(submit.once.first(), now), answer) {
            (None, Ok(Reply::JobSubmitted { job: made, total, repeated: false, .. })) => {
                let whole = *made == job.job && *total as usize == job.tasks.len();
                demand(whole, "a job is taken as it is", || format!("{made}: {total} tasks"))?;
                self.remember(submit.once.first(), Effect::Job(job.job), now, policy);
                Ok(Made::New)
            }
            (Some(Ok(Effect::Job(earlier))), Ok(Reply::JobSubmitted { job: made, repeated: true, .. }))
                if earlier == *made =>
            {
                Ok(Made::Nothing)
            }
            (Some(_), Err(Refusal::IdempotencyConflict { .. })) | (None, Err(Refusal::TenantFull { .. })) => {
                Ok(Made::Nothing)
            }
            (earlier, answer) => Err(Violation::new(
                "a key is good for one request",
                format!("{:?} of {} was {earlier:?}: {answer:?}", submit.once, job.job),
            )),
        }
    }

    pub(super) fn submitted_task(
        &mut self,
        submit: &SubmitTask,
        answer: &Answer,
        now: Timestamp,
        policy: &Policy,
    ) -> Result<Made, Violation> {
        let task = &submit.task;
        let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
        let known = self.alone.get(&key).map(|known| known.spec == task.spec && known.app == task.app);
        match (self.earlier(submit.once.first(), now), known, answer) {
            (None, None, Ok(Reply::TaskSubmitted { repeated: false, .. })) => {
                self.remember(submit.once.first(), Effect::Task(key.request.clone()), now, policy);
                self.alone.insert(key, task.clone());
                Ok(Made::New)
            }
            (Some(Ok(Effect::Task(earlier))), _, Ok(Reply::TaskSubmitted { request, repeated: true }))
                if earlier == *request =>
            {
                Ok(Made::Nothing)
            }
            (None, Some(true), Ok(Reply::TaskSubmitted { repeated: true, .. })) => {
                // The id is known and the key is not: from now on it is.
                self.remember(submit.once.first(), Effect::Task(key.request.clone()), now, policy);
                Ok(Made::Nothing)
            }
            (Some(_), _, Err(Refusal::IdempotencyConflict { .. }))
            | (None, Some(false), Err(Refusal::RequestTaken(_)))
            | (None, None, Err(Refusal::TenantFull { .. })) => Ok(Made::Nothing),
            (earlier, known, answer) => Err(Violation::new(
                "a request is good for one task",
                format!("{key:?} was {earlier:?}, {known:?}: {answer:?}"),
            )),
        }
    }

    pub(super) fn put(&mut self, put: &PutRecord, answer: &Answer) -> Result<(), Violation> {
        let actual = self.version(&put.key);
        match answer {
            Ok(Reply::RecordPut { version }) => {
                let met = put.expected.is_none_or(|expected| expected == actual);
                demand(met && *version == actual + 1, "records count their versions", || {
                    format!("{:?} went from {actual} to {version}", put.key)
                })?;
                self.set(put);
                Ok(())
            }
            Err(Refusal::RecordConflict { .. })
                if put.expected.is_some_and(|expected| expected != actual) =>
            {
                Ok(())
            }
            answer => {
                Err(Violation::new("records are put", format!("{:?} at {actual}: {answer:?}", put.key)))
            }
        }
    }

    /// Keys whose time is over were removed, and no others.
    pub(super) fn forget(
        &mut self,
        keys: &[RecordKey],
        forgotten: u32,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let before = self.keys.len();
        let over = |key: &RecordKey| self.keys.get(key).is_some_and(|known| known.is_over(now));
        let gone: Vec<RecordKey> = keys.iter().filter(|key| over(key)).cloned().collect();
        for key in &gone {
            self.keys.remove(key);
        }
        let removed = before - self.keys.len();
        demand(
            removed <= forgotten as usize && forgotten as usize <= gone.len(),
            "keys are kept for their time",
            || format!("{forgotten} were forgotten, but {removed} were over"),
        )
    }

    /// Keys that a cleaning at this moment may have taken.
    pub(super) fn over(&self, at: Timestamp) -> Vec<RecordKey> {
        let over = self.keys.iter().filter(|(_, known)| known.is_over(at));
        over.map(|(key, _)| key.clone()).collect()
    }

    /// A key is gone.
    pub(super) fn let_go(&mut self, key: &RecordKey) {
        self.keys.remove(key);
    }

    pub(super) fn version(&self, key: &RecordKey) -> u64 {
        self.records.get(key).and_then(Option::as_ref).map_or(0, |(version, _)| *version)
    }

    pub(super) fn set(&mut self, put: &PutRecord) {
        let version = self.version(&put.key) + 1;
        self.records.insert(put.key.clone(), put.value.clone().map(|value| (version, value)));
    }

    /// Whether a record stands as it should.
    pub(super) fn compare(&self, key: &RecordKey, found: Option<&Record>) -> Result<(), Violation> {
        let known = self.records.get(key).and_then(Option::as_ref);
        let found = found.map(|record| (record.version, record.value.clone()));
        demand(found.as_ref() == known, "records are kept", || format!("{key:?} is {found:?}, not {known:?}"))
    }

    /// Whether nobody can have used this key before.
    pub(super) fn is_unused(&self, once: Option<&Once>) -> bool {
        once.is_none_or(|once| !self.keys.contains_key(&once.key))
    }

    /// Whether this key means nothing at that moment.
    pub(super) fn is_free(&self, once: &Once, at: Timestamp) -> bool {
        self.keys.get(&once.key).is_none_or(|known| known.is_over(at))
    }

    pub(super) fn remember(&mut self, once: Option<&Once>, effect: Effect, now: Timestamp, policy: &Policy) {
        if let Some(once) = once {
            let expires_at = (!once.lasting).then(|| now.plus(policy.idempotency_millis));
            self.keys.insert(once.key.clone(), Remembered { body_hash: once.body_hash, effect, expires_at });
        }
    }

    /// What the key stands for; `Err` when it was used with another body.
    fn earlier(&self, once: Option<&Once>, now: Timestamp) -> Option<Result<Effect, ()>> {
        let once = once?;
        let known = self.keys.get(&once.key).filter(|known| !known.is_over(now))?;
        Some(if known.body_hash == once.body_hash { Ok(known.effect.clone()) } else { Err(()) })
    }
}
