//! A commit being written: stamping, events, dispatch.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_model::events::properties::{TaskIdentity, TaskPending};
use tidemill_model::{
    AppName, Entity, Event, EventId, EventType, JobId, Json, KnownType, LastError, RequestId, TaskSpec,
    TenantId, Timestamp, WorkerId,
};

use crate::kernel::commit::{
    Commit, Delivered, Message, MessageId, RecordWrite, TaskChange, TaskChangeKind, TaskKey, Visibility,
};
use crate::kernel::decision::Circumstances;
use crate::kernel::policy::Policy;
use crate::kernel::record::{DeadLetter, DeadLetterState, Record, RecordKey, RecordValue};
use crate::kernel::site::{Origin, Site};
use crate::kernel::state::job::Job;
use crate::kernel::state::{Deliveries, TaskPlace, TaskRef};
use crate::outbound::Lane;
use crate::triage::notes::Notes;

pub(crate) struct Draft<'a, 'c> {
    circumstances: &'a mut Circumstances<'c>,
    commit: Commit,
    /// When the last event of a job was stamped that another one of it may follow in this commit.
    last_job_event: Option<(Entity, Timestamp)>,
    notes: Notes,
    /// Deliveries that waited before, and those that begin here.
    waiting: &'a Deliveries,
    begun: BTreeMap<(TenantId, Lane), usize>,
    /// An event of another sender that stands for the one of its type and entity that this decision would write.
    sent: Option<Event>,
}

/// Whose event it is: the same for all events of one task or job.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) tenant: TenantId,
    pub(crate) app: AppName,
    pub(crate) entity: Entity,
    /// The latest timestamp of the entity, kept up to date while events are drafted.
    pub(crate) last: Option<Timestamp>,
}

impl Subject {
    /// Its next event is not stamped before this moment.
    pub(crate) fn not_before(&mut self, at: Option<Timestamp>) {
        let last = at.map(|at| Timestamp::clamped(at.millis().saturating_sub(1)));
        self.last = self.last.max(last);
    }
}

impl<'a, 'c> Draft<'a, 'c> {
    pub(crate) fn new(circumstances: &'a mut Circumstances<'c>, waiting: &'a Deliveries) -> Self {
        Self {
            circumstances,
            commit: Commit::default(),
            last_job_event: None,
            notes: Notes::default(),
            waiting,
            begun: BTreeMap::new(),
            sent: None,
        }
    }

    /// The next event of this type and entity is this one, as it was sent.
    pub(crate) fn stands_for(&mut self, sent: Event) {
        self.sent = Some(sent);
    }

    pub(crate) fn into_commit(self) -> Commit {
        let mut commit = self.commit;
        self.notes.flush(&mut commit);
        commit
    }

    /// What is drafted so far.
    pub(crate) fn commit(&self) -> &Commit {
        &self.commit
    }

    /// How many deliveries of a tenant wait, those that begin here included.
    pub(crate) fn waiting(&self, tenant: &TenantId, lane: Lane) -> usize {
        let begun = self.begun.get(&(tenant.clone(), lane)).copied().unwrap_or_default();
        self.waiting.count(tenant, lane) + begun
    }

    pub(crate) fn began(&mut self, tenant: &TenantId, lane: Lane) {
        *self.begun.entry((tenant.clone(), lane)).or_default() += 1;
    }

