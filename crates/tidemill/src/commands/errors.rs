//! `tidemill errors`: what went wrong in workflows and tasks, by cause.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidemill_api as api;
use tidemill_model::workflow::validation_code;

use super::moment::now;
use super::runtime::block_on;
use super::workflow_filter::WorkflowFilter;
use super::{CommandError, Ended, Flags, id};
use crate::client::{Call, Client, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::{ago, count, grouped, moment};
use crate::output::Output;

/// See the causes of errors, mark them, look up codes
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Errors {
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
    /// The codes with open errors that occurred most often
    Top {
        #[command(flatten)]
        filter: WorkflowFilter,
        /// Only errors of workflows, or of tasks
        #[arg(long)]
        kind: Option<Kind>,
        /// How many
        #[arg(short = 'n', long, default_value_t = 10)]
        limit: usize,
    },
    /// List codes
    List {
        #[command(flatten)]
        filter: WorkflowFilter,
        /// Only codes with errors in this state
        #[arg(long)]
        state: Option<State>,
        /// Only errors of workflows, or of tasks
        #[arg(long)]
        kind: Option<Kind>,
        /// Only codes and titles with this text in them
        #[arg(long = "text", value_name = "TEXT")]
        text: Option<String>,
        #[arg(long, default_value = "count")]
        sort: Sort,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a code: its trend, where it was seen, samples, and the executions that have it
    Show {
        code: String,
        /// Only this execution, or JOB/TASK, with its newest occurrences
        #[arg(long, value_name = "ID")]
        execution: Option<String>,
        /// Only executions where it is in this state
        #[arg(long)]
        state: Option<State>,
        /// How many executions at most
        #[arg(long, default_value_t = 20)]
        limit: usize,
    },
    /// Say that errors are mended: of a code, of an execution, or of a code in an execution
    Resolve(Marked),
    /// Say that errors cannot be mended, so that nobody tries any more
    Unrecoverable(Marked),
    /// Open errors again
    Reopen(Marked),
    /// Hide a code for some time, or for a number of occurrences
    Ignore {
        code: String,
        /// How long, as in 2h or 7d; for ever when neither this nor --count is given
        #[arg(long = "for", value_name = "TIME")]
        time: Option<String>,
        /// Until this many more occurrences
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// Why
        #[arg(long)]
        reason: Option<String>,
    },
    /// List codes that are worth repairing: open and not unrecoverable
    Candidates {
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// List the codes that are known, or look one up
    Catalogue { code: Option<String> },
    /// Make the code of a validation error: 30 and the SHA-256 of these three with # between them
    Hash {
        #[arg(long)]
        message: String,
        #[arg(long)]
        path: String,
        /// The place that the workflow event names
        #[arg(long, value_name = "PLACE")]
        county: String,
    },
}

/// Which errors, and why.
#[derive(Args)]
struct Marked {
    #[arg(required_unless_present = "execution")]
    code: Option<String>,
    /// Only in this execution, or JOB/TASK; all its errors when no code is given
    #[arg(long, value_name = "ID")]
    execution: Option<String>,
    /// Why
    #[arg(long)]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Open,
    Resolved,
    Unrecoverable,
    Ignored,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Resolved => "resolved",
            Self::Unrecoverable => "unrecoverable",
            Self::Ignored => "ignored",
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Workflow,
    Task,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Sort {
    /// Most occurrences first
    Count,
    /// Last seen first
    Recent,
    /// Most executions first
    Executions,
}

impl Sort {
    fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Recent => "recent",
            Self::Executions => "executions",
        }
    }
}

impl Errors {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        let what = match self.what {
            // These need no server and no data.
            What::Hash { message, path, county } => {
                return hash(&message, &path, &county, json, out);
            }
            what => what,
        };
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            match what {
                What::Top { filter, kind, limit } => {
                    let query = filter.query().maybe("kind", kind.map(Kind::name)).set("state", "open");
                    groups(&client, "/v1/workflow/errors", &query, limit, json, out).await
                }
                What::List { filter, state, kind, text, sort, limit } => {
                    let query = filter
                        .query()
                        .maybe("state", state.map(State::name))
                        .maybe("kind", kind.map(Kind::name))
                        .maybe("q", text)
                        .set("sort", sort.name());
                    groups(&client, "/v1/workflow/errors", &query, limit, json, out).await
                }
                What::Candidates { limit } => {
                    groups(&client, "/v1/workflow/candidates", &Query::new(), limit, json, out).await
                }
                What::Show { code, execution: Some(execution), .. } => {
                    let execution = id::execution(&client, &execution).await?;
                    show_in(&client, &code, &execution, json, out).await
                }
                What::Show { code, execution: None, state, limit } => {
                    let query = Query::new().maybe("state", state.map(State::name));
                    show(&client, &code, &query, limit, json, out).await
                }
                What::Resolve(marked) => mark(&client, "resolve", marked, json, out).await,
                What::Unrecoverable(marked) => mark(&client, "fail", marked, json, out).await,
                What::Reopen(marked) => mark(&client, "reopen", marked, json, out).await,
                What::Ignore { code, time, count, reason } => {
                    let until = time.as_deref().map(after).transpose()?;
                    let body = json!({
                        "errorCode": code,
                        "until": until,
                        "occurrences": count,
                        "reason": reason,
                    });
                    send_mark(&client, "ignore", &body, json, out).await
                }
                What::Catalogue { code: Some(code) } => {
                    let known: Value =
                        client.get(format!("/v1/workflow/catalogue/{}", encode(&code))).await?;
                    out.json_pretty(&known)?;
                    Ok(ExitCode::SUCCESS)
                }
                What::Catalogue { code: None } => catalogue(&client, json, out).await,
                What::Hash { .. } => unreachable!("answered before"),
            }
        })
    }
}

