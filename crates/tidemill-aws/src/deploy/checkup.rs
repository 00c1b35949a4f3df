//! Whether the parts of a stage are there and set up as they must be.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    BillingMode, IndexStatus, KeySchemaElement, KeyType, ProjectionType, TableDescription, TableStatus,
    TimeToLiveStatus,
};
use aws_sdk_eventbridge::types::RuleState;
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::Value;
use tidemill_model::events::key::Index;

use crate::bus::outbox::Bus;
use crate::connection::Connection;
use crate::fault::words;
use crate::stage::options::AwsOptions;

/// What the queue of tasks must have: how long a message is hidden that nobody extends, and how often it is received.
const QUEUE_VISIBILITY_MIN: u64 = 900;
const RECEIVES_MAX: u64 = 3;
/// Functions with 30 s read the dead letters; a message must be hidden for six times as long.
const DEAD_VISIBILITY_MIN: u64 = 180;
const DEAD_RETENTION: u64 = 1_209_600;
/// What our events are called on the bus.
const DETAIL_TYPE: &str = "log-event";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckupGrade {
    Good,
    /// It works, but not as well as it could.
    Poor,
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    pub health: CheckupGrade,
    pub found: String,
    /// How to mend it.
    pub advice: Option<String>,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, health: CheckupGrade::Good, found: found.into(), advice: None }
    }

    fn poor(name: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self { name, health: CheckupGrade::Poor, found: found.into(), advice: Some(advice.to_owned()) }
    }

    fn bad(name: &'static str, found: impl Into<String>, advice: &str) -> Self {
        Self { name, health: CheckupGrade::Bad, found: found.into(), advice: Some(advice.to_owned()) }
    }

    /// A part that could not be checked: it is not there, or the caller may not see it, as a worker may not.
    fn unseen(name: &'static str, refusal: &Refusal, advice: &str) -> Self {
        if refusal.is_denied {
            let advice =
                "ask with credentials that may look at the parts of a stage; workers and servers need not";
            return Self::poor(name, format!("may not be looked at: {}", refusal.words), advice);
        }
        Self::bad(name, refusal.words.clone(), advice)
    }
}

/// Why a part could not be looked at.
struct Refusal {
    words: String,
    is_denied: bool,
}

impl Refusal {
    fn of<E>(what: &str, error: SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or_default();
        // Some answer without a body, and with the status alone.
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        let is_denied = status == 403 || code.starts_with("AccessDenied");
        Self { words: words(what, error), is_denied }
    }

    /// The same, of a thing by its name.
    fn about(self, name: &str) -> Self {
        Self { words: format!("{name}: {}", self.words), ..self }
    }
}

/// Looks at everything, in an order that goes from what nothing works without to what is missed later.
pub async fn checkup(connection: &Connection, options: &AwsOptions, stage: &str) -> Vec<Check> {
    let mut checks = match table(connection, &options.table).await {
        Ok(checks) => checks,
        // What does not answer does not answer to the rest either, and each would be waited for.
        Err(silence) => return vec![silence],
    };
    checks.push(bucket(connection, &options.bucket).await);
    match &options.queue_url {
        Some(url) => checks.extend(queue(connection, url).await),
        None => checks.push(Check::bad("queue", "none is named", "set SQS_QUEUE_URL")),
    }
    match &options.bus {
        Bus::Named(name) => {
            checks.extend(bus(connection, name).await);
            checks.extend([repairs(connection, stage).await, undelivered(connection, stage).await]);
        }
        Bus::Loopback => checks.push(Check::poor(
            "bus",
            "none: each process stores its events itself",
            "set EVENTBRIDGE_BUS_NAME: nobody else hears of events",
        )),
    }
    checks
}

