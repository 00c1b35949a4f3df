//! Submit a job: `Job Created`, and every root task pending with its message, in one commit.

use std::sync::Arc;

use tidemill_model::{Allowance, Budget, KnownType, Spending, Timestamp};

use crate::kernel::command::{Once, Prepared};
use crate::kernel::commit::{NewJob, RecordWrite};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, JobFacts, Subject};
use crate::kernel::record::{Effect, Idempotency, Record, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::work::rows::{once_rows, tasks_bytes};
use crate::work::tenant_limit;

#[derive(Debug, Clone)]
pub struct SubmitJob {
    /// Validated as a DAG. `created_at` is set by the decision.
    pub job: NewJob,
    /// The properties of `Job Created`.
    pub created: Prepared,
    /// Each of them is good for one request, whichever is met again.
    pub once: Vec<Once>,
    /// What the job's agents may use in all.
    pub budget: Option<Budget>,
    /// Who is told once the job is at rest.
    pub callback: Option<Arc<str>>,
}

impl Decision for SubmitJob {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        submission(state, self)
    }

    fn log_bytes(&self) -> u64 {
        tasks_bytes(&self.job.tasks) + self.created.properties.len() as u64
    }

    fn large_field(&self) -> &'static str {
        "tasks"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        decide(state, self, draft)
    }
}

pub(crate) fn decide(
    state: &State,
    command: &SubmitJob,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let job = &command.job;
    if let Some(effect) = earlier_effect(state, &command.once, draft)? {
        let Effect::Job(earlier) = effect else { return Err(Refusal::IdempotencyConflict) };
        let reply = repeat(state, job, earlier)?;
        remember(state, &command.once, &effect, draft);
        return Ok(reply);
    }
    tenant_limit::check(state, &job.tenant, &job.tasks, draft)?;
    remember(state, &command.once, &Effect::Job(job.job), draft);

    let created_at = draft.now();
    let total = u32::try_from(job.tasks.len()).unwrap_or(u32::MAX);
    draft.record(RecordWrite::Job(Arc::new(NewJob { created_at, ..job.clone() })));
    if let Some(budget) = command.budget {
        let allowance = Some(Allowance { budget, spent: Spending::default() });
        draft.record(RecordWrite::JobAllowance { tenant: job.tenant.clone(), job: job.job, allowance });
    }
    if let Some(url) = &command.callback {
        let (tenant, url) = (job.tenant.clone(), Arc::clone(url));
        draft.record(RecordWrite::JobCallback { tenant, job: job.job, url });
    }
    let mut subject = Subject {
        tenant: job.tenant.clone(),
        app: job.app.clone(),
        entity: draft.site().job(job.job),
        last: None,
    };
    let by = By { id: command.created.id, ..By::component(Origin::ProducerApi) };
    draft.event(&mut subject, KnownType::JobCreated, by, command.created.properties.clone());

    let facts = JobFacts { tenant: &job.tenant, app: &job.app, job: job.job };
    let mut roots = Vec::new();
    draft.reserve(job.tasks.len());
    for spec in job.tasks.iter().filter(|spec| spec.depends_on.is_empty()) {
        draft.dispatch(&facts, spec, Origin::ProducerApi);
        roots.push(spec.task_id.clone());
    }
    let request = job.request.clone();
    Ok(Reply::JobSubmitted { job: job.job, request, total, roots, created_at, repeated: false })
}

fn repeat(state: &State, asked: &NewJob, earlier: tidemill_model::JobId) -> Result<Reply, Refusal> {
    let Some(job) = state.job(&asked.tenant, earlier) else {
        return Err(Refusal::NotFound { what: "job", id: earlier.to_string() });
    };
    let roots = job.nodes.iter().filter(|node| node.spec.depends_on.is_empty());
    Ok(Reply::JobSubmitted {
        job: earlier,
        request: job.head.request.clone(),
        total: job.head.counts.total(),
        roots: roots.map(|node| node.spec.task_id.clone()).collect(),
        created_at: job.head.created_at,
        repeated: true,
    })
}

/// What the same request did before, if one of its keys is known. Another body under the same key is refused, and so are
/// keys of different requests.
pub(crate) fn earlier_effect(
    state: &State,
    once: &[Once],
    draft: &Draft<'_, '_>,
) -> Result<Option<Effect>, Refusal> {
    let mut found: Option<&Effect> = None;
    for once in once {
        let Some(record) = valid(state, once, draft) else { continue };
        match &record.value {
            RecordValue::Idempotency(earlier)
                if earlier.body_hash == once.body_hash
                    && found.is_none_or(|found| *found == earlier.effect) =>
            {
                found = Some(&earlier.effect);
            }
            _ => return Err(Refusal::IdempotencyConflict),
        }
    }
    Ok(found.cloned())
}

/// Keeps the keys that are not kept yet with the effect, in the effect's own commit.
pub(crate) fn remember(state: &State, once: &[Once], effect: &Effect, draft: &mut Draft<'_, '_>) {
    for once in once {
        if valid(state, once, draft).is_some() {
            continue;
        }
        let version = state.record(&once.key).map_or(0, |record| record.version);
        let expires_at = (!once.lasting).then(|| draft.now().plus(draft.policy().idempotency_millis));
        let effect = effect.clone();
        let value = RecordValue::Idempotency(Idempotency { body_hash: once.body_hash, effect });
        let record = Some(Record { version: version + 1, expires_at, value });
        draft.record(RecordWrite::Put { key: once.key.clone(), record });
    }
}

/// What is kept under a key, unless its time is over.
fn valid<'s>(state: &'s State, once: &Once, draft: &Draft<'_, '_>) -> Option<&'s Record> {
    state.record(&once.key).filter(|record| record.expires_at.is_none_or(|at| at > draft.now()))
}

/// What decides whether a job was submitted before.
fn submission(state: &State, command: &SubmitJob) -> Vec<RowKey> {
    let mut keys: Vec<_> = once_rows(&command.once).collect();
    // A repeat answers with the earlier job, which is known once the key is here.
    for once in &command.once {
        if let Some(RecordValue::Idempotency(earlier)) = state.record(&once.key).map(|record| &record.value)
            && let Effect::Job(job) = earlier.effect
        {
            keys.push(RowKey::Job(command.job.tenant.clone(), job));
        }
    }
    keys
}
