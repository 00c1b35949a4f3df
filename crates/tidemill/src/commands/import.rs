//! `tidemill import`: an export becomes the store of an empty data directory.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tidemill_embedded::import_dir::import_into;
use tidemill_embedded::store::import::{Closed, Imported};
use tidemill_engine::clock::{Clock, SystemClock};

use super::{CommandError, Flags};
use crate::config::Resolved;
use crate::data_dir::{DataDir, StoreArgument, store_options};
use crate::display::humanize::count;
use crate::output::Output;

/// How much is read at a time.
const READ_BYTES: usize = 1 << 20;

/// Make the store of an empty data directory, or of an empty stage on AWS, from an export
///
/// Nothing is started for imported events. Tasks that were leased wait again. A bad line is named, and then nothing is
/// stored.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Import {
    #[command(flatten)]
    store: StoreArgument,
    /// The export; `-` for standard input
    file: PathBuf,
}

impl Import {
    pub(crate) fn flags(&self) -> Flags {
        self.store.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Result<ExitCode, CommandError> {
        let input: Box<dyn BufRead + Send> = if self.file.as_os_str() == "-" {
            Box::new(BufReader::with_capacity(READ_BYTES, io::stdin()))
        } else {
            let file = File::open(&self.file).map_err(|error| {
                CommandError::Unusable(format!("cannot read {}: {error}", self.file.display()))
            })?;
            Box::new(BufReader::with_capacity(READ_BYTES, file))
        };
        let imported = import(config, input, out)?;
        let tally = imported.tally;
        out.note(format_args!(
            "imported {}, {}, {}, {}, {} and {}",
            count(tally.events, "event"),
            count(tally.jobs, "job"),
            count(tally.tasks, "task"),
            count(tally.messages, "message"),
            count(tally.records, "record"),
            count(tally.blobs, "large value")
        ));
        if imported.messages_made > 0 {
            out.note(format_args!(
                "{} had no message and got one",
                count(imported.messages_made, "open task")
            ));
        }
        if imported.unreadable > 0 {
            out.note(format_args!(
                "{} kept that not all readers of JSON can read: numbers too large, halves of characters, or too deep",
                match imported.unreadable {
                    1 => "1 value is".to_owned(),
                    values => format!("{values} values are"),
                }
            ));
        }
        if let Some(closed) = imported.closed {
            let why = match closed {
                Closed::HadKeys => "API keys are not exported, and the store had some",
                Closed::Unknown => "the export does not say whether the store had API keys",
            };
            out.note(format_args!(
                "{why}: it stays closed, and every request is refused, until you make a key with `tidemill keys create --role admin --data DIR`"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn import(
    config: &Resolved,
    mut input: Box<dyn BufRead + Send>,
    out: &mut Output,
) -> Result<Imported, CommandError> {
    #[cfg(feature = "aws")]
    if config.values.backend == crate::config::BackendName::Aws {
        return crate::aws::import(config, input, out);
    }
    let dir = DataDir::open_or_make("import", config)?;
    let now = SystemClock::start().now();
    let mut watch = |progress| out.progress(progress);
    Ok(import_into(&config.values.data, &dir.lock, store_options(), &mut input, now, &mut watch)?)
}
