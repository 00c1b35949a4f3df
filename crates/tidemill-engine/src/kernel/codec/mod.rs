//! How events, commits and rows are written as bytes: compact, versioned, safe to read back whatever the bytes are.
//!
//! Shared by all backends that outlive a process, so that what one wrote another can read.

mod bytes;
pub mod control;
mod event;
pub mod row_key;
pub mod stored;
mod stored_triage;
mod stored_work;
mod version_1;
mod wire;
mod word;

pub use bytes::{BadBytes, Reader, put_varint, unzigzag, zigzag};
pub use event::{EventFields, StoredEvent, decode_event, decode_fields, encode_event};
