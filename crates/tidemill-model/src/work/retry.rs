//! When a failed attempt is tried again.

use serde::{Deserialize, Serialize};

/// How often and how fast a task is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts in all, the first one included.
    pub max_attempts: u32,
    /// Delay after the first failed attempt, in milliseconds. It doubles with each further one.
    pub first_delay: u64,
    /// The longest delay, in milliseconds.
    pub max_delay: u64,
    /// Whether an attempt that took too long is tried again like one that failed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub on_timeout: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 3, first_delay: 5_000, max_delay: 900_000, on_timeout: false }
    }
}

impl RetryPolicy {
    /// The delay before the next attempt once `ended` attempts have failed, or `None` when none is left.
    ///
    /// `jitter` is any number; it moves the delay by up to a fifth in either direction. A delay the failing side asked
    /// for (`retry_after`) wins when it is longer.
    pub fn delay_after(&self, ended: u32, jitter: u64, retry_after: Option<u64>) -> Option<u64> {
        if ended >= self.max_attempts {
            return None;
        }
        let doublings = ended.saturating_sub(1).min(40);
        let plain = self.first_delay.saturating_mul(1 << doublings).min(self.max_delay);
        let spread = plain / 5;
        let moved = plain - spread + if spread == 0 { 0 } else { jitter % (2 * spread + 1) };
        Some(moved.max(retry_after.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_cap_and_ends_with_the_attempts() {
        let policy = RetryPolicy { max_attempts: 12, ..RetryPolicy::default() };
        for (ended, middle) in [
            (1, Some(5_000)),
            (2, Some(10_000)),
            (3, Some(20_000)),
            (8, Some(640_000)),
            (9, Some(900_000)),
            (11, Some(900_000)),
            (12, None),
        ] {
            for jitter in [0, 1, 7_777_777, u64::MAX] {
                let delay = policy.delay_after(ended, jitter, None);
                match middle {
                    None => assert_eq!(delay, None, "after {ended}"),
                    Some(middle) => {
                        let delay = delay.unwrap();
                        assert!(
                            delay >= middle - middle / 5 && delay <= middle + middle / 5,
                            "{ended}: {delay}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_longer_delay_that_was_asked_for_wins() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay_after(1, 0, Some(60_000)), Some(60_000));
        assert_eq!(policy.delay_after(1, 0, Some(1)), Some(4_000));
        assert_eq!(policy.delay_after(3, 0, Some(1)), None);
    }
}
