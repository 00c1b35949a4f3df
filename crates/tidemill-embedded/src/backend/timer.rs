//! The timer: wakes waiting workers when a hidden message becomes visible.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::bell::Heard;
use super::embedded::Shared;

impl Shared {
    pub(super) fn run_timer(&self) {
        let mut deadline = None;
        loop {
            if self.timer_bell.wait(deadline) == Heard::Closed {
                return;
            }
            let now = self.clock.now();
            let (due, next) = {
                let mut deciding = self.deciding();
                let state = &mut deciding.decider.state;
                let before = state.queue().ready();
                state.show_due_messages(now);
                (state.queue().ready().saturating_sub(before), state.queue().next_visible())
            };
            self.timer_target
                .store(next.map_or(u64::MAX, tidemill_model::Timestamp::millis), Ordering::Relaxed);
            deadline = next.map(|at| Instant::now() + Duration::from_millis(at.since(now).max(1)));
            if due > 0 {
                self.work.arrived(due);
            }
        }
    }
}
