//! What each function does with an event.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use serde_json::json;
use tidemill_aws::handlers::{self, BusEvent, QueueEvent};
use tidemill_aws::{Aws, AwsOptions, AwsSender, Connection};
use tidemill_engine::Engine;
use tidemill_engine::clock::Clock as _;
use tidemill_engine::engine::EngineConfig;
use tidemill_engine::outbound::{AllowedHosts, Courier, DeliveryId, Parcel, Sender as _, Target};
use tidemill_engine::triage::{TokenSealer, TriageKeeper, TriageTimer};
use tidemill_model::{EventId, Json, Timestamp};
use tidemill_outbound::HttpSender;
use tidemill_server::{App, ServerConfig};
use tokio::sync::OnceCell;

use crate::answer::{Failure, json};
use crate::clock::WallClock;
use crate::role::Role;
use crate::settings::{Settings, StoreSettings};
use crate::{gateway, say};

/// A function of a stage. What it needs is made by the first invocation.
pub(crate) struct Stage {
    role: Role,
    settings: Settings,
    clock: Arc<WallClock>,
    connection: OnceCell<Connection>,
    store: OnceCell<Store>,
}

struct Store {
    engine: Engine<Aws>,
    router: Router,
}

impl Stage {
    pub(crate) fn new(role: Role, settings: Settings) -> Self {
        Self { role, settings, clock: Arc::default(), connection: OnceCell::new(), store: OnceCell::new() }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The answer to an event that is to be done within `time`.
    pub(crate) async fn handle(&self, event: &Bytes, time: Duration) -> Result<Vec<u8>, Failure> {
        let settings = match &self.settings {
            Settings::Events { table } => return self.save_event(table, event).await,
            Settings::Store(settings) => settings,
        };
        let Store { engine, router } = self.store.get_or_try_init(async || self.open(settings).await).await?;
        let answer = match self.role {
            // Its settings are those of events alone.
            Role::SaveEvent => Err(Failure::bad_event("this function stores no events")),
            Role::DlqProcessor => json(&handlers::dead_tickets(engine, &queue_event(event)?).await),
            Role::Dispatcher => json(&handlers::dispatch(engine, &bus_event(event)?).await?),
            Role::EventBridgeDlqAlert => {
                let post = async |text: String| alert_people(settings, text).await;
                let dead = queue_event(event)?;
                json(&handlers::target_dead_letter(engine, &settings.tenant, &dead, post).await)
            }
            Role::WorkflowEvent => {
                let (tenant, app) = (settings.workflow_tenant.clone(), settings.app.clone());
                let taken = handlers::workflow_event(engine, tenant, app, &bus_event(event)?).await?;
                json(&json!({ "events": taken.len() }))
            }
            Role::HealthCheck => {
                let tenants = engine.check_health_of_all(&settings.tenant).await?;
                let told = deliver(engine, settings, Target::is_alert).await?;
                json(&json!({ "tenants": tenants, "told": told }))
            }
            Role::Reconcile => {
                let done = handlers::reconcile(engine).await?;
                TriageKeeper::new(engine.clone(), NoTimer).run_due().await?;
                let told = deliver(engine, settings, |_| true).await?;
                json(&json!({ "done": done, "told": told }))
            }
            // Asking takes in what others wrote, so that a key which was revoked meanwhile opens nothing.
            Role::ProducerApi if engine.keys(None, 1).await?.is_empty() => gateway::closed(),
            Role::ProducerApi => gateway::answer(router, event, time).await,
        };
        // Nothing may be under way when the process is frozen.
        engine.backend().own_sent().await;
        answer
    }

    async fn save_event(&self, table: &str, event: &Bytes) -> Result<Vec<u8>, Failure> {
        let connection = self.connection().await;
        let saved = handlers::save_event(connection, table, &bus_event(event)?, self.now()).await?;
        json(&json!({ "saved": format!("{saved:?}") }))
    }

    async fn connection(&self) -> &Connection {
        self.connection.get_or_init(Connection::from_environment).await
    }

    async fn open(&self, settings: &StoreSettings) -> Result<Store, Failure> {
        let options = AwsOptions {
            policy: settings.policy.clone(),
            // The log is looked at when something is asked; between invocations nobody does.
            follow_every: None,
            ..AwsOptions::from_settings(&settings.aws, seed()?)
        };
        let backend =
            Aws::open(self.connection().await.clone(), options, Arc::clone(&self.clock) as _).await?;
        let key = settings.token_key;
        let config = EngineConfig {
            environment: settings.aws.stage.clone(),
            bucket: settings.aws.bucket.clone(),
            policy: settings.policy.clone(),
            sanitizer: Arc::new(settings.sanitizer.clone()),
            tokens: Arc::new(TokenSealer::new(move || key.ok_or_else(|| "TOKEN_KEY is not set".to_owned()))),
            health: settings.health,
            families: Arc::new(settings.families.clone()),
            callback_hosts: settings.outbound.allowed_hosts.clone(),
            dashboard_url: settings.public_url.clone(),
        };
        let engine = Engine::new(backend, Arc::clone(&self.clock), seed()?, config);
        // The engine lives on in its own store for as long as the process does.
        let told = engine.clone();
        engine.backend().listen_to_records(move |key| told.note_record_change(key));
        let server = ServerConfig {
            tenant: settings.tenant.clone(),
            app: settings.app.clone(),
            ..ServerConfig::default()
        };
        let router = tidemill_server::router(App::new(&engine, server));
        Ok(Store { engine, router })
    }
}

fn bus_event(event: &Bytes) -> Result<BusEvent, Failure> {
    let text = std::str::from_utf8(event).ok();
    text.and_then(BusEvent::read).ok_or_else(|| Failure::bad_event("the event of the bus is no JSON"))
}

fn queue_event(event: &Bytes) -> Result<QueueEvent, Failure> {
    serde_json::from_slice(event)
        .map_err(|error| Failure::bad_event(format!("these are no messages of a queue: {error}")))
}

/// Makes the ids of this process differ from those of others.
fn seed() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| Failure::new("NoRandomness", error.to_string()))
}

