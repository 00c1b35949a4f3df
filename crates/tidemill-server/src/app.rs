//! The server's own state: what all requests share.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::body::Bytes;
use tidemill_engine::AnyBackend;
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::ScriptCompiler;
use tokio::sync::watch;

use crate::admission::lease_keys::LeaseKeys;
use crate::admission::login_guard::LoginGuard;
use crate::admission::rate_limit::RateLimits;
use crate::claims::Claims;
use crate::config::ServerConfig;
use crate::request::body_budget::BodyBudget;
use crate::request::job_text::{self, JobTextReader};
use crate::stream::{Herald, StreamLimits};
use crate::workers::Workers;

/// The engine as routes and pages know it: they do not care which backend it has, and are compiled once.
pub(crate) type Engine = tidemill_engine::Engine<AnyBackend>;

/// An engine with an HTTP API. Clones share everything.
pub struct App {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    began: Instant,
    config: ServerConfig,
    rates: RateLimits,
    tenant_rates: RateLimits,
    bodies: BodyBudget,
    streams: StreamLimits,
    herald: Herald,
    claims: Claims,
    leases: LeaseKeys,
    workers: Workers,
    logins: LoginGuard,
    job_texts: OnceLock<JobTextReader>,
    compiler: Option<Arc<dyn ScriptCompiler>>,
    closing: watch::Sender<bool>,
    /// Counts the changes of keys.
    keys: watch::Sender<u64>,
    /// Counts the changes of dead letters that somebody asked for.
    letters: watch::Sender<u64>,
    document: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
}

impl App {
    /// A server that saves no scripts, because nothing here could compile them.
    pub fn new<B: Backend>(engine: &tidemill_engine::Engine<B>, config: ServerConfig) -> Self {
        Self::with_compiler(engine, config, None)
    }

    /// The compiler says whether a script can be saved.
    pub fn with_compiler<B: Backend>(
        engine: &tidemill_engine::Engine<B>,
        config: ServerConfig,
        compiler: Option<Arc<dyn ScriptCompiler>>,
    ) -> Self {
        let inner = Inner {
            began: Instant::now(),
            rates: RateLimits::new(config.rate_per_second),
            bodies: BodyBudget::new(config.bodies_bytes_max, config.body_bytes_max, config.blob_bytes_max),
            tenant_rates: RateLimits::new(config.tenant_rate()),
            streams: StreamLimits::new(config.streams_per_key_max, config.tenant_streams_max()),
            herald: Herald::default(),
            claims: Claims::default(),
            leases: LeaseKeys::default(),
            workers: Workers::default(),
            logins: LoginGuard::default(),
            job_texts: OnceLock::new(),
            compiler,
            closing: watch::Sender::new(false),
            keys: watch::Sender::new(0),
            letters: watch::Sender::new(0),
            document: OnceLock::new(),
            page: OnceLock::new(),
            engine: engine.of_any(),
            config,
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    /// Since when this server listens.
    pub(crate) fn began(&self) -> Instant {
        self.inner.began
    }

    pub fn config(&self) -> &ServerConfig {
        &self.inner.config
    }

    /// Lets `reader` read the job files that people type into the dashboard. Until then they are JSON.
    pub fn read_job_texts(&self, reader: JobTextReader) {
        // The first one stays.
        let _ = self.inner.job_texts.set(reader);
    }

    pub(crate) fn job_text_reader(&self) -> JobTextReader {
        self.inner.job_texts.get().copied().unwrap_or(job_text::read_json)
    }

    /// Ends streams and long polls, now and from now on.
    pub fn close(&self) {
        self.inner.closing.send_replace(true);
    }

    /// Tells whether and when the server shuts down.
    pub(crate) fn closing(&self) -> Closing {
        Closing(self.inner.closing.subscribe())
    }

    /// A key was made or revoked: waiting callers are checked again.
    pub(crate) fn keys_changed(&self) {
        self.inner.keys.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn key_changes(&self) -> watch::Receiver<u64> {
        self.inner.keys.subscribe()
    }

    /// Somebody replayed or discarded dead letters, which no event tells.
    pub(crate) fn letters_changed(&self) {
        self.inner.letters.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn letter_changes(&self) -> watch::Receiver<u64> {
        self.inner.letters.subscribe()
    }

    pub(crate) fn rates(&self) -> &RateLimits {
        &self.inner.rates
    }

    pub(crate) fn tenant_rates(&self) -> &RateLimits {
        &self.inner.tenant_rates
    }

    pub(crate) fn leases(&self) -> &LeaseKeys {
        &self.inner.leases
    }

    pub(crate) fn workers(&self) -> &Workers {
        &self.inner.workers
    }

    pub(crate) fn logins(&self) -> &LoginGuard {
        &self.inner.logins
    }

    pub(crate) fn bodies(&self) -> &BodyBudget {
        &self.inner.bodies
    }

    pub(crate) fn streams(&self) -> &StreamLimits {
        &self.inner.streams
    }

    pub(crate) fn herald(&self) -> &Herald {
        &self.inner.herald
    }

    pub(crate) fn compiler(&self) -> Option<&dyn ScriptCompiler> {
        self.inner.compiler.as_deref()
    }

    pub(crate) fn claims(&self) -> &Claims {
        &self.inner.claims
    }

    /// The OpenAPI document, made when it is first asked for.
    pub(crate) fn document(&self) -> &OnceLock<Bytes> {
        &self.inner.document
    }

    /// The page made of it.
    pub(crate) fn page(&self) -> &OnceLock<Bytes> {
        &self.inner.page
    }
}

/// Whether the server shuts down.
#[derive(Debug, Clone)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    pub(crate) fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until the server shuts down.
    pub(crate) async fn begun(&mut self) {
        // An error means that the server is gone, which is the same to the waiter.
        let _ = self.0.wait_for(|closing| *closing).await;
    }
}

impl Clone for App {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", self.config()).finish_non_exhaustive()
    }
}
