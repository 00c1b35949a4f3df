//! Claims over HTTP: they wait, they can be repeated, and they must not take what nobody will run.

use std::sync::Arc;

use axum::http::StatusCode;
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{
    ClaimRequest as Claim, EngineError, FinishRequest, ParentFiles, Work, WorkReport,
};
use tidemill_engine::reply::{Assignment, Refusal};
use tidemill_engine::warn_seldom;
use tidemill_model::{ErrorCategory, MicroUsd, TenantId, WorkerId};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::Instant;

use super::queue::wait_of;
use crate::api::{ClaimRequest, ClaimedTask, ClaimedTasks, DependencyAttempt};
use crate::app::App;
use crate::caller::Welcome;
use crate::claims::{ClaimName, Given, Taken};
use crate::json_body;
use crate::problem::Problem;
use crate::route::{Call, Reply, json};

/// Tasks of one claim.
const SLOTS_MAX: u32 = 64;
/// The header that tells how many tasks a worker runs at a time. Servers that do not know it pass over it.
pub(super) const WORKER_SLOTS: &str = "Tidemill-Worker-Slots";
/// The bytes of a claim's name.
const CLAIM_ID_BYTES_MAX: usize = 128;

/// Holds the place of a claim while it is worked on.
type Place = OwnedMutexGuard<Option<Taken>>;

pub(super) async fn claim<B: Backend>(mut call: Call<B>) -> Reply {
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
    call.app.workers().heard(&call.caller, worker.as_str(), total, came_at);
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
    for task in tasks {
        claimed.extend(ready_to_run(&call.app, task, &worker).await?);
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
async fn take<B: Backend>(
    call: &Call<B>,
    worker: &WorkerId,
    max: usize,
    deadline: Instant,
    given: Given,
) -> Result<Option<Taken>, Problem> {
    let (engine, tenants) = (call.app.engine(), call.caller.tenants());
    let mut closing = call.app.closing();
    let mut welcome = Welcome::of(&call.app, &call.caller);
    // Somebody may be at the same claim: the request whose answer was lost, or who will not come back.
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
        // Whoever has an outcome for a lease that ran out while this process stood still is heard first.
        let wait = engine.claims_wait();
        if !wait.is_zero() {
            tokio::time::sleep_until(deadline.min(Instant::now() + wait)).await;
            if Instant::now() >= deadline {
                return Ok(None);
            }
            continue;
        }
        let request = Claim {
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
                give_back(&call.app, &taken.tasks, worker).await;
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
async fn still_held<B: Backend>(app: &App<B>, mut earlier: Taken) -> Result<Taken, Problem> {
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
async fn claim_now<B: Backend>(
    app: &App<B>,
    request: Claim,
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
            give_back(&app, &taken.tasks, &worker).await;
        }
    });
    match answered.await {
        Ok(claimed) => Ok(claimed?),
        Err(error) => Err(Problem::internal(&error)),
    }
}

/// Others may take the tasks at once, and no attempt is counted.
async fn give_back<B: Backend>(app: &App<B>, tasks: &[Assignment], worker: &WorkerId) {
    for task in tasks {
        let released = app.engine().release(task.task.clone(), task.fence, worker.clone(), None).await;
        // If it cannot be noted, the lease runs out.
        if let Err(error) = released {
            warn_seldom!(error, task = %task.task.request, "a task could not be given back");
        }
    }
}

/// A claimed task with all that it needs. One whose needs cannot be met is reported as failed.
async fn ready_to_run<B: Backend>(
    app: &App<B>,
    task: Assignment,
    worker: &WorkerId,
) -> Result<Option<ClaimedTask>, Problem> {
    let engine = app.engine();
    let prepared = async {
        let execution = engine.execution_of(&task).await?;
        Ok::<_, EngineError>((engine.work_of(&task).await?, execution))
    };
    let (work, execution) = match prepared.await {
        Ok(prepared) => prepared,
        Err(EngineError::Fault(fault)) => return Err(fault.into()),
        Err(error) => {
            let category = match &error {
                EngineError::Refused(Refusal::NotFound { .. }) => ErrorCategory::NotFound,
                error if error.is_transient() => ErrorCategory::ServerError,
                _ => ErrorCategory::Validation,
            };
            let report = WorkReport::failed(error.to_string(), category);
            match engine.finish(FinishRequest::of(&task, worker.clone(), report)).await {
                // If it was taken away meanwhile, there is nothing to report.
                Ok(_) | Err(EngineError::Refused(_)) => {}
                Err(error) => {
                    warn_seldom!(error, task = %task.task.request, "a failure could not be recorded");
                }
            }
            return Ok(None);
        }
    };
    Ok(Some(claimed_task(&task, work, execution)))
}

fn claimed_task(task: &Assignment, work: Work, execution: tidemill_model::ResolvedExecution) -> ClaimedTask {
    let tenant: &TenantId = &task.task.tenant;
    ClaimedTask {
        tenant_id: tenant.to_string(),
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
        session_id: task.session_id.clone(),
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
