//! The trees of processes below the spawner: one per child, with everything that the child started.
//!
//! Orphans become children of the spawner, so every process below it belongs to one of its trees: that of the child
//! it descends from, else the one that its mark, its process group or its session names. A process that hides all of
//! these is ended with the last of the trees it may belong to.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::message::{Answer, ChildExit};
use super::signals::is_living_child;
use crate::moment::Moment;
use crate::process_table::{NewestPid, Process, ProcessTable, page_bytes};

/// How long what a child started may live on after the child ended by itself, to write out its last words.
const LINGER: Duration = Duration::from_millis(500);
/// From the first SIGTERM to SIGKILL for what lingers longer.
const LINGER_GRACE: Duration = Duration::from_secs(5);
/// How often what was killed is looked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long after the first SIGKILL a process that does not die is given up and reported.
const GIVE_UP: Duration = Duration::from_secs(5);
/// How many process ids are tried one by one, rather than by a walk over all processes.
const PROBES_MAX: u32 = 2_000;
/// And for how long after a child started: later, ids may have begun from the lowest again.
const PROBING: Duration = Duration::from_secs(2);

/// One child with all that it started.
#[derive(Debug)]
struct Tree {
    pid: u32,
    started: Instant,
    mark: Vec<u8>,
    /// Set when the child itself ended.
    exited: Option<Instant>,
    ending: Option<Ending>,
    /// When it is killed, unless that is put off.
    deadline: Option<Moment>,
    /// Its child was killed at the deadline.
    expired: bool,
}

impl Tree {
    fn needs_look(&self) -> bool {
        self.exited.is_some() || self.ending.is_some()
    }

    /// The deadline, as long as it has to be watched.
    fn due(&self) -> Option<Moment> {
        self.deadline.filter(|_| self.ending.is_none_or(|ending| !ending.at_once))
    }
}

/// A tree that is being ended.
#[derive(Debug, Clone, Copy)]
struct Ending {
    kill_at: Instant,
    forced: bool,
    /// Without a grace.
    at_once: bool,
}

#[derive(Debug)]
pub(super) struct Trees {
    by_id: HashMap<u64, Tree>,
    ids: HashMap<u32, u64>,
    /// Orphans that hide where they come from, with the trees they may belong to.
    strays: HashMap<(u32, u64), HashSet<u64>>,
    newest: NewestPid,
}

impl Trees {
    pub(super) fn new() -> Self {
        Self { by_id: HashMap::new(), ids: HashMap::new(), strays: HashMap::new(), newest: NewestPid::open() }
    }

    pub(super) fn add(&mut self, id: u64, pid: u32, mark: Vec<u8>, deadline: Option<Moment>) {
        let (started, exited, ending, expired) = (Instant::now(), None, None, false);
        self.by_id.insert(id, Tree { pid, started, mark, exited, ending, deadline, expired });
        self.ids.insert(pid, id);
    }

    /// Puts the deadline of a tree off. One that is over stays so: what was killed does not come back.
    pub(super) fn extend(&mut self, id: u64, deadline: Moment) {
        if let Some(tree) = self.by_id.get_mut(&id).filter(|tree| !tree.expired) {
            tree.deadline = tree.deadline.map(|before| before.max(deadline));
        }
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.by_id.values().filter_map(Tree::due).min()
    }

    /// Kills every tree whose deadline is over.
    pub(super) fn expire(&mut self) {
        let now = Moment::now();
        let is_due = |tree: &Tree| tree.due().is_some_and(|deadline| deadline <= now);
        let due: Vec<_> = self.by_id.iter().filter(|(_, tree)| is_due(tree)).map(|(id, _)| *id).collect();
        for id in due {
            self.end(id, Duration::ZERO);
            if let Some(tree) = self.by_id.get_mut(&id) {
                // A child that ended before has an outcome; only what it left running is killed.
                tree.expired = tree.exited.is_none();
            }
        }
    }

