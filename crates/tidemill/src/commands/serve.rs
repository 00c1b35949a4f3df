//! `tidemill serve`: engine, worker, API and timers in one process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustix::process::geteuid;
use tidemill_server::{App, ServeError, check_listen};
use tidemill_worker::log_sink::StderrSink;
use tidemill_worker::{CommandWorker, WorkerHandle};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::runtime::block_on_threads;
use super::signals::StopSignals;
use super::{CommandError, Ended, Flags};
use crate::client::add;
use crate::client::server_file::{ServerFile, ServerFileGuard};
#[cfg(feature = "aws")]
use crate::config::BackendName;
use crate::config::{Resolved, Role, user_name};
use crate::display::humanize::span;
use crate::file_limit::raise_file_limit;
use crate::home::Home;
use crate::logging::LogFormat;
use crate::node::{DutyConfig, Node};
use crate::output::Output;
use crate::rota::{Alone, OnDuty, Rota};
use crate::script_pool::ScriptPool;

const EXIT_CODES: &str = "\
Exit codes:
  0    stopped by SIGTERM or SIGINT, in order
  1    the server failed
  2    the arguments or settings are wrong, the address or the data directory cannot be used
  130  stopped by a second signal, without waiting for running tasks";

/// Serve the HTTP API and run tasks
///
/// Prints `listening on http://HOST:PORT` on standard error once it takes requests. Without API keys it listens on this
/// machine only, takes requests of its own user and root only, and says so; see `tidemill keys`.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Serve {
    /// The data directory [default: .tidemill]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where to listen; port 0 picks one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where everything is kept, embedded or aws [default: embedded]
    #[arg(long, value_name = "BACKEND", value_parser = ["embedded", "aws"])]
    backend: Option<String>,
    /// Run no tasks in this process; workers attach with `tidemill worker`
    #[arg(long)]
    no_worker: bool,
    /// Do only some of it: api, worker, timers, scripts, courier, health, with commas between [default: all]
    #[arg(long, value_name = "ROLES")]
    roles: Option<String>,
    /// Answer clients of AWS too: signed requests to EventBridge and STS
    #[arg(long)]
    aws_gateway: bool,
    /// How many tasks run at a time [default: 3]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Run tasks as this user, NAME or UID:GID; only root can choose one
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// What lines on standard error are [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
}

impl Serve {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        add(&mut flags, "TIDEMILL_DATA", "--data", self.data.as_ref().map(|dir| dir.display()));
        add(&mut flags, "TIDEMILL_BACKEND", "--backend", self.backend.as_ref());
        add(&mut flags, "TIDEMILL_ROLES", "--roles", self.roles.as_ref());
        add(&mut flags, "TIDEMILL_LISTEN", "--listen", self.listen.as_ref());
        add(&mut flags, "AWS_GATEWAY", "--aws-gateway", self.aws_gateway.then_some("true"));
        add(&mut flags, "MAX_CONCURRENT", "--concurrency", self.concurrency);
        add(&mut flags, "TIDEMILL_RUN_AS", "--run-as", self.run_as.as_ref());
        add(&mut flags, "LOG_FORMAT", "--log-format", self.log_format.as_ref());
        flags
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        raise_file_limit();
        let mut roles = config.values.roles.clone();
        roles.retain(|role| *role != Role::Worker || !self.no_worker);
        block_on_threads(async {
            let signals = StopSignals::listen()?;
            #[cfg(feature = "aws")]
            if config.values.backend == BackendName::Aws {
                use crate::aws::{Purpose, Stage};
                if config.values.gateway.is_some() {
                    let problem = "AWS_GATEWAY is for a data directory: on AWS its clients speak to AWS";
                    return Err(CommandError::Unusable(problem.to_owned()));
                }
                let works = roles.contains(&Role::Worker);
                let purpose = if works { Purpose::Working } else { Purpose::Asking };
                let stage = Stage::open(config, purpose).await?;
                Stage::warn_about_lacks(config, out);
                let served = serve(&stage.node, &stage.rota, None, &roles, config, signals, out).await;
                stage.close(out).await;
                return served;
            }
            let node = Arc::new(Node::open(config).await?);
            serve(&node, &Alone, Some(&config.values.data), &roles, config, signals, out).await
        })
    }
}

