//! The pool as others hold it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};

use tidemill_model::{Json, TenantId};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::config::PoolConfig;
use super::host::{Host, LivePids, verdict};
use super::keeper::{self, Errand};
use super::shares::Shares;
use crate::call::accept;
use crate::engine::machine::{Broken, Ended, Finished};
use crate::execution::{CompletedExecution, Request};
use crate::failure::{ErrorClass, FailedExecution};
use crate::limits::Limits;
use crate::script_source::{CompileError, ScriptSource, Version};
use crate::wire::{Answer, Execute, Order, answer_bytes_max};

/// Runs scripts in hosts. Clones share it; with the last one all hosts are killed.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// What a pool is doing, and what it has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolStatus {
    pub size: usize,
    /// Executions that have a place, and those that wait for one.
    pub running: usize,
    pub waiting: usize,
    /// All processes, and those that wait for work.
    pub hosts: Vec<u32>,
    pub idle: Vec<u32>,
    pub hosts_started: u64,
    /// Hosts that did not answer in time or broke down.
    pub hosts_lost: u64,
    /// What hosts on this machine could not take away from themselves.
    pub note: Option<String>,
}

#[derive(Debug)]
struct Inner {
    config: PoolConfig,
    errands: mpsc::Sender<Errand>,
    closed: watch::Receiver<()>,
    live: LivePids,
    state: Mutex<State>,
    started: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug)]
struct State {
    shares: Shares<oneshot::Sender<Permit>>,
    /// Last in, first out: what was used last is warm.
    idle: Vec<Host>,
    /// Whether somebody starts a host to be kept warm, and whether somebody watches over idle ones.
    warming: bool,
    watching: bool,
    note: Option<String>,
}

/// A place in the pool.
#[derive(Debug)]
struct Permit {
    /// None once it was given back.
    pool: Option<Arc<Inner>>,
    tenant: TenantId,
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(inner) = self.pool.take() {
            inner.release(&self.tenant);
        }
    }
}

impl Pool {
    /// Starts a pool and, behind it, its first host. It must be called on a tokio runtime, on which the pool stays.
    pub fn start(config: PoolConfig) -> io::Result<Self> {
        let config = config.checked();
        let (errands, closed) = keeper::start(&config)?;
        let state = State {
            shares: Shares::new(config.size),
            idle: Vec::new(),
            warming: false,
            watching: false,
            note: None,
        };
        let inner = Inner {
            config,
            errands,
            closed,
            live: LivePids::default(),
            state: Mutex::new(state),
            started: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        };
        let pool = Self { inner: Arc::new(inner) };
        pool.inner.keep_warm();
        Ok(pool)
    }

    /// Runs a script. Dropping the future kills its host and nothing else.
    pub async fn execute(&self, request: &Request) -> Result<CompletedExecution, FailedExecution> {
        let inner = &self.inner;
        let mut limits = request.limits.clamped();
        limits.memory_bytes = limits.memory_bytes.min(inner.config.memory_bytes);
        let context = request
            .context()
            .map_err(|problem| FailedExecution::new(ErrorClass::Validation, problem.to_string()))?;
        // Declared before the host, so that it is given back after it.
        let _permit = Inner::permit(inner, &request.tenant).await;
        let version = request.script.version();
        let mut host =
            inner.host(&request.tenant, Some(version)).await.map_err(|error| broken_down(&error))?;
        let execute = Execute {
            version,
            script: None,
            execution: request.execution,
            now: request.now,
            grants: request.grants,
            limits,
            context: &context,
        };
        match timeout(limits.wall + inner.config.grace, run(&mut host, execute, &request.script)).await {
            Ok(Ok(Answer::Ended { ended, worn })) => {
                let (sound, outcome) = taken(ended, request, &limits);
                if !sound {
                    inner.lose(host);
                } else if worn {
                    drop(host);
                    Inner::keep_warm(inner);
                } else {
                    Inner::give_back(inner, host);
                }
                outcome
            }
            Ok(Ok(Answer::Refused(error))) => {
                Inner::give_back(inner, host);
                let place = Some((error.line, error.column));
                let message = format!("the script does not compile: {}", error.message);
                let stack = format!("    at {}:{}:{}", request.script.name(), error.line, error.column);
                Err(FailedExecution { stack, place, ..FailedExecution::new(ErrorClass::Syntax, message) })
            }
            Ok(Ok(_)) => {
                inner.lose(host);
                Err(FailedExecution::new(
                    ErrorClass::Internal,
                    "the script host gave an answer to something else",
                ))
            }
            Ok(Err(error)) => {
                // It closed its socket, or sent what is no answer. How it ended tells which.
                tracing::debug!(%error, "a script host was lost");
                inner.lost.fetch_add(1, Ordering::Relaxed);
                let lost = error.kind() != io::ErrorKind::Other;
                let status = host.end().await;
                Inner::keep_warm(inner);
                let (class, message) =
                    if lost { verdict(&status) } else { (ErrorClass::Internal, error.to_string()) };
                Err(FailedExecution::new(class, message))
            }
            Err(_) => {
                inner.lose(host);
                let millis = limits.wall.as_millis();
                let message = format!("the script ran longer than {millis} ms and did not yield");
                Err(FailedExecution::new(ErrorClass::Timeout, message))
            }
        }
    }

