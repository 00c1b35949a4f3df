//! Deliveries: made with their cause, each try ended once, none lost, and kept when they are given up.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tidemill_model::{CallbackUrl, ErrorCategory, JobId, TenantId};

use super::shape::{SECOND, acme, graph, job_of, other};
use super::test_world::GATHER_MILLIS;
use super::{Lab, TestWorld, poll_once};
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::Clock;
use tidemill_engine::command::{Command, DeliveryEnd, EndDelivery};
use tidemill_engine::engine::{DeliveryFilter, Engine, EngineConfig, EngineError, JobRequest};
use tidemill_engine::outbound::{AllowedHosts, Delivery, DeliveryId, DeliveryKey, Target};
use tidemill_engine::record::DeadLetterState;
use tidemill_engine::reply::{Refusal, Reply};

const URL: &str = "https://hooks.example.com/done";

fn with_callback(tenant: &TenantId, tasks: &str) -> JobRequest {
    let callback = Some(CallbackUrl::new(URL).expect("an address"));
    JobRequest { tenant: tenant.clone(), callback, ..job_of(graph(tasks)) }
}

/// Submits a job that tells when it is at rest.
async fn submit<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId, tasks: &str) -> JobId {
    let config =
        EngineConfig { callback_hosts: AllowedHosts::parse("hooks.example.com"), ..EngineConfig::default() };
    let engine: Engine<W::Backend> = Engine::new(lab.world.backend(), lab.clock.clone(), 3, config);
    engine.submit_job(with_callback(tenant, tasks)).await.expect("the job is accepted").job
}

async fn due<W: TestWorld>(lab: &Lab<W>) -> Vec<DeliveryKey> {
    let now = lab.clock.now();
    let due = lab.world.backend().look(|state| state.deliveries().due(now, 100, |_| false)).await;
    due.expect("the backend works").due
}

/// Those that are due for this target.
async fn due_for<W: TestWorld>(lab: &Lab<W>, is_target: impl Fn(&Target) -> bool) -> Vec<DeliveryKey> {
    let mut fitting = Vec::new();
    for key in due(lab).await {
        if is_target(&delivery(lab, &key).await.target) {
            fitting.push(key);
        }
    }
    fitting
}

async fn waiting<W: TestWorld>(lab: &Lab<W>) -> usize {
    let now = lab.clock.now();
    let due = lab.world.backend().look(|state| state.deliveries().due(now, 1, |_| false)).await;
    due.expect("the backend works").pending
}

async fn delivery<W: TestWorld>(lab: &Lab<W>, key: &DeliveryKey) -> Delivery {
    lab.engine.delivery(key).await.expect("the backend works").expect("it waits")
}

async fn end<W: TestWorld>(
    lab: &Lab<W>,
    key: &DeliveryKey,
    attempt: u32,
    end: DeliveryEnd,
) -> Result<Reply, Refusal> {
    let told = lab
        .engine
        .delivery(key)
        .await
        .expect("the backend works")
        .map_or(0, |delivery| delivery.failed_job_count());
    let command = EndDelivery { tenant: key.tenant.clone(), delivery: key.id, attempt, told, end };
    lab.execute(Command::EndDelivery(command)).await
}

fn failed() -> DeliveryEnd {
    DeliveryEnd::Failed { error: Arc::from("answered 500") }
}

async fn letters<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId) -> Vec<(DeliveryId, DeadLetterState)> {
    let page = lab.engine.delivery_letters(tenant, &DeliveryFilter::default(), None, 100).await;
    let letters = page.expect("the backend works").letters;
    letters.into_iter().map(|letter| (letter.id, letter.state)).collect()
}

/// What a delivery says of its job.
fn said(delivery: &Delivery) -> (String, String) {
    let body: serde_json::Value = delivery.body.read().expect("an object");
    let text = |name: &str| body[name].as_str().expect("a text").to_owned();
    (text("jobId"), text("status"))
}

/// A job that comes to rest tells it in the same commit, and again after it went on.
pub async fn a_rest_is_told_with_its_event<W: TestWorld>(lab: Lab<W>) {
    let job = submit(&lab, &acme(), "a b<a").await;
    let quiet = lab.submit("z").await;
    let lab = lab.reopen_if_it_can().await;
    let tasks = lab.claim(2).await;
    let [a, z] = &tasks[..] else { panic!("{tasks:?}") };
    lab.complete(z, "{}").await;
    assert_eq!((due(&lab).await, lab.status(quiet).await.as_str()), (Vec::new(), "completed"));
    lab.fail(a, ErrorCategory::Auth).await;
    let [first] = &due(&lab).await[..] else { panic!("one is due") };
    let told = delivery(&lab, first).await;
    assert_eq!((&told.target, told.attempts), (&Target::Callback(Arc::from(URL)), 0));
    assert_eq!(said(&told), (job.to_string(), "failed".to_owned()));
    assert_eq!(told.event.event_type.as_str(), "Job Failure Detected");
    end(&lab, first, 1, DeliveryEnd::Arrived).await.expect("it is under way");
    lab.engine.resume_job(acme(), job, None).await.expect("it failed");
    let lab = lab.reopen_if_it_can().await;
    lab.run(&["a"]).await;
    assert_eq!(waiting(&lab).await, 0, "b is left");
    lab.run(&["b"]).await;
    let [second] = &due(&lab).await[..] else { panic!("one is due") };
    assert_ne!(first, second);
    let told = delivery(&lab, second).await;
    assert_eq!(said(&told), (job.to_string(), "completed".to_owned()));
    let body: serde_json::Value = told.body.read().expect("an object");
    assert_eq!(body["counts"]["completed"], 2);
    assert_eq!(body["eventId"], told.event.id.to_string());
}