    /// The triage records that this decision reads and writes.
    pub(crate) fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.circumstances.now
    }

    pub(crate) fn policy(&self) -> &'c Policy {
        self.circumstances.policy
    }

    pub(crate) fn site(&self) -> &'c Site {
        self.circumstances.site
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.circumstances.ids.random()
    }

    pub(crate) fn event_id(&mut self) -> EventId {
        let now = self.now();
        self.circumstances.ids.event_id(now)
    }

    /// Takes an id that was made elsewhere; those made here from now on are above it.
    pub(crate) fn take_id(&mut self, id: EventId) -> EventId {
        self.circumstances.ids.rise_above(id);
        id
    }

    pub(crate) fn message_id(&mut self) -> MessageId {
        MessageId(self.event_id().as_u128())
    }

    pub(crate) fn record(&mut self, write: RecordWrite) {
        self.commit.records.push(write);
    }

    pub(crate) fn change(&mut self, task: &TaskKey, kind: TaskChangeKind) {
        self.commit.tasks.push(TaskChange { task: task.clone(), kind });
    }

    pub(crate) fn settle(&mut self, message: Option<MessageId>) {
        self.commit.settle.extend(message);
    }

    pub(crate) fn show_at(&mut self, message: MessageId, visible_at: Timestamp, delivered: Delivered) {
        let wait_millis = visible_at.since(self.now());
        self.commit.visibility.push(Visibility { message, visible_at, delivered, wait_millis });
    }

    pub(crate) fn enqueue(&mut self, task: &TaskKey, run: u32, not_before: Timestamp) -> MessageId {
        let id = self.message_id();
        let task = task.clone();
        let wait_millis = not_before.since(self.now());
        self.commit.enqueue.push(Message { id, task, run, not_before, priority: 0, key: None, wait_millis });
        id
    }

    pub(crate) fn reserve(&mut self, tasks: usize) {
        self.commit.tasks.reserve(tasks);
        self.commit.enqueue.reserve(tasks);
        self.commit.events.reserve(tasks);
    }

    /// The subject of a task's events.
    pub(crate) fn task_subject(&self, key: &TaskKey, task: &TaskRef<'_>) -> Subject {
        let app = match task.place {
            TaskPlace::Alone(alone) => alone.app.clone(),
            TaskPlace::InJob { job, .. } => job.head.app.clone(),
        };
        let last = task.entry.stream.last_timestamp();
        Subject { tenant: key.tenant.clone(), app, entity: self.site().task(&key.request), last }
    }

    pub(crate) fn job_subject(&self, job: &Job) -> Subject {
        let entity = self.site().job(job.head.job);
        let told = self.last_job_event.as_ref().filter(|(told, _)| *told == entity).map(|(_, at)| *at);
        let last = job.head.stream.last_timestamp().max(told);
        Subject { tenant: job.head.tenant.clone(), app: job.head.app.clone(), entity, last }
    }

    /// When the last event of a task was stamped that is drafted so far.
    pub(crate) fn last_time_of(&self, task: &RequestId) -> Option<Timestamp> {
        let entity = self.site().task(task);
        self.commit.events.iter().rev().find(|event| event.entity == entity).map(|event| event.timestamp)
    }

    /// Another event of the job may follow in this commit, and is stamped after the last one.
    pub(crate) fn note_job_event(&mut self, subject: &Subject) {
        self.last_job_event = subject.last.map(|last| (subject.entity.clone(), last));
    }

    /// Appends an event of a task or a job. Its time is now, or just after the entity's last event.
    pub(crate) fn event(&mut self, subject: &mut Subject, known: KnownType, by: By<'_>, properties: Json) {
        let event_type = self.site().event_type(known);
        self.event_of(subject, event_type, by, properties);
    }

    /// The same for an event of any type.
    pub(crate) fn event_of(
        &mut self,
        subject: &mut Subject,
        event_type: EventType,
        by: By<'_>,
        properties: Json,
    ) {
        let now = self.now();
        let is_sent = |sent: &mut Event| sent.event_type == event_type && sent.entity == subject.entity;
        if let Some(sent) = self.sent.take_if(is_sent) {
            subject.last = subject.last.max(Some(sent.timestamp));
            self.commit.events.push(Event { received_at: now, ..sent });
            return;
        }
        let timestamp = match subject.last {
            Some(last) if last >= now => last.plus(1),
            _ => now,
        };
        subject.last = Some(timestamp);
        let id = match by.id {
            Some(id) => id,
            None => self.event_id(),
        };
        let site = self.site();
        self.commit.events.push(Event {
            id,
            tenant: subject.tenant.clone(),
            app: subject.app.clone(),
            entity: subject.entity.clone(),
            event_type,
            timestamp,
            received_at: now,
            context: site.context(by.origin, by.worker),
            properties,
            ttl: None,
            beside: None,
        });
    }

    /// The event that was appended last.
    pub(crate) fn last_event(&self) -> Option<(EventId, Timestamp)> {
        self.commit.events.last().map(|event| (event.id, event.timestamp))
    }

    /// The same in whole.
    pub(crate) fn last_whole_event(&self) -> Option<&Event> {
        self.commit.events.last()
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        self.commit.events.push(event);
    }

    /// Makes a task of a job runnable: head, message and `Task Pending`.
    pub(crate) fn dispatch(&mut self, job: &JobFacts<'_>, spec: &TaskSpec, origin: Origin) {
        let key = TaskKey { tenant: job.tenant.clone(), request: job.job.request_id(&spec.task_id) };
        self.change(&key, TaskChangeKind::Dispatch);
        self.enqueue(&key, 1, self.now());
        let mut subject = Subject {
            tenant: job.tenant.clone(),
            app: job.app.clone(),
            entity: self.site().task(&key.request),
            last: None,
        };
        let identity = TaskIdentity {
            request_id: key.request,
            job_id: Some(job.job),
            task_id: Some(spec.task_id.clone()),
            run: 1,
        };
        let pending = TaskPending::in_job(identity, spec.name.clone(), &spec.depends_on);
        self.event(&mut subject, KnownType::TaskPending, By::component(origin), Json::of(&pending));
    }

    /// Keeps a message that will not be delivered again.
    pub(crate) fn bury(
        &mut self,
        task: &TaskKey,
        message: MessageId,
        run: u32,
        reason: &str,
        last_error: Option<LastError>,
    ) {
        let key = RecordKey::dead_letter(&task.tenant, message);
        let value = RecordValue::DeadLetter(DeadLetter {
            message,
            request: task.request.clone(),
            run,
            reason: Arc::from(reason),
            since: self.now(),
            state: DeadLetterState::Open,
            last_error,
        });
        self.record(RecordWrite::Put { key, record: Some(Record { version: 1, expires_at: None, value }) });
        self.settle(Some(message));
    }
}

