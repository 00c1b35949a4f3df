//! What a task is given of its parents' files: `inputs/{taskId}/…` in the directory of its attempt.
//!
//! A file that the parent's attempt left on this machine is given as a second name of it, a hard link: a child that
//! passes it on with `cp -r` or `mv` passes on a file. Any other is fetched. Either way its content is the one that
//! the parent's completion names: a file that was changed since, or was stored without its secrets, is fetched too.
//!
//! A child must not be able to change what its parents left, for its siblings rely on it. A file with a second name is made
//! read-only; one that has other names already, which its task gave it, is fetched and stays as it is. Where children run
//! as another user, the files of their parents belong to that user, so nothing is linked: they get copies that belong to
//! the worker.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, linkat};
use sha2::{Digest, Sha256};
use tidemill_engine::engine::ParentFiles;
use tidemill_model::values::hex;
use tidemill_model::work::artifact::ARTIFACTS_FOLDER;
use tidemill_model::{ArtifactFile, Backoff, ErrorCategory};
use tokio::time::Instant;

use super::directory::AttemptDirectory;
use super::inner_file::InnerDir;
use crate::command_worker::Shared;
use crate::source::{HeldTask, SourceError, TaskSource};
use crate::trouble::{Lack, Trouble};

/// The bytes that are fetched for one attempt.
const FETCHED_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
/// How often a file is fetched whose content is another one than it should be.
const FETCHES_MAX: u32 = 3;
/// How much of a file is read at a time.
const READ_BYTES: usize = 64 * 1024;
/// What helps where a file of a completed task is gone.
pub(crate) const NO_SECOND_RUN: &str = "a completed task does not run again, so submit its job anew";
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Why a task cannot have what its parents left.
#[derive(Debug)]
pub(crate) enum NoInputs {
    /// The lease is lost.
    Lost,
    /// The task fails for it.
    Failed(String, ErrorCategory),
    /// This worker cannot get them now.
    Unable(Trouble),
}

/// Puts the files of all parents into their places.
pub(crate) async fn place<S: TaskSource>(
    shared: &Shared<S>,
    claim: &HeldTask,
    directory: &Arc<AttemptDirectory>,
) -> Result<(), NoInputs> {
    let until = Instant::now() + shared.config.upload_patience;
    let mut fetched_bytes = 0;
    let has_own_files = !directory.is_for_another();
    for parent in &claim.parents {
        let key = (parent.run, parent.attempt, parent.fence);
        let left = shared.tree.attempt_of(&claim.task.tenant, &parent.request, key);
        let left = Some(left).filter(|left| has_own_files && left.is_dir());
        for artifact in &parent.artifacts {
            let at = Place::of(directory, parent, artifact)?;
            if let Some(left) = &left
                && at.link(left).await?
            {
                continue;
            }
            fetched_bytes += artifact.size_bytes;
            if fetched_bytes > FETCHED_BYTES_MAX {
                let message = format!(
                    "the artifacts of its dependencies that are fetched are more than {FETCHED_BYTES_MAX} bytes"
                );
                return Err(failed(message, ErrorCategory::Validation));
            }
            at.fetch(shared, claim, until).await?;
        }
    }
    Ok(())
}

fn failed(message: String, category: ErrorCategory) -> NoInputs {
    NoInputs::Failed(message, category)
}

/// Where one file of a parent goes.
struct Place<'a> {
    directory: &'a Arc<AttemptDirectory>,
    parent: &'a ParentFiles,
    artifact: &'a ArtifactFile,
    path: PathBuf,
}

impl<'a> Place<'a> {
    fn of(
        directory: &'a Arc<AttemptDirectory>,
        parent: &'a ParentFiles,
        artifact: &'a ArtifactFile,
    ) -> Result<Self, NoInputs> {
        if let Some((field, problem)) = artifact.problem() {
            let message = format!(
                "an artifact of task {} cannot be given to this one: its {field} {problem}",
                parent.task
            );
            return Err(failed(message, ErrorCategory::Validation));
        }
        let path = directory.inputs.join(parent.task.as_str()).join(&artifact.path);
        Ok(Self { directory, parent, artifact, path })
    }

    fn name(&self) -> String {
        format!("artifact {:?} of task {}", self.artifact.path, self.parent.task)
    }

    /// Links to the file if it is there as its task left it. False: it is not.
    async fn link(&self, left: &Path) -> Result<bool, NoInputs> {
        let (directory, path, artifact) =
            (Arc::clone(self.directory), self.path.clone(), self.artifact.clone());
        let left = left.to_owned();
        let linked = tokio::task::spawn_blocking(move || {
            let Ok(file) = seal(&left, &artifact) else { return Ok(false) };
            make_way(&directory, &path)?;
            give_name(&file, &path)
        });
        self.done(linked.await)
    }

