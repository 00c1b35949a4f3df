//! What a pool and its hosts say to each other, and its form on the socket.
//!
//! Both ends are the same program, so the form carries no version. A frame is a length of four bytes, little-endian, and a
//! message in postcard's form. The pool reads answers as from a stranger.

mod bytes;
mod message;

pub(crate) use bytes::{FrameBuffer, short_list};
pub(crate) use message::{Answer, Execute, Order, Setup, answer_bytes_max};
