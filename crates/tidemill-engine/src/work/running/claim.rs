//! Claim: deliver messages and take the leases of their tasks, in one commit.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_model::events::properties::TaskProcessingStarted;
use tidemill_model::{Json, KnownType, Owner, TaskHead, TaskState, TenantId, Timestamp, WorkerId};

use crate::kernel::commit::{Delivered, Message, TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::{By, Draft, identity, job_name_of, spec_of};
use crate::kernel::reply::{Assignment, Refusal, Reply};
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::triage::ingest;
use crate::usage::charge::{self, Verdict};
use crate::work::running::give_up::{Exhausted, give_up};

#[derive(Debug, Clone)]
pub struct Claim {
    pub owner: Owner,
    pub worker: WorkerId,
    pub max: usize,
    /// The tenants the worker may serve; `None` for all.
    pub tenants: Option<Arc<[TenantId]>>,
    /// Writes `Task Processing Started` with this process id in the same commit. A worker that starts child processes
    /// leaves it out and sends `Begin` once it knows the child's.
    pub begin: Option<u32>,
}

impl Decision for Claim {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        delivered_rows(state, self.tenants.as_deref(), self.max)
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::OfAnyTenant
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(decide(state, self, draft))
    }
}

/// How many more messages than asked for a claim looks at: it drops stale ones on the way.
pub(crate) const LOOK_AHEAD: usize = 64;
/// A message of a task that somebody holds comes back this long after the lease ends, in milliseconds.
const AFTER_LEASE_MILLIS: u64 = 1_000;
/// A claim that a suspect is in the way of looks again after this time, in milliseconds.
const SUSPECT_MILLIS: u64 = 1_000;

pub(crate) fn decide(state: &State, command: &Claim, draft: &mut Draft<'_, '_>) -> Reply {
    let mut max = command.max.min(draft.policy().claim_max);
    let until = draft.now().plus(draft.policy().lease_millis);
    let mut tasks: Vec<Assignment> = Vec::new();
    let mut taken: HashSet<TaskKey> = HashSet::new();
    // Jobs that this commit reports a failure of, or may not.
    let mut failed_in = HashSet::new();
    // Whether another claim may find something at once.
    let mut more = false;
    let mut next = state.queue().next_visible();
    let serves = |tenant: &_| command.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant));
    let mut alone = None;
    match suspect(state, command, &serves, draft) {
        Suspect::None => {}
        Suspect::Runs => return Reply::Claimed { tasks, next: Some(draft.now().plus(SUSPECT_MILLIS)) },
        Suspect::Next(queued) => (alone, max) = (Some(queued), max.min(1)),
    }
    let others = state.queue().deliverable(serves);
    let others = others.filter(|queued| alone.is_none_or(|alone| alone.message.id != queued.message.id));
    for queued in alone.into_iter().chain(others).take(max + LOOK_AHEAD) {
        if tasks.len() == max {
            break;
        }
        let message = &queued.message;
        if taken.contains(&message.task) {
            hide(message, until, &mut next, draft);
            continue;
        }
        match judge(state, message, draft.now()) {
            Delivery::Stale => {
                more = true;
                draft.settle(Some(message.id));
            }
            Delivery::Busy { until } => hide(message, until, &mut next, draft),
            Delivery::Run { head, .. }
                if alone.is_none_or(|alone| alone.message.id != message.id)
                    && must_be_alone(head, command, draft) =>
            {
                let at = draft.now().plus(SUSPECT_MILLIS);
                next = Some(next.map_or(at, |next| next.min(at)));
            }
            Delivery::Run { task, head, takeover } => {
                let exhausted = exhausted(head, takeover, draft);
                let is_silent = exhausted.is_some();
                let verdict = judge_budgets(state, &message.task, &task, draft);
                if let (false, Verdict::Start { left }) = (is_silent, &verdict) {
                    if command.begin.is_some() {
                        // A failure lists the states of its job, so none may be listed that this commit changes.
                        failed_in.extend(message.task.request.job_part());
                    }
                    let assignment = acquire(command, queued, &task, head, takeover, until, draft);
                    let (budget_left, budget_name) = left.clone().unzip();
                    tasks.push(Assignment { budget_left, budget_name, ..assignment });
                } else {
                    more = true;
                    let job = message.task.request.job_part();
                    // For the same reason a job gets one failure in a commit; the others come next.
                    if job.is_none_or(|job| failed_in.insert(job)) {
                        match verdict {
                            Verdict::Refuse(error) if !is_silent => {
                                charge::refuse(state, &message.task, &task, head, &error, draft);
                            }
                            _ => give_up(
                                state,
                                &message.task,
                                &task,
                                head,
                                exhausted.unwrap_or(Exhausted::Takeovers),
                                draft,
                            ),
                        }
                    }
                }
                if tasks.len() < max {
                    taken.insert(message.task.clone());
                }
            }
        }
    }
    let next = if more { Some(draft.now()) } else { next };
    Reply::Claimed { next: next.filter(|_| tasks.is_empty()), tasks }
}

