//! `tidemill submit`: hands a job file in and returns.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tidemill_api::{JobAccepted, JobStatusName, JobView};
use tidemill_source_file::job_file::read_job;

use super::input_file::{InputFile, at_places};
use super::jobs::{self, WatchShow};
use super::runtime::block_on;
use super::{CommandError, Ended, Flags};
use crate::client::{Call, Client, Reach, ReachArguments};
use crate::config::Resolved;
use crate::output::Output;

/// Submit a job file
///
/// Prints the id of the job. A job that is submitted to a data directory runs when a server is started on it.
#[derive(Args)]
#[command(after_help = jobs::WATCH_EXIT_CODES)]
pub(crate) struct Submit {
    #[command(flatten)]
    reach: ReachArguments,
    /// The job file, YAML or JSON; `-` for standard input
    file: PathBuf,
    /// Submitting again under the same key gives the same job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Watch the job to its end; the exit code tells how it ended. Needs a server
    #[arg(long)]
    watch: bool,
    /// Print the answer as one JSON object
    #[arg(long)]
    json: bool,
}

impl Submit {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let input = InputFile::read(&self.file)?;
        let read = read_job(&input.name, input.form(), &input.bytes)?;
        let mut value = read.document.to_value();
        if read.file.name.is_none() {
            value["name"] = input.short_name().into();
        }
        block_on(async {
            let client = Reach::MakingNamed.client(config).await?;
            if self.watch && client.is_local() {
                return Err(CommandError::Unusable(format!(
                    "--watch needs a server, and none runs on {}; nothing was submitted: start `tidemill serve`, \
                     name one with --server, or use `tidemill run`",
                    client.place()
                )));
            }
            let mut call = Call::post("/v1/jobs", &value);
            let may_repeat = self.idempotency_key.is_some() || read.file.request_id.is_some();
            if let Some(key) = self.idempotency_key {
                call = call.header("idempotency-key", key);
            }
            let accepted = client.json::<JobAccepted>(call).await;
            let accepted = accepted.map_err(|error| at_places(&read.document, error))?;
            if self.watch {
                let show = WatchShow { json: self.json, colours: config.colours() };
                return jobs::watch(&client, &accepted.job_id, show, out).await;
            }
            if self.json {
                out.json(&accepted)?;
            } else {
                out.data(&accepted.job_id)?;
                let ended = if may_repeat { ended(&client, &accepted.job_id).await? } else { None };
                match ended {
                    Some(status) => {
                        out.note(format_args!("submitted before, and {status}: nothing was started"));
                    }
                    None => print_what_next(&client, &accepted, out),
                }
            }
            Ok::<_, CommandError>(ExitCode::SUCCESS)
        })
    }
}

/// How the job of an earlier submission ended, if it did.
async fn ended(client: &Client, job_id: &str) -> Result<Option<&'static str>, CommandError> {
    let job: JobView = client.json(Call::get(format!("/v1/jobs/{job_id}"))).await?;
    let status = job.status;
    let is_open = matches!(status, JobStatusName::Running | JobStatusName::Failing);
    Ok((!is_open).then_some(status.as_str()))
}

fn print_what_next(client: &Client, accepted: &JobAccepted, out: &mut Output) {
    if client.is_local() {
        out.note(format_args!("it runs when `tidemill serve` is started on {}", client.place()));
    } else {
        out.note(format_args!("follow it with `tidemill jobs watch {}`", accepted.job_id));
    }
}
