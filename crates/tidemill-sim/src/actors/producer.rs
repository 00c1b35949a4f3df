//! Producers: they submit, add, repeat, cancel and resume, and do not always hear the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_engine::backend::Answer;
use tidemill_engine::command::{
    AddTasks, Advance, BudgetTarget, Cancel, CancelTask, ChangeTarget, ChangeTasks, Command, Forget, Listed,
    Once, Prepared, Publish, PublishedEvent, PutRecord, Resume, ResumeTarget, Send, SetBudget, SubmitJob,
    SubmitTask,
};
use tidemill_engine::commit::{NewJob, NewTask};
use tidemill_engine::record::{RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::Reply;
use tidemill_model::events::properties::JobCreated;
use tidemill_model::{
    AppName, Budget, Context, Entity, EntityId, EntityType, EventType, JobId, Json, MicroUsd, Period,
    RequestId, TaskId, TaskSpec, TenantId, Timestamp,
};

use crate::rng::Rng;
use crate::shape;

/// The longest delay that anybody asks for, in milliseconds.
pub(crate) const DELAY_MILLIS_MAX: u64 = 90_000;

/// What the event of a change tells: its number, and the tasks that have it as their input now.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ToldChange {
    pub(crate) number: u64,
    pub(crate) tasks: Vec<TaskId>,
}