/// The table, or that AWS cannot be reached at all.
async fn table(connection: &Connection, name: &str) -> Result<Vec<Check>, Check> {
    let described = connection.dynamo.describe_table().table_name(name).send().await;
    let table = match described {
        Ok(described) => described.table,
        Err(error) if error.as_service_error().is_none() => {
            let advice =
                "nothing answers: look at AWS_REGION, AWS_ENDPOINT_URL, the credentials and the network";
            return Err(Check::bad("reach", words("DescribeTable", error), advice));
        }
        Err(error) => {
            let advice = "name the table with DYNAMODB_EVENTS_TABLE_NAME, or deploy the stack infrastructure; \
                          credentials need dynamodb:DescribeTable";
            return Ok(vec![Check::unseen(
                "table",
                &Refusal::of("DescribeTable", error).about(name),
                advice,
            )]);
        }
    };
    let Some(table) = table else {
        return Ok(vec![Check::bad(
            "table",
            format!("{name} is not described"),
            "look at it in the console",
        )]);
    };
    let mut checks = vec![keys(name, &table), indexes(&table)];
    let ttl = connection.dynamo.describe_time_to_live().table_name(name).send().await;
    checks.push(match ttl {
        Err(error) => Check::poor(
            "ttl",
            words("DescribeTimeToLive", error),
            "credentials need dynamodb:DescribeTimeToLive",
        ),
        Ok(found) => {
            let found = found.time_to_live_description;
            let attribute = found.as_ref().and_then(|found| found.attribute_name()).unwrap_or("none");
            let status = found.as_ref().and_then(|found| found.time_to_live_status());
            let is_on = matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
            if is_on && attribute == "ttl" {
                Check::good("ttl", "on, by the attribute ttl")
            } else {
                Check::bad(
                    "ttl",
                    format!("attribute {attribute}, off or another"),
                    "turn time to live on for the attribute ttl",
                )
            }
        }
    });
    Ok(checks)
}

fn keys(name: &str, table: &TableDescription) -> Check {
    if table.table_status != Some(TableStatus::Active) {
        let status = table.table_status.as_ref().map_or("unknown", TableStatus::as_str);
        return Check::bad("table", format!("{name} is {status}"), "wait until it is active");
    }
    if !has_keys(table.key_schema(), ["PK", "SK"]) {
        return Check::bad("table", format!("{name} has other keys than PK and SK"), "name another table");
    }
    let billing = table.billing_mode_summary().and_then(|summary| summary.billing_mode());
    if billing != Some(&BillingMode::PayPerRequest) {
        let advice = "without on-demand capacity bursts are throttled: set BillingMode PAY_PER_REQUEST";
        return Check::poor("table", format!("{name} has provisioned capacity"), advice);
    }
    Check::good("table", format!("{name}, on demand"))
}

fn has_keys(schema: &[KeySchemaElement], names: [&str; 2]) -> bool {
    let of_kind = |kind: &KeyType| {
        schema.iter().find(|element| element.key_type() == kind).map(KeySchemaElement::attribute_name)
    };
    of_kind(&KeyType::Hash) == Some(names[0]) && of_kind(&KeyType::Range) == Some(names[1])
}

fn indexes(table: &TableDescription) -> Check {
    let mut wrong = Vec::new();
    let mut count = 0;
    for index in Index::ALL {
        let Some(name) = index.name() else { continue };
        count += 1;
        let found = table.global_secondary_indexes().iter().find(|found| found.index_name() == Some(name));
        let Some(found) = found else {
            wrong.push(format!("{name} is missing"));
            continue;
        };
        let projects = found.projection().and_then(|projection| projection.projection_type());
        if !has_keys(found.key_schema(), index.attributes()) {
            wrong.push(format!("{name} has other keys"));
        } else if projects != Some(&ProjectionType::All) {
            wrong.push(format!("{name} does not hold all attributes"));
        } else if found.index_status().is_some_and(|status| *status != IndexStatus::Active) {
            wrong.push(format!("{name} is being made"));
        }
    }
    if wrong.is_empty() {
        return Check::good("indexes", format!("{count}, as they should be"));
    }
    Check::bad("indexes", wrong.join(", "), "deploy the stack infrastructure, or make them by hand")
}

async fn bucket(connection: &Connection, name: &str) -> Check {
    match connection.s3.head_bucket().bucket(name).send().await {
        Ok(_) => Check::good("bucket", name),
        Err(error) => {
            let advice = "name the bucket with S3_BUCKET; credentials need s3:ListBucket on it";
            Check::unseen("bucket", &Refusal::of("HeadBucket", error).about(name), advice)
        }
    }
}

