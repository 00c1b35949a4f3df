//! The commit log: one item per group of commits, each put only if nobody put it before.
//!
//! The put of item n + 1 is the commit. Of all processes that try, one succeeds; a process that fails was behind.

use std::time::Duration;

use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use tidemill_engine::backend::Fault;
use tidemill_model::Timestamp;

use crate::connection::Connection;
use crate::fault::{damaged, is_refused, unavailable};
use crate::objects::Objects;
use crate::table::batch_get::batch_get;
use crate::table::item::{
    Item, binary, key_of, number as item_number, read_bytes, read_number, read_text, text,
};

const SORT_KEY: &str = "LOG";
const PUT_AT: &str = "putAt";
const TRIMMED: &str = "trimmed";
const TRIMMED_UP_TO: &str = "trimmedUpTo";
/// Larger groups lie in S3. An item may have 400 KB with its names.
const INLINE_BYTES_MAX: usize = 350_000;
/// How many items are read at once when there are more.
const BATCH: u64 = 32;
/// How many items are looked for behind one that another process put a moment ago. One that is not there costs as much
/// as one that is.
const BATCH_AFTER_LOSS: u64 = 8;
/// How often a put without a clear answer is made again, the pauses doubling.
const PUT_TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Tells the puts of one process from those of all others.
pub(crate) type Nonce = [u8; 16];

#[derive(Debug, Clone)]
pub(crate) struct CommitLog {
    client: aws_sdk_dynamodb::Client,
    objects: Objects,
    table: String,
    shard: String,
}

/// Which process made the item.
#[derive(Debug)]
pub(crate) enum Put {
    Ours,
    /// What they put.
    Theirs(LogItem),
}

/// An item of the log.
#[derive(Debug, Clone)]
pub(crate) struct LogItem {
    pub(crate) number: u64,
    pub(crate) nonce: Vec<u8>,
    /// What it holds; `None` once it is trimmed.
    pub(crate) group: Option<Vec<u8>>,
    put_at: u64,
    object: Option<String>,
}

impl CommitLog {
    pub(crate) fn new(connection: &Connection, objects: Objects, table: &str, shard: &str) -> Self {
        Self { client: connection.dynamo.clone(), objects, table: table.to_owned(), shard: shard.to_owned() }
    }

    fn partition(&self, number: u64) -> String {
        format!("LOG#{}#{number:020}", self.shard)
    }

    /// Makes item `number`, unless it is there.
    ///
    /// A put that got no answer may have succeeded, or may still do so. The log makes it again with the same bytes,
    /// and the nonce of the item says which process made it; so the answer is right whichever put arrived.
    pub(crate) async fn put(
        &self,
        number: u64,
        nonce: &Nonce,
        group: &[u8],
        now: Timestamp,
    ) -> Result<Put, Fault> {
        let mut item = key_of(&self.partition(number), SORT_KEY);
        item.insert(PUT_AT.to_owned(), item_number(now.millis()));
        item.insert("nonce".to_owned(), binary(*nonce));
        if group.len() <= INLINE_BYTES_MAX {
            item.insert("group".to_owned(), binary(group));
        } else {
            let key = format!("log/{}/{number:020}-{:032x}", self.shard, u128::from_be_bytes(*nonce));
            self.objects.put(&key, group.to_vec()).await?;
            item.insert("object".to_owned(), text(key));
        }
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            tries += 1;
            let put = self.client.put_item().table_name(&self.table).set_item(Some(item.clone()));
            let put = put
                .condition_expression("attribute_not_exists(PK)")
                .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
            let Err(error) = put.send().await else { return Ok(Put::Ours) };
            if is_refused(&error) {
                // The refusal contains the item that is there, so that the loser can continue from it at once.
                let found = match item_of_error(&error) {
                    Some(item) => Some(self.read(number, item).await?),
                    None => self.get(number).await?,
                };
                return match found {
                    Some(found) if found.nonce == nonce => Ok(Put::Ours),
                    Some(found) => Ok(Put::Theirs(found)),
                    None => Err(damaged(format!("item {number} of the log was there and is gone"))),
                };
            }
            if tries == PUT_TRIES {
                return Err(unavailable("PutItem", error));
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    pub(crate) async fn get(&self, number: u64) -> Result<Option<LogItem>, Fault> {
        let key = key_of(&self.partition(number), SORT_KEY);
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key)).consistent_read(true);
        let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
        match found.item {
            Some(item) => self.read(number, &item).await.map(Some),
            None => Ok(None),
        }
    }

