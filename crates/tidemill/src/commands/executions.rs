//! `tidemill executions`: what scripts did, and are to do.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use tidemill_api as api;

use super::moment::now;
use super::runtime::block_on;
use super::{Ended, Flags};
use crate::client::{Client, Items, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::{ago, span};
use crate::output::Output;

/// List and look at executions of scripts
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Executions {
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
    /// List executions, newest event first
    List {
        /// Only those of this script
        #[arg(long, value_name = "ID")]
        script: Option<String>,
        /// Only those of this subscription
        #[arg(long, value_name = "ID")]
        subscription: Option<String>,
        #[arg(long)]
        status: Option<Status>,
        /// How many at most
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show an execution with its result, log and error
    Get { id: String },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Status {
    Queued,
    Processing,
    Retrying,
    Success,
    DeadLetter,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Processing => "processing",
            Self::Retrying => "retrying",
            Self::Success => "success",
            Self::DeadLetter => "dead_letter",
        }
    }
}

impl Executions {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            match self.what {
                What::List { script, subscription, status, limit } => {
                    let query = Query::new()
                        .maybe("scriptId", script)
                        .maybe("subscriptionId", subscription)
                        .maybe("status", status.map(Status::name));
                    list(&client, &query, limit, json, out).await
                }
                What::Get { id } => {
                    let found: api::ExecutionView =
                        client.get(format!("/v1/executions/{}", encode(&id))).await?;
                    out.json_pretty(&found)?;
                    Ok(ExitCode::SUCCESS)
                }
            }
        })
    }
}

async fn list(client: &Client, query: &Query, limit: usize, json: bool, out: &mut Output) -> Ended {
    let items: Vec<api::ExecutionView> = client.list("/v1/executions", query, limit).await?;
    if json {
        out.json(&Items { items: &items })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["ID", "SCRIPT", "STATUS", "RUNS", "CREATED", "TOOK", "TYPE", "ERROR"]);
    let now = now();
    for item in items {
        table.row(vec![
            item.id,
            item.script_id.to_string(),
            item.status.as_str().to_owned(),
            item.attempts.to_string(),
            ago(item.created_at.millis(), now),
            item.duration_ms.map(span).unwrap_or_default(),
            item.event_type.to_string(),
            item.error.map(|error| format!("{}: {}", error.class, error.message)).unwrap_or_default(),
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}
