//! The settings of a stage, by the names that they have in the environment.

use std::collections::BTreeMap;
use std::time::Duration;

/// The name of the setting, and the names that it may have instead.
type Names = [&'static str];

const TABLE: &Names = &["DYNAMODB_EVENTS_TABLE_NAME", "EVENTS_TABLE", "TABLE_NAME"];
const BUCKET: &Names = &["S3_BUCKET"];
const BUS: &Names = &["EVENTBRIDGE_BUS_NAME", "EVENT_BUS_NAME"];
const QUEUE: &Names = &["SQS_QUEUE_URL", "TASK_QUEUE_URL"];
const DEAD_QUEUE: &Names = &["SQS_DLQ_URL", "TASK_DLQ_URL"];
const STAGE: &Names = &["NODE_ENV"];
const WEBHOOK_PARAMETER: &Names = &["SLACK_WEBHOOK_PARAMETER"];
const TICKETS: &Names = &["MAX_MESSAGES"];
const WAIT: &Names = &["WAIT_TIME_SECONDS"];
const VISIBILITY: &Names = &["VISIBILITY_TIMEOUT"];

const STAGE_DEFAULT: &str = "dev";
const TICKETS_DEFAULT: u64 = 1;
const TICKETS_MAX: u64 = 10;
const WAIT_SECONDS_DEFAULT: u64 = 20;
const VISIBILITY_SECONDS_DEFAULT: u64 = 30;
/// A queue hides a message for 12 hours at most.
const VISIBILITY_SECONDS_MAX: u64 = 43_200;

/// Where a stage lies. The region, credentials and `AWS_ENDPOINT_URL` are for the SDK to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AwsSettings {
    /// `NODE_ENV`, such as `prod`.
    pub stage: String,
    /// `DYNAMODB_EVENTS_TABLE_NAME`, also `EVENTS_TABLE` and `TABLE_NAME`; `events-{stage}` if none is set.
    pub table: String,
    /// `S3_BUCKET`.
    pub bucket: String,
    /// `EVENTBRIDGE_BUS_NAME`, also `EVENT_BUS_NAME`.
    pub bus: String,
    /// `SQS_QUEUE_URL`, also `TASK_QUEUE_URL`. A process without it sends no tickets, and takes none.
    pub queue_url: Option<String>,
    /// `SQS_DLQ_URL`, also `TASK_DLQ_URL`: where tickets go that were received too often.
    pub dlq_url: Option<String>,
    /// `SLACK_WEBHOOK_PARAMETER`: the name of the parameter that holds the address alerts are posted to.
    pub webhook_parameter: Option<String>,
    /// `MAX_MESSAGES`: how many tickets one receive takes.
    pub tickets_at_once: u32,
    /// `WAIT_TIME_SECONDS`: how long a receive waits.
    pub wait: Duration,
    /// `VISIBILITY_TIMEOUT`: how long a received ticket is hidden until its task is claimed.
    pub visibility: Duration,
}

/// A setting that is missing or wrong, by its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} {problem}")]
pub struct BadSetting {
    pub name: &'static str,
    pub problem: String,
}

impl AwsSettings {
    /// Reads the settings. Empty ones count as not set.
    pub fn read(environment: &BTreeMap<String, String>) -> Result<Self, BadSetting> {
        let found = |names: &Names| find(environment, names);
        let needed = |names: &Names| found(names)?.ok_or_else(|| bad(names, "is not set"));
        let stage = found(STAGE)?.unwrap_or_else(|| STAGE_DEFAULT.to_owned());
        let address = |names: &Names| match found(names)? {
            Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
                Err(bad(names, format!("is no address of a queue: {url}")))
            }
            url => Ok(url),
        };
        let tickets = number(environment, TICKETS, TICKETS_DEFAULT, 1, TICKETS_MAX)?;
        Ok(Self {
            table: found(TABLE)?.unwrap_or_else(|| format!("events-{stage}")),
            bucket: needed(BUCKET)?,
            bus: needed(BUS)?,
            queue_url: address(QUEUE)?,
            dlq_url: address(DEAD_QUEUE)?,
            webhook_parameter: found(WEBHOOK_PARAMETER)?,
            tickets_at_once: u32::try_from(tickets).unwrap_or(1),
            wait: Duration::from_secs(number(
                environment,
                WAIT,
                WAIT_SECONDS_DEFAULT,
                0,
                WAIT_SECONDS_DEFAULT,
            )?),
            visibility: Duration::from_secs(number(
                environment,
                VISIBILITY,
                VISIBILITY_SECONDS_DEFAULT,
                1,
                VISIBILITY_SECONDS_MAX,
            )?),
            stage,
        })
    }
}