type Attributes = BTreeMap<String, String>;

async fn attributes(connection: &Connection, url: &str) -> Result<Attributes, Refusal> {
    let asked = connection.sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::All);
    let asked = asked.send().await.map_err(|error| Refusal::of("GetQueueAttributes", error))?;
    let found = asked.attributes.unwrap_or_default();
    Ok(found.into_iter().map(|(name, value)| (name.as_str().to_owned(), value)).collect())
}

/// A number that an attribute holds.
fn number(attributes: &Attributes, name: &str) -> u64 {
    attributes.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

async fn queue(connection: &Connection, url: &str) -> Vec<Check> {
    let found = match attributes(connection, url).await {
        Ok(found) => found,
        Err(refusal) => {
            let advice = "name the queue with SQS_QUEUE_URL; credentials need sqs:GetQueueAttributes";
            return vec![Check::unseen("queue", &refusal.about(url), advice)];
        }
    };
    let visibility = number(&found, "VisibilityTimeout");
    let waiting = number(&found, "ApproximateNumberOfMessages");
    let mut checks = vec![if visibility < QUEUE_VISIBILITY_MIN {
        let advice = "set its VisibilityTimeout to 900: a function that dies must not lose its tickets to others at once";
        Check::poor("queue", format!("hides messages for {visibility} s"), advice)
    } else {
        Check::good("queue", format!("{waiting} tickets, hidden for {visibility} s"))
    }];
    checks.push(dead_letters(connection, &found).await);
    checks
}

/// The queue behind a queue.
async fn dead_letters(connection: &Connection, attributes_of_queue: &Attributes) -> Check {
    let name = "dead letters";
    let policy =
        attributes_of_queue.get("RedrivePolicy").and_then(|text| serde_json::from_str::<Value>(text).ok());
    let Some(policy) = policy else {
        let advice =
            "give the queue a RedrivePolicy: a ticket that no worker survives would come back for ever";
        return Check::bad(name, "the queue has none behind it", advice);
    };
    // The service writes the number as text at times.
    let count = policy.get("maxReceiveCount").map(|count| count.to_string().trim_matches('"').to_owned());
    let receives = count.and_then(|count| count.parse().ok()).unwrap_or(0);
    let arn = policy.get("deadLetterTargetArn").and_then(Value::as_str).unwrap_or_default();
    let target = arn.rsplit(':').next().unwrap_or_default();
    let found = match connection.sqs.get_queue_url().queue_name(target).send().await {
        Ok(found) => attributes(connection, found.queue_url().unwrap_or_default()).await,
        Err(error) => Err(Refusal::of("GetQueueUrl", error)),
    };
    let found = match found {
        Ok(found) => found,
        Err(refusal) => {
            return Check::unseen(name, &refusal.about(arn), "make the queue that the RedrivePolicy names");
        }
    };
    let (visibility, retention) =
        (number(&found, "VisibilityTimeout"), number(&found, "MessageRetentionPeriod"));
    if receives != RECEIVES_MAX {
        Check::poor(name, format!("after {receives} receives"), "set maxReceiveCount to 3")
    } else if visibility < DEAD_VISIBILITY_MIN {
        Check::poor(
            name,
            format!("{target} hides messages for {visibility} s"),
            "set its VisibilityTimeout to 180",
        )
    } else if retention < DEAD_RETENTION {
        Check::poor(
            name,
            format!("{target} keeps messages for {retention} s"),
            "set its MessageRetentionPeriod to 1209600",
        )
    } else {
        let waiting = number(&found, "ApproximateNumberOfMessages");
        Check::good(name, format!("{target}, after {receives} receives; {waiting} there"))
    }
}

async fn bus(connection: &Connection, name: &str) -> Vec<Check> {
    if let Err(error) = connection.bus.describe_event_bus().name(name).send().await {
        let advice = "name the bus with EVENTBRIDGE_BUS_NAME; credentials need events:DescribeEventBus";
        return vec![Check::unseen("bus", &Refusal::of("DescribeEventBus", error).about(name), advice)];
    }
    vec![Check::good("bus", name), rule(connection, name).await]
}

/// Something must lead from the bus to the table.
async fn rule(connection: &Connection, bus: &str) -> Check {
    let name = "rule";
    let advice = "deploy the stack event: without its rule events are sent and not stored";
    let mut token = None;
    let mut found = None;
    loop {
        let asked = connection.bus.list_rules().event_bus_name(bus).set_next_token(token);
        let page = match asked.send().await {
            Ok(page) => page,
            Err(error) => {
                return Check::poor(name, words("ListRules", error), "credentials need events:ListRules");
            }
        };
        // One that looks at more than the kind takes some events only.
        let of_events = |pattern: &str| {
            let pattern: Value = serde_json::from_str(pattern).unwrap_or_default();
            let types = pattern["detail-type"].as_array();
            pattern.as_object().is_some_and(|fields| fields.len() == 1)
                && types.is_some_and(|types| types.iter().any(|one| one == DETAIL_TYPE))
        };
        let rules = page.rules.unwrap_or_default();
        found = found.or_else(|| rules.into_iter().find(|rule| rule.event_pattern().is_some_and(of_events)));
        token = page.next_token;
        if found.is_some() || token.is_none() {
            break;
        }
    }
    let Some(rule) = found else {
        return Check::bad(name, format!("no rule of {bus} takes every {DETAIL_TYPE}"), advice);
    };
    let rule_name = rule.name().unwrap_or_default();
    if rule.state() != Some(&RuleState::Enabled) {
        return Check::bad(name, format!("{rule_name} is disabled"), "enable it");
    }
    let targets = connection.bus.list_targets_by_rule().rule(rule_name).event_bus_name(bus).send().await;
    let targets = match targets {
        Ok(targets) => targets.targets.unwrap_or_default(),
        Err(error) => {
            return Check::poor(
                name,
                words("ListTargetsByRule", error),
                "credentials need events:ListTargetsByRule",
            );
        }
    };
    let Some(target) = targets.first() else {
        return Check::bad(name, format!("{rule_name} has no target"), advice);
    };
    if targets.iter().any(|target| target.dead_letter_config().is_none()) {
        let found = format!("{rule_name} has a target without dead letters");
        return Check::poor(name, found, "give every target a DeadLetterConfig: what it refuses is lost");
    }
    Check::good(name, format!("{rule_name} to {}", target.arn().rsplit(':').next().unwrap_or_default()))
}

/// The timer of what repairs a stage.
async fn repairs(connection: &Connection, stage: &str) -> Check {
    let (name, rule) = ("repairs", format!("{stage}-reconcile"));
    let advice = "deploy the stack dispatcher: without its timer nothing repairs what stands still while no server runs";
    match connection.bus.describe_rule().name(&rule).send().await {
        Ok(found) if found.state() == Some(&RuleState::Enabled) => {
            Check::good(name, format!("{rule}, {}", found.schedule_expression().unwrap_or("by events")))
        }
        Ok(_) => Check::bad(name, format!("{rule} is disabled"), "enable it"),
        Err(error) => Check::poor(name, format!("{rule}: {}", words("DescribeRule", error)), advice),
    }
}

/// What targets of the bus did not take. A function empties it and tells people.
async fn undelivered(connection: &Connection, stage: &str) -> Check {
    let (name, queue) = ("undelivered", format!("{stage}-eventbridge-target-dlq"));
    let found = match connection.sqs.get_queue_url().queue_name(&queue).send().await {
        Ok(found) => attributes(connection, found.queue_url().unwrap_or_default()).await,
        Err(error) => Err(Refusal::of("GetQueueUrl", error)),
    };
    match found.map(|found| number(&found, "ApproximateNumberOfMessages")) {
        Ok(0) => Check::good(name, format!("{queue} is empty")),
        Ok(waiting) => Check::poor(
            name,
            format!("{queue} holds {waiting}"),
            "eventbridge-dlq-alert takes them; if they stay, look at its log",
        ),
        Err(refusal) => Check::unseen(name, &refusal.about(&queue), "deploy the stack event"),
    }
}