/// The moment this span from now.
fn after(text: &str) -> Result<u64, CommandError> {
    let span = tidemill_model::values::span::parse_text(text);
    let span =
        span.map_err(|_| CommandError::Unusable("--for must be a time such as 30m, 2h or 7d".into()))?;
    Ok(now().saturating_add(span))
}

fn hash(message: &str, path: &str, county: &str, json: bool, out: &mut Output) -> Ended {
    let code = validation_code(message, path, county);
    if json {
        out.json(&json!({ "code": code }))?;
    } else {
        out.data(code)?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn groups(
    client: &Client,
    path: &str,
    query: &Query,
    limit: usize,
    json: bool,
    out: &mut Output,
) -> Ended {
    let groups: Vec<api::ErrorGroupView> = client.list(path, query, limit).await?;
    if json {
        out.json(&json!({ "items": groups }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&[
        "CODE",
        "COUNT",
        "EXECUTIONS",
        "OPEN",
        "RESOLVED",
        "UNRECOVERABLE",
        "IGNORED",
        "LAST",
        "WHAT",
    ]);
    let now = now();
    for group in groups {
        let counts = group.counts;
        let numbers = [
            counts.occurrences,
            counts.executions,
            counts.open,
            counts.resolved,
            counts.unrecoverable,
            counts.ignored,
        ];
        let mut row = vec![group.code.to_string()];
        row.extend(numbers.map(grouped));
        row.push(ago(group.last_seen.millis(), now));
        row.push(what_of(&group));
        table.row(row);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// What a code means, in a few words.
fn what_of(group: &api::ErrorGroupView) -> String {
    let known = group.category.as_ref().or(group.description.as_ref());
    group.title.as_ref().or(known).cloned().unwrap_or_default()
}

async fn show(
    client: &Client,
    code: &str,
    query: &Query,
    limit: usize,
    json: bool,
    out: &mut Output,
) -> Ended {
    let path = format!("/v1/workflow/errors/{}", encode(code));
    let first = query.clone().set("limit", limit.clamp(1, 200));
    let mut detail: api::ErrorGroupDetailView = client.get(first.on(&path)).await?;
    // The rest of the executions, if more are wanted than one page has.
    while let Some(cursor) = detail.errors.next_cursor.take().filter(|_| detail.errors.items.len() < limit) {
        let left = (limit - detail.errors.items.len()).min(200);
        let next = query.clone().set("limit", left).set("cursor", cursor);
        let page: api::ErrorGroupDetailView = client.get(next.on(&path)).await?;
        detail.errors.items.extend(page.errors.items);
        detail.errors.next_cursor = page.errors.next_cursor;
    }
    if json {
        out.json(&detail)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_group(&detail, out)?;
    Ok(ExitCode::SUCCESS)
}

fn print_group(detail: &api::ErrorGroupDetailView, out: &mut Output) -> std::io::Result<()> {
    let (group, now) = (&detail.group, now());
    let what = [group.phase.as_ref(), group.category.as_ref(), group.description.as_ref()];
    let what: Vec<_> = what.into_iter().flatten().map(String::as_str).collect();
    out.data(format_args!("{}  {}", group.code, what.join("; ")))?;
    if let Some(title) = &group.title {
        out.data(title)?;
    }
    let counts = group.counts;
    out.data(format_args!(
        "{} in {}: {} open, {} resolved, {} unrecoverable, {} ignored",
        count(counts.occurrences, "occurrence"),
        count(counts.executions, "execution"),
        counts.open,
        counts.resolved,
        counts.unrecoverable,
        counts.ignored,
    ))?;
    out.data(format_args!(
        "first {}, last {} ({})",
        moment(group.first_seen.millis()),
        moment(group.last_seen.millis()),
        ago(group.last_seen.millis(), now),
    ))?;
    for mark in [&group.settled, &group.unrecoverable_since, &group.ignored_since].into_iter().flatten() {
        let by = mark.by.as_deref().unwrap_or("somebody");
        let reason = mark.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        out.data(format_args!("{} {} by {by}{reason}", mark.state.as_str(), ago(mark.since.millis(), now)))?;
    }
    if !detail.trend.is_empty() {
        out.data(format_args!("\ntrend  {}", trend(&detail.trend)))?;
    }
    out.data("")?;
    let mut places = Table::new(&["COUNTY", "GROUP", "PHASE", "STEP", "COUNT", "OPEN"]);
    for place in &detail.places {
        places.row(vec![
            place.named_county().unwrap_or_default().to_owned(),
            place.data_group_label.clone().unwrap_or_default(),
            place.phase.clone(),
            place.step.clone(),
            grouped(place.counts.occurrences),
            grouped(place.counts.open),
        ]);
    }
    out.table(&places.without_unused(&["COUNTY", "GROUP"]))?;
    out.data("")?;
    let mut samples = Table::new(&["SAMPLE", "EXECUTION", "DETAILS"]);
    for sample in &detail.samples {
        let details = sample.details.as_ref().map(|details| details.as_str().to_owned());
        samples.row(vec![
            ago(sample.at.millis(), now),
            sample.execution_id.to_string(),
            details.unwrap_or_default(),
        ]);
    }
    out.table(&samples)?;
    out.data("")?;
    out.table(&errors_table(&detail.errors.items))?;
    if detail.errors.next_cursor.is_some() {
        out.note("there are more executions: --limit shows them");
    }
    Ok(())
}

fn errors_table(errors: &[api::ErrorView]) -> Table {
    let mut table = Table::new(&["EXECUTION", "CODE", "STATE", "COUNT", "LAST", "BY", "REASON"]);
    let now = now();
    for error in errors {
        let stale = if error.stale { " (stale)" } else { "" };
        table.row(vec![
            error.execution_id.to_string(),
            error.code.to_string(),
            format!("{}{stale}", error.state.as_str()),
            grouped(error.count),
            ago(error.last_seen.millis(), now),
            error.by.clone().unwrap_or_default(),
            error.reason.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// Occurrences per hour, from the first that had any to the last, as a line of bars.
fn trend(hours: &[api::HourView]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const HOUR_MILLIS: u64 = 3_600_000;
    let (Some(first), Some(last)) = (hours.first(), hours.last()) else { return String::new() };
    let most = hours.iter().map(|hour| hour.occurrences).max().unwrap_or(0).max(1);
    let span = (last.at.millis() - first.at.millis()) / HOUR_MILLIS;
    let mut bars = vec![' '; usize::try_from(span).unwrap_or(0).min(47) + 1];
    for hour in hours {
        let at = usize::try_from((hour.at.millis() - first.at.millis()) / HOUR_MILLIS).unwrap_or(0);
        let height = usize::try_from(hour.occurrences.saturating_sub(1) * 8 / most).unwrap_or(0);
        if let Some(bar) = bars.get_mut(at) {
            *bar = BARS[height.min(7)];
        }
    }
    format!("{}  up to {} an hour", bars.into_iter().collect::<String>(), grouped(most))
}

async fn show_in(client: &Client, code: &str, execution: &str, json: bool, out: &mut Output) -> Ended {
    let query = Query::new().set("code", code).set("executionId", execution);
    let found: Vec<api::ErrorView> = client.list("/v1/workflow/occurrences", &query, 1).await?;
    let Some(error) = found.first() else {
        return Err(CommandError::Failed(format!("{execution} has no error {code}")));
    };
    if json {
        out.json(error)?;
        return Ok(ExitCode::SUCCESS);
    }
    out.table(&errors_table(&found))?;
    out.data("")?;
    let mut table = Table::new(&["AT", "EVENT", "DETAILS"]);
    for seen in &error.occurrences {
        let details = seen.details.as_ref().map(|details| details.as_str().to_owned());
        table.row(vec![moment(seen.at.millis()), seen.event_id.to_string(), details.unwrap_or_default()]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

async fn mark(client: &Client, deed: &str, marked: Marked, json: bool, out: &mut Output) -> Ended {
    let Marked { code, execution, reason } = marked;
    let execution = match execution {
        Some(execution) => Some(id::execution(client, &execution).await?),
        None => None,
    };
    let body = json!({ "executionId": execution, "errorCode": code, "reason": reason });
    send_mark(client, deed, &body, json, out).await
}

async fn send_mark(client: &Client, deed: &str, body: &Value, json: bool, out: &mut Output) -> Ended {
    let marked: api::MarkedView =
        client.json(Call::post(format!("/v1/workflow/errors/{deed}"), body)).await?;
    if json {
        out.json(&marked)?;
    } else {
        out.note(format_args!("{} changed", count(marked.changed, "error")));
    }
    Ok(ExitCode::SUCCESS)
}

async fn catalogue(client: &Client, json: bool, out: &mut Output) -> Ended {
    let entries: Vec<Value> = client.list("/v1/workflow/catalogue", &Query::new(), usize::MAX).await?;
    if json {
        out.json(&json!({ "items": entries }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["CODE", "PHASE", "CATEGORY", "MEANING"]);
    for entry in &entries {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        table.row(vec![text("form"), text("phase"), text("category"), text("description")]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use tidemill_model::Timestamp;

    use super::*;

    #[test]
    fn a_trend_has_a_bar_for_each_hour() {
        let hour = |at: u64, occurrences| api::HourView {
            at: Timestamp::clamped(1_700_000_000_000 + at * 3_600_000),
            occurrences,
        };
        assert_eq!(trend(&[hour(0, 8), hour(1, 1), hour(3, 4)]), "█▁ ▄  up to 8 an hour");
        assert_eq!(trend(&[hour(0, 1)]), "▁  up to 1 an hour");
        assert_eq!(trend(&[]), "");
    }
}
