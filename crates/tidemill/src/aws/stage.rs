//! A stage that this process has open, beside any number of others.

use std::sync::Arc;
use std::time::Duration;

use tidemill::host::random_seed;
use tidemill_aws::{Aws, Connection, Roster};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::engine::Engine;
use tidemill_engine::triage::TokenSealer;
use tidemill_model::WorkerId;
use tidemill_worker::EngineSourceConfig;

use super::access::{access, options};
use crate::client::{Client, LocalWay};
use crate::commands::{CommandError, Place, host_worker_id};
use crate::config::Resolved;
use crate::node::{Life, Node, engine_config};
use crate::output::Output;
use crate::rota::Rota;
use crate::script_pool::ScriptPool;
use crate::token_key::shared_key;

/// How long a process waits at its end until what it committed is sent. After that any other sends it.
const LAST_SENDINGS: Duration = Duration::from_secs(15);
/// A clock that is off by more than this gets a warning.
const SKEW_TOLD_MILLIS: u64 = 5_000;
const UNSENT: &str = "not everything is sent yet; another process of the stage sends the rest. If none does, see `tidemill aws doctor`";

/// An open stage.
pub(crate) struct Stage {
    pub(crate) node: Arc<Node<Aws>>,
    pub(crate) rota: Roster,
    /// What a worker's processes are found by.
    _place: Option<Place>,
}

/// What a command wants from a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To ask and to change things.
    Asking,
    /// To run tasks too.
    Working,
}

impl Stage {
    /// Opens the stage that the settings name. Needs a tokio runtime.
    pub(crate) async fn open(config: &Resolved, purpose: Purpose) -> Result<Self, CommandError> {
        let values = &config.values;
        let seed = random_seed();
        let mut options = options(config, seed)?;
        options.checks_clock = true;
        options.step_functions = true;
        options.takes_tickets = purpose == Purpose::Working;
        let (table, shard, bucket) = (options.table.clone(), options.shard.clone(), options.bucket.clone());
        let place = match purpose {
            Purpose::Asking => None,
            Purpose::Working => Some(Place::take(&values.output_dir, &table)?),
        };
        let connection = Box::pin(Connection::open(access(config)?)).await;
        let clock = Arc::new(SystemClock::start());
        let backend = Box::pin(Aws::open(connection.clone(), options, Arc::clone(&clock) as _)).await?;
        if let Some(words) = skewed(backend.skew_millis()) {
            tracing::warn!("{words}");
        }
        let (digits, file) = (values.token_key.clone(), values.token_key_file.clone());
        let tokens = TokenSealer::new(move || shared_key(digits.as_deref(), file.as_deref()));
        let mut engine_config = engine_config(config, tokens);
        engine_config.bucket = bucket;
        let worker = host_worker_id();
        let rota = Roster::new(&connection, &table, &shard, &worker, Arc::clone(&clock) as _);
        let engine = Engine::new(backend, clock, random_seed(), engine_config);
        // The engine lives on in its own store for as long as the process does.
        let told = engine.clone();
        engine.backend().listen_to_records(move |key| told.note_record_change(key));
        // Others are at work: no lease is anybody's but its owner's until it runs out.
        let claims =
            EngineSourceConfig { worker: WorkerId::trusted(&worker), generation: None, tenants: None };
        let life = place.as_ref().map_or_else(Life::nowhere, Place::life);
        if place.as_ref().is_some_and(|place| place.alone) {
            life.end_former().await;
        }
        let node = Node::on_aws(&table, values.tenant.clone(), engine, claims, life);
        Ok(Self { node: Arc::new(node), rota, _place: place })
    }

    /// Says what does not stop a server and will be missed later.
    pub(crate) fn warn_about_lacks(config: &Resolved, out: &mut Output) {
        let values = &config.values;
        if let Err(problem) = shared_key(values.token_key.as_deref(), values.token_key_file.as_deref()) {
            out.warn(format_args!("tidemill: {problem}; until then events with a task token are refused"));
        }
    }

    /// Sends what was committed and writes down what changed, so that the next to open has little to read.
    pub(crate) async fn close(&self, out: &mut Output) {
        let backend = self.node.engine().backend();
        let closed = async {
            backend.own_sent().await;
            backend.flush().await
        };
        match tokio::time::timeout(LAST_SENDINGS, closed).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => out.note(format_args!("the rows are not written down: {fault}")),
            Err(_) => out.note(UNSENT),
        }
    }
}

/// What to say of a clock that is off, and not so far that it is refused.
fn skewed(millis: i64) -> Option<String> {
    (millis.unsigned_abs() > SKEW_TOLD_MILLIS).then(|| {
        let seconds = millis.unsigned_abs() / 1_000;
        let side = if millis > 0 { "ahead of" } else { "behind" };
        format!("this machine's clock is {seconds} s {side} that of AWS; leases are judged by it, and 15 s are refused")
    })
}

/// The API over a stage, in this process.
pub(crate) async fn client(config: &Resolved) -> Result<Client, CommandError> {
    let stage = Stage::open(config, Purpose::Asking).await?;
    let compiler = Arc::new(ScriptPool::new(&config.values));
    let engine = stage.node.engine().clone();
    let way = LocalWay::new(stage.node, config.server_config(), compiler);
    // A command ends with its answer, and nobody may be there to send what it committed.
    Ok(Client::Local(way.sending(Arc::new(move || {
        let engine = engine.clone();
        Box::pin(async move {
            if tokio::time::timeout(LAST_SENDINGS, engine.backend().own_sent()).await.is_err() {
                tracing::warn!("{UNSENT}");
            }
        })
    }))))
}

impl Rota for Roster {
    async fn take(&self, duty: &'static str) {
        Self::take(self, duty).await;
    }

    async fn keep(&self, duty: &'static str) {
        Self::keep(self, duty).await;
    }

    async fn give_back(&self, duty: &'static str) {
        Self::give_back(self, duty).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_told_of() {
        assert_eq!([skewed(0), skewed(5_000), skewed(-5_000)], [None, None, None]);
        assert!(skewed(6_100).is_some_and(|words| words.contains("6 s ahead of")));
        assert!(skewed(-14_000).is_some_and(|words| words.contains("14 s behind")));
    }
}
