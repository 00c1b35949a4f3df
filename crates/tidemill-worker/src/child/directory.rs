//! Where attempts write: a directory of their own, which stays where it is, so that a path a task named is good
//! afterwards.
//!
//! It lies in the directory of its task, beside links to what the attempt left that finished last. So a retry overwrites
//! nothing, a replaced worker disturbs nobody, and `{output}/{requestId}/artifacts` always shows the attempt that finished
//! last. Its name holds the fence: no file of an attempt that was killed is ever taken for one of the next.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, mkdirat};
use sha2::{Digest, Sha256};
use tidemill_engine::warn_seldom;
use tidemill_model::values::hex;
use tidemill_model::{Fence, Json, MicroUsd, RequestId, TenantId};

use super::inner_file::InnerDir;
use crate::process_table::Process;
use crate::source::HeldTask;
use crate::spawner::RunAs;
use crate::trouble::Trouble;

/// Where it is noted which attempts run, by the process that runs them. No request id begins with a dot.
const ATTEMPTS: &str = ".attempts";
/// The link to the attempt that finished last, in the directory of its task.
const LAST: &str = "last";
/// What of that attempt is shown beside it.
const SHOWN: [&str; 4] = [INPUT_FILE, ARTIFACTS, "logs", "traces"];
/// Where a child finds what its parents left.
const INPUTS: &str = "inputs";
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
/// How much of a longer name is kept; a digest stands for the rest.
const NAME_BYTES_KEPT: usize = 180;

/// Names the notes of all workers of this process.
static NOTES: AtomicU64 = AtomicU64::new(0);

/// The tree of a worker's output.
#[derive(Debug)]
pub(crate) struct OutputTree {
    root: PathBuf,
    /// Where this process notes its running attempts.
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
    /// Where a child finds what its parents left.
    pub(crate) inputs: PathBuf,
    /// The directory of its task.
    place: PathBuf,
    /// Its own name in there.
    name: String,
    /// Says that it runs.
    note: PathBuf,
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
                note_left(&entry.path(), clear(&root, &entry.path()));
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
    pub(crate) fn begin(&self, claim: &HeldTask) -> Result<AttemptDirectory, Trouble> {
        let begun = match self.try_begin(claim) {
            // Somebody cleared the whole tree away, or the directory of the task with its last attempt.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.try_begin(claim),
            begun => begun,
        };
        begun.map_err(|error| Trouble::at(&self.root, &error))
    }

    /// Where an attempt on this machine left its files, if it ran here.
    pub(crate) fn attempt_of(
        &self,
        tenant: &TenantId,
        request: &RequestId,
        (run, attempt, fence): (u32, u32, Fence),
    ) -> PathBuf {
        self.root.join(self.place_of(tenant, request)).join(attempt_name(run, attempt, fence))
    }

    /// The directory of a task below the root.
    fn place_of(&self, tenant: &TenantId, request: &RequestId) -> PathBuf {
        let name = directory_name(request.as_str());
        if self.tenant.as_ref().is_none_or(|own| own == tenant) {
            PathBuf::from(name)
        } else {
            Path::new(&format!("@{tenant}")).join(name)
        }
    }

