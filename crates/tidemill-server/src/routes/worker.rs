//! The calls of workers on other machines: claim, begin, heartbeat, finish, release, and files.

use axum::http::{Method, StatusCode};
use tidemill_engine::backend::TaskSnapshot;
use tidemill_engine::command::{Spent, Surroundings};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{AttemptReport, Beginning, EngineError, HeartbeatReport, Signal, WorkReport};
use tidemill_engine::reply::{Ending, Refusal};
use tidemill_model::events::properties::Usage;
use tidemill_model::{ErrorCategory, Fence, Outcome, RequestId, TaskHead, TaskId, TenantId, WorkerId};

use super::claiming;
use crate::api::{
    BeginRequest, BlobStored, ClaimRequest, ClaimedTasks, Done, FinishRequest, Finished, FinishedState,
    HeartbeatAnswer, HeartbeatRequest, OutcomeReport, OutcomeStatus, ReleaseRequest,
};
use crate::problem::Problem;
use crate::request::json_body;
use crate::request::param::Kind;
use crate::route::{Call, Reply, Route, SMALL_BODY_BYTES_MAX, WORK, json, raw};

const GROUP: &str = "Worker";
/// The bytes of output that one heartbeat brings.
const LOG_BYTES_MAX: usize = 256 * 1024;
/// The bytes of a heartbeat: a log of which JSON writes each byte with six, and the rest.
const HEARTBEAT_BYTES_MAX: usize = 6 * LOG_BYTES_MAX + SMALL_BODY_BYTES_MAX;
/// The folders of an attempt.
const FOLDERS: [&str; 3] = ["logs/", "artifacts/", "traces/"];
/// The name of a worker that gives none for a task that nobody has. It is refused, or repeats what is known already.
const NAMELESS: &str = "worker";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/worker/claim",
            WORK,
            [GROUP, "claimTasks", "Claim tasks"],
            claiming::claim,
        )
        .about(
            "Waits up to `waitMs` for the first task. The tasks are the worker's until their lease runs out; \
                 heartbeats extend it. Nothing is claimed for a client that closed its connection. Repeating a \
                 `claimId` gives the same tasks, as far as the worker still has them. 409 CLAIM_USED: it has none of \
                 them any more; claim with another.",
        )
        .header(
            claiming::WORKER_SLOTS,
            Kind::Integer { least: 1, most: 1_000_000 },
            "How many tasks the worker runs at a time, for the list of workers.",
        )
        .reads::<ClaimRequest>()
        .reads_little()
        .gives::<ClaimedTasks>(200, "Tasks to run; none when nothing came in time.")
        .fails(&[409]),
        Route::new(
            Method::POST,
            "/v1/worker/begin",
            WORK,
            [GROUP, "beginTask", "Say that a task's process runs"],
            begin,
        )
        .reads::<BeginRequest>()
        .reads_little()
        .gives::<Done>(200, "It is recorded.")
        .fails(&[404, 409]),
        Route::new(
            Method::POST,
            "/v1/worker/heartbeat",
            WORK,
            [GROUP, "heartbeat", "Extend a lease"],
            heartbeat,
        )
        .about("409 LEASE_LOST: another worker has the task. Kill it and report nothing.")
        .reads::<HeartbeatRequest>()
        .reads_at_most(HEARTBEAT_BYTES_MAX)
        .gives::<HeartbeatAnswer>(200, "The lease was extended, or the task was cancelled.")
        .fails(&[404, 409]),
        Route::new(
            Method::POST,
            "/v1/worker/finish",
            WORK,
            [GROUP, "finishTask", "Report how an attempt ended"],
            finish,
        )
        .about(
            "Repeating the same report is fine. 409 LEASE_LOST: the report came too late and does not count. \
             409 OUTCOME_DIFFERS: another outcome was reported with this fence before, and that one counts.",
        )
        .reads::<FinishRequest>()
        .reads_much()
        .gives::<Finished>(200, "It is recorded.")
        .fails(&[404, 409]),
        Route::new(
            Method::POST,
            "/v1/worker/release",
            WORK,
            [GROUP, "releaseTask", "Give a task back"],
            release,
        )
        .about("Another worker may take it at once, and no attempt is counted.")
        .reads::<ReleaseRequest>()
        .reads_little()
        .gives::<Done>(200, "It was given back.")
        .fails(&[404, 409]),
    ]
}

