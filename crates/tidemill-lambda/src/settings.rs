//! What the environment of a function says. The names are those of the command line, and so are their defaults.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tidemill_aws::AwsSettings;
use tidemill_engine::health::HealthRules;
use tidemill_engine::outbound::{AllowedHosts, JobFailedAlerts};
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_model::security::secrets::is_secret_name;
use tidemill_model::values::hex;
use tidemill_model::workflow::{Families, Family};
use tidemill_model::{AppName, ErrorSanitizer, RetryPolicy, Secrets, TenantId};
use tidemill_outbound::OutboundSettings;

use crate::role::Role;

const APP_DEFAULT: &str = "task-workflow";
const SLACK_API: &str = "https://slack.com/api";
/// Secrets by other names than secrets have.
const SECRETS: [&str; 2] = ["SLACK_WEBHOOK_URL", "ALERT_WEBHOOK_URL"];
const DAY_MILLIS: u64 = 24 * 3_600_000;

/// What a function goes by.
pub(crate) enum Settings {
    /// It writes events and nothing else.
    Events { table: String },
    /// It decides.
    Store(Box<StoreSettings>),
}

pub(crate) struct StoreSettings {
    pub(crate) aws: AwsSettings,
    pub(crate) tenant: TenantId,
    /// Whose workflow events are taken from the bus.
    pub(crate) workflow_tenant: TenantId,
    pub(crate) app: AppName,
    pub(crate) policy: Policy,
    pub(crate) health: HealthRules,
    /// Which workflow events are taken.
    pub(crate) families: Families,
    pub(crate) outbound: OutboundSettings,
    /// Where people reach the dashboard, if they do.
    pub(crate) public_url: Option<String>,
    /// Seals tokens of parked executions. Functions that never see one have none.
    pub(crate) token_key: Option<[u8; 32]>,
    pub(crate) sanitizer: ErrorSanitizer,
}

impl Settings {
    pub(crate) fn read(role: Role, environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let given = Given(environment);
        if role == Role::SaveEvent {
            let name = "DYNAMODB_EVENTS_TABLE_NAME";
            let table = given.text(name).ok_or_else(|| format!("{name} is not set"))?.to_owned();
            return Ok(Self::Events { table });
        }
        let aws = AwsSettings::read(environment).map_err(|error| error.to_string())?;
        let tenant = given.text("TENANT_ID").ok_or("TENANT_ID is not set")?;
        let tenant = TenantId::new(tenant).map_err(|error| format!("TENANT_ID {error}"))?;
        let workflow_tenant = match given.text("WORKFLOW_TENANT_ID") {
            Some(text) => TenantId::new(text).map_err(|error| format!("WORKFLOW_TENANT_ID {error}"))?,
            None => tenant.clone(),
        };
        let app = given.text("APP_NAME").unwrap_or(APP_DEFAULT);
        let app = AppName::new(app).map_err(|error| format!("APP_NAME {error}"))?;
        let lease_millis = given.number("VISIBILITY_EXTENSION_AMOUNT", 30, 1..=43_200)? * 1_500;
        let outbound = outbound(&given);
        Ok(Self::Store(Box::new(StoreSettings {
            policy: policy(&given, lease_millis, &outbound)?,
            health: health(&given, lease_millis)?,
            families: families(&given)?,
            token_key: given.text("TOKEN_KEY").map(key_of).transpose()?,
            sanitizer: sanitizer(environment),
            aws,
            public_url: given.text("PUBLIC_URL").map(str::to_owned),
            tenant,
            workflow_tenant,
            app,
            outbound,
        })))
    }
}

fn outbound(given: &Given<'_>) -> OutboundSettings {
    let owned = |name| given.text(name).map(str::to_owned);
    OutboundSettings {
        workflow_webhook: owned("WORKFLOW_WEBHOOK_URL"),
        alert_webhook: owned("ALERT_WEBHOOK_URL"),
        slack_webhook: owned("SLACK_WEBHOOK_URL"),
        slack_token: owned("SLACK_BOT_TOKEN"),
        slack_api: given.text("SLACK_API_URL").unwrap_or(SLACK_API).to_owned(),
        alert_channel: owned("ALERT_CHANNEL"),
        signing_key: owned("WEBHOOK_SIGNING_KEY"),
        allowed_hosts: AllowedHosts::parse(given.text("CALLBACK_ALLOWED_HOSTS").unwrap_or_default()),
    }
}

