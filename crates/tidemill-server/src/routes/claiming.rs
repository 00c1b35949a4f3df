//! Claims over HTTP: they wait, they can be repeated, and they must not take what nobody will run.

use std::sync::Arc;

use axum::http::StatusCode;
use tidemill_engine::engine::{self, LoadedTask, ParentFiles};
use tidemill_model::{MicroUsd, WorkerId};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::Instant;

use super::queue::wait_of;
use crate::admission::caller::Welcome;
use crate::api::{ClaimRequest, ClaimedTask, ClaimedTasks, DependencyAttempt};
use crate::app::App;
use crate::claims::{ClaimName, Given, Taken};
use crate::problem::Problem;
use crate::request::json_body;
use crate::route::{Call, Reply, json};

/// Tasks of one claim.
const SLOTS_MAX: u32 = 64;
/// The header that tells how many tasks a worker runs at a time. Servers that do not know it pass over it.
pub(super) const WORKER_SLOTS: &str = "Tidemill-Worker-Slots";
/// The bytes of a claim's name.
const CLAIM_ID_BYTES_MAX: usize = 128;

/// Holds the place of a claim while it is worked on.
type Place = OwnedMutexGuard<Option<Taken>>;

pub(super) async fn claim(mut call: Call) -> Reply {
    let came_at = std::time::Instant::now();
    let request: ClaimRequest = json_body::read(&call.body)?;
    call.forget_body();
    let worker = WorkerId::new(&request.worker_id);
    let worker = worker.map_err(|error| Problem::invalid_field("workerId", error.problem.to_string()))?;
    let slots = request.slots.unwrap_or(1);
    if !(1..=SLOTS_MAX).contains(&slots) {
        return Err(Problem::invalid_field("slots", format!("is {slots}; it must be from 1 to {SLOTS_MAX}")));
    }
    let wait = wait_of(request.wait_ms)?;
    let total = call.inputs.number(WORKER_SLOTS).and_then(|slots| u32::try_from(slots).ok());
    call.app.workers().note_contact(&call.caller, worker.as_str(), total, came_at);
    let deadline = Instant::now() + wait;
    let given = match request.claim_id {
        Some(id) if id.is_empty() || id.len() > CLAIM_ID_BYTES_MAX => {
            let message = format!("must be from 1 to {CLAIM_ID_BYTES_MAX} bytes");
            return Err(Problem::invalid_field("claimId", message));
        }
        Some(claim) => {
            let (caller, worker) = (call.caller.name().to_owned(), worker.to_string());
            call.app.claims().given(ClaimName { caller, worker, claim }, came_at)
        }
        None => Given::default(),
    };
    let max = usize::try_from(slots).unwrap_or(1);
    let taken = take(&call, &worker, max, deadline, given).await?;
    let claimed_after_ms = taken.as_ref().map_or(0, |taken| millis_between(came_at, taken.at));
    let tasks = taken.map_or_else(Vec::new, |taken| taken.tasks);
    if call.caller.has_key() {
        let leases = tasks.iter().map(|task| (&task.task, task.fence));
        call.app.leases().claimed(call.caller.name(), leases);
    }
    let mut claimed = Vec::with_capacity(tasks.len());
    for task in &tasks {
        claimed.extend(call.app.engine().load_task(task, &worker).await?.map(claimed_task));
    }
    let lease_ms = call.app.engine().policy().lease_millis;
    json(StatusCode::OK, &ClaimedTasks { tasks: claimed, lease_ms, claimed_after_ms })
}

/// From one moment to another, whichever comes first, and rather too little than too much.
fn millis_between(from: std::time::Instant, to: std::time::Instant) -> i64 {
    let millis = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    match to.checked_duration_since(from) {
        Some(after) => millis(after),
        None => -millis(from.duration_since(to)) - 1,
    }
}

