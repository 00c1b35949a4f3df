//! Which tenant is served next.
//!
//! The tenant with the fewest executions under way comes first, then the one that waits longest. So a tenant that
//! holds half of the pool gets no more of it while others wait. It may have taken all of it before they came; then
//! the pool lends them further places at once, half of the pool at most, so that no tenant waits for another's slow
//! scripts. The last places are kept for tenants that run nothing, so that two cannot hold them all.

use std::collections::{HashMap, VecDeque};

use tidemill_model::TenantId;

#[derive(Debug)]
pub(super) struct Shares<W> {
    size: usize,
    tenants: HashMap<TenantId, Share<W>>,
    running: usize,
    waiting: usize,
    next_ticket: u64,
}

#[derive(Debug)]
struct Share<W> {
    running: usize,
    waiting: VecDeque<(u64, W)>,
}

impl<W> Shares<W> {
    pub(super) fn new(size: usize) -> Self {
        Self { size, tenants: HashMap::new(), running: 0, waiting: 0, next_ticket: 0 }
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Takes a place at once, if there is one and nobody waits.
    pub(super) fn take(&mut self, tenant: &TenantId) -> bool {
        let runs = self.tenants.get(tenant).map_or(0, |share| share.running);
        let free = self.waiting == 0 && self.running < self.size - self.kept_from(runs);
        if free {
            self.share(tenant).running += 1;
            self.running += 1;
        }
        free
    }

    pub(super) fn wait(&mut self, tenant: &TenantId, waiter: W) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting += 1;
        self.share(tenant).waiting.push_back((ticket, waiter));
    }

    /// Gives back a place.
    pub(super) fn release(&mut self, tenant: &TenantId) {
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.running -= 1;
            self.running -= 1;
            if share.running == 0 && share.waiting.is_empty() {
                self.tenants.remove(tenant);
            }
        }
    }

    /// The next waiter that has a place now; it is taken.
    pub(super) fn next(&mut self) -> Option<(TenantId, W)> {
        if self.waiting == 0 {
            return None;
        }
        let half = self.size / 2;
        let is_held = self.tenants.values().any(|share| share.running > half);
        let waiting = self.tenants.iter().filter_map(|(tenant, share)| {
            let ticket = share.waiting.front()?.0;
            Some(((share.running, ticket), tenant))
        });
        let ((runs, _), tenant) = waiting.min_by_key(|(rank, _)| *rank)?;
        let is_lent = is_held && runs < half;
        let places = if is_lent { self.size + half } else { self.size };
        if self.running >= places - self.kept_from(runs) {
            return None;
        }
        let tenant = tenant.clone();
        let share = self.tenants.get_mut(&tenant)?;
        let (_, waiter) = share.waiting.pop_front()?;
        share.running += 1;
        self.running += 1;
        self.waiting -= 1;
        Some((tenant, waiter))
    }

    /// How many places a tenant with this many runs does not get. A tenant that is alone may have them all, because
    /// others are lent some then.
    fn kept_from(&self, runs: usize) -> usize {
        let is_kept_out = runs > 0 && runs < self.running;
        if is_kept_out { kept(self.size) } else { 0 }
    }

    fn share(&mut self, tenant: &TenantId) -> &mut Share<W> {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Share { running: 0, waiting: VecDeque::new() });
        }
        self.tenants.get_mut(tenant).expect("it was just put there")
    }
}

