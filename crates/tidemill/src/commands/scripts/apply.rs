//! `tidemill scripts apply`: scripts live in a folder, with a manifest, and so in git.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use axum::http::Method;
use clap::Args;
use serde_json::json;
use tidemill_api as api;
use tidemill_engine::engine::{CompileProblem, ScriptCompiler as _};
use tidemill_matcher::Subscription;
use tidemill_matcher::subscription::SUBSCRIPTIONS_MAX;
use tidemill_model::authored::script::SCRIPTS_MAX;
use tidemill_model::{Script, ScriptId, SubscriptionId};

use super::manifest::Manifest;
use super::plan::{Plan, Step};
use super::{at_line, at_version, path_of};
use crate::client::{Call, Client, Query, Reach, encode};
use crate::commands::{CommandError, Ended};
use crate::config::Resolved;
use crate::display::humanize::count;
use crate::output::Output;
use crate::script_pool::ScriptPool;

#[derive(Args)]
pub(super) struct Apply {
    /// The folder with `scripts.yaml`
    dir: PathBuf,
    /// Make the changes; without it they are only shown
    #[arg(long)]
    yes: bool,
    /// Remove scripts and subscriptions that the manifest does not have
    #[arg(long)]
    prune: bool,
}

impl Apply {
    pub(super) async fn execute(self, config: &Resolved, json: bool, out: &mut Output) -> Ended {
        let wanted = Manifest::read(&self.dir)?;
        compile_all(&wanted, config).await?;
        let plan = if self.yes || config.values.server.is_some() || config.values.data.join("log").is_dir() {
            let client = Reach::Making.client(config).await?;
            let (scripts, subscriptions) = standing(&client).await?;
            let plan = Plan::new(&wanted, &scripts, &subscriptions, self.prune);
            if self.yes {
                for step in &plan.steps {
                    carry_out(&client, &wanted, step).await?;
                }
            }
            plan
        } else {
            // A look makes no data directory.
            Plan::new(&wanted, &BTreeMap::new(), &BTreeMap::new(), self.prune)
        };
        if json {
            out.json(&json!({
                "steps": plan.steps,
                "leftAlone": plan.left,
                "unchanged": plan.unchanged,
                "applied": self.yes,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        for step in &plan.steps {
            out.data(step)?;
        }
        for left in &plan.left {
            out.note(format_args!("{left} is not in the manifest and is left alone"));
        }
        let (changes, unchanged) = (plan.steps.len(), plan.unchanged);
        let hint = match (self.yes, changes) {
            (true, _) => "; done",
            (false, 0) => "",
            (false, _) => "; nothing was changed: add --yes to make them",
        };
        out.note(format_args!("{}, {unchanged} as they should be{hint}", count(changes as u64, "change")));
        Ok(ExitCode::SUCCESS)
    }
}

/// Finds out what does not compile before anything is changed.
async fn compile_all(wanted: &Manifest, config: &Resolved) -> Result<(), CommandError> {
    let compiler = ScriptPool::new(&config.values);
    let mut wrong = Vec::new();
    for script in wanted.scripts.values() {
        let draft = &script.draft;
        match compiler.compile(&config.values.tenant, &draft.name, &draft.source).await {
            Ok(()) => {}
            Err(CompileProblem::Wrong { message, line, column }) => {
                wrong.push(format!("{}:{line}:{column}: {message}", script.file));
            }
            Err(error @ CompileProblem::Unavailable(_)) => {
                return Err(CommandError::Failed(error.to_string()));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(CommandError::Written(wrong.join("\n"))) }
}

type Standing = (BTreeMap<ScriptId, Script>, BTreeMap<SubscriptionId, Subscription>);

/// What is there.
async fn standing(client: &Client) -> Result<Standing, CommandError> {
    let listed: Vec<api::ScriptSummary> = client.list("/v1/scripts", &Query::new(), SCRIPTS_MAX).await?;
    let mut scripts = BTreeMap::new();
    for summary in listed {
        if let Some(script) = super::known(client, summary.id.as_str()).await? {
            scripts.insert(summary.id, script);
        }
    }
    let listed: Vec<Subscription> =
        client.list("/v1/subscriptions", &Query::new(), SUBSCRIPTIONS_MAX).await?;
    let subscriptions = listed.into_iter().map(|subscription| (subscription.id.clone(), subscription));
    Ok((scripts, subscriptions.collect()))
}

async fn carry_out(client: &Client, wanted: &Manifest, step: &Step) -> Result<(), CommandError> {
    let subscription = |id: &SubscriptionId| format!("/v1/subscriptions/{}", encode(id.as_str()));
    let call = match step {
        Step::CreateScript(id) => Call::post("/v1/scripts", &wanted.scripts[id].draft),
        Step::ChangeScript { id, version, .. } => {
            let call = Call::new(Method::PUT, path_of(id.as_str())).with_json(&wanted.scripts[id].draft);
            at_version(call, Some(*version))
        }
        Step::CreateSubscription(id) => Call::post("/v1/subscriptions", &wanted.subscriptions[id]),
        Step::ChangeSubscription { id, .. } => {
            Call::new(Method::PUT, subscription(id)).with_json(&wanted.subscriptions[id])
        }
        Step::RemoveSubscription(id) => Call::new(Method::DELETE, subscription(id)),
        Step::RemoveScript { id, version } => {
            at_version(Call::new(Method::DELETE, path_of(id.as_str())), Some(*version))
        }
    };
    let file = match step {
        Step::CreateScript(id) | Step::ChangeScript { id, .. } => wanted.scripts[id].file.as_str(),
        _ => "",
    };
    let done = client.bytes(call).await.map(drop).map_err(|error| at_line(file, error));
    done.map_err(|error| match error {
        CommandError::Answer(why) => CommandError::Failed(format!("{step}: {why}")),
        error => error,
    })
}
