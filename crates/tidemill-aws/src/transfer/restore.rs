//! Filling an empty table from another store.
//!
//! Events, blobs and rows are put where they belong, and the checkpoint last: it makes them count. The log begins
//! behind all numbers that the other store used, so that no follower meets an old event. Nothing is sent, because the
//! other store already reported what happened there. The next reconcile sends tickets for open work.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::piece::Piece;
use tidemill_engine::state::row::{Row, RowKey, is_open};
use tidemill_model::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::connection::Connection;
use crate::events::save_event::put_event;
use crate::fault::{damaged, is_refused, unavailable};
use crate::log::commit_log::CommitLog;
use crate::objects::Objects;
use crate::rows::checkpoint::Flush;
use crate::rows::row_item::{Place, place, row_bytes};
use crate::rows::row_store::RowStore;
use crate::stage::options::AwsOptions;
use crate::table::item::{Item, key_of, number, read_text, text};

/// How many pieces are put at once.
const AT_ONCE: usize = 16;
/// The log begins here. Numbers of events of another store are counted one by one, and stay below.
const FIRST: u64 = 1 << 24;
const MARK: &str = "IMPORT";

/// How much was put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    pub events: u64,
    pub blobs: u64,
    pub rows: u64,
}

/// Why nothing that can be used was made.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("the table {0} is not empty; import into a new one")]
    NotEmpty(String),
    /// Nobody can tell what is in it: rows of the first try would stand beside those of the next.
    #[error("an import into the table {0} runs, or did not come to its end; import into a new one")]
    HalfFull(String),
    /// The other store stopped before it handed over the last piece.
    #[error("what was to be imported broke off")]
    CutOff,
    #[error(transparent)]
    Store(#[from] Fault),
}

/// Refuses a table that something was put into.
pub async fn check_empty(connection: &Connection, options: &AwsOptions) -> Result<(), RestoreError> {
    let objects = Objects::new(connection, &options.bucket);
    let log = CommitLog::new(connection, objects.clone(), &options.table, &options.shard);
    let rows = RowStore::new(connection, objects, &options.table, &options.shard);
    if rows.checkpoint().await?.is_some() {
        return Err(RestoreError::NotEmpty(options.table.clone()));
    }
    if mark_of(connection, &options.table, &options.shard).await?.is_some() {
        return Err(RestoreError::HalfFull(options.table.clone()));
    }
    if log.get(1).await?.is_some() {
        return Err(RestoreError::NotEmpty(options.table.clone()));
    }
    Ok(())
}

