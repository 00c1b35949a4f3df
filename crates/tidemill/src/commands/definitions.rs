//! `tidemill definitions`: what tasks of a certain name do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::Value;
use tidemill_model::{DefinitionDraft, Json};
use tidemill_source_file::SourceFile;
use tidemill_source_file::job_file::placed;

use super::input_file::{InputFile, at_places};
use super::moment::now;
use super::runtime::block_on;
use super::{Ended, Flags};
use crate::client::{Call, Client, Item, Items, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::ago;
use crate::output::Output;

/// List, look at and change task definitions
///
/// A definition is written as YAML or JSON: `name`, `runner: command`, `command`, and what a task may set too. Jobs keep the
/// version that was there when they were submitted.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Definitions {
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
    /// List definitions
    List {
        /// How many at most
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// Show a definition
    Get {
        name: String,
        /// As it was at this version
        #[arg(long)]
        version: Option<u64>,
    },
    /// Make a definition; it must not exist
    Create {
        /// The definition; `-` for standard input
        file: PathBuf,
    },
    /// Replace a definition; it must exist
    Update {
        /// The definition; `-` for standard input
        file: PathBuf,
        /// Only if it is at this version
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
    /// Remove a definition that no open task uses
    Delete { name: String },
}

impl Definitions {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        let reach = match self.what {
            What::Create { .. } | What::Update { .. } => Reach::Making,
            _ => Reach::Existing,
        };
        block_on(async {
            let client = reach.client(config).await?;
            match self.what {
                What::List { limit } => list(&client, limit, json, out).await,
                What::Get { name, version } => get(&client, &name, version, out).await,
                What::Create { file } => create(&client, &file, json, out).await,
                What::Update { file, if_version } => update(&client, &file, if_version, json, out).await,
                What::Delete { name } => {
                    client.bytes(Call::new(Method::DELETE, path_of(&name))).await?;
                    out.note(format_args!("removed {name}"));
                    Ok(ExitCode::SUCCESS)
                }
            }
        })
    }
}

fn path_of(name: &str) -> String {
    format!("/v1/task-definitions/{}", encode(name))
}

async fn list(client: &Client, limit: usize, json: bool, out: &mut Output) -> Ended {
    let items: Vec<Item> = client.list("/v1/task-definitions", &Query::new(), limit).await?;
    if json {
        out.json(&Items { items: &items })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["NAME", "RUNNER", "VERSION", "UPDATED", "DESCRIPTION"]);
    let now = now();
    for item in items {
        let updated = item.number("updatedAt").map(|at| ago(at, now)).unwrap_or_default();
        table.row(vec![
            item.text("name"),
            item.text("runner"),
            item.shown("version"),
            updated,
            item.text("description"),
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

async fn get(client: &Client, name: &str, version: Option<u64>, out: &mut Output) -> Ended {
    let found: Json = client.get(Query::new().maybe("version", version).on(&path_of(name))).await?;
    match found.read::<Value>() {
        Ok(found) => out.json_pretty(&found)?,
        // An older version let something in that cannot be read.
        Err(_) => out.json(&found)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A definition that was read and found right.
fn read(file: &Path) -> Result<(SourceFile, DefinitionDraft), super::CommandError> {
    let document = InputFile::read(file)?.document()?;
    let draft =
        DefinitionDraft::read(document.to_value()).map_err(|problems| placed(&document, &problems))?;
    Ok((document, draft))
}

async fn create(client: &Client, file: &Path, json: bool, out: &mut Output) -> Ended {
    let (document, _) = read(file)?;
    let made: Result<Value, _> = client.json(Call::post("/v1/task-definitions", &document.to_value())).await;
    print_version(&made.map_err(|error| at_places(&document, error))?, json, out)
}

async fn update(
    client: &Client,
    file: &Path,
    if_version: Option<u64>,
    json: bool,
    out: &mut Output,
) -> Ended {
    let (document, draft) = read(file)?;
    let mut call = Call::new(Method::PUT, path_of(draft.name.as_str())).with_json(&document.to_value());
    if let Some(version) = if_version {
        call = call.header("if-match", format!("\"{version}\""));
    }
    let made: Result<Value, _> = client.json(call).await;
    print_version(&made.map_err(|error| at_places(&document, error))?, json, out)
}

fn print_version(made: &Value, json: bool, out: &mut Output) -> Ended {
    if json {
        out.json(made)?;
    } else {
        let name = made["name"].as_str().unwrap_or_default();
        out.note(format_args!("{name} is at version {}", made["version"]));
    }
    Ok(ExitCode::SUCCESS)
}
