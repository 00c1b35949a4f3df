//! `tidemill run`: a job file, run to its end in this process.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tidemill_api::{self as api, JobStatusName};
use tidemill_embedded::data_lock::LockError;
use tidemill_embedded::{Embedded, OpenError};
use tidemill_engine::commit::TaskKey;
use tidemill_model::{JobFile, JobId, Json, RequestId, RunnerSpec, TaskWork};
use tidemill_source_file::job_file::{ReadJob, read_job};
use tidemill_worker::WorkerHandle;
use tidemill_worker::log_sink::{LogLine, LogSink};

use super::input_file::{InputFile, at_places};
use super::resume::{self, Resumable};
use super::run_report::{self, JobReport};
use super::runtime::block_on_threads;
use super::signals::StopSignals;
use super::{CommandError, Ended, Flags, serve, update};
use crate::client::server_file::ServerFile;
use crate::client::{Client, ClientError, LocalWay, Query, add};
use crate::config::{BackendName, Resolved};
use crate::display::humanize::{count, span};
use crate::file_limit::raise_file_limit;
use crate::home::Home as _;
use crate::logging::LogFormat;
use crate::node::{Node, NodeError};
use crate::output::Output;
use crate::script_pool::ScriptPool;
use crate::watch::{Said, Show, Watch};

const EXIT_CODES: &str = "\
Exit codes:
  0    the job completed
  1    the job failed, or it could not be run
  2    the file, the arguments or the settings are wrong, or the data directory cannot be used
  3    the job waits: tasks of it are parked, and nothing else is left to do
  130  interrupted: the first Ctrl-C waits for running tasks, a second one does not";

/// Run a job file to its end, in this process
///
/// Everything is kept in the data directory as it happens. If the job fails or this process is killed, run the same command
/// with --resume: what was completed is not run again.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Run {
    /// The job file, YAML or JSON; `-` for standard input
    file: PathBuf,
    /// The data directory [default: .tidemill]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Go on with the newest unfinished or failed job of the same name
    #[arg(long)]
    resume: bool,
    /// With --resume: take what the file says now for tasks that did not complete, and tasks that are new in it
    #[arg(long, requires = "resume")]
    update: bool,
    /// Print one JSON object at the end, with all states and outputs, and no progress
    #[arg(long)]
    json: bool,
    /// How many tasks run at a time [default: 3]
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// Run tasks as this user, NAME or UID:GID; only root can choose one
    #[arg(long = "run-as", value_name = "USER")]
    user: Option<String>,
    /// What lines on standard error are; with json there is no progress [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    log_format: Option<String>,
}