    /// Compiles a script in a host, to see whether it can be. The outer error says that no host could look at it.
    pub async fn compile(
        &self,
        tenant: &TenantId,
        name: &str,
        source: &str,
    ) -> Result<Result<ScriptSource, CompileError>, FailedExecution> {
        let script = match ScriptSource::new(name, source) {
            Ok(script) => script,
            Err(error) => return Ok(Err(error)),
        };
        let inner = &self.inner;
        let _permit = Inner::permit(inner, tenant).await;
        let mut host = inner.host(tenant, None).await.map_err(|error| broken_down(&error))?;
        match timeout(inner.config.compile_wait, host.compile(name, source)).await {
            Ok(Ok(Answer::Compiled)) => {
                host.remember(script.version());
                Inner::give_back(inner, host);
                Ok(Ok(script))
            }
            Ok(Ok(Answer::Refused(error))) => {
                Inner::give_back(inner, host);
                Ok(Err(error))
            }
            Ok(answer) => {
                let error = answer.err().map(tracing::field::display);
                tracing::debug!(error, "a script host broke down while it compiled");
                inner.lose(host);
                Ok(Err(CompileError::unplaced("the compiler broke down on this script")))
            }
            Err(_) => {
                inner.lose(host);
                Ok(Err(CompileError::unplaced("the script takes too long to compile")))
            }
        }
    }

    pub fn status(&self) -> PoolStatus {
        let state = self.inner.lock();
        PoolStatus {
            size: self.inner.config.size,
            running: state.shares.running(),
            waiting: state.shares.waiting(),
            hosts: self.inner.live.all(),
            idle: state.idle.iter().filter_map(Host::pid).collect(),
            hosts_started: self.inner.started.load(Ordering::Relaxed),
            hosts_lost: self.inner.lost.load(Ordering::Relaxed),
            note: state.note.clone(),
        }
    }

    /// Gives up this handle and waits until every process of the pool is gone, which takes that all others were given
    /// up as well.
    pub async fn end(self) {
        let mut closed = self.inner.closed.clone();
        drop(self);
        while closed.changed().await.is_ok() {}
    }
}

/// Runs a script in a host, which is given the source if it has it no more.
async fn run<'a>(host: &mut Host, mut execute: Execute<'a>, script: &'a ScriptSource) -> io::Result<Answer> {
    let known = host.knows(execute.version);
    let bytes_max = answer_bytes_max(&execute.limits);
    if known {
        let answer = host.ask(&Order::Execute(execute.clone()), bytes_max).await?;
        if !matches!(answer, Answer::ScriptWanted) {
            return Ok(answer);
        }
    }
    execute.script = Some((script.name(), script.source()));
    host.remember(execute.version);
    host.ask(&Order::Execute(execute), bytes_max).await
}

/// What an answer means, and whether its host can be trusted with another order.
fn taken(
    ended: Ended,
    request: &Request,
    limits: &Limits,
) -> (bool, Result<CompletedExecution, FailedExecution>) {
    let Ended { outcome, logs, logs_truncated, stats } = ended;
    let log_bytes: usize = logs.iter().map(|line| line.text.len()).sum();
    let strange = || {
        let message = "the script host gave an answer that cannot be";
        (false, Err(FailedExecution::new(ErrorClass::Internal, message)))
    };
    if logs.len() > limits.log_lines || log_bytes > limits.log_bytes {
        return strange();
    }
    match outcome {
        Ok(Finished { result, calls }) => {
            if result.len() > limits.result_bytes {
                return strange();
            }
            let Some(calls) = accept(request.execution, request.grants, calls) else { return strange() };
            let Ok(result) = Json::parse(result) else { return strange() };
            (true, Ok(CompletedExecution { result, logs, logs_truncated, calls, stats }))
        }
        Err(Broken { class, message, stack, place }) => {
            (true, Err(FailedExecution { class, message, stack, place, logs, logs_truncated, stats }))
        }
    }
}

/// How the message of an execution begins that had no process to run in.
pub const NO_HOST: &str = "no script host can be started";

