//! `tidemill export`: the whole store as lines of JSON.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tidemill_embedded::Store;
use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::store::export::Exported;
use tidemill_embedded::store::watch::Progress;

use super::{CommandError, Flags};
use crate::config::Resolved;
use crate::data_dir::{DataDir, StoreArgument, store_options};
use crate::display::humanize::count;
use crate::output::Output;

/// Write events and control records as lines of JSON
///
/// Key hashes, tokens and leases stay behind. The first line names the version of the form, the last one counts the
/// lines before it.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Export {
    #[command(flatten)]
    store: StoreArgument,
    /// Write to this file, which appears when it is whole, instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Where an export comes from.
enum Source {
    Directory {
        store: Box<Store>,
        _lock: DataLock,
    },
    #[cfg(feature = "aws")]
    Stage(Box<crate::aws::ExportedStage>),
}

impl Export {
    pub(crate) fn flags(&self) -> Flags {
        self.store.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Result<ExitCode, CommandError> {
        let mut source = Source::open(config, out)?;
        let exported = if let Some(path) = &self.out {
            to_file(&mut source, path, out)?
        } else {
            let (data, mut watch) = out.stream();
            source.export(data, &mut watch)?
        };
        let tally = exported.tally;
        out.note(format_args!(
            "exported {}, {}, {}, {}, {} and {}",
            count(tally.events, "event"),
            count(tally.jobs, "job"),
            count(tally.tasks, "task"),
            count(tally.messages, "message"),
            count(tally.records, "record"),
            count(tally.blobs, "large value")
        ));
        for key in &exported.blobs_missing {
            out.note(format_args!("the blob {key} is missing; its event was exported without it"));
        }
        Ok(if exported.blobs_missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Source {
    fn open(config: &Resolved, out: &mut Output) -> Result<Self, CommandError> {
        #[cfg(feature = "aws")]
        if config.values.backend == crate::config::BackendName::Aws {
            return Ok(Self::Stage(Box::new(crate::aws::ExportedStage::open(config)?)));
        }
        let dir = DataDir::open("export", config)?;
        let store = Store::open_watched(dir.disk, store_options(), &mut |progress| out.progress(progress))?;
        Ok(Self::Directory { store: Box::new(store), _lock: dir.lock })
    }

    fn export(
        &mut self,
        data: &mut (dyn Write + Send),
        watch: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Exported, CommandError> {
        Ok(match self {
            Self::Directory { store, .. } => store.export(data, watch)?,
            #[cfg(feature = "aws")]
            Self::Stage(stage) => stage.export(data, watch)?,
        })
    }
}

fn to_file(source: &mut Source, path: &Path, out: &mut Output) -> Result<Exported, CommandError> {
    let name = path.display();
    let mut draft = path.as_os_str().to_owned();
    draft.push(".partial");
    let draft = PathBuf::from(draft);
    let written = write(source, &draft, out).and_then(|exported| {
        fs::rename(&draft, path)
            .map_err(|error| CommandError::failed(format_args!("cannot make {name}"), &error))?;
        Ok(exported)
    });
    if written.is_err() {
        // The error that stopped the export is reported; the draft may not even have been made.
        let _ = fs::remove_file(&draft);
    }
    written
}

fn write(source: &mut Source, draft: &Path, out: &mut Output) -> Result<Exported, CommandError> {
    let failed =
        |error: &io::Error| CommandError::failed(format_args!("cannot write {}", draft.display()), error);
    // What is in an export is for the owner of the store only.
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft);
    let mut file: File = opened.map_err(|error| failed(&error))?;
    let exported = source.export(&mut file, &mut |progress| out.progress(progress))?;
    file.sync_all().map_err(|error| failed(&error))?;
    Ok(exported)
}
