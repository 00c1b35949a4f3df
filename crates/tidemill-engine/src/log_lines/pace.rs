//! How often a place tells the same cause.
//!
//! What fails once a second for a night must be in the log, and must not be all that is in it.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time that lines are counted in.
const WHILE: Duration = Duration::from_secs(60);
/// Causes that one place tells apart at a time. What comes beyond them counts as one more cause.
const CAUSES_MAX: usize = 16;

/// Limits the lines of one place per minute and cause. Lines that are left out are counted.
#[derive(Debug)]
pub struct Pace {
    lines_max: u32,
    causes: Mutex<Vec<Cause>>,
}

#[derive(Debug)]
struct Cause {
    /// None stands for all that are not told apart.
    text: Option<String>,
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// A line may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    left_out: u64,
}

impl Told {
    /// How many lines with this cause were left out since the last one, if any were.
    pub fn left_out(self) -> Option<u64> {
        (self.left_out > 0).then_some(self.left_out)
    }
}

impl Pace {
    /// One line a minute for each cause.
    pub const fn seldom() -> Self {
        Self::a_minute(1)
    }

    pub const fn a_minute(lines_max: u32) -> Self {
        Self { lines_max, causes: Mutex::new(Vec::new()) }
    }

    /// Whether a line with this cause may be written now.
    pub fn due(&self, cause: &dyn Display) -> Option<Told> {
        self.due_at(&cause.to_string(), Instant::now())
    }

    fn due_at(&self, cause: &str, now: Instant) -> Option<Told> {
        let mut causes = self.causes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |known: &Cause| now.duration_since(known.since) >= WHILE;
        // A cause that was quiet for a minute, and owes no count, is forgotten.
        causes.retain(|known| known.left_out > 0 || !is_over(known));
        let found = causes.iter().position(|known| known.text.as_deref() == Some(cause));
        let is_crowded = causes.len() >= CAUSES_MAX;
        let found = found.or_else(|| causes.iter().position(|known| is_crowded && known.text.is_none()));
        let Some(place) = found else {
            let text = (!is_crowded).then(|| cause.to_owned());
            causes.push(Cause { text, since: now, lines: 1, left_out: 0 });
            return Some(Told { left_out: 0 });
        };
        let known = &mut causes[place];
        if is_over(known) {
            (known.since, known.lines) = (now, 0);
        }
        if known.lines >= self.lines_max {
            known.left_out += 1;
            return None;
        }
        known.lines += 1;
        Some(Told { left_out: std::mem::take(&mut known.left_out) })
    }
}

/// Warns of a cause, at most once a minute from this place while the cause is the same.
///
/// The cause comes first and becomes the field `error`; then fields and the sentence, as for `tracing::warn!`.
#[macro_export]
macro_rules! warn_seldom {
    ($cause:expr, $($rest:tt)+) => {{
        static PACE: $crate::log_lines::Pace = $crate::log_lines::Pace::seldom();
        let cause = &$cause;
        if ::tracing::enabled!(::tracing::Level::WARN)
            && let Some(told) = PACE.due(cause)
        {
            ::tracing::warn!(error = %cause, left_out = told.left_out(), $($rest)+);
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_repeats_is_told_once_a_minute_with_what_was_left_out() {
        let pace = Pace::seldom();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let told = |cause, seconds| pace.due_at(cause, at(seconds)).map(Told::left_out);
        assert_eq!(told("full", 0), Some(None));
        assert_eq!((told("full", 1), told("full", 59)), (None, None));
        assert_eq!(told("gone", 2), Some(None), "another cause has its own line");
        assert_eq!(told("full", 60), Some(Some(2)));
        assert_eq!(told("full", 61), None);
        assert_eq!(told("full", 500), Some(Some(1)), "what was left out is told, however late");
    }

    #[test]
    fn causes_without_end_are_as_many_lines_as_there_are_places_and_one() {
        let pace = Pace::a_minute(1);
        let now = Instant::now();
        let lines = (0..1_000).filter(|number| pace.due_at(&number.to_string(), now).is_some()).count();
        assert_eq!(lines, CAUSES_MAX + 1);
        assert!(pace.causes.lock().unwrap().len() <= CAUSES_MAX + 1);
        assert_eq!(Pace::a_minute(3).lines_max, 3);
    }
}
