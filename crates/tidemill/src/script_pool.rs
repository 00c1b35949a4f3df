//! Scripts in host processes of their own: those that react to events, those of tasks, and the compiler.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidemill_engine::clock::{Clock, SystemClock};
use tidemill_engine::engine::{CompileProblem, ScriptCompiler, TryOut};
use tidemill_engine::scripts::{RunCall, RunDone, RunFailed, ScriptHost, ScriptRun};
use tidemill_model::{Grant, Json, TenantId};
use tidemill_script::limits::{INPUT_BYTES_CEILING, RESULT_BYTES_CEILING, WALL_CEILING};
use tidemill_script::{
    CallKind, CompletedExecution, ErrorClass, FailedExecution, Grants, HostCall, Limits, NO_HOST, Pool,
    PoolConfig, Request, ScriptLogLine, ScriptSource, Stats, Subject,
};
use tidemill_worker::{ScriptEnd, ScriptFailure, ScriptTask, ScriptTasks};
use tokio::sync::OnceCell;

use crate::config::Values;

/// A pool of hosts that starts with the first script. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ScriptPool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    size: usize,
    limits: Limits,
    pool: OnceCell<Pool>,
}

impl ScriptPool {
    pub(crate) fn new(values: &Values) -> Self {
        let limits = Limits {
            wall: values.script_timeout,
            memory_bytes: values.script_memory_bytes,
            ..Limits::default()
        };
        Self { inner: Arc::new(Inner { size: values.script_workers, limits, pool: OnceCell::new() }) }
    }

    async fn pool(&self) -> Result<&Pool, Failed> {
        let start = async || {
            let mut config = PoolConfig::new()?;
            config.size = self.inner.size;
            config.memory_bytes = self.inner.limits.memory_bytes;
            Pool::start(config)
        };
        self.inner
            .pool
            .get_or_try_init(start)
            .await
            .map_err(|error: std::io::Error| Failed::new(ErrorClass::Internal, format!("{NO_HOST}: {error}")))
    }

    async fn execute(&self, request: &Request) -> Result<CompletedExecution, Failed> {
        let pool = self.pool().await?;
        pool.execute(request).await.map_err(Failed::of)
    }
}

/// A failure in words that all callers understand.
struct Failed {
    class: ErrorClass,
    message: String,
    stack: String,
    lines: Vec<ScriptLogLine>,
    lines_truncated: bool,
    took: Duration,
}

impl Failed {
    fn of(failure: FailedExecution) -> Self {
        let FailedExecution { class, message, stack, logs, logs_truncated, stats, .. } = failure;
        Self { class, message, stack, lines: logs, lines_truncated: logs_truncated, took: took(stats) }
    }

    fn new(class: ErrorClass, message: String) -> Self {
        let (stack, lines) = (String::new(), Vec::new());
        Self { class, message, stack, lines, lines_truncated: false, took: Duration::ZERO }
    }

    fn wrong(message: String) -> Self {
        Self::new(ErrorClass::Syntax, message)
    }
}

fn lines_of(lines: Vec<ScriptLogLine>) -> Vec<(&'static str, String)> {
    lines.into_iter().map(|line| (line.level.as_str(), line.text)).collect()
}

fn took(stats: Stats) -> Duration {
    Duration::from_micros(stats.wall_micros)
}

/// A line as it is stored.
#[derive(Serialize)]
struct StoredLine<'a> {
    level: &'static str,
    text: &'a str,
}

fn logs_of(lines: &[ScriptLogLine], truncated: bool) -> Option<Json> {
    let mut stored: Vec<_> =
        lines.iter().map(|line| StoredLine { level: line.level.as_str(), text: &line.text }).collect();
    if truncated {
        stored.push(StoredLine { level: "warn", text: "lines were dropped or cut here" });
    }
    (!stored.is_empty()).then(|| Json::of(&stored))
}

fn grants_of(grants: &[Grant]) -> Grants {
    grants.iter().fold(Grants::NONE, |grants, grant| match grant {
        Grant::Log => grants,
        Grant::Publish => grants.with(CallKind::Publish),
        Grant::SubmitJob => grants.with(CallKind::SubmitJob),
        Grant::ResolveError => grants.with(CallKind::ResolveError),
    })
}

