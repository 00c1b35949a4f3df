//! Receiving: how many messages a worker wants, for how long, and what it wants to know of them.

use super::fault::{SqsFault, SqsFaultCode};
use super::members::Members;

/// The messages of one answer.
pub const RECEIVE_MAX: u32 = 10;
/// For how long a message may be hidden.
pub const VISIBILITY_SECS_MAX: u32 = 43_200;
/// For how long a request may wait for a message.
pub const WAIT_SECS_MAX: u32 = 20;

/// What SQS knows of a message beside what its sender gave.
const SYSTEM_ATTRIBUTES: [&str; 9] = [
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    "AWSTraceHeader",
    "DeadLetterQueueSourceArn",
];

/// What SQS knows of a queue.
const QUEUE_ATTRIBUTES: [&str; 21] = [
    "Policy",
    "VisibilityTimeout",
    "MaximumMessageSize",
    "MessageRetentionPeriod",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
    "DelaySeconds",
    "ReceiveMessageWaitTimeSeconds",
    "RedrivePolicy",
    "FifoQueue",
    "ContentBasedDeduplication",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "DeduplicationScope",
    "FifoThroughputLimit",
    "RedriveAllowPolicy",
    "SqsManagedSseEnabled",
];

/// One request for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveMessage {
    pub queue: String,
    /// At least one.
    pub messages_max: u32,
    /// The queue's own if it is not given.
    pub visibility_secs: Option<u32>,
    /// The queue's own if it is not given.
    pub wait_secs: Option<u32>,
    system_attributes: Vec<String>,
    attributes: Vec<String>,
}

impl ReceiveMessage {
    pub(super) fn read(queue: String, members: Members<'_>) -> Result<Self, SqsFault> {
        // The first name is the older one; its list was shared with attributes of queues.
        let mut system_attributes = members.texts("AttributeNames")?;
        check_names(&system_attributes, |name| {
            SYSTEM_ATTRIBUTES.contains(&name) || QUEUE_ATTRIBUTES.contains(&name)
        })?;
        let newer = members.texts("MessageSystemAttributeNames")?;
        check_names(&newer, |name| SYSTEM_ATTRIBUTES.contains(&name))?;
        system_attributes.extend(newer);
        Ok(Self {
            queue,
            messages_max: members.number("MaxNumberOfMessages", 1..=RECEIVE_MAX)?.unwrap_or(1),
            visibility_secs: members.number("VisibilityTimeout", 0..=VISIBILITY_SECS_MAX)?,
            wait_secs: members.number("WaitTimeSeconds", 0..=WAIT_SECS_MAX)?,
            system_attributes,
            attributes: members.texts("MessageAttributeNames")?,
        })
    }

    /// Whether the worker asked for what SQS knows under this name.
    pub fn wants_system_attribute(&self, name: &str) -> bool {
        self.system_attributes.iter().any(|wanted| wanted == "All" || wanted == name)
    }

    /// Whether the worker asked for this attribute of the sender: by name, by its beginning (`task.*`), or for all.
    pub fn wants_attribute(&self, name: &str) -> bool {
        self.attributes.iter().any(|wanted| {
            let prefix = wanted.strip_suffix(".*");
            wanted == "All" || wanted == name || prefix.is_some_and(|prefix| name.starts_with(prefix))
        })
    }
}

/// Checks the names of attributes of queues. `All` is one of them.
pub(super) fn check_queue_attribute_names(names: &[String]) -> Result<(), SqsFault> {
    check_names(names, |name| QUEUE_ATTRIBUTES.contains(&name))
}

fn check_names(names: &[String], known: impl Fn(&str) -> bool) -> Result<(), SqsFault> {
    match names.iter().find(|name| *name != "All" && !known(name)) {
        None => Ok(()),
        Some(name) => {
            Err(SqsFault::new(SqsFaultCode::InvalidAttributeName, format!("Unknown Attribute {name}.")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialect::SqsProtocol;

    #[test]
    fn attributes_are_wanted_by_name_by_beginning_or_all() {
        for (wanted, name, expected) in [
            (json!([]), "requestId", false),
            (json!(["All"]), "requestId", true),
            (json!([".*"]), "requestId", true),
            (json!(["requestId"]), "requestId", true),
            (json!(["requestId"]), "requestid", false),
            (json!(["request.*"]), "requestId", true),
            (json!(["task.*"]), "requestId", false),
        ] {
            let request = json!({"MessageAttributeNames": wanted});
            let members = Members::of(request.as_object().unwrap(), SqsProtocol::Json);
            let receive = ReceiveMessage::read("q".to_owned(), members).unwrap();
            assert_eq!(receive.wants_attribute(name), expected, "{request} {name}");
            assert!(!receive.wants_system_attribute("SenderId"));
        }
    }
}