    /// Notes that a process of ours ended. An orphan's end is no news to anybody.
    pub(super) fn reaped(&mut self, pid: u32, exit: ChildExit, answers: &mut Vec<Answer>) {
        let Some(id) = self.ids.remove(&pid) else { return };
        if let Some(tree) = self.by_id.get_mut(&id) {
            tree.exited = Some(Instant::now());
            answers.push(Answer::Exited { id, exit });
        }
    }

    /// Asks everything in a tree to end, and kills what is left after `grace`. A sooner end wins over a later one.
    pub(super) fn end(&mut self, id: u64, grace: Duration) {
        let kill_at = Instant::now() + grace;
        let Some(tree) = self.by_id.get_mut(&id) else { return };
        if let Some(ending) = &mut tree.ending {
            ending.kill_at = ending.kill_at.min(kill_at);
            ending.at_once |= grace.is_zero();
            return;
        }
        tree.ending = Some(Ending { kill_at, forced: false, at_once: grace.is_zero() });
        if !grace.is_zero() {
            self.ask_to_end(id);
        }
    }

    fn ask_to_end(&mut self, id: u64) {
        for process in self.members().remove(&id).unwrap_or_default() {
            // One that cannot be reached is reported in the end.
            let _ = process.signal(Signal::TERM);
            // A stopped process hears nothing but this.
            let _ = process.signal(Signal::CONT);
        }
    }

    /// Resident bytes of a tree.
    pub(super) fn rss(&mut self, id: u64) -> u64 {
        let members = self.members().remove(&id).unwrap_or_default();
        members.iter().map(|process| process.rss_pages).sum::<u64>() * page_bytes()
    }

    /// Whether there is a tree that may have gone since it was looked at.
    pub(super) fn need_look(&self) -> bool {
        self.by_id.values().any(Tree::needs_look)
    }

    /// Advances every tree that has to: reports those that are gone, kills those whose time is over.
    ///
    /// `alone` says that no process is left below the spawner at all.
    pub(super) fn tend(&mut self, alone: bool, answers: &mut Vec<Answer>) {
        if !self.need_look() {
            return;
        }
        if alone || !self.has_more() {
            let gone: Vec<_> =
                self.by_id.iter().filter(|(_, tree)| tree.exited.is_some()).map(|(id, _)| *id).collect();
            for id in gone {
                self.gone(id, Vec::new(), answers);
            }
            if !self.need_look() {
                return;
            }
        }
        let members = self.members();
        let now = Instant::now();
        let ids: Vec<_> =
            self.by_id.iter().filter(|(_, tree)| tree.needs_look()).map(|(id, _)| *id).collect();
        for id in ids {
            let left = members.get(&id).map_or(&[][..], Vec::as_slice);
            self.tend_one(id, left, now, answers);
        }
    }

    fn tend_one(&mut self, id: u64, left: &[Process], now: Instant, answers: &mut Vec<Answer>) {
        let Some(tree) = self.by_id.get_mut(&id) else { return };
        if left.is_empty() {
            if tree.exited.is_some() {
                self.gone(id, Vec::new(), answers);
            }
            return;
        }
        match &mut tree.ending {
            None => {
                if tree.exited.is_some_and(|exited| now >= exited + LINGER) {
                    self.end(id, LINGER_GRACE);
                }
            }
            Some(ending) if now >= ending.kill_at + GIVE_UP => {
                let survivors = left.iter().map(|process| process.pid).collect();
                self.gone(id, survivors, answers);
            }
            Some(ending) if now >= ending.kill_at => {
                ending.forced = true;
                for process in left {
                    // One that cannot be killed is reported in the end.
                    let _ = process.signal(Signal::KILL);
                }
            }
            Some(_) => {}
        }
    }

    fn gone(&mut self, id: u64, survivors: Vec<u32>, answers: &mut Vec<Answer>) {
        let Some(tree) = self.by_id.remove(&id) else { return };
        self.ids.remove(&tree.pid);
        for may_be in self.strays.values_mut() {
            may_be.remove(&id);
        }
        let forced = tree.ending.is_some_and(|ending| ending.forced);
        answers.push(Answer::Gone { id, forced, expired: tree.expired, survivors });
    }

