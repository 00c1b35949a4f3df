//! A bench for cases: an engine on a fresh backend, one tenant, one worker, and short names for what is done often.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::fold::{fold_job, fold_task};
use tidemill_model::{
    Entity, ErrorCategory, Event, JobId, JobStatus, Json, KnownType, PublicState, RequestId, TaskHead,
    TenantId, Timestamp,
};

use super::shape::{acme, graph, job_of, json, task_id, tenants, worker};
use super::{ManualClock, TestWorld};
use tidemill_engine::backend::{Backend, JobSnapshot, TaskSnapshot};
use tidemill_engine::clock::Clock;
use tidemill_engine::command::Command;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{
    AttemptReport, Claimant, Engine, EngineConfig, EngineError, RecordedEnding, WorkReport,
};
use tidemill_engine::reply::{Assignment, Ending, Refusal, Reply};

/// An engine on a backend under test.
pub struct Lab<W: TestWorld> {
    pub world: W,
    pub engine: Engine<W::Backend>,
    pub clock: ManualClock,
}

/// The life of the data directory that the lab's workers belong to.
pub(super) const GENERATION: u64 = 1;
const PROCESS: u32 = 4_711;

impl<W: TestWorld> Lab<W> {
    pub fn new(world: W, clock: ManualClock) -> Self {
        let engine = Engine::new(world.backend(), clock.clone(), 2, EngineConfig::default());
        Self { world, engine, clock }
    }

    /// The lab after the process died and came back; `None` if the backend cannot.
    pub async fn reopen(self) -> Option<Self> {
        let Self { world, engine, clock } = self;
        drop(engine);
        let world = world.reopen(clock.clone()).await?;
        Some(Self::new(world, clock))
    }

