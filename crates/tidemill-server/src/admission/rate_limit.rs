//! Rates: a number of requests a second per caller, and as many at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Callers that are counted at a time. Above it, those whose allowance is full are forgotten.
const CALLERS_MAX: usize = 10_000;

/// Counts requests per caller. Nothing runs while nobody asks.
#[derive(Debug)]
pub(crate) struct RateLimits {
    /// How much time one request uses up; zero for no limit.
    cost: Duration,
    /// When each caller's allowance is full again.
    full_at: Mutex<HashMap<Box<str>, Instant>>,
}

impl RateLimits {
    pub(crate) fn new(per_second: u32) -> Self {
        let cost = if per_second == 0 { Duration::ZERO } else { Duration::from_secs(1) / per_second };
        Self { cost, full_at: Mutex::new(HashMap::new()) }
    }

    /// Counts one request, or tells how long to wait.
    pub(crate) fn take(&self, caller: &str, now: Instant) -> Result<(), Duration> {
        if self.cost.is_zero() {
            return Ok(());
        }
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        if !full_at.contains_key(caller) {
            if full_at.len() >= CALLERS_MAX {
                full_at.retain(|_, full| *full > now);
            }
            full_at.insert(caller.into(), now);
        }
        let full = full_at.get_mut(caller).expect("it was put there");
        let next = (*full).max(now) + self.cost;
        let over = (next - now).saturating_sub(Duration::from_secs(1));
        if !over.is_zero() {
            return Err(over);
        }
        *full = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_its_rate_and_no_more() {
        let limits = RateLimits::new(10);
        let start = Instant::now();
        let taken =
            |caller: &str, at: Duration| (0..100).filter(|_| limits.take(caller, start + at).is_ok()).count();
        assert_eq!(taken("a", Duration::ZERO), 10, "as many at once");
        assert_eq!(taken("b", Duration::ZERO), 10, "others have their own");
        assert_eq!(taken("a", Duration::from_millis(500)), 5, "it comes back with time");
        assert_eq!(taken("a", Duration::from_secs(60)), 10, "and does not pile up");
        assert_eq!(limits.take("a", start + Duration::from_secs(60)), Err(Duration::from_millis(100)));
    }

    #[test]
    fn zero_is_no_limit() {
        let limits = RateLimits::new(0);
        assert!((0..100_000).all(|_| limits.take("a", Instant::now()).is_ok()));
    }
}
