//! Which events belong to an export that ends with one item of the log.
//!
//! The table has events by their times and does not say which item they are of. So those of later items are read from the log
//! while the export goes on, and left out; and those of the last minutes, which the bus may still hold, are read from it too.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_model::events::event_query::{EventPage, EventQuery};
use tidemill_model::{Event, EventId};

use crate::backend::Aws;
use crate::deciding::core::Core;
use crate::events::event_page;
use crate::log::commit_log::CommitLog;

/// How long the way from the bus to the table may take. Events that were put on it before are read from the table.
const LATELY_MILLIS: u64 = 10 * 60_000;

pub(crate) struct ExportWindow {
    log: CommitLog,
    /// The item behind those that were looked at.
    next: u64,
    /// Events that came after the export's end.
    later: HashSet<EventId>,
    /// Events from just before it, which the table may not have yet.
    pub(crate) lately: Vec<Event>,
}

impl ExportWindow {
    pub(crate) async fn open(store: &Aws, end: u64) -> Result<Self, Fault> {
        let (log, since) = (store.log.clone(), store.now().minus(LATELY_MILLIS));
        store
            .call(async move {
                let mut next = log.first_since(since, end).await?;
                let mut lately = Vec::new();
                while next <= end {
                    let items = log.from(next).await?;
                    if items.is_empty() {
                        break;
                    }
                    for item in items.into_iter().take_while(|item| item.number <= end) {
                        let events = Core::read_events(&item)?.events;
                        lately.extend(events.iter().map(|(_, event)| event.clone()));
                        next = item.number + 1;
                    }
                }
                Ok(Self { log, next: end + 1, later: HashSet::new(), lately })
            })
            .await
    }

    /// A page of events, without those that came after the end.
    pub(crate) async fn page(&mut self, store: &Aws, query: EventQuery) -> Result<EventPage, Fault> {
        let lately = self.lately.iter().filter(|event| query.matches(event)).cloned().collect();
        let (connection, table, now) = (store.connection.clone(), Arc::clone(&store.table), store.now());
        let page =
            store.call(async move { event_page::page(&connection, &table, &query, lately, now).await });
        let mut page = page.await?;
        // An event is in the log before it can be in the table. What comes behind the log's end as it is now is for the next page.
        let end = store.fresh(|core| core.end).await?;
        while self.next <= end {
            let (log, next) = (self.log.clone(), self.next);
            let items = store.call(async move { log.from(next).await }).await?;
            let Some(last) = items.last() else { break };
            self.next = last.number + 1;
            for item in &items {
                let events = Core::read_events(item)?.events;
                self.later.extend(events.iter().map(|(_, event)| event.id));
            }
        }
        page.events.retain(|event| !self.later.contains(&event.id));
        Ok(page)
    }
}