/// The parts that are to run here, until a signal comes. `data` is where commands find the address.
async fn serve<B: Home>(
    node: &Arc<Node<B>>,
    rota: &impl Rota,
    data: Option<&Path>,
    roles: &[Role],
    config: &Resolved,
    mut signals: StopSignals,
    out: &mut Output,
) -> Ended {
    let values = &config.values;
    let closed = node.engine().is_closed().await;
    let closed = closed.map_err(|error| CommandError::Unusable(error.to_string()))?;
    // A copy that was imported to look at it must not do the work that the original does: it answers requests only.
    let roles: Vec<Role> =
        roles.iter().copied().filter(|role| !closed || matches!(role, Role::Api)).collect();
    let _watch = WatchStop::begin(node);
    let traces = node.start_traces(values);
    let scripts = ScriptPool::new(values);
    // Before anybody is told that it listens: without its output directory it does not start.
    let worker = if roles.contains(&Role::Worker) {
        let sink = stderr_sink(config, node.worker_id())?;
        Some(node.prepare_worker(config, sink, &scripts)?)
    } else {
        None
    };
    let mut api = if roles.contains(&Role::Api) {
        let works = roles.contains(&Role::Worker);
        Some(Api::start(node, data, &scripts, works, config, out).await?)
    } else {
        None
    };
    let duty_config =
        DutyConfig { values: values.clone(), sanitizer: config.sanitizer(), scripts: scripts.clone() };
    let begin = |role: Role| OnDuty::start(node, rota, role, &duty_config);
    let is_wanted =
        |role: &Role| roles.contains(role) && (*role != Role::Health || values.health_every.is_some());
    let timers = [Role::Timers, Role::Courier, Role::Health].into_iter().filter(is_wanted).map(begin);
    let timers: Vec<OnDuty> = timers.collect();
    let worker = worker.map(CommandWorker::start);
    let scripts = roles.contains(&Role::Scripts).then(|| begin(Role::Scripts));
    if api.is_none() {
        let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
        out.note(format_args!("serving {} without the API: {}", node.place(), names.join(", ")));
    }

    tokio::select! {
        () = signals.next() => {}
        broken = Api::broken(api.as_mut()) => return Err(CommandError::Failed(broken)),
    }
    // Workers elsewhere still report while the tasks of this process end.
    let scripts = tokio::spawn(async {
        if let Some(scripts) = scripts {
            scripts.end().await;
        }
    });
    let drained = drain(worker, values.grace, &mut signals, out).await;
    if drained.is_ok() {
        tokio::select! {
            _ = scripts => {}
            () = signals.next() => return Err(CommandError::Interrupted),
        }
        for timer in timers {
            timer.end().await;
        }
    }
    if let Some(api) = api {
        let stopped = api.stop();
        drained?;
        tokio::select! {
            ended = stopped => ended.map_err(CommandError::Failed)?,
            () = signals.next() => return Err(CommandError::Interrupted),
        }
    } else {
        drained?;
    }
    if let Some(traces) = traces {
        traces.shut_down().await;
    }
    B::settle(node.engine()).await;
    out.note("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Tells once why the store stopped, if it does. Ends with its handle.
struct WatchStop(JoinHandle<()>);

impl WatchStop {
    fn begin<B: Home>(node: &Arc<Node<B>>) -> Self {
        let node = Arc::clone(node);
        Self(tokio::spawn(async move {
            let backend = node.engine().backend();
            let fault = backend.until_stopped().await;
            tracing::error!("{fault}; nothing more is carried out until the server is started again");
        }))
    }
}

impl Drop for WatchStop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The API, listening.
struct Api {
    server: JoinHandle<Result<(), ServeError>>,
    stop: oneshot::Sender<()>,
    /// Tells commands on this machine where it is.
    file: Option<ServerFileGuard>,
}

impl Api {
    async fn start<B: Home>(
        node: &Node<B>,
        data: Option<&Path>,
        scripts: &ScriptPool,
        works: bool,
        config: &Resolved,
        out: &mut Output,
    ) -> Result<Self, CommandError> {
        let values = &config.values;
        let unusable = |error: &dyn std::fmt::Display| CommandError::Unusable(error.to_string());
        check_listen(node.engine(), values.listen).await.map_err(|error| unusable(&error))?;
        let listener = TcpListener::bind(values.listen).await;
        let listener = listener
            .map_err(|error| unusable(&format_args!("cannot listen on {}: {error}", values.listen)))?;
        let address = listener.local_addr().map_err(|error| unusable(&error))?;
        let url = url_of(address);
        if !address.ip().is_unspecified() {
            node.engine().set_dashboard_url(url.clone());
        }
        let file = data.map(|data| {
            ServerFile { url: url.clone(), pid: std::process::id() }.keep(data, |error| {
                out.warn(format_args!(
                    "tidemill: cannot write server.json: {error}; commands need --server {url} until it can be written"
                ));
            })
        });
        let compiler = Some(Arc::new(scripts.clone()) as _);
        let mut server_config = config.server_config();
        if values.roles.contains(&Role::Worker) {
            // It runs tasks itself: what it does not list, they do not get.
            server_config.task_secrets.get_or_insert_default();
        }
        let app = App::with_compiler(node.engine(), server_config, compiler);
        app.read_job_texts(crate::job_text::read);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            let _ = stopped.await;
        };
        let server = tokio::spawn(tidemill_server::serve(listener, app, stopped));
        out.note(format_args!("listening on {url}"));
        if node.engine().is_closed().await.map_err(|error| unusable(&error))? {
            out.warn(
                "closed: the store came without the API keys that it had or may have had, and every request is refused \
                 and no task runs; stop this server and run `tidemill keys create --role admin --data DIR`",
            );
        } else if !node.engine().has_keys().await.map_err(|error| unusable(&error))? {
            out.note(who_may(geteuid().as_raw(), values.run_as.map(|user| user.uid), works));
        }
        Ok(Self { server, stop, file })
    }

    /// Waits until the server ends by itself, which it never should.
    async fn broken(api: Option<&mut Self>) -> String {
        match api {
            Some(api) => broken((&mut api.server).await),
            None => std::future::pending().await,
        }
    }

    /// Takes no more requests and lets those under way end.
    async fn stop(self) -> Result<(), String> {
        drop(self.file);
        let _ = self.stop.send(());
        match self.server.await {
            Ok(Ok(())) => Ok(()),
            ended => Err(broken(ended)),
        }
    }
}

/// Which users may use a server without keys.
fn who_may(own: u32, run_as: Option<u32>, works: bool) -> String {
    let shown = |uid: u32| match user_name(uid) {
        Some(name) => format!("{name} (uid {uid})"),
        None => format!("uid {uid}"),
    };
    let owner = if own == 0 { shown(0) } else { format!("{} and root", shown(own)) };
    let tasks = match run_as.filter(|uid| *uid != own && *uid != 0) {
        _ if !works => String::new(),
        Some(uid) => format!("; tasks run as {}, who may not", shown(uid)),
        None => "; tasks run as the same user and may too".to_owned(),
    };
    format!(
        "no API keys: only {owner} on this machine may use it, for everything{tasks}; \
         `tidemill keys create --role admin` makes the first key, and from then on keys decide"
    )
}

/// Shows what tasks write, with their ids and without secrets.
pub(super) fn stderr_sink(config: &Resolved, worker: &str) -> Result<Arc<StderrSink>, CommandError> {
    let sink = match config.values.log_format {
        LogFormat::Text => StderrSink::start().map(StderrSink::stamped),
        LogFormat::Json => StderrSink::start_json(worker.to_owned()),
    };
    let sink = sink.map_err(|error| CommandError::Failed(format!("no thread can be started: {error}")))?;
    Ok(Arc::new(sink.without_secrets(config.sanitizer())))
}

/// Lets running tasks end. A second signal does not.
pub(super) async fn drain(
    worker: Option<WorkerHandle>,
    grace: Duration,
    signals: &mut StopSignals,
    out: &mut Output,
) -> Result<(), CommandError> {
    let Some(worker) = worker else { return Ok(()) };
    let limit = span(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    out.note(format_args!("stopping: running tasks may end within {limit}; a second signal stops them now"));
    tokio::select! {
        () = worker.shut_down(grace) => Ok(()),
        () = signals.next() => Err(CommandError::Interrupted),
    }
}

fn broken<E: std::fmt::Display>(ended: Result<Result<(), E>, tokio::task::JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "the server ended by itself".to_owned(),
        Ok(Err(error)) => format!("the server failed: {error}"),
        Err(error) => format!("the server broke: {error}"),
    }
}

/// An address that listens everywhere is reached on this machine.
fn url_of(address: SocketAddr) -> String {
    let shown = match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port()))
        }
        address => address,
    };
    format!("http://{shown}")
}