/// The input of a task that was changed.
pub(crate) fn changed_input(number: u64) -> Json {
    Json::trusted(&format!(r#"{{"changed":{number}}}"#))
}

/// All producers of the world, with what they remember.
#[derive(Debug)]
pub(crate) struct Producer {
    rng: Rng,
    tenants: Vec<TenantId>,
    jobs: Vec<KnownJob>,
    alone: Vec<NewTask>,
    keyed_jobs: Vec<SubmitJob>,
    keyed_tasks: Vec<SubmitTask>,
    count: u64,
}

/// A job as its producer remembers it.
#[derive(Debug, Clone)]
struct KnownJob {
    tenant: TenantId,
    job: JobId,
    tasks: Vec<TaskId>,
    /// The same as they were handed in.
    specs: Vec<Arc<TaskSpec>>,
}

impl Producer {
    pub(crate) fn new(rng: Rng, tenants: Vec<TenantId>) -> Self {
        Self {
            rng,
            tenants,
            jobs: Vec::new(),
            alone: Vec::new(),
            keyed_jobs: Vec::new(),
            keyed_tasks: Vec::new(),
            count: 0,
        }
    }

    pub(crate) fn submit_job(&mut self, now: Timestamp) -> Command {
        let size = shape::draw_size(&mut self.rng);
        let tasks = shape::draw(&mut self.rng, &[], size);
        let tenant = self.tenant();
        let app = self.app();
        let job = JobId::mint(self.rng.event_id(now));
        let request = RequestId::trusted(&format!("req-{}", self.next()));
        let name = self.rng.chance(300).then(|| Arc::from("nightly"));
        let once = Vec::from_iter(self.rng.chance(400).then(|| self.once(&tenant, "jobs")));
        self.jobs.push(KnownJob {
            tenant: tenant.clone(),
            job,
            tasks: tasks.iter().map(|task| task.task_id.clone()).collect(),
            specs: tasks.clone(),
        });
        let budget = self.rng.chance(400).then(|| self.budget());
        let callback = self.rng.chance(400).then(|| Arc::from("https://hooks.example.com/done"));
        let job = NewJob { tenant, app, job, request, name, created_at: now, tasks };
        let submit = SubmitJob { created: created(&job), job, once, budget, callback };
        if !submit.once.is_empty() {
            self.keyed_jobs.push(submit.clone());
        }
        Command::SubmitJob(submit)
    }

    /// The same request again under a new job id, as a server would mint it; now and then with another body.
    pub(crate) fn resubmit_job(&mut self, now: Timestamp) -> Option<Command> {
        let mut submit = self.rng.pick(&self.keyed_jobs)?.clone();
        submit.job.job = JobId::mint(self.rng.event_id(now));
        submit.created = created(&submit.job);
        if self.rng.chance(200) {
            submit.once.iter_mut().for_each(|once| once.body_hash[0] ^= 1);
        }
        Some(Command::SubmitJob(submit))
    }

    pub(crate) fn add_tasks(&mut self) -> Option<Command> {
        let known = self.rng.pick(&self.jobs)?.clone();
        let count = 1 + self.rng.index(4);
        let tasks = shape::draw(&mut self.rng, &known.tasks, count);
        let listed = Listed::Inline(Json::of(&tasks));
        Some(Command::AddTasks(AddTasks {
            tenant: known.tenant,
            job: known.job,
            tasks: Arc::new(tasks),
            listed,
        }))
    }

    /// Some tasks of a job get another input, which the event tells: completed ones as well, which is refused.
    pub(crate) fn change_tasks(&mut self) -> Option<Command> {
        let number = self.next();
        let known = self.rng.pick(&self.jobs)?;
        let (tenant, job, specs) = (known.tenant.clone(), known.job, known.specs.clone());
        let count = 1 + self.rng.index(2);
        let mut chosen: BTreeMap<TaskId, Arc<TaskSpec>> = BTreeMap::new();
        for _ in 0..count {
            let spec = self.rng.pick(&specs)?;
            let changed = TaskSpec { input: changed_input(number), ..(**spec).clone() };
            chosen.insert(changed.task_id.clone(), Arc::new(changed));
        }
        let told = Json::of(&ToldChange { number, tasks: chosen.keys().cloned().collect() });
        let specs = Arc::new(chosen.into_values().collect());
        let target = ChangeTarget::Job { job, specs, told };
        Some(Command::ChangeTasks(ChangeTasks { tenant, target, resume: None }))
    }

    pub(crate) fn submit_task(&mut self) -> Command {
        let task = self.new_task();
        let once = Vec::from_iter(self.rng.chance(300).then(|| self.once(&task.tenant, "tasks")));
        self.alone.push(task.clone());
        let submit = SubmitTask { task, once };
        self.keyed_tasks.push(submit.clone());
        Command::SubmitTask(submit)
    }

    /// The same task again, or another one under its name.
    pub(crate) fn resubmit_task(&mut self) -> Option<Command> {
        let mut submit = self.rng.pick(&self.keyed_tasks)?.clone();
        if self.rng.chance(200) {
            Arc::make_mut(&mut submit.task.spec).input = Json::trusted(r#"{"other":true}"#);
            submit.once.iter_mut().for_each(|once| once.body_hash[0] ^= 1);
        }
        Some(Command::SubmitTask(submit))
    }

    /// A raw message: a duplicate for a task that exists, or the beginning of one that does not.
    pub(crate) fn send(&mut self) -> Command {
        let known = if self.rng.chance(800) { self.any_task() } else { None };
        let mut task = self.new_task();
        if let Some((tenant, request)) = known {
            (task.tenant, task.request) = (tenant, request);
        } else {
            self.alone.push(task.clone());
        }
        let run = self.rng.weighted(&[(6, 1), (2, 2), (1, 3)]);
        let delay_millis = if self.rng.chance(500) { 0 } else { self.rng.below(DELAY_MILLIS_MAX) };
        Command::Send(Send { task, run, delay_millis })
    }

    pub(crate) fn cancel(&mut self) -> Option<Command> {
        let reason = self.rng.chance(500).then(|| "no longer needed".to_owned());
        let by = "sim".to_owned();
        if self.rng.chance(400) {
            // Mostly one of its own; a task of a job is refused.
            let (tenant, request) = match self.rng.pick(&self.alone) {
                Some(task) if self.rng.chance(800) => (task.tenant.clone(), task.request.clone()),
                _ => self.any_task()?,
            };
            return Some(Command::CancelTask(CancelTask { tenant, request, by, reason }));
        }
        let known = self.rng.pick(&self.jobs)?.clone();
        Some(Command::Cancel(Cancel { tenant: known.tenant, job: known.job, by, reason }))
    }

    pub(crate) fn resume(&mut self) -> Option<Command> {
        if self.rng.chance(400) {
            let (tenant, request) = self.any_task()?;
            return Some(Command::Resume(Resume { tenant, target: ResumeTarget::Task(request) }));
        }
        let known = self.rng.pick(&self.jobs)?.clone();
        let tasks = self.rng.chance(300).then(|| {
            let count = 1 + self.rng.index(3);
            (0..count).filter_map(|_| self.rng.pick(&known.tasks).cloned()).collect()
        });
        let target = ResumeTarget::Job { job: known.job, tasks };
        Some(Command::Resume(Resume { tenant: known.tenant, target }))
    }

    /// Somebody sets a budget or takes it away, for a job or for a tenant.
    pub(crate) fn set_budget(&mut self) -> Option<Command> {
        let budget = self.rng.chance(800).then(|| self.budget());
        if self.rng.chance(300) {
            // A tenant spends more than a job.
            let budget = budget.map(|budget| Budget {
                usd: budget.usd.map(|usd| MicroUsd(50 * usd.0)),
                tokens: budget.tokens.map(|tokens| 50 * tokens),
            });
            let (tenant, target) = (self.tenant(), BudgetTarget::Tenant(Period::Total));
            return Some(Command::SetBudget(SetBudget { tenant, target, budget }));
        }
        let known = self.rng.pick(&self.jobs)?.clone();
        let target = BudgetTarget::Job(known.job);
        Some(Command::SetBudget(SetBudget { tenant: known.tenant, target, budget }))
    }

    fn budget(&mut self) -> Budget {
        let usd = MicroUsd(self.rng.below(4_000));
        match self.rng.below(3) {
            0 => Budget { usd: None, tokens: Some(self.rng.below(2_000)) },
            1 => Budget { usd: Some(usd), tokens: Some(self.rng.below(2_000)) },
            _ => Budget { usd: Some(usd), tokens: None },
        }
    }

    pub(crate) fn advance(&mut self) -> Option<Command> {
        let known = self.rng.pick(&self.jobs)?;
        Some(Command::Advance(Advance { tenant: known.tenant.clone(), job: known.job }))
    }

    /// Somebody tries another tenant's job.
    pub(crate) fn trespass(&mut self) -> Option<Command> {
        let tenant = self.tenant();
        let mut command = match self.rng.below(5) {
            4 => self.change_tasks(),
            0 => self.cancel(),
            1 => self.resume(),
            2 => self.set_budget(),
            _ => self.add_tasks(),
        }?;
        match &mut command {
            Command::Cancel(cancel) => cancel.tenant = tenant,
            Command::CancelTask(cancel) => cancel.tenant = tenant,
            Command::Resume(resume) => resume.tenant = tenant,
            Command::AddTasks(add) => add.tenant = tenant,
            Command::ChangeTasks(change) => change.tenant = tenant,
            Command::SetBudget(set) => set.tenant = tenant,
            _ => {}
        }
        Some(command)
    }

    /// Events from outside, each with a number of its own so that it can be looked for.
    pub(crate) fn publish(&mut self, now: Timestamp) -> Command {
        let tenant = self.tenant();
        let app = self.app();
        let count = 1 + self.rng.index(3);
        let events = (0..count).map(|_| self.published(now)).collect();
        let context =
            Context { environment: Arc::from("dev"), origin: Arc::from("producer-api"), worker_id: None };
        Command::Publish(Publish { tenant, app, context, events })
    }

    fn published(&mut self, now: Timestamp) -> PublishedEvent {
        let number = self.next();
        let store = self.rng.below(6);
        // A client's clock may be off, and its events may be late.
        let timestamp = match self.rng.below(4) {
            0 => Some(now.minus(self.rng.below(600_000))),
            1 => Some(now.plus(self.rng.below(240_000))),
            _ => None,
        };
        PublishedEvent {
            entity: Entity {
                kind: EntityType::trusted("STORE"),
                id: EntityId::trusted(&format!("store-{store}")),
            },
            event_type: EventType::trusted(["store.opened", "store.closed"][self.rng.index(2)]),
            timestamp,
            properties: Prepared {
                id: None,
                properties: Json::trusted(&format!(r#"{{"number":{number}}}"#)),
            },
            ttl: self.rng.chance(100).then(|| now.millis() / 1_000 + self.rng.within(1..=300)),
            workflow: None,
        }
    }

    pub(crate) fn put_record(&mut self) -> Command {
        let tenant = self.tenant();
        let id = format!("definition-{}", self.rng.below(5));
        let key = RecordKey { kind: RecordKind::Definition, tenant: Some(tenant), id: Arc::from(id) };
        let text = format!("version {}", self.next());
        let value = self.rng.chance(850).then(|| RecordValue::Bytes(Arc::from(text.into_bytes())));
        let expected = self.rng.chance(300).then(|| self.rng.below(3));
        Command::PutRecord(PutRecord { key, value, expires_at: None, expected })
    }

    /// The server cleans up keys, of which some have expired.
    pub(crate) fn forget(&mut self) -> Option<Command> {
        let keys: Vec<RecordKey> = (0..4)
            .filter_map(|_| self.rng.pick(&self.keyed_jobs)?.once.first().map(|once| once.key.clone()))
            .collect();
        (!keys.is_empty()).then_some(Command::Forget(Forget { keys }))
    }

    /// What a producer learns from an answer that reached it.
    pub(crate) fn hear(&mut self, command: &Command, answer: &Answer) {
        if let (Command::AddTasks(add), Ok(Reply::TasksAdded { .. })) = (command, answer)
            && let Some(known) = self.jobs.iter_mut().find(|known| known.job == add.job)
        {
            known.tasks.extend(add.tasks.iter().map(|task| task.task_id.clone()));
            known.specs.extend(add.tasks.iter().cloned());
        }
    }

    fn any_task(&mut self) -> Option<(TenantId, RequestId)> {
        if self.rng.chance(700) {
            let known = self.rng.pick(&self.jobs)?.clone();
            let task = self.rng.pick(&known.tasks)?;
            return Some((known.tenant, known.job.request_id(task)));
        }
        self.rng.pick(&self.alone).map(|task| (task.tenant.clone(), task.request.clone()))
    }

    fn new_task(&mut self) -> NewTask {
        let request = RequestId::trusted(&format!("task-{}", self.next()));
        let spec = Arc::new(shape::spec(&mut self.rng, TaskId::trusted("alone"), Vec::new()));
        NewTask { tenant: self.tenant(), app: self.app(), request, spec }
    }

    fn once(&mut self, tenant: &TenantId, route: &str) -> Once {
        let key = RecordKey::idempotency(tenant, route, &format!("key-{}", self.next()));
        let mut body_hash = [0; 32];
        for byte in &mut body_hash {
            *byte = u8::try_from(self.rng.below(256)).unwrap_or(0);
        }
        Once { key, body_hash, lasting: self.rng.chance(250) }
    }

    fn tenant(&mut self) -> TenantId {
        self.rng.pick(&self.tenants).expect("there are tenants").clone()
    }

    fn app(&mut self) -> AppName {
        AppName::trusted(["shop", "mail"][self.rng.index(2)])
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

fn created(job: &NewJob) -> Prepared {
    let properties = JobCreated {
        job_id: job.job,
        request_id: job.request.clone(),
        name: job.name.as_deref().map(str::to_owned),
        budget: None,
        tasks: Some(job.tasks.iter().map(|task| (**task).clone()).collect()),
        total_tasks: u32::try_from(job.tasks.len()).unwrap_or(u32::MAX),
        overflow: None,
    };
    Prepared { id: None, properties: Json::of(&properties) }
}
