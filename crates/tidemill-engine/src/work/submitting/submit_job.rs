//! Submit a job: `Job Created`, and every root task pending with its message, in one commit.

use std::sync::Arc;

use serde::Serialize;
use tidemill_model::work::dag::Dag;
use tidemill_model::{
    Allowance, AppName, Budget, CallbackUrl, Entity, Event, EventId, JobId, Json, KnownType, RequestId,
    Spending, TaskId, TaskSpec, TenantId, Timestamp,
};

use crate::engine::limits::TASKS_BYTES_MAX;
use crate::engine::{Engine, EngineError, check, digest, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, Once, Prepared};
use crate::kernel::commit::{NewJob, RecordWrite};
use crate::kernel::decision::Decision;
use crate::kernel::draft::{By, Draft, JobFacts, Subject};
use crate::kernel::record::{Effect, Idempotency, Record, RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Origin;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::work::rows::{once_rows, tasks_bytes};
use crate::work::submitting::tenant_limit;

/// A job as it is handed in.
#[derive(Debug, Clone)]
pub struct JobRequest {
    pub tenant: TenantId,
    pub app: AppName,
    /// The client's own id for the request, minted when absent. Repeating it with the same content gives the same job,
    /// with whatever key.
    pub request: Option<RequestId>,
    pub name: Option<String>,
    /// What its agents may use in all.
    pub budget: Option<Budget>,
    /// The URL that is called once it is at rest.
    pub callback: Option<CallbackUrl>,
    pub tasks: Vec<TaskSpec>,
    pub idempotency: Option<IdempotencyKey>,
}

/// A client's promise that requests with this key are the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Keys of different routes do not meet.
    pub route: String,
    pub key: String,
    /// Any digest of the request body.
    pub body_hash: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmittedJob {
    pub job: JobId,
    pub request: RequestId,
    pub total_tasks: u32,
    pub root_tasks: Vec<TaskId>,
    pub created_at: Timestamp,
    /// The job was there already, made by the same request.
    pub repeated: bool,
}

/// The properties of `Job Created`; the model's own type would want the tasks for itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JobCreated<'a> {
    job_id: JobId,
    request_id: &'a RequestId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Budget>,
    tasks: &'a Json,
    total_tasks: u32,
}

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
    /// The URL that is called once the job is at rest.
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
        let Effect::Job(earlier) = effect else {
            return Err(Refusal::IdempotencyConflict { earlier: effect });
        };
        let reply = repeat(state, job, earlier)?;
        remember(state, &command.once, &effect, draft);
        return Ok(reply);
    }
    tenant_limit::check(state, &job.tenant, &job.tasks, draft)?;
    debug_assert!(state.job(&job.tenant, job.job).is_none(), "the id of a job is minted once");
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
        // A key of this kind has no other value.
        let RecordValue::Idempotency(earlier) = &record.value else { continue };
        let is_same = earlier.body_hash == once.body_hash;
        if !is_same || found.is_some_and(|found| *found != earlier.effect) {
            return Err(Refusal::IdempotencyConflict { earlier: earlier.effect.clone() });
        }
        found = Some(&earlier.effect);
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

impl<B: Backend> Engine<B> {
    /// Creates a job and dispatches its roots, all in one commit.
    pub async fn submit_job(&self, request: JobRequest) -> Result<SubmittedJob, EngineError> {
        let mut promises = Vec::new();
        if let Some(key) = &request.idempotency {
            promises.push(once(&request.tenant, key)?);
        }
        if let Some(id) = &request.request {
            promises.push(once_by_request(&request, id));
        }
        self.check_callback(request.callback.as_ref(), &promises).await?;
        self.submit_job_once(request, promises, TASKS_BYTES_MAX).await
    }

    /// The same, with the promises made already and a limit for the bytes of the tasks.
    pub(crate) async fn submit_job_once(
        &self,
        request: JobRequest,
        once: Vec<Once>,
        limit_bytes: usize,
    ) -> Result<SubmittedJob, EngineError> {
        let submit = self.prepare_job(request, once, limit_bytes, self.mint_job_id()).await?;
        let reply = self.execute(Command::SubmitJob(submit)).await?;
        take_reply!(reply, Reply::JobSubmitted { job, request, total, roots, created_at, repeated } => SubmittedJob {
            job, request, total_tasks: total, root_tasks: roots, created_at, repeated
        })
    }

