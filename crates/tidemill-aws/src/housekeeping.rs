//! What nobody needs any more: groups of the log, records whose time is over, objects that nothing names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::command::{Alert, Command, Forget};
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{Record, RecordKey, RecordKind, RecordValue};
use tidemill_engine::reply::Reply;
use tidemill_engine::state::row::Row;
use tidemill_model::{Json, TenantId, Timestamp};

use crate::backend::Aws;
use crate::deciding::core::Core;
use crate::fault::{is_refused, unavailable};
use crate::log::group::group_of;
use crate::rows::row_item::{record_key, records_partition};
use crate::rows::row_scan::Scan;
use crate::table::item::{key_of, number};

/// How often what is outdated is looked for. It takes a walk over all records of some kinds.
const EVERY_MILLIS: u64 = 24 * 3_600_000;
/// An object that nothing names is let go when it is so old: what names it may be on its way.
const OBJECT_MILLIS: u64 = 24 * 3_600_000;
/// How many records one command removes.
const FORGET_MAX: usize = 1_000;
/// The kinds of records that have a time to live.
const FORGOTTEN: [RecordKind; 5] =
    [RecordKind::Idempotency, RecordKind::Execution, RecordKind::Triage, RecordKind::Token, RecordKind::Bulk];
const CURSOR: &str = "HOUSEKEEPING";
/// The alert that events did not find their way from the bus to the table.
const LATE_EVENTS: &str = "events_not_stored";

/// What is kept of that alert.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct LateEvents<'a> {
    alert: &'static str,
    message: &'a str,
    raised_at: Timestamp,
}

/// What was let go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Housekept {
    /// Groups of the log that were emptied.
    #[serde(rename = "groupsTrimmed")]
    pub groups: u64,
    pub records: u64,
    pub objects: u64,
    /// Events that had not reached the table by the time their group was emptied, and were stored from it.
    #[serde(rename = "eventsStored")]
    pub events: u64,
}

/// What became of groups of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trimmed {
    pub groups: u64,
    /// How many events the table lacked until then, by their tenants.
    pub stored: BTreeMap<TenantId, u64>,
}

impl Aws {
    /// Lets go what nobody needs. Most of it is done once a day, by whichever process comes first.
    pub async fn keep_house(&self) -> Result<Housekept, Fault> {
        let trimmed = self.trim_log().await?;
        let mut done = Housekept {
            groups: trimmed.groups,
            events: trimmed.stored.values().sum(),
            ..Housekept::default()
        };
        if trimmed.groups > 0 {
            self.report_late_events(&trimmed.stored).await?;
        }
        if self.is_turn().await? {
            done.records = self.forget_outdated().await?;
            done.objects = self.sweep_objects(Duration::from_millis(OBJECT_MILLIS)).await?;
        }
        Ok(done)
    }

    /// Empties groups of the log that are old, sent, in the rows, and seen by all followers with a cursor.
    ///
    /// The bus may have accepted an event that is not stored yet. So events of a group that the table still lacks are
    /// stored from the group itself, before the only whole copy goes.
    pub async fn trim_log(&self) -> Result<Trimmed, Fault> {
        let (rows, outbox) = (self.rows.clone(), self.outbox.clone());
        let reached = self.call(async move {
            let written = rows.checkpoint().await?.map_or(0, |checkpoint| checkpoint.written);
            Ok(written.min(outbox.cursor().await?))
        });
        let mut up_to = reached.await?;
        let mut after = None;
        loop {
            let cursors = self.all_records(RecordKind::Cursor, after, FORGET_MAX).await?;
            let Some((last, _)) = cursors.last() else { break };
            after = Some(last.clone());
            for (_, cursor) in &cursors {
                // Of the group where it stands it may not have seen all.
                up_to = up_to.min(group_of(place_of(cursor)).saturating_sub(1));
            }
        }
        let keep = u64::try_from(self.keep_log.as_millis()).unwrap_or(u64::MAX);
        let (log, before) = (self.log.clone(), self.clock.now().minus(keep));
        let (outbox, now) = (self.outbox.clone(), self.clock.now());
        self.call(async move {
            let mut done = Trimmed::default();
            let mut reached = log.trimmed().await?;
            loop {
                let items = log.old(reached, up_to, before).await?;
                let Some(last) = items.last() else { return Ok(done) };
                reached = last.number;
                let mut events = Vec::new();
                for item in &items {
                    events.extend(Arc::unwrap_or_clone(Core::read_events(item)?.events));
                }
                for tenant in outbox.store_missing(&events, now).await? {
                    *done.stored.entry(tenant).or_default() += 1;
                }
                log.trim(&items).await?;
                done.groups += items.len() as u64;
            }
        })
        .await
    }

