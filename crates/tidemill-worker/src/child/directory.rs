//! Where attempts write: a directory of their own while they run, which takes its place in the output tree at the end.
//!
//! So a retry overwrites nothing while it runs, a replaced worker disturbs nobody, and `{output}/{requestId}` always
//! shows the attempt that finished last.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, RenameFlags, mkdirat, renameat_with};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tidemill_model::{Json, MicroUsd, TenantId};

use super::inner_file::InnerDir;
use crate::process_table::Process;
use crate::source::Claim;
use crate::spawner::RunAs;
use crate::trouble::Trouble;

/// Where attempts are while they run. No request id begins with a dot.
const ATTEMPTS: &str = ".attempts";
/// What an agent is to do, in the directory of its attempt.
const AGENT_FILE: &str = "agent.json";
/// Where a child leaves its files.
const ARTIFACTS: &str = "artifacts";
/// What it is given.
const INPUT_FILE: &str = "input.json";
/// What tasks leave is for the user of the worker alone, whatever its umask lets through.
pub(crate) const OWN_DIR: Mode = Mode::RWXU;
pub(crate) const OWN_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Where it is tried whether there is room, and how much of it.
const LOOK: &str = ".look";
const LOOK_BYTES: usize = 64 * 1024;
/// A request id up to this length is the name of its directory.
const NAME_BYTES_MAX: usize = 200;
/// Of a longer one so much is kept, and the rest told by a digest.
const NAME_BYTES_KEPT: usize = 180;

/// The tree of a worker's output.
#[derive(Debug)]
pub(crate) struct OutputTree {
    root: PathBuf,
    /// Where this process keeps its running attempts.
    attempts: PathBuf,
    /// The tenant whose directories stand at the top; those of others stand below `@{tenant}`.
    tenant: Option<TenantId>,
    run_as: Option<RunAs>,
}

/// The directory of one attempt.
#[derive(Debug)]
pub(crate) struct AttemptDirectory {
    pub(crate) path: PathBuf,
    pub(crate) input_file: PathBuf,
    pub(crate) inner: InnerDir,
    /// Where it goes in the end.
    place: PathBuf,
    agent_file: PathBuf,
    run_as: Option<RunAs>,
}

impl OutputTree {
    /// Makes the tree if it is not there, and removes what processes that are gone left of their attempts.
    pub(crate) fn open(root: &Path, tenant: Option<TenantId>, run_as: Option<RunAs>) -> io::Result<Self> {
        make_way(root, run_as)?;
        let root = root.canonicalize()?;
        let all = root.join(ATTEMPTS);
        make_way(&all, run_as)?;
        for entry in fs::read_dir(&all)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_of_living_process) {
                // Another worker may be at the same.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let pid = std::process::id();
        let started = Process::read(pid).map_or(0, |process| process.started);
        let attempts = all.join(format!("{pid}-{started}"));
        make_way(&attempts, run_as)?;
        Ok(Self { root, attempts, tenant, run_as })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Whether an attempt could be begun here: a directory and a file of some size can be made.
    pub(crate) fn look(&self) -> Result<(), Trouble> {
        let path = self.attempts.join(LOOK);
        let made = (|| {
            // Somebody may have cleared the whole tree away.
            make_way(&path, self.run_as)?;
            let file = InnerDir::open(&path)?.create(INPUT_FILE, OWN_FILE);
            file?.write_all(&vec![b'x'; LOOK_BYTES])
        })();
        let removed = fs::remove_dir_all(&path);
        made.and(removed).map_err(|error| Trouble::at(&path, &error))
    }

    /// Makes the directory of an attempt, with its input in it. What stands in the way is the worker's own trouble.
    pub(crate) fn begin(&self, claim: &Claim) -> Result<AttemptDirectory, Trouble> {
        let begun = self.try_begin(claim);
        let begun = match begun {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody cleared the whole tree away.
                make_way(&self.attempts, self.run_as).and_then(|()| self.try_begin(claim))
            }
            begun => begun,
        };
        begun.map_err(|error| Trouble::at(&self.attempts, &error))
    }

    fn try_begin(&self, claim: &Claim) -> io::Result<AttemptDirectory> {
        let name = directory_name(claim.task.request.as_str());
        let (attempts, place) = if self.tenant.as_ref().is_none_or(|own| *own == claim.task.tenant) {
            (self.attempts.clone(), self.root.join(&name))
        } else {
            let tenant = format!("@{}", claim.task.tenant);
            let attempts = self.attempts.join(&tenant);
            make_way(&attempts, self.run_as)?;
            (attempts, self.root.join(tenant).join(&name))
        };
        let path = attempts.join(format!("{name}.r{}-a{}-f{}", claim.run, claim.attempt, claim.fence.0));
        match make(&path) {
            // A former attempt of the same claim in this process; only a source that repeats itself gets here.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir_all(&path)?;
                make(&path)?;
            }
            made => made?,
        }
        let filled = self.fill(&path, claim);
        if filled.is_err() {
            // Nothing may be left where there is no room.
            let _ = fs::remove_dir_all(&path);
        }
        let inner = filled?;
        let input_file = path.join(INPUT_FILE);
        let agent_file = path.join(AGENT_FILE);
        Ok(AttemptDirectory { path, input_file, inner, place, agent_file, run_as: self.run_as })
    }

    fn fill(&self, path: &Path, claim: &Claim) -> io::Result<InnerDir> {
        let inner = InnerDir::open(path)?;
        mkdirat(&inner.0, ARTIFACTS, OWN_DIR)?;
        let mut input = inner.create(INPUT_FILE, OWN_FILE)?;
        input.write_all(claim.input.as_str().as_bytes())?;
        if let Some(RunAs { uid, gid }) = self.run_as {
            for path in [path, &path.join(ARTIFACTS), &path.join(INPUT_FILE)] {
                chown(path, Some(uid), Some(gid))?;
            }
        }
        Ok(inner)
    }
}

