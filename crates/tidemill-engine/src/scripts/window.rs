//! The window: executions that were fetched and wait for a place, and those that have one.
//!
//! The tenant with the fewest runs goes first, so that none gets more than half of the places while others wait.
//! While one tenant holds more than half of them, half as many again are lent to the others, so that they never wait
//! for its slow scripts. The last places are kept for tenants that run nothing, so that two cannot hold them all.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use tidemill_model::TenantId;

use crate::scripts::execution::ExecutionKey;

#[derive(Debug)]
pub(super) struct Window {
    places: usize,
    waiting: BTreeMap<TenantId, VecDeque<ExecutionKey>>,
    waiting_len: usize,
    running: HashMap<TenantId, usize, foldhash::fast::RandomState>,
    running_len: usize,
    /// Tenants that have more than was fetched.
    more: HashSet<TenantId, foldhash::fast::RandomState>,
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
            more: HashSet::default(),
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

    /// How many of each tenant wait.
    pub(super) fn waiting_by_tenant(&self) -> BTreeMap<TenantId, usize> {
        self.waiting.iter().map(|(tenant, lane)| (tenant.clone(), lane.len())).collect()
    }

    pub(super) fn set_more(&mut self, more: Vec<TenantId>) {
        self.more = more.into_iter().collect();
    }

    /// Whether it is time to fetch more, after one of `taken` was taken. The answer is yes once; the fetch then says
    /// which tenants have more.
    pub(super) fn runs_low(&mut self, taken: Option<&TenantId>, buffer: usize, kept: usize) -> bool {
        let is_low =
            self.is_low_of(taken.into_iter().filter(|taken| self.more.contains(*taken)), buffer, kept);
        if is_low {
            self.more.clear();
        }
        is_low
    }

    pub(super) fn is_low(&self, buffer: usize, kept: usize) -> bool {
        self.is_low_of(self.more.iter(), buffer, kept)
    }

    /// Little waits in all, or little of one of these tenants.
    fn is_low_of<'a>(
        &self,
        mut tenants: impl Iterator<Item = &'a TenantId>,
        buffer: usize,
        kept: usize,
    ) -> bool {
        let waits = |tenant: &TenantId| self.waiting.get(tenant).map_or(0, VecDeque::len);
        !self.more.is_empty()
            && (self.waiting_len * 4 < buffer || tenants.any(|tenant| waits(tenant) * 2 < kept))
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
        let has_place = self.has_place(runs(tenant));
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

    /// Whether a tenant with this many runs gets a further place.
    fn has_place(&self, runs: usize) -> bool {
        let half = self.places / 2;
        let is_lent = runs < half && self.running.values().any(|others| *others > half);
        let all = if is_lent { Self::places_max(self.places) } else { self.places };
        // A tenant that is alone may have them all, because others are lent some then.
        let is_kept_out = runs > 0 && runs < self.running_len;
        let kept = if is_kept_out { Self::kept(self.places) } else { 0 };
        self.running_len < all - kept
    }

    /// How many of the places only a tenant gets that runs nothing.
    fn kept(places: usize) -> usize {
        if places < 3 { 0 } else { (places / 10).max(1) }
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
    use crate::scripts::execution::ExecutionId;

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
        assert_eq!(lent, ["b", "c", "b", "c"]);
        fill(&mut window, "d", 300, 2);
        fill(&mut window, "e", 400, 2);
        assert_eq!(take(&mut window).as_deref(), Some("d"), "the last one is for who runs nothing");
        assert!(window.take().is_none(), "half of the pool is all there is to lend");
    }

    #[test]
    fn while_others_wait_none_gets_more_than_its_share() {
        let mut window = Window::new(4);
        fill(&mut window, "a", 0, 20);
        fill(&mut window, "b", 100, 20);
        let mut taken: Vec<_> = std::iter::from_fn(|| take(&mut window)).collect();
        taken.sort();
        assert_eq!(taken, ["a", "a", "b"]);
    }

    #[test]
    fn two_tenants_leave_a_place_for_a_third() {
        let mut window = Window::new(10);
        fill(&mut window, "a", 0, 30);
        fill(&mut window, "b", 100, 30);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut window)).collect();
        assert_eq!(taken.len(), 9);
        fill(&mut window, "c", 200, 2);
        assert_eq!(take(&mut window).as_deref(), Some("c"));
        assert!(window.take().is_none());
    }

    #[test]
    fn more_is_fetched_for_a_tenant_that_runs_low_although_the_window_is_full() {
        let (a, b) = (TenantId::trusted("a"), TenantId::trusted("b"));
        let mut window = Window::new(4);
        fill(&mut window, "a", 0, 20);
        fill(&mut window, "b", 100, 1);
        window.set_more(vec![a.clone(), b.clone()]);
        assert!(!window.runs_low(Some(&a), 20, 4), "it has enough");
        assert!(window.runs_low(Some(&b), 20, 4));
        assert!(!window.runs_low(Some(&b), 20, 4), "that is said once");
        window.set_more(vec![a]);
        assert!(!window.runs_low(Some(&b), 20, 4), "there is no more of it");
        assert!(window.runs_low(None, 100, 4), "the window itself is low");
    }

    #[test]
    fn a_pool_of_one_lends_nothing() {
        let mut window = Window::new(1);
        fill(&mut window, "a", 0, 2);
        fill(&mut window, "b", 100, 2);
        assert!(window.take().is_some() && window.take().is_none());
    }
}