/// The author of an event, and its id if that is fixed already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By<'a> {
    pub(crate) origin: Origin,
    pub(crate) worker: Option<&'a WorkerId>,
    pub(crate) id: Option<EventId>,
}

impl<'a> By<'a> {
    pub(crate) fn component(origin: Origin) -> Self {
        Self { origin, worker: None, id: None }
    }

    pub(crate) fn worker(worker: &'a WorkerId) -> Self {
        Self { origin: Origin::Worker, worker: Some(worker), id: None }
    }
}

/// What dispatching needs to know of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobFacts<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) app: &'a AppName,
    pub(crate) job: JobId,
}

impl<'a> JobFacts<'a> {
    pub(crate) fn of(job: &'a Job) -> Self {
        Self { tenant: &job.head.tenant, app: &job.head.app, job: job.head.job }
    }
}

/// The identity that a task's events carry.
pub(crate) fn identity(request: &RequestId, task: &TaskRef<'_>) -> TaskIdentity {
    let run = task.entry.head.as_ref().map_or(1, |head| head.run);
    match task.place {
        TaskPlace::Alone(_) => TaskIdentity { request_id: request.clone(), job_id: None, task_id: None, run },
        TaskPlace::InJob { job, index } => TaskIdentity {
            request_id: request.clone(),
            job_id: Some(job.head.job),
            task_id: Some(job.node(index).spec.task_id.clone()),
            run,
        },
    }
}

/// What a task does, wherever it is kept.
pub(crate) fn job_name_of(task: &TaskRef<'_>) -> Option<Arc<str>> {
    match task.place {
        TaskPlace::Alone(_) => None,
        TaskPlace::InJob { job, .. } => job.head.name.clone(),
    }
}

pub(crate) fn spec_of(task: &TaskRef<'_>) -> Arc<TaskSpec> {
    match task.place {
        TaskPlace::Alone(alone) => Arc::clone(&alone.spec),
        TaskPlace::InJob { job, index } => Arc::clone(&job.node(index).spec),
    }
}
