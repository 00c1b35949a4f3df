//! The values, checked and typed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::ParseIntError;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::health::HealthRules;
use tidemill_engine::outbound::{AllowedHosts, JobFailedAlerts};
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_model::{AppName, RetryPolicy, TaskSecrets, TenantId};
use tidemill_outbound::OutboundSettings;
use tidemill_server::GatewayNames;
use tidemill_worker::spawner::RunAs;

use super::role::Role;
use super::setting::{self, Kind};
use super::table::SETTINGS;
use super::user::user;
use crate::logging::LogFormat;
use crate::traces::{TraceSettings, parse_headers};

/// What this release goes by.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Values {
    pub(crate) backend: BackendName,
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) server: Option<String>,
    pub(crate) api_key: Option<String>,
    pub(crate) output_dir: PathBuf,
    pub(crate) tenant: TenantId,
    pub(crate) app: AppName,
    pub(crate) environment: String,
    pub(crate) roles: Vec<Role>,
    pub(crate) slots: usize,
    pub(crate) timeout: Duration,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) attempts_max: u32,
    /// Which variables tasks may be given; `None` when nobody said.
    pub(crate) task_secrets: Option<TaskSecrets>,
    pub(crate) input_arg: bool,
    pub(crate) delete_files: bool,
    pub(crate) claim_max: usize,
    pub(crate) claim_wait: Duration,
    pub(crate) visibility_secs: u64,
    pub(crate) heartbeat_every: Duration,
    pub(crate) extension_secs: u64,
    pub(crate) run_as: Option<RunAs>,
    pub(crate) sweep_every: Duration,
    pub(crate) grace: Duration,
    pub(crate) rate_limit: Option<u32>,
    pub(crate) tenant_rate_limit: Option<u32>,
    pub(crate) tenant_streams_max: Option<usize>,
    pub(crate) connections_max: Option<usize>,
    pub(crate) bodies_bytes_max: Option<usize>,
    pub(crate) allow_undefined_tasks: bool,
    pub(crate) script_workers: usize,
    pub(crate) tenant_tasks_max: usize,
    pub(crate) tenant_bytes_max: usize,
    pub(crate) script_buffer: usize,
    pub(crate) script_retries_max: u32,
    pub(crate) script_timeout: Duration,
    pub(crate) script_memory_bytes: usize,
    pub(crate) script_publish_rate: u32,
    pub(crate) workflow_sources: Vec<String>,
    pub(crate) workflow_families: Option<PathBuf>,
    pub(crate) workflow_catalogue: Option<PathBuf>,
    pub(crate) auto_resume: bool,
    pub(crate) park_timeout: Duration,
    /// Where the key of tokens is, if not beside the data.
    pub(crate) token_key_file: Option<PathBuf>,
    /// The key of tokens itself.
    pub(crate) token_key: Option<String>,
    /// What clients of AWS call the parts of this server, if it serves them.
    pub(crate) gateway: Option<GatewayNames>,
    #[cfg(feature = "aws")]
    pub(crate) aws: AwsValues,
    /// The targets of deliveries, and how to reach them.
    pub(crate) outbound: OutboundSettings,
    /// Which failed jobs raise an alert for people, if any.
    pub(crate) job_failed: Option<JobFailedAlerts>,
    /// Where people reach the server, if somebody said so.
    pub(crate) public_url: Option<String>,
    /// How often the health of tasks is checked, if it is.
    pub(crate) health_every: Option<Duration>,
    pub(crate) health: HealthRules,
    pub(crate) log_format: LogFormat,
    /// Where a worker tells its metrics, if anywhere.
    pub(crate) worker_metrics: Option<SocketAddr>,
    /// Where traces go.
    pub(crate) traces: Option<TraceSettings>,
    /// The program that agents are driven by.
    pub(crate) claude: String,
    /// What the processes that drive agents go by, wherever it was set.
    pub(crate) of_agents: Vec<(&'static str, String)>,
}

/// Where everything is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendName {
    Embedded,
    Aws,
}

