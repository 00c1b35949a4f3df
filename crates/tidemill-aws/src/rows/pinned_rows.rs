//! A pin on the rows: while somebody reads all of them, nobody writes newer ones.
//!
//! Commits go on; what they change stays in memory and in the log until the pin is gone. A reader that dies leaves a pin that
//! runs out.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::ReturnValue;
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::warn_seldom;
use tokio::task::JoinHandle;

use crate::backend::Aws;
use crate::fault::{damaged, is_refused, unavailable};
use crate::rows::checkpoint::{CHECKPOINT, Checkpoint, Flush, read_checkpoint};
use crate::rows::row_store::RowStore;
use crate::service_pause::ServicePause;
use crate::table::item::{key_of, number, text};

/// How long a pin lasts that is not renewed. Clocks may differ by some seconds.
const PIN_MILLIS: u64 = 60_000;
const RENEW_EVERY: Duration = Duration::from_secs(15);
/// How often it is tried: others may have pinned them.
const TRIES_MAX: u32 = 12;

/// Rows that stay as they are until this is dropped and its time is over, or it is released.
pub(crate) struct PinnedRows {
    rows: RowStore,
    clock: Arc<dyn Clock>,
    /// Tells it from the pins of others.
    name: String,
    /// The checkpoint that all rows are of.
    pub(crate) checkpoint: Checkpoint,
    pub(crate) flush: Flush,
    renewing: JoinHandle<()>,
}

impl Drop for PinnedRows {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl PinnedRows {
    /// Lets others write rows again. An error says that somebody did before, and what was read is of no one moment.
    pub(crate) async fn release(self) -> Result<(), Fault> {
        self.renewing.abort();
        let update = self.rows.client.update_item().table_name(&*self.rows.table);
        let update = update
            .set_key(Some(key_of(&format!("CURSOR#{}", self.rows.shard()), CHECKPOINT)))
            .update_expression("REMOVE pinnedUntil, pin")
            .condition_expression("#at = :at AND pin = :name AND pinnedUntil > :now")
            .expression_attribute_names("#at", "at")
            .expression_attribute_values(":at", number(self.checkpoint.at))
            .expression_attribute_values(":name", text(&self.name))
            .expression_attribute_values(":now", number(self.clock.now().millis()));
        match update.send().await {
            Ok(_) => Ok(()),
            Err(error) if is_refused(&error) => {
                Err(Fault::Unavailable("the rows were changed while they were read; try again".to_owned()))
            }
            Err(error) => Err(unavailable("UpdateItem", error)),
        }
    }
}

impl RowStore {
    /// Pins the rows, or renews the pin of this name. `None`: somebody else's pin is there.
    async fn set_pin(&self, name: &str, now: u64) -> Result<Option<Checkpoint>, Fault> {
        let update = self.client.update_item().table_name(&*self.table);
        let update = update
            .set_key(Some(key_of(&format!("CURSOR#{}", self.shard()), CHECKPOINT)))
            .update_expression("SET pin = :name, pinnedUntil = :until")
            .condition_expression(
                "attribute_exists(PK) AND (attribute_not_exists(pinnedUntil) OR pinnedUntil <= :now OR pin = :name)",
            )
            .expression_attribute_values(":name", text(name))
            .expression_attribute_values(":until", number(now + PIN_MILLIS))
            .expression_attribute_values(":now", number(now))
            .return_values(ReturnValue::AllNew);
        match update.send().await {
            Ok(updated) => updated.attributes.as_ref().map(read_checkpoint).transpose(),
            Err(error) if is_refused(&error) => Ok(None),
            Err(error) => Err(unavailable("UpdateItem", error)),
        }
    }
}

impl Aws {
    /// Writes down all rows that changed so far and pins them. `None`: nothing was ever written.
    pub(crate) async fn pin_rows(&self) -> Result<Option<PinnedRows>, Fault> {
        let wanted = self.fresh(|core| core.end).await?;
        if wanted == 0 {
            return Ok(None);
        }
        let name = format!(
            "{:032x}",
            self.clock.now().millis().wrapping_mul(1 << 20) ^ u64::from(std::process::id())
        );
        let mut backoff = ServicePause::default();
        for _ in 0..TRIES_MAX {
            self.flush().await?;
            let (rows, clock, name) = (self.rows.clone(), Arc::clone(&self.clock), name.clone());
            let pinned = self.call(async move { pin(rows, clock, name, wanted).await }).await?;
            if pinned.is_some() {
                return Ok(pinned);
            }
            backoff.wait().await;
        }
        Err(Fault::Unavailable("another export of this stage is under way; try again later".to_owned()))
    }
}

async fn pin(
    rows: RowStore,
    clock: Arc<dyn Clock>,
    name: String,
    wanted: u64,
) -> Result<Option<PinnedRows>, Fault> {
    if rows.checkpoint().await?.is_none_or(|found| found.at < wanted) {
        return Ok(None);
    }
    let Some(checkpoint) = rows.set_pin(&name, clock.now().millis()).await? else { return Ok(None) };
    let Some(flush) = rows.flushed(&checkpoint).await? else {
        return Err(damaged(format!(
            "the checkpoint names {}, which is not in the bucket",
            checkpoint.object
        )));
    };
    if checkpoint.written < checkpoint.at {
        // The process that was writing them may be gone. The same row twice is one row.
        rows.write(&flush).await?;
    }
    let renewing = tokio::spawn({
        let (rows, clock, name) = (rows.clone(), Arc::clone(&clock), name.clone());
        async move {
            loop {
                tokio::time::sleep(RENEW_EVERY).await;
                // If it fails until the pin has run out, the release reports it.
                if let Err(fault) = rows.set_pin(&name, clock.now().millis()).await {
                    warn_seldom!(fault, "what an export reads could not be held for longer");
                }
            }
        }
    });
    Ok(Some(PinnedRows { rows, clock, name, checkpoint, flush, renewing }))
}
