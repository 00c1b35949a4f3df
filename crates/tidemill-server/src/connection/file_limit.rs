//! How many files the process may have open: every connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that are not connections: the store's and those of children.
const KEPT_FREE: u64 = 512;

/// Asks for room for `wanted` connections and tells for how many there is.
pub(super) fn make_room(wanted: usize) -> usize {
    let needed = (wanted as u64).saturating_add(KEPT_FREE);
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return wanted };
    if current < needed {
        let raised = limit.maximum.map_or(needed, |most| most.min(needed)).max(current);
        // A refusal leaves the limit as it was, which is looked at below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    }
    let Some(current) = getrlimit(Resource::Nofile).current else { return wanted };
    let room = current.saturating_sub(KEPT_FREE).max(current / 2).max(1);
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX))
}
