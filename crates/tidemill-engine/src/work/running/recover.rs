//! Recover: take back the leases that former lives of the data directory left behind.

use tidemill_model::TaskState;

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::Command;
use crate::kernel::commit::{Delivered, TaskChangeKind};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::Draft;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;

/// Takes back the leases of former lives of the data directory.
#[derive(Debug, Clone)]
pub struct Recover {
    pub generation: u64,
}

impl Decision for Recover {
    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::OfAnyTenant
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(decide(state, self.generation, draft))
    }
}

pub(crate) fn decide(state: &State, generation: u64, draft: &mut Draft<'_, '_>) -> Reply {
    let mut released = 0;
    for key in state.live_after(None) {
        let Some(task) = state.task(key) else { continue };
        let Some(head) = task.entry.head.as_ref() else { continue };
        let TaskState::Leased(lease) = &head.state else { continue };
        if lease.owner.generation.is_none_or(|owner| owner >= generation) {
            continue;
        }
        released += 1;
        // Whether it is a suspect is for the next claim to say.
        draft.change(key, TaskChangeKind::Interrupt { fence: head.fence });
        match task.entry.message {
            Some(message) => draft.show_at(message, draft.now(), Delivered::No),
            None => {
                draft.enqueue(key, head.run, draft.now());
            }
        }
    }
    Reply::Recovered { released }
}

impl<B: Backend> Engine<B> {
    /// Takes back the leases that lives of the data directory before `generation` left behind, and tells how many.
    pub async fn recover(&self, generation: u64) -> Result<u32, EngineError> {
        let reply = self.execute(Command::Recover(Recover { generation })).await?;
        take_reply!(reply, Reply::Recovered { released } => released)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidemill_model::Owner;

    use crate::kernel::command::{Claim, Command, Recover};
    use crate::kernel::fixture::{Fixture, key, worker};
    use crate::kernel::reply::Reply;

    #[test]
    fn only_former_lives_lose_their_leases() {
        for (owner, generation, released) in [
            (Some(1), 2, 1),
            (Some(1), 9, 1),
            (Some(2), 2, 0),
            (Some(3), 2, 0),
            (None, 2, 0), // a worker on another machine lives on
        ] {
            let mut fixture = Fixture::new();
            fixture.submit_task("t-1");
            let owner = Owner { worker: Arc::from("worker-1"), generation: owner };
            let claim =
                Claim { owner: owner.clone(), worker: worker(), max: 1, tenants: None, begin: Some(1) };
            fixture.run(&Command::Claim(claim)).unwrap();
            let (_, reply) = fixture.run(&Command::Recover(Recover { generation })).unwrap();
            assert_eq!(reply, Reply::Recovered { released }, "{owner:?} in life {generation}");
            let task = fixture.state.task(&key("t-1")).unwrap();
            let head = task.entry.head.clone().unwrap();
            assert_eq!(
                (head.takeovers, head.crashes, head.lease().is_none()),
                (0, released, released == 1),
                "a crash is no takeover"
            );
            assert_eq!(fixture.claim(1).len(), released as usize, "free at once, or not at all");
        }
    }
}
