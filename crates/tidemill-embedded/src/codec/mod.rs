//! How events are written as bytes: compact, versioned, safe to read back whatever the bytes are.

mod bytes;
mod event;
mod word;

pub use bytes::BadBytes;
pub(crate) use bytes::{Reader, put_varint, unzigzag, zigzag};
pub use event::{EventFields, decode_event, decode_fields, encode_event};
