//! `tidemill verify`: is everything that is derived what the log says?

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tidemill_embedded::Store;
use tidemill_embedded::store::verify::Findings;
use tidemill_engine::backend::Fault;

use super::error::SALVAGE;
use super::{CommandError, Flags};
use crate::config::Resolved;
use crate::data_dir::{DataDir, StoreArgument, store_options};
use crate::display::humanize::count;
use crate::output::Output;

/// Check the data directory: every byte of the log, and all that is derived from it
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Verify {
    #[command(flatten)]
    store: StoreArgument,
    /// Print what was checked and what differs as one JSON object
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn flags(&self) -> Flags {
        self.store.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Result<ExitCode, CommandError> {
        let dir = DataDir::open("verify", config)?;
        let opened = Store::open_watched(dir.disk, store_options(), &mut |progress| out.progress(progress));
        let findings = match opened {
            Ok(store) => store.verify_watched(&mut |progress| out.progress(progress))?,
            // A log that cannot be opened is a finding, and the only one there can be.
            Err(Fault::Damaged(problem)) => Findings {
                differences: vec![problem],
                differences_total: 1,
                only_log: true,
                ..Findings::default()
            },
            Err(fault) => return Err(fault.into()),
        };
        report(&findings, self.json, out)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FindingsJson<'a> {
    clean: bool,
    segments: u64,
    events: u64,
    rows: u64,
    tasks: u64,
    blobs: u64,
    /// Whether only the log was checked, because it is damaged.
    only_log: bool,
    differences: &'a [String],
    differences_total: u64,
}

/// Says what was found. Clean or not decides the exit code.
pub(super) fn report(findings: &Findings, json: bool, out: &mut Output) -> Result<ExitCode, CommandError> {
    let Findings { segments, events, rows, tasks, blobs, only_log, differences, differences_total, .. } =
        findings;
    let clean = findings.is_clean();
    if json {
        out.json(&FindingsJson {
            clean,
            segments: *segments,
            events: *events,
            rows: *rows,
            tasks: *tasks,
            blobs: *blobs,
            only_log: *only_log,
            differences,
            differences_total: *differences_total,
        })?;
    } else {
        for difference in differences {
            out.data(difference)?;
        }
        let more = differences_total.saturating_sub(differences.len() as u64);
        if more > 0 {
            out.data(format_args!("and {more} more"))?;
        }
    }
    if *only_log {
        out.note(format_args!("the log is damaged, so there is nothing to compare the rest with; {SALVAGE}"));
    } else {
        let checked = format!(
            "checked {} with {}, {}, the histories of {} and {}",
            count(*segments, "segment"),
            count(*events, "event"),
            count(*rows, "row"),
            count(*tasks, "task"),
            count(*blobs, "large value")
        );
        let result = match differences_total {
            0 => "all is as it should be".to_owned(),
            1 => "1 difference".to_owned(),
            many => format!("{many} differences"),
        };
        out.note(format_args!("{checked}: {result}"));
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
