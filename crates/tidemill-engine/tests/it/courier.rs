//! Deliveries under way: what hangs holds up nobody else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_engine::Engine;
use tidemill_engine::conformance::{ManualClock, block_on, poll_once};
use tidemill_engine::engine::{EngineConfig, JobRequest};
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::outbound::{AllowedHosts, Courier, IN_FLIGHT_MAX, Parcel, SendError, Sender, Target};
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_model::{AppName, CallbackUrl, Json, TaskId, TaskName, TaskOptions, TaskSpec, TenantId};

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

/// A job that is told to somebody when it is at rest, which it is at once.
fn tell(engine: &Engine<MemoryBackend<ManualClock>>, tenant: &str, url: &str, is_cancelled: bool) {
    let tenant = TenantId::trusted(tenant);
    let task = TaskSpec {
        task_id: TaskId::trusted("a"),
        name: TaskName::trusted("work"),
        depends_on: Vec::new(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    };
    let request = JobRequest {
        tenant: tenant.clone(),
        app: AppName::trusted("orders"),
        request: None,
        name: None,
        budget: None,
        callback: Some(CallbackUrl::new(url).unwrap()),
        tasks: vec![task],
        idempotency: None,
    };
    let job = block_on(engine.submit_job(request)).unwrap().job;
    if is_cancelled {
        block_on(engine.cancel(tenant, job, "somebody".to_owned(), None)).unwrap();
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
