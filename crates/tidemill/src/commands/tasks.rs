//! `tidemill tasks`: look at tasks closely.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use http_body_util::BodyExt as _;
use serde_json::json;
use tidemill_api as api;
use tidemill_model::work::last_error::in_short;
use tidemill_worker::log_sink::plain;

use super::runtime::block_on;
use super::usage::used_line;
use super::{CommandError, Ended, Flags, id};
use crate::client::{Call, Client, Item, Items, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::humanize::{bytes, moment, span};
use crate::display::{Table, line};
use crate::output::Output;

/// The files of a task that are listed.
const FILES_MAX: usize = 10_000;
/// Where the values stand beside their names.
const FACT_COLUMNS: usize = 16;

/// List and look at tasks, read their history and logs, run them again
///
/// A task of a job is named by JOB/TASK, any other one by its request id. Of ids as many of the first digits do as tell
/// them apart.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Tasks {
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
    /// List tasks
    List {
        /// Only those in this state; `waiting` goes with --job
        #[arg(long)]
        state: Option<State>,
        /// Only the tasks of this job
        #[arg(long)]
        job: Option<String>,
        /// How many at most
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show a task
    Get { task: String },
    /// Show the events of a task, oldest first
    History {
        task: String,
        /// How many at most
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// Print what a task wrote
    Logs {
        task: String,
        /// Go on until the task is at rest
        #[arg(short, long)]
        follow: bool,
        /// Of this run instead of the last one
        #[arg(long)]
        run: Option<u32>,
        /// Of this attempt instead of the last one
        #[arg(long)]
        attempt: Option<u32>,
    },
    /// List the files that a task left, or print one of them
    Files {
        task: String,
        /// As the list gives it, such as r1-a1/artifacts/page.html; without r1-a1/
        /// it is the newest of that name
        path: Option<String>,
    },
    /// Run a failed task again
    Retry {
        task: String,
        /// With the newest version of its definition
        #[arg(long)]
        newest: bool,
    },
    /// Cancel a task that belongs to no job
    Cancel {
        task: String,
        /// Why; kept with the task
        #[arg(long)]
        reason: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Waiting,
    Pending,
    Processing,
    Completed,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

impl Tasks {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        if let What::List { state: Some(State::Waiting), job: None, .. } = &self.what {
            return Err(CommandError::Usage(
                "--state waiting goes with --job JOB: what waits for other tasks is listed by job".to_owned(),
            ));
        }
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            // Parts of ids become whole ones here.
            let id = async |given: String| id::task(&client, &given).await;
            match self.what {
                What::List { state, job, limit } => {
                    let job = match job {
                        Some(job) => Some(id::job(&client, &job).await?),
                        None => None,
                    };
                    list(&client, state, job.as_deref(), limit, json, out).await
                }
                What::Get { task } => get(&client, &id(task).await?, json, out).await,
                What::History { task, limit } => history(&client, &id(task).await?, limit, json, out).await,
                What::Logs { task, follow, run, attempt } => {
                    let query = Query::new()
                        .maybe("follow", follow.then_some(true))
                        .maybe("run", run)
                        .maybe("attempt", attempt);
                    logs(&client, &id(task).await?, &query, out).await
                }
                What::Files { task, path: None } => files(&client, &id(task).await?, json, out).await,
                What::Files { task, path: Some(path) } => file(&client, &id(task).await?, &path, out).await,
                What::Retry { task, newest } => retry(&client, &id(task).await?, newest, json, out).await,
                What::Cancel { task, reason } => cancel(&client, &id(task).await?, reason, json, out).await,
            }
        })
    }
}

async fn list(
    client: &Client,
    state: Option<State>,
    job: Option<&str>,
    limit: usize,
    json: bool,
    out: &mut Output,
) -> Ended {
    // Those of a job and those of a tenant come from different lists with much in common.
    let items: Vec<Item> = if let Some(job) = job {
        let query = Query::new().maybe("status", state.map(State::name));
        client.list(&format!("/v1/jobs/{}/tasks", encode(job)), &query, limit).await?
    } else {
        let query = Query::new().maybe("state", state.map(State::name));
        client.list("/v1/tasks", &query, limit).await?
    };
    if json {
        out.json(&Items { items: &items })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["TASK", "STATUS", "ATTEMPT", "NAME", "ERROR"]);
    for item in items {
        let is_parked = item.read("parked") == Some(true);
        let status = if is_parked {
            "parked".to_owned()
        } else {
            item.read("status").unwrap_or_else(|| "waiting".to_owned())
        };
        let last = item.read::<Item>("lastError").and_then(|last| last.read("message"));
        let error = last.or_else(|| item.read("error")).unwrap_or_else(|| item.text("errorCategory"));
        // What an earlier attempt said is no error of a task that completed.
        let error = if status == "completed" { String::new() } else { in_short(&error).into_owned() };
        table.row(vec![item.text("requestId"), status, item.shown("attempt"), item.text("name"), error]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

async fn get(client: &Client, task: &str, json: bool, out: &mut Output) -> Ended {
    let view: api::TaskView = client.get(format!("/v1/tasks/{}", encode(task))).await?;
    if json {
        out.json(&view)?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = |text: &str| line::indented(text, FACT_COLUMNS);
    let (why, end) = (view.why().map(lines), view.other_error().map(lines));
    let mut facts: Vec<(&str, String)> = vec![
        ("task", view.request_id),
        ("name", view.name),
        ("status", view.status.map_or("waiting", |status| status.as_str()).to_owned()),
        ("run, attempt", format!("{}, {}", view.run, view.attempt)),
    ];
    if let Some(lease) = view.lease {
        facts.push(("held by", format!("{} until {}", lease.worker_id, moment(lease.until))));
    }
    for (name, at) in [("started", view.started_at), ("finished", view.finished_at)] {
        facts.extend(at.map(|at| (name, moment(at))));
    }
    facts.extend(view.duration_ms.map(|millis| ("took", span(millis))));
    facts.extend(view.usage.map(|usage| ("used", used_line(&usage.into()))));
    facts.extend(
        view.definition.map(|pinned| ("definition", format!("{} version {}", pinned.name, pinned.version))),
    );
    if !view.depends_on.is_empty() {
        facts.push(("depends on", view.depends_on.join(", ")));
    }
    facts.push(("input", view.input.as_str().to_owned()));
    facts.extend(view.output.map(|output| ("output", output.as_str().to_owned())));
    let category = view.last_error.as_ref().map(|last| last.category).or(view.error_category);
    facts.extend(category.map(|category| ("error category", category.as_str().to_owned())));
    facts.extend(why.map(|why| ("error", why)));
    facts.extend(end.map(|end| ("ended with", end)));
    facts.extend(view.ran.map(super::ran::facts).unwrap_or_default());
    for (name, value) in facts {
        out.data(format_args!("{name:14}  {value}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn history(client: &Client, task: &str, limit: usize, json: bool, out: &mut Output) -> Ended {
    let path = format!("/v1/tasks/{}/events", encode(task));
    let events: Vec<Item> = client.list(&path, &Query::new(), limit).await?;
    super::events::show(&events, json, out)
}

async fn logs(client: &Client, task: &str, query: &Query, out: &mut Output) -> Ended {
    let call = Call::get(query.on(&format!("/v1/tasks/{}/logs", encode(task)))).endless();
    let mut body = client.send(call).await?.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CommandError::Failed(format!("the log broke off: {error}")))?;
        if let Ok(bytes) = frame.into_data() {
            out.raw(&bytes)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn files(client: &Client, task: &str, json: bool, out: &mut Output) -> Ended {
    let path = format!("/v1/tasks/{}/artifacts", encode(task));
    let files: Vec<api::Artifact> = client.list(&path, &Query::new(), FILES_MAX).await?;
    if json {
        out.json(&json!({ "items": files }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["FILE", "SIZE"]);
    for file in files {
        // What cannot be typed is told apart; `--json` has the name as it is.
        table.row(vec![plain(&file.path).into_owned(), bytes(file.size_bytes)]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

async fn file(client: &Client, task: &str, path: &str, out: &mut Output) -> Ended {
    let newest = match attempt_of(path) {
        Some(_) => None,
        None => newest(client, task, path).await?,
    };
    let path = newest.as_deref().unwrap_or(path);
    let path = path.split('/').map(encode).collect::<Vec<_>>().join("/");
    let call = Call::get(format!("/v1/tasks/{}/artifacts/{path}", encode(task)));
    out.raw(&client.bytes(call).await?)?;
    Ok(ExitCode::SUCCESS)
}

/// The path of the newest attempt that left a file under the name `path`, if any did.
async fn newest(client: &Client, task: &str, path: &str) -> Result<Option<String>, CommandError> {
    let list = format!("/v1/tasks/{}/artifacts", encode(task));
    let files: Vec<api::Artifact> = client.list(&list, &Query::new(), FILES_MAX).await?;
    let named = files.into_iter().filter_map(|file| match attempt_of(&file.path) {
        Some((attempt, name)) if name == path => Some((attempt, file.path.clone())),
        _ => None,
    });
    Ok(named.max().map(|(_, path)| path))
}

/// Run and attempt of a file, and its name below them: `r1-a2/logs/output.log`.
fn attempt_of(path: &str) -> Option<((u32, u32), &str)> {
    let (folder, name) = path.split_once('/')?;
    let (run, attempt) = folder.strip_prefix('r')?.split_once("-a")?;
    Some(((run.parse().ok()?, attempt.parse().ok()?), name))
}

async fn retry(client: &Client, task: &str, newest: bool, json: bool, out: &mut Output) -> Ended {
    let call = Call::post(format!("/v1/tasks/{}/retry", encode(task)), &api::RetryRequest { newest });
    let retried: api::RetriedTask = client.json(call).await?;
    if json {
        out.json(&retried)?;
    } else {
        out.note(format_args!("{} runs again", retried.request_id));
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(client: &Client, task: &str, reason: Option<String>, json: bool, out: &mut Output) -> Ended {
    let call = Call::post(format!("/v1/tasks/{}/cancel", encode(task)), &api::CancelRequest { reason });
    let cancelled: api::CancelledTask = client.json(call).await?;
    if json {
        out.json(&cancelled)?;
    } else if cancelled.cancelled {
        out.note(format_args!("cancelled {}", cancelled.request_id));
    } else {
        out.note(format_args!("{} had ended before", cancelled.request_id));
    }
    Ok(ExitCode::SUCCESS)
}
