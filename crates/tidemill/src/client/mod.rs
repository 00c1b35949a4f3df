//! How a command reaches the engine: over HTTP, or through the same routes in this process.

mod item;
mod local;
mod reach;
pub(crate) mod server_file;
mod way;

pub(crate) use item::{Item, Items};
pub(crate) use local::LocalWay;
pub(crate) use reach::{Reach, ReachArguments, add};
pub(crate) use tidemill_api::client::{Call, ClientError, HttpClient, Query, SseReader, local_problem};
pub(crate) use tidemill_api::encode;
pub(crate) use way::Client;