    /// The items from `number` on, without a hole, some of them if there are many.
    pub(crate) async fn from(&self, number: u64) -> Result<Vec<LogItem>, Fault> {
        let Some(first) = self.get(number).await? else { return Ok(Vec::new()) };
        let mut found = vec![first];
        found.append(&mut self.batch(number + 1, BATCH).await?);
        Ok(found)
    }

    /// The first item up to `end` that was put at `since` or later; the one behind `end` if there is none.
    pub(crate) async fn first_since(&self, since: Timestamp, end: u64) -> Result<u64, Fault> {
        // Older ones may be missing: the log of a store that was imported begins late.
        let (mut low, mut high) = (0, end + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let key = key_of(&self.partition(middle), SORT_KEY);
            let get = self.client.get_item().table_name(&self.table).set_key(Some(key));
            let get = get.projection_expression(PUT_AT).consistent_read(true);
            let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
            let put_at = found.item.map_or(0, |item| read_number(&item, PUT_AT).unwrap_or(0));
            if put_at >= since.millis() { high = middle } else { low = middle }
        }
        Ok(high)
    }

    /// The items right behind one that was put a moment ago.
    pub(crate) async fn behind(&self, item: &LogItem) -> Result<Vec<LogItem>, Fault> {
        self.batch(item.number + 1, BATCH_AFTER_LOSS).await
    }

    /// At most `count` items from `number` on, without a hole.
    async fn batch(&self, number: u64, count: u64) -> Result<Vec<LogItem>, Fault> {
        let numbers = number..number + count;
        let wanted = numbers.clone().map(|number| key_of(&self.partition(number), SORT_KEY)).collect();
        let mut items = std::collections::BTreeMap::new();
        for item in batch_get(&self.client, &self.table, wanted, None).await? {
            items.insert(read_text(&item, "PK")?.to_owned(), item);
        }
        let mut found = Vec::new();
        for next in numbers {
            let Some(item) = items.remove(&self.partition(next)) else { break };
            found.push(self.read(next, &item).await?);
        }
        Ok(found)
    }

    async fn read(&self, number: u64, item: &Item) -> Result<LogItem, Fault> {
        let nonce = read_bytes(item, "nonce").unwrap_or_default().to_vec();
        let put_at = read_number(item, PUT_AT).unwrap_or(0);
        let object = read_text(item, "object").ok().map(str::to_owned);
        let group = match (read_bytes(item, "group"), &object) {
            (Some(group), _) => Some(group.to_vec()),
            (None, Some(key)) => match self.objects.get(key).await? {
                Some(group) => Some(group),
                // Trimmed between the two calls, or lost.
                None if self.is_trimmed(number).await? => None,
                None => {
                    let problem = format!("item {number} of the log names {key}, which is not there");
                    return Err(damaged(problem));
                }
            },
            (None, None) if item.contains_key(TRIMMED) => None,
            (None, None) => return Err(damaged(format!("item {number} of the log holds nothing"))),
        };
        Ok(LogItem { number, nonce, group, put_at, object })
    }

