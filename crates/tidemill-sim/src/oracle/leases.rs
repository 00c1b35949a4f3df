//! Leases: which worker may write, by the answers alone.
//!
//! A fence that was given out is remembered for ever. The store must accept the reports of the worker that has the
//! newest one and has not lost it, and of no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{Claim, Command, Delete, Finish, Recover, Report, Spent};
use tidemill_engine::commit::{MessageId, TaskKey};
use tidemill_engine::policy::Policy;
use tidemill_engine::reply::{Assignment, Ending, Refusal, Reply};
use tidemill_model::{Fence, KnownType, Outcome, SessionId, TaskHead, TaskState, Timestamp};

use crate::violation::{Violation, demand};

/// How much later than a new lease one must end for the sweep to think that the clock was set back, in milliseconds.
pub(super) const AHEAD_MILLIS: u64 = 60_000;

/// What is known of every task's lease.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pub(super) tasks: BTreeMap<TaskKey, LeaseFacts>,
    /// Tasks that the group which is being heard gave other work, each with the newest fence that was known then.
    reworked: Vec<(TaskKey, u64)>,
    /// Messages that were deleted by a receipt and must never be seen again.
    deleted: BTreeSet<MessageId>,
}

/// One task's lease.
#[derive(Debug, Default)]
pub(super) struct LeaseFacts {
    pub(super) run: u32,
    /// Attempts of this run that ended and were answered.
    pub(super) attempts: u32,
    /// Crashes in a row under a worker that dies with the store.
    crashes: u32,
    /// The newest fence that was given out or written.
    pub(super) fence: u64,
    /// What was reported under the newest fence and taken.
    reported: Option<(u64, u64)>,
    /// The fence of the last failure that was answered with another attempt.
    pub(super) retried: Option<u64>,
    pub(super) holder: Option<Holder>,
    /// The session that the next attempt of the run gets.
    session: Option<SessionId>,
    /// The newest fence when the task was last given other work: the one that was known then, and the one that was known after
    /// the group, since a cancel of the same group raises it and only its event tells.
    reworked: (u64, u64),
    /// Where sweeps may have moved the end of the lease, after the clock was set back under it.
    shortened: Vec<Timestamp>,
}

impl LeaseFacts {
    /// The earliest moment at which the lease may have ended, if it is held.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        let holder = self.holder.as_ref()?;
        Some(self.shortened.iter().copied().fold(holder.until, Timestamp::min))
    }

    /// Whether the lease may hold at a moment when a sweep has shortened each one that would last beyond `last`. A clock that
    /// was set back by little leaves a lease as an earlier sweep shortened it.
    pub(super) fn may_hold(&self, now: Timestamp, last: Timestamp) -> bool {
        let Some(holder) = &self.holder else { return false };
        self.shortened.iter().chain([&holder.until]).any(|until| (now..=last).contains(until))
    }

    /// True when a head may show this holder.
    fn agrees(&self, shown: Option<&Holder>) -> bool {
        let (Some(known), Some(shown)) = (&self.holder, shown) else { return self.holder.as_ref() == shown };
        let ends_as_known = shown.until == known.until || self.shortened.contains(&shown.until);
        ends_as_known && Holder { until: known.until, ..shown.clone() } == *known
    }
}

/// The worker that may write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) fence: u64,
    pub(super) worker: Arc<str>,
    pub(super) generation: Option<u64>,
    pub(super) until: Timestamp,
    pub(super) claimed_at: Timestamp,
}

/// What the events of the same group must show.
#[derive(Debug, Clone)]
pub(super) enum Due {
    /// An event of this type with this fence.
    Written { task: TaskKey, known: KnownType, fence: u64 },
    /// The end of the run, in this group or before.
    Ended { task: TaskKey, fence: u64, outcome: Outcome },
    /// A holder was turned away, so its task must have ended meanwhile.
    Deposed { task: TaskKey, fence: u64 },
    /// The task was given to a worker, so it was dispatched in this run and not before its parents ended.
    Runs { task: TaskKey, run: u32 },
    /// A suspect was given out or runs, so nothing runs beside it in its process, unless it was given up in the same group.
    Alone { suspect: TaskKey, beside: Vec<(TaskKey, u64)> },
}

impl Leases {
    pub(super) fn of(&self, key: &TaskKey) -> Option<&LeaseFacts> {
        self.tasks.get(key)
    }

