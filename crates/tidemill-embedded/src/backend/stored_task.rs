//! Tasks that are finished and only stored, read row by row.
//!
//! A task that was dispatched says in its own row where it stands in the list of its job, so one row of the list is
//! enough. What a task still waits for only its whole job can tell; such jobs are read whole, outside of every lock.

use std::sync::Arc;

use tidemill_engine::backend::{Fault, TaskSnapshot};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::state::State;
use tidemill_engine::state::job::{Entry, JobHead};
use tidemill_engine::state::row::{Row, RowKey, TaskRow, task_list_of};
use tidemill_model::{JobId, TaskSpec, TenantId};

use crate::store::row_key;
use crate::store::row_store::RowStore;

pub(super) fn task(rows: &RowStore, key: &TaskKey) -> Result<Option<TaskSnapshot>, Fault> {
    let row = rows.get(&RowKey::Task(key.clone()))?;
    let Some(job) = key.request.job_part() else {
        let mut state = State::default();
        if let Some(row) = row {
            state.load(RowKey::Task(key.clone()), row);
        }
        return Ok(TaskSnapshot::of(&state, key));
    };
    if let Some(Row::Task(TaskRow { entry, index: Some(index), .. })) = row
        && entry.head.is_some()
        && let Some(Row::Job(head)) = rows.get(&RowKey::Job(key.tenant.clone(), job))?
    {
        let first = task_list_of(index);
        let list = rows.get(&RowKey::JobTasks(key.tenant.clone(), job, first))?;
        if let Some(Row::JobTasks(list)) = list
            && let Some(spec) = list.get((index - first) as usize)
        {
            return Ok(Some(snapshot(key.clone(), &head, spec, entry)));
        }
    }
    Ok(whole(rows, &key.tenant, job)?.and_then(|state| TaskSnapshot::of(&state, key)))
}

pub(super) fn page(
    rows: &RowStore,
    tenant: &TenantId,
    job: JobId,
    from: u32,
    limit: usize,
) -> Result<Vec<TaskSnapshot>, Fault> {
    let Some(Row::Job(head)) = rows.get(&RowKey::Job(tenant.clone(), job))? else { return Ok(Vec::new()) };
    let mut specs: Vec<Arc<TaskSpec>> = Vec::new();
    let start = row_key::bytes_of(&RowKey::JobTasks(tenant.clone(), job, task_list_of(from)));
    rows.scan_from(&row_key::tasks_of(tenant, job), &start, &mut |key, row| {
        if let (RowKey::JobTasks(_, _, first), Row::JobTasks(list)) = (key, row) {
            let skipped = from.saturating_sub(first) as usize;
            specs.extend(list.into_iter().skip(skipped));
        }
        specs.len() < limit
    })?;
    specs.truncate(limit);
    let mut page = Vec::with_capacity(specs.len());
    for spec in &specs {
        let key = TaskKey { tenant: tenant.clone(), request: job.request_id(&spec.task_id) };
        match rows.get(&RowKey::Task(key.clone()))? {
            Some(Row::Task(TaskRow { entry, .. })) if entry.head.is_some() => {
                page.push(snapshot(key, &head, spec, entry));
            }
            _ => {
                let state = whole(rows, tenant, job)?.unwrap_or_default();
                return Ok(TaskSnapshot::of_job(&state, tenant, job, from, limit));
            }
        }
    }
    Ok(page)
}

fn snapshot(task: TaskKey, head: &JobHead, spec: &Arc<TaskSpec>, entry: Entry) -> TaskSnapshot {
    TaskSnapshot {
        task,
        app: head.app.clone(),
        job: Some(head.job),
        spec: Arc::clone(spec),
        // A task that nobody announced has none.
        state: entry.public_state().filter(|_| entry.stream.version() > 0),
        head: entry.head,
        blocked_by: Vec::new(),
    }
}

/// A state that holds the one job.
fn whole(rows: &RowStore, tenant: &TenantId, job: JobId) -> Result<Option<State>, Fault> {
    Ok(rows.job(tenant, job)?.map(|job| {
        let mut state = State::default();
        state.load_job(job.head, job.tasks, job.entries);
        state
    }))
}
