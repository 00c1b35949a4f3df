//! `tidemill scripts`: JavaScript that reacts to events.

mod apply;
mod explain;
mod manifest;
mod plan;
mod try_out;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidemill_api as api;
use tidemill_model::{Grant, Script, ScriptDraft};

use super::input_file::InputFile;
use super::moment::now;
use super::runtime::block_on;
use super::{CommandError, Ended, Flags};
use crate::client::{Call, Client, ClientError, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::ago;
use crate::output::Output;

/// List, look at, save, try and explain scripts
///
/// A script is the body of a function that sees `ctx.event` and `ctx.tenant`. It runs for the events that its
/// subscriptions name.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Scripts {
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
    /// List scripts
    List {
        /// How many at most
        #[arg(long, default_value_t = 1_000)]
        limit: usize,
    },
    /// Show a script
    Get {
        id: String,
        /// As it was at this version
        #[arg(long)]
        version: Option<u64>,
        /// Print the source and nothing else
        #[arg(long)]
        source: bool,
    },
    /// Save a script: make it, or replace it
    Put(Put),
    /// Remove a script that has no subscriptions
    Delete {
        id: String,
        /// Only if it is at this version
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
    /// Run a script here, with an event from a file; nothing it asks for is carried out
    Test(try_out::TryOut),
    /// Make scripts and subscriptions what a folder with a `scripts.yaml` says
    Apply(apply::Apply),
    /// Say which subscriptions an event matches, and which condition failed
    Explain(explain::Explain),
}

#[derive(Args)]
struct Put {
    /// Letters, digits, `_` and `-`
    id: String,
    /// The source; `-` for standard input
    file: PathBuf,
    /// What stacks and lists call it [default: the name it has, else its id]
    #[arg(long)]
    name: Option<String>,
    /// Let it call this host function; may be given more than once [default: those it has]
    #[arg(long = "grant", value_name = "GRANT")]
    grants: Vec<GrantName>,
    /// Let it call no host function
    #[arg(long, conflicts_with = "grants")]
    no_grants: bool,
    /// Only if it is at this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
}

/// A host function on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GrantName {
    Log,
    Publish,
    #[value(name = "submitJob")]
    SubmitJob,
    #[value(name = "resolveError")]
    ResolveError,
}

impl From<GrantName> for Grant {
    fn from(name: GrantName) -> Self {
        match name {
            GrantName::Log => Self::Log,
            GrantName::Publish => Self::Publish,
            GrantName::SubmitJob => Self::SubmitJob,
            GrantName::ResolveError => Self::ResolveError,
        }
    }
}

impl Scripts {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        block_on(async {
            match self.what {
                What::Test(test) => return test.execute(config, json, out).await,
                What::Apply(apply) => return apply.execute(config, json, out).await,
                _ => {}
            }
            let reach = if matches!(self.what, What::Put(_)) { Reach::Making } else { Reach::Existing };
            let client = reach.client(config).await?;
            match self.what {
                What::List { limit } => list(&client, limit, json, out).await,
                What::Get { id, version, source } => get(&client, &id, version, source, out).await,
                What::Put(put) => put.execute(&client, json, out).await,
                What::Delete { id, if_version } => {
                    let call = Call::new(Method::DELETE, path_of(&id));
                    client.bytes(at_version(call, if_version)).await?;
                    out.note(format_args!("removed {id}"));
                    Ok(ExitCode::SUCCESS)
                }
                What::Explain(explain) => explain.execute(&client, json, out).await,
                What::Test(_) | What::Apply(_) => unreachable!("they were carried out above"),
            }
        })
    }
}

fn path_of(id: &str) -> String {
    format!("/v1/scripts/{}", encode(id))
}

fn at_version(call: Call, version: Option<u64>) -> Call {
    match version {
        Some(version) => call.header("if-match", format!("\"{version}\"")),
        None => call,
    }
}

