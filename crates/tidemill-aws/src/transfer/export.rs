//! Export: a stage as lines of JSON, in the form that a data directory writes. `docs/internals/export-format.md` has the fields.
//!
//! Events come tenant by tenant and in the order of their times; the reader works out what the events of an entity
//! say of its history. All of it is as of one item of the log, whatever is written meanwhile: rows are pinned, and
//! later events are left out.

use std::collections::BTreeSet;
use std::io::Write;

use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::codec::row_key;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::is_guarded;
use tidemill_engine::export::{ExportError, Exported, FORMAT, Lines, VERSION, is_exported, line};
use tidemill_engine::record::RecordKind;
use tidemill_engine::state::row::{Row, RowKey, StoredTask};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::overflow;
use tidemill_model::{Event, JobId, RequestId, TenantId};

use crate::backend::Aws;
use crate::fault::unavailable;
use crate::rows::row_item::{messages_partition, record_key, records_partition};
use crate::rows::row_scan::Scan;
use crate::table::item::{read_text, text};
use crate::transfer::export_window::ExportWindow;

/// How many events one question asks for.
const PAGE: usize = 1_000;
/// What there is in the table.
#[derive(Default)]
struct Found {
    tenants: BTreeSet<TenantId>,
    jobs: Vec<RowKey>,
    /// Those without a job.
    tasks: Vec<RowKey>,
}

impl Aws {
    /// Writes the stage to `out` as lines of JSON.
    pub async fn export(&self, out: &mut (dyn Write + Send)) -> Result<Exported, ExportError> {
        let pin = self.pin_rows().await?;
        let end = pin.as_ref().map_or(0, |pin| pin.checkpoint.at);
        let window = ExportWindow::open(self, end).await?;
        let mut found = self.find_all().await?;
        found.tenants.extend(window.lately.iter().map(|event| event.tenant.clone()));
        let mut export = Export { store: self, lines: Lines::new(out), done: Exported::default(), window };
        let keys = is_guarded(self).await?;
        export.lines.put(&line::HeaderLine { kind: "header", format: FORMAT, version: VERSION, keys })?;
        for tenant in &found.tenants {
            export.events(tenant).await?;
        }
        if let Some(pin) = pin {
            for key in &found.jobs {
                if let RowKey::Job(tenant, job) = key {
                    export.job(tenant, *job).await?;
                }
            }
            for key in &found.tasks {
                export.task(key).await?;
            }
            export.messages(&pin.flush.open).await?;
            export.records().await?;
            self.call(pin.release()).await?;
        }
        let Export { mut lines, done, .. } = export;
        lines.put(&line::EndLine { kind: "end", tally: done.tally })?;
        lines.flush()?;
        Ok(done)
    }

    /// Goes through the keys of the whole table.
    async fn find_all(&self) -> Result<Found, Fault> {
        let shard = self.rows.shard().to_owned();
        let (jobs, tasks) = (format!("ROW#{shard}#JOBS#"), format!("ROW#{shard}#TASK#"));
        let (client, table) = (self.connection.dynamo.clone(), self.table.clone());
        self.call(async move {
            let mut found = Found::default();
            let mut last = None;
            loop {
                let scan =
                    client.scan().table_name(&*table).consistent_read(true).set_exclusive_start_key(last);
                let scan = scan
                    .projection_expression("PK, SK")
                    .filter_expression(
                        "begins_with(PK, :events) OR begins_with(PK, :jobs) OR begins_with(PK, :tasks)",
                    )
                    .expression_attribute_values(":events", text("TENANT#"))
                    .expression_attribute_values(":jobs", text(jobs.clone()))
                    .expression_attribute_values(":tasks", text(tasks.clone()));
                let page = scan.send().await.map_err(|error| unavailable("Scan", error))?;
                for item in page.items.unwrap_or_default() {
                    let (pk, sk) = (read_text(&item, "PK")?, read_text(&item, "SK")?);
                    if let Some(tenant) = pk.strip_prefix("TENANT#") {
                        found.tenants.insert(TenantId::trusted(tenant));
                    } else if let Some(tenant) = pk.strip_prefix(&jobs) {
                        if let Ok(job) = JobId::new(sk) {
                            found.jobs.push(RowKey::Job(TenantId::trusted(tenant), job));
                        }
                    } else if let Some((tenant, request)) =
                        pk.strip_prefix(&tasks).and_then(|rest| rest.split_once('#'))
                    {
                        let (tenant, request) = (TenantId::trusted(tenant), RequestId::trusted(request));
                        found.tasks.push(RowKey::Task(TaskKey { tenant, request }));
                    }
                }
                last = page.last_evaluated_key;
                if last.is_none() {
                    break;
                }
            }
            found.jobs.sort_by_cached_key(row_key::bytes_of);
            found.tasks.sort_by_cached_key(row_key::bytes_of);
            Ok(found)
        })
        .await
    }
}