    async fn is_trimmed(&self, number: u64) -> Result<bool, Fault> {
        let key = key_of(&self.partition(number), SORT_KEY);
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key)).consistent_read(true);
        let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
        Ok(found.item.is_some_and(|item| item.contains_key(TRIMMED)))
    }

    /// The number of the last item that was emptied.
    pub(crate) async fn trimmed(&self) -> Result<u64, Fault> {
        let get = self.client.get_item().table_name(&self.table).set_key(Some(self.trim_cursor()));
        let found = get.consistent_read(true).send().await.map_err(|error| unavailable("GetItem", error))?;
        found.item.map_or(Ok(0), |item| read_number(&item, TRIMMED_UP_TO))
    }

    /// Some of the items behind `number` up to `up_to` that were put before `before`. None when there are no more.
    pub(crate) async fn old(
        &self,
        number: u64,
        up_to: u64,
        before: Timestamp,
    ) -> Result<Vec<LogItem>, Fault> {
        if number >= up_to {
            return Ok(Vec::new());
        }
        let items = self.from(number + 1).await?.into_iter();
        let is_old = |item: &LogItem| item.group.is_none() || item.put_at < before.millis();
        Ok(items.take_while(|item| item.number <= up_to && is_old(item)).collect())
    }

    /// Empties items, which follow each other from the last that was emptied on.
    ///
    /// The items themselves stay: a process that slept for days and believes that the log ends there must not be able
    /// to put another one in its place.
    pub(crate) async fn trim(&self, items: &[LogItem]) -> Result<(), Fault> {
        let Some(last) = items.last() else { return Ok(()) };
        for item in items {
            self.empty(item).await?;
        }
        let update = self.client.update_item().table_name(&self.table).set_key(Some(self.trim_cursor()));
        let update = update.update_expression("SET trimmedUpTo = :number");
        let update = update.expression_attribute_values(":number", item_number(last.number));
        update.send().await.map(drop).map_err(|error| unavailable("UpdateItem", error))
    }

    fn trim_cursor(&self) -> Item {
        key_of(&format!("CURSOR#{}", self.shard), SORT_KEY)
    }

    async fn empty(&self, item: &LogItem) -> Result<(), Fault> {
        let key = key_of(&self.partition(item.number), SORT_KEY);
        let update = self.client.update_item().table_name(&self.table).set_key(Some(key));
        let update = update
            .update_expression("SET trimmed = :yes REMOVE #group, #object")
            .condition_expression("attribute_exists(PK)")
            .expression_attribute_names("#group", "group")
            .expression_attribute_names("#object", "object")
            .expression_attribute_values(":yes", AttributeValue::Bool(true));
        update.send().await.map_err(|error| unavailable("UpdateItem", error))?;
        match &item.object {
            Some(object) => self.objects.remove(object).await,
            None => Ok(()),
        }
    }

    /// Makes an empty log that goes on behind item `number`.
    pub(crate) async fn begin_behind(&self, number: u64) -> Result<bool, Fault> {
        let stub = |number| {
            let mut stub = key_of(&self.partition(number), SORT_KEY);
            stub.insert("nonce".to_owned(), binary([0; 16]));
            stub.insert(TRIMMED.to_owned(), AttributeValue::Bool(true));
            stub
        };
        let put = self.client.put_item().table_name(&self.table).set_item(Some(stub(1)));
        match put.condition_expression("attribute_not_exists(PK)").send().await {
            Ok(_) => {}
            Err(error) if is_refused(&error) => {
                let key = key_of(&self.partition(1), SORT_KEY);
                let get = self.client.get_item().table_name(&self.table).set_key(Some(key));
                let found = get.consistent_read(true).send().await;
                let found = found.map_err(|error| unavailable("GetItem", error))?;
                // Ours, if a put whose answer was lost has been made twice.
                if found.item.as_ref() != Some(&stub(1)) {
                    return Ok(false);
                }
            }
            Err(error) => return Err(unavailable("PutItem", error)),
        }
        let put = self.client.put_item().table_name(&self.table).set_item(Some(stub(number)));
        put.send().await.map_err(|error| unavailable("PutItem", error))?;
        let mut cursor = key_of(&format!("CURSOR#{}", self.shard), SORT_KEY);
        cursor.insert(TRIMMED_UP_TO.to_owned(), item_number(number));
        let put = self.client.put_item().table_name(&self.table).set_item(Some(cursor));
        put.send().await.map(|_| true).map_err(|error| unavailable("PutItem", error))
    }

    /// The object that item `number` names.
    pub(crate) async fn object_of(&self, number: u64) -> Result<Option<String>, Fault> {
        let key = key_of(&self.partition(number), SORT_KEY);
        let get = self.client.get_item().table_name(&self.table).set_key(Some(key)).consistent_read(true);
        let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
        Ok(found.item.and_then(|item| read_text(&item, "object").ok().map(str::to_owned)))
    }
}

/// What a refused put found in its place, if the answer says so.
fn item_of_error<R>(error: &SdkError<PutItemError, R>) -> Option<&Item> {
    match error.as_service_error()? {
        PutItemError::ConditionalCheckFailedException(refusal) => refusal.item(),
        _ => None,
    }
}