    /// When `tend` must be called again, if nothing else happens before.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let now = Instant::now();
        let looks = self.by_id.values().filter_map(|tree| match (tree.ending, tree.exited) {
            (Some(ending), _) if now < ending.kill_at => Some(ending.kill_at),
            (Some(_), _) => Some(now + LOOK_AGAIN),
            (None, Some(exited)) => Some(exited + LINGER),
            (None, None) => None,
        });
        looks.min()
    }

    /// Whether there is any process below the spawner that is not one of its own running children.
    ///
    /// Most children start nothing that outlives them, and this must cost next to nothing then. A process is younger
    /// than the child that it descends from, so few ids have to be tried.
    fn has_more(&self) -> bool {
        let ended = self.by_id.values().filter(|tree| tree.exited.is_some());
        if ended.clone().any(|tree| tree.started.elapsed() > PROBING) {
            return true;
        }
        let oldest = ended.map(|tree| tree.pid).min();
        let (Some(oldest), Some(newest)) = (oldest, self.newest.read()) else { return true };
        let Some(count) = newest.checked_sub(oldest).filter(|count| *count <= PROBES_MAX) else {
            return true;
        };
        (0..=count).map(|step| oldest + step).any(|pid| !self.ids.contains_key(&pid) && is_living_child(pid))
    }

    /// The living processes of each tree.
    fn members(&mut self) -> HashMap<u64, Vec<Process>> {
        let table = ProcessTable::read();
        let own = std::process::id();
        let mut branches: HashMap<u32, Vec<Process>> = HashMap::new();
        for process in table.processes().filter(|process| process.is_alive()) {
            if let Some(branch) = table.branch_of(process, own) {
                branches.entry(branch.pid).or_default().push(*process);
            }
        }
        let mut members: HashMap<u64, Vec<Process>> = HashMap::new();
        let mut strays = HashMap::new();
        for (pid, processes) in branches {
            let id = self.ids.get(&pid).copied().or_else(|| self.origin_of(&processes));
            if let Some(id) = id {
                members.entry(id).or_default().extend(processes);
                continue;
            }
            let Some(top) = processes.iter().find(|process| process.pid == pid) else { continue };
            let key = (pid, top.started);
            let may_be = self.strays.remove(&key).unwrap_or_else(|| self.by_id.keys().copied().collect());
            // Only what ends now is left that it could belong to.
            for id in may_be.iter().filter(|_| may_be.len() <= 1) {
                members.entry(*id).or_default().extend(&processes);
            }
            if may_be.is_empty() {
                for process in &processes {
                    let _ = process.signal(Signal::KILL);
                }
            }
            strays.insert(key, may_be);
        }
        self.strays = strays;
        members
    }

    /// The tree that orphans come from, by what they cannot all have changed.
    fn origin_of(&self, processes: &[Process]) -> Option<u64> {
        let by_number =
            |number: u32| self.by_id.iter().find(|(_, tree)| tree.pid == number).map(|(id, _)| *id);
        processes.iter().find_map(|process| {
            let by_mark = || {
                let mark = process.mark()?;
                self.by_id.iter().find(|(_, tree)| tree.mark == mark).map(|(id, _)| *id)
            };
            by_mark().or_else(|| by_number(process.group)).or_else(|| by_number(process.session))
        })
    }
}

/// Kills whatever is below this process. True when nothing is left.
pub(super) fn kill_all() -> bool {
    let table = ProcessTable::read();
    let own = std::process::id();
    let mut is_empty = true;
    for process in table.processes().filter(|process| process.is_alive()) {
        if table.branch_of(process, own).is_some() {
            is_empty = false;
            // Looked at again until it is gone.
            let _ = process.signal(Signal::KILL);
        }
    }
    is_empty
}