/// Where the parts of the AWS backend are.
#[cfg(feature = "aws")]
#[derive(Debug, Clone)]
pub(crate) struct AwsValues {
    pub(crate) key: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) endpoint: Option<String>,
    pub(crate) queue_url: Option<String>,
    pub(crate) table: String,
    /// `None`: there is no bus.
    pub(crate) bus: Option<String>,
    pub(crate) bucket: Option<String>,
}

/// The names that clients of AWS use are those of the settings that they have themselves.
fn gateway_names(given: &Given<'_>) -> GatewayNames {
    let usual = GatewayNames::default();
    let queue = given.maybe("SQS_QUEUE_URL").and_then(|url| url.trim_end_matches('/').rsplit('/').next());
    GatewayNames {
        queue: queue.filter(|name| !name.is_empty()).map_or(usual.queue, str::to_owned),
        table: given.text("DYNAMODB_EVENTS_TABLE_NAME").to_owned(),
        bus: given.text("EVENTBRIDGE_BUS_NAME").to_owned(),
        bucket: given.maybe("S3_BUCKET").map_or(usual.bucket, str::to_owned),
        region: given.text("AWS_REGION").to_owned(),
    }
}

/// Settings that agents get as variables.
const OF_AGENTS: [&str; 9] = [
    "CLAUDE_BIN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    "CLAUDE_MODEL",
    "DEFAULT_TIMEOUT",
    "AGENT_IDLE_TIMEOUT",
    "AGENT_MAX_ATTEMPTS",
    "AGENT_RETRY_DELAY",
    "CLAUDE_SKIP_PERMISSIONS",
];