    /// Raises an alert for each tenant whose events did not find their way to the table, and clears those of the others:
    /// for them all was well.
    async fn report_late_events(&self, stored: &BTreeMap<TenantId, u64>) -> Result<(), Fault> {
        let mut standing = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.all_records(RecordKind::System, after.take(), FORGET_MAX).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for tenant in page.into_iter().filter_map(|(key, _)| {
                key.tenant.clone().filter(|tenant| key == RecordKey::alert(tenant, LATE_EVENTS))
            }) {
                standing.insert(tenant);
            }
        }
        let raised = stored.iter().filter(|(tenant, _)| !standing.contains(*tenant)).map(|(tenant, count)| {
            let message = format!(
                "{count} events had not reached the table long after they were committed and were stored from the log; \
                 look at the rule of the bus and the function save-event"
            );
            (tenant, true, message)
        });
        let cleared = standing
            .iter()
            .filter(|tenant| !stored.contains_key(*tenant))
            .map(|tenant| (tenant, false, "events reach the table again".to_owned()));
        let now = self.clock.now();
        let commands: Vec<_> = raised
            .chain(cleared)
            .map(|(tenant, is_raised, message)| {
                let properties =
                    Json::of(&LateEvents { alert: LATE_EVENTS, message: &message, raised_at: now });
                Command::Alert(Alert {
                    tenant: tenant.clone(),
                    name: LATE_EVENTS,
                    is_raised,
                    message,
                    properties,
                })
            })
            .collect();
        if !commands.is_empty() {
            self.execute(commands).await?;
        }
        Ok(())
    }

    /// Whether the daily part is this process's to do.
    async fn is_turn(&self) -> Result<bool, Fault> {
        let now = self.clock.now();
        let key = key_of(&format!("CURSOR#{}", self.rows.shard()), CURSOR);
        let update = self.connection.dynamo.update_item().table_name(&*self.table).set_key(Some(key));
        let update = update
            .update_expression("SET #at = :now")
            .condition_expression("attribute_not_exists(#at) OR #at <= :before")
            .expression_attribute_names("#at", "at")
            .expression_attribute_values(":now", number(now.millis()))
            .expression_attribute_values(":before", number(now.minus(EVERY_MILLIS).millis()));
        self.call(async move {
            match update.send().await {
                Ok(_) => Ok(true),
                Err(error) if is_refused(&error) => Ok(false),
                Err(error) => Err(unavailable("UpdateItem", error)),
            }
        })
        .await
    }

    /// Removes records whose time is over, and tells how many.
    pub async fn forget_outdated(&self) -> Result<u64, Fault> {
        let mut forgotten = 0;
        for kind in FORGOTTEN {
            let (rows, now) = (self.rows.clone(), self.clock.now());
            let outdated = self.call(async move {
                let mut scan = Scan::all(records_partition(rows.shard(), kind));
                let mut outdated = Vec::new();
                while let Some((sk, found)) = scan.next(&rows).await? {
                    if let (Some(key), Some(Row::Record(record))) = (record_key(kind, &sk), found.row)
                        && record.expires_at.is_some_and(|at| at <= now)
                    {
                        outdated.push(key);
                    }
                }
                Ok(outdated)
            });
            let outdated: Vec<RecordKey> = outdated.await?;
            for keys in outdated.chunks(FORGET_MAX) {
                // Whether their time is over the decision says; others may have renewed them.
                let answers = self.execute(vec![Command::Forget(Forget { keys: keys.to_vec() })]).await?;
                if let Some(Ok(Reply::Forgotten { records })) = answers.first() {
                    forgotten += u64::from(*records);
                }
            }
        }
        Ok(forgotten)
    }

    /// Removes objects of that age that neither the log, the rows nor the checkpoint name, and tells how many.
    pub async fn sweep_objects(&self, age: Duration) -> Result<u64, Fault> {
        let (objects, log, rows) = (self.objects.clone(), self.log.clone(), self.rows.clone());
        let before = self.clock.now().minus(u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        self.call(async move {
            let mut removed = 0;
            let prefixes =
                [format!("log/{}/", rows.shard()), format!("checkpoints/{}/", rows.shard()), rows.objects()];
            for prefix in prefixes {
                let mut after = None;
                loop {
                    let page = objects.list(&prefix, after).await?;
                    for (key, modified) in &page.found {
                        let is_old = Timestamp::clamped(*modified) < before;
                        if is_old && !is_named(key, &prefix, &log, &rows).await? {
                            objects.remove(key).await?;
                            removed += 1;
                        }
                    }
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
            }
            Ok(removed)
        })
        .await
    }
}

/// Whether something in the table names the object.
async fn is_named(
    key: &str,
    prefix: &str,
    log: &crate::log::commit_log::CommitLog,
    rows: &crate::rows::row_store::RowStore,
) -> Result<bool, Fault> {
    let rest = key.strip_prefix(prefix).unwrap_or_default();
    if prefix.starts_with("log/") {
        let number = rest.split('-').next().and_then(|digits| digits.parse().ok());
        return match number {
            Some(number) => Ok(log.object_of(number).await?.as_deref() == Some(key)),
            None => Ok(true),
        };
    }
    if prefix.starts_with("checkpoints/") {
        return Ok(rows.checkpoint().await?.is_some_and(|checkpoint| checkpoint.object == key));
    }
    rows.names(key).await
}

/// The number of the last event that a cursor has seen. One that cannot be read has seen nothing.
fn place_of(cursor: &Record) -> u64 {
    match &cursor.value {
        RecordValue::Bytes(bytes) => bytes[..].try_into().map_or(0, u64::from_le_bytes),
        _ => 0,
    }
}
