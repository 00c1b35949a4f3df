//! Whether a failed step is tried again within this attempt, and when.

use tidemill_model::RetryPolicy;

use crate::failure::AgentFailure;

/// A try that would have less time than this is not begun.
pub(crate) const TRY_MILLIS_MIN: u64 = 1_000;
/// The longest delay between two tries that we choose ourselves.
const DELAY_MILLIS_MAX: u64 = 60_000;

/// The policy of a task.
pub(crate) fn policy(max_tries: u32, first_delay: u64) -> RetryPolicy {
    let max_delay = DELAY_MILLIS_MAX.max(first_delay);
    RetryPolicy { max_attempts: max_tries, first_delay, max_delay, on_timeout: false }
}

/// How long to wait before the next try; `None` when there is none: the failure does not pass by itself, all tries are
/// used, or the next one could not end in the time left.
pub(crate) fn next_delay(
    failure: &AgentFailure,
    policy: &RetryPolicy,
    tries: u32,
    jitter: u64,
    left_millis: Option<u64>,
) -> Option<u64> {
    if !failure.may_be_tried_again() {
        return None;
    }
    let delay = policy.delay_after(tries, jitter, failure.retry_after_millis)?;
    let fits = left_millis.is_none_or(|left| delay.saturating_add(TRY_MILLIS_MIN) <= left);
    fits.then_some(delay)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    fn failure(status: u16, retry_after_millis: Option<u64>) -> AgentFailure {
        AgentFailure {
            status: Some(status),
            retry_after_millis,
            ..AgentFailure::new(FailureKind::ApiStatus, "x")
        }
    }

    #[test]
    fn only_what_passes_is_tried_again_and_only_in_time() {
        let policy = policy(3, 2_000);
        for (status, asked, tries, left, expected) in [
            (429, None, 1, None, Some(1_600)),
            (429, None, 2, None, Some(3_200)),
            (429, None, 3, None, None),
            (429, Some(30_000), 1, None, Some(30_000)),
            (429, Some(30_000), 1, Some(30_999), None),
            (429, Some(30_000), 1, Some(31_000), Some(30_000)),
            (529, None, 1, Some(2_600), Some(1_600)),
            (529, None, 1, Some(2_599), None),
            (401, None, 1, None, None),
            (400, None, 1, None, None),
        ] {
            let delay = next_delay(&failure(status, asked), &policy, tries, 0, left);
            assert_eq!(delay, expected, "{status} {asked:?} {tries} {left:?}");
        }
    }

    #[test]
    fn delays_grow_and_differ() {
        let policy = policy(4, 2_000);
        let spread = |tries| {
            let delays = (0..2_000)
                .step_by(97)
                .map(|jitter| next_delay(&failure(529, None), &policy, tries, jitter, None).unwrap());
            let delays: std::collections::BTreeSet<_> = delays.collect();
            (*delays.first().unwrap(), *delays.last().unwrap(), delays.len())
        };
        let (first, second) = (spread(1), spread(2));
        assert!(first.2 > 5 && second.2 > 5, "{first:?} {second:?}");
        assert!(first.1 < second.0, "{first:?} {second:?}");
    }
}
