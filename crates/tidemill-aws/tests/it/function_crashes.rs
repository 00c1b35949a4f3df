//! Functions that die between any two of their calls, and are called again.

use std::time::Duration;

use tidemill_aws::handlers::{
    BusEvent, QueueEvent, dead_tickets, dispatch, reconcile, save_event, target_dead_letter, workflow_event,
};
use tidemill_aws::{Aws, AwsOptions, Connection};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{AttemptReport, Claimant, DeliveryFilter, Engine, EngineConfig, WorkReport};
use tidemill_engine::health::HealthRules;
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_model::{AppName, JobId, JobStatus, Json, KnownType, Timestamp, WorkerId};

use crate::double::{Double, RUNTIME, double};
use crate::functions::{bus_event, submit, tenant};
use crate::proxy::{Fate, Proxy};
use crate::site::Site;
use crate::tickets::give_up;

/// What a function is called with, and what must be true once it came to its end.
trait Function {
    const NAME: &'static str;

    /// How its process is set up.
    fn set_up(options: AwsOptions) -> (AwsOptions, EngineConfig) {
        (options, EngineConfig::default())
    }

    /// Everything before the call.
    async fn prepare(site: &Site) -> Self;

    /// The call itself.
    async fn call(&self, site: &Site, endpoint: &str, engine: &Engine<Aws>);

    async fn check(&self, site: &Site, what: &str);
}

/// Kills the function at each of its requests in turn, before it arrives and after, and calls it again.
async fn kill_everywhere<F: Function>(double: &Double) {
    for fate in [Fate::CutBefore, Fate::LastToArrive] {
        let mut at = 1;
        loop {
            let site = Site::new(double).await;
            let function = F::prepare(&site).await;
            let plan = move |number, _: &str| if number == at { fate } else { Fate::Forward };
            let proxy = Proxy::start(&site.endpoint, plan).await;
            let options = |seed| {
                F::set_up(AwsOptions {
                    patience: Duration::from_millis(200),
                    keep_log: Duration::ZERO,
                    ..site.options(seed)
                })
            };
            let first = async {
                let (options, config) = options(2);
                let engine = site.open_with(&proxy.endpoint, options, config).await;
                function.call(&site, &proxy.endpoint, &engine).await;
            };
            let survived = tokio::select! {
                () = proxy.is_cut() => false,
                () = first => true,
            };
            let what = format!("{}: {fate:?} at request {at}", F::NAME);
            if !survived {
                let (options, config) = options(3);
                let engine = site.open_with(&site.endpoint, options, config).await;
                function.call(&site, &site.endpoint, &engine).await;
            }
            function.check(&site, &what).await;
            if survived {
                break;
            }
            at += 1;
        }
        eprintln!("{}: {fate:?} at {} requests, one after the other", F::NAME, at - 1);
        assert!(at > 4, "{} makes more requests than {}", F::NAME, at - 1);
    }
}

/// There is a ticket; the job has one end, and its task too.
async fn check_job(site: &Site, job: JobId, what: &str) {
    assert!(site.count(&site.tickets).await.0 > 0, "{what}: there is a ticket");
    let engine = site.server(9).await;
    let worker = WorkerId::trusted("w");
    while engine.job(tenant(), job).await.expect("it answers").expect("it is known").status
        == JobStatus::Running
    {
        let claim =
            Claimant { worker: worker.clone(), generation: None, max: 9, tenants: None, begin: Some(1) };
        for task in engine.claim(claim).await.expect("it answers").tasks {
            let report = WorkReport::completed(Json::empty_object(), 1);
            engine.finish(AttemptReport::of(&task, worker.clone(), report)).await.expect("it is taken");
        }
    }
    let head = engine.job_tasks(tenant(), job, 0, 9).await.expect("it answers");
    let head = head[0].head.clone().expect("it ran");
    assert_eq!((head.fence.0, head.attempts), (1, 1), "{what}: it ran once");
    let events = engine.backend().follow(0, 1_000).await.expect("it answers");
    let count =
        |known: KnownType| events.iter().filter(|(_, event)| event.event_type == known.event_type()).count();
    assert_eq!((count(KnownType::TaskCompleted), count(KnownType::JobCompleted)), (1, 1), "{what}");
}

/// A job whose writer died before such a call.
async fn left_at(site: &Site, operation: &'static str) -> JobId {
    let plan = move |_, asked: &str| if asked == operation { Fate::CutBefore } else { Fate::Forward };
    let proxy = Proxy::start(&site.endpoint, plan).await;
    let patience = Duration::from_secs(3_600);
    let writer = site.open_at(&proxy.endpoint, AwsOptions { patience, ..site.options(1) }).await;
    let job = submit(&writer).await;
    proxy.is_cut().await;
    job
}

