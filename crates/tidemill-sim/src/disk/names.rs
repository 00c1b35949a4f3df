//! Which files have which names, and which of that a power loss may undo.

use std::collections::{BTreeMap, BTreeSet};

use super::inode::Fate;
use crate::rng::Rng;

/// Names a file on the disk, whatever its paths are.
pub(super) type InodeId = u64;

/// The directory tree.
#[derive(Debug, Default)]
pub(super) struct Names {
    dirs: BTreeSet<String>,
    seen: BTreeMap<String, InodeId>,
    /// What each name stands for durably, with the number of the change that made it so.
    kept: BTreeMap<String, (u64, Option<InodeId>)>,
    /// Changes that were not synced, in the order they were made.
    unsynced: Vec<Change>,
    changes: u64,
}

#[derive(Debug, Clone)]
struct Change {
    number: u64,
    /// The directory whose sync makes it durable: that of the new name, if there is one.
    dir: String,
    removed: Option<String>,
    added: Option<(String, InodeId)>,
}

impl Names {
    /// Directories are durable at once, as the port promises.
    pub(super) fn create_dir(&mut self, path: &str) {
        let mut path = path;
        loop {
            self.dirs.insert(path.to_owned());
            let above = parent(path);
            if above == path {
                return;
            }
            path = above;
        }
    }

    pub(super) fn has_dir(&self, path: &str) -> bool {
        path.is_empty() || self.dirs.contains(path)
    }

    pub(super) fn find(&self, path: &str) -> Option<InodeId> {
        self.seen.get(path).copied()
    }

    pub(super) fn list(&self, dir: &str) -> Vec<String> {
        let here = self.seen.keys().filter(|path| parent(path) == dir);
        here.map(|path| path.rsplit('/').next().unwrap_or(path).to_owned()).collect()
    }

    pub(super) fn seen(&self) -> impl Iterator<Item = InodeId> {
        self.seen.values().copied()
    }

    /// All files with their paths, in order.
    pub(super) fn named(&self) -> impl Iterator<Item = (&str, InodeId)> {
        self.seen.iter().map(|(path, id)| (path.as_str(), *id))
    }

    pub(super) fn create(&mut self, path: &str, inode: InodeId) {
        self.change(None, Some((path.to_owned(), inode)));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, inode: InodeId) {
        self.change(Some(from.to_owned()), Some((to.to_owned(), inode)));
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.change(Some(path.to_owned()), None);
    }

    pub(super) fn sync(&mut self, dir: &str) {
        self.settle(|change| change.dir == dir);
    }

    /// A sync that failed: any part of it may have been done.
    pub(super) fn sync_some(&mut self, dir: &str, rng: &mut Rng) {
        self.settle(|change| change.dir == dir && rng.chance(500));
    }

    /// The power goes: each change that was not synced is kept or undone for itself.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        let fate = Fate::draw(rng);
        self.settle(|_| fate.keeps(rng));
        self.unsynced.clear();
        self.kept.retain(|_, (_, inode)| inode.is_some());
        self.seen =
            self.kept.iter().filter_map(|(path, (_, inode))| Some((path.clone(), (*inode)?))).collect();
    }

    fn change(&mut self, removed: Option<String>, added: Option<(String, InodeId)>) {
        let path = added.as_ref().map(|(path, _)| path.as_str()).or(removed.as_deref());
        let dir = parent(path.unwrap_or_default()).to_owned();
        if let Some(path) = &removed {
            self.seen.remove(path);
        }
        self.seen.extend(added.clone());
        self.changes += 1;
        self.unsynced.push(Change { number: self.changes, dir, removed, added });
    }

    fn settle(&mut self, mut is_durable: impl FnMut(&Change) -> bool) {
        for change in std::mem::take(&mut self.unsynced) {
            if is_durable(&change) {
                self.keep(change);
            } else {
                self.unsynced.push(change);
            }
        }
    }

    /// Makes a change durable. What a later one did to the same name, or to the same file, stays.
    fn keep(&mut self, change: Change) {
        let Change { number, removed, added, .. } = change;
        let moved_on = |inode: InodeId, kept: &BTreeMap<String, (u64, Option<InodeId>)>| {
            kept.values().any(|(at, known)| *known == Some(inode) && *at > number)
        };
        let added = added.map(|(path, inode)| (path, (!moved_on(inode, &self.kept)).then_some(inode)));
        if let Some((_, Some(inode))) = added {
            // A file has one name, so the new one takes the place of all before it.
            for kept in self.kept.values_mut().filter(|kept| kept.1 == Some(inode)) {
                *kept = (number, None);
            }
        }
        for (path, inode) in removed.map(|path| (path, None)).into_iter().chain(added) {
            let kept = self.kept.entry(path).or_insert((0, None));
            if kept.0 < number {
                *kept = (number, inode);
            }
        }
    }
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}
