//! `tidemill salvage`: what is whole of a damaged data directory becomes a new one.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tidemill_embedded::salvage_dir::{KeysLeft, SalvageError, Salvaged, salvage};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::{Clock as _, SystemClock};

use super::{CommandError, Flags};
use crate::client::add;
use crate::config::Resolved;
use crate::data_dir::{DataDir, store_options};
use crate::display::humanize::count;
use crate::output::Output;

/// What was saved, but not all.
const WITH_LOSSES: u8 = 3;

const KEYS_UNCERTAIN: &str = "keys may be missing and revocations may be undone: check `tidemill keys list`";
const KEYS_CLOSED: &str = "API keys may be lost, and none is left: the store stays closed, and every request is refused, until you \
     make a key with `tidemill keys create --role admin --data DIR`";

const ROWS_USED: &str =
    "the rows could be read: jobs and tasks stand where they stood at the last flush of the rows";
const ROWS_NOT_USED: &str =
    "there were no rows that could be read: jobs and tasks stand where what is left of the log leads to";

const EXIT_CODES: &str = "\
Exit codes:
  0    the new directory holds everything
  1    the command failed; the new directory is worth nothing
  2    the arguments are wrong, or a directory cannot be used
  3    the new directory holds what was whole; what is missing was told
  130  interrupted";

/// Copy what is whole of a damaged data directory into a new one, and say what is missing
///
/// The damaged directory is only read, and nobody may have it open. The new one opens and verifies clean, but for large
/// values that were lost. Leases and the places of scripts in the log stay behind, as with an import; keys, tokens, and
/// files of tasks come along.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Salvage {
    /// The damaged data directory [default: .tidemill]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The new data directory, which must not be there or be empty
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print what was saved and what is missing as one JSON object
    #[arg(long)]
    json: bool,
}

impl Salvage {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        add(&mut flags, "TIDEMILL_DATA", "--data", self.data.as_ref().map(|dir| dir.display()));
        flags
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Result<ExitCode, CommandError> {
        let now = SystemClock::start().now();
        let from = DataDir::named("salvage", config)?;
        let mut watch = |progress| out.progress(progress);
        let saved = salvage(from, &self.to, &store_options(), now, &mut watch)?;
        report(&saved, self.json, out)?;
        let to = self.to.display();
        if !saved.findings.is_clean_but_for_blobs() {
            for difference in &saved.findings.differences {
                out.note(difference);
            }
            return Err(CommandError::Failed(format!("{to} does not verify, so it is worth nothing")));
        }
        out.note(format_args!(
            "saved {}, {}, {} and {} into {to}: {}",
            count(saved.events, "event"),
            count(saved.jobs, "job"),
            count(saved.tasks, "task"),
            match saved.blobs {
                1 => "1 large value or file".to_owned(),
                blobs => format!("{} and files", count(blobs, "large value")),
            },
            if saved.is_whole() { "all there was" } else { "what was whole" }
        ));
        Ok(if saved.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(WITH_LOSSES) })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SalvagedJson<'a> {
    whole: bool,
    verified: bool,
    segments: u64,
    events: u64,
    jobs: u64,
    tasks: u64,
    blobs: u64,
    /// Whether rows told what lost parts of the log had come to.
    rows_used: bool,
    lost: Vec<LostJson<'a>>,
    blobs_lost: &'a [String],
    /// Whose history has a hole: the first 1,000.
    touched: Vec<TouchedJson<'a>>,
    touched_total: u64,
    /// Jobs that the new directory does not have though something of them is left: the first 1,000.
    gone: Vec<GoneJson<'a>>,
    gone_total: u64,
    mended: &'a [String],
    /// `all`, `uncertain` or `closed`.
    keys: &'static str,
    /// What that means, unless nothing was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys_warning: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LostJson<'a> {
    file: &'a str,
    from_byte: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_byte: Option<u64>,
    problem: &'a str,
    /// The numbers of the events that were there: from the first on, before the end.
    first_event: u64,
    end_event: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TouchedJson<'a> {
    tenant_id: &'a str,
    entity_type: &'a str,
    entity_id: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GoneJson<'a> {
    tenant_id: &'a str,
    job_id: String,
}

