//! What a pool and its hosts say to each other, and its form on the socket.
//!
//! Both ends are the same program, so the form carries no version. A frame is a length and a body; a body is a tag and
//! its fields, numbers little-endian, texts with their length in front. The pool reads answers as from a stranger.

mod bytes;
mod message;

pub(crate) use bytes::FrameBuffer;
pub(crate) use message::{Answer, Execute, Order, Setup, answer_bytes_max};