/// A task that was running in crash after crash of the process, which now runs alone or is to.
enum Suspect<'s> {
    None,
    /// It runs, and nothing beside it.
    Runs,
    /// It is next, and nothing with it.
    Next(&'s Queued),
}

/// The suspect that decides what this claim may take. A worker on another machine does not die with this process, so it
/// takes a suspect like anything else.
fn suspect<'s>(
    state: &'s State,
    command: &Claim,
    serves: &impl Fn(&TenantId) -> bool,
    draft: &Draft<'_, '_>,
) -> Suspect<'s> {
    let Some(generation) = command.owner.generation else { return Suspect::None };
    let mut next = None;
    for key in state.suspicion().suspects(draft.policy().crashes_max) {
        let Some(task) = state.task(key) else { continue };
        let Some(head) = task.entry.head.as_ref().filter(|head| must_be_alone(head, command, draft)) else {
            continue;
        };
        let is_held = head.lease().is_some_and(|lease| lease.until >= draft.now());
        if is_held && state.suspicion().is_held_by(key, generation) {
            return Suspect::Runs;
        }
        if next.is_none()
            && !is_held
            && serves(&key.tenant)
            && !state.suspicion().holds_another(key, generation)
        {
            let message = task.entry.message.and_then(|message| state.queue().get(message));
            next = message.filter(|queued| queued.visible_at <= draft.now());
        }
    }
    next.map_or(Suspect::None, Suspect::Next)
}

/// Whether a task may run only while the process holds nothing else.
fn must_be_alone(head: &TaskHead, command: &Claim, draft: &Draft<'_, '_>) -> bool {
    #[cfg(feature = "faults")]
    if draft.policy().faults.crowd_suspects {
        return false;
    }
    command.owner.generation.is_some() && head.crashes == draft.policy().crashes_max
}

/// Why nobody may try the task again, if so.
fn exhausted(head: &TaskHead, takeover: bool, draft: &Draft<'_, '_>) -> Option<Exhausted> {
    if head.crashes > draft.policy().crashes_max {
        return Some(Exhausted::Crashes);
    }
    let takeovers = head.takeovers.saturating_add(u32::from(takeover));
    (takeovers > draft.policy().takeovers_max).then_some(Exhausted::Takeovers)
}

#[cfg(not(feature = "faults"))]
fn judge_budgets(state: &State, key: &TaskKey, task: &TaskRef<'_>, draft: &Draft<'_, '_>) -> Verdict {
    charge::judge(state, key, task, draft.now())
}

#[cfg(feature = "faults")]
fn judge_budgets(state: &State, key: &TaskKey, task: &TaskRef<'_>, draft: &Draft<'_, '_>) -> Verdict {
    match charge::judge(state, key, task, draft.now()) {
        Verdict::Refuse(_) if draft.policy().faults.ignore_budgets => Verdict::Start { left: None },
        verdict => verdict,
    }
}

