//! Duties that one process of a stage has at a time: an item of the table says who, and until when.
//!
//! A holder that dies is followed by another once its time is over. Clocks that differ make two holders overlap for as
//! long as they differ, which harms nothing that a duty does: every effect is decided on the log.

use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;

use crate::connection::Connection;
use crate::fault::{is_refused, unavailable};
use crate::item::{Item, key_of, number, text};

/// How long a holder may be silent before another takes over.
const TERM: Duration = Duration::from_secs(30);
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// A holder that could not renew for so long stops, before others begin.
const STOP_AFTER: Duration = Duration::from_secs(25);
/// How often those who wait for their turn ask.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Who has which duty. Clones are the same holder.
#[derive(Clone)]
pub struct Roster {
    connection: Connection,
    table: Arc<str>,
    shard: Arc<str>,
    /// Names this process among all that ever were.
    holder: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Roster {
    pub fn new(
        connection: &Connection,
        table: &str,
        shard: &str,
        holder: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let connection = connection.clone();
        Self { connection, table: table.into(), shard: shard.into(), holder: holder.into(), clock }
    }

    /// Waits until this process has the duty.
    pub async fn take(&self, duty: &str) {
        // A table that cannot answer now is asked again.
        while !matches!(self.try_take(duty).await, Ok(true)) {
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    /// Renews the duty until it is lost: another has it, or it could not be renewed in time.
    pub async fn keep(&self, duty: &str) {
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            let asked = tokio::time::Instant::now();
            match tokio::time::timeout_at(renewed + STOP_AFTER, self.try_take(duty)).await {
                Ok(Ok(true)) => renewed = asked,
                // There may be time for another try.
                Ok(Err(_)) => {}
                Ok(Ok(false)) | Err(_) => return,
            }
        }
    }

    /// Lets another have it at once. If that fails its time runs out.
    pub async fn give_back(&self, duty: &str) {
        let delete =
            self.connection.dynamo.delete_item().table_name(&*self.table).set_key(Some(self.key(duty)));
        let delete = delete
            .condition_expression("holder = :me")
            .expression_attribute_values(":me", text(&*self.holder));
        let _ = delete.send().await;
    }

    /// Takes or renews the duty for one term. Says whether this process has it now.
    pub async fn try_take(&self, duty: &str) -> Result<bool, Fault> {
        let now = self.clock.now().millis();
        let term = u64::try_from(TERM.as_millis()).unwrap_or(u64::MAX);
        let put = self.connection.dynamo.put_item().table_name(&*self.table).set_item(Some(self.key(duty)));
        let put = put
            .item("holder", text(&*self.holder))
            .item("heldUntil", number(now + term))
            .condition_expression("attribute_not_exists(PK) OR holder = :me OR heldUntil < :now")
            .expression_attribute_values(":me", text(&*self.holder))
            .expression_attribute_values(":now", number(now));
        match put.send().await {
            Ok(_) => Ok(true),
            Err(error) if is_refused(&error) => Ok(false),
            Err(error) => Err(unavailable("PutItem", error)),
        }
    }

    fn key(&self, duty: &str) -> Item {
        key_of(&format!("DUTY#{}", self.shard), duty)
    }
}
