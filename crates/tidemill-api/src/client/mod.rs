//! A client of the API over HTTP.

mod answer;
mod call;
mod error;
mod http;
mod sse;

pub use answer::{Body, bytes_of, json_of, succeeded};
pub use call::{Call, Query};
pub use error::{ClientError, local_problem};
pub use http::HttpClient;
pub use sse::{SseMessage, SseReader};