fn policy(given: &Given<'_>, lease_millis: u64, outbound: &OutboundSettings) -> Result<Policy, String> {
    let attempts = u32::try_from(given.number("MAX_MESSAGE_RETRIES", 3, 1..=100)?).unwrap_or(3);
    let default = Policy::default();
    let limit = |name: &str, default: usize, max: u64| -> Result<usize, String> {
        let given = given.number(name, u64::try_from(default).unwrap_or(max), 1..=max)?;
        Ok(usize::try_from(given).unwrap_or(usize::MAX))
    };
    Ok(Policy {
        tenant_tasks_max: limit("TENANT_TASKS_MAX", default.tenant_tasks_max, 100_000_000)?,
        tenant_bytes_max: limit("TENANT_BYTES_MAX", default.tenant_bytes_max, 1_000_000_000_000)?,
        lease_millis,
        visibility_millis: given.number("VISIBILITY_TIMEOUT", 30, 1..=43_200)? * 1_000,
        receives_max: attempts,
        retry: RetryPolicy { max_attempts: attempts, ..RetryPolicy::default() },
        park_millis: given.millis("PARK_TIMEOUT", default.park_millis)?,
        auto_resume: given.flag("WORKFLOW_AUTO_RESUME")?,
        workflow_webhook: outbound.workflow_webhook.is_some(),
        alerts: AlertTargets { people: true, webhook: outbound.alert_webhook.is_some() },
        job_failed: job_failed(given)?,
        ..default
    })
}

fn job_failed(given: &Given<'_>) -> Result<Option<Arc<JobFailedAlerts>>, String> {
    let names = given.text("ALERT_JOB_FAILED_NAMES").unwrap_or_default();
    let wait = given.number("ALERT_JOB_FAILED_WAIT_MS", 5_000, 1_000..=300_000)?;
    if let Some(problem) = JobFailedAlerts::problem_of(names) {
        return Err(format!("ALERT_JOB_FAILED_NAMES {problem}"));
    }
    let told = JobFailedAlerts::parse(names, wait);
    Ok(given.flag("ALERT_JOB_FAILED")?.then(|| Arc::new(told)))
}

fn health(given: &Given<'_>, lease_millis: u64) -> Result<HealthRules, String> {
    let default = HealthRules::default();
    Ok(HealthRules {
        silence_millis: lease_millis,
        overtime_millis: given.millis("HEALTH_OVERTIME_MS", default.overtime_millis)?,
        pending_millis: given.millis("HEALTH_PENDING_MS", default.pending_millis)?,
        parked_millis: given.millis("HEALTH_PARKED_MS", default.parked_millis)?,
        outbound_millis: given.millis("HEALTH_OUTBOUND_MS", default.outbound_millis)?,
        alert_warnings: given.flag("HEALTH_ALERT_WARNING")?,
    })
}

/// Those of the sources with the usual names; a function has no files that could name others.
fn families(given: &Given<'_>) -> Result<Families, String> {
    let sources = given.text("WORKFLOW_SOURCES").unwrap_or_default();
    let sources = sources.split(',').map(str::trim).filter(|source| !source.is_empty());
    Families::new(sources.map(Family::of).collect()).map_err(|found| {
        let problems: Vec<_> = found.listed.iter().map(|problem| problem.message.clone()).collect();
        format!("WORKFLOW_SOURCES: {}", problems.join("; "))
    })
}

/// 64 hexadecimal digits.
fn key_of(text: &str) -> Result<[u8; 32], String> {
    hex::decode(text).ok_or_else(|| "TOKEN_KEY must be 64 hexadecimal digits".to_owned())
}

fn sanitizer(environment: &BTreeMap<String, String>) -> ErrorSanitizer {
    let all = environment.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let is_secret = |name: &str| is_secret_name(name) || SECRETS.contains(&name);
    ErrorSanitizer::with(Secrets::of_variables(all, is_secret), environment.get("HOME").cloned())
}

/// What was set. Empty counts as not set.
struct Given<'a>(&'a BTreeMap<String, String>);

