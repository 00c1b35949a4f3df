//! How a pool is set up.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits::{Limits, MEMORY_BYTES_FLOOR};

/// How many hosts there are, and what they may use.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The program that calls `host_main`, usually this very one.
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// Executions at the same time. Half as many more are lent to other tenants while one tenant holds more than half.
    pub size: usize,
    /// The most that a request's limits can give to one execution.
    pub memory_bytes: usize,
    /// A host that was idle for this long is ended. One is kept.
    pub idle: Duration,
    /// A host that has not answered this long after the wall time of its execution is killed.
    pub grace: Duration,
    /// How long a host may take to start.
    pub start_wait: Duration,
    /// How long a script may take to compile.
    pub compile_wait: Duration,
    /// CPU time after which a host is replaced by a new one.
    pub host_cpu: Duration,
}

impl PoolConfig {
    /// Starts this program again as `<program> script-host`.
    pub fn new() -> io::Result<Self> {
        Ok(Self::with_program(std::env::current_exe()?, vec!["script-host".into()]))
    }

    pub fn with_program(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self {
            program,
            arguments,
            size: 10,
            memory_bytes: Limits::default().memory_bytes,
            idle: Duration::from_secs(30),
            grace: Duration::from_millis(500),
            start_wait: Duration::from_secs(10),
            compile_wait: Duration::from_secs(10),
            host_cpu: Duration::from_secs(600),
        }
    }

    pub(super) fn checked(mut self) -> Self {
        self.size = self.size.max(1);
        self.memory_bytes = self.memory_bytes.max(MEMORY_BYTES_FLOOR);
        self
    }
}
