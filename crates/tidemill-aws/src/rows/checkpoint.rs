//! Checkpoints: all rows that changed begin to count at once.
//!
//! Rows are written in the background. No transaction spans that many rows, so a checkpoint makes them count at once:
//! all changed rows go into one object, the checkpoint item is moved to it, and only then are the rows themselves
//! written, each with the number of the log it reflects. If a process died in between, the next one that opens the
//! store writes them first. So no row is ever ahead of the checkpoint, and none that the checkpoint covers is
//! missing.

use std::collections::BTreeSet;

use tidemill_engine::backend::Fault;
use tidemill_engine::codec::stored::{Stored, read_all, read_all_v1};
use tidemill_engine::codec::{BadBytes, Reader, put_varint};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::Timestamp;
use tokio::task::JoinSet;

use crate::fault::{damaged, is_refused, unavailable};
use crate::rows::row_item::{place, row_bytes};
use crate::rows::row_store::RowStore;
use crate::table::item::{Item, key_of, number, read_number, read_text, text};

/// How many rows are written at once.
const WRITES_AT_ONCE: usize = 16;
pub(crate) const CHECKPOINT: &str = "ROWS";
const VERSION: u8 = 2;
/// The form before: fields without numbers.
const VERSION_1: u8 = 1;

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
}

pub(crate) fn read_checkpoint(item: &Item) -> Result<Checkpoint, Fault> {
    Ok(Checkpoint {
        at: read_number(item, "at")?,
        written: read_number(item, "written")?,
        object: read_text(item, "object")?.to_owned(),
        pinned_until: read_number(item, "pinnedUntil").unwrap_or(0),
    })
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

/// Values of version 1 are read to the end of their bytes, so each stands behind its length.
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
