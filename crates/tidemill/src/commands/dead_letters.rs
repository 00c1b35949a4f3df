//! `tidemill dead-letters`: work that was given up and is not done again by itself.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidemill_api as api;
use tidemill_model::work::last_error::in_short;

use super::moment::{Moment, now};
use super::runtime::block_on;
use super::{CommandError, Ended, Flags};
use crate::client::{Call, Client, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::ago;
use crate::output::Output;

/// List, show, replay and discard dead letters of tasks, scripts and events
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct DeadLetters {
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
    /// List dead letters of one kind, oldest first
    List {
        #[command(flatten)]
        which: Which,
        #[arg(long)]
        state: Option<State>,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a dead letter
    Show { id: String },
    /// Do the work again: of one, or of all open ones that fit
    Replay(Chosen),
    /// Put one away, or all open ones that fit; they are kept all the same
    Discard(Chosen),
}

/// One dead letter, or many.
#[derive(Args)]
struct Chosen {
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,
    /// All open ones of a kind that fit
    #[arg(long)]
    all: bool,
    /// Only tell which ones it would be; at most 1,000 of them
    #[arg(long, requires = "all")]
    dry_run: bool,
    #[command(flatten)]
    which: Which,
}

/// Which dead letters are meant. All conditions must hold.
#[derive(Args)]
struct Which {
    #[arg(long, default_value = "task")]
    kind: Kind,
    /// Of this script; for the kind script
    #[arg(long, value_name = "ID")]
    script: Option<String>,
    /// Of events of this type; not for the kind task, like all below
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Failed then or later: epoch milliseconds, or how long ago as in 2h
    #[arg(long, value_name = "WHEN")]
    from: Option<Moment>,
    /// Failed then or before
    #[arg(long, value_name = "WHEN")]
    to: Option<Moment>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Task,
    Script,
    Event,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Script => "script",
            Self::Event => "event",
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Open,
    Replayed,
    Discarded,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }
}

impl From<api::LetterState> for State {
    fn from(state: api::LetterState) -> Self {
        match state {
            api::LetterState::Open => Self::Open,
            api::LetterState::Replayed => Self::Replayed,
            api::LetterState::Discarded => Self::Discarded,
        }
    }
}

impl Which {
    fn query(&self) -> Query {
        Query::new()
            .set("kind", self.kind.name())
            .maybe("scriptId", self.script.as_ref())
            .maybe("eventType", self.event_type.as_ref())
            .maybe("from", self.from)
            .maybe("to", self.to)
    }

    fn body(&self) -> Value {
        let mut body = json!({ "kind": self.kind.name() });
        let texts = [("scriptId", &self.script), ("eventType", &self.event_type)];
        for (name, value) in texts {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        for (name, value) in [("from", self.from), ("to", self.to)] {
            if let Some(value) = value {
                body[name] = json!(value.millis());
            }
        }
        // The server requires the caller to say that all are meant.
        if body.as_object().is_some_and(|fields| fields.len() == 1) {
            body["all"] = json!(true);
        }
        body
    }
}

impl DeadLetters {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            match self.what {
                What::List { which, state, limit } => {
                    let query = which.query().maybe("state", state.map(State::name));
                    let letters: Vec<api::DeadLetterView> =
                        client.list("/v1/dead-letters", &query, limit).await?;
                    if json {
                        out.json(&json!({ "items": letters }))?;
                    } else {
                        show(which.kind, &letters, out)?;
                    }
                }
                What::Show { id } => {
                    let letter: api::DeadLetterView = client.get(path_of(&id)).await?;
                    out.json_pretty(&letter)?;
                }
                What::Replay(chosen) => chosen.replay(&client, json, out).await?,
                What::Discard(chosen) => chosen.discard(&client, json, out).await?,
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn path_of(id: &str) -> String {
    format!("/v1/dead-letters/{}", encode(id))
}

impl Chosen {
    async fn replay(self, client: &Client, json: bool, out: &mut Output) -> Result<(), CommandError> {
        let Some(id) = &self.id else { return self.many(client, "replay", json, out).await };
        let call = Call::post(format!("{}/replay", path_of(id)), &json!({}));
        let replayed: api::Replayed = client.json(call).await?;
        if json {
            out.json(&replayed)?;
        } else if let Some(request) = replayed.request_id {
            out.note(format_args!("{request} runs again"));
        } else if let Some(execution) = replayed.execution_id {
            out.note(format_args!("its script runs again as execution {execution}"));
        } else if let Some(delivery) = replayed.delivery_id {
            out.note(format_args!("it is delivered again as {delivery}"));
        }
        Ok(())
    }

    async fn discard(self, client: &Client, json: bool, out: &mut Output) -> Result<(), CommandError> {
        let Some(id) = &self.id else { return self.many(client, "discard", json, out).await };
        let call = Call::post(format!("{}/discard", path_of(id)), &json!({}));
        let discarded: Value = client.json(call).await?;
        if json {
            out.json(&discarded)?;
        } else {
            out.note(format_args!("put {id} away"));
        }
        Ok(())
    }

    /// All that fit, however many calls it takes.
    async fn many(
        &self,
        client: &Client,
        deed: &str,
        json: bool,
        out: &mut Output,
    ) -> Result<(), CommandError> {
        let mut body = self.which.body();
        if self.dry_run {
            body["dryRun"] = json!(true);
        }
        let mut ids = Vec::new();
        loop {
            let call = Call::post(format!("/v1/dead-letters/{deed}"), &body);
            let done: api::ManyLettersView = client.json(call).await?;
            let stuck = done.ids.is_empty();
            ids.extend(done.ids);
            if self.dry_run && done.more {
                out.note(format_args!("there are more than these"));
            }
            if !done.more || stuck || self.dry_run {
                break;
            }
        }
        if json {
            out.json(&json!({ "ids": ids }))?;
        } else {
            for id in &ids {
                out.data(id)?;
            }
            let done = match (deed, self.dry_run) {
                ("replay", false) => "replayed",
                ("replay", true) => "would be replayed",
                (_, false) => "put away",
                (_, true) => "would be put away",
            };
            out.note(format_args!("{} {done}", ids.len()));
        }
        Ok(())
    }
}

fn show(kind: Kind, letters: &[api::DeadLetterView], out: &mut Output) -> std::io::Result<()> {
    let mut table = match kind {
        Kind::Script => Table::new(&["ID", "STATE", "FAILED", "SCRIPT", "RETRIES", "TYPE", "ERROR"]),
        Kind::Event => Table::new(&["ID", "STATE", "FAILED", "TARGET", "TRIES", "TYPE", "ENTITY", "ERROR"]),
        Kind::Task => Table::new(&["ID", "STATE", "SINCE", "TASK", "ERROR"]),
    };
    let now = now();
    for letter in letters {
        table.row(match letter {
            api::DeadLetterView::Task(letter) => vec![
                letter.id.clone(),
                State::from(letter.state).name().to_owned(),
                ago(letter.since, now),
                letter.request_id.clone(),
                in_short(letter.why()).into_owned(),
            ],
            api::DeadLetterView::Script(letter) => vec![
                letter.id.clone(),
                State::from(letter.state).name().to_owned(),
                ago(letter.failed_at.millis(), now),
                letter.script_id.to_string(),
                letter.retry_count.to_string(),
                letter.event_type.to_string(),
                format!("{}: {}", letter.error_class, letter.error_message),
            ],
            api::DeadLetterView::Event(letter) => vec![
                letter.id.clone(),
                State::from(letter.state).name().to_owned(),
                ago(letter.failed_at.millis(), now),
                letter.url.clone().unwrap_or_else(|| letter.target.clone()),
                letter.attempts.to_string(),
                letter.event_type.to_string(),
                format!("{}#{}", letter.entity_type, letter.entity_id),
                letter.error_message.clone(),
            ],
        });
    }
    out.table(&table)
}
