//! How a command reaches the engine: over HTTP, or through the same routes in this process.

mod call;
mod error;
mod http;
mod item;
mod local;
mod reach;
pub(crate) mod server_file;
mod sse;

pub(crate) use call::{Call, Client, Query, encode};
pub(crate) use error::{ClientError, local_problem};
pub(crate) use http::HttpWay;
pub(crate) use item::{Item, Items};
pub(crate) use local::LocalWay;
pub(crate) use reach::{Reach, ReachArguments, add};
pub(crate) use sse::SseReader;
