//! The latest event of an entity.
//!
//! The table gets events through the bus, which may take long, and its indexes are behind it. The state knows the key
//! of an entity's latest event: the event is read by that key, and from the log while the table does not have it. So
//! a decision that rests on it, as a child's on the outputs of its parents, is not misled.

use tidemill_engine::backend::Fault;
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_engine::state::stream::Stream;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{Entity, Event, Position, TenantId};

use crate::backend::Aws;
use crate::deciding::core::Core;
use crate::events::event_item::read_event;
use crate::fault::unavailable;
use crate::log::group::group_of;
use crate::table::item::key_of;

impl Aws {
    pub(crate) async fn latest_of(&self, tenant: TenantId, entity: Entity) -> Result<Option<Event>, Fault> {
        let stream = self.stream_of(&tenant, &entity).await?;
        let known = match &stream {
            Some(stream) => self.last_of(&tenant, stream).await?,
            None => None,
        };
        let known = known.filter(|event| !event.is_outlived(self.now()));
        // Events of others may be put on the bus by anybody; those of tasks and jobs are all in the log.
        if known.is_some() && matches!(entity.kind.as_str(), "TASK" | "JOB") {
            return Ok(known);
        }
        let mut query = EventQuery::all(tenant, AccessPath::Entity(entity));
        (query.order, query.limit) = (Order::Descending, 1);
        let found = self.page(query).await?.events.pop();
        Ok(found.into_iter().chain(known).max_by_key(Event::position))
    }

    /// What the state and the rows know of an entity's events.
    async fn stream_of(&self, tenant: &TenantId, entity: &Entity) -> Result<Option<Stream>, Fault> {
        let key = RowKey::of_entity(tenant, entity);
        let found = self.fresh(|core| {
            let is_here = core.is_here(&key);
            is_here.then(|| core.state.stream(tenant, entity))
        });
        if let Some(stream) = found.await? {
            return Ok(stream);
        }
        let rows = self.rows.clone();
        let row = self.call(async move { rows.row(&key).await }).await?;
        Ok(row.and_then(Row::into_stream))
    }

    /// The last event of a stream: what is in memory, the table and the log have of it.
    async fn last_of(&self, tenant: &TenantId, stream: &Stream) -> Result<Option<Event>, Fault> {
        let Some(last) = stream.last else { return Ok(None) };
        let tips = [stream.history.main.tip(), stream.history.aside.tip()].into_iter().flatten();
        let groups: Vec<u64> = tips.map(|seq| group_of(seq.0)).collect();
        let recent = self.writer.core.look(|core| {
            let recent = groups.iter().filter_map(|group| core.recent.group(*group));
            recent.flatten().find(|(_, event)| event.id == last.id).map(|(_, event)| event.clone())
        });
        if let Some(event) = recent.await {
            return Ok(Some(event));
        }
        if let Some(event) = self.stored_event(tenant, last).await? {
            return Ok(Some(event));
        }
        let log = self.log.clone();
        self.call(async move {
            for group in groups {
                if let Some(item) = log.get(group).await? {
                    let events = Core::read_events(&item)?.events;
                    if let Some((_, event)) = events.iter().find(|(_, event)| event.id == last.id) {
                        return Ok(Some(event.clone()));
                    }
                }
            }
            Ok(None)
        })
        .await
    }

    /// An event by its key, which needs no index.
    async fn stored_event(&self, tenant: &TenantId, at: Position) -> Result<Option<Event>, Fault> {
        let key = key_of(
            &format!("TENANT#{tenant}"),
            &format!("TIMESTAMP#{}#EVENT#{}", at.timestamp.millis(), at.id),
        );
        let get = self.connection.dynamo.get_item().table_name(&*self.table).set_key(Some(key));
        let get = get.consistent_read(true);
        self.call(async move {
            let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
            found.item.map(read_event).transpose()
        })
        .await
    }
}
