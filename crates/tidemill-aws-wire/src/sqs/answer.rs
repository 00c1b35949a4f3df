//! The answers of SQS and their form in JSON; their form in XML is in [`super::answer_xml`].

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::digest::{md5_of_attributes, md5_of_body};
use super::fault::SqsFault;
use super::message::OutgoingMessage;
use super::message_attribute::{AttributeContent, MessageAttribute, MessageAttributes};
use crate::call::SqsOperation;
use crate::dialect::SqsProtocol;
use crate::wire_answer::{JSON_1_0, TEXT_XML, WireAnswer};

/// What SQS answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqsAnswer {
    SendMessage(SentMessage),
    SendMessageBatch(SqsBatchOutcome<SentMessage>),
    ReceiveMessage(Vec<SqsMessage>),
    DeleteMessage,
    DeleteMessageBatch(SqsBatchOutcome<()>),
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch(SqsBatchOutcome<()>),
    GetQueueUrl { queue_url: String },
    GetQueueAttributes(BTreeMap<String, String>),
    ListQueues { queue_urls: Vec<String>, next_token: Option<String> },
    CreateQueue { queue_url: String },
}

/// A message that was taken, with the sums by which its sender checks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    pub message_id: String,
    pub(super) md5_of_body: String,
    pub(super) md5_of_attributes: Option<String>,
    pub(super) md5_of_system_attributes: Option<String>,
}

impl SentMessage {
    pub fn of(message_id: impl Into<String>, message: &OutgoingMessage) -> Self {
        Self {
            message_id: message_id.into(),
            md5_of_body: message.md5_of_body(),
            md5_of_attributes: message.md5_of_attributes(),
            md5_of_system_attributes: md5_of_attributes(&message.system_attributes),
        }
    }

    fn members(&self) -> Map<String, Value> {
        let mut members = Map::new();
        members.insert("MessageId".to_owned(), self.message_id.as_str().into());
        members.insert("MD5OfMessageBody".to_owned(), self.md5_of_body.as_str().into());
        put(&mut members, "MD5OfMessageAttributes", self.md5_of_attributes.as_deref());
        put(&mut members, "MD5OfMessageSystemAttributes", self.md5_of_system_attributes.as_deref());
        members
    }
}

/// A message that is handed out, with those of its attributes that were asked for. Its sums are made when it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsMessage {
    pub message_id: String,
    pub receipt_handle: String,
    pub body: String,
    pub system_attributes: BTreeMap<String, String>,
    pub attributes: MessageAttributes,
}

impl SqsMessage {
    fn json(&self) -> Value {
        let mut members = Map::new();
        members.insert("MessageId".to_owned(), self.message_id.as_str().into());
        members.insert("ReceiptHandle".to_owned(), self.receipt_handle.as_str().into());
        members.insert("MD5OfBody".to_owned(), md5_of_body(&self.body).into());
        members.insert("Body".to_owned(), self.body.as_str().into());
        if !self.system_attributes.is_empty() {
            members.insert("Attributes".to_owned(), json!(self.system_attributes));
        }
        if let Some(sum) = md5_of_attributes(&self.attributes) {
            members.insert("MD5OfMessageAttributes".to_owned(), sum.into());
            let attributes =
                self.attributes.iter().map(|(name, attribute)| (name.clone(), attribute_json(attribute)));
            members.insert("MessageAttributes".to_owned(), Value::Object(attributes.collect()));
        }
        Value::Object(members)
    }
}

/// What became of the entries of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsBatchOutcome<T> {
    pub entries: Vec<(String, Result<T, SqsFault>)>,
}

impl<T> SqsBatchOutcome<T> {
    fn json(&self, members: impl Fn(&T) -> Map<String, Value>) -> Value {
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for (id, outcome) in &self.entries {
            match outcome {
                Ok(content) => {
                    let mut members = members(content);
                    members.insert("Id".to_owned(), id.as_str().into());
                    successful.push(Value::Object(members));
                }
                // Codes of entries are those of the query protocol in both.
                Err(fault) => failed.push(json!({
                    "Id": id, "Code": fault.code.query_name(), "Message": fault.message, "SenderFault": true,
                })),
            }
        }
        let mut answer = json!({"Successful": successful});
        if !failed.is_empty() {
            answer["Failed"] = failed.into();
        }
        answer
    }
}

impl SqsAnswer {
    /// The operation that is answered.
    pub fn operation(&self) -> SqsOperation {
        match self {
            Self::SendMessage(_) => SqsOperation::SendMessage,
            Self::SendMessageBatch(_) => SqsOperation::SendMessageBatch,
            Self::ReceiveMessage(_) => SqsOperation::ReceiveMessage,
            Self::DeleteMessage => SqsOperation::DeleteMessage,
            Self::DeleteMessageBatch(_) => SqsOperation::DeleteMessageBatch,
            Self::ChangeMessageVisibility => SqsOperation::ChangeMessageVisibility,
            Self::ChangeMessageVisibilityBatch(_) => SqsOperation::ChangeMessageVisibilityBatch,
            Self::GetQueueUrl { .. } => SqsOperation::GetQueueUrl,
            Self::GetQueueAttributes(_) => SqsOperation::GetQueueAttributes,
            Self::ListQueues { .. } => SqsOperation::ListQueues,
            Self::CreateQueue { .. } => SqsOperation::CreateQueue,
        }
    }

    /// The whole answer.
    pub fn answer(&self, protocol: SqsProtocol, request_id: &str) -> WireAnswer {
        match protocol {
            SqsProtocol::Json => WireAnswer::json(200, JSON_1_0, &self.json()),
            SqsProtocol::Query => WireAnswer::xml(200, TEXT_XML, self.xml(request_id)),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::SendMessage(sent) => Value::Object(sent.members()),
            Self::SendMessageBatch(outcome) => outcome.json(SentMessage::members),
            Self::ReceiveMessage(messages) if messages.is_empty() => json!({}),
            Self::ReceiveMessage(messages) => {
                json!({"Messages": messages.iter().map(SqsMessage::json).collect::<Vec<_>>()})
            }
            Self::DeleteMessage | Self::ChangeMessageVisibility => json!({}),
            Self::DeleteMessageBatch(outcome) | Self::ChangeMessageVisibilityBatch(outcome) => {
                outcome.json(|()| Map::new())
            }
            Self::GetQueueUrl { queue_url } | Self::CreateQueue { queue_url } => {
                json!({"QueueUrl": queue_url})
            }
            Self::GetQueueAttributes(attributes) if attributes.is_empty() => json!({}),
            Self::GetQueueAttributes(attributes) => json!({"Attributes": attributes}),
            Self::ListQueues { queue_urls, next_token } => {
                let mut members = Map::new();
                if !queue_urls.is_empty() {
                    members.insert("QueueUrls".to_owned(), json!(queue_urls));
                }
                put(&mut members, "NextToken", next_token.as_deref());
                Value::Object(members)
            }
        }
    }
}

fn attribute_json(attribute: &MessageAttribute) -> Value {
    match &attribute.content {
        AttributeContent::Text(text) => json!({"DataType": attribute.data_type, "StringValue": text}),
        AttributeContent::Binary(bytes) => {
            json!({"DataType": attribute.data_type, "BinaryValue": STANDARD.encode(bytes)})
        }
    }
}

fn put(members: &mut Map<String, Value>, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        members.insert(name.to_owned(), value.into());
    }
}
