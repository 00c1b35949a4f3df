//! Which key claimed which task: another key speaks for no lease that is not its own.
//!
//! Fences alone keep a worker that lost its lease from writing; they are small numbers, and a key that serves the same
//! tenant could guess one. What is kept here is not durable: after a restart the first who speaks for a lease is believed.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_engine::commit::TaskKey;
use tidemill_model::Fence;

/// Leases that are remembered. Beyond it the oldest are forgotten.
const LEASES_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct LeaseKeys(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The newest claim of each task.
    by_task: HashMap<TaskKey, Claimed>,
    /// Claims in their order, some of which may be gone.
    order: VecDeque<(u64, TaskKey)>,
    counter: u64,
}

#[derive(Debug)]
struct Claimed {
    number: u64,
    fence: Fence,
    key: Arc<str>,
}

impl LeaseKeys {
    /// `key` claimed tasks.
    pub(crate) fn claimed<'t>(&self, key: &str, tasks: impl Iterator<Item = (&'t TaskKey, Fence)>) {
        let key: Arc<str> = Arc::from(key);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (task, fence) in tasks {
            table.counter += 1;
            let number = table.counter;
            table.by_task.insert(task.clone(), Claimed { number, fence, key: Arc::clone(&key) });
            table.order.push_back((number, task.clone()));
        }
        table.forget_oldest();
    }

    /// Whether another key than `key` claimed the task with this fence.
    pub(crate) fn is_anothers(&self, key: &str, task: &TaskKey, fence: Fence) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.by_task.get(task).is_some_and(|claimed| claimed.fence == fence && *claimed.key != *key)
    }

    /// The lease is over.
    pub(crate) fn ended(&self, task: &TaskKey, fence: Fence) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.by_task.get(task).is_some_and(|claimed| claimed.fence == fence) {
            table.by_task.remove(task);
        }
    }
}

impl Table {
    fn forget_oldest(&mut self) {
        while let Some((number, task)) = self.order.front() {
            let is_there = self.by_task.get(task).is_some_and(|claimed| claimed.number == *number);
            if is_there && self.by_task.len() <= LEASES_MAX {
                // What is gone lies behind one that is there; it goes when there is much of it.
                if self.order.len() <= 2 * LEASES_MAX {
                    return;
                }
                let by_task = &self.by_task;
                self.order.retain(|(number, task)| {
                    by_task.get(task).is_some_and(|claimed| claimed.number == *number)
                });
                return;
            }
            if is_there {
                self.by_task.remove(task);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::{RequestId, TenantId};

    use super::*;

    fn task(number: usize) -> TaskKey {
        let request = RequestId::trusted(&format!("task-{number}"));
        TaskKey { tenant: TenantId::trusted("acme"), request }
    }

    #[test]
    fn a_lease_is_its_keys_until_it_is_over_or_claimed_anew() {
        let leases = LeaseKeys::default();
        leases.claimed("one", [(&task(1), Fence(7))].into_iter());
        for (key, fence, expected) in [("one", 7, false), ("two", 7, true), ("two", 6, false)] {
            assert_eq!(leases.is_anothers(key, &task(1), Fence(fence)), expected, "{key} with {fence}");
        }
        assert!(!leases.is_anothers("two", &task(2), Fence(7)), "nobody claimed it here");
        leases.claimed("two", [(&task(1), Fence(8))].into_iter());
        assert!(leases.is_anothers("one", &task(1), Fence(8)));
        leases.ended(&task(1), Fence(7));
        assert!(leases.is_anothers("one", &task(1), Fence(8)), "an older lease ended");
        leases.ended(&task(1), Fence(8));
        assert!(!leases.is_anothers("one", &task(1), Fence(8)));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let leases = LeaseKeys::default();
        let tasks: Vec<_> = (0..=LEASES_MAX).map(task).collect();
        leases.claimed("one", tasks.iter().map(|task| (task, Fence(1))));
        assert!(!leases.is_anothers("two", &tasks[0], Fence(1)));
        assert!(leases.is_anothers("two", &tasks[1], Fence(1)));
        // One task that is claimed over and over leaves nothing behind.
        for fence in 0..4 * LEASES_MAX as u64 {
            leases.claimed("one", [(&tasks[1], Fence(fence))].into_iter());
        }
        let table = leases.0.lock().unwrap();
        assert!(table.order.len() <= 2 * LEASES_MAX + 1 && table.by_task.len() <= LEASES_MAX);
    }
}
