//! `tidemill dead-letters`: what is not delivered again by itself.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use tidemill_server::api;

use super::moment::now;
use super::runtime::block_on;
use super::{Ended, Flags};
use crate::client::{Call, Query, Reach, ReachArguments, encode};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::ago;
use crate::output::Output;

/// List, show, replay and discard dead letters
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
    /// List dead letters, oldest first
    List {
        #[arg(long)]
        state: Option<State>,
        /// How many at most
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show a dead letter
    Show { id: String },
    /// Run its task again
    Replay { id: String },
    /// Put it away; it is kept all the same
    Discard { id: String },
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

impl DeadLetters {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let json = self.json;
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            let path = |id: &str| format!("/v1/dead-letters/{}", encode(id));
            match self.what {
                What::List { state, limit } => {
                    let query = Query::new().maybe("state", state.map(State::name));
                    let letters: Vec<api::DeadLetterView> =
                        client.list("/v1/dead-letters", &query, limit).await?;
                    if json {
                        out.json(&json!({ "items": letters }))?;
                    } else {
                        show(&letters, out)?;
                    }
                }
                What::Show { id } => {
                    let letter: api::DeadLetterView = client.get(path(&id)).await?;
                    out.json_pretty(&letter)?;
                }
                What::Replay { id } => {
                    let call = Call::post(format!("{}/replay", path(&id)), &json!({}));
                    let replayed: api::Replayed = client.json(call).await?;
                    if json {
                        out.json(&replayed)?;
                    } else {
                        out.note(format_args!("{} runs again", replayed.request_id));
                    }
                }
                What::Discard { id } => {
                    let call = Call::post(format!("{}/discard", path(&id)), &json!({}));
                    let discarded: Value = client.json(call).await?;
                    if json {
                        out.json(&discarded)?;
                    } else {
                        out.note(format_args!("put {id} away"));
                    }
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

fn show(letters: &[api::DeadLetterView], out: &mut Output) -> std::io::Result<()> {
    let mut table = Table::new(&["ID", "STATE", "SINCE", "TASK", "REASON"]);
    let now = now();
    for letter in letters {
        let state = match letter.state {
            api::LetterState::Open => State::Open,
            api::LetterState::Replayed => State::Replayed,
            api::LetterState::Discarded => State::Discarded,
        };
        table.row(vec![
            letter.id.clone(),
            state.name().to_owned(),
            ago(letter.since, now),
            letter.request_id.clone(),
            letter.reason.clone(),
        ]);
    }
    out.table(&table)
}
