//! Live logs: the last part of what running tasks print, in memory, for watchers.
//!
//! Nothing here is durable. The whole log of an attempt is a blob once the attempt has ended.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kernel::commit::TaskKey;
use crate::kernel::notice::Notice;

/// The bytes that are kept of one task.
pub const LIVE_BYTES_MAX: usize = 256 * 1024;
/// The tasks that are kept, running and ended. Beyond it the one that was silent longest is dropped.
pub const LIVE_TASKS_MAX: usize = 1_024;

/// The logs of running tasks. Clones share everything.
#[derive(Debug, Clone, Default)]
pub struct LiveLogs {
    shelf: Arc<Mutex<Shelf>>,
}

#[derive(Debug, Default)]
struct Shelf {
    logs: HashMap<TaskKey, LiveLog, foldhash::fast::RandomState>,
    /// Grows with every change; tells which log was silent longest.
    turn: u64,
}

#[derive(Debug)]
struct LiveLog {
    run: u32,
    attempt: u32,
    /// Where `bytes` begins in all that was printed.
    start: u64,
    bytes: VecDeque<u8>,
    ended: bool,
    last_turn: u64,
    grown: Notice,
}

/// A part of a log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogPart {
    /// Where `bytes` begins. It lies behind what was asked for when that is gone, and before it when another attempt
    /// has begun.
    pub start: u64,
    pub bytes: Vec<u8>,
    /// Where to go on.
    pub next: u64,
    /// Nothing follows in this attempt.
    pub ended: bool,
    /// The run and the attempt that print; 0 when nothing is known of the task.
    pub run: u32,
    pub attempt: u32,
}

impl LiveLogs {
    /// Adds what an attempt printed. Another attempt than before begins a new log at 0.
    pub fn append(&self, task: &TaskKey, run: u32, attempt: u32, bytes: &[u8]) {
        let mut kept = self.lock();
        let log = kept.log(task, run, attempt);
        // Of a single huge piece only the end could stay anyway.
        let skipped = bytes.len().saturating_sub(LIVE_BYTES_MAX);
        if skipped > 0 {
            log.start += log.bytes.len() as u64 + skipped as u64;
            log.bytes.clear();
        }
        log.bytes.extend(&bytes[skipped..]);
        let excess = log.bytes.len().saturating_sub(LIVE_BYTES_MAX);
        log.bytes.drain(..excess);
        log.start += excess as u64;
        let grown = log.grown.clone();
        drop(kept);
        grown.ring();
    }

    /// Says that the attempt prints nothing more. What there is stays readable for a while.
    pub fn end(&self, task: &TaskKey) {
        let mut kept = self.lock();
        let Some(log) = kept.logs.get_mut(task) else { return };
        log.ended = true;
        let grown = log.grown.clone();
        drop(kept);
        grown.ring();
    }

    /// What was printed from the byte `from` on, as far as it is still here.
    pub fn read(&self, task: &TaskKey, from: u64) -> LogPart {
        let kept = self.lock();
        let Some(log) = kept.logs.get(task) else {
            return LogPart { start: from, next: from, ..LogPart::default() };
        };
        let end = log.start + log.bytes.len() as u64;
        // A place behind the end is of an attempt before this one.
        let start = if from > end { log.start } else { from.max(log.start) };
        let skipped = usize::try_from(start - log.start).unwrap_or(usize::MAX);
        let bytes = log.bytes.iter().skip(skipped).copied().collect();
        LogPart { start, bytes, next: end, ended: log.ended, run: log.run, attempt: log.attempt }
    }