struct DeadTickets(JobId, QueueEvent);

impl Function for DeadTickets {
    const NAME: &'static str = "dlq-processor";

    async fn prepare(site: &Site) -> Self {
        let server = site.server(1).await;
        let job = submit(&server).await;
        server.backend().own_sent().await;
        Self(job, give_up(site).await)
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        assert!(dead_tickets(engine, &self.1).await.is_done());
    }

    async fn check(&self, site: &Site, what: &str) {
        Box::pin(check_job(site, self.0, what)).await;
    }
}

struct Dispatcher(JobId);

impl Function for Dispatcher {
    const NAME: &'static str = "dispatcher";

    async fn prepare(site: &Site) -> Self {
        Self(left_at(site, "SendMessageBatch").await)
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        dispatch(engine, &bus_event(self.0)).await.expect("it ends");
    }

    async fn check(&self, site: &Site, what: &str) {
        Box::pin(check_job(site, self.0, what)).await;
    }
}

struct Reconcile(JobId);

impl Function for Reconcile {
    const NAME: &'static str = "reconcile";

    async fn prepare(site: &Site) -> Self {
        Self(left_at(site, "PutEvents").await)
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        reconcile(engine).await.expect("it ends");
    }

    async fn check(&self, site: &Site, what: &str) {
        let mut kinds: Vec<_> = site
            .drain(&site.events)
            .await
            .iter()
            .map(|event| event["detail"]["eventType"].as_str().unwrap_or_default().to_owned())
            .collect();
        // Nothing stores events here, and housekeeping raises an alert over that when it empties the log.
        kinds.retain(|kind| kind != "Alert Raised");
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds, ["Job Created", "Task Pending"], "{what}: all was sent");
        Box::pin(check_job(site, self.0, what)).await;
    }
}

struct SaveEvent(BusEvent);

impl Function for SaveEvent {
    const NAME: &'static str = "save-event";

    async fn prepare(site: &Site) -> Self {
        let server = site.server(1).await;
        submit(&server).await;
        server.backend().own_sent().await;
        let sent = site.drain(&site.events).await;
        Self(BusEvent::read(&sent[0].to_string()).expect("it is JSON"))
    }

    async fn call(&self, site: &Site, endpoint: &str, _: &Engine<Aws>) {
        let connection = Connection::to_double(endpoint).await;
        let now = Timestamp::clamped(1_800_000_000_000);
        save_event(&connection, &site.name, &self.0, now).await.expect("it is stored");
    }

    async fn check(&self, site: &Site, what: &str) {
        let query = tidemill_model::events::event_query::EventQuery::all(
            tenant(),
            tidemill_model::events::access_path::AccessPath::Tenant,
        );
        // The reading process holds nothing of it in memory: it was sent before.
        let found = site.server(9).await.backend().events(query).await.expect("it answers").events;
        assert_eq!(found.len(), 1, "{what}");
    }
}

struct DeadLetter(QueueEvent);

impl Function for DeadLetter {
    const NAME: &'static str = "eventbridge-dlq-alert";

    async fn prepare(_: &Site) -> Self {
        let body = r#"{"detail-type":"log-event","detail":{"tenantId":"acme","eventType":"Job Created"}}"#;
        let id = "0190a0b0-0000-7000-8000-000000000001";
        let batch = serde_json::json!({ "Records": [{ "messageId": id, "body": body }] }).to_string();
        Self(serde_json::from_str(&batch).expect("a batch"))
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        assert!(target_dead_letter(engine, &tenant(), &self.0, async |_| Ok(())).await.is_done());
    }

    async fn check(&self, site: &Site, what: &str) {
        let engine = site.server(9).await;
        let letters = engine.delivery_letters(&tenant(), &DeliveryFilter::default(), None, 10).await;
        assert_eq!(letters.expect("it answers").letters.len(), 1, "{what}");
    }
}

struct WorkflowEvent(BusEvent);

impl Function for WorkflowEvent {
    const NAME: &'static str = "workflow-event";