/// Puts a message off until the lease in its way is over.
fn hide(message: &Message, until: Timestamp, next: &mut Option<Timestamp>, draft: &mut Draft<'_, '_>) {
    let at = until.plus(AFTER_LEASE_MILLIS);
    *next = Some(next.map_or(at, |next| next.min(at)));
    draft.show_at(message.id, at, Delivered::No);
}

enum Delivery<'s> {
    /// Nothing is left to do for it.
    Stale,
    /// Somebody is at it.
    Busy {
        until: Timestamp,
    },
    Run {
        task: TaskRef<'s>,
        head: &'s TaskHead,
        takeover: bool,
    },
}

fn judge<'s>(state: &'s State, message: &Message, now: Timestamp) -> Delivery<'s> {
    // Live work is always in memory: what is not here is finished.
    let Some(task) = state.task(&message.task) else { return Delivery::Stale };
    let Some(head) = task.entry.head.as_ref() else { return Delivery::Stale };
    if message.run != head.run {
        return Delivery::Stale;
    }
    match &head.state {
        TaskState::Done(_) | TaskState::Parked => Delivery::Stale,
        TaskState::Leased(lease) if lease.until >= now => Delivery::Busy { until: lease.until },
        TaskState::Leased(_) => Delivery::Run { task, head, takeover: true },
        // Between attempts the message that waits for the next one rules: a duplicate must not cut the delay short.
        TaskState::Queued if head.attempts > 0 => match standing(state, &task, message) {
            Some(at) if at > now => Delivery::Busy { until: at },
            _ => Delivery::Run { task, head, takeover: false },
        },
        TaskState::Queued => Delivery::Run { task, head, takeover: false },
    }
}

/// When the message that stands for the task becomes visible, if it is another one than this.
fn standing(state: &State, task: &TaskRef<'_>, message: &Message) -> Option<Timestamp> {
    let standing = task.entry.message.filter(|standing| *standing != message.id)?;
    state.queue().get(standing).map(|queued| queued.visible_at)
}

fn acquire(
    command: &Claim,
    queued: &Queued,
    task: &TaskRef<'_>,
    head: &TaskHead,
    takeover: bool,
    until: Timestamp,
    draft: &mut Draft<'_, '_>,
) -> Assignment {
    let message = &queued.message;
    let key = &message.task;
    let fence = head.fence.next();
    let at = draft.now();
    draft.change(key, TaskChangeKind::Acquire { fence, owner: command.owner.clone(), until, at, takeover });
    // The lease still holds in its last millisecond.
    draft.show_at(message.id, until.plus(1), Delivered::Claimed);
    if let Some(process_id) = command.begin {
        draft.change(key, TaskChangeKind::Begin { fence });
        let mut subject = draft.task_subject(key, task);
        let started = TaskProcessingStarted {
            task: identity(&key.request, task),
            effective_until: until,
            worker_id: command.worker.clone(),
            process_id,
            fence,
            directory: None,
            variables: Vec::new(),
        };
        let by = By::worker(&command.worker);
        draft.event(&mut subject, KnownType::TaskProcessingStarted, by, Json::of(&started));
    }
    let (app, job) = match task.place {
        TaskPlace::Alone(alone) => (alone.app.clone(), None),
        TaskPlace::InJob { job, .. } => (job.head.app.clone(), Some(job.head.job)),
    };
    Assignment {
        task: key.clone(),
        app,
        job,
        job_name: job_name_of(task),
        spec: spec_of(task),
        run: head.run,
        attempt: head.attempts.saturating_add(1),
        fence,
        lease_until: until,
        message: message.id,
        waited_millis: at.since(queued.visible_at),
        is_takeover: takeover,
        session_id: head.session.clone(),
        budget_left: None,
        budget_name: None,
    }
}

