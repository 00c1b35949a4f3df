//! Whether events reached the table, and what is done for those that did not.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::KeysAndAttributes;
use tidemill_engine::backend::Fault;
use tidemill_model::{Event, TenantId, Timestamp};

use crate::event_item::event_item;
use crate::fault::unavailable;
use crate::item::{Item, key_of, read_text};
use crate::outbox::Outbox;
use crate::pause::Pause;
use crate::save_event::{Saved, put_event};

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
            for place in self.known(keys.to_vec()).await? {
                lacking.remove(&place);
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

    /// Which of the keys are in the table.
    async fn known(&self, mut wanted: Vec<Item>) -> Result<Vec<(String, String)>, Fault> {
        let mut known = Vec::with_capacity(wanted.len());
        let mut pause = Pause::default();
        loop {
            let keys = KeysAndAttributes::builder()
                .set_keys(Some(wanted))
                .projection_expression("PK, SK")
                .consistent_read(true)
                .build();
            let keys = keys.map_err(|error| unavailable("BatchGetItem", error))?;
            let answer =
                self.connection.dynamo.batch_get_item().request_items(&self.table, keys).send().await;
            let answer = answer.map_err(|error| unavailable("BatchGetItem", error))?;
            for item in
                answer.responses.into_iter().filter_map(|mut tables| tables.remove(&self.table)).flatten()
            {
                known.push((read_text(&item, "PK")?.to_owned(), read_text(&item, "SK")?.to_owned()));
            }
            let mut rest = answer.unprocessed_keys.unwrap_or_default();
            wanted = rest.remove(&self.table).map(|rest| rest.keys).unwrap_or_default();
            if wanted.is_empty() {
                return Ok(known);
            }
            pause.wait().await;
        }
    }
}
