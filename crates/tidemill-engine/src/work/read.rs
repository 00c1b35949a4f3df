//! Reading: events, tasks, jobs, dead letters. Nothing of another tenant is ever seen.

use std::sync::Arc;

use tidemill_model::access_path::AccessPath;
use tidemill_model::cursor::Cursor;
use tidemill_model::event_query::{EventQuery, Order, PAGE_MAX, Page};
use tidemill_model::fold::StateSets;
use tidemill_model::{AppName, Entity, Event, JobId, JobStatus, KnownType, TenantId};

use crate::engine::limits::{LIST_MAX, TASK_STATES_EVENTS_MAX};
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, JobSnapshot, TaskSnapshot};
use crate::kernel::commit::{MessageId, TaskKey};
use crate::kernel::record::{DeadLetter, DeadLetterState, RecordKey, RecordKind, RecordValue};

/// Which part of a list, and in which order.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest {
    pub order: Order,
    pub limit: usize,
    pub after: Option<Cursor>,
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { order: Order::Ascending, limit: PAGE_MAX, after: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterPage {
    pub letters: Vec<DeadLetter>,
    /// Where to go on; `None` when nothing follows.
    pub next: Option<MessageId>,
}

/// The events that tell a task's state. Heartbeats are left out: they never change it.
const STATE_TYPES: [KnownType; 6] = [
    KnownType::TaskPending,
    KnownType::TaskProcessingStarted,
    KnownType::TaskProcessingFailed,
    KnownType::TaskCompleted,
    KnownType::TaskFailed,
    KnownType::TaskTimeout,
];

impl<B: Backend> Engine<B> {
    /// A page of events. With `rehydrate`, large fields are put back; a missing blob is then an error.
    pub async fn events(&self, query: EventQuery, rehydrate: bool) -> Result<Page, EngineError> {
        query.check()?;
        let mut page = self.inner.backend.events(query).await?;
        if rehydrate {
            let mut whole = Vec::with_capacity(page.events.len());
            for event in page.events {
                whole.push(self.rehydrate(event).await?);
            }
            page.events = whole;
        }
        Ok(page)
    }

    /// The events of one task.
    pub async fn history(
        &self,
        task: &TaskKey,
        page: PageRequest,
        rehydrate: bool,
    ) -> Result<Page, EngineError> {
        let path = AccessPath::Entity(Entity::task(&task.request));
        let PageRequest { order, limit, after } = page;
        let query = EventQuery { order, limit, after, ..EventQuery::all(task.tenant.clone(), path) };
        self.events(query, rehydrate).await
    }

    /// The latest event of an entity, whole.
    pub async fn latest(&self, tenant: TenantId, entity: Entity) -> Result<Option<Event>, EngineError> {
        match self.inner.backend.latest(tenant, entity).await? {
            Some(event) => self.rehydrate(event).await.map(Some),
            None => Ok(None),
        }
    }

    pub async fn task(&self, task: TaskKey) -> Result<Option<TaskSnapshot>, EngineError> {
        Ok(self.inner.backend.task(task).await?)
    }

    pub async fn job(&self, tenant: TenantId, job: JobId) -> Result<Option<JobSnapshot>, EngineError> {
        Ok(self.inner.backend.job(tenant, job).await?)
    }

    /// A job's tasks in the order they were handed in, from the index `from` on.
    pub async fn job_tasks(
        &self,
        tenant: TenantId,
        job: JobId,
        from: u32,
        limit: usize,
    ) -> Result<Vec<TaskSnapshot>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        Ok(self.inner.backend.job_tasks(tenant, job, from, limit).await?)
    }

    /// A tenant's jobs, newest first, those before `before` if it is given.
    pub async fn jobs(
        &self,
        tenant: TenantId,
        status: Option<JobStatus>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<JobSnapshot>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        Ok(self.inner.backend.jobs(tenant, status, before, limit).await?)
    }

    /// A tenant's dead letters, oldest first; only those in `state` if it is given.
    pub async fn dead_letters(
        &self,
        tenant: TenantId,
        state: Option<DeadLetterState>,
        after: Option<MessageId>,
        limit: usize,
    ) -> Result<DeadLetterPage, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut letters = Vec::new();
        let mut from = after.map(|message| RecordKey::dead_letter(&tenant, message).id);
        loop {
            let records = self.dead_letter_records(&tenant, from.take()).await?;
            let is_last = records.len() < LIST_MAX;
            for (id, letter) in records {
                if letters.len() == limit {
                    let next = letters.last().map(|letter: &DeadLetter| letter.message);
                    return Ok(DeadLetterPage { letters, next });
                }
                letters.extend(letter.filter(|letter| state.is_none_or(|state| letter.state == state)));
                from = Some(id);
            }
            if is_last {
                return Ok(DeadLetterPage { letters, next: None });
            }
        }
    }

    async fn dead_letter_records(
        &self,
        tenant: &TenantId,
        after: Option<Arc<str>>,
    ) -> Result<Vec<(Arc<str>, Option<DeadLetter>)>, EngineError> {
        let (kind, tenant) = (RecordKind::DeadLetter, Some(tenant.clone()));
        let records = self.inner.backend.records(kind, tenant, after, LIST_MAX).await?;
        let letters = records.into_iter().map(|(key, record)| match record.value {
            RecordValue::DeadLetter(letter) => (key.id, Some(letter)),
            _ => (key.id, None),
        });
        Ok(letters.collect())
    }

    /// All tasks of a tenant, or of one of its applications, by state: four sets that never overlap.
    ///
    /// Each task is folded from its own events, so a task that moves meanwhile is in one set all the same.
    pub async fn task_states(
        &self,
        tenant: TenantId,
        app: Option<AppName>,
    ) -> Result<StateSets, EngineError> {
        let mut events = Vec::new();
        for known in STATE_TYPES {
            let path = AccessPath::narrowest(Some(known.event_type()), app.clone(), None);
            let mut query = EventQuery::all(tenant.clone(), path);
            loop {
                let page = self.inner.backend.events(query.clone()).await?;
                events.extend(page.events);
                if events.len() > TASK_STATES_EVENTS_MAX {
                    let problem =
                        format!("more than {TASK_STATES_EVENTS_MAX} events; ask for one application");
                    return Err(EngineError::invalid("tasks", problem));
                }
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
        }
        Ok(StateSets::of(&events)?)
    }
}