/// Each try ends once and pauses grow. What arrived is never tried again, through restarts too.
pub async fn a_try_ends_once<W: TestWorld>(lab: Lab<W>) {
    submit(&lab, &acme(), "a").await;
    lab.run(&["a"]).await;
    let key = due(&lab).await.remove(0);
    let stale = |attempt| Err(Refusal::NotDelivering { id: key.id, attempt });
    assert_eq!(end(&lab, &key, 2, failed()).await, stale(2), "no try was before it");
    let retry_at = Some(lab.now().plus(SECOND));
    assert_eq!(end(&lab, &key, 1, failed()).await, Ok(Reply::DeliveryEnded { retry_at, is_dead: false }));
    assert_eq!(end(&lab, &key, 1, failed()).await, stale(1));
    let lab = lab.reopen_if_it_can().await;
    assert_eq!((due(&lab).await, waiting(&lab).await), (Vec::new(), 1));
    let now = lab.now();
    let look = lab
        .world
        .backend()
        .look(|state| state.deliveries().due(now, 1, |_| false))
        .await
        .expect("the backend works");
    assert_eq!(look.next, retry_at);
    lab.pass(SECOND);
    assert_eq!(due(&lab).await, std::slice::from_ref(&key));
    let kept = delivery(&lab, &key).await;
    assert_eq!((kept.attempts, kept.error.as_deref()), (1, Some("answered 500")));
    let foreign = DeliveryKey { tenant: other(), id: key.id };
    assert_eq!(end(&lab, &foreign, 2, DeliveryEnd::Arrived).await, stale(2), "over the wall");
    let arrived = end(&lab, &key, 2, DeliveryEnd::Arrived).await;
    assert_eq!(arrived, Ok(Reply::DeliveryEnded { retry_at: None, is_dead: false }));
    assert_eq!(end(&lab, &key, 2, DeliveryEnd::Arrived).await, stale(2));
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(waiting(&lab).await, 0);
    assert_eq!(end(&lab, &key, 3, failed()).await, stale(3));
    assert_eq!(letters(&lab, &acme()).await, []);
}

/// What never arrives is a dead letter after four tries. It stays, whatever is done with it.
pub async fn what_is_given_up_is_kept<W: TestWorld>(lab: Lab<W>) {
    submit(&lab, &acme(), "a").await;
    lab.run(&["a"]).await;
    let key = due(&lab).await.remove(0);
    let body = delivery(&lab, &key).await.body;
    for (attempt, pause) in [(1, SECOND), (2, 2 * SECOND), (3, 4 * SECOND)] {
        end(&lab, &key, attempt, failed()).await.expect("it is under way");
        lab.pass(pause - 1);
        assert_eq!(due(&lab).await, [], "after try {attempt}");
        lab.pass(1);
        assert_eq!(due(&lab).await, std::slice::from_ref(&key), "after try {attempt}");
    }
    let dead = end(&lab, &key, 4, failed()).await;
    assert_eq!(dead, Ok(Reply::DeliveryEnded { retry_at: None, is_dead: true }));
    let lab = lab.reopen_if_it_can().await;
    let is_people = |target: &Target| *target == Target::People;
    assert_eq!((waiting(&lab).await, due_for(&lab, is_people).await.len()), (1, 1), "people hear of it");
    assert_eq!(letters(&lab, &other()).await, []);
    assert_eq!(letters(&lab, &acme()).await, [(key.id, DeadLetterState::Open)]);
    let letter = lab.engine.delivery_letter(&acme(), key.id).await.expect("the backend works");
    let letter = letter.expect("it is kept");
    assert_eq!((letter.attempts, &letter.body, &*letter.error), (4, &body, "answered 500"));
    let foreign = lab.engine.replay_delivery(other(), key.id).await;
    assert!(matches!(foreign, Err(EngineError::Refused(Refusal::NotFound { .. }))), "{foreign:?}");
    let again = lab.engine.replay_delivery(acme(), key.id).await.expect("it is open");
    assert_ne!(again, key.id);
    let lab = lab.reopen_if_it_can().await;
    let [replayed] = &due_for(&lab, |target| !is_people(target)).await[..] else { panic!("one is due") };
    let again = delivery(&lab, replayed).await;
    assert_eq!((again.body, again.attempts, again.replay_of), (body, 0, Some(key.id)));
    let closed = lab.engine.discard_delivery(acme(), key.id).await;
    assert!(matches!(closed, Err(EngineError::Refused(Refusal::NotOpen(_)))), "{closed:?}");
    assert_eq!(letters(&lab, &acme()).await, [(key.id, DeadLetterState::Replayed)]);
}