pub(super) fn file_routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::PUT,
            "/v1/worker/blobs/{requestId}/{fence}/{*path}",
            WORK,
            [GROUP, "putBlob", "Store a file of an attempt"],
            put_blob,
        )
        .about("Before the attempt is finished. A file that exists is replaced.")
        .request_id()
        .part("fence", Kind::Integer { least: 0, most: u64::MAX }, "Of the claim.")
        .part("path", Kind::File, "Below `logs/`, `artifacts/` or `traces/`.")
        .query("tenantId", Kind::Word { most: 64 }, "Needed when the key serves several tenants.")
        .reads_bytes()
        .gives::<BlobStored>(200, "It is stored.")
        .fails(&[409]),
        Route::new(
            Method::GET,
            "/v1/worker/inputs/{requestId}/{fence}/{taskId}/{*path}",
            WORK,
            [GROUP, "getInput", "Get a file that a dependency left"],
            get_input,
        )
        .about(
            "One that `dependencyArtifacts` of the task names; check it by its `sha256`. 409 ARTIFACT_MISSING: it is not kept \
             any more.",
        )
        .request_id()
        .part("fence", Kind::Integer { least: 0, most: u64::MAX }, "Of the claim.")
        .part("taskId", Kind::Word { most: 200 }, "The dependency.")
        .part("path", Kind::File, "As `dependencyArtifacts` gives it.")
        .query("tenantId", Kind::Word { most: 64 }, "Needed when the key serves several tenants.")
        .gives_raw(200, "The file.", "application/octet-stream")
        .fails(&[409]),
    ]
}

/// The tenant that a worker means. One that its key does not name looks as if it had no such task.
pub(super) fn tenant_of(call: &Call, given: Option<&str>, request: &str) -> Result<TenantId, Problem> {
    let tenants = call.caller.tenants();
    match given {
        Some(given) => {
            let own = tenants.iter().find(|tenant| tenant.as_str() == given);
            own.cloned().ok_or_else(|| Problem::not_found("task", request))
        }
        None if tenants.len() == 1 => Ok(tenants[0].clone()),
        None => Err(Problem::field("MISSING_FIELD", "tenantId", "is needed: the key serves several tenants")),
    }
}

/// A task that a worker speaks of, and the lease that it says it has.
struct NamedTask {
    key: TaskKey,
    fence: Fence,
    worker: WorkerId,
    snapshot: TaskSnapshot,
}

async fn spoken_of(
    call: &Call,
    tenant: Option<&str>,
    request: &str,
    fence: u64,
    worker: Option<&str>,
) -> Result<NamedTask, Problem> {
    let id = RequestId::new(request);
    let id = id.map_err(|error| Problem::invalid_field("requestId", error.problem.to_string()))?;
    let key = TaskKey { tenant: tenant_of(call, tenant, request)?, request: id };
    let foreign = |who| {
        let detail = format!("{who} claimed {request}; only the key that claimed a task may report on it");
        Problem::forbidden("FOREIGN_LEASE", detail)
    };
    let leases = call.app.leases();
    if leases.is_anothers(call.caller.name(), &key, Fence(fence)) {
        return Err(foreign("another key"));
    }
    let Some(snapshot) = call.app.engine().task(key.clone()).await? else {
        return Err(Problem::not_found("task", request));
    };
    let lease = snapshot.head.as_ref().and_then(|head| head.lease_of(Fence(fence)));
    if let Some(lease) = lease
        && call.caller.has_key()
    {
        if lease.owner.generation.is_some() {
            return Err(foreign("a worker of the server itself"));
        }
        if !leases.speaks_for(call.caller.name(), &key, Fence(fence)) {
            return Err(foreign("another key"));
        }
    }
    let speaker = match worker {
        Some(worker) => Some(
            WorkerId::new(worker)
                .map_err(|error| Problem::invalid_field("workerId", error.problem.to_string()))?,
        ),
        None => lease.map(|lease| WorkerId::trusted(&lease.owner.worker)),
    };
    // A worker without a name and without a lease cannot be listed.
    if let Some(speaker) = &speaker {
        call.app.workers().note_contact(&call.caller, speaker.as_str(), None, std::time::Instant::now());
    }
    let worker = speaker.unwrap_or_else(|| WorkerId::trusted(NAMELESS));
    Ok(NamedTask { key, fence: Fence(fence), worker, snapshot })
}

