//! Rows in the table: what is finished, and what is live as of the newest checkpoint.
//!
//! Rows are written in the background. Since no transaction spans so many of them, a checkpoint makes them count at once:
//! all rows that changed go into one object, the checkpoint item is moved to it, and only then are the rows themselves
//! written, each with the number of the log it reflects. Who opens the store after somebody died in between writes them
//! first. So no row is ever ahead of the checkpoint, and none that the checkpoint covers is missing.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use tidemill_engine::backend::Fault;
use tidemill_engine::codec::stored::{Stored, read_all, read_all_v1};
use tidemill_engine::codec::{BadBytes, Reader, put_varint};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::state::job::{Entry, JobHead};
use tidemill_engine::state::row::{Row, RowKey, TaskRow};
use tidemill_model::{JobId, TaskSpec, TenantId, Timestamp};
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::fault::{damaged, is_refused, unavailable};
use crate::objects::Objects;
use crate::rows::row_item::{Place, job_partition, place, read_row, row_bytes};
use crate::table::batch_get::batch_get;
use crate::table::item::{Item, binary, key_of, number, read_bytes, read_number, read_text, text};

/// Larger rows lie in S3.
const INLINE_BYTES_MAX: usize = 350_000;
/// How many rows one call reads.
pub(crate) const ROWS_AT_ONCE: usize = 100;
/// How many rows are written at once.
const WRITES_AT_ONCE: usize = 16;
pub(crate) const CHECKPOINT: &str = "ROWS";
const VERSION: u8 = 2;
/// The form before: fields without numbers.
const VERSION_1: u8 = 1;

#[derive(Debug, Clone)]
pub(crate) struct RowStore {
    pub(crate) client: aws_sdk_dynamodb::Client,
    objects: Objects,
    pub(crate) table: Arc<str>,
    shard: Arc<str>,
}

/// A row as it was when the log had so many items; `None`: it was gone.
#[derive(Debug, Clone)]
pub(crate) struct RowAt {
    pub(crate) at: u64,
    pub(crate) row: Option<Row>,
}

/// A job with all its parts, and the newest number that one of them reflects.
pub(crate) struct JobRows {
    pub(crate) at: u64,
    pub(crate) head: JobHead,
    pub(crate) tasks: Vec<(u32, Vec<Arc<TaskSpec>>)>,
    pub(crate) entries: Vec<(TaskKey, Entry)>,
}

/// Up to where the rows count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The number of the log they reflect.
    pub(crate) at: u64,
    /// Up to where they are written.
    pub(crate) written: u64,
    pub(crate) object: String,
    /// Until then nobody writes newer rows, in epoch milliseconds: somebody reads them.
    pub(crate) pinned_until: u64,
}

/// What a checkpoint's object holds.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    pub(crate) at: u64,
    /// The newest id that was minted.
    pub(crate) last_id: u128,
    pub(crate) rows: Vec<(RowKey, Option<Row>)>,
    /// All rows that must be in memory from the start.
    pub(crate) open: BTreeSet<RowKey>,
}

impl RowStore {
    pub(crate) fn new(connection: &Connection, objects: Objects, table: &str, shard: &str) -> Self {
        Self { client: connection.dynamo.clone(), objects, table: table.into(), shard: shard.into() }
    }

    pub(crate) fn shard(&self) -> &str {
        &self.shard
    }

    /// What the keys of all rows begin with that lie in S3.
    pub(crate) fn objects(&self) -> String {
        format!("rows/ROW#{}#", self.shard)
    }