/// What is known of the errors of tasks that a delivery may give up: none is known of a task in its first run.
pub(crate) fn delivered_rows(state: &State, tenants: Option<&[TenantId]>, max: usize) -> Vec<RowKey> {
    let serves = |tenant: &TenantId| tenants.is_none_or(|tenants| tenants.contains(tenant));
    let mut rows = Vec::new();
    let mut sound = 0;
    for queued in state.queue().deliverable(serves).take(max.saturating_add(LOOK_AHEAD)) {
        let key = &queued.message.task;
        let task = state.task(key);
        match task.and_then(|task| task.entry.head.as_ref()) {
            Some(head) if head.run > 1 => rows.extend(ingest::task_rows(state, &key.tenant, &key.request)),
            Some(_) => sound += 1,
            None => {}
        }
        if sound >= max {
            break;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use tidemill_model::ErrorCategory;

    use super::*;
    use crate::kernel::command::{Command, Recover, Send};
    use crate::kernel::fixture::{Fixture, alone, claim, completed, failed, key};

    /// Brings a task into a state in which it still has a second message.
    fn prepared(state: &str) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        if state != "waiting" {
            let task = fixture.claim(1).remove(0);
            match state {
                "held" | "silent" => {}
                "done" => drop(fixture.finish(&task.task, task.fence, completed()).unwrap()),
                "retrying" => {
                    drop(fixture.finish(&task.task, task.fence, failed(ErrorCategory::Network)).unwrap());
                }
                other => panic!("{other}"),
            }
        }
        if state == "silent" {
            fixture.now = fixture.now.plus(45_001);
        }
        fixture
    }

    #[test]
    fn a_delivery_is_judged_by_the_head() {
        for (state, run, expected) in [
            ("waiting", 1, "run"),
            ("waiting", 0, "stale"),
            ("waiting", 2, "stale"),
            ("held", 1, "busy until 45000"),
            ("held", 2, "stale"),
            ("silent", 1, "take over"),
            ("done", 1, "stale"),
            ("retrying", 2, "stale"),
        ] {
            let mut fixture = prepared(state);
            let message = Send { task: alone("t-1"), run, delay_millis: 0 };
            let (commit, _) = fixture.run(&Command::Send(message)).unwrap();
            let judged = match judge(&fixture.state, &commit.enqueue[0], fixture.now) {
                Delivery::Stale => "stale".to_owned(),
                Delivery::Busy { until } => format!("busy until {}", until.millis() - 1_800_000_000_000),
                Delivery::Run { takeover: false, .. } => "run".to_owned(),
                Delivery::Run { takeover: true, .. } => "take over".to_owned(),
            };
            assert_eq!(judged, expected, "a message of run {run} for a task that is {state}");
        }
    }

    #[test]
    fn a_duplicate_between_attempts_waits_for_the_message_that_rules() {
        let mut fixture = prepared("retrying");
        let ruling = fixture.state.task(&key("t-1")).and_then(|task| task.entry.message).unwrap();
        let at = fixture.state.queue().get(ruling).unwrap().visible_at;
        let message = Send { task: alone("t-1"), run: 1, delay_millis: 0 };
        let (commit, _) = fixture.run(&Command::Send(message)).unwrap();
        let duplicate = commit.enqueue[0].clone();
        assert!(
            matches!(judge(&fixture.state, &duplicate, fixture.now), Delivery::Busy { until } if until == at)
        );
        assert!(matches!(judge(&fixture.state, &duplicate, at), Delivery::Run { .. }));
    }

    /// Claims as a life of the process, or as a remote worker.
    fn claim_in(fixture: &mut Fixture, generation: Option<u64>) -> Vec<TaskKey> {
        let Command::Claim(claim) = claim(9) else { unreachable!("it is a claim") };
        let owner = tidemill_model::Owner { generation, ..claim.owner.clone() };
        match fixture.run(&Command::Claim(Claim { owner, ..claim })).unwrap().1 {
            Reply::Claimed { tasks, .. } => tasks.into_iter().map(|task| task.task).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Two tasks that were running in three crashes, and one more that came later, in the fourth life.
    fn crashed() -> Fixture {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        fixture.submit_task("t-2");
        for life in 1..=3 {
            assert_eq!(claim_in(&mut fixture, Some(life)).len(), 2, "beside each other in life {life}");
            fixture.run(&Command::Recover(Recover { generation: life + 1 })).unwrap();
        }
        fixture.submit_task("t-3");
        fixture
    }

    #[test]
    fn a_task_that_ran_in_three_crashes_is_run_alone() {
        let mut fixture = crashed();
        assert_eq!(claim_in(&mut fixture, Some(4)), [key("t-1")], "nothing with it");
        assert_eq!(claim_in(&mut fixture, Some(4)), [], "and nothing beside it");
        let fence = fixture.state.task(&key("t-1")).unwrap().entry.head.as_ref().unwrap().fence;
        fixture.finish(&key("t-1"), fence, failed(ErrorCategory::Network)).unwrap();
        assert_eq!(claim_in(&mut fixture, Some(4)), [key("t-2")], "the next one");
        let (commit, _) = fixture.run(&Command::Recover(Recover { generation: 5 })).unwrap();
        assert_eq!(commit.tasks.len(), 1);
        fixture.now = fixture.now.plus(60_000);
        assert_eq!(claim_in(&mut fixture, Some(5)), [key("t-1"), key("t-3")], "t-1 is cleared");
        let head = fixture.state.task(&key("t-2")).unwrap().entry.head.clone().unwrap();
        assert_eq!(head.outcome(), Some(tidemill_model::Outcome::Failed), "it was alone in the crash");
    }

    #[test]
    fn a_suspect_waits_for_what_the_process_holds_and_not_for_remote_workers() {
        let mut fixture = crashed();
        let remote = claim_in(&mut fixture, None);
        assert_eq!(remote.len(), 3, "a remote worker takes suspects like anything else");
        let mut fixture = crashed();
        let task = fixture.state.task(&key("t-3")).unwrap().entry.message.unwrap();
        // Somebody hides the suspects for a moment, so that another task is first.
        for id in ["t-1", "t-2"] {
            let message = fixture.state.task(&key(id)).unwrap().entry.message.unwrap();
            assert_ne!(message, task);
            fixture.hide(message, 1_000);
        }
        assert_eq!(claim_in(&mut fixture, Some(4)), [key("t-3")]);
        fixture.now = fixture.now.plus(1_000);
        assert_eq!(claim_in(&mut fixture, Some(4)), [], "it waits until the process holds nothing");
        let fence = fixture.state.task(&key("t-3")).unwrap().entry.head.as_ref().unwrap().fence;
        fixture.finish(&key("t-3"), fence, completed()).unwrap();
        assert_eq!(claim_in(&mut fixture, Some(4)), [key("t-1")]);
    }

    #[test]
    fn a_claim_takes_each_task_once_and_no_more_than_it_may() {
        let mut fixture = Fixture::new();
        fixture.policy.claim_max = 4;
        for n in 0..6 {
            fixture.submit_task(&format!("t-{n}"));
            let message = Send { task: alone(&format!("t-{n}")), run: 1, delay_millis: 0 };
            fixture.run(&Command::Send(message)).unwrap();
        }
        assert_eq!(fixture.claim(100).len(), 4, "the policy's limit");
        assert_eq!(fixture.claim(100).len(), 2, "what is left");
        let Reply::Claimed { tasks, next } = fixture.run(&claim(100)).unwrap().1 else { panic!("a claim") };
        assert!(tasks.is_empty());
        assert_eq!(next, Some(fixture.now.plus(45_001)), "when the first lease is over");
    }
}