    /// Checks a job and makes its command. What does not fit into an event is stored.
    pub(crate) async fn prepare_job(
        &self,
        request: JobRequest,
        once: Vec<Once>,
        limit_bytes: usize,
        job: JobId,
    ) -> Result<SubmitJob, EngineError> {
        let tasks = check_job(&request, limit_bytes)?;
        let id = self.mint_event_id();
        let request_id = request.request.unwrap_or_else(|| self.mint_request_id());
        let total_tasks = u32::try_from(request.tasks.len()).unwrap_or(u32::MAX);
        let name = request.name.as_deref();
        let budget = request.budget;
        let created =
            JobCreated { job_id: job, request_id: &request_id, name, budget, tasks: &tasks, total_tasks };
        let created = Json::of(&created);
        // The list may be long: it is in the event now.
        drop(tasks);
        let packed = self.pack(self.job_event(
            &request.tenant,
            &request.app,
            job,
            KnownType::JobCreated,
            id,
            created,
        ))?;
        let created = self.ship(&request.tenant, id, packed).await?;
        let job = NewJob {
            tenant: request.tenant,
            app: request.app,
            job,
            request: request_id,
            name: request.name.map(Arc::from),
            created_at: Timestamp::MIN,
            tasks: request.tasks.into_iter().map(Arc::new).collect(),
        };
        let callback = request.callback.map(|callback| Arc::clone(callback.text()));
        Ok(SubmitJob { job, created, once, budget, callback })
    }

    /// A job's event as the decision will write it, but for its times.
    pub(crate) fn job_event(
        &self,
        tenant: &TenantId,
        app: &AppName,
        job: JobId,
        known: KnownType,
        id: EventId,
        properties: Json,
    ) -> Event {
        Event {
            id,
            tenant: tenant.clone(),
            app: app.clone(),
            entity: Entity::job(job),
            event_type: self.inner.site.event_type(known),
            timestamp: Timestamp::MIN,
            received_at: Timestamp::MIN,
            context: self.inner.site.context(Origin::ProducerApi, None),
            properties,
            ttl: None,
            beside: None,
        }
    }
}

/// Checks a job, and gives its tasks as JSON.
pub(crate) fn check_job(request: &JobRequest, limit_bytes: usize) -> Result<Json, EngineError> {
    Dag::default().check(&request.tasks).map_err(Refusal::Graph)?;
    check::added_tasks(&request.tasks)?;
    if let Some(name) = &request.name {
        check::name("name", name)?;
    }
    let tasks = Json::of(&request.tasks);
    check::size("tasks", tasks.len(), limit_bytes)?;
    Ok(tasks)
}

pub(crate) fn once(tenant: &TenantId, key: &IdempotencyKey) -> Result<Once, EngineError> {
    check::key("route", &key.route)?;
    check::key("idempotencyKey", &key.key)?;
    Ok(Once {
        key: RecordKey::idempotency(tenant, &key.route, &key.key),
        body_hash: key.body_hash,
        lasting: false,
    })
}

/// The request's own id as its key. The digest covers all that makes the job.
fn once_by_request(request: &JobRequest, id: &RequestId) -> Once {
    let name = request.name.as_deref().unwrap_or_default();
    let tasks = Json::of(&request.tasks);
    let mut parts = vec![request.app.as_str().as_bytes(), name.as_bytes(), tasks.as_str().as_bytes()];
    let budget = request.budget.map(|budget| Json::of(&budget));
    parts.extend(budget.iter().map(|budget| budget.as_str().as_bytes()));
    parts.extend(request.callback.iter().map(|callback| callback.as_str().as_bytes()));
    let body_hash = digest::of(&parts);
    Once {
        key: RecordKey::idempotency(&request.tenant, "job requestId", id.as_str()),
        body_hash,
        lasting: true,
    }
}

/// The id that a file gives its request as the key. The digest covers what the file says.
pub(crate) fn once_by_file(
    tenant: &TenantId,
    route: &str,
    id: &RequestId,
    app: &AppName,
    content: &str,
) -> Once {
    let body_hash = digest::of(&[b"file", app.as_str().as_bytes(), content.as_bytes()]);
    Once { key: RecordKey::idempotency(tenant, route, id.as_str()), body_hash, lasting: true }
}
