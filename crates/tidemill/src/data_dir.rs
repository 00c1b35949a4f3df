//! The store that an offline command works on, and a data directory while nobody else has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tidemill_embedded::StoreOptions;
use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::disk::Disk;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::Tell;

use crate::client::add;
use crate::commands::CommandError;
use crate::config::{BackendName, Resolved, Source};

/// Which store.
#[derive(Args)]
pub(crate) struct StoreArgument {
    /// The data directory. No other process may have it open [default: .tidemill]
    #[arg(long = "data", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where everything is kept, embedded or aws [default: embedded]
    #[arg(long, value_name = "BACKEND", value_parser = ["embedded", "aws"])]
    backend: Option<String>,
}

impl StoreArgument {
    pub(crate) fn flags(&self) -> BTreeMap<&'static str, Source> {
        let mut flags = BTreeMap::new();
        add(&mut flags, "TIDEMILL_DATA", "--data", self.dir.as_ref().map(|dir| dir.display()));
        add(&mut flags, "TIDEMILL_BACKEND", "--backend", self.backend.as_ref());
        flags
    }
}

/// A data directory, locked until this is dropped.
pub(crate) struct DataDir {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) lock: DataLock,
}

impl DataDir {
    /// Locks the directory of the settings, which holds a store. `command` works on directories only.
    pub(crate) fn open(command: &str, config: &Resolved) -> Result<Self, CommandError> {
        let dir = Self::named(command, config)?;
        // A look, not a promise: whoever makes a store does it under the lock.
        match dir.join("log").try_exists() {
            Ok(true) => Self::take(dir),
            Ok(false) => Err(CommandError::Unusable(format!(
                "there is no data in {}; name its directory with --data",
                dir.display()
            ))),
            Err(error) => Err(unusable(dir, &error)),
        }
    }

    /// Locks the directory of the settings, which is made if it is not there.
    pub(crate) fn open_or_make(command: &str, config: &Resolved) -> Result<Self, CommandError> {
        Self::take(Self::named(command, config)?)
    }

    /// The directory of the settings, for a command that works on directories only.
    pub(crate) fn named<'a>(command: &str, config: &'a Resolved) -> Result<&'a Path, CommandError> {
        if config.values.backend == BackendName::Aws {
            let instead = match command {
                "verify" => "; `tidemill aws doctor` looks at the parts of a stage",
                "rebuild" => "; to make all of a stage again, export it and import it into a new one",
                _ => "",
            };
            return Err(CommandError::Unusable(format!(
                "`tidemill {command}` works on a data directory, and TIDEMILL_BACKEND is aws, which has none{instead}"
            )));
        }
        Ok(&config.values.data)
    }

    fn take(dir: &Path) -> Result<Self, CommandError> {
        let disk = RealDisk::new(dir).map_err(|error| unusable(dir, &error))?;
        let lock = DataLock::take(dir)?;
        Ok(Self { disk: Arc::new(disk), lock })
    }
}

fn unusable(dir: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Unusable(format!("the data directory {} cannot be used: {error}", dir.display()))
}

/// How offline commands open a store. Nothing is decided here, so no policy matters.
pub(crate) fn store_options() -> StoreOptions {
    StoreOptions { tell: Tell::new(crate::logging::trouble), ..StoreOptions::default() }
}
