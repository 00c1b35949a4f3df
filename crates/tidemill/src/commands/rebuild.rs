//! `tidemill rebuild`: throws away what is derived and makes it again.

use std::process::ExitCode;

use clap::Args;
use tidemill_embedded::Store;

use super::{CommandError, Flags, verify};
use crate::config::Resolved;
use crate::data_dir::{DataDir, StoreArgument, store_options};
use crate::output::Output;

/// Remove what is derived from the log, make it again and verify it
///
/// A log that is damaged is left alone, and so is all that was made from it.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Rebuild {
    #[command(flatten)]
    store: StoreArgument,
    /// Print what was checked and what differs as one JSON object
    #[arg(long)]
    json: bool,
}

impl Rebuild {
    pub(crate) fn flags(&self) -> Flags {
        self.store.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Result<ExitCode, CommandError> {
        let dir = DataDir::open("rebuild", config)?;
        let store = Store::rebuild(dir.disk, store_options(), &mut |progress| out.progress(progress))?;
        out.note("the rows were made again");
        let findings = store.verify_watched(&mut |progress| out.progress(progress))?;
        verify::report(&findings, self.json, out)
    }
}
