//! The home of an agent: where finished steps and the sessions of its CLI are kept while a run of its task goes on.
//!
//! All attempts of a run on this machine share it, so that a later one pays nothing twice. It goes with the run. What is
//! left of runs that ended elsewhere is cleared away when the worker starts.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tidemill_engine::warn_seldom;
use tidemill_model::SessionId;

use super::directory::{OutputTree, directory_name, note_left};
use crate::source::HeldTask;
use crate::spawner::RunAs;

/// Below the output directory. No request id begins with a dot.
const HOMES: &str = ".agents";
/// A home that nobody came back to for this long is cleared away.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Beside the home, so that no agent can write it: the session of an attempt that may never report it.
const SESSION_ENDING: &str = ".session";

/// Where the homes of all agents of a worker are.
#[derive(Debug)]
pub(crate) struct AgentHomes {
    root: PathBuf,
    run_as: Option<RunAs>,
}

/// The home of the agent of one run.
#[derive(Debug)]
pub(crate) struct AgentHome {
    pub(crate) path: PathBuf,
    /// Where the session is noted.
    session: PathBuf,
}

impl AgentHomes {
    /// Clears away what was forgotten. Nothing is made before it is needed.
    pub(crate) fn open(tree: &OutputTree, run_as: Option<RunAs>) -> Self {
        let root = tree.root().join(HOMES);
        if let Ok(entries) = fs::read_dir(&root) {
            for entry in entries.flatten().filter(is_forgotten) {
                // What cannot be removed stays until the next start.
                note_left(&entry.path(), remove(&entry.path()));
            }
        }
        Self { root, run_as }
    }

    /// The home for a run, made if it is not there.
    pub(crate) fn begin(&self, claim: &HeldTask) -> io::Result<AgentHome> {
        make_private(fs::DirBuilder::new().recursive(true), &self.root)?;
        let name = directory_name(&format!("{}.{}", claim.task.tenant, claim.task.request));
        let name = format!("{name}.r{}", claim.run);
        let path = self.root.join(&name);
        make_private(&mut fs::DirBuilder::new(), &path)?;
        if let Some(RunAs { uid, gid }) = self.run_as {
            // To go through is enough for the way there.
            fs::set_permissions(&self.root, fs::Permissions::from_mode(0o711))?;
            chown(&path, Some(uid), Some(gid))?;
        }
        Ok(AgentHome { path, session: self.root.join(format!("{name}{SESSION_ENDING}")) })
    }
}

fn make_private(builder: &mut fs::DirBuilder, path: &Path) -> io::Result<()> {
    match builder.mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

impl AgentHome {
    /// Notes the session, for an attempt that is killed before it can report.
    pub(crate) fn note_session(&self, session: &SessionId) {
        use std::io::Write as _;
        let file =
            fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&self.session);
        // Without it the next attempt starts over.
        if let Err(error) = file.and_then(|mut file| file.write_all(session.as_str().as_bytes())) {
            warn_seldom!(error, path = %self.session.display(), "the session of an agent could not be noted");
        }
    }

    /// The session that was noted last in this run, here.
    pub(crate) fn noted_session(&self) -> Option<SessionId> {
        SessionId::new(fs::read_to_string(&self.session).ok()?).ok()
    }

    /// Removes the home of a run that is over. What cannot be removed is cleared away at a later start.
    pub(crate) async fn remove(self) {
        let removing = tokio::task::spawn_blocking(move || {
            note_left(&self.path, remove(&self.path));
            note_left(&self.session, remove(&self.session));
        });
        // It fails only if the runtime ends.
        let _ = removing.await;
    }
}

fn is_forgotten(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|found| found.modified());
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with the times of files, which come from this clock"
    )]
    let now = SystemTime::now();
    modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > FORGOTTEN))
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}