/// An export under way.
struct Export<'s, 'o> {
    store: &'s Aws,
    lines: Lines<&'o mut (dyn Write + Send)>,
    done: Exported,
    window: ExportWindow,
}

impl Export<'_, '_> {
    async fn events(&mut self, tenant: &TenantId) -> Result<(), ExportError> {
        let mut query = EventQuery::all(tenant.clone(), AccessPath::Tenant);
        query.limit = PAGE;
        loop {
            let page = self.window.page(self.store, query.clone()).await?;
            for event in &page.events {
                self.blob(event).await?;
                self.done.tally.events += 1;
                self.lines.put_text(|text| {
                    text.push_str(r#"{"kind":"event","event":"#);
                    event.write_json(text);
                    text.push('}');
                })?;
            }
            query.after = page.next;
            if query.after.is_none() {
                return Ok(());
            }
        }
    }

    /// The large value that an event names, if it does.
    async fn blob(&mut self, event: &Event) -> Result<(), ExportError> {
        let Ok(Some(place)) = overflow::reference(&event.properties) else { return Ok(()) };
        let Some(bytes) = self.store.blob(event.tenant.clone(), place.key.clone()).await? else {
            self.done.blobs_missing.push(place.key);
            return Ok(());
        };
        Ok(self.lines.put_blob(&event.tenant, &place.key, &bytes, &mut self.done.tally)?)
    }

    async fn job(&mut self, tenant: &TenantId, job: JobId) -> Result<(), ExportError> {
        let (rows, of) = (self.store.rows.clone(), tenant.clone());
        let Some(found) = self.store.call(async move { rows.job(&of, job).await }).await? else {
            return Ok(());
        };
        Ok(self.lines.put_job(found.rows, &mut self.done.tally)?)
    }

    async fn row(&self, key: &RowKey) -> Result<Option<Row>, Fault> {
        let (rows, key) = (self.store.rows.clone(), key.clone());
        self.store.call(async move { rows.row(&key).await }).await
    }

    async fn task(&mut self, key: &RowKey) -> Result<(), ExportError> {
        if let (RowKey::Task(task), Some(Row::Task(row @ StoredTask { alone: Some(_), .. }))) =
            (key, self.row(key).await?)
        {
            self.done.tally.tasks += 1;
            self.lines.put(&line::TaskLine::of(task, &row))?;
        }
        Ok(())
    }

    /// Messages that are open. Of one that is settled a row may be left which another process wrote.
    async fn messages(&mut self, open: &BTreeSet<RowKey>) -> Result<(), ExportError> {
        let mut scan = Some(Scan::all(messages_partition(self.store.rows.shard())));
        while let Some((_, row)) = self.next(&mut scan).await? {
            let Row::Message(queued) = row else { continue };
            if !open.contains(&RowKey::Message(queued.message.id)) {
                continue;
            }
            self.done.tally.messages += 1;
            let task = self.row(&RowKey::Task(queued.message.task.clone())).await?;
            self.lines.put(&line::MessageLine::of(&queued, task.as_ref()))?;
        }
        Ok(())
    }

    async fn records(&mut self) -> Result<(), ExportError> {
        let mut kinds: Vec<_> = RecordKind::ALL.into_iter().filter(|kind| is_exported(*kind)).collect();
        kinds.sort_by_cached_key(|kind| row_key::records_of_all(*kind));
        for kind in kinds {
            let mut scan = Some(Scan::all(records_partition(self.store.rows.shard(), kind)));
            while let Some((sk, row)) = self.next(&mut scan).await? {
                if let (Some(key), Row::Record(record)) = (record_key(kind, &sk), row) {
                    self.done.tally.records += 1;
                    self.lines.put(&line::RecordLine::of(&key, &record))?;
                }
            }
        }
        Ok(())
    }

    /// The next row of a scan, which goes along with the call.
    async fn next(&self, scan: &mut Option<Scan>) -> Result<Option<(String, Row)>, Fault> {
        let Some(mut under_way) = scan.take() else { return Ok(None) };
        let rows = self.store.rows.clone();
        let found = self.store.call(async move {
            let found = under_way.next(&rows).await?;
            Ok((found, under_way))
        });
        let (found, under_way) = found.await?;
        *scan = Some(under_way);
        Ok(found.and_then(|(sk, at)| Some((sk, at.row?))))
    }
}