impl Values {
    /// Texts were checked by the kind of their setting, so that what is read here is there.
    pub(super) fn of(texts: &HashMap<&'static str, Option<String>>) -> Self {
        let given = Given(texts);
        Self {
            backend: match given.text("TIDEMILL_BACKEND") {
                "aws" => BackendName::Aws,
                _ => BackendName::Embedded,
            },
            data: given.text("TIDEMILL_DATA").into(),
            listen: setting::address(given.text("TIDEMILL_LISTEN")).expect("an address was checked"),
            server: given.maybe("TIDEMILL_SERVER").map(str::to_owned),
            api_key: given.maybe("TIDEMILL_API_KEY").map(str::to_owned),
            output_dir: given.text("OUTPUT_DIR").into(),
            tenant: TenantId::trusted(given.text("TENANT_ID")),
            app: AppName::trusted(given.text("APP_NAME")),
            environment: given.text("NODE_ENV").to_owned(),
            roles: Role::of_list(given.text("TIDEMILL_ROLES")),
            slots: given.count("MAX_CONCURRENT"),
            timeout: given.millis("TASK_TIMEOUT"),
            idle_timeout: given.maybe("IDLE_TIMEOUT_MS").map(|_| given.millis("IDLE_TIMEOUT_MS")),
            attempts_max: given.number("MAX_MESSAGE_RETRIES").try_into().expect("at most 100 was checked"),
            task_secrets: given
                .maybe("TASK_SECRETS")
                .map(|text| setting::task_secrets(text).expect("the names were checked")),
            input_arg: given.flag("INPUT_ARG"),
            delete_files: given.flag("DELETE_FILES_AFTER_UPLOAD"),
            claim_max: given.count("MAX_MESSAGES"),
            claim_wait: Duration::from_secs(given.number("WAIT_TIME_SECONDS")),
            visibility_secs: given.number("VISIBILITY_TIMEOUT"),
            heartbeat_every: given.millis("VISIBILITY_EXTENSION_INTERVAL"),
            extension_secs: given.number("VISIBILITY_EXTENSION_AMOUNT"),
            run_as: given.maybe("TIDEMILL_RUN_AS").map(|text| user(text).expect("a user was checked")),
            sweep_every: given.millis("SWEEP_INTERVAL_MS"),
            grace: given.millis("SHUTDOWN_GRACE_MS"),
            rate_limit: given.maybe_number("API_RATE_LIMIT"),
            tenant_rate_limit: given.maybe_number("TENANT_RATE_LIMIT"),
            tenant_streams_max: given.maybe_number("TENANT_STREAMS_MAX"),
            connections_max: given.maybe_number("CONNECTIONS_MAX"),
            bodies_bytes_max: given.maybe_number("BODIES_BYTES_MAX"),
            allow_undefined_tasks: given.flag("ALLOW_UNDEFINED_TASKS"),
            script_workers: given.count("SCRIPT_WORKERS"),
            tenant_tasks_max: given.count("TENANT_TASKS_MAX"),
            tenant_bytes_max: given.count("TENANT_BYTES_MAX"),
            script_buffer: given.count("SCRIPT_QUEUE_BUFFER"),
            script_retries_max: given
                .count("SCRIPT_MAX_RETRIES")
                .try_into()
                .expect("at most 100 was checked"),
            script_timeout: given.millis("SCRIPT_TIMEOUT"),
            script_memory_bytes: given.count("SCRIPT_MEMORY_MB") << 20,
            script_publish_rate: given
                .count("SCRIPT_PUBLISH_RATE")
                .try_into()
                .expect("at most a million was checked"),
            workflow_sources: given.list("WORKFLOW_SOURCES"),
            workflow_families: given.maybe("WORKFLOW_FAMILIES").map(PathBuf::from),
            workflow_catalogue: given.maybe("WORKFLOW_CATALOGUE").map(PathBuf::from),
            auto_resume: given.flag("WORKFLOW_AUTO_RESUME"),
            park_timeout: given.millis("PARK_TIMEOUT"),
            token_key_file: given.maybe("TOKEN_KEY_FILE").map(PathBuf::from),
            token_key: given.maybe("TOKEN_KEY").map(str::to_owned),
            gateway: given.flag("AWS_GATEWAY").then(|| gateway_names(&given)),
            #[cfg(feature = "aws")]
            aws: AwsValues {
                key: given.maybe("AWS_ACCESS_KEY_ID").map(str::to_owned),
                secret: given.maybe("AWS_SECRET_ACCESS_KEY").map(str::to_owned),
                endpoint: given.maybe("AWS_ENDPOINT_URL").map(str::to_owned),
                queue_url: given.maybe("SQS_QUEUE_URL").map(str::to_owned),
                table: given.text("DYNAMODB_EVENTS_TABLE_NAME").to_owned(),
                bus: Some(given.text("EVENTBRIDGE_BUS_NAME").to_owned()).filter(|name| name != "-"),
                bucket: given.maybe("S3_BUCKET").map(str::to_owned),
            },
            outbound: OutboundSettings {
                workflow_webhook: given.maybe("WORKFLOW_WEBHOOK_URL").map(str::to_owned),
                alert_webhook: given.maybe("ALERT_WEBHOOK_URL").map(str::to_owned),
                slack_webhook: given.maybe("SLACK_WEBHOOK_URL").map(str::to_owned),
                slack_token: given.maybe("SLACK_BOT_TOKEN").map(str::to_owned),
                slack_api: given.text("SLACK_API_URL").to_owned(),
                alert_channel: given.maybe("ALERT_CHANNEL").map(str::to_owned),
                signing_key: given.maybe("WEBHOOK_SIGNING_KEY").map(str::to_owned),
                allowed_hosts: AllowedHosts::parse(given.maybe("CALLBACK_ALLOWED_HOSTS").unwrap_or_default()),
            },
            job_failed: given.job_failed(),
            public_url: given.maybe("PUBLIC_URL").map(str::to_owned),
            health_every: given
                .flag("HEALTH_CHECK_ENABLED")
                .then(|| given.millis("HEALTH_CHECK_INTERVAL_MS")),
            health: HealthRules {
                silence_millis: lease_millis(given.number("VISIBILITY_EXTENSION_AMOUNT")),
                overtime_millis: given.whole_millis("HEALTH_OVERTIME_MS"),
                pending_millis: given.whole_millis("HEALTH_PENDING_MS"),
                parked_millis: given.whole_millis("HEALTH_PARKED_MS"),
                outbound_millis: given.whole_millis("HEALTH_OUTBOUND_MS"),
                alert_warnings: given.flag("HEALTH_ALERT_WARNING"),
            },
            log_format: LogFormat::of(given.text("LOG_FORMAT")),
            worker_metrics: given.maybe("WORKER_METRICS_LISTEN").and_then(setting::address),
            traces: given.traces(),
            claude: given.plain("CLAUDE_BIN").expect("the setting has a default"),
            of_agents: OF_AGENTS.into_iter().filter_map(|name| Some((name, given.plain(name)?))).collect(),
        }
    }

