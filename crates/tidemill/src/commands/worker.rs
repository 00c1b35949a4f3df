//! `tidemill worker`: runs tasks of a server elsewhere, or of a stage on AWS.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tidemill::host::random_seed;
use tidemill_model::Backoff;
use tidemill_worker::{CommandWorker, RemoteSource};

use super::moment::now;
use super::runtime::block_on_threads;
use super::signals::StopSignals;
use super::{CommandError, Ended, Flags, serve};
use crate::client::{Call, Client, ClientError, HttpClient, add};
#[cfg(feature = "aws")]
use crate::config::BackendName;
use crate::config::Resolved;
use crate::display::humanize::count;
use crate::file_limit::raise_file_limit;
use crate::node::{Life, command_config, id_of, start_spawner};
use crate::output::Output;
use crate::script_pool::ScriptPool;
use crate::worker_metrics::WorkerMetrics;

/// Before a server that is away is asked again, and the longest of ever longer pauses.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

const EXIT_CODES: &str = "\
Exit codes:
  0    stopped by SIGTERM or SIGINT, in order
  1    the worker failed
  2    the arguments or settings are wrong, or the server refuses the key
  130  stopped by a second signal, without waiting for running tasks";

/// Run tasks of a server, from this or another machine
///
/// It claims tasks over HTTP, runs them here and reports back. It needs the server's address and a key of role worker, nothing
/// else. With --backend aws it needs no server: tickets in the queue of the stage tell it what there is to do. A worker that is
/// cut off loses its leases: its tasks are killed and run elsewhere.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Worker {
    /// The server
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Where tasks come from: aws for a stage, without a server
    #[arg(long, value_name = "BACKEND", value_parser = ["embedded", "aws"])]
    backend: Option<String>,
    /// A key of role worker; better given as `TIDEMILL_API_KEY`, which no list of processes shows
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How many tasks run at a time [default: 3]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Run tasks as this user, NAME or UID:GID; only root can choose one
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Where to answer /metrics, /healthz and /readyz, such as 127.0.0.1:9464; port 0 picks one [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
    /// What lines on standard error are [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
}

impl Worker {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        add(&mut flags, "TIDEMILL_SERVER", "--server", self.server.as_ref());
        add(&mut flags, "TIDEMILL_BACKEND", "--backend", self.backend.as_ref());
        add(&mut flags, "TIDEMILL_API_KEY", "--key", self.key.as_ref());
        add(&mut flags, "MAX_CONCURRENT", "--concurrency", self.concurrency);
        add(&mut flags, "TIDEMILL_RUN_AS", "--run-as", self.run_as.as_ref());
        add(&mut flags, "WORKER_METRICS_LISTEN", "--metrics", self.metrics.as_ref());
        add(&mut flags, "LOG_FORMAT", "--log-format", self.log_format.as_ref());
        flags
    }

    #[expect(clippy::unused_self, reason = "all that was given stands for settings")]
    pub(crate) fn execute(&self, config: &Resolved, out: &mut Output) -> Ended {
        #[cfg(feature = "aws")]
        if config.values.backend == BackendName::Aws {
            raise_file_limit();
            return block_on_threads(work_on_aws(config, out));
        }
        let Some(url) = &config.values.server else {
            return Err(CommandError::Unusable(
                "name the server with --server or TIDEMILL_SERVER, or a stage with --backend aws".to_owned(),
            ));
        };
        raise_file_limit();
        block_on_threads(work(url, config, out))
    }
}

async fn work(url: &str, config: &Resolved, out: &mut Output) -> Ended {
    let values = &config.values;
    let mut signals = StopSignals::listen()?;
    let http = HttpClient::new(url, values.api_key.clone())?;
    let client = Client::Http(Box::new(http.clone()));
    let mut is_reached = greet(&client, out).await?;
    let failed = |what: &str, error: &std::io::Error| CommandError::Failed(format!("{what}: {error}"));
    let place = Place::take(&values.output_dir, url)?;
    let life = place.life();
    if place.alone {
        life.end_former().await;
    }
    let spawner = start_spawner(&life, values);
    let spawner =
        spawner.map_err(|error| failed("the process that starts tasks cannot be started", &error))?;
    let worker_id = host_worker_id();
    let source = RemoteSource::new(http, worker_id.clone(), values.slots);
    let scripts = ScriptPool::new(values);
    let command = command_config(config, serve::stderr_sink(config, &worker_id)?, &scripts);
    let metrics = match values.worker_metrics {
        Some(address) => {
            let (slots, attempts) = (command.slot_meter.clone(), command.attempt_meter.clone());
            let serving = WorkerMetrics::serve(address, slots, attempts).await;
            let serving = serving
                .map_err(|error| CommandError::Unusable(format!("cannot listen on {address}: {error}")))?;
            out.note(format_args!("metrics on http://{}/metrics", serving.address));
            Some(serving)
        }
        None => None,
    };
    let worker = CommandWorker::new(source, spawner, command);
    let worker = worker.map_err(|error| {
        let dir = values.output_dir.display();
        failed(&format!("the output directory {dir} cannot be used"), &error)
    })?;
    let mut pauses = PAUSES;
    while !is_reached {
        let pause = tokio::time::sleep(pauses.pause());
        let looked = async {
            pause.await;
            reached(&client).await
        };
        is_reached = tokio::select! {
            () = signals.next() => {
                out.note("stopped");
                return Ok(ExitCode::SUCCESS);
            }
            looked = looked => looked?.is_ok(),
        };
    }
    let worker = worker.start();
    out.note(format_args!(
        "working for {} as {worker_id}, {} at a time",
        client.place(),
        count(values.slots as u64, "task")
    ));
    signals.next().await;
    serve::drain(Some(worker), values.grace, &mut signals, out).await?;
    drop(metrics);
    out.note("stopped");
    Ok(ExitCode::SUCCESS)
}

