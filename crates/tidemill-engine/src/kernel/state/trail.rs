//! An entity's history as a list in the log: each event points back to the one before it.
//!
//! Every event has a place (`ordinal`, from 0) in one of two chains of its entity: the main chain, or the chain of
//! events aside (heartbeats, which may expire on their own, or events that came late). `prev` and `aside` name the newest event of either chain
//! before this one, so the pointer along an event's own chain is `prev` in the main chain and `aside` in the other.
//! `jump` stays within the event's own chain and makes any place reachable in O(log n) steps (Myers' skew-binary
//! random-access lists): two jumps of equal length in a row are followed by one that spans both.

/// The number of an event in the log, from 1. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    /// The number of the first event.
    pub const FIRST: Self = Self(1);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An event's pointers into its entity's history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Links {
    /// The newest event of the main chain before this one.
    pub prev: Option<Seq>,
    /// The newest event aside before this one.
    pub aside: Option<Seq>,
    /// A far older event of the chain this event belongs to.
    pub jump: Option<Seq>,
    /// The place in the chain this event belongs to, from 0.
    pub ordinal: u64,
    /// Whether that is the chain of events aside.
    pub is_aside: bool,
}

/// What an entity's head keeps of one chain, so that the next event can be linked without reading the log.
///
/// It holds the newest event and the events that jumps from it lead to, O(log n) of them: two or three for a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// How many events the chain has.
    count: u64,
    /// The oldest event first, the newest last; each one jumps to its left neighbour.
    stops: Vec<Seq>,
}

impl Trail {
    /// The trail of a chain of `count` events with these stops, if a chain can have them.
    pub fn from_parts(count: u64, stops: Vec<Seq>) -> Option<Self> {
        let fits = stops.len() == stop_count(count) && stops.is_sorted_by(|a, b| a < b);
        fits.then_some(Self { count, stops })
    }

    /// How many events the chain has.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The newest event.
    pub fn tip(&self) -> Option<Seq> {
        self.stops.last().copied()
    }

    /// The oldest event first, the newest last; to store with [`Trail::count`].
    pub fn stops(&self) -> &[Seq] {
        &self.stops
    }

    /// Adds the event `seq` at the end and tells where it jumps to.
    pub fn push(&mut self, seq: Seq) -> Option<Seq> {
        let ordinal = self.count;
        self.count += 1;
        self.stops.truncate(stop_count(self.count) - 1);
        debug_assert!(ordinal == 0 || !self.stops.is_empty());
        let jump = self.stops.last().copied();
        self.stops.push(seq);
        jump
    }
}

/// What an entity's head keeps of its history: the trails of both chains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub main: Trail,
    pub aside: Trail,
}

impl History {
    /// Adds the event `seq` to the main chain and gives its links.
    pub fn push_main(&mut self, seq: Seq) -> Links {
        let (prev, aside, ordinal) = (self.main.tip(), self.aside.tip(), self.main.count());
        Links { prev, aside, jump: self.main.push(seq), ordinal, is_aside: false }
    }

    /// Adds the event `seq` aside of the main chain and gives its links.
    pub fn push_aside(&mut self, seq: Seq) -> Links {
        let (prev, aside, ordinal) = (self.main.tip(), self.aside.tip(), self.aside.count());
        Links { prev, aside, jump: self.aside.push(seq), ordinal, is_aside: true }
    }
}

/// The place that the event at place `ordinal` jumps to: `ordinal` without its smallest skew-binary digit.
pub fn jump_ordinal(ordinal: u64) -> u64 {
    let mut rest = ordinal;
    let mut smallest = 0;
    while rest > 0 {
        smallest = largest_digit(rest);
        rest -= smallest;
    }
    ordinal - smallest
}

/// How many stops the trail of a chain of `count` events has: one for each digit of the newest place, and the first.
fn stop_count(count: u64) -> usize {
    let Some(mut rest) = count.checked_sub(1) else { return 0 };
    let mut stops = 1;
    while rest > 0 {
        rest -= largest_digit(rest);
        stops += 1;
    }
    stops
}

/// The largest number of the form 2^k - 1 that is not above `number`.
fn largest_digit(number: u64) -> u64 {
    match number.checked_add(1) {
        Some(next) => (1 << next.ilog2()) - 1,
        None => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_span_two_equal_jumps() {
        let jumps: Vec<u64> = (0..16).map(jump_ordinal).collect();
        assert_eq!(jumps, [0, 0, 1, 0, 3, 4, 3, 0, 7, 8, 7, 10, 11, 10, 7, 0]);
    }

    #[test]
    fn a_trail_knows_the_jump_of_the_next_event() {
        let mut trail = Trail::default();
        for ordinal in 0..5_000 {
            let jump = trail.push(Seq(ordinal * 3 + 1));
            let expected = (ordinal > 0).then(|| Seq(jump_ordinal(ordinal) * 3 + 1));
            assert_eq!(jump, expected, "ordinal {ordinal}");
            assert_eq!(Trail::from_parts(trail.count(), trail.stops().to_vec()), Some(trail.clone()));
            assert!(trail.stops().len() <= 14);
        }
        assert_eq!(Trail::from_parts(3, vec![Seq(1)]), None);
        assert_eq!(Trail::from_parts(0, vec![]), Some(Trail::default()));
    }

    #[test]
    fn both_chains_know_each_other() {
        let mut history = History::default();
        assert_eq!(history.push_main(Seq(1)), Links::default());
        let links = Links { prev: Some(Seq(1)), is_aside: true, ..Links::default() };
        assert_eq!(history.push_aside(Seq(2)), links);
        let links = history.push_main(Seq(5));
        let (prev, aside) = (Some(Seq(1)), Some(Seq(2)));
        assert_eq!(links, Links { prev, aside, jump: Some(Seq(1)), ordinal: 1, is_aside: false });
        let links = history.push_aside(Seq(6));
        let (prev, aside) = (Some(Seq(5)), Some(Seq(2)));
        assert_eq!(links, Links { prev, aside, jump: Some(Seq(2)), ordinal: 1, is_aside: true });
    }

    #[test]
    fn digits_of_huge_places_do_not_overflow() {
        assert_eq!(jump_ordinal(u64::MAX), 0);
        assert_eq!(jump_ordinal(u64::MAX - 1), u64::MAX / 2);
    }
}
