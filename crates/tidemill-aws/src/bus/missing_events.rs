//! Whether events reached the table, and what is done for those that did not.

use std::collections::HashMap;

use tidemill_engine::backend::Fault;
use tidemill_model::{Event, TenantId, Timestamp};

use crate::bus::outbox::Outbox;
use crate::events::event_item::event_item;
use crate::events::save_event::{Saved, put_event};
use crate::table::batch_get::batch_get;
use crate::table::item::{Item, key_of, read_text};

/// What one call of `BatchGetItem` takes.
const KEYS_MAX: usize = 100;

impl Outbox {
    /// Stores those of the events that the table lacks, and tells whose they are. What has outlived its time may be gone.
    pub(crate) async fn store_missing(
        &self,
        events: &[(u64, Event)],
        now: Timestamp,
    ) -> Result<Vec<TenantId>, Fault> {
        let mut lacking = HashMap::new();
        for (_, event) in events.iter().filter(|(_, event)| !event.is_outlived(now)) {
            let item = event_item(event)?;
            lacking.insert((read_text(&item, "PK")?.to_owned(), read_text(&item, "SK")?.to_owned()), event);
        }
        let keys: Vec<Item> = lacking.keys().map(|(pk, sk)| key_of(pk, sk)).collect();
        for keys in keys.chunks(KEYS_MAX) {
            let attributes = Some("PK, SK");
            for item in batch_get(&self.connection.dynamo, &self.table, keys.to_vec(), attributes).await? {
                lacking.remove(&(read_text(&item, "PK")?.to_owned(), read_text(&item, "SK")?.to_owned()));
            }
        }
        let mut stored = Vec::new();
        for event in lacking.into_values() {
            match put_event(&self.connection, &self.table, event).await {
                Ok(Saved::New) => stored.push(event.tenant.clone()),
                // What the table refuses for good became a dead letter when it was sent.
                Ok(Saved::Known) | Err(Fault::Damaged(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(stored)
    }
}
