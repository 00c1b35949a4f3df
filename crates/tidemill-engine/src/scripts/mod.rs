//! Routing: which scripts run for which events, and when.
//!
//! `Scripts` follows the log, queues what matches in the commit that moves its cursor, and hands queued executions to
//! a [`ScriptHost`], which runs them. It needs no runtime of its own: its owner drives [`Scripts::route`],
//! [`Scripts::route_aside`], [`Scripts::feed`] and as many [`Scripts::work`] as [`Scripts::places`] says.

mod alerts;
pub(crate) mod effects;
pub(crate) mod end;
pub mod execution;
pub(crate) mod executions;
mod host;
mod lanes;
pub(crate) mod letters;
pub(crate) mod matched;
mod matching;
mod metrics;
mod publish_rate;
mod router;
mod runner;
pub(crate) mod script;
pub(crate) mod stop;
pub(crate) mod subscription;
pub(crate) mod view;
mod window;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_model::TenantId;
use tracing::{Instrument as _, debug_span};

use crate::Engine;
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::notice::Notice;
use crate::kernel::state::Room;
use crate::warn_seldom;
use execution::ExecutionKey;

pub use alerts::{AlertKind, StandingAlert};
pub use host::{RunCall, RunDone, RunFailed, ScriptHost, ScriptRun};
pub use metrics::{BUCKETS_MILLIS, DurationHistogram, ScriptMetrics};
pub use runner::RESULT_BYTES_MAX;

pub(crate) use alerts::Telling;
pub(crate) use router::SCRIPT_ORIGIN;

use alerts::Alerts;
use lanes::{LaneRouter, Lanes};
use metrics::Counters;
use publish_rate::PublishRate;
use router::Router;
use stop::{First, Stop, any, either};
use window::Window;

/// What the engine and the runners of scripts share.
#[derive(Debug, Default)]
pub(crate) struct ScriptBoard {
    /// Rung when there is something new to run, or when it is to run has changed.
    pub(crate) queued: Notice,
    running: Mutex<HashSet<ExecutionKey, foldhash::fast::RandomState>>,
    pub(crate) counters: Counters,
    alerts: Mutex<Alerts>,
}

impl ScriptBoard {
    pub(crate) fn note_queued(&self, created: u64) {
        self.counters.queued(created);
        self.queued.ring();
    }

    pub(crate) fn is_running(&self, key: &ExecutionKey) -> bool {
        self.running().contains(key)
    }

