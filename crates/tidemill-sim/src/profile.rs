//! A profile: what kind of world a seed makes.
//!
//! Each run leaves some things out and does others more often (swarm testing): a world that does a little of everything
//! rarely goes deep enough into anything.

use std::sync::Arc;

use tidemill_engine::outbound::JobFailedAlerts;
use tidemill_engine::policy::{AlertTargets, Policy};
use tidemill_model::RetryPolicy;

use crate::rng::Rng;

/// What an actor may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Work,
    SubmitJob,
    ResubmitJob,
    AddTasks,
    ChangeTasks,
    SubmitTask,
    ResubmitTask,
    Send,
    Cancel,
    Resume,
    Advance,
    SetBudget,
    Trespass,
    Publish,
    PutRecord,
    Forget,
    AnswerLetter,
    Receive,
    UseReceipt,
    MatchEvents,
    EndExecution,
    AnswerScriptLetter,
    TellWorkflow,
    MarkErrors,
    Unpark,
    EndDelivery,
    AnswerDeliveryLetter,
    CheckHealth,
}

#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) acts: Vec<(u32, Act)>,
    /// The most commands in one group.
    pub(crate) group_max: usize,
    /// How many answers in a thousand get lost.
    pub(crate) lost_answers: u32,
    /// In how many steps of a thousand the clock goes back.
    pub(crate) clock_back: u32,
    /// How many steps in a thousand are about the storage.
    pub(crate) storage: u32,
    /// In how many steps of a thousand bits of the derived rows turn over, beside those of `storage`.
    pub(crate) flips: u32,
}

/// How often each act is done in a world that leaves nothing out.
const USUAL: [(u32, Act); 28] = [
    (60, Act::Work),
    (6, Act::SubmitJob),
    (2, Act::ResubmitJob),
    (3, Act::AddTasks),
    (3, Act::ChangeTasks),
    (3, Act::SubmitTask),
    (1, Act::ResubmitTask),
    (2, Act::Send),
    (1, Act::Cancel),
    (3, Act::Resume),
    (1, Act::Advance),
    (2, Act::SetBudget),
    (1, Act::Trespass),
    (3, Act::Publish),
    (2, Act::PutRecord),
    (1, Act::Forget),
    (1, Act::AnswerLetter),
    (1, Act::Receive),
    (2, Act::UseReceipt),
    (3, Act::MatchEvents),
    (8, Act::EndExecution),
    (1, Act::AnswerScriptLetter),
    (6, Act::TellWorkflow),
    (2, Act::MarkErrors),
    (3, Act::Unpark),
    (12, Act::EndDelivery),
    (2, Act::AnswerDeliveryLetter),
    (3, Act::CheckHealth),
];

impl Profile {
    /// A world in which everything happens and the clock is steady.
    pub(crate) fn of_everything() -> Self {
        Self { acts: USUAL.to_vec(), group_max: 4, lost_answers: 50, clock_back: 0, storage: 60, flips: 0 }
    }

    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut acts = Vec::with_capacity(USUAL.len());
        for (weight, act) in USUAL {
            let factor = match act {
                Act::Work | Act::SubmitJob => rng.weighted(&[(1, 5), (2, 10), (1, 20)]),
                _ => rng.weighted(&[(2, 0), (1, 3), (3, 10), (1, 40)]),
            };
            acts.push((weight * factor, act));
        }
        Self {
            acts,
            group_max: rng.weighted(&[(2, 1), (2, 4), (1, 12)]),
            lost_answers: rng.weighted(&[(1, 0), (1, 50), (1, 300)]),
            clock_back: rng.weighted(&[(3, 0), (1, 10)]),
            storage: rng.weighted(&[(1, 30), (2, 100), (1, 250)]),
            flips: 0,
        }
    }
}

/// Which failed jobs raise an alert for people; those of the producer are `nightly` or have no name.
fn draw_job_failed(rng: &mut Rng) -> Option<JobFailedAlerts> {
    let gather_millis = rng.weighted(&[(1, 1_000), (1, 30_000)]);
    rng.weighted(&[(1, None), (1, Some("")), (1, Some("nightly"))])
        .map(|names| JobFailedAlerts::parse(names, gather_millis))
}

/// The numbers the engine goes by in this world; small ones, so that limits are met.
pub(crate) fn draw_policy(rng: &mut Rng) -> Policy {
    let usual = Policy::default();
    Policy {
        lease_millis: rng.weighted(&[(1, 5_000), (1, 20_000), (2, 45_000)]),
        takeovers_max: rng.weighted(&[(1, 1), (1, 3), (1, 10)]),
        crashes_max: rng.weighted(&[(1, 1), (1, 2), (2, 3)]),
        retry: RetryPolicy {
            max_attempts: rng.weighted(&[(1, 2), (2, 3)]),
            first_delay: rng.weighted(&[(1, 100), (1, 5_000)]),
            max_delay: 30_000,
            on_timeout: false,
        },
        tenant_tasks_max: rng.weighted(&[(1, 60), (3, usual.tenant_tasks_max)]),
        idempotency_millis: rng.weighted(&[(1, 60_000), (2, usual.idempotency_millis)]),
        claim_max: rng.weighted(&[(1, 3), (3, 256)]),
        sweep_max: rng.weighted(&[(1, 5), (3, 1_000)]),
        park_millis: rng.weighted(&[(1, 10_000), (1, 120_000), (2, usual.park_millis)]),
        deliveries_max: rng.weighted(&[(1, 2), (3, usual.deliveries_max)]),
        workflow_webhook: rng.chance(500),
        alerts: AlertTargets { people: rng.chance(500), webhook: rng.chance(300) },
        statuses_bytes_max: rng.weighted(&[(1, 200), (3, 150_000)]),
        job_failed: draw_job_failed(rng).map(Arc::new),
        ..usual
    }
}