    /// Whether a row says that it lies in this object.
    pub(crate) async fn names(&self, object: &str) -> Result<bool, Fault> {
        let inner = object.strip_prefix("rows/").and_then(|rest| rest.rsplit_once('/'));
        let Some((place, _)) = inner else { return Ok(true) };
        // Either part may hold the sign between them.
        for (at, _) in place.match_indices('/') {
            let key = key_of(&place[..at], &place[at + 1..]);
            let get =
                self.client.get_item().table_name(&*self.table).set_key(Some(key)).consistent_read(true);
            let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
            if found.item.is_some_and(|item| read_text(&item, "object").is_ok_and(|named| named == object)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) async fn get(&self, key: &RowKey) -> Result<Option<RowAt>, Fault> {
        let Place { pk, sk } = place(&self.shard, key);
        let get = self.client.get_item().table_name(&*self.table).set_key(Some(key_of(&pk, &sk)));
        let found = get.consistent_read(true).send().await.map_err(|error| unavailable("GetItem", error))?;
        match found.item {
            Some(item) => self.read(&item).await.map(Some),
            None => Ok(None),
        }
    }

    /// Those of at most [`ROWS_AT_ONCE`] rows that are there, in no order.
    pub(crate) async fn get_many(&self, keys: &[RowKey]) -> Result<Vec<(RowKey, RowAt)>, Fault> {
        let mut places: HashMap<(String, String), &RowKey> = HashMap::new();
        for key in keys {
            let Place { pk, sk } = place(&self.shard, key);
            places.insert((pk, sk), key);
        }
        let wanted: Vec<Item> = places.keys().map(|(pk, sk)| key_of(pk, sk)).collect();
        let mut found = Vec::with_capacity(wanted.len());
        for item in batch_get(&self.client, &self.table, wanted, None).await? {
            let place = (read_text(&item, "PK")?.to_owned(), read_text(&item, "SK")?.to_owned());
            if let Some(key) = places.get(&place) {
                found.push(((*key).clone(), self.read(&item).await?));
            }
        }
        Ok(found)
    }

    /// A row as readers want it: what is gone is nothing.
    pub(crate) async fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        Ok(self.get(key).await?.and_then(|found| found.row))
    }

    /// A job with its tasks, if it is stored.
    pub(crate) async fn job(&self, tenant: &TenantId, job: JobId) -> Result<Option<JobRows>, Fault> {
        let Some(RowAt { at, row: Some(Row::Job(head)) }) =
            self.get(&RowKey::Job(tenant.clone(), job)).await?
        else {
            return Ok(None);
        };
        let mut rows = JobRows { at, head, tasks: Vec::new(), entries: Vec::new() };
        let mut scan = Scan::all(job_partition(&self.shard, tenant, job));
        while let Some((sk, found)) = scan.next(self).await? {
            rows.at = rows.at.max(found.at);
            match found.row {
                Some(Row::JobTasks(tasks)) => {
                    let first = sk.strip_prefix("LIST#").and_then(|digits| digits.parse().ok());
                    rows.tasks.push((first.ok_or_else(|| damaged("a list of tasks has no place"))?, tasks));
                }
                Some(Row::Task(TaskRow { entry, .. })) => {
                    let request = sk.strip_prefix("TASK#").unwrap_or_default();
                    let request = tidemill_model::RequestId::trusted(request);
                    rows.entries.push((TaskKey { tenant: tenant.clone(), request }, entry));
                }
                _ => {}
            }
        }
        Ok(Some(rows))
    }

    async fn read(&self, item: &Item) -> Result<RowAt, Fault> {
        let at = read_number(item, "at")?;
        let bytes = match read_bytes(item, "row") {
            Some(bytes) => bytes.to_vec(),
            None if item.contains_key("gone") => return Ok(RowAt { at, row: None }),
            None => {
                let key = read_text(item, "object")?;
                let found = self.objects.get(key).await?;
                found.ok_or_else(|| damaged(format!("a row names {key}, which is not there")))?
            }
        };
        let row = read_row(&bytes).map_err(|error| damaged(format!("a row {error}")))?;
        Ok(RowAt { at, row: Some(row) })
    }

    pub(crate) async fn checkpoint(&self) -> Result<Option<Checkpoint>, Fault> {
        let key = key_of(&format!("CURSOR#{}", self.shard), CHECKPOINT);
        let get = self.client.get_item().table_name(&*self.table).set_key(Some(key)).consistent_read(true);
        let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
        found.item.as_ref().map(read_checkpoint).transpose()
    }

    /// What a checkpoint says; `None` when another has replaced it.
    pub(crate) async fn flushed(&self, checkpoint: &Checkpoint) -> Result<Option<Flush>, Fault> {
        let Some(bytes) = self.objects.get(&checkpoint.object).await? else { return Ok(None) };
        Flush::decode(&bytes).map(Some).map_err(|error| damaged(format!("a checkpoint {error}")))
    }

    /// Makes rows count. Says whether they do: if not, somebody else's newer ones do, or will.
    pub(crate) async fn flush(&self, flush: &Flush, nonce: &str, now: Timestamp) -> Result<bool, Fault> {
        let before = self.checkpoint().await?;
        if let Some(before) = &before
            && before.at >= flush.at
        {
            return Ok(before.written >= flush.at);
        }
        if before.as_ref().is_some_and(|before| before.pinned_until > now.millis()) {
            return Ok(false);
        }
        let object = format!("checkpoints/{}/{:020}-{nonce}", self.shard, flush.at);
        self.objects.put(&object, flush.encode()).await?;
        let mut item = key_of(&format!("CURSOR#{}", self.shard), CHECKPOINT);
        item.insert("at".to_owned(), number(flush.at));
        // What the one before did not get written is among our rows: nobody lets a row go that is not.
        item.insert("written".to_owned(), number(before.as_ref().map_or(0, |before| before.written)));
        item.insert("object".to_owned(), text(object.clone()));
        let put = self.client.put_item().table_name(&*self.table).set_item(Some(item));
        let put = put.condition_expression(
            "attribute_not_exists(PK) OR (#at < :at AND (attribute_not_exists(pinnedUntil) OR pinnedUntil <= :now))",
        );
        let put = put.expression_attribute_names("#at", "at");
        let put = put.expression_attribute_values(":now", number(now.millis()));
        match put.expression_attribute_values(":at", number(flush.at)).send().await {
            Ok(_) => {}
            Err(error) if is_refused(&error) => {
                // Ours, if a put whose answer was lost has been made twice.
                let found = self.checkpoint().await?;
                if found.as_ref().is_none_or(|found| found.object != object) {
                    self.objects.remove(&object).await?;
                    return Ok(found.is_some_and(|found| found.written >= flush.at));
                }
            }
            Err(error) => return Err(unavailable("PutItem", error)),
        }
        self.write(flush).await?;
        if let Some(before) = before {
            self.objects.remove(&before.object).await?;
        }
        Ok(true)
    }

    /// Writes the rows of a checkpoint that counts.
    pub(crate) async fn write(&self, flush: &Flush) -> Result<(), Fault> {
        let mut writing = JoinSet::new();
        for (key, row) in &flush.rows {
            while writing.len() >= WRITES_AT_ONCE
                && let Some(written) = writing.join_next().await
            {
                written.map_err(|error| unavailable("PutItem", error))??;
            }
            let (rows, place, at) = (self.clone(), place(&self.shard, key), flush.at);
            let bytes = row.as_ref().map(row_bytes);
            writing.spawn(async move { rows.write_row(&place, at, bytes).await.map(drop) });
        }
        while let Some(written) = writing.join_next().await {
            written.map_err(|error| unavailable("PutItem", error))??;
        }
        let key = key_of(&format!("CURSOR#{}", self.shard), CHECKPOINT);
        let update = self.client.update_item().table_name(&*self.table).set_key(Some(key));
        let update = update.update_expression("SET written = :at").condition_expression("#at = :at");
        let update = update.expression_attribute_names("#at", "at");
        match update.expression_attribute_values(":at", number(flush.at)).send().await {
            Ok(_) => Ok(()),
            // A newer checkpoint covers them.
            Err(error) if is_refused(&error) => Ok(()),
            Err(error) => Err(unavailable("UpdateItem", error)),
        }
    }

    /// Writes one row, unless a newer one is there; says whether it did.
    pub(crate) async fn write_row(
        &self,
        place: &Place,
        at: u64,
        bytes: Option<Vec<u8>>,
    ) -> Result<bool, Fault> {
        let mut item = key_of(&place.pk, &place.sk);
        item.insert("at".to_owned(), number(at));
        match bytes {
            // What is gone leaves a mark, so that nobody who is behind takes it for something that never was.
            None => {
                item.insert("gone".to_owned(), AttributeValue::Bool(true));
            }
            Some(bytes) if bytes.len() <= INLINE_BYTES_MAX => {
                item.insert("row".to_owned(), binary(bytes));
            }
            Some(bytes) => {
                let key = format!("rows/{}/{}/{at:020}", place.pk, place.sk);
                self.objects.put(&key, bytes).await?;
                item.insert("object".to_owned(), text(key));
            }
        }
        let put = self.client.put_item().table_name(&*self.table).set_item(Some(item));
        let put = put.condition_expression("attribute_not_exists(PK) OR #at < :at");
        let put = put.expression_attribute_names("#at", "at");
        match put.expression_attribute_values(":at", number(at)).send().await {
            Ok(_) => Ok(true),
            Err(error) if is_refused(&error) => Ok(false),
            Err(error) => Err(unavailable("PutItem", error)),
        }
    }

    /// Whether just these bytes are in a row's place.
    pub(crate) async fn holds(&self, place: &Place, bytes: &[u8]) -> Result<bool, Fault> {
        let key = key_of(&place.pk, &place.sk);
        let get = self.client.get_item().table_name(&*self.table).set_key(Some(key)).consistent_read(true);
        let found = get.send().await.map_err(|error| unavailable("GetItem", error))?;
        let Some(item) = found.item else { return Ok(false) };
        match read_text(&item, "object") {
            Ok(object) => Ok(self.objects.get(object).await?.as_deref() == Some(bytes)),
            Err(_) => Ok(read_bytes(&item, "row") == Some(bytes)),
        }
    }
}

pub(crate) fn read_checkpoint(item: &Item) -> Result<Checkpoint, Fault> {
    Ok(Checkpoint {
        at: read_number(item, "at")?,
        written: read_number(item, "written")?,
        object: read_text(item, "object")?.to_owned(),
        pinned_until: read_number(item, "pinnedUntil").unwrap_or(0),
    })
}

/// Goes through the rows of a partition, page by page.
pub(crate) struct Scan {
    pk: String,
    prefix: String,
    /// Only what lies behind it, or before it when it goes backward.
    beyond: Option<String>,
    backward: bool,
    /// Whether rows that are gone count.
    with_gone: bool,
    ready: std::vec::IntoIter<Item>,
    last: Option<Item>,
    is_over: bool,
}

impl Scan {
    pub(crate) fn all(pk: String) -> Self {
        Self {
            pk,
            prefix: String::new(),
            beyond: None,
            backward: false,
            with_gone: false,
            ready: Vec::new().into_iter(),
            last: None,
            is_over: false,
        }
    }

