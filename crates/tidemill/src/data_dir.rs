//! A data directory that a command works on while nobody else does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tidemill_embedded::StoreOptions;
use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::disk::Disk;
use tidemill_embedded::real_disk::RealDisk;

use crate::commands::CommandError;

#[derive(Args)]
pub(crate) struct DataArgument {
    /// The data directory. No other process may have it open
    #[arg(long = "data", value_name = "DIR", default_value = ".tidemill")]
    dir: PathBuf,
}

/// A data directory, locked until this is dropped.
pub(crate) struct DataDir {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) lock: DataLock,
}

impl DataArgument {
    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// Locks a directory that holds a store.
    pub(crate) fn open(&self) -> Result<DataDir, CommandError> {
        let dir = self.dir.display();
        // A look, not a promise: whoever makes a store does it under the lock.
        match self.dir.join("log").try_exists() {
            Ok(true) => self.open_or_make(),
            Ok(false) => Err(CommandError::Unusable(format!(
                "there is no data in {dir}; name its directory with --data"
            ))),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    /// Locks a directory, which is made if it is not there.
    pub(crate) fn open_or_make(&self) -> Result<DataDir, CommandError> {
        let disk = RealDisk::new(&self.dir).map_err(|error| self.unusable(&error))?;
        let lock = DataLock::take(&self.dir)?;
        Ok(DataDir { disk: Arc::new(disk), lock })
    }

    fn unusable(&self, error: &std::io::Error) -> CommandError {
        CommandError::Unusable(format!("the data directory {} cannot be used: {error}", self.dir.display()))
    }
}

/// How offline commands open a store. Nothing is decided here, so no policy matters.
pub(crate) fn store_options() -> StoreOptions {
    StoreOptions::default()
}
