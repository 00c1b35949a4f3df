//! Where the parts of a stage are, by the settings.

use std::time::Duration;

use tidemill_aws::{Access, AwsOptions, Bus, TicketOptions};
use tidemill_engine::site::Site;

use crate::commands::CommandError;
use crate::config::Resolved;

/// How this process reaches AWS.
pub(crate) fn access(config: &Resolved) -> Access {
    let values = &config.values.aws;
    // When nobody says, the region of the profile goes before the default.
    let region = config.given("AWS_REGION").map(|source| source.value.clone());
    let access = Access { region, endpoint: values.endpoint.clone(), credentials: None };
    match (&values.key, &values.secret) {
        (Some(id), Some(secret)) => {
            let session = config.environment.get("AWS_SESSION_TOKEN").filter(|token| !token.is_empty());
            access.with_key(id, secret, session.cloned())
        }
        _ => access,
    }
}

/// The names of the parts. What is missing is told all at once.
pub(crate) fn options(config: &Resolved, seed: u64) -> Result<AwsOptions, CommandError> {
    let values = &config.values.aws;
    let needed = [("S3_BUCKET", &values.bucket), ("SQS_QUEUE_URL", &values.queue_url)];
    let missing: Vec<_> = needed.iter().filter(|(_, value)| value.is_none()).map(|(name, _)| *name).collect();
    let (Some(bucket), Some(queue)) = (&values.bucket, &values.queue_url) else {
        return Err(CommandError::Unusable(format!(
            "on AWS {} must be set; `tidemill aws env` prints what a deployed stage needs",
            missing.join(" and ")
        )));
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