async fn begin(mut call: Call) -> Reply {
    let request: BeginRequest = json_body::read(&call.body)?;
    call.forget_body();
    let tenant = request.tenant_id.as_deref();
    let claim =
        spoken_of(&call, tenant, &request.request_id, request.fence, request.worker_id.as_deref()).await?;
    let surroundings = Surroundings { directory: request.directory, variables: request.variables };
    let beginning = Beginning { process_id: request.pid, surroundings };
    call.app.engine().begin(claim.key, claim.fence, claim.worker, beginning).await?;
    json(StatusCode::OK, &Done { ok: true })
}

async fn heartbeat(mut call: Call) -> Reply {
    let request: HeartbeatRequest = json_body::read(&call.body)?;
    call.forget_body();
    let tenant = request.tenant_id.as_deref();
    let claim =
        spoken_of(&call, tenant, &request.request_id, request.fence, request.worker_id.as_deref()).await?;
    if request.log.as_ref().is_some_and(|log| log.len() > LOG_BYTES_MAX) {
        return Err(Problem::invalid_field("log", format!("is longer than {LOG_BYTES_MAX} bytes")));
    }
    let engine = call.app.engine();
    let renewed = engine
        .heartbeat(HeartbeatReport {
            task: claim.key.clone(),
            fence: claim.fence,
            worker: claim.worker,
            process_id: request.pid.unwrap_or(0),
            rss: request.rss.unwrap_or(0),
            last_activity: request.last_activity,
        })
        .await;
    match renewed {
        Ok(until) => {
            if let (Some(log), Some(head)) = (request.log, &claim.snapshot.head) {
                engine.live_logs().append(&claim.key, head.run, head.attempts + 1, log.as_bytes());
            }
            let (lease_until, lease_ms) = (Some(until.millis()), Some(engine.policy().lease_millis));
            json(StatusCode::OK, &HeartbeatAnswer { lease_until, lease_ms, cancel: false })
        }
        Err(error @ EngineError::Refused(Refusal::LeaseLost { .. })) => {
            let head = engine.task(claim.key).await?.and_then(|snapshot| snapshot.head);
            if head.is_some_and(|head| was_cancelled(&head, claim.fence)) {
                let cancelled = HeartbeatAnswer { lease_until: None, lease_ms: None, cancel: true };
                return json(StatusCode::OK, &cancelled);
            }
            Err(error.into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a cancel took the lease away. It raises the fence by one.
fn was_cancelled(head: &TaskHead, fence: Fence) -> bool {
    head.outcome() == Some(Outcome::Cancelled) && head.fence.0 == fence.0.saturating_add(1)
}

async fn finish(mut call: Call) -> Reply {
    let request: FinishRequest = json_body::read(&call.body)?;
    call.forget_body();
    let tenant = request.tenant_id.as_deref();
    let claim =
        spoken_of(&call, tenant, &request.request_id, request.fence, request.worker_id.as_deref()).await?;
    let report = report_of(request.outcome)?;
    let engine = call.app.engine();
    let finish = AttemptReport { task: claim.key.clone(), fence: claim.fence, worker: claim.worker, report };
    let surroundings = Surroundings { directory: request.directory, variables: request.variables };
    let began = request.pid.map(|process_id| Beginning { process_id, surroundings });
    let ended = engine.end_and_claim(began, finish, None).await;
    let finished = ended.and_then(|(finished, _)| finished);
    let finished = finished.map_err(|error| within_outcome(error.into()))?;
    engine.live_logs().end(&claim.key);
    call.app.leases().ended(&claim.key, claim.fence);
    let (state, retry_at) = match finished.ending {
        Ending::Done(Outcome::Completed) => (FinishedState::Completed, None),
        Ending::Done(_) => (FinishedState::Failed, None),
        Ending::Retrying { at } => (FinishedState::Retrying, Some(at.millis())),
        Ending::Parked => (FinishedState::Parked, None),
    };
    json(StatusCode::OK, &Finished { state, retry_at, repeated: finished.repeated })
}

/// Puts the engine's field names where clients wrote them.
fn within_outcome(mut problem: Problem) -> Problem {
    for detail in &mut problem.details {
        detail.field = match detail.field.as_str() {
            "retryAfter" => "outcome.retryAfterMs".to_owned(),
            field @ ("output" | "errorCategory") => format!("outcome.{field}"),
            field if field.starts_with("artifacts") => format!("outcome.{field}"),
            field => field.to_owned(),
        };
    }
    problem
}

fn report_of(outcome: OutcomeReport) -> Result<WorkReport, Problem> {
    let signal = match outcome.signal.as_deref() {
        None | Some("SIGTERM") => Signal::Term,
        Some("SIGKILL") => Signal::Kill,
        Some(_) => return Err(Problem::invalid_field("outcome.signal", "must be SIGTERM or SIGKILL")),
    };
    let (usage, session_id) = (outcome.usage.map(Usage::from), outcome.session_id);
    Ok(match outcome.status {
        OutcomeStatus::Completed => WorkReport::Completed {
            output: outcome.output,
            duration_millis: outcome.duration_ms.unwrap_or(0),
            exit_code: outcome.exit_code.unwrap_or(0),
            artifacts: outcome.artifacts,
            usage,
            session_id,
        },
        OutcomeStatus::Failed => {
            let Some(error) = outcome.error else {
                return Err(Problem::field("MISSING_FIELD", "outcome.error", "is missing"));
            };
            WorkReport::Failed {
                error,
                category: outcome.error_category.unwrap_or(ErrorCategory::Unknown),
                retry_after_millis: outcome.retry_after_ms,
                code: outcome.error_code,
                usage,
                session_id,
            }
        }
        OutcomeStatus::Timeout => WorkReport::TimedOut {
            timeout_millis: outcome.timeout_ms.unwrap_or(0),
            elapsed_millis: outcome.elapsed_ms.unwrap_or(0),
            signal,
            usage,
            session_id,
        },
    })
}

async fn release(mut call: Call) -> Reply {
    let request: ReleaseRequest = json_body::read(&call.body)?;
    call.forget_body();
    let tenant = request.tenant_id.as_deref();
    let claim =
        spoken_of(&call, tenant, &request.request_id, request.fence, request.worker_id.as_deref()).await?;
    let spent = Spent { usage: request.usage.map(Usage::from), session_id: request.session_id };
    let engine = call.app.engine();
    engine.release_spent(claim.key.clone(), claim.fence, claim.worker, request.reason, spent).await?;
    call.app.leases().ended(&claim.key, claim.fence);
    json(StatusCode::OK, &Done { ok: true })
}

/// The head of a task that the worker has as it says.
fn held(claim: &NamedTask) -> Result<&TaskHead, Problem> {
    let lost = || Problem::conflict("LEASE_LOST", format!("the lease of {} is lost", claim.key.request));
    claim.snapshot.head.as_ref().filter(|head| head.lease_of(claim.fence).is_some()).ok_or_else(lost)
}

async fn get_input(call: Call) -> Reply {
    let inputs = &call.inputs;
    let fence = inputs.number("fence").unwrap_or(0);
    let claim = spoken_of(&call, inputs.text("tenantId"), inputs.part("requestId"), fence, None).await?;
    held(&claim)?;
    let (parent, path) = (TaskId::trusted(inputs.part("taskId")), inputs.part("path"));
    let missing = |problem: &dyn std::fmt::Display| {
        let detail = format!("file {path:?} of dependency {parent} of {}: {problem}", claim.key.request);
        Problem::conflict("ARTIFACT_MISSING", detail)
    };
    let engine = call.app.engine();
    let files = engine.files_of_parent(&claim.key, &parent).await?;
    // Only what the completion names: nothing else of the task is meant for others.
    let named = files.filter(|files| files.artifacts.iter().any(|artifact| artifact.path == path));
    let files = named.ok_or_else(|| missing(&"it did not leave one"))?;
    match engine.parent_file(&claim.key.tenant, &files, path).await {
        Ok(bytes) => Ok(raw(StatusCode::OK, "application/octet-stream", bytes)),
        Err(error @ EngineError::BlobMissing { .. }) => Err(missing(&error)),
        Err(error) => Err(error.into()),
    }
}

async fn put_blob(call: Call) -> Reply {
    let inputs = &call.inputs;
    let fence = inputs.number("fence").unwrap_or(0);
    let claim = spoken_of(&call, inputs.text("tenantId"), inputs.part("requestId"), fence, None).await?;
    let head = held(&claim)?;
    // The attempt is the server's to say: a worker cannot write into another one.
    let attempt = format!("r{}-a{}/", head.run, head.attempts + 1);
    let given = inputs.part("path");
    let path = given.strip_prefix(attempt.as_str()).unwrap_or(given);
    if !FOLDERS.iter().any(|folder| path.starts_with(folder)) {
        return Err(Problem::invalid_parameter("path", "must begin with logs/, artifacts/ or traces/"));
    }
    let path = format!("{attempt}{path}");
    let size_bytes = call.body.len() as u64;
    call.app.engine().put_task_file(&claim.key, &path, call.body.to_vec()).await?;
    json(StatusCode::OK, &BlobStored { path, size_bytes })
}