    /// Those that are gone too.
    pub(crate) fn with_gone(pk: String) -> Self {
        Self { with_gone: true, ..Self::all(pk) }
    }

    /// Those whose sort keys begin with `prefix`, and lie behind `after`.
    pub(crate) fn prefix(pk: String, prefix: String, after: Option<String>) -> Self {
        Self { prefix, beyond: after, ..Self::all(pk) }
    }

    /// Those before `before`, the last one first.
    pub(crate) fn backward(pk: String, before: Option<String>) -> Self {
        Self { beyond: before, backward: true, ..Self::all(pk) }
    }

    /// The next row with its sort key. What is gone is passed over, unless it counts.
    pub(crate) async fn next(&mut self, rows: &RowStore) -> Result<Option<(String, RowAt)>, Fault> {
        loop {
            for item in self.ready.by_ref() {
                let sk = read_text(&item, "SK")?.to_owned();
                let is_beyond = self
                    .beyond
                    .as_ref()
                    .is_none_or(|beyond| if self.backward { sk < *beyond } else { sk > *beyond });
                let found = rows.read(&item).await?;
                if is_beyond && sk.starts_with(&self.prefix) && (self.with_gone || found.row.is_some()) {
                    return Ok(Some((sk, found)));
                }
            }
            if self.is_over {
                return Ok(None);
            }
            self.page(rows).await?;
        }
    }