    /// How long a claim or a heartbeat protects a task.
    pub(crate) fn lease_millis(&self) -> u64 {
        lease_millis(self.extension_secs)
    }

    /// The engine's own numbers, by what was set.
    pub(crate) fn policy(&self) -> Policy {
        let retry = RetryPolicy { max_attempts: self.attempts_max, ..RetryPolicy::default() };
        Policy {
            lease_millis: self.lease_millis(),
            visibility_millis: self.visibility_secs * 1_000,
            receives_max: self.attempts_max,
            retry,
            park_millis: u64::try_from(self.park_timeout.as_millis()).unwrap_or(u64::MAX),
            auto_resume: self.auto_resume,
            tenant_tasks_max: self.tenant_tasks_max,
            tenant_bytes_max: self.tenant_bytes_max,
            workflow_webhook: self.outbound.workflow_webhook.is_some(),
            alerts: AlertTargets { people: true, webhook: self.outbound.alert_webhook.is_some() },
            job_failed: self.job_failed.clone().map(Arc::new),
            ..Policy::default()
        }
    }
}

/// The extension and half of it again.
fn lease_millis(extension_secs: u64) -> u64 {
    extension_secs * 1_500
}

struct Given<'a>(&'a HashMap<&'static str, Option<String>>);

impl Given<'_> {
    /// Which failed jobs raise an alert, if any.
    fn job_failed(&self) -> Option<JobFailedAlerts> {
        let names = self.maybe("ALERT_JOB_FAILED_NAMES").unwrap_or_default();
        let told = || JobFailedAlerts::parse(names, self.whole_millis("ALERT_JOB_FAILED_WAIT_MS"));
        self.flag("ALERT_JOB_FAILED").then(told)
    }

    fn maybe(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|text| text.as_deref())
    }

    fn maybe_number<N: FromStr<Err = ParseIntError>>(&self, name: &str) -> Option<N> {
        self.maybe(name).map(|text| text.parse().expect("a number was checked"))
    }

    fn text(&self, name: &str) -> &str {
        self.maybe(name).expect("the setting has a default")
    }

    fn list(&self, name: &str) -> Vec<String> {
        let parts = self.text(name).split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().expect("a number was checked")
    }

    fn count(&self, name: &str) -> usize {
        self.text(name).parse().expect("a number was checked")
    }

    fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.whole_millis(name))
    }

    fn whole_millis(&self, name: &str) -> u64 {
        setting::millis(self.text(name)).expect("milliseconds were checked")
    }

    /// A value in the one form that other programs understand: no units, no `yes`.
    fn plain(&self, name: &str) -> Option<String> {
        let text = self.maybe(name)?;
        Some(match SETTINGS.iter().find(|setting| setting.name == name).map(|setting| setting.kind) {
            Some(Kind::Millis { .. }) => self.millis(name).as_millis().to_string(),
            Some(Kind::Flag) => self.flag(name).to_string(),
            // It is started in another directory.
            _ if name == "CLAUDE_BIN" && text.contains('/') => {
                std::path::absolute(text).map_or_else(|_| text.to_owned(), |path| path.display().to_string())
            }
            _ => text.to_owned(),
        })
    }

    fn traces(&self) -> Option<TraceSettings> {
        let url = TraceSettings::url_of(
            self.maybe("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            self.maybe("OTEL_EXPORTER_OTLP_ENDPOINT"),
        )?;
        let headers = self.maybe("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
        Some(TraceSettings {
            url,
            headers: parse_headers(headers).expect("headers were checked"),
            service: self.text("OTEL_SERVICE_NAME").to_owned(),
            environment: self.text("NODE_ENV").to_owned(),
        })
    }

    fn flag(&self, name: &str) -> bool {
        setting::flag(self.text(name)).expect("a flag was checked")
    }
}
