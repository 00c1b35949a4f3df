//! The processes of this machine, as `/proc` shows them.
//!
//! A process id may be used again at any time, so a process is known by its id and the moment it started, and signals go
//! through a descriptor that cannot mean another one.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// The variable that every child process carries, and hands on to what it starts.
pub(crate) const MARK_NAME: &str = "TIDEMILL_SPAWN";

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// As the kernel writes it: `R`, `S`, `D`, `Z` and so on.
    pub(crate) state: char,
    /// In ticks since the machine started.
    pub(crate) started: u64,
    /// Resident pages.
    pub(crate) rss_pages: u64,
}

impl Process {
    /// A process as it is now; `None` when there is none.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        Self::parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(pid: u32, stat: &str) -> Option<Self> {
        // The name is in parentheses and may hold anything, parentheses and spaces too.
        let rest = stat.rsplit_once(')')?.1;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut number = |skip: usize| fields.nth(skip)?.parse::<u64>().ok();
        let parent = number(0)?;
        let group = number(0)?;
        let session = number(0)?;
        // Fields 22 and 24 of the line; `session` was the sixth.
        let started = number(15)?;
        let rss_pages = number(1)?;
        let id = |value: u64| u32::try_from(value).unwrap_or(0);
        Some(Self {
            pid,
            parent: id(parent),
            group: id(group),
            session: id(session),
            state,
            started,
            rss_pages,
        })
    }

    /// Whether it can still do anything. A zombie only waits to be asked how it ended.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Sends a signal to exactly this process. One that is gone needs none.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let Some(pid) = Pid::from_raw(self.pid.cast_signed()) else { return Err(Errno::INVAL) };
        let sent = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => match Self::read(self.pid) {
                Some(now) if now.started == self.started => pidfd_send_signal(fd, signal),
                _ => return Ok(()),
            },
            Err(Errno::NOSYS) => kill_process(pid, signal),
            Err(errno) => Err(errno),
        };
        match sent {
            Err(Errno::SRCH) => Ok(()),
            sent => sent,
        }
    }

    /// The mark that it, or what started it, was started with.
    pub(crate) fn mark(&self) -> Option<Vec<u8>> {
        let environment = std::fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let mut entries = environment.split(|byte| *byte == 0);
        entries.find_map(|entry| Some(entry.strip_prefix(MARK_NAME.as_bytes())?.strip_prefix(b"=")?.to_vec()))
    }
}

/// All processes at one moment, by id.
#[derive(Debug, Default)]
pub(crate) struct ProcessTable {
    by_pid: HashMap<u32, Process>,
}

impl ProcessTable {
    pub(crate) fn read() -> Self {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Self::default() };
        let pids = entries.filter_map(|entry| pid_of(&entry.ok()?.file_name()));
        Self::of(pids.filter_map(Process::read))
    }

    pub(crate) fn of(processes: impl IntoIterator<Item = Process>) -> Self {
        Self { by_pid: processes.into_iter().map(|process| (process.pid, process)).collect() }
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.by_pid.values()
    }

    /// The child of `root` that a process descends from, or is; `None` when it does not descend from it.
    pub(crate) fn branch_of(&self, process: &Process, root: u32) -> Option<&Process> {
        let mut at = self.by_pid.get(&process.pid)?;
        // Ids are no older than the moment of reading, but a table read while processes come and go may hold a circle.
        for _ in 0..=self.by_pid.len() {
            if at.parent == root {
                return Some(at);
            }
            at = self.by_pid.get(&at.parent)?;
        }
        None
    }
}

fn pid_of(name: &OsStr) -> Option<u32> {
    std::str::from_utf8(name.as_bytes()).ok()?.parse().ok()
}

/// The bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Tells the id that the kernel gave out last, here or elsewhere in this process namespace.
#[derive(Debug)]
pub(crate) struct NewestPid(Option<File>);

impl NewestPid {
    pub(crate) fn open() -> Self {
        Self(File::open("/proc/loadavg").ok())
    }

    pub(crate) fn read(&self) -> Option<u32> {
        let mut text = [0; 128];
        // The kernel writes the file anew for a read from its beginning.
        let length = self.0.as_ref()?.read_at(&mut text, 0).ok()?;
        let last = text[..length].trim_ascii_end().rsplit(|byte| *byte == b' ').next()?;
        std::str::from_utf8(last).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name_is() {
        let line = "4711 (a ) S 1 (b) S 17 4711 4700 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 321 18446744073709551615 1";
        let process = Process::parse(4711, line).unwrap();
        let expected = Process {
            pid: 4711,
            parent: 17,
            group: 4711,
            session: 4700,
            state: 'S',
            started: 987_654,
            rss_pages: 321,
        };
        assert_eq!(process, expected);
        for cut in ["", "1 (x", "1 (x) S", "1 (x) S 1 1 1 0"] {
            assert_eq!(Process::parse(1, cut), None, "{cut}");
        }
    }

    #[test]
    fn this_process_is_in_the_table() {
        let table = ProcessTable::read();
        let own = table.by_pid[&std::process::id()];
        assert!(own.is_alive() && own.rss_pages > 0);
        assert_eq!(Some(own.started), Process::read(own.pid).map(|process| process.started));
        assert_eq!(table.branch_of(&own, own.parent).map(|branch| branch.pid), Some(own.pid));
        let newest = NewestPid::open();
        let before = newest.read();
        assert!(before.is_some());
        std::process::Command::new("true").status().unwrap();
        assert_ne!(newest.read(), before);
    }

    #[test]
    fn branches_lead_to_the_root_or_nowhere() {
        let process = |pid, parent| Process {
            pid,
            parent,
            group: pid,
            session: pid,
            state: 'S',
            started: 1,
            rss_pages: 1,
        };
        let table = ProcessTable::of([
            process(10, 1),
            process(20, 10),
            process(30, 20),
            process(40, 30),
            process(50, 60),
            process(60, 50),
        ]);
        for (pid, branch) in [(20, Some(20)), (40, Some(20)), (10, None), (50, None)] {
            let found = table.branch_of(&table.by_pid[&pid], 10).map(|branch| branch.pid);
            assert_eq!(found, branch, "{pid}");
        }
    }
}