/// The duty of the courier, as servers name it.
const COURIER: &str = "courier";

/// Tries deliveries that are due and wanted, as far as the settings of this function name their targets.
async fn deliver(
    engine: &Engine<Aws>,
    settings: &StoreSettings,
    is_wanted: impl Fn(&Target) -> bool,
) -> Result<usize, Failure> {
    let outbound = &settings.outbound;
    let is_known = |target: &Target| match target {
        Target::People | Target::Bus => true,
        Target::AlertWebhook => outbound.alert_webhook.is_some(),
        Target::Workflow => outbound.workflow_webhook.is_some(),
        Target::Callback(_) => outbound.allowed_hosts != AllowedHosts::default(),
        Target::TaskToken => settings.token_key.is_some(),
    };
    // A server that delivers has the duty; then nothing is left for us, and nothing arrives twice.
    let roster = engine.backend().roster(&format!("function-{:016x}", seed()?));
    if !roster.try_take(COURIER).await? {
        return Ok(0);
    }
    let sender = AwsSender::new(engine.clone(), sender(settings));
    let courier = Courier::new(engine.clone(), sender);
    let tried = courier.work_due(|target| is_wanted(target) && is_known(target)).await;
    roster.give_back(COURIER).await;
    Ok(tried?)
}

fn sender(settings: &StoreSettings) -> HttpSender {
    HttpSender::new(settings.outbound.clone(), settings.sanitizer.clone(), |tenant, text| {
        Box::pin(async move {
            say(&format!("alert of {tenant}: {}", text.replace('\n', " | ")));
            Ok(())
        })
    })
}

async fn alert_people(settings: &StoreSettings, text: String) -> Result<(), String> {
    let id = getrandom::u64().map_err(|error| error.to_string())?;
    let parcel = Parcel {
        id: DeliveryId(EventId::from_u128(u128::from(id))),
        tenant: settings.tenant.clone(),
        target: Target::People,
        body: Json::of(&json!({ "kind": "bus", "text": text })),
        attempt: 1,
    };
    let told = sender(settings).send(parcel).await;
    told.map_err(|error| {
        let error = settings.sanitizer.clean(&error.0);
        tracing::warn!(%error, "people were not told");
        error
    })
}

/// What is not due now is not waited for.
struct NoTimer;

impl TriageTimer for NoTimer {
    async fn sleep(&self, _: Duration) {}
}