    /// Waits until there is more than the byte `from`, until the attempt has ended, or until another one has begun. For
    /// a task that has not printed yet it waits for the first byte.
    pub async fn grown(&self, task: &TaskKey, from: u64) {
        loop {
            let listening = {
                let mut kept = self.lock();
                let log = match kept.logs.get(task) {
                    Some(log) => log,
                    None => kept.log(task, 0, 0),
                };
                if log.ended || log.start + log.bytes.len() as u64 != from {
                    return;
                }
                log.grown.listen()
            };
            listening.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn log(&mut self, task: &TaskKey, run: u32, attempt: u32) -> &mut LiveLog {
        self.turn += 1;
        let turn = self.turn;
        if !self.logs.contains_key(task) {
            if self.logs.len() >= LIVE_TASKS_MAX {
                self.drop_one();
            }
            let fresh = LiveLog {
                run,
                attempt,
                start: 0,
                bytes: VecDeque::new(),
                ended: false,
                last_turn: turn,
                grown: Notice::default(),
            };
            self.logs.insert(task.clone(), fresh);
        }
        let log = self.logs.get_mut(task).expect("it was just put there");
        if (log.run, log.attempt) != (run, attempt) {
            log.run = run;
            log.attempt = attempt;
            log.start = 0;
            log.bytes.clear();
            log.ended = false;
        }
        log.last_turn = turn;
        log
    }

    /// Drops the log that was silent longest, if possible one that no task prints to.
    fn drop_one(&mut self) {
        let silent = self.logs.iter().min_by_key(|(_, log)| (!log.ended && log.run > 0, log.last_turn));
        let Some(task) = silent.map(|(task, _)| task.clone()) else { return };
        if let Some(log) = self.logs.remove(&task) {
            // Watchers look again.
            log.grown.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tidemill_model::{RequestId, TenantId};

    use super::*;

    fn key(id: usize) -> TaskKey {
        TaskKey { tenant: TenantId::trusted("acme"), request: RequestId::trusted(&format!("t-{id}")) }
    }

    fn is_ready(future: impl Future<Output = ()>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_log_is_read_from_any_place() {
        let logs = LiveLogs::default();
        assert_eq!(logs.read(&key(1), 7), LogPart { start: 7, next: 7, ..LogPart::default() });
        logs.append(&key(1), 1, 1, b"one\n");
        logs.append(&key(1), 1, 1, b"two\n");
        for (from, start, text) in [(0, 0, "one\ntwo\n"), (4, 4, "two\n"), (8, 8, ""), (9, 0, "one\ntwo\n")] {
            let part = logs.read(&key(1), from);
            assert_eq!((part.start, part.bytes.as_slice(), part.next), (start, text.as_bytes(), 8), "{from}");
            assert_eq!((part.run, part.attempt, part.ended), (1, 1, false));
        }
        logs.append(&key(1), 1, 2, b"again\n");
        let part = logs.read(&key(1), 8);
        assert_eq!((part.start, part.bytes.as_slice(), part.attempt), (0, &b"again\n"[..], 2));
        logs.end(&key(1));
        assert!(logs.read(&key(1), 6).ended);
        logs.append(&key(1), 2, 1, b"x");
        assert!(!logs.read(&key(1), 0).ended, "the next attempt prints");
    }

    #[test]
    fn only_the_end_of_a_long_log_stays() {
        let logs = LiveLogs::default();
        let piece = vec![b'x'; 100_000];
        for _ in 0..4 {
            logs.append(&key(1), 1, 1, &piece);
        }
        let part = logs.read(&key(1), 10);
        assert_eq!((part.bytes.len(), part.next), (LIVE_BYTES_MAX, 400_000));
        assert_eq!(part.start, 400_000 - LIVE_BYTES_MAX as u64);
        logs.append(&key(1), 1, 1, &vec![b'y'; 3 * LIVE_BYTES_MAX]);
        let part = logs.read(&key(1), 0);
        assert_eq!(part.bytes, vec![b'y'; LIVE_BYTES_MAX]);
        assert_eq!(part.next, 400_000 + 3 * LIVE_BYTES_MAX as u64);
    }

    #[test]
    fn waiting_ends_with_more_with_the_end_and_with_another_attempt() {
        let logs = LiveLogs::default();
        let mut context = Context::from_waker(Waker::noop());
        let (task, other) = (key(1), key(2));
        let mut first = pin!(logs.grown(&task, 0));
        assert!(first.as_mut().poll(&mut context).is_pending(), "nothing is printed yet");
        logs.append(&other, 1, 1, b"x");
        assert!(first.as_mut().poll(&mut context).is_pending(), "that was another task");
        logs.append(&task, 1, 1, b"abc");
        assert!(first.as_mut().poll(&mut context).is_ready());
        assert!(is_ready(logs.grown(&task, 1)), "there is more already");
        let mut next = pin!(logs.grown(&task, 3));
        assert!(next.as_mut().poll(&mut context).is_pending());
        logs.append(&task, 1, 2, b"a");
        assert!(next.as_mut().poll(&mut context).is_ready(), "another attempt begins at 0");
        let mut end = pin!(logs.grown(&task, 1));
        assert!(end.as_mut().poll(&mut context).is_pending());
        logs.end(&task);
        assert!(end.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn of_too_many_tasks_those_that_print_nothing_go_first() {
        let logs = LiveLogs::default();
        logs.append(&key(0), 1, 1, b"runs");
        logs.append(&key(1), 1, 1, b"ended");
        logs.end(&key(1));
        for id in 2..=LIVE_TASKS_MAX {
            logs.append(&key(id), 1, 1, b"x");
        }
        assert_eq!(logs.read(&key(1), 0).run, 0, "the ended one made room");
        assert_eq!(logs.read(&key(0), 0).bytes, b"runs");
        // A watcher takes no log away from a task that prints.
        let mut context = Context::from_waker(Waker::noop());
        let watched = key(LIVE_TASKS_MAX + 1);
        let other = key(LIVE_TASKS_MAX + 2);
        assert!(pin!(logs.grown(&watched, 0)).poll(&mut context).is_pending());
        assert!(pin!(logs.grown(&other, 0)).poll(&mut context).is_pending());
        assert_eq!(logs.lock().logs.len(), LIVE_TASKS_MAX);
        assert_eq!(logs.read(&key(2), 0).run, 1, "only one had to go for the first of them");
    }
}
