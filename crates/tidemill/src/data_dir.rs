//! The store that an offline command works on, and a data directory while nobody else has it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use tidemill_embedded::StoreOptions;
use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::disk::Disk;
use tidemill_embedded::real_disk::RealDisk;

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
        // A look, not a promise: a store is made under the lock.
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
        trusted(config).map_err(CommandError::Unusable)
    }

    fn take(dir: &Path) -> Result<Self, CommandError> {
        let disk = RealDisk::new(dir).map_err(|error| unusable(dir, &error))?;
        let lock = DataLock::take(dir)?;
        Ok(Self { disk: Arc::new(disk), lock })
    }
}

/// The bits of a mode that let in others than the owner.
const OTHERS: u32 = 0o077;

/// The data directory, if it may be opened and asked. One that the user named is. One that is used because it lies in the
/// working directory may have come with a folder that somebody else made, and what waits in it would run as this user. So
/// it must be as only Tidemill makes it: this user's, and closed to all others.
pub(crate) fn trusted(config: &Resolved) -> Result<&Path, String> {
    let dir = config.values.data.as_path();
    let is_named = config.given("TIDEMILL_DATA").is_some_and(|source| source.origin.found_file().is_none());
    if is_named {
        return Ok(dir);
    }
    check_private(dir, rustix::process::geteuid().as_raw())?;
    Ok(dir)
}

/// Checks the directory, its log, and the files of that. What is not there is no danger.
fn check_private(dir: &Path, own: u32) -> Result<(), String> {
    let log = dir.join("log");
    check_one(dir, dir, own)?;
    check_one(dir, &log, own)?;
    let entries = match std::fs::read_dir(&log) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot_look(&log, &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| cannot_look(&log, &error))?;
        check_one(dir, &entry.path(), own)?;
    }
    Ok(())
}

fn check_one(dir: &Path, path: &Path, own: u32) -> Result<(), String> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        // A server that holds the directory removes files at any time.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot_look(path, &error)),
    };
    let mode = found.permissions().mode() & 0o777;
    let problem = if found.is_symlink() {
        "is a symbolic link".to_owned()
    } else if found.uid() != own {
        format!("belongs to user {}, and this runs as user {own}", found.uid())
    } else if mode & OTHERS != 0 {
        format!("has mode {mode:o}, which lets others in")
    } else {
        return Ok(());
    };
    let (dir, path) = (dir.display(), path.display());
    Err(format!(
        "{path} {problem}: the data directory {dir} was not named, and one that came with a copied folder could run its tasks \
         as you; if it is yours, close it with `chmod -R go= {dir}` or name it with `--data {dir}`"
    ))
}

fn cannot_look(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be looked at: {error}", path.display())
}

fn unusable(dir: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Unusable(format!("the data directory {} cannot be used: {error}", dir.display()))
}

/// How offline commands open a store. Nothing is decided here, so no policy matters.
pub(crate) fn store_options() -> StoreOptions {
    StoreOptions::default()
}
