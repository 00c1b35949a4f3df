//! `server.json` in a data directory: the address of the server that holds it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const NAME: &str = "server.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerFile {
    pub(crate) url: String,
    pub(crate) pid: u32,
}

impl ServerFile {
    /// Written whole or not at all. It goes when the server ends in order; otherwise the lock tells that it is stale.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<ServerFileGuard> {
        let path = dir.join(NAME);
        let draft = dir.join(format!("{NAME}.{}", self.pid));
        std::fs::write(&draft, serde_json::to_vec(self).map_err(io::Error::other)?)?;
        std::fs::rename(&draft, &path)?;
        Ok(ServerFileGuard { path })
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
}

impl Drop for ServerFileGuard {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
