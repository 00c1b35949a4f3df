//! The asking side: a pool of hosts that are started on demand and replaced when they do not answer.
//!
//! `shares` decides which tenant is served next, `keeper` is the thread that starts and reaps processes, `host` is
//! one of them as seen from here, `status` is what the pool says of itself. An execution holds a permit and a host,
//! and nothing else of the pool: giving up an execution at any point drops both, which kills the host and touches no
//! other execution.

mod config;
mod handle;
mod host;
mod keeper;
mod shares;

pub use config::PoolConfig;
pub use handle::{NO_HOST, Pool, PoolStatus};