    /// Gets the file from the source, as often as it takes.
    async fn fetch<S: TaskSource>(
        &self,
        shared: &Shared<S>,
        claim: &HeldTask,
        until: Instant,
    ) -> Result<(), NoInputs> {
        let (mut pauses, mut fetches) = (PAUSES, 0);
        let bytes = loop {
            match shared.source.artifact(claim, self.parent, &self.artifact.path).await {
                Ok(bytes) => {
                    fetches += 1;
                    let hashed = tokio::task::spawn_blocking(move || (sha256_of(&bytes), bytes)).await;
                    let (sha256, bytes) =
                        hashed.map_err(|error| NoInputs::Unable(Trouble::new(Lack::Inputs, error)))?;
                    if bytes.len() as u64 == self.artifact.size_bytes && sha256 == self.artifact.sha256 {
                        break bytes;
                    }
                    if fetches == FETCHES_MAX {
                        let message =
                            format!("{} is not what its task left: its content has changed", self.name());
                        return Err(failed(message, ErrorCategory::Validation));
                    }
                }
                Err(SourceError::Lost) => return Err(NoInputs::Lost),
                Err(SourceError::Refused(problem)) => {
                    let message = format!("{} cannot be had: {problem}; {NO_SECOND_RUN}", self.name());
                    return Err(failed(message, ErrorCategory::NotFound));
                }
                Err(SourceError::Unavailable(problem)) if Instant::now() >= until => {
                    let detail = format!("{}: {problem}", self.name());
                    return Err(NoInputs::Unable(Trouble::new(Lack::Inputs, detail)));
                }
                Err(SourceError::Unavailable(_)) => {}
            }
            tokio::time::sleep(pauses.pause()).await;
        };
        let (directory, path) = (Arc::clone(self.directory), self.path.clone());
        let written = tokio::task::spawn_blocking(move || {
            make_way(&directory, &path)?;
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(&bytes)?;
            let mode = if directory.is_for_another() { 0o444 } else { 0o400 };
            file.set_permissions(Permissions::from_mode(mode))
        });
        self.done(written.await)
    }

    fn done<T>(&self, done: Result<io::Result<T>, tokio::task::JoinError>) -> Result<T, NoInputs> {
        match done {
            Ok(Ok(done)) => Ok(done),
            // Two names of which one is a folder of the other: no task left such files.
            Ok(Err(error))
                if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) =>
            {
                let message = format!("{} cannot be given to this one: {error}", self.name());
                Err(failed(message, ErrorCategory::Validation))
            }
            Ok(Err(error)) => Err(NoInputs::Unable(Trouble::at(&self.path, &error))),
            Err(error) => Err(NoInputs::Unable(Trouble::new(Lack::Inputs, error))),
        }
    }
}

/// Gives a file one more name. False: it cannot have one, because it has as many as it may, or because of its file system.
fn give_name(file: &File, path: &Path) -> io::Result<bool> {
    // By its descriptor: what the name that it was opened by means may have changed meanwhile.
    let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, opened, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => Ok(true),
        Err(error @ (rustix::io::Errno::EXIST | rustix::io::Errno::NOTDIR)) => Err(error.into()),
        // The file is copied then, which tells if that fails too.
        Err(_) => Ok(false),
    }
}

/// Checks that a file is as its task left it, and makes it read-only.
fn seal(left: &Path, artifact: &ArtifactFile) -> io::Result<File> {
    let inner = InnerDir::open(left)?;
    let (mut file, size) = inner.file(&Path::new(ARTIFACTS_FOLDER).join(&artifact.path))?;
    if size != artifact.size_bytes || sha256_of_file(&mut file)? != artifact.sha256 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let found = file.metadata()?;
    let mode = found.permissions().mode();
    if mode & 0o222 != 0 {
        if found.nlink() > 1 {
            // Its task has it under another name too, where it may be written.
            return Err(io::ErrorKind::Unsupported.into());
        }
        file.set_permissions(Permissions::from_mode(mode & 0o555))?;
    }
    Ok(file)
}

/// Makes the directories above a file of a parent. They belong to the worker; the user who runs the child may look
/// into them.
fn make_way(directory: &AttemptDirectory, path: &Path) -> io::Result<()> {
    let mode = if directory.is_for_another() { 0o755 } else { 0o700 };
    let Some(above) = path.parent() else { return Ok(()) };
    let inner = above.strip_prefix(&directory.path).unwrap_or(above);
    let mut at = directory.path.clone();
    for part in inner.components() {
        at.push(part);
        match fs::DirBuilder::new().mode(mode).create(&at) {
            // Whatever the umask is.
            Ok(()) => fs::set_permissions(&at, Permissions::from_mode(mode))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The digest of some content, as it is written.
pub(crate) fn sha256_of(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}

fn sha256_of_file(file: &mut File) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(&digest.finalize())),
            count => digest.update(&buffer[..count]),
        }
    }
}
