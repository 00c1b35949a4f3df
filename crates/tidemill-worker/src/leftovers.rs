//! What a former life of the server left running.
//!
//! Children die with the spawner, and the spawner cleans up when the server is killed. If both were killed at once,
//! what the children had started lives on. It carries the mark of its data directory and generation, and is killed
//! before its leases are given to others.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::process_table::{Process, ProcessTable};

/// How long killed processes may take to go.
const KILL_WAIT: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What became of the leftovers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leftovers {
    pub killed: Vec<u32>,
    /// Still there: processes that hang in the kernel, or that belong to another user.
    pub survivors: Vec<u32>,
}

/// Kills every process that an earlier generation of this data directory started, and what those started.
///
/// It blocks, for at most a few seconds. Call it before `Engine::recover`.
pub fn kill_leftovers(data_id: &str, generation: u64) -> Leftovers {
    kill_marked(data_id, |found, _| found < generation)
}

/// What a spawner left that died under the server: of all that this life started, what carries such a number.
pub(crate) fn kill_orphans(data_id: &str, generation: u64, is_meant: impl Fn(u64) -> bool) -> Leftovers {
    kill_marked(data_id, |found, number| found == generation && is_meant(number))
}

/// Kills until nothing is left that carries a mark which `is_meant`.
fn kill_marked(data_id: &str, is_meant: impl Fn(u64, u64) -> bool) -> Leftovers {
    let give_up = Instant::now() + KILL_WAIT;
    let mut killed = HashSet::new();
    loop {
        let found = marked(data_id, &is_meant);
        for process in &found {
            killed.insert(process.pid);
            // What may not be killed shows up among the survivors.
            let _ = process.signal(Signal::KILL);
        }
        if found.is_empty() || Instant::now() >= give_up {
            let survivors: Vec<_> = found.iter().map(|process| process.pid).collect();
            killed.retain(|pid| !survivors.contains(pid));
            return Leftovers { killed: killed.into_iter().collect(), survivors };
        }
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "no signal tells that a process of another parent ended")]
fn pause() {
    std::thread::sleep(LOOK_AGAIN);
}

/// The living processes with such a mark, and all that descend from them.
fn marked(data_id: &str, is_meant: impl Fn(u64, u64) -> bool) -> Vec<Process> {
    let table = ProcessTable::read();
    let own = std::process::id();
    let mut is_one: HashMap<u32, bool> = HashMap::new();
    for process in table.processes() {
        let marked = process.is_alive()
            && process
                .mark()
                .and_then(|mark| parse_mark(&mark, data_id))
                .is_some_and(|(a, b)| is_meant(a, b));
        is_one.insert(process.pid, marked);
    }
    let parents: HashMap<u32, u32> = table.processes().map(|process| (process.pid, process.parent)).collect();
    let descends = |process: &Process| {
        let mut at = process.pid;
        for _ in 0..=parents.len() {
            if is_one.get(&at) == Some(&true) {
                return true;
            }
            let Some(parent) = parents.get(&at) else { return false };
            at = *parent;
        }
        false
    };
    let found = table.processes().filter(|process| process.is_alive() && process.pid != own);
    found.filter(|process| descends(process)).copied().collect()
}

/// The generation and the number in a mark of this data directory.
pub(crate) fn parse_mark(mark: &[u8], data_id: &str) -> Option<(u64, u64)> {
    let rest = std::str::from_utf8(mark).ok()?.strip_prefix(data_id)?.strip_prefix('.')?;
    let (generation, number) = rest.split_once('.')?;
    Some((generation.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_belong_to_their_data_directory() {
        for (mark, expected) in [
            ("d1.3.17", Some((3, 17))),
            ("d1.0.0", Some((0, 0))),
            ("d1.3", None),
            ("d1.3.", None),
            ("d1.x.1", None),
            ("d12.3.17", None),
            ("other.3.17", None),
            ("", None),
        ] {
            assert_eq!(parse_mark(mark.as_bytes(), "d1"), expected, "{mark}");
        }
    }
}
