//! Which tasks were running when the process died, crash after crash, and what each life of the process holds: enough to
//! run a suspect alone.

use std::collections::BTreeMap;

use tidemill_model::{TaskHead, TaskState};

use crate::kernel::commit::TaskKey;
use crate::kernel::state::Map;

#[derive(Debug, Clone, Default)]
pub struct Suspicion {
    /// Tasks that are not done and whose process died under them, with how often in a row.
    crashed: BTreeMap<TaskKey, u32>,
    /// The life of the data directory that holds a task. Workers on other machines are not here: they live on.
    holders: Map<TaskKey, u64>,
    /// How many tasks each life holds.
    held: BTreeMap<u64, usize>,
}

impl Suspicion {
    /// Tasks that were running in at least this many crashes in a row, in order.
    pub fn suspects(&self, crashes: u32) -> impl Iterator<Item = &TaskKey> {
        self.crashed.iter().filter(move |(_, count)| **count >= crashes).map(|(key, _)| key)
    }

    /// Whether a life holds the task.
    pub fn is_held_by(&self, key: &TaskKey, generation: u64) -> bool {
        self.holders.get(key) == Some(&generation)
    }

    /// Whether a life holds any task but this one.
    pub fn holds_another(&self, key: &TaskKey, generation: u64) -> bool {
        let held = self.held.get(&generation).copied().unwrap_or_default();
        held > usize::from(self.is_held_by(key, generation))
    }

    /// Takes note of a task as it stands now.
    pub(super) fn note(&mut self, key: &TaskKey, head: Option<&TaskHead>) {
        let crashes = head.filter(|head| head.outcome().is_none()).map_or(0, |head| head.crashes);
        if crashes > 0 {
            self.crashed.insert(key.clone(), crashes);
        } else if !self.crashed.is_empty() {
            self.crashed.remove(key);
        }
        let holder = head.and_then(|head| match &head.state {
            TaskState::Leased(lease) => lease.owner.generation,
            _ => None,
        });
        if self.holders.get(key).copied() == holder {
            return;
        }
        if let Some(before) = self.holders.remove(key)
            && let Some(held) = self.held.get_mut(&before)
        {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&before);
            }
        }
        if let Some(holder) = holder {
            self.holders.insert(key.clone(), holder);
            *self.held.entry(holder).or_default() += 1;
        }
    }
}
