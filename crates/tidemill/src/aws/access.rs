//! Where the parts of a stage are, by the settings.

use std::time::Duration;

use tidemill_aws::{Access, AwsOptions, Bus, TicketOptions};
use tidemill_engine::site::Site;

use crate::commands::CommandError;
use crate::config::{AwsValues, Resolved};

/// How this process reaches AWS.
pub(crate) fn access(config: &Resolved) -> Result<Access, CommandError> {
    let values = &config.values.aws;
    // When nobody says, the region of the profile goes before the default.
    let region = config.given("AWS_REGION").map(|source| source.value.clone());
    let access = Access { region, endpoint: values.endpoint.clone(), credentials: None };
    let (given, missing) = match (&values.key, &values.secret) {
        (Some(id), Some(secret)) => {
            let session = config.environment.get("AWS_SESSION_TOKEN").filter(|token| !token.is_empty());
            return Ok(access.with_key(id, secret, session.cloned()));
        }
        (None, None) => return Ok(access),
        (Some(_), None) => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        (None, Some(_)) => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    };
    Err(CommandError::Unusable(format!("{given} is set and {missing} is not; give both, or neither")))
}

/// The names of the parts. All missing ones are reported at once.
pub(crate) fn options(config: &Resolved, seed: u64) -> Result<AwsOptions, CommandError> {
    // Every account has a bus called default: events that are sent there by mistake are lost without a word. And what is written for
    // a tenant called default by mistake is found by nobody.
    let needed = ["TENANT_ID", "S3_BUCKET", "SQS_QUEUE_URL", "EVENTBRIDGE_BUS_NAME"];
    let missing: Vec<_> = needed.into_iter().filter(|name| config.given(name).is_none()).collect();
    match &missing[..] {
        [] => options_of(config, &config.values.aws, seed),
        [more @ .., last] => {
            let more = more.join(", ");
            let names = if more.is_empty() { (*last).to_owned() } else { format!("{more} and {last}") };
            Err(CommandError::Unusable(format!(
                "on AWS {names} must be set; `tidemill aws env` prints what a deployed stage needs"
            )))
        }
    }
}

/// The same with these names.
pub(crate) fn options_of(
    config: &Resolved,
    values: &AwsValues,
    seed: u64,
) -> Result<AwsOptions, CommandError> {
    let (Some(bucket), Some(queue)) = (&values.bucket, &values.queue_url) else {
        return Err(CommandError::Unusable("on AWS S3_BUCKET and SQS_QUEUE_URL must be set".to_owned()));
    };
    let bus = values.bus.clone().map_or(Bus::Loopback, Bus::Named);
    let mut options = AwsOptions::new(&values.table, bucket, bus, seed);
    options.queue_url = Some(queue.clone());
    options.policy = config.values.policy();
    options.site = Site::new(&config.values.environment);
    options.tickets = TicketOptions {
        at_once: u32::try_from(config.values.claim_max).unwrap_or(1),
        wait: config.values.claim_wait,
        visibility: Duration::from_secs(config.values.visibility_secs),
    };
    Ok(options)
}
