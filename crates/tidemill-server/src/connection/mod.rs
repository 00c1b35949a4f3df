//! Connections: accepting, limits, timeouts, shutdown. What is said over them is not known here.

mod file_limit;
mod other_end;
mod peer;
mod refusal;
mod registry;
mod serve;
mod timed_stream;

pub use serve::{ServeError, check_listen, serve};

pub(crate) use other_end::OtherEnd;
pub(crate) use peer::Peer;

use std::net::SocketAddr;
use std::sync::Arc;

/// What a request must know of the connection it came over.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    /// The address that was connected to.
    pub(crate) local: SocketAddr,
    /// Whose it is.
    pub(crate) other_end: Arc<OtherEnd>,
}