    /// Judges one answer, and notes what the events must show for it.
    pub(super) fn hear(
        &mut self,
        command: &Command,
        answer: &Answer,
        now: Timestamp,
        policy: &Policy,
        due: &mut Vec<Due>,
    ) -> Result<(), Violation> {
        match (command, answer) {
            (Command::Claim(claim), Ok(Reply::Claimed { tasks, .. })) => {
                demand(tasks.len() <= claim.max, "a claim gives what was asked for", || {
                    format!("{tasks:?}")
                })?;
                tasks.iter().try_for_each(|task| self.claimed(claim, task, now, due))?;
                self.check_alone(claim, tasks, now, policy, due);
                Ok(())
            }
            (Command::Begin(begin), answer) => {
                self.holder_speaks(&begin.task, begin.fence, answer, due)?;
                if answer.is_ok() {
                    due.push(written(&begin.task, KnownType::TaskProcessingStarted, begin.fence));
                }
                Ok(())
            }
            (Command::Heartbeat(beat), answer) => {
                self.holder_speaks(&beat.task, beat.fence, answer, due)?;
                if let Ok(Reply::Renewed { until }) = answer {
                    let facts = self.tasks.entry(beat.task.clone()).or_default();
                    let before = facts.held_until().unwrap_or(*until);
                    demand(*until >= before, "a lease is never shortened", || beat.task.request.to_string())?;
                    facts.holder.iter_mut().for_each(|holder| holder.until = *until);
                    facts.shortened.clear();
                    due.push(written(&beat.task, KnownType::TaskHeartbeat, beat.fence));
                }
                Ok(())
            }
            (Command::Release(release), answer) => {
                self.holder_speaks(&release.task, release.fence, answer, due)?;
                if answer.is_ok() {
                    self.free(&release.task);
                    if release.reason.is_some() {
                        self.keep_session(&release.task, &release.spent);
                        due.push(written(&release.task, KnownType::TaskProcessingFailed, release.fence));
                    }
                }
                Ok(())
            }
            (Command::Finish(finish), answer) => self.finished(finish, answer, policy, due),
            (Command::Cancel(cancel), Ok(Reply::Cancelled { tasks })) => {
                for request in tasks {
                    self.free(&TaskKey { tenant: cancel.tenant.clone(), request: request.clone() });
                }
                Ok(())
            }
            (Command::CancelTask(cancel), Ok(Reply::Cancelled { tasks })) => {
                for request in tasks {
                    self.free(&TaskKey { tenant: cancel.tenant.clone(), request: request.clone() });
                }
                Ok(())
            }
            (Command::Sweep(_), Ok(Reply::Swept { .. })) => {
                self.swept(now, policy);
                Ok(())
            }
            (Command::Recover(Recover { generation }), Ok(Reply::Recovered { released })) => {
                self.recovered(*generation, *released)
            }
            (Command::Receive(_), Ok(Reply::Received { messages, .. })) => {
                messages.iter().try_for_each(|(message, _, _)| self.delivered(message.id))
            }
            (Command::Delete(Delete { receipt, .. }), Ok(Reply::Deleted { existed: true })) => {
                self.deleted.insert(receipt.message);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn claimed(
        &mut self,
        claim: &Claim,
        task: &Assignment,
        now: Timestamp,
        due: &mut Vec<Due>,
    ) -> Result<(), Violation> {
        let key = &task.task;
        let served = claim.tenants.as_ref().is_none_or(|tenants| tenants.contains(&key.tenant));
        demand(served, "a worker gets only its tenants' tasks", || format!("{key:?}"))?;
        self.delivered(task.message)?;
        let facts = self.tasks.entry(key.clone()).or_default();
        demand(task.fence.0 > facts.fence, "fences strictly grow", || {
            format!("{} got {} after {}", key.request, task.fence.0, facts.fence)
        })?;
        if let Some(until) = facts.held_until() {
            demand(until < now, "one task has one worker", || {
                format!("{} given to {:?} while {:?} holds it", key.request, claim.owner, facts.holder)
            })?;
        }
        if task.run > facts.run {
            (facts.run, facts.attempts, facts.crashes, facts.session) = (task.run, 0, 0, None);
        }
        demand(task.session_id == facts.session, "an attempt gets the session of the one before", || {
            format!("{} got {:?}, not {:?}", key.request, task.session_id, facts.session)
        })?;
        demand(task.run == facts.run, "only the newest run is given out", || {
            format!("{} run {}, not {}", key.request, task.run, facts.run)
        })?;
        demand(task.attempt == facts.attempts + 1, "attempts count the ends that were told", || {
            format!("{} attempt {} after {}", key.request, task.attempt, facts.attempts)
        })?;
        demand(task.lease_until > now, "a claim gives time", || {
            format!("{} {}", key.request, task.lease_until)
        })?;
        facts.fence = task.fence.0;
        facts.holder = Some(Holder {
            fence: task.fence.0,
            worker: Arc::clone(&claim.owner.worker),
            generation: claim.owner.generation,
            until: task.lease_until,
            claimed_at: now,
        });
        facts.shortened.clear();
        due.push(Due::Runs { task: key.clone(), run: task.run });
        if claim.begin.is_some() {
            due.push(written(key, KnownType::TaskProcessingStarted, task.fence));
        }
        Ok(())
    }

    /// A suspect runs alone: nothing is given with it, nothing beside it.
    fn check_alone(
        &self,
        claim: &Claim,
        given: &[Assignment],
        now: Timestamp,
        policy: &Policy,
        due: &mut Vec<Due>,
    ) {
        if given.is_empty() || claim.owner.generation.is_none() {
            return;
        }
        let own = |(key, facts): (&TaskKey, &LeaseFacts)| {
            let holder =
                facts.holder.as_ref().filter(|holder| holder.generation == claim.owner.generation)?;
            let is_given = given.iter().any(|task| task.task == *key);
            let runs = is_given || facts.held_until() >= Some(now);
            Some((key.clone(), holder.fence, runs && facts.crashes >= policy.crashes_max))
        };
        let held: Vec<_> = self.tasks.iter().filter_map(own).collect();
        if let Some((suspect, ..)) = held.iter().find(|(_, _, is_suspect)| *is_suspect) {
            let others = held.iter().filter(|(key, ..)| key != suspect);
            let beside = others.map(|(key, fence, _)| (key.clone(), *fence)).collect();
            due.push(Due::Alone { suspect: suspect.clone(), beside });
        }
    }

    /// The holder of the newest fence is heard, and nobody else.
    fn holder_speaks(
        &self,
        key: &TaskKey,
        fence: Fence,
        answer: &Answer,
        due: &mut Vec<Due>,
    ) -> Result<(), Violation> {
        let facts = self.tasks.get(key);
        let holds =
            facts.and_then(|facts| facts.holder.as_ref()).is_some_and(|holder| holder.fence == fence.0);
        match answer {
            Ok(_) => demand(holds, "a stale fence is never accepted", || {
                format!("{} with fence {}; known: {facts:?}", key.request, fence.0)
            }),
            Err(Refusal::LeaseLost { .. }) if holds => {
                due.push(Due::Deposed { task: key.clone(), fence: fence.0 });
                Ok(())
            }
            Err(Refusal::LeaseLost { .. }) => Ok(()),
            Err(Refusal::NotFound { .. }) => {
                demand(facts.is_none(), "a known task is found", || format!("{key:?}"))
            }
            Err(other) => Err(Violation::new("leases are lost or held", format!("{key:?}: {other}"))),
        }
    }

    fn finished(
        &mut self,
        finish: &Finish,
        answer: &Answer,
        policy: &Policy,
        due: &mut Vec<Due>,
    ) -> Result<(), Violation> {
        let key = &finish.task;
        let known =
            self.of(key).and_then(|facts| facts.reported).filter(|(fence, _)| *fence == finish.fence.0);
        if let Some((_, digest)) = known {
            let fits = match answer {
                Ok(Reply::Finished { ended, .. }) => ended.is_none() && digest == finish.digest,
                Err(Refusal::OutcomeDiffers { .. }) => digest != finish.digest,
                Err(Refusal::LeaseLost { .. }) => true,
                _ => false,
            };
            demand(fits, "a report is repeated, or told that another one counts", || {
                format!("{} with fence {}: {answer:?}", key.request, finish.fence.0)
            })?;
        }
        if let Err(Refusal::OutcomeDiffers { .. }) = answer {
            // An answer that nobody heard may have been taken before.
            return Ok(());
        }
        if let Ok(Reply::Finished { ending: Ending::Done(outcome), ended: None }) = answer {
            let holds = self.of(key).and_then(|facts| facts.holder.as_ref()).is_some();
            demand(!holds, "only an ended run is a repeat", || key.request.to_string())?;
            due.push(Due::Ended { task: key.clone(), fence: finish.fence.0, outcome: *outcome });
            return Ok(());
        }
        if let Ok(Reply::Finished { ending: Ending::Retrying { .. }, ended: None }) = answer {
            let facts = self.of(key);
            let told = facts.is_some_and(|facts| {
                facts.holder.is_none()
                    && facts.retried == Some(finish.fence.0)
                    && facts.fence == finish.fence.0
            });
            return demand(told, "a repeat is of something that was", || {
                format!("{} with fence {}; known: {facts:?}", key.request, finish.fence.0)
            });
        }
        if let Ok(Reply::Finished { ending: Ending::Parked, ended: None }) = answer {
            let facts = self.of(key);
            let told = facts.is_some_and(|facts| facts.holder.is_none() && facts.fence == finish.fence.0);
            return demand(told, "a repeat is of something that was", || {
                format!("{} with fence {}; known: {facts:?}", key.request, finish.fence.0)
            });
        }
        self.holder_speaks(key, finish.fence, answer, due)?;
        let Ok(Reply::Finished { ending, .. }) = answer else { return Ok(()) };
        self.free(key);
        let facts = self.tasks.entry(key.clone()).or_default();
        facts.attempts += 1;
        facts.crashes = 0;
        facts.reported = Some((finish.fence.0, finish.digest));
        match (&finish.report, ending) {
            (Report::Completed { .. }, Ending::Done(Outcome::Completed)) => {
                due.push(written(key, KnownType::TaskCompleted, finish.fence));
            }
            (Report::TimedOut { .. }, Ending::Done(Outcome::TimedOut)) => {
                due.push(written(key, KnownType::TaskTimeout, finish.fence));
            }
            (Report::Failed { category, .. }, Ending::Done(Outcome::Failed)) => {
                due.push(written(key, KnownType::TaskFailed, finish.fence));
                if category.is_retryable() {
                    due.push(written(key, KnownType::TaskProcessingFailed, finish.fence));
                }
            }
            (Report::Failed { .. } | Report::TimedOut { .. }, Ending::Retrying { .. }) => {
                let may_help = match &finish.report {
                    Report::Failed { category, .. } => category.is_retryable(),
                    _ => true,
                };
                demand(may_help, "only what may help is tried again", || key.request.to_string())?;
                facts.retried = Some(finish.fence.0);
                if finish.spent.session_id.is_some() {
                    facts.session.clone_from(&finish.spent.session_id);
                }
                due.push(written(key, KnownType::TaskProcessingFailed, finish.fence));
            }
            (Report::Failed { .. } | Report::TimedOut { .. }, Ending::Parked) => {
                due.push(written(key, KnownType::TaskProcessingFailed, finish.fence));
            }
            (report, ending) => {
                return Err(Violation::new(
                    "a report is taken as it is",
                    format!("{report:?} gave {ending:?}"),
                ));
            }
        }
        // Tasks of the world have at most this many attempts, whatever their own policy says.
        let most = policy.retry.max_attempts.max(crate::shape::ATTEMPTS_MAX);
        demand(facts.attempts <= most, "attempts are limited", || {
            format!("{} had {} attempts", key.request, facts.attempts)
        })
    }

    fn recovered(&mut self, generation: u64, released: u32) -> Result<(), Violation> {
        let mut found = 0;
        for facts in self.tasks.values_mut() {
            if facts
                .holder
                .as_ref()
                .is_some_and(|holder| holder.generation.is_some_and(|own| own < generation))
            {
                facts.holder = None;
                facts.crashes += 1;
                found += 1;
            }
        }
        demand(found == released, "the leases of former lives are taken back", || {
            format!("{released} taken back, {found} were held")
        })
    }

    fn delivered(&self, message: MessageId) -> Result<(), Violation> {
        demand(!self.deleted.contains(&message), "what is deleted stays deleted", || format!("{message:?}"))
    }

    /// A sweep may end a lease earlier that lasts much longer than a new one would, but leaves its holder a whole lease.
    fn swept(&mut self, now: Timestamp, policy: &Policy) {
        for facts in self.tasks.values_mut() {
            let until = now.plus(policy.lease_millis);
            if facts.holder.as_ref().is_some_and(|holder| holder.until.since(until) > AHEAD_MILLIS) {
                facts.shortened.push(until);
            }
        }
    }

    fn keep_session(&mut self, key: &TaskKey, spent: &Spent) {
        if let (Some(facts), Some(session)) = (self.tasks.get_mut(key), &spent.session_id) {
            facts.session = Some(session.clone());
        }
    }

    fn free(&mut self, key: &TaskKey) {
        if let Some(facts) = self.tasks.get_mut(key) {
            facts.holder = None;
        }
    }

    /// A task was given other work: a worker with an earlier fence ran the former work.
    pub(super) fn reworked(&mut self, key: &TaskKey) {
        // One that the same group made is known by its events only.
        let fence = self.of(key).map_or(0, |facts| facts.fence);
        self.reworked.push((key.clone(), fence));
    }

    /// The events of a group were seen.
    pub(super) fn settle(&mut self) {
        for (key, fence) in std::mem::take(&mut self.reworked) {
            if let Some(facts) = self.tasks.get_mut(&key) {
                facts.reworked = (fence, facts.fence);
            }
        }
    }

    /// A task is there, from this run on.
    pub(super) fn opened(&mut self, key: &TaskKey, run: u32) {
        let facts = self.tasks.entry(key.clone()).or_default();
        if run > facts.run {
            (facts.run, facts.attempts, facts.crashes, facts.holder, facts.session) = (run, 0, 0, None, None);
        }
    }

    /// An event shows a fence; an end takes the lease away.
    pub(super) fn shown(&mut self, key: &TaskKey, run: u32, fence: u64, is_end: bool) {
        let facts = self.tasks.entry(key.clone()).or_default();
        facts.fence = facts.fence.max(fence);
        if is_end && run == facts.run {
            facts.holder = None;
        }
    }

    /// Compares what is known with the head as the ledger shows it.
    pub(super) fn compare(&self, key: &TaskKey, head: &TaskHead) -> Result<(), Violation> {
        let facts = &self.tasks[key];
        let shown = holder_of(head);
        let attempts = head.outcome().map_or(head.attempts, |_| facts.attempts);
        let crashes = if head.outcome().is_some() || head.is_parked() { facts.crashes } else { head.crashes };
        demand(
            facts.fence == head.fence.0
                && facts.run == head.run
                && facts.attempts == attempts
                && facts.crashes == crashes
                && (facts.reworked.0..=facts.reworked.1).contains(&head.reworked.0)
                && facts.agrees(shown.as_ref()),
            "heads say what was answered",
            || format!("{} is {head:?}; known: {facts:?}", key.request),
        )
    }

    /// Takes over what the ledger shows, after a group whose answer was never heard. It may only lie ahead.
    pub(super) fn resync(
        &mut self,
        key: &TaskKey,
        head: &TaskHead,
        fences_ahead: u64,
    ) -> Result<(), Violation> {
        let facts = self.tasks.entry(key.clone()).or_default();
        let ahead = head.fence.0.checked_sub(facts.fence);
        demand(ahead.is_some_and(|ahead| ahead <= fences_ahead), "fences never go back", || {
            format!("{} is {head:?}; known: {facts:?}", key.request)
        })?;
        demand(head.run >= facts.run, "runs never go back", || key.request.to_string())?;
        demand(
            (facts.reworked.0..=head.fence.0).contains(&head.reworked.0),
            "other work is told of once",
            || format!("{} is {head:?}; known: {facts:?}", key.request),
        )?;
        facts.reworked = (head.reworked.0, head.reworked.0);
        facts.run = head.run;
        facts.attempts = head.attempts;
        facts.crashes = head.crashes;
        facts.reported = head.reported.map(|digest| (head.fence.0, digest));
        facts.session.clone_from(&head.session);
        facts.fence = head.fence.0;
        facts.holder = holder_of(head);
        facts.shortened.clear();
        facts.retried = head.failed_fence.map(|fence| fence.0).or(facts.retried);
        Ok(())
    }
}

fn holder_of(head: &TaskHead) -> Option<Holder> {
    match &head.state {
        TaskState::Leased(lease) => Some(Holder {
            fence: head.fence.0,
            worker: Arc::clone(&lease.owner.worker),
            generation: lease.owner.generation,
            until: lease.until,
            claimed_at: lease.claimed_at,
        }),
        _ => None,
    }
}

fn written(task: &TaskKey, known: KnownType, fence: Fence) -> Due {
    Due::Written { task: task.clone(), known, fence: fence.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_an_earlier_sweep_shortened_may_hold() {
        let at = |millis: u64| Timestamp::MIN.plus(millis);
        let holder = Holder {
            fence: 1,
            worker: Arc::from("worker-2"),
            generation: None,
            until: at(7_300_000),
            claimed_at: at(7_295_000),
        };
        let mut facts = LeaseFacts { holder: Some(holder), ..LeaseFacts::default() };
        assert!(!facts.may_hold(at(90_000), at(155_000)), "a sweep shortens it");
        // Two sweeps could have: the first did, the second came when the clock was set back once more, by little.
        facts.shortened = vec![at(100_000), at(60_000)];
        assert_eq!(facts.held_until(), Some(at(60_000)));
        assert!(facts.may_hold(at(90_000), at(155_000)));
        assert!(!facts.may_hold(at(100_001), at(165_001)), "it is over");
    }
}
