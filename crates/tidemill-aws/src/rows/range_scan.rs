//! A scan of a range, as the engine names it.

use tidemill_engine::backend::Fault;
use tidemill_engine::state::row::{Row, RowKey, RowRange, task_list_of};
use tidemill_model::JobId;

use crate::fault::damaged;
use crate::rows::row_item::{
    TASK_LISTS, job_partition, jobs_partition, part_of_job, record_key, records_partition, records_prefix,
    task_list_name,
};
use crate::rows::row_scan::Scan;
use crate::rows::row_store::RowStore;

pub(crate) struct RangeScan {
    range: RowRange,
    scan: Scan,
}

impl RangeScan {
    pub(crate) fn new(shard: &str, range: RowRange) -> Self {
        let scan = match &range {
            RowRange::Records { kind, tenant, after } => {
                let prefix = records_prefix(tenant.as_ref());
                let behind = after.as_ref().map(|after| format!("{prefix}{after}"));
                Scan::prefix(records_partition(shard, *kind), prefix, behind)
            }
            RowRange::AllRecords { kind, after } => {
                let behind =
                    after.as_ref().map(|key| format!("{}{}", records_prefix(key.tenant.as_ref()), key.id));
                Scan::prefix(records_partition(shard, *kind), String::new(), behind)
            }
            RowRange::Jobs { tenant, before } => {
                Scan::backward(jobs_partition(shard, tenant), before.map(|before| before.to_string()))
            }
            RowRange::TaskLists { tenant, job, from } => {
                let behind = task_list_of(*from).checked_sub(1).map(task_list_name);
                Scan::prefix(job_partition(shard, tenant, *job), TASK_LISTS.to_owned(), behind)
            }
            RowRange::Tasks { tenant, job } => Scan::all(job_partition(shard, tenant, *job)),
        };
        Self { range, scan }
    }

    /// The next row that is there.
    pub(crate) async fn next(&mut self, rows: &RowStore) -> Result<Option<(RowKey, Row)>, Fault> {
        while let Some((sk, found)) = self.scan.next(rows).await? {
            match (self.key(&sk), found.row) {
                (Some(key), Some(row)) => return Ok(Some((key, row))),
                // A job without one of its lists would look like a smaller job.
                (None, Some(Row::JobTasks(_))) => return Err(damaged("a list of tasks has no place")),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The key of a row of the range, by its sort key.
    fn key(&self, sk: &str) -> Option<RowKey> {
        match &self.range {
            RowRange::Records { kind, .. } | RowRange::AllRecords { kind, .. } => {
                record_key(*kind, sk).map(RowKey::Record)
            }
            RowRange::Jobs { tenant, .. } => JobId::new(sk).ok().map(|job| RowKey::Job(tenant.clone(), job)),
            RowRange::TaskLists { tenant, job, .. } | RowRange::Tasks { tenant, job } => {
                part_of_job(tenant, *job, sk)
            }
        }
    }
}