fn report(saved: &Salvaged, json: bool, out: &mut Output) -> Result<(), CommandError> {
    let lost = saved.log.lost.iter().map(|lost| LostJson {
        file: &lost.file,
        from_byte: lost.from,
        to_byte: lost.to,
        problem: &lost.problem,
        first_event: lost.first_seq.0,
        end_event: lost.end_seq.0,
    });
    let touched = saved.touched.iter().map(|touched| TouchedJson {
        tenant_id: touched.tenant.as_str(),
        entity_type: touched.entity.kind.as_str(),
        entity_id: touched.entity.id.as_str(),
    });
    let gone = saved
        .gone
        .iter()
        .map(|gone| GoneJson { tenant_id: gone.tenant.as_str(), job_id: gone.job.to_string() });
    let (keys, keys_warning) = match saved.keys {
        KeysLeft::All => ("all", None),
        KeysLeft::Uncertain => ("uncertain", Some(KEYS_UNCERTAIN)),
        KeysLeft::Closed => ("closed", Some(KEYS_CLOSED)),
    };
    if json {
        out.json(&SalvagedJson {
            whole: saved.is_whole(),
            verified: saved.findings.is_clean_but_for_blobs(),
            segments: saved.log.segments,
            events: saved.events,
            jobs: saved.jobs,
            tasks: saved.tasks,
            blobs: saved.blobs,
            rows_used: saved.rows_used,
            lost: lost.collect(),
            blobs_lost: &saved.blobs_lost,
            touched: touched.collect(),
            touched_total: saved.touched_total,
            gone: gone.collect(),
            gone_total: saved.gone_total,
            mended: &saved.log.mended,
            keys,
            keys_warning,
        })?;
        return Ok(());
    }
    for mended in &saved.log.mended {
        out.note(mended);
    }
    for lost in lost {
        let to = lost.to_byte.map_or_else(|| "its end".to_owned(), |to| format!("byte {to}"));
        let events = match lost.end_event - lost.first_event {
            0 => "no events, but perhaps other entries".to_owned(),
            1 => format!("event {}", lost.first_event),
            _ => format!("events {} to {}", lost.first_event, lost.end_event - 1),
        };
        out.data(format_args!(
            "{} is lost from byte {} to {to}: {events}: {}",
            lost.file, lost.from_byte, lost.problem
        ))?;
    }
    for blob in &saved.blobs_lost {
        out.data(format_args!("a large value or file is lost: {blob}"))?;
    }
    for touched in touched {
        out.data(format_args!(
            "the history of {} {} of tenant {} has a hole",
            touched.entity_type, touched.entity_id, touched.tenant_id
        ))?;
    }
    let more = saved.touched_total.saturating_sub(saved.touched.len() as u64);
    if more > 0 {
        out.data(format_args!("and {more} more"))?;
    }
    for gone in gone {
        out.data(format_args!(
            "job {} of tenant {} is gone; events or files of its tasks are left",
            gone.job_id, gone.tenant_id
        ))?;
    }
    let more = saved.gone_total.saturating_sub(saved.gone.len() as u64);
    if more > 0 {
        out.data(format_args!("and {}", count(more, "more job")))?;
    }
    if !saved.log.lost.is_empty() {
        out.data(if saved.rows_used { ROWS_USED } else { ROWS_NOT_USED })?;
    }
    if let Some(warning) = keys_warning {
        out.data(warning)?;
    }
    Ok(())
}

impl From<SalvageError> for CommandError {
    fn from(error: SalvageError) -> Self {
        match error {
            SalvageError::Held(error) => error.into(),
            SalvageError::Store(fault @ Fault::Damaged(_)) => Self::Failed(fault.to_string()),
            SalvageError::Store(fault) => fault.into(),
            SalvageError::Import(error) => error.into(),
            SalvageError::Export(error) => error.into(),
            error @ (SalvageError::NotEmpty { .. }
            | SalvageError::NoLog { .. }
            | SalvageError::Inside { .. }) => Self::Unusable(error.to_string()),
            error @ SalvageError::Io { .. } => Self::Failed(error.to_string()),
        }
    }
}
