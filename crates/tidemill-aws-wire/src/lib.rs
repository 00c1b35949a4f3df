//! What clients of AWS put on the wire, and what they expect back: signatures, chunked bodies, items and expressions of
//! tables, forms of queues.
//!
//! Nothing here knows the engine, opens a socket or reads a clock: a request comes in as bytes and values, and the time
//! comes with it.

pub mod call;
pub mod checksum;
pub mod chunked;
mod crc;
pub mod dialect;
pub mod door_error;
pub mod dynamodb;
pub mod error_answer;
pub mod eventbridge;
pub mod form;
pub mod hex;
pub mod json_fault;
pub mod request_head;
pub mod s3;
pub mod signature;
pub mod sqs;
pub mod step_functions;
pub mod sts;
pub mod wire_answer;
pub mod wire_date;
pub mod xml;

pub use request_head::RequestHead;
pub use wire_answer::WireAnswer;