/// Makes the directory of an attempt.
fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(OWN_DIR.as_raw_mode()).create(path)
}

/// Makes a directory above those of attempts, and what is missing above it. One that is there stays as it is. Others see
/// nothing of it; the user whom tasks run as passes through.
fn make_way(path: &Path, run_as: Option<RunAs>) -> io::Result<()> {
    let mode = if run_as.is_some() { 0o711 } else { OWN_DIR.as_raw_mode() };
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)
}

impl Drop for OutputTree {
    fn drop(&mut self) {
        // Only if nothing runs any more; otherwise it stays for the next start to clear.
        let _ = fs::remove_dir(&self.attempts);
    }
}

impl AttemptDirectory {
    /// Writes what an agent is to do, for the process that drives it. A budget that has less left than the agent may
    /// spend holds it back.
    pub(crate) fn write_agent(&self, claim: &Claim) -> io::Result<&Path> {
        let mut spec = claim.execution.agent.clone().ok_or(io::ErrorKind::InvalidInput)?;
        let left = claim.budget_left.map(MicroUsd);
        spec.max_cost = spec.max_cost.into_iter().chain(left).min();
        let mut file = self.inner.create(AGENT_FILE, OWN_FILE)?;
        file.write_all(Json::of(&spec).as_str().as_bytes())?;
        if let Some(RunAs { uid, gid }) = self.run_as {
            chown(&self.agent_file, Some(uid), Some(gid))?;
        }
        Ok(&self.agent_file)
    }

    /// Whether there is anything in it but what the child was given.
    pub(crate) fn was_used(&self) -> bool {
        !self.inner.holds_only(&[INPUT_FILE], &[ARTIFACTS])
    }

    /// Puts the directory into its place. What was there before is removed, beside the runtime.
    pub(crate) async fn settle(self: &Arc<Self>) -> io::Result<()> {
        let taken = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists)
        };
        match fs::rename(&self.path, &self.place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(above) = self.place.parent() {
                    make_way(above, self.run_as)?;
                }
                fs::rename(&self.path, &self.place)
            }
            Err(error) if taken(&error) => self.aside(Self::replace).await,
            renamed => renamed,
        }
    }

    fn replace(&self) -> io::Result<()> {
        match renameat_with(CWD, &self.path, CWD, &self.place, RenameFlags::EXCHANGE) {
            Ok(()) => fs::remove_dir_all(&self.path),
            // Not every file system can swap.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                fs::remove_dir_all(&self.place)?;
                fs::rename(&self.path, &self.place)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the directory of an attempt that counts for nothing. What cannot be removed is cleared away at the next
    /// start.
    pub(crate) async fn discard(self: &Arc<Self>) {
        let _ = self.aside(|directory| fs::remove_dir_all(&directory.path)).await;
    }

    /// Removes what was put into its place. What cannot be removed stays.
    pub(crate) async fn remove_settled(self: &Arc<Self>) {
        let _ = self.aside(|directory| fs::remove_dir_all(&directory.place)).await;
    }

    /// Does what may take long beside the runtime.
    async fn aside(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let directory = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&directory))
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn is_of_living_process(name: &str) -> bool {
    let Some((pid, started)) = name.split_once('-') else { return false };
    let (Ok(pid), Ok(started)) = (pid.parse(), started.parse::<u64>()) else { return false };
    Process::read(pid).is_some_and(|process| process.started == started)
}

/// The name of a request's directory: file names have at most 255 bytes.
pub(crate) fn directory_name(request: &str) -> String {
    use std::fmt::Write;
    if request.len() <= NAME_BYTES_MAX {
        return request.to_owned();
    }
    let digest = Sha256::digest(request.as_bytes());
    let mut name = request.get(..NAME_BYTES_KEPT).unwrap_or_default().to_owned();
    name.push('-');
    for byte in &digest[..8] {
        write!(name, "{byte:02x}").expect("writing to a string does not fail");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ids_get_names_that_fit() {
        assert_eq!(directory_name(&"x".repeat(200)), "x".repeat(200));
        let long = directory_name(&"x".repeat(256));
        assert_eq!(long.len(), 197);
        assert!(long.starts_with(&format!("{}-", "x".repeat(180))));
        assert_ne!(long, directory_name(&"x".repeat(255)));
    }

    #[test]
    fn only_this_process_is_alive_under_its_name() {
        let own = Process::read(std::process::id()).unwrap();
        assert!(is_of_living_process(&format!("{}-{}", own.pid, own.started)));
        for name in [format!("{}-{}", own.pid, own.started + 1), "x".into(), "1".into(), "-".into()] {
            assert!(!is_of_living_process(&name), "{name}");
        }
    }
}