impl ScriptHost for ScriptPool {
    async fn run(&self, run: ScriptRun) -> Result<RunDone, RunFailed> {
        let failed = |failed: Failed| RunFailed {
            class: Arc::from(failed.class.as_str()),
            is_transient: failed.class.is_transient(),
            message: failed.message,
            stack: failed.stack,
            logs: logs_of(&failed.lines, failed.lines_truncated),
            took: failed.took,
        };
        let script = ScriptSource::new(&run.script.name, &run.script.source);
        let script = script.map_err(|error| failed(Failed::wrong(error.to_string())))?;
        let request = Request {
            script: Arc::new(script),
            tenant: run.tenant,
            execution: run.execution.seed(),
            now: run.now,
            subject: Subject::Event {
                id: run.event_id,
                event_type: run.event_type,
                timestamp: run.timestamp,
                data: run.data,
            },
            grants: grants_of(&run.script.grants),
            limits: Limits { result_bytes: run.result_bytes_max, ..self.inner.limits },
        };
        let done = self.execute(&request).await.map_err(failed)?;
        let calls = done.calls.into_iter().map(|call| match call {
            HostCall::Publish { id, event_type, data } => RunCall::Publish { id, event_type, data },
            HostCall::SubmitJob { id, spec } => RunCall::SubmitJob { id, spec },
            HostCall::ResolveError { id, error } => RunCall::ResolveError { id, error },
        });
        Ok(RunDone {
            result: done.result,
            logs: logs_of(&done.logs, done.logs_truncated),
            calls: calls.collect(),
            took: took(done.stats),
        })
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn aside<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        // It fails only if the work panicked, which is reported, or the runtime ends.
        tokio::task::spawn_blocking(work).await.ok()
    }
}

impl ScriptCompiler for ScriptPool {
    fn compile<'a>(
        &'a self,
        tenant: &'a TenantId,
        name: &'a str,
        source: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<(), CompileProblem>> + Send + 'a>> {
        Box::pin(async move {
            let unavailable = |failed: Failed| CompileProblem::Unavailable(failed.message);
            let pool = self.pool().await.map_err(unavailable)?;
            let compiled = pool.compile(tenant, name, source).await;
            let compiled = compiled.map_err(|failure| unavailable(Failed::of(failure)))?;
            compiled.map(drop).map_err(|error| CompileProblem::Wrong {
                message: error.message,
                line: error.line,
                column: error.column,
            })
        })
    }

    fn try_out(&self, run: ScriptRun) -> TryOut<'_> {
        Box::pin(async move { Some(ScriptHost::run(self, run).await) })
    }
}

impl ScriptTasks for ScriptPool {
    fn run(&self, task: ScriptTask) -> Pin<Box<dyn Future<Output = ScriptEnd> + Send + '_>> {
        Box::pin(async move {
            let wall = task.timeout.unwrap_or(self.inner.limits.wall).min(WALL_CEILING);
            let ended = |failed: Failed| ScriptEnd::Failed {
                class: match failed.class {
                    ErrorClass::Internal if failed.message.starts_with(NO_HOST) => ScriptFailure::NoHost,
                    ErrorClass::Timeout => ScriptFailure::Timeout(wall),
                    ErrorClass::Validation | ErrorClass::Syntax => ScriptFailure::Validation,
                    ErrorClass::Permission => ScriptFailure::Permission,
                    ErrorClass::Script => ScriptFailure::Thrown,
                    ErrorClass::Memory | ErrorClass::Output | ErrorClass::Internal => ScriptFailure::Broken,
                },
                message: failed.message,
                stack: failed.stack,
                lines: lines_of(failed.lines),
            };
            let script = match ScriptSource::new(&task.name, &task.source) {
                Ok(script) => script,
                Err(error) => return ended(Failed::wrong(error.to_string())),
            };
            let request = Request {
                script: Arc::new(script),
                tenant: task.tenant,
                execution: task.seed,
                now: SystemClock::start().now(),
                subject: Subject::Task { input: task.input },
                grants: Grants::NONE,
                limits: Limits {
                    wall,
                    input_bytes: INPUT_BYTES_CEILING,
                    result_bytes: RESULT_BYTES_CEILING,
                    ..self.inner.limits
                },
            };
            match self.execute(&request).await {
                Ok(done) => ScriptEnd::Done { result: done.result, lines: lines_of(done.logs) },
                Err(failed) => ended(failed),
            }
        })
    }
}