    async fn page(&mut self, rows: &RowStore) -> Result<(), Fault> {
        let query = rows.client.query().table_name(&*rows.table).consistent_read(true);
        let query = query.expression_attribute_values(":pk", text(self.pk.clone()));
        let query = query.scan_index_forward(!self.backward).set_exclusive_start_key(self.last.take());
        // The keys behind `after` are not a prefix's; what is read too much is passed over.
        let query = match (&self.beyond, self.prefix.is_empty()) {
            (Some(beyond), _) => {
                let sign = if self.backward { "<" } else { ">" };
                let query = query.key_condition_expression(format!("PK = :pk AND SK {sign} :sk"));
                query.expression_attribute_values(":sk", text(beyond.clone()))
            }
            (None, true) => query.key_condition_expression("PK = :pk"),
            (None, false) => {
                let query = query.key_condition_expression("PK = :pk AND begins_with(SK, :sk)");
                query.expression_attribute_values(":sk", text(self.prefix.clone()))
            }
        };
        let answer = query.send().await.map_err(|error| unavailable("Query", error))?;
        self.last = answer.last_evaluated_key;
        let items = answer.items.unwrap_or_default();
        // Behind the prefix there is nothing more to find.
        let is_past = !self.backward
            && items
                .last()
                .map(|item| read_text(item, "SK"))
                .transpose()?
                .is_some_and(|sk| !sk.starts_with(&self.prefix) && sk > self.prefix.as_str());
        self.is_over = self.last.is_none() || is_past;
        self.ready = items.into_iter();
        Ok(())
    }
}

impl Flush {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.at);
        out.extend_from_slice(&self.last_id.to_le_bytes());
        put_varint(&mut out, self.rows.len() as u64);
        for (key, row) in &self.rows {
            put_apart(&mut out, key);
            // A row that is gone has no bytes.
            put_apart(&mut out, row);
        }
        put_varint(&mut out, self.open.len() as u64);
        for key in &self.open {
            put_apart(&mut out, key);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, BadBytes> {
        let mut reader = Reader::new(bytes);
        let version = reader.byte()?;
        if version != VERSION && version != VERSION_1 {
            return Err(BadBytes("has a version this release does not know"));
        }
        let key = |bytes: &[u8]| -> Result<RowKey, BadBytes> {
            if version == VERSION_1 { read_all_v1(bytes) } else { read_all(bytes) }
        };
        let row = |bytes: &[u8]| -> Result<Option<Row>, BadBytes> {
            match bytes {
                _ if version == VERSION_1 => read_all_v1(bytes),
                [] => Ok(None),
                _ => read_all(bytes).map(Some),
            }
        };
        let mut flush = Self { at: reader.varint()?, ..Self::default() };
        flush.last_id = u128::from_le_bytes(reader.array()?);
        for _ in 0..reader.varint()? {
            flush.rows.push((key(take_apart(&mut reader)?)?, row(take_apart(&mut reader)?)?));
        }
        for _ in 0..reader.varint()? {
            flush.open.insert(key(take_apart(&mut reader)?)?);
        }
        if reader.is_at_end() { Ok(flush) } else { Err(BadBytes("goes on after its end")) }
    }
}

/// Values of version 1 are read to the end of their bytes, so each is told how long it is.
fn put_apart(out: &mut Vec<u8>, value: &impl Stored) {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(&bytes);
}

fn take_apart<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], BadBytes> {
    let length = usize::try_from(reader.varint()?).map_err(|_| BadBytes("holds a value without end"))?;
    reader.take(length)
}