    /// The lab after the process died and came back, or as it is if the backend cannot.
    pub async fn reopen_if_it_can(self) -> Self {
        if !W::REOPENS {
            return self;
        }
        self.reopen().await.expect("the world says that it can")
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Lets time pass.
    pub fn pass(&self, millis: u64) {
        self.clock.advance(millis);
        self.world.time_passed();
    }

    /// Submits a job written as `a b c<a+b`.
    pub async fn submit(&self, tasks: &str) -> JobId {
        self.engine.submit_job(job_of(graph(tasks))).await.expect("the job is accepted").job
    }

    pub async fn execute(&self, command: Command) -> Result<Reply, Refusal> {
        let answers = self.world.backend().execute(vec![command]).await.expect("the backend works");
        answers.into_iter().next().expect("one answer for one command")
    }

    /// Claims as `worker-1`, which begins at once.
    pub async fn claim(&self, max: usize) -> Vec<Assignment> {
        self.claim_as("worker-1", max).await
    }

    /// Claims; the tasks are sorted by their names, since no order of delivery is promised.
    pub async fn claim_as(&self, name: &str, max: usize) -> Vec<Assignment> {
        let claimed = self.engine.claim(claim_request(name, max)).await.expect("the claim is accepted");
        let mut tasks = claimed.tasks;
        tasks.sort_by_key(|task| (task.spec.task_id.clone(), task.task.clone()));
        tasks
    }

    pub async fn claim_for(&self, tenant: &TenantId, max: usize) -> Vec<Assignment> {
        let request = Claimant {
            tenants: Some(tenants(std::slice::from_ref(tenant))),
            ..claim_request("worker-1", max)
        };
        self.engine.claim(request).await.expect("the claim is accepted").tasks
    }

    /// Claims the one task there is to claim.
    pub async fn claim_one(&self) -> Assignment {
        let mut tasks = self.claim(2).await;
        assert_eq!(tasks.len(), 1, "one task can be claimed: {tasks:?}");
        tasks.remove(0)
    }

    pub async fn report(&self, task: &Assignment, report: WorkReport) -> Result<RecordedEnding, EngineError> {
        self.engine.finish(finish_request(task, report)).await
    }

    pub async fn complete(&self, task: &Assignment, output: &str) {
        let finished =
            self.report(task, WorkReport::completed(json(output), 5)).await.expect("the outcome is taken");
        assert!(matches!(finished.ending, Ending::Done(_)), "{finished:?}");
    }

    pub async fn fail(&self, task: &Assignment, category: ErrorCategory) -> Ending {
        let finished = self.report(task, WorkReport::failed("it broke", category)).await;
        finished.expect("the outcome is taken").ending
    }

    /// Claims the named tasks of a job, which must be all there is, and completes them.
    pub async fn run(&self, names: &[&str]) {
        let tasks = self.claim(names.len() + 1).await;
        let found: Vec<_> = tasks.iter().map(|task| task.spec.task_id.as_str()).collect();
        assert_eq!(found, names, "these can be claimed");
        for task in &tasks {
            self.complete(task, "{}").await;
        }
    }

    pub async fn job(&self, job: JobId) -> JobSnapshot {
        self.engine.job(acme(), job).await.expect("the backend works").expect("the job is there")
    }

    pub async fn status(&self, job: JobId) -> JobStatus {
        self.job(job).await.status
    }

    pub async fn task(&self, request: &RequestId) -> TaskSnapshot {
        let key = TaskKey { tenant: acme(), request: request.clone() };
        self.engine.task(key).await.expect("the backend works").expect("the task is there")
    }

    pub async fn head(&self, request: &RequestId) -> TaskHead {
        self.task(request).await.head.expect("the task is dispatched")
    }

    /// The public state of a job's task.
    pub async fn state(&self, job: JobId, task: &str) -> Option<PublicState> {
        self.task(&job.request_id(&task_id(task))).await.state
    }

    /// All events on a path of the tenant `acme`, oldest first.
    pub async fn events(&self, path: AccessPath) -> Vec<Event> {
        self.events_of(acme(), path).await
    }

    pub async fn events_of(&self, tenant: TenantId, path: AccessPath) -> Vec<Event> {
        self.world.settled().await;
        let mut query = EventQuery::all(tenant, path);
        let mut events = Vec::new();
        loop {
            let page = self.engine.events(query.clone(), true).await.expect("the query is answered");
            events.extend(page.events);
            query.after = page.next;
            if query.after.is_none() {
                return events;
            }
        }
    }

    pub async fn history(&self, request: &RequestId) -> Vec<Event> {
        self.events(AccessPath::Entity(Entity::task(request))).await
    }

    pub async fn job_history(&self, job: JobId) -> Vec<Event> {
        self.events(AccessPath::Entity(Entity::job(job))).await
    }

    pub async fn count(&self, known: KnownType) -> usize {
        self.events(AccessPath::Type(known.event_type())).await.len()
    }

    /// Checks that what the backend keeps of a job is what its events say.
    pub async fn check_job(&self, job: JobId) {
        let events = self.events(AccessPath::Tenant).await;
        let told =
            fold_job(events.iter().filter(|event| is_of(event, job))).expect("the history makes sense");
        let kept = self.job(job).await;
        assert_eq!((kept.status, kept.head.counts), (told.status, told.counts), "job {job}");
        let total = usize::try_from(kept.head.counts.total()).expect("a job has few tasks");
        let mut tasks = Vec::new();
        while tasks.len() < total {
            let from = u32::try_from(tasks.len()).expect("a job has few tasks");
            let page = self.engine.job_tasks(acme(), job, from, 1_000).await.expect("the backend works");
            assert!(!page.is_empty(), "{total} tasks are listed");
            tasks.extend(page);
        }
        for (index, task) in tasks.iter().enumerate() {
            let told = told.tasks[index];
            assert_eq!(task.state, told.map(|told| told.state), "{}", task.task.request);
            let Some((head, told)) = task.head.as_ref().zip(told) else { continue };
            let kept = (head.run, head.attempts, head.outcome(), head.is_parked());
            let told_so = (told.run, told.attempts, told.outcome, told.parked);
            assert_eq!(kept, told_so, "{}", task.task.request);
            assert!(head.fence >= told.fence, "{}", task.task.request);
        }
    }

    /// Checks that what the backend keeps of a task is what its events say.
    pub async fn check_task(&self, request: &RequestId) {
        let told = fold_task(&self.history(request).await).expect("the history makes sense");
        let kept = self.task(request).await;
        assert_eq!(kept.state, told.map(|told| told.state), "{request}");
        let Some((head, told)) = kept.head.zip(told) else { return };
        let kept = (head.run, head.attempts, head.outcome(), head.is_parked());
        assert_eq!(kept, (told.run, told.attempts, told.outcome, told.parked), "{request}");
    }
}

fn is_of(event: &Event, job: JobId) -> bool {
    let entity = event.entity.id.as_str();
    entity.starts_with(job.to_string().as_str())
}

pub(super) fn claim_request(name: &str, max: usize) -> Claimant {
    Claimant { worker: worker(name), generation: Some(GENERATION), max, tenants: None, begin: Some(PROCESS) }
}

pub(super) fn finish_request(task: &Assignment, report: WorkReport) -> AttemptReport {
    AttemptReport::of(task, worker("worker-1"), report)
}

pub(super) fn completed(output: &str) -> WorkReport {
    WorkReport::completed(json(output), 5)
}

/// Whether a call was refused because another holds the task.
pub(super) fn is_lease_lost<T>(answer: &Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::LeaseLost { .. })))
}

/// Whether a call was refused because another outcome was reported with the same fence.
pub(super) fn is_outcome_different<T>(answer: &Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::OutcomeDiffers { .. })))
}

pub(super) fn is_not_found<T>(answer: &Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::NotFound { .. })))
}

/// The output a worker would get for a parent.
pub(super) fn value(json: &Json) -> serde_json::Value {
    json.read().expect("JSON")
}