    fn running(&self) -> MutexGuard<'_, HashSet<ExecutionKey, foldhash::fast::RandomState>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn alerts(&self) -> MutexGuard<'_, Alerts> {
        self.alerts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How scripts are run.
#[derive(Debug, Clone, Copy)]
pub struct ScriptsConfig {
    /// Runs at the same time.
    pub workers: usize,
    /// Executions that are fetched ahead; an alert is raised when more than nine in ten of this number wait.
    pub buffer: usize,
    /// How often a run that failed is tried again.
    pub max_retries: u32,
    /// How many events the scripts of one tenant may publish in a second. A run that asks for more is tried again.
    pub publish_rate: u32,
    /// Any number that outsiders do not know.
    pub seed: u64,
}

impl Default for ScriptsConfig {
    fn default() -> Self {
        Self { workers: 10, buffer: 1_000, max_retries: 3, publish_rate: 1_000, seed: 0 }
    }
}

/// While one runs a script, the others of its place wait for the disk.
const LOOPS_PER_PLACE: usize = 3;
/// How often alerts are looked at when nothing happens.
const WATCH: Duration = Duration::from_secs(30);
/// How long to wait before asking a store again that could not answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs scripts for the events of an engine's log. Clones share everything. There is one for each data directory.
#[derive(Debug)]
pub struct Scripts<B, H> {
    engine: Engine<B>,
    host: Arc<H>,
    config: ScriptsConfig,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stop: Stop,
    window: Mutex<Window>,
    published: Mutex<PublishRate>,
    lanes: Lanes,
    /// Rung when a place or something to run has come.
    moved: Notice,
    /// Rung when the window runs low.
    low: Notice,
}

impl<B, H> Clone for Scripts<B, H> {
    fn clone(&self) -> Self {
        let (engine, host) = (self.engine.clone(), Arc::clone(&self.host));
        Self { engine, host, config: self.config, shared: Arc::clone(&self.shared) }
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Backend, H: ScriptHost> Scripts<B, H> {
    pub fn new(engine: Engine<B>, host: H, config: ScriptsConfig) -> Self {
        let config = ScriptsConfig { workers: config.workers.max(1), buffer: config.buffer.max(1), ..config };
        let shared = Shared {
            stop: Stop::default(),
            window: Mutex::new(Window::new(config.workers)),
            published: Mutex::new(PublishRate::new(config.publish_rate)),
            lanes: Lanes::default(),
            moved: Notice::default(),
            low: Notice::default(),
        };
        Self { engine, host: Arc::new(host), config, shared: Arc::new(shared) }
    }

    /// How many of [`Scripts::work`] are to be driven: the workers, those that are lent, and as many as write down what
    /// became of a run meanwhile, which takes no place.
    pub fn places(&self) -> usize {
        Window::places_max(self.config.workers) * LOOPS_PER_PLACE
    }

    /// Nothing new begins from now on. What runs comes to its end; what waits stays for the next life.
    pub fn stop(&self) {
        self.shared.stop.set();
    }

    /// Follows the log and queues what matches, until it is stopped.
    pub async fn route(&self) {
        let Shared { stop, lanes, .. } = &*self.shared;
        let span = debug_span!("script_router");
        Router::new(&self.engine, &*self.host, stop, lanes, self.config.seed).run().instrument(span).await;
    }

    /// Follows the log for tenants whose events take long to match, until it is stopped.
    pub async fn route_aside(&self) {
        let Shared { stop, lanes, .. } = &*self.shared;
        let span = debug_span!("script_lanes");
        LaneRouter::new(&self.engine, &*self.host, stop, lanes, self.config.seed)
            .run()
            .instrument(span)
            .await;
    }

    /// Fetches what is due, until it is stopped.
    pub async fn feed(&self) {
        while let Err(fault) = self.engine.restore_alerts().await {
            if matches!(fault, Fault::Stopped(_) | Fault::Newer(_)) {
                return self.shared.stop.set();
            }
            warn_seldom!(fault, "alerts of a former life could not be read");
            if either(self.host.sleep(PATIENCE), self.shared.stop.wait()).await == First::Two {
                return;
            }
        }
        let mut last = None;
        while !self.shared.stop.is_set() {
            let (queued, low) = (self.engine.script_board().queued.listen(), self.shared.low.listen());
            let now = self.engine.now();
            let room = self.room(last.take());
            let held: usize = room.held.values().sum();
            let found = self
                .engine
                .backend()
                .look(|state| state.pending().due(now, &room, |key| self.shared.window().holds(key)))
                .await;
            let wait = match found {
                Ok(found) => {
                    self.watch(found.pending, found.fullest.as_ref()).await;
                    last = found.due.last().map(|key| key.tenant.clone()).or(room.after);
                    let count = found.due.len();
                    let mut window = self.shared.window();
                    found.due.into_iter().for_each(|key| window.add(key));
                    window.set_more(found.more);
                    // A runner that took one since the window was looked at did not know which tenants have more.
                    let was_taken = window.waiting() < held + count;
                    let is_low = was_taken && window.is_low(self.config.buffer, self.kept());
                    drop(window);
                    if count > 0 {
                        self.shared.moved.ring_some(count);
                    }
                    if is_low {
                        self.shared.low.ring();
                    }
                    let until = found.next.map(|next| Duration::from_millis(next.since(now).max(1)));
                    until.map_or(WATCH, |until| until.min(WATCH))
                }
                Err(Fault::Stopped(_) | Fault::Newer(_)) => return self.shared.stop.set(),
                Err(fault) => {
                    warn_seldom!(fault, "executions that are due could not be looked up");
                    PATIENCE
                }
            };
            let rung = any(any(queued, low), self.shared.stop.wait());
            any(rung, self.host.sleep(wait)).await;
        }
    }

    /// What may be fetched now. While others have something to run no tenant fills more than half of the window, and
    /// none waits for room because of what others have in it.
    fn room(&self, after: Option<TenantId>) -> Room {
        let window = self.shared.window();
        Room {
            left: self.config.buffer.saturating_sub(window.waiting()),
            kept: self.kept(),
            most: self.config.buffer.div_ceil(2),
            held: window.waiting_by_tenant(),
            after,
        }
    }

    /// How many of a tenant are fetched ahead, whatever the others have.
    fn kept(&self) -> usize {
        self.config.workers.min(self.config.buffer)
    }

    async fn watch(&self, pending: usize, fullest: Option<&TenantId>) {
        let now = self.engine.now();
        let told = {
            let mut alerts = self.engine.script_board().alerts();
            let mut told = alerts.pass(now);
            told.extend(alerts.depth(pending, self.config.buffer, fullest, now));
            told
        };
        for telling in told {
            self.engine.record_alert(telling).await;
        }
    }

    /// Runs one execution after the other, until it is stopped.
    pub async fn work(&self) {
        loop {
            let moved = self.shared.moved.listen();
            if self.shared.stop.is_set() {
                return;
            }
            let (taken, is_low) = {
                let mut window = self.shared.window();
                let taken = window.take();
                let tenant = taken.as_ref().map(|key| &key.tenant);
                let is_low = window.runs_low(tenant, self.config.buffer, self.kept());
                (taken, is_low)
            };
            if is_low {
                self.shared.low.ring();
            }
            let Some(key) = taken else {
                if either(moved, self.shared.stop.wait()).await == First::Two {
                    return;
                }
                continue;
            };
            let is_retried = {
                let mut place = Place::take(self, &key);
                let span = debug_span!("script", tenant = %key.tenant, execution = %key.id);
                self.run_one(&key, &mut place).instrument(span).await
            };
            if is_retried {
                self.engine.script_board().queued.ring();
            }
        }
    }
}

/// A place that is given back, however the run ends.
struct Place<'a, B: Backend, H: ScriptHost> {
    scripts: &'a Scripts<B, H>,
    key: &'a ExecutionKey,
    is_free: bool,
}

impl<'a, B: Backend, H: ScriptHost> Place<'a, B, H> {
    fn take(scripts: &'a Scripts<B, H>, key: &'a ExecutionKey) -> Self {
        scripts.engine.script_board().running().insert(key.clone());
        Self { scripts, key, is_free: false }
    }

    /// The run is over: another may begin while this one's end is written.
    fn free(&mut self) {
        if std::mem::replace(&mut self.is_free, true) {
            return;
        }
        let mut window = self.scripts.shared.window();
        window.ran(self.key);
        let is_wanted = window.waiting() > 0;
        drop(window);
        if is_wanted {
            self.scripts.shared.moved.ring_some(1);
        }
    }
}

impl<B: Backend, H: ScriptHost> Drop for Place<'_, B, H> {
    fn drop(&mut self) {
        self.free();
        self.scripts.engine.script_board().running().remove(self.key);
        self.scripts.shared.window().done(self.key);
    }
}
