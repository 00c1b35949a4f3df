//! The sweep: finds whatever stands still and sets it moving, so that no lost wake-up can stall a job.

use tidemill_model::{TaskHead, TaskState, Timestamp};

use super::advance::dispatch_ready;
use super::draft::Draft;
use crate::command::Sweep;
use crate::commit::{Delivered, TaskChangeKind};
use crate::reply::Reply;
use crate::state::queue::Queued;
use crate::state::{State, TaskView};

/// A task whose last event lies further ahead than this, in milliseconds, was written by a clock that has been set back
/// since. Events of one task are stamped a millisecond apart, so a busy one runs ahead a little by itself.
const AHEAD_MILLIS_MAX: u64 = 60_000;

pub(super) fn decide(state: &State, command: &Sweep, draft: &mut Draft<'_, '_>) -> Reply {
    let mut repaired = 0;
    if command.after.is_none() {
        let mut stalled: Vec<_> = state.jobs().filter(|job| !job.ready.is_empty()).collect();
        stalled.sort_by_key(|job| job.head.job);
        for job in stalled {
            repaired += dispatch_ready(job, draft);
        }
    }
    let max = draft.policy().sweep_max;
    let mut last = None;
    let mut seen = 0;
    for key in state.live_after(command.after.as_ref()).take(max) {
        seen += 1;
        last = Some(key);
        let Some(task) = state.task(key) else { continue };
        let Some(head) = task.entry.head.as_ref() else { continue };
        let queued = task.entry.message.and_then(|message| state.queue().get(message));
        let has_message =
            queued.is_some_and(|queued| queued.message.task == *key && queued.message.run == head.run);
        let needs_message = match &head.state {
            TaskState::Queued => true,
            TaskState::Leased(lease) => lease.until < draft.now(),
            TaskState::Parked | TaskState::Done(_) => false,
        };
        if needs_message && !has_message {
            draft.enqueue(key, head.run, draft.now());
            repaired += 1;
        } else if let Some(queued) = queued.filter(|_| has_message)
            && let Some(at) = moved_back(&task, head, queued, draft)
        {
            if let TaskState::Leased(_) = head.state {
                draft.change(key, TaskChangeKind::Shorten { fence: head.fence, until: at });
                // The lease still holds in its last millisecond.
                draft.show_at(queued.message.id, at.plus(1), Delivered::No);
            } else {
                draft.show_at(queued.message.id, at, Delivered::No);
            }
            repaired += 1;
        }
    }
    Reply::Swept { repaired, after: last.filter(|_| seen == max).cloned() }
}

/// When a hidden message may be seen, or a lease ends, if the clock was set back since: as long from now as the message
/// had to wait from the task's last event, or one lease from now. Else it would wait for a time that is as far away as
/// the clock was set back.
fn moved_back(
    task: &TaskView<'_>,
    head: &TaskHead,
    queued: &Queued,
    draft: &Draft<'_, '_>,
) -> Option<Timestamp> {
    let now = draft.now();
    let last = task.entry.stream.last_timestamp()?;
    let is_ahead = last.since(now) > AHEAD_MILLIS_MAX && queued.visible_at > last;
    match &head.state {
        TaskState::Queued if is_ahead => Some(now.plus(queued.visible_at.since(last))),
        // Its worker may be gone, and would be missed only when the clock is there again. If it lives it is heard.
        TaskState::Leased(lease) if is_ahead && lease.claimed_at.since(now) > AHEAD_MILLIS_MAX => {
            Some(now.plus(draft.policy().lease_millis)).filter(|until| *until < lease.until)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::ErrorCategory;

    use super::super::fixture::{Fixture, completed, failed, key};
    use crate::command::{Command, Sweep};
    use crate::reply::Reply;

    const DAY: u64 = 24 * 3_600_000;

    fn sweep(fixture: &mut Fixture) -> u32 {
        match fixture.run(&Command::Sweep(Sweep::default())).unwrap().1 {
            Reply::Swept { repaired, .. } => repaired,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_clock_that_was_set_back_hides_no_task() {
        for state in ["retrying", "leased"] {
            let mut fixture = Fixture::new();
            fixture.submit_task("t-1");
            let task = fixture.claim(1).remove(0);
            if state == "retrying" {
                fixture.finish(&key("t-1"), task.fence, failed(ErrorCategory::Network)).unwrap();
            }
            assert_eq!(sweep(&mut fixture), 0, "{state}: it waits as it should");
            fixture.now = fixture.now.minus(DAY);
            assert_eq!(fixture.claim(1).len(), 0, "{state}");
            assert_eq!(sweep(&mut fixture), 1, "{state}");
            assert_eq!(sweep(&mut fixture), 0, "{state}: once is enough");
            fixture.now = fixture.now.plus(10 * 60_000);
            assert_eq!(fixture.claim(1).len(), 1, "{state}");
        }
    }

    #[test]
    fn a_live_worker_is_heard_after_the_clock_was_set_back() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let task = fixture.claim(1).remove(0);
        fixture.now = fixture.now.minus(DAY);
        assert_eq!(sweep(&mut fixture), 1);
        fixture.finish(&key("t-1"), task.fence, completed()).unwrap();
    }
}
