//! A stage as tests make it: a table, a bucket, a bus whose rule leads to a queue, and a queue for tickets with one for dead
//! ones behind it.

use std::sync::Arc;

use aws_sdk_sqs::types::QueueAttributeName;
use tidemill_aws::handlers::QueueEvent;
use tidemill_aws::{Aws, AwsOptions, Bus, create_table};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::{Engine, EngineConfig};
use tidemill_engine::policy::Policy;

use crate::double::{Double, fresh_name};

/// Short, so that tests see leases end.
pub(crate) const LEASE_MILLIS: u64 = 2_000;

pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) endpoint: String,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) s3: aws_sdk_s3::Client,
    pub(crate) sfn: aws_sdk_sfn::Client,
    pub(crate) bus: String,
    /// What `save_event` is fed from.
    pub(crate) events: String,
    pub(crate) tickets: String,
    /// Where tickets go that were received three times.
    pub(crate) dead: String,
}

impl Site {
    /// A stage of its own.
    pub(crate) async fn new(double: &Double) -> Self {
        let name = fresh_name();
        create_table(&double.connect().await, &name, &name).await.expect("the table is made");
        Self::make(double, &name).await
    }

    async fn make(double: &Double, name: &str) -> Self {
        let config = aws_config::defaults(aws_config::BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(&double.endpoint)
            .region(aws_config::Region::new("us-east-1"))
            .credentials_provider(aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "double"))
            .load()
            .await;
        let sqs = aws_sdk_sqs::Client::new(&config);
        let s3 = aws_sdk_s3::config::Builder::from(&config).force_path_style(true).build();
        let (s3, sfn) = (aws_sdk_s3::Client::from_conf(s3), aws_sdk_sfn::Client::new(&config));
        let bridge = aws_sdk_eventbridge::Client::new(&config);
        let queue = async |name: String| {
            let made = sqs.create_queue().queue_name(name).send().await.expect("the queue is made");
            made.queue_url.expect("it has an address")
        };
        let arn = async |url: &str| {
            let asked =
                sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::QueueArn);
            let attributes = asked.send().await.expect("the queue is there").attributes.unwrap_or_default();
            attributes[&QueueAttributeName::QueueArn].clone()
        };
        let (events, tickets) = (queue(format!("{name}-events")).await, queue(format!("{name}-tasks")).await);
        let dead = queue(format!("{name}-dead")).await;
        let redrive = format!(r#"{{"deadLetterTargetArn":"{}","maxReceiveCount":3}}"#, arn(&dead).await);
        let set = sqs.set_queue_attributes().queue_url(&tickets);
        let set = set.attributes(QueueAttributeName::RedrivePolicy, redrive);
        set.send().await.expect("dead tickets have a place");
        let arn = arn(&events).await;
        bridge.create_event_bus().name(name).send().await.expect("the bus is made");
        let rule = bridge.put_rule().name("save-event").event_bus_name(name);
        let rule = rule.event_pattern(r#"{"detail-type":["log-event"]}"#);
        rule.send().await.expect("the rule is made");
        let target =
            aws_sdk_eventbridge::types::Target::builder().id("1").arn(arn).build().expect("a target");
        let targets = bridge.put_targets().rule("save-event").event_bus_name(name).targets(target);
        targets.send().await.expect("the target is set");
        let (endpoint, name) = (double.endpoint.clone(), name.to_owned());
        Self { bus: name.clone(), name, endpoint, sqs, s3, sfn, events, tickets, dead }
    }

    /// All messages that are in a queue now.
    pub(crate) async fn drain(&self, queue: &str) -> Vec<serde_json::Value> {
        let mut found = Vec::new();
        loop {
            let receive = self.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let messages = receive.send().await.expect("the queue answers").messages.unwrap_or_default();
            if messages.is_empty() {
                return found;
            }
            for message in messages {
                let body = message.body.expect("a message has a body");
                found.push(serde_json::from_str(&body).expect("it is JSON"));
                let receipt = message.receipt_handle.expect("it can be deleted");
                let delete = self.sqs.delete_message().queue_url(queue).receipt_handle(receipt);
                delete.send().await.expect("it is deleted");
            }
        }
    }

    /// All messages that are in a queue now, as a function is handed them.
    pub(crate) async fn take(&self, queue: &str) -> QueueEvent {
        let mut records = Vec::new();
        loop {
            let receive = self.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
            let messages = receive.send().await.expect("the queue answers").messages.unwrap_or_default();
            if messages.is_empty() {
                let text = serde_json::json!({ "Records": records }).to_string();
                return serde_json::from_str(&text).expect("the form is the queue's");
            }
            for message in messages {
                records.push(serde_json::json!({ "messageId": message.message_id, "body": message.body }));
                let delete = self.sqs.delete_message().queue_url(queue);
                let delete = delete.receipt_handle(message.receipt_handle.expect("it can be deleted"));
                delete.send().await.expect("it is deleted");
            }
        }
    }

    /// How many tickets can be seen, and how many are hidden.
    pub(crate) async fn count(&self, queue: &str) -> (usize, usize) {
        let asked = self.sqs.get_queue_attributes().queue_url(queue);
        let asked = asked
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessages)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessagesNotVisible);
        let found = asked.send().await.expect("the queue is there").attributes.unwrap_or_default();
        let count = |name| found.get(&name).and_then(|digits| digits.parse().ok()).unwrap_or(0);
        (
            count(QueueAttributeName::ApproximateNumberOfMessages),
            count(QueueAttributeName::ApproximateNumberOfMessagesNotVisible),
        )
    }

    pub(crate) fn options(&self, seed: u64) -> AwsOptions {
        let bus = Bus::Named(self.bus.clone());
        AwsOptions {
            queue_url: Some(self.tickets.clone()),
            policy: Policy { lease_millis: LEASE_MILLIS, ..Policy::default() },
            follow_every: None,
            ..AwsOptions::new(self.name.clone(), self.name.clone(), bus, seed)
        }
    }

    /// A process of the stage.
    pub(crate) async fn open(&self, options: AwsOptions) -> Engine<Aws> {
        self.open_at(&self.endpoint, options).await
    }

    /// A process that reaches the stage by another way.
    pub(crate) async fn open_at(&self, endpoint: &str, options: AwsOptions) -> Engine<Aws> {
        self.open_with(endpoint, options, EngineConfig::default()).await
    }

    pub(crate) async fn open_with(
        &self,
        endpoint: &str,
        options: AwsOptions,
        config: EngineConfig,
    ) -> Engine<Aws> {
        let connection = tidemill_aws::Connection::to_double(endpoint).await;
        let (clock, seed) = (Arc::new(SystemClock::start()), options.seed);
        let backend = Aws::open(connection, options, Arc::clone(&clock) as _).await.expect("the store opens");
        Engine::new(backend, clock, seed + 1_000, config)
    }

    /// A process that runs tasks.
    pub(crate) async fn worker(&self, seed: u64) -> Engine<Aws> {
        self.open(AwsOptions { takes_tickets: true, ..self.options(seed) }).await
    }

    /// A process that runs none.
    pub(crate) async fn server(&self, seed: u64) -> Engine<Aws> {
        self.open(self.options(seed)).await
    }
}
