//! Tasks that are finished and only stored, read row by row.
//!
//! A task that was dispatched says in its own row where it stands in the list of its job, so one row of the list is
//! enough. What a task still waits for only its whole job can tell; such jobs are read whole, outside of every lock.

use std::sync::Arc;

use tidemill_model::{JobId, TaskSpec, TenantId};

use crate::kernel::backend::{Backend, Fault, TaskSnapshot};
use crate::kernel::commit::TaskKey;
use crate::kernel::state::State;
use crate::kernel::state::job::{JobHead, KeptTask};
use crate::kernel::state::row::{JobRows, Row, RowKey, RowRange, StoredTask, task_list_of};

pub(super) async fn head<B: Backend>(
    backend: &B,
    tenant: &TenantId,
    job: JobId,
) -> Result<Option<JobHead>, Fault> {
    let row = one(backend, RowKey::Job(tenant.clone(), job)).await?;
    Ok(row.and_then(|row| if let Row::Job(head) = row { Some(head) } else { None }))
}

pub(super) async fn task<B: Backend>(backend: &B, key: &TaskKey) -> Result<Option<TaskSnapshot>, Fault> {
    let row = one(backend, RowKey::Task(key.clone())).await?;
    let Some(job) = key.request.job_part() else {
        let mut state = State::default();
        if let Some(row) = row {
            state.load(RowKey::Task(key.clone()), row);
        }
        return Ok(TaskSnapshot::of(&state, key));
    };
    if let Some(Row::Task(StoredTask { entry, index: Some(index), .. })) = row
        && entry.head.is_some()
    {
        let first = task_list_of(index);
        let keys =
            vec![RowKey::Job(key.tenant.clone(), job), RowKey::JobTasks(key.tenant.clone(), job, first)];
        if let [Some(Row::Job(head)), Some(Row::JobTasks(list))] = backend.stored(keys).await?.as_slice()
            && let Some(spec) = list.get((index - first) as usize)
        {
            return Ok(Some(snapshot(key.clone(), head, spec, entry)));
        }
    }
    Ok(whole(backend, &key.tenant, job).await?.and_then(|state| TaskSnapshot::of(&state, key)))
}

/// A job's tasks in the order they were handed in, from the index `from` on, at most `limit`.
pub(super) async fn tasks<B: Backend>(
    backend: &B,
    tenant: &TenantId,
    job: JobId,
    from: u32,
    limit: usize,
) -> Result<Vec<TaskSnapshot>, Fault> {
    let Some(head) = head(backend, tenant, job).await? else { return Ok(Vec::new()) };
    let range = RowRange::TaskLists { tenant: tenant.clone(), job, from };
    let specs = backend.scan(range, Vec::new(), move |specs: &mut Vec<Arc<TaskSpec>>, key, row| {
        if let (RowKey::JobTasks(_, _, first), Row::JobTasks(list)) = (key, row) {
            let skipped = from.saturating_sub(first) as usize;
            specs.extend(list.into_iter().skip(skipped));
        }
        specs.len() < limit
    });
    let mut specs = specs.await?;
    specs.truncate(limit);
    let key_of = |spec: &TaskSpec| TaskKey { tenant: tenant.clone(), request: job.request_id(&spec.task_id) };
    let rows = backend.stored(specs.iter().map(|spec| RowKey::Task(key_of(spec))).collect()).await?;
    let mut tasks = Vec::with_capacity(specs.len());
    for (spec, row) in specs.iter().zip(rows) {
        match row {
            Some(Row::Task(StoredTask { entry, .. })) if entry.head.is_some() => {
                tasks.push(snapshot(key_of(spec), &head, spec, entry));
            }
            _ => {
                let state = whole(backend, tenant, job).await?.unwrap_or_default();
                return Ok(TaskSnapshot::of_job(&state, tenant, job, from, limit));
            }
        }
    }
    Ok(tasks)
}

fn snapshot(task: TaskKey, head: &JobHead, spec: &Arc<TaskSpec>, entry: KeptTask) -> TaskSnapshot {
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
async fn whole<B: Backend>(backend: &B, tenant: &TenantId, job: JobId) -> Result<Option<State>, Fault> {
    let Some(head) = head(backend, tenant, job).await? else { return Ok(None) };
    let range = RowRange::Tasks { tenant: tenant.clone(), job };
    let rows = backend.scan(range, JobRows::new(head), |rows, key, row| {
        rows.push(key, row);
        true
    });
    let JobRows { head, tasks, entries } = rows.await?;
    let mut state = State::default();
    state.load_job(head, tasks, entries);
    Ok(Some(state))
}

async fn one<B: Backend>(backend: &B, key: RowKey) -> Result<Option<Row>, Fault> {
    Ok(backend.stored(vec![key]).await?.pop().flatten())
}
