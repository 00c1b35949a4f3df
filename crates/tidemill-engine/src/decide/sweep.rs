//! The sweep: finds whatever stands still and sets it moving, so that no lost wake-up can stall a job.

use super::advance::dispatch_ready;
use super::draft::Draft;
use crate::command::Sweep;
use crate::reply::Reply;
use crate::state::State;
use tidemill_model::TaskState;

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
        }
    }
    Reply::Swept { repaired, after: last.filter(|_| seen == max).cloned() }
}
