//! `server.json` in a data directory: the address of the server that holds it.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use crate::token_key::may_own;

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
            .and_then(|bytes| write_private(&draft, &bytes))
            .and_then(|()| std::fs::rename(&draft, dir.join(NAME)));
        if written.is_err() {
            // The next try writes over it.
            let _ = std::fs::remove_file(&draft);
        }
        written
    }

    /// The server that the file names, if it is on this machine.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let bytes = std::fs::read(dir.join(NAME)).ok()?;
        let file: Self = serde_json::from_slice(&bytes).ok()?;
        file.address().is_some().then_some(file)
    }

    /// Where it listens. A server on another machine holds no directory here, so only this machine's own address counts.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let address: SocketAddr = self.url.strip_prefix("http://")?.parse().ok()?;
        address.ip().is_loopback().then_some(address)
    }

    /// Checks that the users who wrote the address and hold the directory may have this user's key.
    pub(crate) fn check_owners(dir: &Path) -> Result<(), String> {
        let own = rustix::process::geteuid().as_raw();
        for name in [NAME, "LOCK"] {
            let path = dir.join(name);
            let shown = path.display();
            let found = std::fs::symlink_metadata(&path)
                .map_err(|error| format!("{shown} cannot be looked at: {error}"))?;
            if !may_own(found.uid(), own) {
                return Err(format!(
                    "{shown} belongs to user {}, who gets no key of user {own}; name the server with --server to send it the \
                     key",
                    found.uid()
                ));
            }
        }
        Ok(())
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
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
        // The lock tells that one which stays is stale.
        let _ = std::fs::remove_file(&self.path);
    }
}
