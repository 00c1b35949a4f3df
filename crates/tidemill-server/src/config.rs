//! How the server is set up. The defaults work.

use std::time::Duration;

use tidemill_model::workflow::Catalogue;
use tidemill_model::{AppName, TaskSecrets, TenantId};

use crate::gateway::GatewayNames;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Whose data a server without keys serves.
    pub tenant: TenantId,
    /// The application that submitted work belongs to.
    pub app: AppName,
    /// Requests per second and key; 0 for no limit. As many may come at once.
    pub rate_per_second: u32,
    /// Requests per second of all keys of a tenant; four times those of one key when absent, 0 for no limit.
    pub tenant_rate_per_second: Option<u32>,
    /// Connections at a time. When one more comes, the one that was idle longest goes.
    pub connections_max: usize,
    /// The bytes of a JSON body.
    pub body_bytes_max: usize,
    /// The bytes of a file that a worker uploads.
    pub blob_bytes_max: usize,
    /// The bytes of all bodies in flight together.
    pub bodies_bytes_max: usize,
    /// Live streams per key at a time.
    pub streams_per_key_max: usize,
    /// Live streams of all keys of a tenant at a time; four times those of one key when absent.
    pub streams_per_tenant_max: Option<usize>,
    /// From the first byte of a request to the end of its head.
    pub head_timeout: Duration,
    /// How long a connection may stay without a request.
    pub idle_timeout: Duration,
    /// How long a body may make no progress. Over each span of this length it must come at 1 KiB/s.
    pub body_timeout: Duration,
    /// How long a client may read nothing while something waits to be sent.
    pub write_timeout: Duration,
    /// How often a live stream says that it is alive.
    pub stream_heartbeat: Duration,
    /// How long requests in flight may go on when the server shuts down.
    pub grace: Duration,
    /// Which variables definitions may ask for; `None`: only the workers know.
    pub task_secrets: Option<TaskSecrets>,
    /// What codes of errors mean.
    pub catalogue: Catalogue,
    /// What clients of AWS call the parts of this server; `None`: it does not answer them.
    pub gateway: Option<GatewayNames>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            tenant: TenantId::trusted("default"),
            app: AppName::trusted("task-workflow"),
            rate_per_second: 2_000,
            tenant_rate_per_second: None,
            connections_max: 8_192,
            body_bytes_max: 16 * 1024 * 1024,
            blob_bytes_max: 64 * 1024 * 1024,
            bodies_bytes_max: 256 * 1024 * 1024,
            streams_per_key_max: 64,
            streams_per_tenant_max: None,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            stream_heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(10),
            task_secrets: None,
            catalogue: Catalogue::built_in(),
            gateway: None,
        }
    }
}

/// What all keys of a tenant may do together, for each thing that one of them may, when nobody says.
const KEYS_AT_ONCE: u32 = 4;

impl ServerConfig {
    pub(crate) fn tenant_rate(&self) -> u32 {
        self.tenant_rate_per_second.unwrap_or_else(|| self.rate_per_second.saturating_mul(KEYS_AT_ONCE))
    }

    pub(crate) fn tenant_streams_max(&self) -> usize {
        let several = self.streams_per_key_max.saturating_mul(KEYS_AT_ONCE as usize);
        self.streams_per_tenant_max.unwrap_or(several)
    }
}
