//! Where the parts of a stage are, by the settings.

use tidemill_aws::{Access, AwsOptions, Bus};

use crate::commands::CommandError;
use crate::config::Resolved;

/// How this process reaches AWS.
pub(crate) fn access(config: &Resolved) -> Access {
    let values = &config.values.aws;
    let is_given =
        |name: &str| config.shown.iter().any(|(setting, source)| setting.name == name && source.is_some());
    let region = Some(values.region.clone());
    let (region, region_default) = if is_given("AWS_REGION") { (region, None) } else { (None, region) };
    let access = Access { region, region_default, endpoint: values.endpoint.clone(), credentials: None };
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
    Ok(options)
}
