//! Decisions: state and command in, commit and reply out.
//!
//! Nothing here reads a clock, a disk, a network or randomness, or changes the state; time and ids come in through the
//! `Circumstances`.

use tidemill_model::{TenantId, Timestamp};

use crate::kernel::command::Command;
use crate::kernel::commit::Commit;
use crate::kernel::draft::Draft;
use crate::kernel::id_source::IdSource;
use crate::kernel::policy::Policy;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::site::Site;
use crate::kernel::state::State;
use crate::kernel::state::row::RowKey;
use crate::outbound::{DeliveryKey, callback};

/// What there is to say of a command beside what it asks for. Each command says it in its own file.
pub(crate) trait Decision {
    /// The rows that must be in memory before it is decided. More may be known once those are there: it is asked again
    /// until all are.
    fn touches(&self, _state: &State, _now: Timestamp) -> Vec<RowKey> {
        Vec::new()
    }

    /// Whose jobs may fail by it.
    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::Nobodys
    }

    /// About how many bytes it puts into the log at most.
    fn log_bytes(&self) -> u64 {
        4_000
    }

    /// The field that makes it large, as callers know it.
    fn large_field(&self) -> &'static str {
        "command"
    }

    /// Writes what changes into the draft and answers. A refusal changes nothing.
    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal>;
}

/// What a command writes at most that keeps or replays a dead letter: a delivery is as large as the event it reports.
pub(crate) const LETTER_BYTES: u64 = 2_200_000;

/// Whose jobs may fail by a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MayFail<'a> {
    Nobodys,
    Of(&'a TenantId),
    OfAnyTenant,
}

impl MayFail<'_> {
    /// The alerts about failed jobs that those join which fail by the command.
    pub(crate) fn alerts_to_join(self, state: &State) -> Vec<DeliveryKey> {
        match self {
            Self::Nobodys => Vec::new(),
            Self::Of(tenant) => state.deliveries().gatherings(Some(tenant)),
            Self::OfAnyTenant => state.deliveries().gatherings(None),
        }
    }
}

/// What a decision may not find out by itself.
#[derive(Debug)]
pub struct Circumstances<'a> {
    pub now: Timestamp,
    pub ids: &'a mut IdSource,
    pub policy: &'a Policy,
    pub site: &'a Site,
}

/// Decides one command. A refusal changes nothing.
pub fn decide(
    state: &State,
    command: &Command,
    circumstances: &mut Circumstances<'_>,
) -> Result<(Commit, Reply), Refusal> {
    let mut draft = Draft::new(circumstances, state.deliveries());
    let reply = command.decision().decide(state, &mut draft)?;
    callback::enqueue_deliveries(state, &mut draft);
    Ok((draft.into_commit(), reply))
}