/// What the claim gave before, or what can be claimed until the deadline.
async fn take(
    call: &Call,
    worker: &WorkerId,
    max: usize,
    deadline: Instant,
    given: Given,
) -> Result<Option<Taken>, Problem> {
    let (engine, tenants) = (call.app.engine(), call.caller.tenants());
    let mut closing = call.app.closing();
    let mut welcome = Welcome::of(&call.app, &call.caller);
    // Another request may be working on the same claim: one whose answer was lost, or whose sender will not come
    // back.
    let mut place = tokio::select! {
        place = given.lock_owned() => place,
        () = tokio::time::sleep_until(deadline) => return Ok(None),
        () = closing.begun() => return Ok(None),
        () = call.peer.gone() => return Ok(None),
    };
    if let Some(taken) = &*place {
        return still_held(&call.app, taken.clone()).await.map(Some);
    }
    loop {
        if call.peer.is_gone() {
            return Ok(None);
        }
        if !welcome.holds().await {
            return Err(Problem::unauthenticated("the API key is unknown or was revoked"));
        }
        // Workers with an outcome for a lease that ran out while this process stood still come first.
        let wait = engine.claims_wait();
        if !wait.is_zero() {
            tokio::time::sleep_until(deadline.min(Instant::now() + wait)).await;
            if Instant::now() >= deadline {
                return Ok(None);
            }
            continue;
        }
        let request = engine::Claimant {
            worker: worker.clone(),
            generation: None,
            max,
            tenants: Some(Arc::clone(tenants)),
            begin: None,
        };
        let (mut returned, taken) = claim_now(&call.app, request, place).await?;
        if !taken.tasks.is_empty() {
            if call.peer.is_gone() {
                *returned = None;
                engine.give_back(&taken.tasks, worker, None).await;
                return Ok(None);
            }
            return Ok(Some(taken));
        }
        if Instant::now() >= deadline || closing.has_begun() {
            return Ok(None);
        }
        place = returned;
        tokio::select! {
            () = engine.work_arrived(Some(Arc::clone(tenants))) => {}
            () = welcome.ended() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = closing.begun() => {}
            () = call.peer.gone() => {}
        }
    }
}

/// What an earlier request of the same name took, without what others have by now.
async fn still_held(app: &App, mut earlier: Taken) -> Result<Taken, Problem> {
    let mut held = Vec::with_capacity(earlier.tasks.len());
    for task in earlier.tasks {
        let snapshot = app.engine().task(task.task.clone()).await?;
        let now = snapshot.and_then(|snapshot| snapshot.head);
        if now.is_some_and(|now| now.lease_of(task.fence).is_some()) {
            held.push(task);
        }
    }
    if held.is_empty() {
        let message =
            "the tasks of this claimId were finished, given back or taken by others; claim with another";
        return Err(Problem::conflict("CLAIM_USED", message));
    }
    earlier.tasks = held;
    Ok(earlier)
}

/// Claims in a task of its own: a request that is dropped meanwhile must not leave tasks with nobody.
async fn claim_now(
    app: &App,
    request: engine::Claimant,
    mut place: Place,
) -> Result<(Place, Taken), Problem> {
    let (answer, answered) = oneshot::channel();
    let app = app.clone();
    tokio::spawn(async move {
        let worker = request.worker.clone();
        let at = std::time::Instant::now();
        let claimed = app.engine().claim(request).await.map(|claimed| Taken { tasks: claimed.tasks, at });
        if let Ok(taken) = &claimed
            && !taken.tasks.is_empty()
        {
            *place = Some(taken.clone());
        }
        if let Err(Ok((mut place, taken))) = answer.send(claimed.map(|taken| (place, taken))) {
            *place = None;
            app.engine().give_back(&taken.tasks, &worker, None).await;
        }
    });
    match answered.await {
        Ok(claimed) => Ok(claimed?),
        Err(error) => Err(Problem::internal(&error)),
    }
}

fn claimed_task(loaded: LoadedTask) -> ClaimedTask {
    let LoadedTask { assignment: task, execution, work } = loaded;
    ClaimedTask {
        tenant_id: task.task.tenant.to_string(),
        app: task.app.to_string(),
        request_id: task.task.request.to_string(),
        job_id: task.job.map(|job| job.to_string()),
        task_id: task.spec.task_id.to_string(),
        name: task.spec.name.to_string(),
        run: task.run,
        attempt: task.attempt,
        fence: task.fence.0,
        lease_until: task.lease_until.millis(),
        timeout_ms: task.spec.options.timeout_ms,
        session_id: task.session_id,
        budget_left_usd: task.budget_left.map(MicroUsd),
        budget_name: task.budget_name.as_deref().map(ToOwned::to_owned),
        input: work.input,
        dependency_attempts: work.dependency_artifacts.iter().map(attempt_of).collect(),
        execution,
    }
}

fn attempt_of(parent: &ParentFiles) -> DependencyAttempt {
    DependencyAttempt {
        task_id: parent.task.to_string(),
        request_id: parent.request.to_string(),
        run: parent.run,
        attempt: parent.attempt,
        fence: parent.fence.0,
    }
}
