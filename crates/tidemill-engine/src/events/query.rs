//! Questions for events.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::cursor::Cursor;
use tidemill_model::events::event_query::{EventPage, EventQuery, Order, PAGE_MAX};
use tidemill_model::{Entity, Event, TenantId};

use crate::engine::{Engine, EngineError};
use crate::kernel::backend::Backend;
use crate::kernel::commit::TaskKey;

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

impl<B: Backend> Engine<B> {
    /// A page of events. With `rehydrate`, large fields are put back; a missing blob is then an error.
    pub async fn events(&self, query: EventQuery, rehydrate: bool) -> Result<EventPage, EngineError> {
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
    ) -> Result<EventPage, EngineError> {
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
}
