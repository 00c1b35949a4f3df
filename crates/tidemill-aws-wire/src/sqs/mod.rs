//! Queues: requests of SQS read from both of its protocols into one set of types, and answers written in both.
//!
//! A request in the query protocol is first brought into the shape that it has in JSON (`form_members`); from there on there
//! is one reader, so the protocols cannot drift apart. Bounds are checked here, once; what was read can only be right. Whether a
//! queue exists or a receipt is good is the business of the engine.

mod answer;
mod answer_xml;
mod batch;
mod digest;
mod fault;
mod form_members;
mod members;
mod message;
mod message_attribute;
mod receive;
mod request;

pub use answer::{SentMessage, SqsAnswer, SqsBatchOutcome, SqsMessage};
pub use batch::{BATCH_ENTRIES_MAX, BATCH_ID_CHARS_MAX, SqsBatch, SqsBatchEntry};
pub use digest::{md5_of_attributes, md5_of_body};
pub use fault::{SqsFault, SqsFaultCode};
pub use message::{DELAY_SECS_MAX, MESSAGE_BYTES_MAX, OutgoingMessage};
pub use message_attribute::{ATTRIBUTES_MAX, AttributeContent, MessageAttribute, MessageAttributes};
pub use receive::{RECEIVE_MAX, ReceiveMessage, VISIBILITY_SECS_MAX, WAIT_SECS_MAX};
pub use request::{ChangedVisibility, SqsRequest};