/// Puts the pieces into an empty table and bucket. After an error they are worthless.
pub async fn restore(
    connection: &Connection,
    options: &AwsOptions,
    mut pieces: mpsc::Receiver<Piece>,
) -> Result<Restored, RestoreError> {
    let objects = Objects::new(connection, &options.bucket);
    let log = CommitLog::new(connection, objects.clone(), &options.table, &options.shard);
    let rows = RowStore::new(connection, objects.clone(), &options.table, &options.shard);
    check_empty(connection, options).await?;
    if !begin(connection, options).await? {
        return Err(RestoreError::HalfFull(options.table.clone()));
    }
    let mut done = Restored::default();
    let mut open = BTreeSet::new();
    let mut last_id = 0;
    let mut putting: JoinSet<Result<(), Fault>> = JoinSet::new();
    let table: Arc<str> = Arc::from(options.table.as_str());
    loop {
        let piece = pieces.recv().await.ok_or(RestoreError::CutOff)?;
        while putting.len() >= AT_ONCE
            && let Some(put) = putting.join_next().await
        {
            put.map_err(|error| unavailable("a put ended", error))??;
        }
        match piece {
            Piece::Event(event) => {
                done.events += 1;
                last_id = last_id.max(event.id.as_u128());
                let (connection, table) = (connection.clone(), Arc::clone(&table));
                putting.spawn(async move { put_event(&connection, &table, &event).await.map(drop) });
            }
            Piece::Blob { tenant, key, bytes } => {
                done.blobs += 1;
                let objects = objects.clone();
                putting.spawn(async move { objects.put_blob(&tenant, &key, bytes).await });
            }
            Piece::Row(row) => {
                done.rows += 1;
                let (key, row) = *row;
                if matches!(key, RowKey::Message(_)) || is_open(&key, &row) == Some(true) {
                    open.insert(key.clone());
                }
                if let (RowKey::Message(id), Row::Message(_)) = (&key, &row) {
                    last_id = last_id.max(id.0);
                }
                let (rows, place) = (rows.clone(), place(rows.shard(), &key));
                putting.spawn(async move { put_row(&rows, &place, row_bytes(&row)).await });
            }
            Piece::End => break,
        }
    }
    while let Some(put) = putting.join_next().await {
        put.map_err(|error| unavailable("a put ended", error))??;
    }
    if !log.begin_behind(FIRST).await? {
        return Err(RestoreError::NotEmpty(options.table.clone()));
    }
    let cursor = key_of(&format!("CURSOR#{}", options.shard), "OUTBOX");
    let update = connection.dynamo.update_item().table_name(&options.table).set_key(Some(cursor));
    let update = update.update_expression("SET sentUpTo = :sent");
    let update = update.expression_attribute_values(":sent", number(FIRST));
    update.send().await.map_err(|error| unavailable("UpdateItem", error))?;
    let flush = Flush { at: FIRST, last_id, rows: Vec::new(), open };
    if !rows.flush(&flush, "import", Timestamp::MIN).await? {
        return Err(RestoreError::NotEmpty(options.table.clone()));
    }
    let put = connection.dynamo.put_item().table_name(&options.table);
    let put = put.set_item(Some(mark(options, "done", options.seed)));
    put.send().await.map_err(|error| unavailable("PutItem", error))?;
    Ok(done)
}

/// Puts a row. One that is there already is not ours, unless a put was made twice because its answer was lost.
async fn put_row(rows: &RowStore, place: &Place, bytes: Vec<u8>) -> Result<(), Fault> {
    if rows.write_row(place, FIRST, Some(bytes.clone())).await? || rows.holds(place, &bytes).await? {
        return Ok(());
    }
    Err(damaged(format!("another row is at {} {} already", place.pk, place.sk)))
}

fn mark(options: &AwsOptions, state: &str, by: u64) -> Item {
    let mut mark = key_of(&format!("CURSOR#{}", options.shard), MARK);
    mark.insert("state".to_owned(), text(state));
    mark.insert("by".to_owned(), text(format!("{by:016x}")));
    mark
}

/// Sets the first mark, unless there is one: of two imports only one goes on.
async fn begin(connection: &Connection, options: &AwsOptions) -> Result<bool, Fault> {
    let own = mark(options, "running", options.seed);
    let put = connection.dynamo.put_item().table_name(&options.table).set_item(Some(own.clone()));
    match put.condition_expression("attribute_not_exists(PK)").send().await {
        Ok(_) => Ok(true),
        // Ours, if a put whose answer was lost has been made twice.
        Err(error) if is_refused(&error) => {
            Ok(mark_of(connection, &options.table, &options.shard).await? == Some(own))
        }
        Err(error) => Err(unavailable("PutItem", error)),
    }
}

async fn mark_of(connection: &Connection, table: &str, shard: &str) -> Result<Option<Item>, Fault> {
    let key = key_of(&format!("CURSOR#{shard}"), MARK);
    let get = connection.dynamo.get_item().table_name(table).set_key(Some(key));
    let found = get.consistent_read(true).send().await.map_err(|error| unavailable("GetItem", error))?;
    Ok(found.item)
}

/// Refuses a table that an import has left half full.
pub(crate) async fn check_whole(connection: &Connection, table: &str, shard: &str) -> Result<(), Fault> {
    match mark_of(connection, table, shard).await? {
        Some(mark) if read_text(&mark, "state")? == "running" => {
            Err(damaged("an import into this table runs, or did not come to its end; import into a new one"))
        }
        _ => Ok(()),
    }
}
