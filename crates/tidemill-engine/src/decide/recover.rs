//! Recover: take back the leases that former lives of the data directory left behind.

use tidemill_model::TaskState;

use super::draft::Draft;
use crate::commit::TaskChangeKind;
use crate::reply::Reply;
use crate::state::State;

pub(super) fn decide(state: &State, generation: u64, draft: &mut Draft<'_, '_>) -> Reply {
    let mut released = 0;
    for key in state.live_after(None) {
        let Some(task) = state.task(key) else { continue };
        let Some(head) = task.entry.head.as_ref() else { continue };
        let TaskState::Leased(lease) = &head.state else { continue };
        if lease.owner.generation.is_none_or(|owner| owner >= generation) {
            continue;
        }
        released += 1;
        // Whether it was taken too often is for the next claim to say.
        draft.change(key, TaskChangeKind::Revoke { fence: head.fence });
        match task.entry.message {
            Some(message) => draft.show_at(message, draft.now(), false),
            None => {
                draft.enqueue(key, head.run, draft.now());
            }
        }
    }
    Reply::Recovered { released }
}
