//! How many files may be open: many in this process, as many as at the start in its children.

use std::ffi::{OsStr, OsString};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many files this process could have open when it started.
static FILES_AT_START: OnceLock<u64> = OnceLock::new();

/// As many open files as the system lets this process have: every task and connection needs some.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Some(current) = limit.current.filter(|_| limit.current != limit.maximum) {
        let _ = FILES_AT_START.set(current);
        // The old limit works too, only for fewer.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

/// The limit that children are to have, as an argument of the spawner: many programs walk through all the descriptors
/// they might have.
pub(crate) fn limit_of_children() -> Option<OsString> {
    FILES_AT_START.get().map(|files| files.to_string().into())
}

/// What the spawner does first with its argument.
pub(crate) fn lower_file_limit(files: Option<&OsStr>) {
    if let Some(files) = files.and_then(OsStr::to_str).and_then(|files| files.parse().ok()) {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // It is a lower one, so nothing speaks against it.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum });
    }
}
