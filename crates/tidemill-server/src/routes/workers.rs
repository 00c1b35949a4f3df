//! Workers: which ones there are, and what they do for the tenant that asks.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidemill_engine::backend::Backend;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::EngineError;
use tidemill_engine::health::{Hold, LiveTask};
use tidemill_model::TenantId;

use crate::api::{Page, WorkerPlaceName, WorkerTaskView, WorkerView};
use crate::problem::Problem;
use crate::request::list_cursor;
use crate::route::{Call, READ, Reply, Route, json, page_size};
use crate::views::jobs::task_summary;

/// Live tasks that are read at a time.
const LIVE_AT_ONCE: usize = 1_000;
/// Live tasks that one page looks at.
const LIVE_LOOKED_AT_MAX: usize = 20_000;
/// How many tasks of one worker are listed.
const TASKS_TOLD_MAX: usize = 20;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/workers",
            READ,
            ["Worker", "listWorkers", "List the workers that serve the tenant"],
            list,
        )
        .about(
            "Those that this server heard of in the last hour, and those that have tasks of the tenant. Of a worker that \
             serves several tenants only the caller's tasks are told.",
        )
        .paged()
        .gives::<Page<WorkerView>>(200, "A page of workers, by id."),
    ]
}

/// What is known of one worker before its tasks are looked at.
struct Found {
    place: WorkerPlaceName,
    last_seen_at: u64,
    slots: Option<u32>,
    held: Vec<LiveTask>,
    running: u32,
}

async fn list(call: Call) -> Reply {
    let tenant = call.tenant()?;
    let after = call.inputs.text("cursor").map(name_of_cursor).transpose()?;
    let mut found = known(&call, &tenant);
    add_holders(&call, &tenant, &mut found).await?;
    let limit = page_size(&call.inputs);
    let rest = found.into_iter().filter(|(name, _)| after.as_ref().is_none_or(|after| name > after));
    let mut rest: Vec<_> = rest.take(limit + 1).collect();
    let more = rest.len() > limit;
    rest.truncate(limit);
    let next_cursor = rest.last().filter(|_| more).map(|(name, _)| cursor_of_name(name));
    let mut items = Vec::with_capacity(rest.len());
    for (worker_id, Found { place, last_seen_at, slots, held, running }) in rest {
        let tasks = tasks_of(&call, &tenant, held).await?;
        items.push(WorkerView { worker_id, place, last_seen_at, slots, running, tasks });
    }
    json(StatusCode::OK, &Page { items, next_cursor })
}

/// Workers that reported: those of this process, and those that came with a key for the tenant.
fn known(call: &Call, tenant: &TenantId) -> BTreeMap<String, Found> {
    let engine = call.app.engine();
    let found =
        |place, last_seen_at, slots| Found { place, last_seen_at, slots, held: Vec::new(), running: 0 };
    let (now, clock) = (Instant::now(), engine.now());
    let remote = call.app.workers().of(tenant, now).into_iter().map(|(name, known)| {
        let silent = u64::try_from(now.duration_since(known.heard).as_millis()).unwrap_or(u64::MAX);
        (name, found(WorkerPlaceName::Remote, clock.minus(silent).millis(), known.slots))
    });
    let mut all: BTreeMap<_, _> = remote.collect();
    let own = engine.local_workers();
    let slots = u32::try_from(engine.slot_meter().read().total).ok().filter(|_| own.len() == 1);
    for (name, seen) in own {
        all.insert(name.to_string(), found(WorkerPlaceName::Server, seen.millis(), slots));
    }
    all
}

/// Adds the tenant's tasks to the workers that have them. A worker that has one is there, even if only another server
/// heard it.
async fn add_holders(
    call: &Call,
    tenant: &TenantId,
    found: &mut BTreeMap<String, Found>,
) -> Result<(), Problem> {
    let engine = call.app.engine();
    let lease_millis = engine.policy().lease_millis;
    let (mut after, mut looked_at) = (None, 0);
    while looked_at < LIVE_LOOKED_AT_MAX {
        let live =
            engine.backend().look(|state| state.live_tasks(tenant, after.as_ref(), LIVE_AT_ONCE)).await;
        let live = live.map_err(EngineError::from)?;
        let is_last = live.len() < LIVE_AT_ONCE;
        looked_at += live.len();
        after = live.last().map(|task| task.request.clone());
        for task in live {
            let Hold::Worker { worker, until, .. } = &task.hold else { continue };
            let holder = found.entry(worker.to_string()).or_insert_with(|| Found {
                place: WorkerPlaceName::Remote,
                last_seen_at: until.minus(lease_millis).millis(),
                slots: None,
                held: Vec::new(),
                running: 0,
            });
            holder.running += 1;
            if holder.held.len() < TASKS_TOLD_MAX {
                holder.held.push(task);
            }
        }
        if is_last {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn tasks_of(
    call: &Call,
    tenant: &TenantId,
    held: Vec<LiveTask>,
) -> Result<Vec<WorkerTaskView>, Problem> {
    let mut tasks = Vec::with_capacity(held.len());
    for live in held {
        let Hold::Worker { since, until, .. } = live.hold else { continue };
        let key = TaskKey { tenant: tenant.clone(), request: live.request };
        let Some(task) = call.app.engine().task(key).await? else { continue };
        let task = task_summary(&task);
        tasks.push(WorkerTaskView {
            request_id: task.request_id,
            job_id: task.job_id,
            task_id: task.task_id,
            name: task.name,
            run: live.run,
            attempt: live.attempt,
            since: since.millis(),
            lease_until: until.millis(),
        });
    }
    Ok(tasks)
}

/// A place in the list. Names may hold what no parameter may.
fn cursor_of_name(name: &str) -> String {
    list_cursor::write("worker", &URL_SAFE_NO_PAD.encode(name))
}

fn name_of_cursor(cursor: &str) -> Result<String, Problem> {
    let name = URL_SAFE_NO_PAD.decode(list_cursor::read("worker", cursor)?);
    name.ok().and_then(|name| String::from_utf8(name).ok()).ok_or_else(list_cursor::refuse)
}