/// A look at the server before work begins, and whether it is there.
async fn greet(client: &Client, out: &mut Output) -> Result<bool, CommandError> {
    let reached = reached(client).await?;
    if let Err(error) = &reached {
        out.note(format_args!("{error}; trying until it is there"));
    }
    Ok(reached.is_ok())
}

/// Whether the server answers. One that is away may come; one that refuses the key will not change its mind.
async fn reached(client: &Client) -> Result<Result<(), ClientError>, CommandError> {
    // A heartbeat for a task that cannot be: only the right to send one is looked at.
    let request = serde_json::json!({ "requestId": "none", "fence": 0 });
    match client.bytes(Call::post("/v1/worker/heartbeat", &request)).await {
        Err(ClientError::Problem(problem)) if matches!(problem.status, 401 | 403) => {
            Err(CommandError::Unusable(format!("{} refuses this worker: {}", client.place(), problem.detail)))
        }
        Err(error @ (ClientError::Unreachable { .. } | ClientError::Strange(_))) => Ok(Err(error)),
        Ok(_) | Err(ClientError::Problem(_)) => Ok(Ok(())),
    }
}

/// Works for a stage, with tickets from its queue.
#[cfg(feature = "aws")]
async fn work_on_aws(config: &Resolved, out: &mut Output) -> Ended {
    let values = &config.values;
    let mut signals = StopSignals::listen()?;
    let stage = crate::aws::Stage::open(config, crate::aws::Purpose::Working).await?;
    let node = &stage.node;
    let traces = node.start_traces(values);
    let sink = serve::stderr_sink(config, node.worker_id())?;
    let worker = node.start_worker(config, sink, &ScriptPool::new(values))?;
    let (place, name, slots) = (node.place(), node.worker_id(), values.slots);
    out.note(format_args!("working for {place} as {name}, {} at a time", count(slots as u64, "task")));
    signals.next().await;
    serve::drain(Some(worker), values.grace, &mut signals, out).await?;
    stage.close(out).await;
    if let Some(traces) = traces {
        traces.shut_down().await;
    }
    out.note("stopped");
    Ok(ExitCode::SUCCESS)
}

/// What marks the processes of this worker on this machine.
pub(crate) struct Place {
    data_id: String,
    /// Whether no other worker of this server uses the same directory, so that what carries the mark is left over.
    pub(crate) alone: bool,
    _lock: Option<File>,
}

impl Place {
    /// Takes an output directory, which is made if it is not there, for the work of one server or stage.
    pub(crate) fn take(output_dir: &Path, work_of: &str) -> Result<Self, CommandError> {
        std::fs::create_dir_all(output_dir).map_err(|error| {
            CommandError::Failed(format!("cannot make {}: {error}", output_dir.display()))
        })?;
        let path = std::fs::canonicalize(output_dir).unwrap_or_else(|_| output_dir.to_owned());
        let id = id_of(&format!("{work_of} {}", path.display()));
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(output_dir.join(format!(".worker-{id}.lock")));
        Ok(match file {
            Ok(file) if file.try_lock().is_ok() => Self { data_id: id, alone: true, _lock: Some(file) },
            _ => Self { data_id: format!("{id}-{}", std::process::id()), alone: false, _lock: None },
        })
    }

    /// The clock of a machine goes on over restarts, and so do generations.
    pub(crate) fn life(&self) -> Life {
        Life { data_id: self.data_id.clone(), generation: now() }
    }
}

/// A name that no other worker has, and that tells where it is.
pub(crate) fn host_worker_id() -> String {
    let name = rustix::system::uname();
    let host = name.nodename().to_string_lossy();
    let host: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).take(60).collect();
    format!("{host}-{}-{:08x}", std::process::id(), random_seed() >> 32)
}
