//! The rows of the table, one file each.

pub mod durable;
pub mod latency;
pub mod letters;
pub mod pool;
pub mod publish;

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;

/// The settings of every row.
pub struct Setting<'a> {
    pub runtime: &'a Runtime,
    /// Threads of the bare engine: one for each core.
    pub threads: usize,
    /// Executions that the pool is given at a time.
    pub concurrency: usize,
    pub rounds: usize,
    pub span: Duration,
    pub dir: &'a Path,
}