impl Run {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        add(&mut flags, "TIDEMILL_DATA", "--data", self.data.as_ref().map(|dir| dir.display()));
        add(&mut flags, "MAX_CONCURRENT", "--concurrency", self.concurrency);
        add(&mut flags, "TIDEMILL_RUN_AS", "--run-as", self.user.as_ref());
        add(&mut flags, "LOG_FORMAT", "--log-format", self.log_format.as_ref());
        flags
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        if config.values.backend == BackendName::Aws {
            return Err(CommandError::Unusable(
                "`tidemill run` works on a data directory, and TIDEMILL_BACKEND is aws; hand the job to the stage with \
                 `tidemill submit --watch`, which `tidemill worker` and `tidemill serve` run"
                    .to_owned(),
            ));
        }
        let input = InputFile::read(&self.file)?;
        let read = read_job(&input.name, input.form(), &input.bytes)?;
        let name = read.file.name.clone().unwrap_or_else(|| input.short_name());
        raise_file_limit();
        block_on_threads(self.to_end(read, &name, config, out))
    }

    async fn to_end(&self, read: ReadJob, name: &str, config: &Resolved, out: &mut Output) -> Ended {
        let mut signals = StopSignals::listen()?;
        let node = Arc::new(Node::open(config).await.map_err(|error| self.in_use(error, config))?);
        let traces = node.start_traces(&config.values);
        let pool = ScriptPool::new(&config.values);
        let compiler = Arc::new(pool.clone());
        let mut server_config = config.server_config();
        // It runs the tasks itself: what is not listed, they do not get.
        server_config.task_secrets.get_or_insert_default();
        let way = LocalWay::new(Arc::clone(&node), server_config, compiler);
        let client = Client::Local(way.clone());
        let has_scripts = node.has_scripts().await.map_err(NodeError::from)?;
        let scripts = has_scripts.then(|| node.start_scripts(&config.values, pool.clone()));
        let others = unfinished(&client).await?;
        let job_id = if self.resume {
            self.go_on(&client, &node, name, &read, out).await?
        } else {
            if others > 0 {
                out.note(format_args!(
                    "{} in {} not finished and will go on beside this one; see `tidemill jobs list`",
                    if others == 1 {
                        "1 earlier job is".to_owned()
                    } else {
                        format!("{others} earlier jobs are")
                    },
                    client.place()
                ));
            }
            submit(&way, read, name).await?
        };
        let said = Arc::new(Said::new());
        let is_json = config.values.log_format == LogFormat::Json;
        let sink: Arc<dyn LogSink> = if is_json {
            serve::stderr_sink(config, node.worker_id())?
        } else {
            Arc::new(JobSink { job: JobId::new(&job_id).ok(), said: Arc::clone(&said) })
        };
        let is_silent = self.json || is_json;
        let show = if is_silent { Show::Nothing } else { Show::Progress { colours: config.colours() } };
        let mut watch = Watch::new(&client, &job_id, show, said);
        let worker = node.start_worker(config, sink, &pool)?;
        let timers = (node.start_sweeper(&config.values), node.start_triage(), node.start_courier(config));
        let ended = watched(&mut watch, worker, &mut signals, config.values.grace, out).await;
        watch.end(out).await;
        if matches!(ended, Ok(End::AtRest)) && !timers.2.finish(config.values.grace).await {
            out.note(
                "a callback has not arrived yet; it is tried again when this data directory is used next",
            );
        }
        drop(timers);
        if let Some(scripts) = scripts {
            scripts.shut_down(config.values.grace).await;
        }
        if let Some(traces) = traces {
            traces.shut_down().await;
        }
        Embedded::settle(node.engine()).await;
        let report = JobReport::read(&client, &job_id).await?;
        match ended? {
            End::AtRest => {
                let code = run_report::print_report(&report, self.json, out)?;
                if !self.json && report.is_parked() {
                    out.note(
                        "let a parked task go on: tidemill parked resume TASK; or run all of them again:",
                    );
                }
                if !self.json && (report.job.status == JobStatusName::Failed || report.is_parked()) {
                    report.print_lacking_budget(out);
                    self.print_how_to_go_on(out);
                }
                Ok(code)
            }
            End::Stopped => {
                if self.json {
                    out.json(&report.stopped().to_json(true))?;
                } else {
                    out.note("stopped");
                    self.print_how_to_go_on(out);
                }
                Ok(ExitCode::from(130))
            }
        }
    }

    fn print_how_to_go_on(&self, out: &mut Output) {
        let data = self.data.as_ref().map(|dir| format!(" --data {}", dir.display())).unwrap_or_default();
        out.note(format_args!("go on with: tidemill run {}{data} --resume", self.file.display()));
    }

    /// Names the process that holds the directory, and how to reach it.
    fn in_use(&self, error: NodeError, config: &Resolved) -> CommandError {
        let NodeError::Open(OpenError::Lock(LockError::Held { dir, holder })) = &error else {
            return error.into();
        };
        let server = ServerFile::read(&config.values.data).filter(|server| server.pid.to_string() == *holder);
        let Some(server) = server else {
            return CommandError::Unusable(format!(
                "the data directory {dir} is in use by process {holder}; wait for it to end, or take another one with --data"
            ));
        };
        let file = self.file.display();
        let instead = match (self.resume, self.update) {
            (true, true) => {
                format!("have it go on with the job with `tidemill jobs resume JOB --update {file}`")
            }
            (true, false) => {
                "have it go on with the job with `tidemill jobs resume JOB`, which `tidemill jobs list` names"
                    .to_owned()
            }
            _ => "hand the job to it with `tidemill submit --watch`".to_owned(),
        };
        CommandError::Unusable(format!(
            "the data directory {dir} is in use by the server {} (process {holder}); {instead}, or take another directory \
             with --data",
            server.url
        ))
    }

    /// Finds the job to go on with and opens its failed tasks again.
    async fn go_on(
        &self,
        client: &Client,
        node: &Node<Embedded>,
        name: &str,
        read: &ReadJob,
        out: &mut Output,
    ) -> Result<String, CommandError> {
        let file = &read.file;
        let graph = (!self.update).then_some(file);
        let Resumable { job_id, status, rows } = resume::find(client, name, graph).await?;
        let request = api::ResumeRequest::default();
        let again = if self.update {
            let updated =
                update::update_and_resume(client, &job_id, status, &read.document, &request).await?;
            update::print_changes(&updated.tasks, out);
            updated.resumed.len()
        } else {
            for row in changed_commands(node, file, &rows).await {
                let task = &row.task_id;
                if row.status == Some(api::TaskStateName::Completed) {
                    out.note(format_args!(
                        "task {task} was changed in the file but is completed, and stays so; run the file without --resume to \
                         run it again"
                    ));
                } else {
                    out.note(format_args!(
                        "task {task} was changed in the file; the job goes on with what it was submitted with (--update takes the \
                         change)"
                    ));
                }
            }
            if status == JobStatusName::Running {
                0
            } else {
                update::resume(client, &job_id, &request).await?.len()
            }
        };
        let done = rows.iter().filter(|row| row.status == Some(api::TaskStateName::Completed)).count();
        out.note(format_args!(
            "going on with {job_id}: {} completed before, {} run again",
            count(done as u64, "task"),
            again
        ));
        Ok(job_id)
    }
}

