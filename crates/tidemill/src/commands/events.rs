//! `tidemill events`: the log, asked, followed, added to.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidemill_api as api;

use super::input_file::{InputFile, at_places};
use super::moment::Moment;
use super::runtime::block_on;
use super::{CommandError, Ended, Flags, id};
use crate::client::{Call, Client, Item, Items, Query, Reach, ReachArguments, SseReader};
use crate::config::Resolved;
use crate::display::humanize::moment;
use crate::display::{Last, Table};
use crate::output::Output;

/// Query, follow and publish events
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Events {
    #[command(flatten)]
    reach: ReachArguments,
    /// Print JSON: an object with the items of a query, a line for each event that is followed
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Query events by entity, application, type and time
    Query {
        /// The entity as TYPE/id, such as TASK/job-1_fetch
        #[arg(long)]
        entity: Option<String>,
        /// The application
        #[arg(long)]
        app: Option<String>,
        /// The type, such as `Task Completed`
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// Since: epoch milliseconds, or how long ago as in 15m, 2h, 7d
        #[arg(long, value_name = "WHEN")]
        since: Option<Moment>,
        /// Before, likewise
        #[arg(long, value_name = "WHEN")]
        before: Option<Moment>,
        #[arg(long, default_value = "asc")]
        order: Direction,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Follow events as they are committed
    Tail {
        /// Only those of this job and its tasks
        #[arg(long)]
        job: Option<String>,
        /// Only those of this task
        #[arg(long)]
        task: Option<String>,
        /// Only those of this type
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// Begin after this number of the log; 0 is the beginning
        #[arg(long)]
        after: Option<u64>,
        /// Stop after this many events
        #[arg(long)]
        count: Option<usize>,
    },
    /// Publish one event, or all of a file
    Publish {
        /// The type, such as `user.created`
        #[arg(long = "type", value_name = "TYPE", required_unless_present = "file")]
        event_type: Option<String>,
        /// The entity as TYPE/id; the application itself when left out
        #[arg(long)]
        entity: Option<String>,
        /// What there is to say, as a JSON object
        #[arg(long, value_name = "JSON")]
        properties: Option<String>,
        /// A file, YAML or JSON, with one event or `events:`, or with workflow events; `-` for standard input
        #[arg(long, conflicts_with_all = ["event_type", "entity", "properties"])]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Direction {
    /// Oldest first
    Asc,
    /// Newest first
    Desc,
}

impl Events {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        let reach = if matches!(self.what, What::Publish { .. }) { Reach::Making } else { Reach::Existing };
        block_on(async {
            let client = reach.client(config).await?;
            match self.what {
                What::Query { entity, app, event_type, since, before, order, limit } => {
                    let order = match order {
                        Direction::Asc => "asc",
                        Direction::Desc => "desc",
                    };
                    let query = Query::new()
                        .maybe("entity", entity)
                        .maybe("app", app)
                        .maybe("type", event_type)
                        .maybe("from", since)
                        .maybe("to", before)
                        .set("order", order);
                    let events: Vec<Item> = client.list("/v1/events", &query, limit).await?;
                    show(&events, json, out)
                }
                What::Tail { job, task, event_type, after, count } => {
                    let job = match job {
                        Some(job) => Some(id::job(&client, &job).await?),
                        None => None,
                    };
                    let task = match task {
                        Some(task) => Some(id::task(&client, &task).await?),
                        None => None,
                    };
                    let query = Query::new()
                        .maybe("job", job)
                        .maybe("task", task)
                        .maybe("type", event_type)
                        .maybe("after", after);
                    tail(&client, &query, count, json, out).await
                }
                What::Publish { event_type, entity, properties, file } => match file {
                    Some(file) => publish_file(&client, &file, json, out).await,
                    None => publish(&client, event_type, entity, properties, json, out).await,
                },
            }
        })
    }
}

/// Events as a table, or as they are.
pub(super) fn show(events: &[Item], json: bool, out: &mut Output) -> Ended {
    if json {
        out.json(&Items { items: events })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["TIME", "TYPE", "ENTITY", "PROPERTIES"]).whole_but(Last::Cut);
    for event in events {
        table.row(cells(event));
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

fn cells(event: &Item) -> Vec<String> {
    let at = event.number("timestamp").map(moment).unwrap_or_default();
    let entity = format!("{}/{}", event.text("entityType"), event.text("entityId"));
    vec![at, event.text("eventType"), entity, event.shown("properties")]
}

async fn tail(client: &Client, query: &Query, count: Option<usize>, json: bool, out: &mut Output) -> Ended {
    if client.is_local() && count.is_none() {
        out.note("nobody else writes to this data directory now: what follows is what there is");
    }
    let answer = client.send(Call::get(query.on("/v1/stream")).endless()).await?;
    let mut stream = SseReader::new(answer.into_body());
    let mut left = count;
    while left != Some(0) {
        let Some(message) = stream.next().await? else {
            return Err(CommandError::Failed("the server ended the stream".to_owned()));
        };
        let event = match serde_json::from_str::<Item>(&message.data) {
            Ok(event) => event,
            Err(error) => {
                out.note(format!("left out an event that cannot be read: {error}"));
                continue;
            }
        };
        if event.text("eventType").is_empty() {
            continue;
        }
        if json {
            out.json(&event)?;
        } else {
            out.data(cells(&event).join("  "))?;
        }
        left = left.map(|left| left - 1);
    }
    Ok(ExitCode::SUCCESS)
}

async fn publish(
    client: &Client,
    event_type: Option<String>,
    entity: Option<String>,
    properties: Option<String>,
    json: bool,
    out: &mut Output,
) -> Ended {
    let wrong = |what: &str| CommandError::Unusable(what.to_owned());
    let mut body = json!({ "eventType": event_type });
    if let Some(entity) = entity {
        let (kind, id) = entity.split_once('/').ok_or_else(|| wrong("--entity must be TYPE/id"))?;
        (body["entityType"], body["entityId"]) = (kind.into(), id.into());
    }
    if let Some(properties) = properties {
        let parsed: Value = serde_json::from_str(&properties)
            .map_err(|error| CommandError::Unusable(format!("--properties is not JSON: {error}")))?;
        body["properties"] = parsed;
    }
    let accepted: api::EventsAccepted = client.json(Call::post("/v1/events", &body)).await?;
    accepted_as(&accepted, json, out)
}

async fn publish_file(client: &Client, file: &std::path::Path, json: bool, out: &mut Output) -> Ended {
    let document = InputFile::read(file)?.document()?;
    let value = document.to_value();
    if is_workflow(&value) {
        let accepted = client.json(Call::post("/v1/workflow-events", &value)).await;
        let accepted: api::WorkflowEventsAccepted = accepted.map_err(|error| at_places(&document, error))?;
        if json {
            out.json(&accepted)?;
        } else {
            accepted.events.iter().try_for_each(|event| out.data(event.event_id))?;
        }
        for event in &accepted.events {
            if let Some(token) = event.token.filter(|token| *token != api::TokenTakenName::Parked) {
                let (id, why) = (event.event_id, token.as_str());
                out.note(format_args!("{id}: its token parks nobody ({why}); the error is counted"));
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let accepted = client.json(Call::post("/v1/events", &value)).await;
    let accepted = accepted.map_err(|error| at_places(&document, error))?;
    accepted_as(&accepted, json, out)
}

/// Whether a file has workflow events as buses carry them: one, or a list of them.
fn is_workflow(value: &Value) -> bool {
    let one = value.as_array().map_or(Some(value), |list| list.first());
    one.is_some_and(|one| one.get("detail-type").or_else(|| one.get("detailType")).is_some())
}

fn accepted_as(accepted: &api::EventsAccepted, json: bool, out: &mut Output) -> Ended {
    if json {
        out.json(accepted)?;
    } else {
        accepted.events.iter().try_for_each(|event| out.data(&event.event_id))?;
    }
    Ok(ExitCode::SUCCESS)
}
