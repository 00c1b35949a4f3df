//! Pauses between tries, each twice as long as the one before.

use std::time::Duration;

/// How long to pause before the next try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `first` to `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// The pause that is due now; the next one is longer.
    pub fn pause(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.most);
        now
    }

    /// It worked: the next pause is the first again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(300));
        let millis = |backoff: &mut Backoff| [0; 5].map(|_| backoff.pause().as_millis());
        assert_eq!(millis(&mut backoff), [50, 100, 200, 300, 300]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_millis(50));
    }
}
