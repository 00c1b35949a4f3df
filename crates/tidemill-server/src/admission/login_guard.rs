//! Failed logins: counted, logged, and slowed.
//!
//! Only failures are slowed, so that a user with a key gets in at once, whatever others do from the same address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures of an address that are answered at once.
const FREE: u32 = 3;
/// What the next one waits; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(4);
/// How long after its last failure an address begins anew.
const FORGIVEN: Duration = Duration::from_secs(600);
/// Addresses that are counted. When there are more, all others share one place.
const ADDRESSES_MAX: usize = 1_024;
/// Failures that wait at a time. Further ones are refused at once.
const WAITING_MAX: usize = 64;
/// Lines in the log: one, and then the count of what came since, no more often than this.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The bits of an IPv6 address that its owner may choose: a network of 64 is one customer's.
const IPV6_OWN_BITS: u32 = 64;

/// What stands for an address where addresses are counted: itself, or the network that one customer gets.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> IPV6_OWN_BITS << IPV6_OWN_BITS))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[derive(Debug, Default)]
pub(crate) struct LoginGuard {
    failed: AtomicU64,
    waiting: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_address: HashMap<Option<IpAddr>, Failures>,
    told_at: Option<Instant>,
    untold: u64,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

/// What is done about a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) wait: Duration,
    /// How many there were since the last line in the log, if it is time for one.
    pub(crate) told: Option<u64>,
}

/// A failure that waits for its answer.
#[derive(Debug)]
pub(crate) struct Waiting<'g>(&'g LoginGuard);

impl LoginGuard {
    /// All failures since the start.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Notes that a login from `address` failed.
    pub(crate) fn note(&self, address: Option<IpAddr>, now: Instant) -> Verdict {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let address = address.map(network_of);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.untold += 1;
        let is_time = table.told_at.is_none_or(|told| now.duration_since(told) >= TOLD_EVERY);
        let told = is_time.then(|| {
            table.told_at = Some(now);
            std::mem::take(&mut table.untold)
        });
        if table.by_address.len() >= ADDRESSES_MAX {
            table.by_address.retain(|_, failures| now.duration_since(failures.last) < FORGIVEN);
        }
        let is_known = table.by_address.contains_key(&address) || table.by_address.len() < ADDRESSES_MAX;
        let failures = table
            .by_address
            .entry(if is_known { address } else { None })
            .or_insert(Failures { count: 0, last: now });
        if now.duration_since(failures.last) >= FORGIVEN {
            failures.count = 0;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        let wait = match failures.count.checked_sub(FREE + 1) {
            None => Duration::ZERO,
            Some(beyond) => FIRST_WAIT.saturating_mul(1 << beyond.min(16)).min(WAIT_MAX),
        };
        Verdict { wait, told }
    }

    /// A place to wait in, unless all are taken.
    pub(crate) fn place(&self) -> Option<Waiting<'_>> {
        let taken = self.waiting.fetch_add(1, Ordering::AcqRel);
        let place = Waiting(self);
        (taken < WAITING_MAX).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_an_address_wait_longer_and_longer() {
        let (guard, start) = (LoginGuard::default(), Instant::now());
        let (one, other) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let waits: Vec<_> = (0..10).map(|_| guard.note(one, start).wait.as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 250, 500, 1_000, 2_000, 4_000, 4_000, 4_000]);
        assert_eq!(guard.note(other, start).wait, Duration::ZERO, "others are not slowed");
        assert_eq!(guard.note(one, start + FORGIVEN).wait, Duration::ZERO, "it is forgotten");
        assert_eq!(guard.failed(), 12);
    }

    #[test]
    fn an_address_of_ipv6_counts_as_its_network() {
        let (guard, start) = (LoginGuard::default(), Instant::now());
        let note = |address: &str| guard.note(Some(address.parse().unwrap()), start).wait.as_millis();
        for number in 1..=3 {
            assert_eq!(note(&format!("2001:db8:0:1::{number}")), 0);
        }
        assert_eq!(note("2001:db8:0:1:ffff::1"), 250, "the same network");
        assert_eq!(note("2001:db8:0:2::1"), 0, "another one");
        assert_eq!((note("192.0.2.1"), note("192.0.2.1"), note("192.0.2.1")), (0, 0, 0));
        assert_eq!(note("::ffff:192.0.2.1"), 250, "another way to write it");
        assert_eq!(note("::ffff:192.0.2.2"), 0);
    }

    #[test]
    fn the_log_hears_of_them_now_and_then() {
        let (guard, start) = (LoginGuard::default(), Instant::now());
        let told = |after: Duration| guard.note(None, start + after).told;
        assert_eq!(told(Duration::ZERO), Some(1));
        assert_eq!((0..50).filter_map(|_| told(Duration::from_secs(1))).count(), 0);
        assert_eq!(told(TOLD_EVERY), Some(51));
    }

    #[test]
    fn addresses_and_places_are_limited() {
        let (guard, start) = (LoginGuard::default(), Instant::now());
        for number in 0..10_000_u32 {
            guard.note(Some(IpAddr::from(number.to_be_bytes())), start);
        }
        assert!(guard.table.lock().unwrap().by_address.len() <= ADDRESSES_MAX + 1);
        let strange = Some(IpAddr::from([255, 0, 0, 1]));
        assert_eq!(guard.note(strange, start).wait, WAIT_MAX, "they share one place");
        let places: Vec<_> = (0..WAITING_MAX).map(|_| guard.place().unwrap()).collect();
        assert!(guard.place().is_none());
        drop(places);
        assert!(guard.place().is_some());
    }
}