/// How many of the places only a tenant gets that runs nothing.
fn kept(size: usize) -> usize {
    if size < 3 { 0 } else { (size / 10).max(1) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn served(shares: &mut Shares<u32>) -> Vec<u32> {
        std::iter::from_fn(|| shares.next().map(|(_, waiter)| waiter)).collect()
    }

    #[test]
    fn one_tenant_alone_has_the_whole_pool() {
        let mut shares = Shares::new(10);
        for waiter in 0..20 {
            shares.wait(&tenant("a"), waiter);
        }
        assert_eq!(served(&mut shares), (0..10).collect::<Vec<_>>());
        shares.release(&tenant("a"));
        assert_eq!(served(&mut shares), [10], "in the order in which they came");
    }

    #[test]
    fn who_holds_less_comes_first() {
        let mut shares = Shares::new(4);
        assert!(shares.take(&tenant("a")) && shares.take(&tenant("a")));
        for (name, waiter) in [("a", 1), ("a", 2), ("b", 3), ("b", 4)] {
            shares.wait(&tenant(name), waiter);
        }
        assert!(!shares.take(&tenant("c")), "nobody passes those who wait");
        assert_eq!(served(&mut shares), [3], "the last place is for who runs nothing");
        shares.wait(&tenant("c"), 5);
        assert_eq!(served(&mut shares), [5]);
        shares.release(&tenant("a"));
        shares.release(&tenant("a"));
        assert_eq!(served(&mut shares), [1]);
    }

    #[test]
    fn places_are_lent_when_one_tenant_holds_them_all() {
        let mut shares = Shares::new(4);
        for waiter in 0..10 {
            shares.wait(&tenant("a"), waiter);
        }
        assert_eq!(served(&mut shares).len(), 4);
        for waiter in 10..14 {
            shares.wait(&tenant("b"), waiter);
        }
        assert_eq!(served(&mut shares), [10]);
        shares.wait(&tenant("c"), 20);
        shares.wait(&tenant("d"), 30);
        assert_eq!(served(&mut shares), [20], "half of the pool, the last of it for who runs nothing");
        shares.release(&tenant("c"));
        assert_eq!(served(&mut shares), [30]);
        shares.release(&tenant("d"));
        shares.release(&tenant("a"));
        shares.release(&tenant("a"));
        assert!(served(&mut shares).is_empty(), "what was lent is given back first");
        shares.release(&tenant("a"));
        shares.release(&tenant("a"));
        assert_eq!(served(&mut shares), [4, 5]);
    }

    #[test]
    fn two_tenants_leave_a_place_for_a_third() {
        let mut shares = Shares::new(10);
        for waiter in 0..20 {
            shares.wait(&tenant(if waiter % 2 == 0 { "a" } else { "b" }), waiter);
        }
        assert_eq!(served(&mut shares).len(), 9);
        shares.wait(&tenant("c"), 20);
        shares.wait(&tenant("d"), 21);
        assert_eq!(served(&mut shares), [20]);
    }

    #[test]
    fn a_place_at_once_is_none_of_those_that_are_kept() {
        let mut shares = Shares::<()>::new(4);
        assert!(shares.take(&tenant("a")) && shares.take(&tenant("b")) && shares.take(&tenant("a")));
        assert!(!shares.take(&tenant("b")));
        assert!(shares.take(&tenant("c")));
    }

    #[test]
    fn a_pool_of_one_is_never_exceeded() {
        let mut shares = Shares::new(1);
        assert!(shares.take(&tenant("a")));
        shares.wait(&tenant("b"), 1);
        assert!(served(&mut shares).is_empty());
        shares.release(&tenant("a"));
        assert_eq!(served(&mut shares), [1]);
    }

    proptest! {
        #[test]
        fn places_are_never_lost_and_never_doubled(size in 1..6_usize, steps in prop::collection::vec((0..3_usize, 0..3_u8), 0..60)) {
            let names = [tenant("a"), tenant("b"), tenant("c")];
            let mut shares = Shares::new(size);
            let mut held = [0_usize; 3];
            let mut waits = [0_usize; 3];
            for (who, what) in steps {
                if what == 0 && held[who] > 0 {
                    shares.release(&names[who]);
                    held[who] -= 1;
                } else {
                    shares.wait(&names[who], ());
                    waits[who] += 1;
                }
                while let Some((name, ())) = shares.next() {
                    let who = names.iter().position(|known| *known == name).unwrap();
                    let (others, most) = (held.iter().sum::<usize>() - held[who], size / 2);
                    // A tenant at its half is served only when nobody below it waits.
                    let below = (0..3).any(|other| other != who && waits[other] > 0 && held[other] < held[who]);
                    prop_assert!(!below, "{held:?} {waits:?} {who} {others} {most}");
                    held[who] += 1;
                    waits[who] -= 1;
                }
                let total: usize = held.iter().sum();
                prop_assert_eq!(total, shares.running());
                prop_assert_eq!(waits.iter().sum::<usize>(), shares.waiting());
                prop_assert!(total <= size + size / 2);
                // Nobody waits while there is a place, nor for a tenant that holds more than half.
                prop_assert!(total >= size - kept(size) || shares.waiting() == 0);
            }
        }
    }
}