/// The earliest comes first, none of the skipped ones, and a courier that waits for one is woken.
pub async fn due_deliveries_come_in_order<W: TestWorld>(lab: Lab<W>) {
    let nearer = lab.world.backend().notices().deliveries_nearer;
    let mut heard = pin!(nearer.listen());
    assert_eq!(poll_once(heard.as_mut()).await, Poll::Pending);
    for tenant in [other(), acme()] {
        submit(&lab, &tenant, "a").await;
        let task = lab.claim_for(&tenant, 1).await.remove(0);
        lab.complete(&task, "{}").await;
        lab.pass(SECOND);
    }
    assert_eq!(poll_once(heard.as_mut()).await, Poll::Ready(()));
    let all = due(&lab).await;
    let tenants: Vec<_> = all.iter().map(|key| key.tenant.clone()).collect();
    assert_eq!(tenants, [other(), acme()]);
    let (backend, now) = (lab.world.backend(), lab.now());
    let one =
        backend.look(|state| state.deliveries().due(now, 1, |_| false)).await.expect("the backend works");
    assert_eq!((one.due, one.pending), (all[..1].to_vec(), 2));
    let rest = backend
        .look(|state| state.deliveries().due(now, 9, |key| *key == all[0]))
        .await
        .expect("the backend works");
    assert_eq!(rest.due, all[1..]);
    end(&lab, &all[0], 1, failed()).await.expect("it is under way");
    assert_eq!(due(&lab).await, all[1..]);
    lab.pass(SECOND);
    assert_eq!(
        due(&lab).await,
        [all[1].clone(), all[0].clone()],
        "the one that waits for longer comes first"
    );
}

/// A host that the operator did not list is refused with its field, and nothing is made.
pub async fn a_callback_needs_an_allowed_host<W: TestWorld>(lab: Lab<W>) {
    let refused = lab.engine.submit_job(with_callback(&acme(), "a")).await.expect_err("nothing is listed");
    let text = refused.to_string();
    assert!(text.starts_with("callbackUrl names the host hooks.example.com"), "{text}");
    assert_eq!(lab.engine.jobs(acme(), None, None, 9).await.expect("the backend works").len(), 0);
}

/// Submits a job of this name and has its only task fail.
async fn fails<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId, name: &str) -> JobId {
    let request = JobRequest { tenant: tenant.clone(), name: Some(name.to_owned()), ..job_of(graph("a")) };
    let job = lab.engine.submit_job(request).await.expect("the job is accepted").job;
    let task = lab.claim_one().await;
    lab.fail(&task, ErrorCategory::Auth).await;
    job
}

/// Failed jobs with wanted names raise alerts; those that fail within a while share one, separately for each tenant.
pub async fn failed_jobs_are_told_together<W: TestWorld>(lab: Lab<W>) {
    fails(&lab, &acme(), "unwatched").await;
    assert_eq!(waiting(&lab).await, 0, "nobody wants to hear of it");
    let first = fails(&lab, &acme(), "watched-1").await;
    let lab = lab.reopen_if_it_can().await;
    lab.pass(1);
    let second = fails(&lab, &acme(), "watched-2").await;
    let theirs = fails(&lab, &other(), "watched-1").await;
    assert_eq!((due(&lab).await.len(), waiting(&lab).await), (0, 2), "others may follow");
    lab.pass(GATHER_MILLIS);
    let lab = lab.reopen_if_it_can().await;
    let mut told = Vec::new();
    for key in due(&lab).await {
        let delivery = delivery(&lab, &key).await;
        assert_eq!(delivery.target, Target::People);
        let failed = delivery.failed_jobs.expect("it is about jobs");
        told.push((
            key.tenant.clone(),
            failed.named.iter().map(|job| job.job).collect::<Vec<_>>(),
            failed.count,
        ));
        end(&lab, &key, 1, DeliveryEnd::Arrived).await.expect("it is under way");
    }
    told.sort();
    let mut expected = vec![(acme(), vec![first, second], 2), (other(), vec![theirs], 1)];
    expected.sort();
    assert_eq!(told, expected);
    assert_eq!(waiting(&lab).await, 0, "each is told once");
    lab.engine.resume_job(acme(), first, None).await.expect("it failed");
    lab.run(&["a"]).await;
    assert_eq!(waiting(&lab).await, 0, "what completes is nothing to alert");
}
