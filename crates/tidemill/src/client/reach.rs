//! Which way a command takes: the server that was named, else the stage on AWS, else the data directory if it is
//! free, else the server that holds it.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tidemill_embedded::OpenError;
use tidemill_embedded::data_lock::{DataLock, LockError};

use super::server_file::ServerFile;
use super::{Client, HttpClient, LocalWay};
use crate::commands::CommandError;
use crate::config::{Origin, Resolved, Source};
use crate::data_dir::trusted;
use crate::node::{Node, NodeError};
use crate::script_pool::ScriptPool;

#[derive(Args)]
pub(crate) struct ReachArguments {
    /// The server to speak to; otherwise the data directory is used, or the server that holds it
    #[arg(long, global = true, value_name = "URL", help_heading = "Where")]
    server: Option<String>,
    /// The API key for the server; better given as `TIDEMILL_API_KEY`, which no list of processes shows
    #[arg(long, global = true, value_name = "KEY", help_heading = "Where")]
    key: Option<String>,
    /// The data directory [default: .tidemill]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Where")]
    data: Option<PathBuf>,
    /// Where everything is kept, embedded or aws [default: embedded]
    #[arg(long, global = true, value_name = "BACKEND", value_parser = ["embedded", "aws"], help_heading = "Where")]
    backend: Option<String>,
}

impl ReachArguments {
    pub(crate) fn flags(&self) -> BTreeMap<&'static str, Source> {
        let mut flags = BTreeMap::new();
        add(&mut flags, "TIDEMILL_SERVER", "--server", self.server.as_ref());
        add(&mut flags, "TIDEMILL_API_KEY", "--key", self.key.as_ref());
        add(&mut flags, "TIDEMILL_DATA", "--data", self.data.as_ref().map(|path| path.display()));
        add(&mut flags, "TIDEMILL_BACKEND", "--backend", self.backend.as_ref());
        flags
    }
}

/// Notes a flag that was given.
pub(crate) fn add(
    flags: &mut BTreeMap<&'static str, Source>,
    setting: &'static str,
    flag: &'static str,
    value: Option<impl ToString>,
) {
    if let Some(value) = value {
        flags.insert(setting, Source::new(value.to_string(), Origin::Flag(flag)));
    }
}

/// What a command does to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It reads: there must be something.
    Existing,
    /// It writes: a store is made if there is none.
    Making,
    /// It writes what nobody carries out in a store that only this command would know of: one is made only where the user
    /// names it.
    MakingNamed,
}

impl Reach {
    pub(crate) async fn client(self, config: &Resolved) -> Result<Client, CommandError> {
        let values = &config.values;
        if let Some(url) = values.server.as_ref().filter(|_| !names_directory(config)) {
            return Ok(Client::Http(Box::new(HttpClient::new(url, values.api_key.clone())?)));
        }
        #[cfg(feature = "aws")]
        if values.backend == crate::config::BackendName::Aws {
            return crate::aws::client(config).await;
        }
        // Before anything in it is believed.
        let data = trusted(config).map_err(CommandError::Unusable)?;
        // A look, not a promise: a store is made under the lock.
        if !data.join("log").is_dir() {
            let shown = data.display();
            let is_named = config.given("TIDEMILL_DATA").is_some();
            let problem = match self {
                Self::Existing => {
                    format!(
                        "there is no data in {shown}; name its directory with --data, or a server with --server"
                    )
                }
                Self::MakingNamed if !is_named && !data.is_dir() => format!(
                    "no server runs here, and there is no data in {shown}, so nobody would do it; start `tidemill serve`, name a \
                     server with --server, or a data directory with --data"
                ),
                Self::Making | Self::MakingNamed => String::new(),
            };
            if !problem.is_empty() {
                return Err(CommandError::Unusable(problem));
            }
        }
        // Opening would wait for a lock that a running server never gives.
        if let Some(server) = running_server(data) {
            return client_of(&server, data, config);
        }
        match Node::open(config).await {
            Ok(node) => {
                let compiler = Arc::new(ScriptPool::new(values));
                Ok(Client::Local(LocalWay::new(Arc::new(node), config.server_config(), compiler)))
            }
            Err(NodeError::Open(OpenError::Lock(LockError::Held { dir, holder }))) => {
                // The process that holds the directory now may not be the one that wrote the file.
                let server = ServerFile::read(data).filter(|server| server.pid.to_string() == holder);
                let Some(server) = server else {
                    return Err(CommandError::Unusable(format!(
                        "the data directory {dir} is in use by process {holder}, which is no server on a loopback address; wait for it to \
                         end, or name the server with --server"
                    )));
                };
                client_of(&server, data, config)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether a flag names the directory and none the server: a flag counts for more than what the environment says.
fn names_directory(config: &Resolved) -> bool {
    let is_flag = |name| config.given(name).is_some_and(|source| matches!(source.origin, Origin::Flag(_)));
    is_flag("TIDEMILL_DATA") && !is_flag("TIDEMILL_SERVER")
}

/// The way to a server that holds the directory. It gets a key only if its files are this user's or root's.
fn client_of(server: &ServerFile, data: &Path, config: &Resolved) -> Result<Client, CommandError> {
    let key = config.values.api_key.clone();
    if key.is_some() {
        ServerFile::check_owners(data).map_err(CommandError::Unusable)?;
    }
    Ok(Client::Http(Box::new(HttpClient::new(&server.url, key)?)))
}

/// A server on this machine that does not take a connection within this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The server that has the directory and answers. One that was killed a moment ago may still have it.
fn running_server(data: &Path) -> Option<ServerFile> {
    let server = ServerFile::read(data)?;
    if DataLock::holder(data)? != server.pid.to_string() {
        return None;
    }
    TcpStream::connect_timeout(&server.address()?, CONNECT_TIMEOUT).ok().map(|_| server)
}