enum End {
    AtRest,
    /// The user stopped it. Running tasks have ended, were given back, or were killed.
    Stopped,
}

/// Watches until the job is at rest or the user stops it.
async fn watched(
    watch: &mut Watch<'_>,
    worker: WorkerHandle,
    signals: &mut StopSignals,
    grace: Duration,
    out: &mut Output,
) -> Result<End, CommandError> {
    let rested = tokio::select! {
        rested = watch.until_rest(out) => Some(rested),
        () = signals.next() => None,
    };
    if let Some(rested) = rested {
        // Tasks of other jobs are given back; they do not hold this one up.
        worker.shut_down(Duration::ZERO).await;
        rested?;
        return Ok(End::AtRest);
    }
    let limit = span(u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    let words = format!("stopping: running tasks may end within {limit}; Ctrl-C again stops them now");
    watch.note(&words, out);
    let mut drained = std::pin::pin!(worker.shut_down(grace));
    let mut at_rest = false;
    loop {
        tokio::select! {
            rested = watch.until_rest(out), if !at_rest => {
                rested?;
                at_rest = true;
            }
            () = &mut drained => return Ok(if at_rest { End::AtRest } else { End::Stopped }),
            // The worker ends with its handle, and its tasks with it.
            () = signals.next() => return Ok(End::Stopped),
        }
    }
}

async fn submit(way: &LocalWay, read: ReadJob, name: &str) -> Result<String, CommandError> {
    let ReadJob { document, mut file } = read;
    file.name = Some(name.to_owned());
    let accepted = way.submit(file).await.map_err(|error| at_places(&document, error))?;
    Ok(accepted.job_id)
}

/// How many jobs of earlier runs are still open; above a hundred the exact number is no matter.
async fn unfinished(client: &Client) -> Result<usize, ClientError> {
    let mut found = 0;
    for status in ["running", "failing"] {
        let jobs: Vec<api::JobSummary> =
            client.list("/v1/jobs", &Query::new().set("status", status), 100).await?;
        found += jobs.len();
    }
    Ok(found)
}

/// The tasks whose work in the file, or what it is given, is not what they were submitted with.
async fn changed_commands<'r>(
    node: &Node<Embedded>,
    file: &JobFile,
    rows: &'r [api::TaskRow],
) -> Vec<&'r api::TaskRow> {
    let rows: HashMap<&str, &'r api::TaskRow> = rows.iter().map(|row| (row.task_id.as_str(), row)).collect();
    let mut changed = Vec::new();
    for task in &file.tasks {
        let (run, agent, script) = match &task.work {
            TaskWork::Named(_) => continue,
            TaskWork::Inline(run) => (Some(run), None, None),
            TaskWork::Agent(agent) => (None, Some(&**agent), None),
            TaskWork::Script(script) => (None, None, Some(script)),
        };
        let Some(row) = rows.get(task.task_id.as_str()) else { continue };
        let key = TaskKey { tenant: node.tenant().clone(), request: RequestId::trusted(&row.request_id) };
        // A task that cannot be read does not count as different; the run itself says what is wrong with the store.
        let Ok(Some(stored)) = node.engine().task(key).await else { continue };
        let execution =
            stored.spec.options.execution.as_ref().and_then(|json: &Json| json.read::<RunnerSpec>().ok());
        let execution = execution.unwrap_or_default();
        if execution.run.as_ref() != run
            || execution.agent.as_ref() != agent
            || execution.script.as_ref() != script
            || stored.spec.input != task.input
            || execution.env != task.settings.env
            || execution.secrets != task.settings.secrets
            || execution.path != task.settings.path
        {
            changed.push(*row);
        }
    }
    changed
}

/// Catches what the tasks of one job write.
#[derive(Debug)]
struct JobSink {
    job: Option<JobId>,
    said: Arc<Said>,
}

impl LogSink for JobSink {
    fn line(&self, line: &LogLine<'_>) {
        if line.claim.job == self.job {
            self.said.push(line.claim.task_id.as_str(), line.text);
        }
    }
}
