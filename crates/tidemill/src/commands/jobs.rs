//! `tidemill jobs`: look at jobs and steer them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use axum::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tidemill_api as api;
use tidemill_model::MicroUsd;
use tidemill_model::work::last_error::in_short;
use tidemill_source_file::job_file::{ReadJob, read_added_tasks, read_job};

use super::input_file::{InputFile, at_places};
use super::moment::{Moment, now};
use super::run_report::{self, FAILURES_MAX, JobReport};
use super::runtime::block_on;
use super::signals::StopSignals;
use super::usage::{budget_line, dollars, usage_line};
use super::{CommandError, Ended, Flags, id, job_logs, update};
use crate::client::{Call, Client, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::humanize::{ago, count, moment, span};
use crate::display::{Table, line};
use crate::output::Output;
use crate::watch::{Said, Show, Watch, job_with_tasks};

/// The codes of commands that can watch a job to its end.
pub(super) const WATCH_EXIT_CODES: &str = "\
Exit codes:
  0    done; of a job that was watched: it completed
  1    something was found wrong, or the command failed; the job failed or was cancelled
  2    the arguments, a file or the settings are wrong, or the data directory cannot be \
       used: it is held by another process, it is not there, or a newer release wrote it
  3    the job that was watched waits: tasks of it are parked, and nothing else is left to do
  130  interrupted
  141  the reader of the output closed it";

/// List, look at, watch, cancel, resume and extend jobs
///
/// A job is named by its id, or by as many of its first digits as tell it apart.
#[derive(Args)]
#[command(after_help = WATCH_EXIT_CODES)]
pub(crate) struct Jobs {
    #[command(flatten)]
    reach: ReachArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List jobs, newest first
    List {
        #[command(flatten)]
        which: Which,
        /// How many at most
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Show a job with its tasks
    Get { job: String },
    /// Watch a job to its end: exit code 0 when it completed, 3 when it is parked, 1 when not
    Watch { job: String },
    /// Print what the tasks of a job wrote, each line behind its task
    Logs {
        job: String,
        /// Go on until the job is at rest
        #[arg(short, long)]
        follow: bool,
    },
    /// Cancel a job: running tasks are killed, and what waits is not started
    Cancel {
        job: String,
        /// Why; kept with the job
        #[arg(long)]
        reason: Option<String>,
    },
    /// Run failed tasks of a job again, and what waits for them
    Resume {
        job: String,
        /// Only these tasks; may be given more than once
        #[arg(long = "task", value_name = "TASK")]
        tasks: Vec<String>,
        /// With the newest versions of their definitions, which the job goes on with
        #[arg(long)]
        newest: bool,
        /// With what this job file says now, for tasks that did not complete, and with the tasks that are new in it; `-` for
        /// standard input
        #[arg(long, value_name = "FILE", conflicts_with = "newest")]
        update: Option<PathBuf>,
    },
    /// Add the tasks of a file to a job
    AddTasks {
        job: String,
        /// `tasks:` as in a job file; `-` for standard input
        file: PathBuf,
    },
    /// Set what the agents of a job may use in all; resume it to let those go on that were stopped
    Budget {
        job: String,
        #[command(flatten)]
        limits: JobLimits,
    },
    /// Resume all jobs that fit
    Retry {
        #[command(flatten)]
        which: Which,
        /// Every failed job, in place of conditions
        #[arg(long)]
        all: bool,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

/// How much may be used, or no limit.
#[derive(Args, Clone, Copy)]
#[group(required = true, multiple = true)]
struct JobLimits {
    /// Dollars
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    usd: Option<MicroUsd>,
    /// Tokens of all kinds together
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Remove the budget
    #[arg(long, conflicts_with_all = ["usd", "tokens"])]
    none: bool,
}

/// Which jobs are meant. All conditions must hold.
#[derive(Args, Default)]
struct Which {
    #[arg(long)]
    status: Option<Status>,
    /// The job's name, exactly
    #[arg(long)]
    name: Option<String>,
    /// Created since: epoch milliseconds, or how long ago as in 15m, 2h, 7d
    #[arg(long, value_name = "WHEN")]
    since: Option<Moment>,
    /// Created before, likewise
    #[arg(long, value_name = "WHEN")]
    before: Option<Moment>,
}

impl Which {
    /// Many are meant by conditions or by `--all`, never by saying nothing.
    fn check(&self, all: bool) -> Result<(), CommandError> {
        let is_narrow =
            self.status.is_some() || self.name.is_some() || self.since.is_some() || self.before.is_some();
        let problem = match (all, is_narrow) {
            (true, true) => "--all means all: name no conditions beside it",
            (false, false) => "name conditions such as --status or --name, or --all",
            _ => return Ok(()),
        };
        Err(CommandError::Unusable(problem.to_owned()))
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Running,
    Failing,
    Failed,
    Completed,
    Cancelled,
}

impl Status {
    fn name(self) -> api::JobStatusName {
        match self {
            Self::Running => api::JobStatusName::Running,
            Self::Failing => api::JobStatusName::Failing,
            Self::Failed => api::JobStatusName::Failed,
            Self::Completed => api::JobStatusName::Completed,
            Self::Cancelled => api::JobStatusName::Cancelled,
        }
    }
}

impl Jobs {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        if let What::Retry { which, all, .. } = &self.what {
            which.check(*all)?;
        }
        // A wrong file is refused without a server.
        let changed = match &self.what {
            What::Resume { update: Some(file), .. } => {
                let input = InputFile::read(file)?;
                Some(read_job(&input.name, input.form(), &input.bytes)?)
            }
            _ => None,
        };
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            // Parts of ids become whole ones here.
            let id = async |given: String| id::job(&client, &given).await;
            match self.what {
                What::List { which, limit } => list(&client, &which, limit, json, out).await,
                What::Get { job } => get(&client, &id(job).await?, json, out).await,
                What::Logs { job, follow } => {
                    job_logs::show(&client, &id(job).await?, follow, json, out).await
                }
                What::Watch { job } => {
                    watch(&client, &id(job).await?, WatchShow { json, colours: config.colours() }, out).await
                }
                What::Cancel { job, reason } => cancel(&client, &id(job).await?, reason, json, out).await,
                What::Resume { job, tasks, newest, .. } => {
                    let task_ids = (!tasks.is_empty()).then_some(tasks);
                    let request = api::ResumeRequest { task_ids, newest };
                    if let Some(read) = changed {
                        return resume_changed(&client, &id(job).await?, &read, &request, json, out).await;
                    }
                    resume(&client, &id(job).await?, &request, json, out).await
                }
                What::AddTasks { job, file } => add_tasks(&client, &id(job).await?, &file, json, out).await,
                What::Budget { job, limits } => set_budget(&client, &id(job).await?, limits, json, out).await,
                What::Retry { which, all, limit } => retry(&client, &which, all, limit, json, out).await,
            }
        })
    }
}

async fn list(client: &Client, which: &Which, limit: usize, json: bool, out: &mut Output) -> Ended {
    let query = Query::new()
        .maybe("status", which.status.map(|status| status.name().as_str()))
        .maybe("name", which.name.as_ref())
        .maybe("from", which.since)
        .maybe("to", which.before);
    let jobs: Vec<api::JobSummary> = client.list("/v1/jobs", &query, limit).await?;
    if json {
        out.json(&json!({ "items": jobs }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["JOB", "STATUS", "DONE", "FAILED", "CREATED", "NAME"]);
    let now = now();
    for job in jobs {
        let done = format!("{}/{}", job.counts.completed, job.total_tasks);
        let failed = if job.counts.failed == 0 { "-".to_owned() } else { job.counts.failed.to_string() };
        let status = job.status.as_str().to_owned();
        table.row(vec![
            job.job_id,
            status,
            done,
            failed,
            ago(job.created_at, now),
            job.name.unwrap_or_default(),
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

async fn get(client: &Client, job: &str, json: bool, out: &mut Output) -> Ended {
    let (mut view, rows) = job_with_tasks(client, &encode(job)).await?;
    if json {
        view.tasks = rows;
        view.next_cursor = None;
        out.json(&view)?;
        return Ok(ExitCode::SUCCESS);
    }
    out.data(format_args!("{} {} ({})", view.job_id, view.status.as_str(), view.name.unwrap_or_default()))?;
    out.data(format_args!("created {}", moment(view.created_at)))?;
    if let Some(completed) = view.completed_at {
        let took = span(completed.saturating_sub(view.created_at));
        out.data(format_args!("completed {} after {took}", moment(completed)))?;
    }
    if let Some(usage) = &view.usage {
        out.data(format_args!("used {}", usage_line(usage)))?;
    }
    if let Some(budget) = &view.budget {
        out.data(format_args!("budget {}", budget_line(budget)))?;
    }
    let mut table = Table::new(&["TASK", "STATUS", "ATTEMPT", "TOOK", "WAITS FOR", "ERROR"]);
    for row in &rows {
        let took = row.started_at.zip(row.finished_at).map(|(start, end)| span(end.saturating_sub(start)));
        table.row(vec![
            row.task_id.clone(),
            row.status.map_or("waiting", |status| status.as_str()).to_owned(),
            row.attempt.to_string(),
            took.unwrap_or_else(|| "-".to_owned()),
            if row.blocked_by.is_empty() { "-".to_owned() } else { row.blocked_by.join(",") },
            row.why().map(|why| in_short(why).into_owned()).unwrap_or_default(),
        ]);
    }
    out.table(&table)?;
    // What has several lines cannot be read in a table.
    let told = rows.iter().filter_map(|row| Some((&row.task_id, row.why()?.trim_end())));
    for (task, why) in told.filter(|(_, why)| why.contains('\n')).take(FAILURES_MAX) {
        out.data(format_args!("{task}: {}", line::indented(why, 2)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How a watched job is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct WatchShow {
    pub(super) json: bool,
    pub(super) colours: bool,
}

/// Watches a job to its end. Also for `submit --watch`.
pub(super) async fn watch(client: &Client, job: &str, show: WatchShow, out: &mut Output) -> Ended {
    let job = encode(job);
    if client.is_local() {
        out.note("nobody runs jobs in this data directory now: this is how it stands");
        let report = JobReport::read(client, &job).await?;
        return run_report::print_report(&report, show.json, out);
    }
    let mut signals = StopSignals::listen()?;
    let face = if show.json { Show::Nothing } else { Show::Progress { colours: show.colours } };
    let mut watch = Watch::new(client, &job, face, Arc::new(Said::new()));
    let rested = tokio::select! {
        rested = watch.until_rest(out) => Some(rested),
        () = signals.next() => None,
    };
    if rested.is_some() {
        watch.end(out).await;
    } else {
        watch.leave(out);
    }
    match rested {
        None => {
            out.note("stopped watching; the job goes on");
            Err(CommandError::Interrupted)
        }
        Some(rested) => {
            rested?;
            let report = JobReport::read(client, &job).await?;
            let code = run_report::print_report(&report, show.json, out)?;
            if !show.json {
                print_how_to_go_on(&report, out);
            }
            Ok(code)
        }
    }
}

fn print_how_to_go_on(report: &JobReport, out: &mut Output) {
    let job = &report.job.job_id;
    if report.is_parked() {
        out.note("let a parked task go on: tidemill parked resume TASK; or run all of them again:");
    }
    report.print_lacking_budget(out);
    if report.job.status == api::JobStatusName::Failed || report.is_parked() {
        out.note(format_args!("go on with: tidemill jobs resume {job}"));
    }
}

async fn cancel(client: &Client, job: &str, reason: Option<String>, json: bool, out: &mut Output) -> Ended {
    let call = Call::post(format!("/v1/jobs/{}/cancel", encode(job)), &api::CancelRequest { reason });
    let cancelled: api::Cancelled = client.json(call).await?;
    if json {
        out.json(&cancelled)?;
    } else {
        out.note(format_args!(
            "cancelled {}; {} ended by it",
            cancelled.job_id,
            match cancelled.cancelled.len() {
                1 => "1 task was".to_owned(),
                several => format!("{} were", count(several as u64, "task")),
            }
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn resume(
    client: &Client,
    job: &str,
    request: &api::ResumeRequest,
    json: bool,
    out: &mut Output,
) -> Ended {
    let resumed: api::Resumed =
        client.json(Call::post(format!("/v1/jobs/{}/resume", encode(job)), request)).await?;
    if json {
        out.json(&resumed)?;
    } else {
        out.note(format_args!("running again: {}", resumed.resumed.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Goes on with a job with what its file says now.
async fn resume_changed(
    client: &Client,
    job: &str,
    read: &ReadJob,
    request: &api::ResumeRequest,
    json: bool,
    out: &mut Output,
) -> Ended {
    let view: api::JobView = client.get(format!("/v1/jobs/{}", encode(job))).await?;
    let updated = update::update_and_resume(client, job, view.status, &read.document, request).await?;
    let update::Updated { tasks, resumed } = updated;
    if json {
        out.json(&json!({
            "jobId": job, "resumed": resumed, "changed": tasks.changed, "added": tasks.added, "kept": tasks.kept
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    update::print_changes(&tasks, out);
    match &resumed[..] {
        [] => out.note("no task runs again: none has failed"),
        again => out.note(format_args!("running again: {}", again.join(", "))),
    }
    Ok(ExitCode::SUCCESS)
}

async fn add_tasks(
    client: &Client,
    job: &str,
    file: &std::path::Path,
    json: bool,
    out: &mut Output,
) -> Ended {
    let input = InputFile::read(file)?;
    let document = read_added_tasks(&input.name, input.form(), &input.bytes)?;
    let call = Call::post(format!("/v1/jobs/{}/tasks", encode(job)), &document.to_value());
    let added: Result<api::TasksAdded, _> = client.json(call).await;
    let added = added.map_err(|error| at_places(&document, error))?;
    if json {
        out.json(&added)?;
    } else {
        out.note(format_args!(
            "added {}; the job has {} now",
            added.new_tasks.join(", "),
            count(added.total_tasks_now.into(), "task")
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn set_budget(client: &Client, job: &str, limits: JobLimits, json: bool, out: &mut Output) -> Ended {
    let path = format!("/v1/jobs/{}/budget", encode(job));
    if limits.none {
        client.bytes(Call::new(Method::DELETE, path)).await?;
        out.note(format_args!("{job} has no budget any more"));
        return Ok(ExitCode::SUCCESS);
    }
    let request = api::JobBudgetRequest { usd: limits.usd, tokens: limits.tokens };
    let budget: api::BudgetView = client.json(Call::new(Method::PUT, path).with_json(&request)).await?;
    if json {
        out.json(&budget)?;
    } else {
        out.data(budget_line(&budget))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn retry(client: &Client, which: &Which, all: bool, limit: u32, json: bool, out: &mut Output) -> Ended {
    let filter = api::JobsFilter {
        all,
        status: which.status.map(Status::name),
        name: which.name.clone(),
        created_after: which.since.map(Moment::millis),
        created_before: which.before.map(Moment::millis),
        limit: Some(limit),
        ..api::JobsFilter::default()
    };
    let resumed: api::JobsResumed = client.json(Call::post("/v1/jobs/retry", &filter)).await?;
    if json {
        out.json(&resumed)?;
    } else {
        resumed.job_ids.iter().try_for_each(|job| out.data(job))?;
        let more = if resumed.more { "; others fit too: run the command again for them" } else { "" };
        out.note(format_args!("{} run again{more}", count(resumed.job_ids.len() as u64, "job")));
    }
    Ok(ExitCode::SUCCESS)
}
