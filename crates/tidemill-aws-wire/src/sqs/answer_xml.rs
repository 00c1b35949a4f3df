//! The answers of SQS in XML, for clients of the query protocol. Lists are flat, as in their requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::answer::{SentMessage, SqsAnswer, SqsBatchOutcome, SqsMessage};
use super::digest::{md5_of_attributes, md5_of_body};
use super::message_attribute::AttributeContent;
use crate::error_answer::SQS_NAMESPACE;
use crate::xml::XmlWriter;

impl SqsAnswer {
    pub(super) fn xml(&self, request_id: &str) -> String {
        let name = self.operation().name();
        XmlWriter::document(&format!("{name}Response"), Some(SQS_NAMESPACE), |writer| {
            if !matches!(self, Self::DeleteMessage | Self::ChangeMessageVisibility) {
                writer.element(&format!("{name}Result"), |writer| self.write_result(writer));
            }
            writer.element("ResponseMetadata", |writer| writer.text("RequestId", request_id));
        })
    }

    fn write_result(&self, writer: &mut XmlWriter) {
        match self {
            Self::SendMessage(sent) => write_sent(writer, sent),
            Self::SendMessageBatch(outcome) => {
                write_outcome(writer, outcome, "SendMessageBatchResultEntry", write_sent);
            }
            Self::ReceiveMessage(messages) => {
                for message in messages {
                    writer.element("Message", |writer| write_received(writer, message));
                }
            }
            Self::DeleteMessage | Self::ChangeMessageVisibility => {}
            Self::DeleteMessageBatch(outcome) => {
                write_outcome(writer, outcome, "DeleteMessageBatchResultEntry", |_, ()| {});
            }
            Self::ChangeMessageVisibilityBatch(outcome) => {
                write_outcome(writer, outcome, "ChangeMessageVisibilityBatchResultEntry", |_, ()| {});
            }
            Self::GetQueueUrl { queue_url } | Self::CreateQueue { queue_url } => {
                writer.text("QueueUrl", queue_url);
            }
            Self::GetQueueAttributes(attributes) => {
                for (name, value) in attributes {
                    write_named(writer, "Attribute", name, |writer| writer.text("Value", value));
                }
            }
            Self::ListQueues { queue_urls, next_token } => {
                for queue_url in queue_urls {
                    writer.text("QueueUrl", queue_url);
                }
                writer.optional("NextToken", next_token.as_deref());
            }
        }
    }
}

fn write_sent(writer: &mut XmlWriter, sent: &SentMessage) {
    writer.text("MessageId", &sent.message_id);
    writer.text("MD5OfMessageBody", &sent.md5_of_body);
    writer.optional("MD5OfMessageAttributes", sent.md5_of_attributes.as_deref());
    writer.optional("MD5OfMessageSystemAttributes", sent.md5_of_system_attributes.as_deref());
}

fn write_received(writer: &mut XmlWriter, message: &SqsMessage) {
    writer.text("MessageId", &message.message_id);
    writer.text("ReceiptHandle", &message.receipt_handle);
    writer.text("MD5OfBody", &md5_of_body(&message.body));
    writer.text("Body", &message.body);
    for (name, value) in &message.system_attributes {
        write_named(writer, "Attribute", name, |writer| writer.text("Value", value));
    }
    writer.optional("MD5OfMessageAttributes", md5_of_attributes(&message.attributes).as_deref());
    for (name, attribute) in &message.attributes {
        write_named(writer, "MessageAttribute", name, |writer| {
            writer.element("Value", |writer| {
                match &attribute.content {
                    AttributeContent::Text(text) => writer.text("StringValue", text),
                    AttributeContent::Binary(bytes) => writer.text("BinaryValue", &STANDARD.encode(bytes)),
                }
                writer.text("DataType", &attribute.data_type);
            });
        });
    }
}

fn write_named(writer: &mut XmlWriter, element: &str, name: &str, value: impl FnOnce(&mut XmlWriter)) {
    writer.element(element, |writer| {
        writer.text("Name", name);
        value(writer);
    });
}

fn write_outcome<T>(
    writer: &mut XmlWriter,
    outcome: &SqsBatchOutcome<T>,
    element: &str,
    content: impl Fn(&mut XmlWriter, &T),
) {
    for (id, outcome) in &outcome.entries {
        match outcome {
            Ok(sent) => writer.element(element, |writer| {
                writer.text("Id", id);
                content(writer, sent);
            }),
            Err(fault) => writer.element("BatchResultErrorEntry", |writer| {
                writer.text("Id", id);
                writer.text("Code", fault.code.query_name());
                writer.text("Message", &fault.message);
                writer.text("SenderFault", "true");
            }),
        }
    }
}
