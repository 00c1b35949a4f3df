//! `tidemill alerts`: whether alerts arrive at their targets.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use tidemill_outbound::HttpSender;

use super::runtime::block_on;
use super::{CommandError, Ended, Flags};
use crate::config::Resolved;
use crate::logging;
use crate::output::Output;

/// Check where alerts go
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Alerts {
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Send one alert to every place that is set, and tell whether it arrived
    Test,
}

impl Alerts {
    #[expect(clippy::unused_self, reason = "all commands have their flags")]
    pub(crate) fn flags(&self) -> Flags {
        Flags::new()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let What::Test = self.what;
        let sender = HttpSender::new(config.values.outbound.clone(), config.sanitizer(), logging::alert);
        let told = block_on(async { Ok::<_, CommandError>(sender.test(&config.values.environment).await) })?;
        if self.json {
            let items: Vec<_> = told
                .iter()
                .map(|(place, done)| json!({ "to": place, "arrived": done.is_ok(), "error": done.as_ref().err() }))
                .collect();
            out.json(&json!({ "items": items }))?;
        }
        for (place, done) in told.iter().filter(|_| !self.json) {
            match done {
                Ok(()) => out.note(format_args!("{place}: arrived")),
                // Most say by themselves which setting they are about.
                Err(error) if error.starts_with(place) => out.note(error),
                Err(error) => out.note(format_args!("{place}: {error}")),
            }
        }
        let all_arrived = told.iter().all(|(_, done)| done.is_ok());
        Ok(if all_arrived { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
