//! Deliveries under way: what hangs holds up nobody else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidemill_conformance::{ManualClock, block_on, poll_once};
use tidemill_engine::Engine;
use tidemill_engine::engine::{AttemptReport, Claimant, EngineConfig, JobRequest, WorkReport};
use tidemill_engine::log_lines::Fields;
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::outbound::{
    AllowedHosts, Courier, IN_FLIGHT_MAX, JobFailedAlerts, Parcel, SendError, Sender, Target,
};
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_model::{
    AppName, CallbackUrl, ErrorCategory, Json, RetryPolicy, TaskId, TaskName, TaskOptions, TaskSpec,
    TenantId, WorkerId,
};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Never comes to an end with a host that hangs, and remembers what arrived elsewhere.
#[derive(Debug, Clone, Default)]
struct Post(Arc<Mutex<Vec<(String, &'static str)>>>);

impl Sender for Post {
    async fn send(&self, parcel: Parcel) -> Result<(), SendError> {
        if matches!(&parcel.target, Target::Callback(url) if url.contains("hang")) {
            std::future::pending::<()>().await;
        }
        self.0.lock().unwrap().push((parcel.tenant.to_string(), parcel.target.name()));
        Ok(())
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

/// Remembers what was said.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<Vec<serde_json::Value>>>);

impl Sender for Said {
    async fn send(&self, parcel: Parcel) -> Result<(), SendError> {
        self.0.lock().unwrap().push(parcel.body.read().unwrap());
        Ok(())
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

/// Gets nothing anywhere, and says so.
#[derive(Debug, Clone, Default)]
struct Down;

impl Sender for Down {
    async fn send(&self, parcel: Parcel) -> Result<(), SendError> {
        Err(SendError(format!("{}: cannot be reached: Connection refused", parcel.target.name())))
    }

    async fn sleep(&self, _: Duration) {
        std::future::pending::<()>().await;
    }
}

/// Keeps the fields of all warnings.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<Mutex<Vec<Fields>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn job(tenant: &str, callback: Option<&str>) -> JobRequest {
    let task = TaskSpec {
        task_id: TaskId::trusted("a"),
        name: TaskName::trusted("work"),
        depends_on: Vec::new(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    };
    JobRequest {
        tenant: TenantId::trusted(tenant),
        app: AppName::trusted("orders"),
        request: None,
        name: None,
        budget: None,
        callback: callback.map(|url| CallbackUrl::new(url).unwrap()),
        tasks: vec![task],
        idempotency: None,
    }
}

/// A job that is told to somebody when it is at rest, which it is at once.
fn tell(engine: &Engine<MemoryBackend<ManualClock>>, tenant: &str, url: &str, is_cancelled: bool) {
    let job = block_on(engine.submit_job(job(tenant, Some(url)))).unwrap().job;
    let tenant = TenantId::trusted(tenant);
    if is_cancelled {
        block_on(engine.cancel(tenant, job, "somebody".to_owned(), None)).unwrap();
    }
}

#[test]
fn a_failed_job_stands_as_an_alert_until_people_were_told_what_its_task_said() {
    let clock = ManualClock::default();
    let policy = Policy {
        alerts: AlertTargets { people: true, webhook: true },
        job_failed: Some(Arc::new(JobFailedAlerts::parse("", 10_000))),
        retry: RetryPolicy { max_attempts: 2, ..RetryPolicy::default() },
        ..Policy::default()
    };
    let backend = MemoryBackend::new(clock.clone(), policy.clone(), 1);
    let dashboard_url = Some("http://127.0.0.1:7070".to_owned());
    let config = EngineConfig { policy, dashboard_url, ..EngineConfig::default() };
    let engine: Engine<MemoryBackend<ManualClock>> = Engine::new(Arc::new(backend), clock.clone(), 2, config);
    let (tenant, worker) = (TenantId::trusted("a"), WorkerId::trusted("w"));
    let job = block_on(engine.submit_job(job("a", None))).unwrap().job;
    for said in ["no route to host", "still no route\nto host"] {
        let claim = Claimant::in_process(worker.clone(), 1, 1);
        let task = block_on(engine.claim(claim)).unwrap().tasks.remove(0);
        let failed = WorkReport::failed(said, ErrorCategory::Network);
        block_on(engine.finish(AttemptReport::of(&task, worker.clone(), failed))).unwrap();
        clock.advance(60_000);
    }
    let standing = || block_on(engine.standing_alerts(Some(&tenant))).unwrap();
    let [alert] = &standing()[..] else { panic!("{:?}", standing()) };
    assert_eq!(
        (alert.kind.as_str(), alert.message.as_str()),
        ("job_failed", format!("1 job failed: {job}").as_str())
    );
    assert_eq!(block_on(engine.standing_alerts(None)).unwrap().len(), 1);
    assert!(block_on(engine.standing_alerts(Some(&TenantId::trusted("b")))).unwrap().is_empty());
    let said = Said::default();
    let courier = Courier::new(engine.clone(), said.clone());
    assert_eq!(block_on(courier.work_due(|_| true)).unwrap(), 2);
    let told = said.0.lock().unwrap().clone();
    let text = told[0]["text"].as_str().unwrap();
    let line = format!("• {job}: task a failed: still no route to host\nhttp://127.0.0.1:7070/jobs/{job}");
    assert_eq!(text, format!(":x: *Job failed* (dev, tenant a)\n{line}"));
    assert_eq!((&told[1]["kind"], &told[1]["jobCount"]), (&"job_failed".into(), &1.into()));
    assert_eq!(told[1]["jobs"][0]["taskId"], "a");
    assert!(standing().is_empty());
}

/// What a failed task said stays what is told, though the job is resumed before the alert is sent.
#[test]
fn a_resume_before_the_alert_is_sent_leaves_it_its_cause() {
    let clock = ManualClock::default();
    let policy = Policy {
        alerts: AlertTargets { people: true, webhook: true },
        job_failed: Some(Arc::new(JobFailedAlerts::parse("", 10_000))),
        retry: RetryPolicy { max_attempts: 2, ..RetryPolicy::default() },
        ..Policy::default()
    };
    let backend = MemoryBackend::new(clock.clone(), policy.clone(), 1);
    let config = EngineConfig { policy, ..EngineConfig::default() };
    let engine: Engine<MemoryBackend<ManualClock>> = Engine::new(Arc::new(backend), clock.clone(), 2, config);
    let (tenant, worker) = (TenantId::trusted("a"), WorkerId::trusted("w"));
    let claim = || block_on(engine.claim(Claimant::in_process(worker.clone(), 1, 1))).unwrap().tasks;
    let end = |report: WorkReport| {
        let task = claim().remove(0);
        block_on(engine.finish(AttemptReport::of(&task, worker.clone(), report))).unwrap();
    };
    let told = || {
        let said = Said::default();
        let courier = Courier::new(engine.clone(), said.clone());
        assert_eq!(block_on(courier.work_due(|_| true)).unwrap(), 2);
        said.0.lock().unwrap().clone()
    };
    // A task that is not tried again says itself why it failed; one without attempts left leaves it to the last of them.
    for (causes, expected) in [
        (vec![("no key", ErrorCategory::Auth)], "no key"),
        (
            vec![("no route", ErrorCategory::Network), ("still no route", ErrorCategory::Network)],
            "still no route",
        ),
    ] {
        for (since, ends) in
            [("resumed", vec![]), ("completed", vec![WorkReport::completed(Json::empty_object(), 1)])]
        {
            let job = block_on(engine.submit_job(job("a", None))).unwrap().job;
            for (said, category) in &causes {
                clock.advance(60_000);
                end(WorkReport::failed(*said, *category));
            }
            block_on(engine.resume_job(tenant.clone(), job, None)).unwrap();
            ends.into_iter().for_each(&end);
            clock.advance(10_000);
            let told = told();
            let line = format!("• {job} ({since} since): task a failed: {expected}");
            assert_eq!(told[0]["text"], format!(":x: *Job failed* (dev, tenant a)\n{line}"));
            assert_eq!(told[1]["jobs"][0]["lastError"], expected);
            if since == "resumed" {
                end(WorkReport::completed(Json::empty_object(), 1));
            }
        }
    }
}

#[test]
fn an_alert_that_does_not_arrive_is_in_the_log_once_a_minute() {
    let clock = ManualClock::default();
    let policy = Policy {
        alerts: AlertTargets { people: true, webhook: true },
        job_failed: Some(Arc::new(JobFailedAlerts::parse("", 1_000))),
        ..Policy::default()
    };
    let backend = MemoryBackend::new(clock.clone(), policy.clone(), 1);
    let config = EngineConfig { policy, ..EngineConfig::default() };
    let engine: Engine<MemoryBackend<ManualClock>> = Engine::new(Arc::new(backend), clock.clone(), 2, config);
    let worker = WorkerId::trusted("w");
    block_on(engine.submit_job(job("a", None))).unwrap();
    let task = block_on(engine.claim(Claimant::in_process(worker.clone(), 1, 1))).unwrap().tasks.remove(0);
    let failed = WorkReport::failed("no key", ErrorCategory::Auth);
    block_on(engine.finish(AttemptReport::of(&task, worker, failed))).unwrap();
    let warnings = Warnings::default();
    let courier = Courier::new(engine, Down);
    tracing::subscriber::with_default(warnings.clone(), || {
        for _ in 0..3 {
            clock.advance(60_000);
            assert_eq!(block_on(courier.work_due(|_| true)).unwrap(), 2, "it is tried until it arrives");
        }
    });
    let told: Vec<Value> = warnings
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|fields| {
            fields
                .as_slice()
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
        .collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    for (line, to) in told.iter().zip(["slack", "alert-webhook"]) {
        assert_eq!(line["message"], "a delivery did not arrive");
        assert_eq!((&line["to"], &line["attempt"], &line["tenant"]), (&to.into(), &1.into(), &"a".into()));
        assert_eq!(line["error"], format!("{to}: cannot be reached: Connection refused"));
    }
}

#[test]
fn receivers_that_hang_hold_up_neither_other_tenants_nor_other_hosts_nor_alerts() {
    let clock = ManualClock::default();
    let policy = Policy { alerts: AlertTargets { people: true, webhook: true }, ..Policy::default() };
    let backend = MemoryBackend::new(clock.clone(), policy.clone(), 1);
    let callback_hosts = AllowedHosts::parse("hang.example.com,good.example.com");
    let config = EngineConfig { policy, callback_hosts, ..EngineConfig::default() };
    let engine = Engine::new(Arc::new(backend), clock.clone(), 2, config);
    for _ in 0..100 {
        for tenant in ["a", "b"] {
            tell(&engine, tenant, "https://hang.example.com/", true);
        }
    }
    clock.advance(1_000);
    for tenant in ["a", "c"] {
        tell(&engine, tenant, "https://good.example.com/", true);
    }
    // An alert of `a`, behind its hundred callbacks: nobody starts a task.
    tell(&engine, "a", "https://hang.example.com/", false);
    clock.advance(16 * 60_000);
    block_on(engine.check_health(&TenantId::trusted("a"))).unwrap();
    let post = Post::default();
    let courier = Courier::new(engine, post.clone());
    let mut loops: Vec<_> = (0..IN_FLIGHT_MAX).map(|_| Box::pin(courier.work())).collect();
    for _ in 0..10 {
        for own in &mut loops {
            assert!(block_on(poll_once(own.as_mut())).is_pending());
        }
    }
    let mut arrived = post.0.lock().unwrap().clone();
    arrived.sort();
    let told = |tenant: &str, target| (tenant.to_owned(), target);
    assert_eq!(
        arrived,
        [told("a", "alert-webhook"), told("a", "callback"), told("a", "slack"), told("c", "callback")]
    );
}