impl<'a> Given<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64, String> {
        let Some(text) = self.text(name) else { return Ok(default) };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            format!("{name} must be a number from {} to {}: {text}", range.start(), range.end())
        })
    }

    /// Milliseconds, or a number with a unit.
    fn millis(&self, name: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.text(name) else { return Ok(default) };
        let value = text.parse::<u64>().map_or_else(|_| text.into(), serde_json::Value::from);
        let millis =
            tidemill_model::values::span::parse_millis(&value).map_err(|error| format!("{name} {error}"))?;
        let range = 1..=366 * DAY_MILLIS;
        range.contains(&millis).then_some(millis).ok_or_else(|| format!("{name} is out of range: {text}"))
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.text(name).map(str::to_ascii_lowercase).as_deref() {
            None | Some("false" | "0" | "no" | "off") => Ok(false),
            Some("true" | "1" | "yes" | "on") => Ok(true),
            Some(text) => Err(format!("{name} must be true or false: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: [(&str, &str); 3] =
        [("TENANT_ID", "acme"), ("S3_BUCKET", "bucket"), ("EVENTBRIDGE_BUS_NAME", "bus")];

    fn read(role: Role, pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::read(role, &pairs.collect())
    }

    #[test]
    fn the_least_is_enough_and_the_rest_is_as_on_the_command_line() {
        let Ok(Settings::Store(least)) = read(Role::Reconcile, &LEAST) else { panic!("it is enough") };
        let expected = Policy { alerts: AlertTargets { people: true, webhook: false }, ..Policy::default() };
        assert_eq!(least.policy, expected);
        assert_eq!(least.health, HealthRules::default());
        assert_eq!((least.aws.table.as_str(), least.app.as_str()), ("events-dev", "task-workflow"));
        assert_eq!(least.families.sources(), "elephant.workflow");
        assert_eq!(least.workflow_tenant.as_str(), "acme");
        let more = [
            ("VISIBILITY_EXTENSION_AMOUNT", "60"),
            ("PARK_TIMEOUT", "2h"),
            ("WORKFLOW_SOURCES", "a.b, c.d"),
            ("WORKFLOW_TENANT_ID", "mills"),
        ];
        let more = [&LEAST[..], &more].concat();
        let Ok(Settings::Store(more)) = read(Role::Reconcile, &more) else { panic!("it is right") };
        assert_eq!((more.policy.lease_millis, more.health.silence_millis), (90_000, 90_000));
        assert_eq!(more.policy.park_millis, 7_200_000);
        assert_eq!(more.families.sources(), "a.b, c.d");
        assert_eq!((more.tenant.as_str(), more.workflow_tenant.as_str()), ("acme", "mills"));
    }

    #[test]
    fn one_that_saves_events_needs_the_table_and_no_more() {
        let saved = read(Role::SaveEvent, &[("DYNAMODB_EVENTS_TABLE_NAME", "events-dev")]);
        assert!(matches!(saved, Ok(Settings::Events { table }) if table == "events-dev"));
        let nothing = read(Role::SaveEvent, &[]).err();
        assert_eq!(nothing.as_deref(), Some("DYNAMODB_EVENTS_TABLE_NAME is not set"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value, told) in [
            ("TENANT_ID", "", "TENANT_ID is not set"),
            ("S3_BUCKET", "", "S3_BUCKET is not set"),
            ("MAX_MESSAGE_RETRIES", "0", "MAX_MESSAGE_RETRIES must be a number from 1 to 100: 0"),
            ("WORKFLOW_AUTO_RESUME", "maybe", "WORKFLOW_AUTO_RESUME must be true or false: maybe"),
            ("HEALTH_OVERTIME_MS", "0", "HEALTH_OVERTIME_MS is out of range: 0"),
            ("WORKFLOW_SOURCES", "a,a", "WORKFLOW_SOURCES: \"a\" is the source of another family"),
            ("TOKEN_KEY", "abc", "TOKEN_KEY must be 64 hexadecimal digits"),
        ] {
            let pairs: BTreeMap<&str, &str> = LEAST.into_iter().chain([(name, value)]).collect();
            let pairs: Vec<_> = pairs.into_iter().collect();
            assert_eq!(read(Role::ProducerApi, &pairs).err().as_deref(), Some(told));
        }
    }
}
