//! `server.json` in a data directory: the address of the server that holds it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

const NAME: &str = "server.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerFile {
    pub(crate) url: String,
    pub(crate) pid: u32,
}

/// How often the file is tried again when there was no space for it.
const RETRY: Duration = Duration::from_secs(2);

impl ServerFile {
    /// Keeps the file in `dir` as long as the guard lives. If it cannot be written now, `warn` hears why, and it is tried
    /// again until it can. Needs a tokio runtime.
    pub(crate) fn keep(self, dir: &Path, warn: impl FnOnce(&io::Error)) -> ServerFileGuard {
        let (path, dir) = (dir.join(NAME), dir.to_owned());
        let retrying = self.write(&dir).err().map(|error| {
            warn(&error);
            tokio::spawn(async move {
                while self.write(&dir).is_err() {
                    tokio::time::sleep(RETRY).await;
                }
            })
        });
        ServerFileGuard { path, retrying }
    }

    /// Written whole or not at all. It goes when the server ends in order; otherwise the lock tells that it is stale.
    fn write(&self, dir: &Path) -> io::Result<()> {
        let draft = dir.join(format!("{NAME}.{}", self.pid));
        let written = serde_json::to_vec(self)
            .map_err(io::Error::other)
            .and_then(|bytes| std::fs::write(&draft, bytes))
            .and_then(|()| std::fs::rename(&draft, dir.join(NAME)));
        if written.is_err() {
            let _ = std::fs::remove_file(&draft);
        }
        written
    }

    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let bytes = std::fs::read(dir.join(NAME)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// Removes the file when the server ends.
#[derive(Debug)]
pub(crate) struct ServerFileGuard {
    path: PathBuf,
    retrying: Option<JoinHandle<()>>,
}

impl Drop for ServerFileGuard {
    fn drop(&mut self) {
        if let Some(retrying) = &self.retrying {
            retrying.abort();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
