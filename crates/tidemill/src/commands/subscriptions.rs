//! `tidemill subscriptions`: which events a script is to run for.

use std::path::PathBuf;
use std::process::ExitCode;

use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tidemill_matcher::subscription::SUBSCRIPTIONS_MAX;
use tidemill_matcher::{Subscription, SubscriptionDraft};

use super::input_file::InputFile;
use super::moment::now;
use super::runtime::block_on;
use super::{CommandError, Ended, Flags};
use crate::client::{Call, Client, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::ago;
use crate::output::Output;

/// List, add, enable, disable and delete subscriptions of scripts
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Subscriptions {
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
    /// List subscriptions
    List {
        /// Only those of this script
        #[arg(long, value_name = "ID")]
        script: Option<String>,
        /// Only those of this event type
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// Only those that are enabled (true) or are not (false)
        #[arg(long, value_name = "BOOL")]
        enabled: Option<bool>,
        /// How many at most
        #[arg(long, default_value_t = SUBSCRIPTIONS_MAX)]
        limit: usize,
    },
    /// Show a subscription with its rules
    Get { id: String },
    /// Subscribe a script to events
    Add(Add),
    /// Let a subscription see the events that come from now on
    Enable { id: String },
    /// Let a subscription see no more events
    Disable { id: String },
    /// Remove a subscription
    Delete { id: String },
}

#[derive(Args)]
struct Add {
    /// The script
    #[arg(long, value_name = "ID")]
    script: String,
    /// The type of events, as a whole: there are no wildcards
    #[arg(long = "type", value_name = "TYPE")]
    event_type: String,
    /// Rules as JSON, such as '{"role": "admin"}'; see docs/reference/filters.md
    #[arg(long, value_name = "JSON", conflicts_with = "filter_file")]
    filter: Option<String>,
    /// Rules from a YAML or JSON file
    #[arg(long, value_name = "FILE")]
    filter_file: Option<PathBuf>,
    /// Its id [default: one is minted]
    #[arg(long)]
    id: Option<String>,
    /// Make it, but let it see no events yet
    #[arg(long)]
    disabled: bool,
}

impl Subscriptions {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            match self.what {
                What::List { script, event_type, enabled, limit } => {
                    let query = Query::new()
                        .maybe("scriptId", script)
                        .maybe("eventType", event_type)
                        .maybe("enabled", enabled);
                    list(&client, &query, limit, json, out).await
                }
                What::Get { id } => {
                    let found: Subscription = client.get(path_of(&id)).await?;
                    out.json_pretty(&found)?;
                    Ok(ExitCode::SUCCESS)
                }
                What::Add(add) => add.execute(&client, json, out).await,
                What::Enable { id } => switch(&client, &id, "enable", json, out).await,
                What::Disable { id } => switch(&client, &id, "disable", json, out).await,
                What::Delete { id } => {
                    client.bytes(Call::new(Method::DELETE, path_of(&id))).await?;
                    out.note(format_args!("removed {id}"));
                    Ok(ExitCode::SUCCESS)
                }
            }
        })
    }
}

fn path_of(id: &str) -> String {
    format!("/v1/subscriptions/{}", encode(id))
}

async fn list(client: &Client, query: &Query, limit: usize, json: bool, out: &mut Output) -> Ended {
    let items: Vec<Subscription> = client.list("/v1/subscriptions", query, limit).await?;
    if json {
        out.json(&json!({ "items": items }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["ID", "SCRIPT", "ENABLED", "CREATED", "CONDITIONS", "TYPE"]);
    let now = now();
    for item in items {
        let conditions = item.rules().map_or_else(|_| "?".to_owned(), |rules| rules.conditions().to_string());
        table.row(vec![
            item.id.to_string(),
            item.script_id.to_string(),
            item.enabled.to_string(),
            ago(item.created_at.millis(), now),
            conditions,
            item.event_type.to_string(),
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

impl Add {
    async fn execute(self, client: &Client, json: bool, out: &mut Output) -> Ended {
        let written = |message: String| CommandError::Written(message);
        let rules: Value = match (&self.filter, &self.filter_file) {
            (Some(text), _) => serde_json::from_str(text)
                .map_err(|error| written(format!("--filter is not JSON: {error}")))?,
            (None, Some(file)) => InputFile::read(file)?.document()?.to_value(),
            (None, None) => Value::Null,
        };
        let mut draft = json!({
            "scriptId": self.script,
            "eventType": self.event_type,
            "filterRules": rules,
            "enabled": !self.disabled,
        });
        if let Some(id) = self.id {
            draft["id"] = json!(id);
        }
        // Told here with all that is wrong, whatever the server would say.
        SubscriptionDraft::read(draft.clone()).map_err(|problems| {
            let lines: Vec<_> = problems.listed.iter().map(ToString::to_string).collect();
            written(lines.join("\n"))
        })?;
        let made: Subscription = client.json(Call::post("/v1/subscriptions", &draft)).await?;
        if json {
            out.json(&made)?;
        } else {
            out.data(&made.id)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn switch(client: &Client, id: &str, how: &str, json: bool, out: &mut Output) -> Ended {
    let call = Call::post(format!("{}/{how}", path_of(id)), &json!({}));
    let changed: Subscription = client.json(call).await?;
    if json {
        out.json(&changed)?;
    } else {
        out.note(format_args!("{id} is {how}d"));
    }
    Ok(ExitCode::SUCCESS)
}
