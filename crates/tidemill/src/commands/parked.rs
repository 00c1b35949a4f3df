//! `tidemill parked`: executions that wait for somebody to decide, one or many.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use tidemill_api as api;

use super::moment::now;
use super::runtime::block_on;
use super::signals::StopSignals;
use super::workflow_filter::WorkflowFilter;
use super::{CommandError, Ended, Flags, id};
use crate::client::{Call, Client, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::{ago, count, grouped, moment};
use crate::output::Output;

/// How often a bulk is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How many bulks are listed.
const BULKS_SHOWN: usize = 1_000;
/// How many codes a preview names.
const CODES_SHOWN: usize = 10;
/// How many of the named executions that cannot be touched are listed.
const LEFT_OUT_SHOWN: usize = 20;

/// List, resume and fail executions that are parked
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Parked {
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
    /// List parked executions, oldest first
    List {
        #[command(flatten)]
        filter: WorkflowFilter,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show an execution with its errors
    Show {
        /// The execution; JOB/TASK for a task of a job
        execution: String,
    },
    /// Let parked executions go on: some, or all that fit
    Resume {
        #[command(flatten)]
        chosen: Chosen,
        /// What they go on with [default: {"resolved":true}]
        #[arg(long, value_name = "JSON")]
        output: Option<String>,
        /// Run tasks again instead of taking the output for theirs
        #[arg(long, conflicts_with = "output")]
        rerun: bool,
        #[command(flatten)]
        how: How,
    },
    /// End parked executions: some, or all that fit
    Fail {
        #[command(flatten)]
        chosen: Chosen,
        /// The name of the error
        #[arg(long, default_value = "ResolutionFailed")]
        error: String,
        /// What it is about
        #[arg(long, default_value = "Unable to resolve errors")]
        cause: String,
        #[command(flatten)]
        how: How,
    },
    /// List what is and was done with many
    Bulks,
    /// Follow a bulk until it ends
    Follow { bulk: String },
    /// Stop a bulk; what it has done stays done
    Cancel { bulk: String },
}

/// Which executions.
#[derive(Args)]
struct Chosen {
    /// The executions; JOB/TASK for a task of a job
    #[arg(value_name = "EXECUTION")]
    executions: Vec<String>,
    #[command(flatten)]
    filter: WorkflowFilter,
    /// Only those without an open error
    #[arg(long)]
    settled: bool,
    /// All that are parked
    #[arg(long)]
    all: bool,
}

#[derive(Args)]
struct How {
    /// Why
    #[arg(long)]
    reason: Option<String>,
    /// How many a second at most, if there are many
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Do not ask, if there are many
    #[arg(long)]
    yes: bool,
}

impl Chosen {
    /// With the whole ids of those that are named.
    async fn whole(mut self, client: &Client) -> Result<Self, CommandError> {
        for execution in &mut self.executions {
            *execution = id::execution(client, execution).await?;
        }
        Ok(self)
    }

    /// The one that is meant, if it is named and nothing else is said.
    fn single(&self) -> Option<&str> {
        let conditions = !self.filter.is_empty() || self.settled || self.all;
        match self.executions.as_slice() {
            [one] if !conditions => Some(one),
            _ => None,
        }
    }

    fn body(&self) -> Result<Value, CommandError> {
        let mut body = self.filter.body();
        if !self.executions.is_empty() {
            body.insert("executionIds".to_owned(), json!(self.executions));
        }
        if self.settled {
            body.insert("settled".to_owned(), json!(true));
        }
        if self.all && !body.is_empty() {
            return Err(CommandError::Unusable("--all means all: name no conditions beside it".into()));
        }
        if !self.all && body.is_empty() {
            return Err(CommandError::Unusable(
                "name executions, conditions such as --code, or --all".into(),
            ));
        }
        if self.all {
            body.insert("all".to_owned(), json!(true));
        }
        Ok(Value::Object(body))
    }
}

impl Parked {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            match self.what {
                What::List { filter, limit } => list(&client, &filter, limit, json, out).await,
                What::Show { execution } => {
                    let execution = id::execution(&client, &execution).await?;
                    let found: api::WorkflowExecutionView = client.get(path_of(&execution)).await?;
                    if json {
                        out.json(&found)?;
                    } else {
                        print_execution(&found, out)?;
                    }
                    Ok(ExitCode::SUCCESS)
                }
                What::Resume { chosen, output, rerun, how } => {
                    let chosen = chosen.whole(&client).await?;
                    let mut body = Map::new();
                    if let Some(output) = output {
                        let output: Value = serde_json::from_str(&output).map_err(|error| {
                            CommandError::Unusable(format!("--output is not JSON: {error}"))
                        })?;
                        body.insert("output".to_owned(), output);
                    }
                    if rerun {
                        body.insert("mode".to_owned(), json!("rerun"));
                    }
                    carry_out(&client, &RESUME, &chosen, body, how, json, out).await
                }
                What::Fail { chosen, error, cause, how } => {
                    let chosen = chosen.whole(&client).await?;
                    let body = Map::from_iter([
                        ("error".to_owned(), json!(error)),
                        ("cause".to_owned(), json!(cause)),
                    ]);
                    carry_out(&client, &FAIL, &chosen, body, how, json, out).await
                }
                What::Bulks => bulks(&client, json, out).await,
                What::Follow { bulk } => {
                    let bulk: api::BulkView = client.get(bulk_path(&bulk)).await?;
                    follow(&client, bulk, json, out).await
                }
                What::Cancel { bulk } => {
                    let call = Call::post(format!("{}/cancel", bulk_path(&bulk)), &json!({}));
                    let bulk: api::BulkView = client.json(call).await?;
                    ended(&bulk, json, out)
                }
            }
        })
    }
}

