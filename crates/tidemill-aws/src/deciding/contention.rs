//! Contention: taking turns at the log with other processes, which are not known.
//!
//! A process that puts one group right after the other always wins: a process that lost must read what it lacks, and
//! by then the next put is on its way. So a process that has more to put leaves a gap now and then, and after each
//! group once it has seen another's. `bench/scale` simulates it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use crate::deciding::writer::Call;

/// How many commands one group takes, not counting the last call's.
const GROUP_COMMANDS: usize = 2_000;
/// The same while others commit too. What takes long to decide is never put first.
const GROUP_COMMANDS_CONTENDED: usize = 50;
/// How long after a commit of another process this one expects it to commit again.
const CONTENDED_FOR: Duration = Duration::from_secs(1);
/// How long a copy is kept of a state that runs ahead.
pub(crate) const OTHERS_FOR: Duration = Duration::from_secs(60);
/// After this many groups in a row, with more waiting, the process leaves a gap.
const GROUPS_IN_A_ROW: u32 = 16;
/// How many puts the gap lasts: a process that lost must read what it lacks, and put.
const GAP_PUTS: u32 = 2;
/// What a put is taken to last, at most.
const PUT_TIME_MAX: Duration = Duration::from_millis(50);

/// What is known of other processes that put into the same log, and calls that wait for their turn.
#[derive(Default)]
pub(crate) struct Contention {
    /// When another process was last seen to have committed something.
    others_at: Option<Instant>,
    /// Groups one right after the other.
    pub(crate) in_a_row: u32,
    /// What a put takes, on average.
    put_time: Duration,
    /// Calls of a group that was too slow, but for its first ones.
    pub(crate) waiting: VecDeque<Call>,
}

impl Contention {
    pub(crate) fn saw_others(&mut self) {
        self.others_at = Some(Instant::now());
    }

    pub(crate) fn have_others(&self, within: Duration) -> bool {
        self.others_at.is_some_and(|at| at.elapsed() < within)
    }

    pub(crate) fn group_max(&self) -> usize {
        if self.have_others(CONTENDED_FOR) { GROUP_COMMANDS_CONTENDED } else { GROUP_COMMANDS }
    }

    pub(crate) fn note_put(&mut self, time: Duration) {
        self.put_time = ((self.put_time * 7 + time) / 8).min(PUT_TIME_MAX);
    }

    /// Another process was faster. Only a short group is tried again at once.
    pub(crate) fn lost(&mut self, calls: &mut Vec<Call>) {
        self.saw_others();
        self.in_a_row = 0;
        let mut commands = 0;
        let kept = calls.iter().position(|call| {
            commands += call.commands.len();
            commands >= GROUP_COMMANDS_CONTENDED
        });
        let later = kept.map_or_else(Vec::new, |last| calls.split_off(last + 1));
        for call in later.into_iter().rev() {
            self.waiting.push_front(call);
        }
    }

    /// How long to wait before the next group, when there is one right after a group of ours.
    pub(crate) fn gap(&mut self) -> Option<Duration> {
        self.in_a_row += 1;
        let limit = if self.have_others(CONTENDED_FOR) { 1 } else { GROUPS_IN_A_ROW };
        (self.in_a_row >= limit).then(|| {
            self.in_a_row = 0;
            self.put_time * GAP_PUTS
        })
    }
}
