//! The settings of the binary that its pool of hosts asks for, with their defaults. `SCRIPT_WORKERS` is read, as there.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Values {
    pub(crate) script_workers: usize,
    pub(crate) script_timeout: Duration,
    pub(crate) script_memory_bytes: usize,
}

impl Default for Values {
    fn default() -> Self {
        let workers = std::env::var("SCRIPT_WORKERS").ok().and_then(|text| text.parse().ok());
        let script_workers = workers.unwrap_or(10);
        Self { script_workers, script_timeout: Duration::from_secs(30), script_memory_bytes: 128 << 20 }
    }
}