fn bad(names: &Names, problem: impl Into<String>) -> BadSetting {
    BadSetting { name: names[0], problem: problem.into() }
}

fn find(environment: &BTreeMap<String, String>, names: &Names) -> Result<Option<String>, BadSetting> {
    let set = |name: &&'static str| {
        let value = environment.get(*name).filter(|value| !value.is_empty())?;
        Some((*name, value))
    };
    let mut found = names.iter().filter_map(set);
    let Some((name, value)) = found.next() else { return Ok(None) };
    match found.find(|(_, other)| *other != value) {
        Some((other, _)) => Err(bad(&[name], format!("and {other} mean the same and differ"))),
        None => Ok(Some(value.clone())),
    }
}

fn number(
    environment: &BTreeMap<String, String>,
    names: &Names,
    default: u64,
    least: u64,
    most: u64,
) -> Result<u64, BadSetting> {
    let Some(text) = find(environment, names)? else { return Ok(default) };
    let value = text.parse().ok().filter(|value| (least..=most).contains(value));
    value.ok_or_else(|| bad(names, format!("must be a number from {least} to {most}: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<AwsSettings, String> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        AwsSettings::read(&pairs.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_stage_is_found_by_its_names() {
        let least = read(&[("S3_BUCKET", "b"), ("EVENT_BUS_NAME", "bus")]).unwrap();
        assert_eq!((least.stage.as_str(), least.table.as_str()), ("dev", "events-dev"));
        assert_eq!((least.queue_url, least.tickets_at_once), (None, 1));
        assert_eq!((least.wait.as_secs(), least.visibility.as_secs()), (20, 30));
        let all = read(&[
            ("S3_BUCKET", "b"),
            ("EVENTBRIDGE_BUS_NAME", "bus"),
            ("NODE_ENV", "prod"),
            ("EVENTS_TABLE", "t"),
            ("TABLE_NAME", "t"),
            ("TASK_QUEUE_URL", "https://sqs/q"),
            ("SQS_DLQ_URL", "https://sqs/d"),
            ("MAX_MESSAGES", "10"),
            ("WAIT_TIME_SECONDS", "0"),
            ("VISIBILITY_TIMEOUT", "43200"),
        ]);
        let all = all.unwrap();
        assert_eq!((all.table.as_str(), all.queue_url.as_deref()), ("t", Some("https://sqs/q")));
        assert_eq!((all.tickets_at_once, all.wait), (10, Duration::ZERO));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |name, value| read(&[("S3_BUCKET", "b"), ("EVENT_BUS_NAME", "bus"), (name, value)]);
        assert_eq!(read(&[]).unwrap_err(), "S3_BUCKET is not set");
        assert_eq!(read(&[("S3_BUCKET", "b")]).unwrap_err(), "EVENTBRIDGE_BUS_NAME is not set");
        for (name, value, told) in [
            ("S3_BUCKET", "", "S3_BUCKET is not set"),
            ("SQS_QUEUE_URL", "q", "SQS_QUEUE_URL is no address of a queue: q"),
            ("MAX_MESSAGES", "11", "MAX_MESSAGES must be a number from 1 to 10: 11"),
            ("WAIT_TIME_SECONDS", "x", "WAIT_TIME_SECONDS must be a number from 0 to 20: x"),
            ("VISIBILITY_TIMEOUT", "0", "VISIBILITY_TIMEOUT must be a number from 1 to 43200: 0"),
            (
                "EVENTBRIDGE_BUS_NAME",
                "other",
                "EVENTBRIDGE_BUS_NAME and EVENT_BUS_NAME mean the same and differ",
            ),
        ] {
            assert_eq!(with(name, value).unwrap_err(), told);
        }
    }
}