fn broken_down(error: &io::Error) -> FailedExecution {
    // The caller gets the failure, and reports it.
    tracing::debug!(%error, "there is no script host");
    FailedExecution::new(ErrorClass::Internal, format!("{NO_HOST}: {error}"))
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place.
    async fn permit(self: &Arc<Self>, tenant: &TenantId) -> Permit {
        let granted = {
            let mut state = self.lock();
            if state.shares.take(tenant) {
                return Permit { pool: Some(Arc::clone(self)), tenant: tenant.clone() };
            }
            let (sender, granted) = oneshot::channel();
            state.shares.wait(tenant, sender);
            self.grant(&mut state);
            granted
        };
        granted.await.expect("the pool lives as long as this future, and drops no waiter")
    }

    /// Hands out places as long as there are some and somebody waits.
    fn grant(self: &Arc<Self>, state: &mut State) {
        while let Some((tenant, waiter)) = state.shares.next() {
            let permit = Permit { pool: Some(Arc::clone(self)), tenant };
            // The waiter may have given up. The permit must not give itself back here: that would take the lock.
            if let Err(mut unwanted) = waiter.send(permit) {
                unwanted.pool = None;
                state.shares.release(&unwanted.tenant);
            }
        }
    }

    fn release(self: &Arc<Self>, tenant: &TenantId) {
        let mut state = self.lock();
        state.shares.release(tenant);
        self.grant(&mut state);
    }

    /// An idle host of the tenant, one that has the script if possible, or else one that no tenant had.
    async fn host(self: &Arc<Self>, tenant: &TenantId, version: Option<Version>) -> io::Result<Host> {
        loop {
            let host = {
                let mut state = self.lock();
                let of = |host: &Host| host.tenant.as_ref() == Some(tenant);
                let find = |wanted: &dyn Fn(&Host) -> bool| state.idle.iter().rposition(wanted);
                let at = version
                    .and_then(|version| find(&|host| of(host) && host.knows(version)))
                    .or_else(|| find(&of))
                    .or_else(|| find(&|host| host.tenant.is_none()));
                at.map(|at| state.idle.remove(at))
            };
            let mut host = match host {
                Some(host) if host.is_sound() => host,
                Some(host) => {
                    self.lose(host);
                    continue;
                }
                None => {
                    self.make_room();
                    self.start().await?
                }
            };
            host.tenant = Some(tenant.clone());
            return Ok(host);
        }
    }

    /// Ends a host that waits for another tenant, if there are as many as may run at a time.
    fn make_room(&self) {
        let most = self.config.size + self.config.size / 2;
        let mut state = self.lock();
        if self.live.all().len() >= most {
            let oldest = (0..state.idle.len()).min_by_key(|at| state.idle[*at].idle_since);
            if let Some(at) = oldest {
                state.idle.remove(at);
            }
        }
    }

    async fn start(&self) -> io::Result<Host> {
        self.started.fetch_add(1, Ordering::Relaxed);
        let host = Host::start(&self.config, &self.errands, &self.live).await?;
        if host.note.is_some() {
            self.lock().note.clone_from(&host.note);
        }
        Ok(host)
    }

    fn lose(self: &Arc<Self>, host: Host) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        drop(host);
        self.keep_warm();
    }

    fn give_back(self: &Arc<Self>, mut host: Host) {
        host.idle_since = Instant::now();
        let mut state = self.lock();
        state.idle.push(host);
        if state.idle.len() > 1 && !state.watching {
            state.watching = true;
            tokio::spawn(end_idle(Arc::downgrade(self)));
        }
    }

    /// Sees to it that one host waits for work.
    fn keep_warm(self: &Arc<Self>) {
        let mut state = self.lock();
        if state.warming || !state.idle.is_empty() {
            return;
        }
        state.warming = true;
        drop(state);
        let weak = Arc::downgrade(self);
        tokio::spawn(async move {
            let Some(inner) = weak.upgrade() else { return };
            let started = inner.start().await;
            inner.lock().warming = false;
            // One that cannot be started is tried again when it is needed, and told then.
            if let Ok(host) = started {
                inner.give_back(host);
            }
        });
    }
}

/// Ends hosts that had nothing to do for a while, all but one. It rests when there is nothing to watch over.
async fn end_idle(pool: Weak<Inner>) {
    loop {
        let due = {
            let Some(inner) = pool.upgrade() else { return };
            let mut state = inner.lock();
            let now = Instant::now();
            // The one that was used longest ago lies lowest, but those between may have been taken and returned.
            let mut ended = Vec::new();
            while state.idle.len() > 1 {
                let oldest = (0..state.idle.len())
                    .min_by_key(|at| state.idle[*at].idle_since)
                    .expect("there are some");
                if state.idle[oldest].idle_since + inner.config.idle > now {
                    break;
                }
                ended.push(state.idle.remove(oldest));
            }
            if state.idle.len() <= 1 {
                state.watching = false;
                return;
            }
            let oldest = state.idle.iter().map(|host| host.idle_since).min().expect("there are some");
            oldest + inner.config.idle
        };
        sleep_until(due).await;
    }
}