/// What is done with executions, in words.
struct Deed {
    name: &'static str,
    /// While it is done.
    doing: &'static str,
    done: &'static str,
}

const RESUME: Deed = Deed { name: "resume", doing: "resuming", done: "resumed" };
const FAIL: Deed = Deed { name: "fail", doing: "failing", done: "failed" };

fn path_of(execution: &str) -> String {
    format!("/v1/workflow/executions/{}", encode(execution))
}

fn bulk_path(bulk: &str) -> String {
    format!("/v1/workflow/bulk/{}", encode(bulk))
}

async fn list(client: &Client, filter: &WorkflowFilter, limit: usize, json: bool, out: &mut Output) -> Ended {
    let query = filter.query().set("parked", true);
    let items: Vec<api::WorkflowExecutionView> =
        client.list("/v1/workflow/executions", &query, limit).await?;
    if json {
        out.json(&json!({ "items": items }))?;
    } else {
        out.table(&table(&items))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(items: &[api::WorkflowExecutionView]) -> Table {
    let mut table = Table::new(&["EXECUTION", "PARKED", "GIVEN UP", "COUNTY", "PHASE", "STEP", "CODES"]);
    let now = now();
    for item in items {
        let when = |at: Option<tidemill_model::Timestamp>| at.map(|at| ago(at.millis(), now));
        table.row(vec![
            item.execution_id.to_string(),
            when(item.parked_at).unwrap_or_default(),
            when(item.deadline).unwrap_or_default(),
            item.named_county().unwrap_or_default().to_owned(),
            item.phase.clone(),
            item.step.clone(),
            codes_of(item),
        ]);
    }
    table.without_unused(&["COUNTY"])
}

fn codes_of(item: &api::WorkflowExecutionView) -> String {
    let mut codes: Vec<_> = item.codes.iter().take(CODES_SHOWN).map(ToString::to_string).collect();
    if item.codes.len() > CODES_SHOWN {
        codes.push(format!("and {} more", item.codes.len() - CODES_SHOWN));
    }
    codes.join(" ")
}

fn print_execution(found: &api::WorkflowExecutionView, out: &mut Output) -> std::io::Result<()> {
    let now = now();
    out.data(format_args!("{}  {}", found.execution_id, found.status.as_str()))?;
    let place = [found.named_county(), Some(found.phase.as_str()), Some(found.step.as_str())];
    out.data(place.into_iter().flatten().collect::<Vec<_>>().join(", "))?;
    if let (Some(since), Some(deadline)) = (found.parked_at, found.deadline) {
        let (since, deadline) = (ago(since.millis(), now), moment(deadline.millis()));
        out.data(format_args!("parked {since}; it is given up at {deadline}"))?;
    }
    if let Some(outcome) = &found.outcome {
        let by = outcome.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = outcome.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        out.data(format_args!("{} {}{by}{reason}", outcome.kind.as_str(), ago(outcome.at.millis(), now)))?;
    }
    out.data("")?;
    let mut table = Table::new(&["CODE", "STATE", "COUNT", "LAST"]);
    for error in &found.errors {
        table.row(vec![
            error.code.to_string(),
            error.state.as_str().to_owned(),
            grouped(error.count),
            ago(error.last_seen.millis(), now),
        ]);
    }
    out.table(&table)
}

/// One at once; many after a look and a question.
async fn carry_out(
    client: &Client,
    deed: &Deed,
    chosen: &Chosen,
    mut body: Map<String, Value>,
    how: How,
    json: bool,
    out: &mut Output,
) -> Ended {
    if let Some(reason) = &how.reason {
        body.insert("reason".to_owned(), json!(reason));
    }
    if let Some(execution) = chosen.single() {
        let call = Call::post(format!("{}/{}", path_of(execution), deed.name), &body);
        let found: api::WorkflowExecutionView = client.json(call).await?;
        if json {
            out.json(&found)?;
        } else {
            out.note(format_args!("{} {execution}", deed.done));
        }
        return Ok(ExitCode::SUCCESS);
    }
    body.insert("action".to_owned(), json!(deed.name));
    body.insert("filter".to_owned(), chosen.body()?);
    if let Some(rate) = how.rate {
        body.insert("ratePerSecond".to_owned(), json!(rate));
    }
    let mut dry = body.clone();
    dry.insert("dryRun".to_owned(), json!(true));
    let preview: api::BulkPreviewView = client.json(Call::post("/v1/workflow/bulk", &dry)).await?;
    if !how.yes && json {
        out.json(&preview)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !json {
        print_preview(&preview, out)?;
    }
    if preview.total == 0 && !chosen.executions.is_empty() {
        let named = count(chosen.executions.len() as u64, "execution");
        return Err(CommandError::Failed(format!("nothing was changed: of {named} named none is parked")));
    }
    if preview.total == 0 && !json {
        out.note("nothing is parked that fits");
        return Ok(ExitCode::SUCCESS);
    }
    let left_out = preview.left_out.len();
    if left_out > 0 {
        let named: Vec<_> = preview.left_out.iter().take(LEFT_OUT_SHOWN).map(ToString::to_string).collect();
        let more = left_out.saturating_sub(LEFT_OUT_SHOWN);
        let more = if more > 0 { format!(" and {} more", grouped(more as u64)) } else { String::new() };
        out.note(format_args!("not parked, or not fitting: {}{more}", named.join(" ")));
    }
    if !how.yes && !agreed(deed, preview.total, out)? {
        return Ok(ExitCode::SUCCESS);
    }
    let bulk: api::BulkView = client.json(Call::post("/v1/workflow/bulk", &body)).await?;
    let ended = follow(client, bulk, json, out).await?;
    // What was asked for by name was not done with all of them.
    Ok(if left_out > 0 { ExitCode::FAILURE } else { ended })
}

fn print_preview(preview: &api::BulkPreviewView, out: &mut Output) -> std::io::Result<()> {
    if preview.total == 0 {
        return Ok(());
    }
    out.table(&table(&preview.first))?;
    let more = preview.total - u64::try_from(preview.first.len()).unwrap_or(0);
    if more > 0 {
        out.data(format_args!("... and {} more", grouped(more)))?;
    }
    let codes = preview.by_code.iter().take(CODES_SHOWN);
    let codes: Vec<_> = codes.map(|found| format!("{} {}", found.code, grouped(found.executions))).collect();
    out.note(format_args!("by code: {}", codes.join(", ")));
    Ok(())
}

/// Asks a person. Without a terminal the user has to say it beforehand.
fn agreed(deed: &Deed, total: u64, out: &mut Output) -> Result<bool, CommandError> {
    let what = format!("{} {}", deed.name, count(total, "execution"));
    if !std::io::stdin().is_terminal() {
        let problem = format!("nobody can be asked, so nothing was changed: add --yes to {what}");
        return Err(CommandError::Unusable(problem));
    }
    let mut words = std::io::stderr();
    let _ = write!(words, "{what}? [y/N] ").and_then(|()| words.flush());
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !agreed {
        out.note("nothing was changed");
    }
    Ok(agreed)
}

/// Watches a bulk until it ends. It needs no watching: it goes on when this command ends.
async fn follow(client: &Client, mut bulk: api::BulkView, json: bool, out: &mut Output) -> Ended {
    let mut signals = StopSignals::listen()?;
    // Without a server this process carries it out.
    let _keeper = client.start_triage();
    let deed = match bulk.action {
        api::BulkActionName::Resume => &RESUME,
        api::BulkActionName::Fail => &FAIL,
    };
    let kept = format!("bulk {} is kept; follow it with `tidemill parked follow {}`", bulk.id, bulk.id);
    while bulk.state == api::BulkStateName::Running {
        if !json {
            out.bar(deed.doing, bulk.done + bulk.failed, bulk.total);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = signals.next() => {
                let who = if client.is_local() { "the next server goes on with it" } else { "the server goes on" };
                out.note(format_args!("{who}: {kept}"));
                return Err(CommandError::Interrupted);
            }
        }
        bulk = match client.get(bulk_path(&bulk.id)).await {
            Ok(bulk) => bulk,
            Err(error) => {
                out.note(&kept);
                return Err(error.into());
            }
        };
    }
    ended(&bulk, json, out)
}

fn ended(bulk: &api::BulkView, json: bool, out: &mut Output) -> Ended {
    if json {
        out.json(bulk)?;
    } else {
        let deed = if bulk.action == api::BulkActionName::Resume { RESUME.done } else { FAIL.done };
        let mut words = vec![format!("{} {deed}", grouped(bulk.done))];
        if bulk.failed > 0 {
            words.push(format!("{} could not be", grouped(bulk.failed)));
        }
        if bulk.skipped > 0 {
            words.push(format!("{} left alone because of open errors", grouped(bulk.skipped)));
        }
        if bulk.state == api::BulkStateName::Cancelled {
            words.push("cancelled".to_owned());
        }
        out.note(words.join(", "));
    }
    Ok(if bulk.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn bulks(client: &Client, json: bool, out: &mut Output) -> Ended {
    let items: Vec<api::BulkView> = client.list("/v1/workflow/bulk", &Query::new(), BULKS_SHOWN).await?;
    if json {
        out.json(&json!({ "items": items }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        Table::new(&["ID", "ACTION", "STATE", "DONE", "FAILED", "SKIPPED", "OF", "BEGUN", "WHICH"]);
    let now = now();
    for item in items {
        let which = serde_json::to_string(&item.filter).unwrap_or_default();
        table.row(vec![
            item.id,
            item.action.as_str().to_owned(),
            item.state.as_str().to_owned(),
            grouped(item.done),
            grouped(item.failed),
            grouped(item.skipped),
            grouped(item.total),
            ago(item.created_at.millis(), now),
            which,
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}
