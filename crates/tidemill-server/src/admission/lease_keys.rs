//! Which key claimed which task: another key speaks for no lease that is not its own.
//!
//! Fences alone keep a worker that lost its lease from writing; they are small numbers, and a key that serves the same
//! tenant could guess one. What is kept here is not durable: after a restart the first key that
//! speaks for a lease with its fence is believed, and from then on it alone. Workers of the server itself have no key, and
//! no key speaks for their leases; `spoken_of` sees to that.

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
            table.claim(Arc::clone(&key), task, fence);
        }
        table.forget_oldest();
    }

    /// Whether another key than `key` claimed the task with this fence.
    pub(crate) fn is_anothers(&self, key: &str, task: &TaskKey, fence: Fence) -> bool {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.by_task.get(task).is_some_and(|claimed| claimed.fence == fence && *claimed.key != *key)
    }

    /// `key` speaks for a lease that is there. If nobody is known to have claimed it, it is the key's from now on.
    /// Tells whether it is.
    pub(crate) fn speaks_for(&self, key: &str, task: &TaskKey, fence: Fence) -> bool {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.by_task.get(task) {
            Some(claimed) if claimed.fence == fence => return *claimed.key == *key,
            // The lease that was looked at is over by now.
            Some(claimed) if claimed.fence > fence => return true,
            _ => {}
        }
        table.claim(Arc::from(key), task, fence);
        table.forget_oldest();
        true
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
    fn claim(&mut self, key: Arc<str>, task: &TaskKey, fence: Fence) {
        self.counter += 1;
        let number = self.counter;
        self.by_task.insert(task.clone(), Claimed { number, fence, key });
        self.order.push_back((number, task.clone()));
    }

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
    fn the_first_who_speaks_for_a_lease_has_it() {
        let leases = LeaseKeys::default();
        for (key, fence, expected, why) in [
            ("one", 7, true, "nobody claimed it here"),
            ("two", 7, false, "it is another's"),
            ("one", 7, true, "it is its own"),
            ("two", 6, true, "what is over is nobody's"),
            ("one", 7, true, "and binds nothing"),
            ("two", 8, true, "a newer lease"),
            ("one", 8, false, "which is another's"),
        ] {
            assert_eq!(leases.speaks_for(key, &task(1), Fence(fence)), expected, "{why}");
        }
        // The key that claims is known for sure.
        leases.claimed("one", [(&task(1), Fence(8))].into_iter());
        assert!(!leases.speaks_for("two", &task(1), Fence(8)));
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
