//! A pool with hosts of this crate's own test binary.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_model::{EventId, EventType, Json, TenantId, Timestamp};
use tidemill_script::{
    CompletedExecution, FailedExecution, Grants, Limits, Pool, PoolConfig, Request, ScriptSource, Subject,
};

/// Longer than anything takes that does not hang.
pub(crate) const HANG: Duration = Duration::from_secs(60);

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn config(size: usize) -> PoolConfig {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tidemill-test-script-host"));
    PoolConfig { size, ..PoolConfig::with_program(program, Vec::new()) }
}

pub(crate) fn pool(size: usize) -> Pool {
    Pool::start(config(size)).unwrap()
}

pub(crate) fn request(tenant: &str, source: &str) -> Request {
    request_of(tenant, Arc::new(ScriptSource::new("test", source).unwrap()))
}

pub(crate) fn request_of(tenant: &str, script: Arc<ScriptSource>) -> Request {
    Request {
        script,
        tenant: TenantId::new(tenant).unwrap(),
        execution: EventId::from_u128(
            0x0193_2c07_5a5a_7abc_9def_0123_0000_0000 + u128::from(NEXT.fetch_add(1, Ordering::Relaxed)),
        ),
        now: Timestamp::clamped(1_700_000_000_123),
        subject: Subject::Event {
            id: EventId::from_u128(0x0193_2c07_5a5a_7abc_9def_0123_4567_89ab),
            event_type: EventType::new("user.created").unwrap(),
            timestamp: Timestamp::clamped(1_700_000_000_000),
            data: Json::parse(r#"{"user":{"name":"Ada","roles":["admin"]},"n":3}"#.to_owned()).unwrap(),
        },
        grants: Grants::NONE,
        limits: Limits { wall: Duration::from_secs(20), ..Limits::default() },
    }
}

pub(crate) async fn run(pool: &Pool, request: &Request) -> Result<CompletedExecution, FailedExecution> {
    tokio::time::timeout(HANG, pool.execute(request)).await.expect("the pool hangs")
}

/// Whether a process is there, and no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

/// A field of `/proc/<pid>/status`.
pub(crate) fn status_field(pid: u32, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Whether a host has taken the last step of its confinement.
pub(crate) fn is_confined(pid: u32) -> bool {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    limits
        .lines()
        .any(|line| line.starts_with("Max open files") && line.split_whitespace().nth(3) == Some("0"))
}
