//! The window: executions that were fetched and wait for a place, and those that have one.
//!
//! The tenant with the fewest runs goes first, so that none gets more than half of the places while others wait. While
//! one tenant holds more than half of them, half as many again are lent to the others, who then never wait for its slow
//! scripts.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use tidemill_model::TenantId;

use crate::execution::ExecutionKey;

#[derive(Debug)]
pub(super) struct Window {
    places: usize,
    waiting: BTreeMap<TenantId, VecDeque<ExecutionKey>>,
    waiting_len: usize,
    running: HashMap<TenantId, usize, foldhash::fast::RandomState>,
    running_len: usize,
    /// All of both.
    held: HashSet<ExecutionKey, foldhash::fast::RandomState>,
}

impl Window {
    pub(super) fn new(places: usize) -> Self {
        Self {
            places: places.max(1),
            waiting: BTreeMap::new(),
            waiting_len: 0,
            running: HashMap::default(),
            running_len: 0,
            held: HashSet::default(),
        }
    }

    /// How many may run at the same time at most, with those that are lent.
    pub(super) fn places_max(places: usize) -> usize {
        let places = places.max(1);
        places + places / 2
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting_len
    }

    pub(super) fn holds(&self, key: &ExecutionKey) -> bool {
        self.held.contains(key)
    }

    pub(super) fn add(&mut self, key: ExecutionKey) {
        if self.held.insert(key.clone()) {
            self.waiting.entry(key.tenant.clone()).or_default().push_back(key);
            self.waiting_len += 1;
        }
    }

    /// Takes the next one that may run.
    pub(super) fn take(&mut self) -> Option<ExecutionKey> {
        let runs = |tenant: &TenantId| self.running.get(tenant).copied().unwrap_or(0);
        let tenant = self.waiting.keys().min_by_key(|tenant| runs(tenant))?;
        let has_place = self.running_len < self.places || self.is_lent(runs(tenant));
        let tenant = has_place.then(|| tenant.clone())?;
        let lane = self.waiting.get_mut(&tenant)?;
        let key = lane.pop_front()?;
        if lane.is_empty() {
            self.waiting.remove(&tenant);
        }
        self.waiting_len -= 1;
        *self.running.entry(tenant).or_default() += 1;
        self.running_len += 1;
        Some(key)
    }

    /// Whether one with so many runs gets a further place.
    fn is_lent(&self, runs: usize) -> bool {
        let half = self.places / 2;
        self.running_len < Self::places_max(self.places)
            && runs < half
            && self.running.values().any(|others| *others > half)
    }

    /// It is durable what became of an execution, or nobody takes care of it any more.
    pub(super) fn done(&mut self, key: &ExecutionKey) {
        self.held.remove(key);
    }

    /// A run is over and its place free.
    pub(super) fn ran(&mut self, key: &ExecutionKey) {
        self.running_len -= 1;
        if let Some(runs) = self.running.get_mut(&key.tenant) {
            *runs -= 1;
            if *runs == 0 {
                self.running.remove(&key.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::ExecutionId;

    fn fill(window: &mut Window, tenant: &str, from: u128, count: u128) {
        for n in from..from + count {
            window.add(ExecutionKey { tenant: TenantId::trusted(tenant), id: ExecutionId::from_u128(n) });
        }
    }

    fn take(window: &mut Window) -> Option<String> {
        window.take().map(|key| key.tenant.to_string())
    }

    #[test]
    fn one_tenant_alone_has_all_places_and_no_more() {
        let mut window = Window::new(10);
        fill(&mut window, "a", 0, 30);
        fill(&mut window, "a", 0, 30);
        let taken: Vec<_> = std::iter::from_fn(|| window.take()).collect();
        assert_eq!((taken.len(), window.waiting()), (10, 20));
        window.ran(&taken[3]);
        assert!(window.take().is_some() && window.take().is_none());
        fill(&mut window, "a", 3, 1);
        assert_eq!(window.waiting(), 19, "what became of it is not durable yet");
        window.done(&taken[3]);
        fill(&mut window, "a", 3, 1);
        assert_eq!(window.waiting(), 20);
    }

    #[test]
    fn others_are_served_at_once_by_places_that_are_lent() {
        let mut window = Window::new(10);
        fill(&mut window, "slow", 0, 30);
        while window.take().is_some() {}
        fill(&mut window, "b", 100, 4);
        fill(&mut window, "c", 200, 4);
        let lent: Vec<_> = std::iter::from_fn(|| take(&mut window)).collect();
        assert_eq!(lent, ["b", "c", "b", "c", "b"]);
        assert!(window.take().is_none(), "half of the pool is all there is to lend");
    }

    #[test]
    fn while_others_wait_none_gets_more_than_its_share() {
        let mut window = Window::new(4);
        fill(&mut window, "a", 0, 20);
        fill(&mut window, "b", 100, 20);
        let mut taken: Vec<_> = std::iter::from_fn(|| take(&mut window)).collect();
        taken.sort();
        assert_eq!(taken, ["a", "a", "b", "b"]);
    }

    #[test]
    fn a_pool_of_one_lends_nothing() {
        let mut window = Window::new(1);
        fill(&mut window, "a", 0, 2);
        fill(&mut window, "b", 100, 2);
        assert!(window.take().is_some() && window.take().is_none());
    }
}
