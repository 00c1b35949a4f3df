//! The requests of SQS, the same for both of its protocols.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::batch::SqsBatch;
use super::fault::{SqsFault, SqsFaultCode};
use super::form_members::form_members;
use super::members::Members;
use super::message::{MESSAGE_BYTES_MAX, OutgoingMessage};
use super::receive::{ReceiveMessage, VISIBILITY_SECS_MAX, check_queue_attribute_names};
use crate::RequestHead;
use crate::call::SqsOperation;
use crate::dialect::{SqsProtocol, form_of};

/// The characters of a queue's name.
const QUEUE_NAME_CHARS_MAX: usize = 80;
/// The characters of a receipt handle.
const RECEIPT_CHARS_MAX: usize = 1_024;
/// The queues of one page of a list.
const QUEUES_MAX: u32 = 1_000;

/// What a client asks of a queue. Queues are named by the last segment of their URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqsRequest {
    SendMessage { queue: String, message: OutgoingMessage },
    SendMessageBatch(SqsBatch<OutgoingMessage>),
    ReceiveMessage(ReceiveMessage),
    DeleteMessage { queue: String, receipt_handle: String },
    DeleteMessageBatch(SqsBatch<String>),
    ChangeMessageVisibility { queue: String, change: ChangedVisibility },
    ChangeMessageVisibilityBatch(SqsBatch<ChangedVisibility>),
    GetQueueUrl { queue: String },
    GetQueueAttributes { queue: String, names: Vec<String> },
    ListQueues { prefix: String, queues_max: Option<u32>, next_token: Option<String> },
    CreateQueue { queue: String, attributes: BTreeMap<String, String> },
}

/// A message that is hidden for longer, or shown sooner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedVisibility {
    pub receipt_handle: String,
    pub visibility_secs: u32,
}

impl SqsRequest {
    /// Reads the request of a call.
    pub fn read(
        operation: SqsOperation,
        protocol: SqsProtocol,
        head: &RequestHead<'_>,
        body: &[u8],
    ) -> Result<Self, SqsFault> {
        let members = match protocol {
            SqsProtocol::Json => json_members(body)?,
            SqsProtocol::Query => {
                let mut members = form_members(&form_of(head, body).unwrap_or_default())?;
                // Older clients name the queue by the path alone.
                if !members.contains_key("QueueUrl") && head.path.len() > 1 {
                    members.insert("QueueUrl".to_owned(), head.path.into());
                }
                members
            }
        };
        Self::of_members(operation, Members::of(&members, protocol))
    }

    fn of_members(operation: SqsOperation, members: Members<'_>) -> Result<Self, SqsFault> {
        let queue = || queue_of_url(members.required_text("QueueUrl")?);
        Ok(match operation {
            SqsOperation::SendMessage => {
                Self::SendMessage { queue: queue()?, message: OutgoingMessage::read(members)? }
            }
            SqsOperation::SendMessageBatch => {
                let batch =
                    SqsBatch::read(queue()?, members, "SendMessageBatchRequestEntry", OutgoingMessage::read)?;
                check_batch_size(&batch)?;
                Self::SendMessageBatch(batch)
            }
            SqsOperation::ReceiveMessage => Self::ReceiveMessage(ReceiveMessage::read(queue()?, members)?),
            SqsOperation::DeleteMessage => {
                Self::DeleteMessage { queue: queue()?, receipt_handle: receipt_handle(members)? }
            }
            SqsOperation::DeleteMessageBatch => Self::DeleteMessageBatch(SqsBatch::read(
                queue()?,
                members,
                "DeleteMessageBatchRequestEntry",
                receipt_handle,
            )?),
            SqsOperation::ChangeMessageVisibility => {
                Self::ChangeMessageVisibility { queue: queue()?, change: ChangedVisibility::read(members)? }
            }
            SqsOperation::ChangeMessageVisibilityBatch => Self::ChangeMessageVisibilityBatch(SqsBatch::read(
                queue()?,
                members,
                "ChangeMessageVisibilityBatchRequestEntry",
                ChangedVisibility::read,
            )?),
            SqsOperation::GetQueueUrl => Self::GetQueueUrl { queue: queue_name(members)? },
            SqsOperation::GetQueueAttributes => {
                let names = members.texts("AttributeNames")?;
                check_queue_attribute_names(&names)?;
                Self::GetQueueAttributes { queue: queue()?, names }
            }
            SqsOperation::ListQueues => Self::ListQueues {
                prefix: members.text("QueueNamePrefix")?.unwrap_or_default().to_owned(),
                queues_max: members.number("MaxResults", 1..=QUEUES_MAX)?,
                next_token: members.text("NextToken")?.map(str::to_owned),
            },
            SqsOperation::CreateQueue => {
                let attributes: BTreeMap<_, _> = members.named_texts("Attributes")?.into_iter().collect();
                let names: Vec<String> = attributes.keys().cloned().collect();
                check_queue_attribute_names(&names)?;
                Self::CreateQueue { queue: queue_name(members)?, attributes }
            }
        })
    }
}

impl ChangedVisibility {
    fn read(members: Members<'_>) -> Result<Self, SqsFault> {
        let receipt_handle = receipt_handle(members)?;
        let visibility = members.number("VisibilityTimeout", 0..=VISIBILITY_SECS_MAX)?;
        let visibility_secs = visibility.ok_or_else(|| SqsFault::missing("VisibilityTimeout"))?;
        Ok(Self { receipt_handle, visibility_secs })
    }
}

fn json_members(body: &[u8]) -> Result<Map<String, Value>, SqsFault> {
    serde_json::from_slice(body).map_err(|error| {
        SqsFault::new(SqsFaultCode::Serialization, format!("The body is not a JSON object: {error}."))
    })
}

fn queue_of_url(url: &str) -> Result<String, SqsFault> {
    // Behind the host, which is no name of a queue.
    let path =
        url.split_once("://").map_or(url, |(_, rest)| rest.split_once('/').map_or("", |(_, path)| path));
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    if is_queue_name(name) { Ok(name.to_owned()) } else { Err(SqsFault::queue_does_not_exist()) }
}

fn queue_name(members: Members<'_>) -> Result<String, SqsFault> {
    let name = members.required_text("QueueName")?;
    if is_queue_name(name) {
        return Ok(name.to_owned());
    }
    Err(SqsFault::invalid(format!(
        "Can only include alphanumeric characters, hyphens, or underscores. 1 to {QUEUE_NAME_CHARS_MAX} in length"
    )))
}

fn is_queue_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    // The name of a FIFO queue is the name of a queue, of one that does not exist.
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    !stem.is_empty() && name.len() <= QUEUE_NAME_CHARS_MAX && stem.bytes().all(allowed)
}

fn receipt_handle(members: Members<'_>) -> Result<String, SqsFault> {
    let handle = members.required_text("ReceiptHandle")?;
    if handle.len() > RECEIPT_CHARS_MAX || !handle.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "The input receipt handle is invalid.";
        return Err(SqsFault::new(SqsFaultCode::ReceiptHandleIsInvalid, message));
    }
    Ok(handle.to_owned())
}

fn check_batch_size(batch: &SqsBatch<OutgoingMessage>) -> Result<(), SqsFault> {
    let sent = batch.entries.iter().filter_map(|entry| entry.content.as_ref().ok());
    let size_bytes: usize = sent.map(OutgoingMessage::size_bytes).sum();
    if size_bytes > MESSAGE_BYTES_MAX {
        return Err(SqsFault::new(
            SqsFaultCode::BatchRequestTooLong,
            format!(
                "Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent {size_bytes} bytes."
            ),
        ));
    }
    Ok(())
}