async fn list(client: &Client, limit: usize, json: bool, out: &mut Output) -> Ended {
    let items: Vec<api::ScriptSummary> = client.list("/v1/scripts", &Query::new(), limit).await?;
    if json {
        out.json(&json!({ "items": items }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(&["ID", "VERSION", "UPDATED", "BYTES", "GRANTS", "NAME"]);
    let now = now();
    for script in items {
        table.row(vec![
            script.id.to_string(),
            script.version.to_string(),
            ago(script.updated_at.millis(), now),
            script.source_bytes.to_string(),
            granted(&script.grants),
            script.name,
        ]);
    }
    out.table(&table)?;
    Ok(ExitCode::SUCCESS)
}

fn granted(grants: &[Grant]) -> String {
    if grants.is_empty() {
        return "-".to_owned();
    }
    grants.iter().map(|grant| grant.as_str()).collect::<Vec<_>>().join(",")
}

async fn get(client: &Client, id: &str, version: Option<u64>, source: bool, out: &mut Output) -> Ended {
    let found: Script = client.get(Query::new().maybe("version", version).on(&path_of(id))).await?;
    if source {
        out.raw(found.source.as_bytes())?;
    } else {
        out.json_pretty(&found)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A script as it stands, if there is one.
async fn known(client: &Client, id: &str) -> Result<Option<Script>, ClientError> {
    match client.get(path_of(id)).await {
        Ok(script) => Ok(Some(script)),
        Err(error) if error.code() == Some("NOT_FOUND") => Ok(None),
        Err(error) => Err(error),
    }
}

impl Put {
    async fn execute(self, client: &Client, json: bool, out: &mut Output) -> Ended {
        let file = InputFile::read(&self.file)?;
        let source = source_of(&file)?;
        let before = known(client, &self.id).await?;
        let name = self.name.or_else(|| before.as_ref().map(|script| script.name.clone()));
        let grants: Vec<Grant> = if self.grants.is_empty() && !self.no_grants {
            before.as_ref().map(|script| script.grants.clone()).unwrap_or_default()
        } else {
            self.grants.into_iter().map(Grant::from).collect()
        };
        let name = name.unwrap_or_else(|| self.id.clone());
        let draft = json!({ "id": self.id, "name": name, "source": source, "grants": grants });
        let draft =
            ScriptDraft::read(draft).map_err(|problems| CommandError::Written(problems.to_string()))?;
        let call = match (&before, self.if_version) {
            (None, None) => Call::post("/v1/scripts", &draft),
            (None, Some(version)) => {
                let message = format!("{} does not exist, so it is not at version {version}", self.id);
                return Err(CommandError::Failed(message));
            }
            (Some(_), if_version) => {
                at_version(Call::new(Method::PUT, path_of(&self.id)).with_json(&draft), if_version)
            }
        };
        let saved: Result<Script, _> = client.json(call).await;
        let saved = saved.map_err(|error| at_line(&file.name, error))?;
        if json {
            out.json(&saved)?;
        } else {
            out.note(format_args!("{} is at version {}", saved.id, saved.version));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A file's text.
fn source_of(file: &InputFile) -> Result<String, CommandError> {
    String::from_utf8(file.bytes.clone()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CommandError::Written(format!("{}: is not UTF-8 from byte {at} on", file.name))
    })
}

/// The problem of a script that does not compile, at its place in the file.
fn at_line(file: &str, error: ClientError) -> CommandError {
    let ClientError::Problem(problem) = &error else { return error.into() };
    match problem.details.first() {
        Some(api::Detail { line: Some(line), column: Some(column), message, .. }) => {
            let message = message.split_once(": ").map_or(message.as_str(), |(_, message)| message);
            CommandError::Written(format!("{file}:{line}:{column}: {message}"))
        }
        _ => error.into(),
    }
}

/// What a file is called without its folders and its ending.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    stem.filter(|stem| stem != "-").unwrap_or_else(|| "script".to_owned())
}

/// A file that holds an event: its type and properties, as it is published or as a list shows it.
fn event_of(path: &Path) -> Result<Value, CommandError> {
    let document = InputFile::read(path)?.document()?;
    let event = document.to_value();
    let wrong = |message: &str| CommandError::Written(format!("{}: {message}", document.name));
    if !event["eventType"].is_string() {
        return Err(wrong("eventType: is missing, or is no text"));
    }
    if !event["properties"].is_object() && !event["properties"].is_null() {
        return Err(wrong("properties: must be an object"));
    }
    Ok(event)
}
