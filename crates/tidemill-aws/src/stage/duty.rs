//! Duties that one process of a stage has at a time: an item of the table says which one, and until when.
//!
//! A holder that dies is followed by another once its time is over. Clocks that differ make two holders overlap for as
//! long as they differ, which harms nothing that a duty does: every effect is decided on the log.

use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;
use tidemill_engine::warn_seldom;

use crate::connection::Connection;
use crate::fault::{causes, is_refused, unavailable};
use crate::table::item::{Item, key_of, number, text};

/// How far two clocks may be from each other: each may be 15 seconds off.
const CLOCKS_DIFFER_MILLIS: u64 = 30_000;

/// How duties pass from one process to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a holder may be silent before another takes over.
    pub term: Duration,
    pub renew_every: Duration,
    /// A holder that could not renew for this long stops, before others begin.
    pub stop_after: Duration,
    /// How often a waiting process asks for its turn.
    pub ask_every: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            term: Duration::from_secs(30),
            renew_every: Duration::from_secs(10),
            stop_after: Duration::from_secs(25),
            ask_every: Duration::from_secs(5),
        }
    }
}

impl Terms {
    /// How long it takes at most until another process has the duty of one that died, if there is one and the table
    /// answers.
    pub fn takeover_max(&self) -> Duration {
        self.term + self.ask_every
    }
}

/// Which process has which duty. Clones are the same holder.
#[derive(Clone)]
pub struct Roster {
    connection: Connection,
    table: Arc<str>,
    shard: Arc<str>,
    /// Names this process among all that ever were.
    holder: Arc<str>,
    clock: Arc<dyn Clock>,
    terms: Terms,
}

impl Roster {
    pub fn new(
        connection: &Connection,
        table: &str,
        shard: &str,
        holder: &str,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            connection: connection.clone(),
            table: table.into(),
            shard: shard.into(),
            holder: holder.into(),
            clock,
            terms: Terms::default(),
        }
    }

    /// The same under other terms. All processes of a stage must have the same.
    #[must_use]
    pub fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    /// Waits until this process has the duty.
    pub async fn take(&self, duty: &str) {
        // A table that cannot answer now is asked again.
        loop {
            match self.try_take(duty).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(fault) => warn_seldom!(fault, duty, "a duty could not be asked for"),
            }
            tokio::time::sleep(self.terms.ask_every).await;
        }
    }

    /// Renews the duty until it is lost: another has it, or it could not be renewed in time.
    pub async fn keep(&self, duty: &str) {
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(self.terms.renew_every).await;
            let asked = tokio::time::Instant::now();
            match tokio::time::timeout_at(renewed + self.terms.stop_after, self.try_take(duty)).await {
                Ok(Ok(true)) => renewed = asked,
                // There may be time for another try.
                Ok(Err(fault)) => warn_seldom!(fault, duty, "a duty could not be renewed"),
                Ok(Ok(false)) | Err(_) => return,
            }
        }
    }

    /// Lets another have it at once. If that fails its time runs out.
    pub async fn give_back(&self, duty: &str) {
        let update = self.connection.dynamo.update_item().table_name(&*self.table);
        let update = update
            .set_key(Some(self.key(duty)))
            .update_expression("SET heldUntil = :now")
            .condition_expression("holder = :me")
            .expression_attribute_values(":now", number(0))
            .expression_attribute_values(":me", text(&*self.holder));
        match update.send().await {
            // Another has it already.
            Err(error) if is_refused(&error) => {}
            Ok(_) => {}
            Err(error) => {
                warn_seldom!(causes(&error), duty, "a duty could not be given back; its time runs out");
            }
        }
    }

    /// Takes or renews the duty for one term. Says whether this process has it now.
    pub async fn try_take(&self, duty: &str) -> Result<bool, Fault> {
        let now = self.clock.now().millis();
        let term = u64::try_from(self.terms.term.as_millis()).unwrap_or(u64::MAX);
        let put = self.connection.dynamo.put_item().table_name(&*self.table).set_item(Some(self.key(duty)));
        let put = put
            .item("holder", text(&*self.holder))
            .item("heldUntil", number(now + term))
            .condition_expression(
                "attribute_not_exists(PK) OR holder = :me OR heldUntil < :now OR heldUntil > :never",
            )
            // No process with a correct clock holds it that long.
            .expression_attribute_values(":never", number(now + term + CLOCKS_DIFFER_MILLIS))
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
