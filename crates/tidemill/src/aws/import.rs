//! `tidemill import` into a stage.
//!
//! The export is made into a store on this machine first. So a line that is wrong is named before the stage is touched, and the
//! stage gets rows that were made as everywhere.

use std::fs::{self, DirBuilder};
use std::io::BufRead;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill::host::random_seed;
use tidemill_aws::{AwsOptions, Connection, RestoreError, check_empty, restore};
use tidemill_embedded::Store;
use tidemill_embedded::real_disk::RealDisk;
use tidemill_embedded::store::import::Imported;
use tidemill_embedded::store::watch::Progress;
use tidemill_engine::clock::{Clock as _, SystemClock};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::access::{access, options};
use crate::commands::{CommandError, StopSignals, runtime_with_threads};
use crate::config::Resolved;
use crate::data_dir::store_options;
use crate::output::Output;

/// How many pieces wait to be put.
const PIECES_MAX: usize = 64;
/// How often progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Makes the empty stage of the settings from an export.
pub(crate) fn import(
    config: &Resolved,
    input: Box<dyn BufRead + Send>,
    out: &mut Output,
) -> Result<Imported, CommandError> {
    let runtime = runtime_with_threads()?;
    let imported = runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let options = options(config, random_seed())?;
        let connection = Box::pin(Connection::open(access(config)?)).await;
        check_empty(&connection, &options).await.map_err(refused)?;
        let staging = Staging::make()?;
        let path = staging.0.clone();
        let reading = Followed::begin(move |told| read(&path, input, &told));
        let imported = reading.end(&mut signals, out).await??;
        let path = staging.0.clone();
        put(&connection, &options, &path, &mut signals, out).await?;
        Ok(imported)
    });
    // A thread that still reads from a terminal is not waited for.
    runtime.shutdown_background();
    imported
}

/// Where the export becomes a store. It goes with this.
struct Staging(PathBuf);

impl Staging {
    fn make() -> Result<Self, CommandError> {
        let path = std::env::temp_dir().join(format!("tidemill-import-{:016x}", random_seed()));
        // What is in an export is for its owner only.
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            CommandError::Unusable(format!(
                "the directory {} cannot be made: {error}; TMPDIR names a place with room for the store",
                path.display()
            ))
        })?;
        Ok(Self(path))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After a signal somebody may still write into it; without the directory they soon fail.
        while let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() == std::io::ErrorKind::DirectoryNotEmpty
        {}
    }
}

/// How far a piece of work is that goes on elsewhere.
type Told = Arc<Mutex<Option<Progress>>>;

/// Work on a thread of its own, with its progress.
struct Followed<T> {
    work: JoinHandle<T>,
    told: Told,
}

impl<T: Send + 'static> Followed<T> {
    fn begin(work: impl FnOnce(Told) -> T + Send + 'static) -> Self {
        let told = Told::default();
        let own = Arc::clone(&told);
        Self { work: tokio::task::spawn_blocking(move || work(own)), told }
    }

    /// Its end, unless a signal comes first.
    async fn end(mut self, signals: &mut StopSignals, out: &mut Output) -> Result<T, CommandError> {
        loop {
            tokio::select! {
                ended = &mut self.work => {
                    return ended.map_err(|error| CommandError::failed("the import ended", &error));
                }
                () = signals.next() => return Err(CommandError::Interrupted),
                () = tokio::time::sleep(LOOK_EVERY) => show_progress(&self.told, out),
            }
        }
    }
}

fn show_progress(told: &Told, out: &mut Output) {
    let progress = told.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(progress) = progress {
        out.progress(progress);
    }
}

fn note(told: &Told, progress: Progress) {
    *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
}

/// Makes a store of the export, or names what is wrong in it.
fn read(path: &Path, mut input: Box<dyn BufRead + Send>, told: &Told) -> Result<Imported, CommandError> {
    let now = SystemClock::start().now();
    let mut watch = |progress| note(told, progress);
    Ok(Store::import(disk(path)?, store_options(), &mut input, now, &mut watch)?)
}

fn disk(path: &Path) -> Result<Arc<RealDisk>, CommandError> {
    let disk = RealDisk::new(path);
    let unusable = |error| CommandError::Unusable(format!("{} cannot be used: {error}", path.display()));
    Ok(Arc::new(disk.map_err(unusable)?))
}

/// Why the stage did not get everything.
enum Short {
    Restore(RestoreError),
    Handing(CommandError),
}

/// Puts the store into the stage.
async fn put(
    connection: &Connection,
    options: &AwsOptions,
    path: &Path,
    signals: &mut StopSignals,
    out: &mut Output,
) -> Result<(), CommandError> {
    let half_full = |words: &str| {
        format!(
            "{words}; the table {} is left half full and nothing opens it: import into a new one",
            options.table
        )
    };
    match put_all(connection, options, path, signals, out).await {
        Ok(()) => Ok(()),
        Err(Short::Restore(error @ (RestoreError::NotEmpty(_) | RestoreError::HalfFull(_)))) => {
            Err(refused(error))
        }
        Err(Short::Restore(error)) => Err(CommandError::Failed(half_full(&error.to_string()))),
        Err(Short::Handing(CommandError::Interrupted)) => {
            out.warn(format_args!("tidemill: {}", half_full("interrupted")));
            Err(CommandError::Interrupted)
        }
        Err(Short::Handing(error)) => Err(CommandError::Failed(half_full(&error.to_string()))),
    }
}

async fn put_all(
    connection: &Connection,
    options: &AwsOptions,
    path: &Path,
    signals: &mut StopSignals,
    out: &mut Output,
) -> Result<(), Short> {
    let (pieces, taken) = mpsc::channel(PIECES_MAX);
    let path = path.to_owned();
    let sender = pieces.clone();
    let handing = Followed::begin(move |told| -> Result<(), CommandError> {
        let mut store = Store::open(disk(&path)?, store_options())?;
        let mut done = 0;
        store.hand_over(&mut |piece| {
            done += 1;
            note(&told, Progress { step: "putting items", done, total: None });
            sender.blocking_send(piece).is_ok()
        })?;
        Ok(())
    });
    // Held until the hand over has ended: its own words say more than that the pieces broke off.
    let mut open = Some(pieces);
    let mut restoring = std::pin::pin!(restore(connection, options, taken));
    let mut handed = std::pin::pin!(handing.end(signals, out));
    loop {
        tokio::select! {
            restored = &mut restoring => return restored.map(drop).map_err(Short::Restore),
            ended = &mut handed, if open.is_some() => {
                ended.and_then(|ended| ended).map_err(Short::Handing)?;
                open = None;
            }
        }
    }
}

fn refused(error: RestoreError) -> CommandError {
    match error {
        RestoreError::Store(fault) => fault.into(),
        error @ RestoreError::CutOff => CommandError::Failed(error.to_string()),
        error @ (RestoreError::NotEmpty(_) | RestoreError::HalfFull(_)) => {
            CommandError::Unusable(error.to_string())
        }
    }
}
