//! Rows in the table: what is finished, and what is live as of the newest checkpoint.
//!
//! Each is written with the number of the log that it reflects, and never over a newer one. `checkpoint` says which of them count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::types::AttributeValue;
use tidemill_engine::backend::Fault;
use tidemill_engine::state::row::{JobRows, Row, RowKey};
use tidemill_model::{JobId, TenantId};

use crate::connection::Connection;
use crate::fault::{damaged, is_refused, unavailable};
use crate::objects::Objects;
use crate::rows::row_item::{Place, job_partition, part_of_job, place, read_row};
use crate::rows::row_scan::Scan;
use crate::table::batch_get::batch_get;
use crate::table::item::{Item, binary, key_of, number, read_bytes, read_number, read_text, text};

/// Larger rows lie in S3.
const INLINE_BYTES_MAX: usize = 350_000;
/// How many rows one call reads.
pub(crate) const ROWS_AT_ONCE: usize = 100;
/// More tasks of a job are read with all that lies between them: rows are small, and each that is read alone costs as
/// much as one of 4 KB.
const TASKS_ONE_BY_ONE_MAX: usize = 10;

#[derive(Debug, Clone)]
pub(crate) struct RowStore {
    pub(crate) client: aws_sdk_dynamodb::Client,
    pub(super) objects: Objects,
    pub(crate) table: Arc<str>,
    pub(super) shard: Arc<str>,
}

/// A row as it was when the log had `at` items; `None`: it was gone.
#[derive(Debug, Clone)]
pub(crate) struct RowAt {
    pub(crate) at: u64,
    pub(crate) row: Option<Row>,
}

/// A job, and the newest number that one of its parts reflects.
pub(crate) struct JobAt {
    pub(crate) at: u64,
    pub(crate) rows: JobRows,
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

    /// Rows as readers want them, in the order of `keys`.
    pub(crate) async fn rows(&self, keys: &[RowKey]) -> Result<Vec<Option<Row>>, Fault> {
        if let [key] = keys {
            return Ok(vec![self.row(key).await?]);
        }
        if keys.len() > TASKS_ONE_BY_ONE_MAX
            && let Some(found) = self.tasks_of_one_job(keys).await?
        {
            return Ok(found);
        }
        let mut found = HashMap::new();
        for some in keys.chunks(ROWS_AT_ONCE) {
            found.extend(self.get_many(some).await?);
        }
        Ok(keys.iter().map(|key| found.remove(key).and_then(|found| found.row)).collect())
    }

    /// The rows of tasks of one job, by one question for all that lies between them. `None` if the keys are others.
    async fn tasks_of_one_job(&self, keys: &[RowKey]) -> Result<Option<Vec<Option<Row>>>, Fault> {
        let is_in_job = |key: &RowKey| matches!(key, RowKey::Task(task) if task.request.job_part().is_some());
        let places: Vec<Place> = keys.iter().map(|key| place(&self.shard, key)).collect();
        if !keys.iter().all(is_in_job) || places.windows(2).any(|two| two[0].pk != two[1].pk) {
            return Ok(None);
        }
        let at: BTreeMap<&str, usize> = places.iter().map(|place| place.sk.as_str()).zip(0..).collect();
        let (Some((first, _)), Some((last, _))) = (at.first_key_value(), at.last_key_value()) else {
            return Ok(None);
        };
        // What is cut off sorts before all that begins with the rest.
        let before = first.char_indices().next_back().map(|(end, _)| first[..end].to_owned());
        let mut scan = Scan::prefix(places[0].pk.clone(), String::new(), before);
        let mut found = vec![None; keys.len()];
        while let Some((sk, row)) = scan.next(self).await?
            && sk.as_str() <= *last
        {
            if let Some(index) = at.get(sk.as_str()) {
                found[*index] = row.row;
            }
        }
        Ok(Some(found))
    }

    /// A job with its tasks, if it is stored.
    pub(crate) async fn job(&self, tenant: &TenantId, job: JobId) -> Result<Option<JobAt>, Fault> {
        let Some(RowAt { at, row: Some(Row::Job(head)) }) =
            self.get(&RowKey::Job(tenant.clone(), job)).await?
        else {
            return Ok(None);
        };
        let (mut at, mut rows) = (at, JobRows::new(head));
        let mut scan = Scan::all(job_partition(&self.shard, tenant, job));
        while let Some((sk, found)) = scan.next(self).await? {
            at = at.max(found.at);
            match (part_of_job(tenant, job, &sk), found.row) {
                (Some(key), Some(row)) => rows.push(key, row),
                (None, Some(Row::JobTasks(_))) => return Err(damaged("a list of tasks has no place")),
                _ => {}
            }
        }
        Ok(Some(JobAt { at, rows }))
    }

    pub(super) async fn read(&self, item: &Item) -> Result<RowAt, Fault> {
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
            // A removed row leaves a mark, so that a process that is behind does not take it for one that never was.
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