    fn try_begin(&self, claim: &HeldTask) -> io::Result<AttemptDirectory> {
        let inner_place = self.place_of(&claim.task.tenant, &claim.task.request);
        let name = attempt_name(claim.run, claim.attempt, claim.fence);
        let place = self.root.join(&inner_place);
        let path = place.join(&name);
        make_way(&self.attempts, self.run_as)?;
        let note = self.attempts.join(NOTES.fetch_add(1, Ordering::Relaxed).to_string());
        symlink(inner_place.join(&name), &note)?;
        let made = make_way(&place, self.run_as).and_then(|()| match make(&path) {
            // A former attempt of the same claim in this process; only a source that repeats itself gets here.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_dir_all(&path)?;
                make(&path)
            }
            made => made,
        });
        let filled = made.and_then(|()| self.fill(&path, claim));
        if filled.is_err() {
            // Nothing may be left where there is no room.
            note_left(&path, fs::remove_dir_all(&path));
            note_left(&place, fs::remove_dir(&place));
            note_left(&note, fs::remove_file(&note));
        }
        let inner = filled?;
        let input_file = path.join(INPUT_FILE);
        let (agent_file, inputs) = (path.join(AGENT_FILE), path.join(INPUTS));
        Ok(AttemptDirectory {
            path,
            input_file,
            inner,
            inputs,
            place,
            name,
            note,
            agent_file,
            run_as: self.run_as,
        })
    }

    fn fill(&self, path: &Path, claim: &HeldTask) -> io::Result<InnerDir> {
        let inner = InnerDir::open(path)?;
        mkdirat(&inner.0, ARTIFACTS, OWN_DIR)?;
        mkdirat(&inner.0, INPUTS, OWN_DIR)?;
        let mut input = inner.create(INPUT_FILE, OWN_FILE)?;
        input.write_all(claim.input.as_str().as_bytes())?;
        if let Some(RunAs { uid, gid }) = self.run_as {
            for path in [path, &path.join(ARTIFACTS), &path.join(INPUT_FILE)] {
                chown(path, Some(uid), Some(gid))?;
            }
            // The child looks into it, and what is in there stays the worker's.
            fs::set_permissions(path.join(INPUTS), fs::Permissions::from_mode(0o755))?;
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
    pub(crate) fn write_agent(&self, claim: &HeldTask) -> io::Result<&Path> {
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

    /// Whether the child runs as another user than this process.
    pub(crate) fn is_for_another(&self) -> bool {
        self.run_as.is_some()
    }

    /// Whether there is anything in it but what the child was given.
    pub(crate) fn was_used(&self) -> bool {
        !self.inner.holds_only(&[INPUT_FILE], &[ARTIFACTS])
    }

    /// Shows the attempt as the one of its task that finished last. What the last one left before it is removed, beside the
    /// runtime.
    pub(crate) async fn settle(self: &Arc<Self>) -> io::Result<()> {
        for name in SHOWN {
            if self.path.join(name).exists() {
                link(&Path::new(LAST).join(name), &self.place.join(name), &self.name)?;
            }
        }
        let last = self.place.join(LAST);
        let former = fs::read_link(&last).ok();
        link(Path::new(&self.name), &last, &self.name)?;
        // If it stays, the next start finds an attempt that is shown, and leaves it.
        note_left(&self.note, fs::remove_file(&self.note));
        match former.as_deref().and_then(attempt_in) {
            Some(former) if former != self.name => {
                let former = self.place.join(former);
                self.aside(move |_| fs::remove_dir_all(former)).await
            }
            _ => Ok(()),
        }
    }

    /// Removes what the child was given of its parents: it is theirs.
    pub(crate) async fn remove_inputs(self: &Arc<Self>) {
        // Most have no parents that left anything. What cannot be removed stays with the attempt.
        if fs::remove_dir(&self.inputs).is_err() {
            note_left(&self.inputs, self.aside(|directory| fs::remove_dir_all(&directory.inputs)).await);
        }
    }

    /// Removes the directory of an attempt that counts for nothing. What cannot be removed is cleared away at the next
    /// start.
    pub(crate) async fn discard(self: &Arc<Self>) {
        let removed = self.aside(|directory| {
            fs::remove_dir_all(&directory.path)?;
            // Another attempt may be in there.
            let _ = fs::remove_dir(&directory.place);
            fs::remove_file(&directory.note)
        });
        note_left(&self.path, removed.await);
    }

    /// Removes an attempt that is shown, with what shows it. What cannot be removed stays.
    pub(crate) async fn remove_settled(self: &Arc<Self>) {
        let removed = self.aside(|directory| {
            let last = directory.place.join(LAST);
            if fs::read_link(&last).is_ok_and(|shown| shown == Path::new(&directory.name)) {
                for name in [LAST].into_iter().chain(SHOWN) {
                    // Not every attempt leaves all of them.
                    let _ = fs::remove_file(directory.place.join(name));
                }
            }
            fs::remove_dir_all(&directory.path)?;
            // Another attempt may be in there.
            fs::remove_dir(&directory.place)
        });
        note_left(&self.path, removed.await);
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

/// Makes a link, in the place of another one or of what a former release left there. `unique` distinguishes callers
/// that do so at the same time.
fn link(target: &Path, at: &Path, unique: &str) -> io::Result<()> {
    match symlink(target, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    if fs::read_link(at).is_ok_and(|now| now == target) {
        return Ok(());
    }
    let new = at.with_file_name(format!(".{unique}.new"));
    // It is there only if somebody died here; if it stays, the next line says so.
    let _ = fs::remove_file(&new);
    symlink(target, &new)?;
    match fs::rename(&new, at) {
        Err(_) if fs::symlink_metadata(at).is_ok_and(|found| found.is_dir()) => {
            fs::remove_dir_all(at)?;
            fs::rename(&new, at)
        }
        renamed => renamed,
    }
}

/// Logs what could not be removed. It harms no task, but takes room. A file that is gone already or still in use is
/// no trouble.
pub(super) fn note_left(path: &Path, removed: io::Result<()>) {
    if let Err(error) = removed
        && !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty)
    {
        warn_seldom!(error, path = %path.display(), "something of an attempt could not be removed");
    }
}

/// Removes what a process that is gone left of its attempts, and its notes of them.
fn clear(root: &Path, notes: &Path) -> io::Result<()> {
    for note in fs::read_dir(notes)? {
        let note = note?.path();
        // A former release had the attempts themselves in there.
        let Ok(attempt) = fs::read_link(&note) else { continue };
        let attempt = root.join(attempt);
        let (Some(place), Some(name)) = (attempt.parent(), attempt.file_name()) else { continue };
        // One that finished may not have come to say so.
        if fs::read_link(place.join(LAST)).is_ok_and(|shown| shown == Path::new(name)) {
            continue;
        }
        note_left(&attempt, fs::remove_dir_all(&attempt));
        note_left(place, fs::remove_dir(place));
    }
    fs::remove_dir_all(notes)
}

fn attempt_name(run: u32, attempt: u32, fence: Fence) -> String {
    format!("r{run}-a{attempt}-f{}", fence.0)
}

/// The name of an attempt that a link leads to, if it is one.
fn attempt_in(target: &Path) -> Option<&str> {
    let name = target.to_str()?;
    (name.starts_with('r') && !name.contains('/')).then_some(name)
}

fn is_of_living_process(name: &str) -> bool {
    let Some((pid, started)) = name.split_once('-') else { return false };
    let (Ok(pid), Ok(started)) = (pid.parse(), started.parse::<u64>()) else { return false };
    Process::read(pid).is_some_and(|process| process.started == started)
}

/// The name of a request's directory: file names have at most 255 bytes.
pub(crate) fn directory_name(request: &str) -> String {
    if request.len() <= NAME_BYTES_MAX {
        return request.to_owned();
    }
    let digest = Sha256::digest(request.as_bytes());
    format!("{}-{}", request.get(..NAME_BYTES_KEPT).unwrap_or_default(), hex::encode(&digest[..8]))
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