    async fn prepare(_: &Site) -> Self {
        let event = serde_json::json!({
            "id": "0190a0b0-0000-7000-8000-000000000002",
            "source": "elephant.workflow", "detail-type": "WorkflowEvent",
            "detail": {
                "executionId": "e-1", "county": "Cook", "status": "FAILED", "phase": "Transform", "step": "Transform",
                "taskToken": "token-of-e-1", "errors": [{ "code": "20Cook", "details": {} }],
            },
        });
        Self(BusEvent::read(&event.to_string()).expect("it is JSON"))
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        let app = AppName::trusted("orders");
        workflow_event(engine, tenant(), app, &self.0).await.expect("it is taken in");
    }

    async fn check(&self, site: &Site, what: &str) {
        let engine = site.server(9).await;
        let open = engine.backend().look(|state| state.triage().parked_count(&tenant())).await;
        assert_eq!(open.expect("it answers"), 1, "{what}: one execution is parked");
        let events = engine.backend().follow(0, 1_000).await.expect("it answers");
        let taken = events.iter().filter(|(_, event)| event.event_type.as_str() == "WorkflowEvent").count();
        assert_eq!(taken, 1, "{what}: it counts once");
    }
}

/// A task waits for its start for too long, which people are told once.
struct HealthCheck;

impl Function for HealthCheck {
    const NAME: &'static str = "health-check";

    fn set_up(options: AwsOptions) -> (AwsOptions, EngineConfig) {
        let alerts = AlertTargets { people: true, webhook: false };
        let policy = Policy { alerts, ..options.policy };
        let health = HealthRules { pending_millis: 0, ..HealthRules::default() };
        (
            AwsOptions { policy: policy.clone(), ..options },
            EngineConfig { policy, health, ..EngineConfig::default() },
        )
    }

    async fn prepare(site: &Site) -> Self {
        let server = site.server(1).await;
        submit(&server).await;
        server.backend().own_sent().await;
        Self
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        assert_eq!(engine.check_health_of_all(&tenant()).await.expect("it ends"), 1);
        engine.backend().own_sent().await;
    }

    async fn check(&self, site: &Site, what: &str) {
        let engine = site.server(9).await;
        let events = engine.backend().follow(0, 1_000).await.expect("it answers");
        let is_check =
            |event: &tidemill_model::Event| event.event_type == KnownType::TaskHealthCheck.event_type();
        let checks = events.iter().filter(|(_, event)| is_check(event)).count();
        assert!((1..=2).contains(&checks), "{what}: {checks} checks by two calls");
        let due = engine
            .backend()
            .look(|state| state.deliveries().due(Timestamp::MAX, 10, |_| false))
            .await
            .expect("it answers");
        assert_eq!(due.due.len(), 1, "{what}: people are told once");
        let report = engine.last_health(&tenant()).await.expect("it answers").expect("there was a check");
        assert_eq!(report.findings.len(), 1, "{what}: {report:?}");
    }
}

/// What the function does with the request of a job: it looks whether there are keys, and takes it in.
struct ProducerApi;

impl Function for ProducerApi {
    const NAME: &'static str = "producer-api";

    async fn prepare(_: &Site) -> Self {
        Self
    }

    async fn call(&self, _: &Site, _: &str, engine: &Engine<Aws>) {
        engine.keys(None, 1).await.expect("it answers");
        submit(engine).await;
        engine.backend().own_sent().await;
    }

    async fn check(&self, site: &Site, what: &str) {
        let options = AwsOptions { patience: Duration::from_millis(200), ..site.options(9) };
        let engine = site.open(options).await;
        // The caller asked twice and got its answer. What the first call did not send the next timer sends.
        reconcile(&engine).await.expect("it ends");
        let job = submit(&engine).await;
        let events = engine.backend().follow(0, 1_000).await.expect("it answers");
        let created =
            events.iter().filter(|(_, event)| event.event_type == KnownType::JobCreated.event_type());
        assert_eq!(created.count(), 1, "{what}: one job");
        drop(engine);
        Box::pin(check_job(site, job, what)).await;
    }
}

#[test]
fn a_taker_of_workflow_events_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<WorkflowEvent>(double));
}

#[test]
fn a_checker_of_health_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<HealthCheck>(double));
}

#[test]
fn a_producer_api_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<ProducerApi>(double));
}

#[test]
fn a_dlq_processor_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<DeadTickets>(double));
}

#[test]
fn a_dispatcher_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<Dispatcher>(double));
}

#[test]
fn a_reconciler_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<Reconcile>(double));
}

#[test]
fn a_saver_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<SaveEvent>(double));
}

#[test]
fn a_teller_of_dead_letters_may_die_anywhere() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(kill_everywhere::<DeadLetter>(double));
}
