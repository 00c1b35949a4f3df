//! Deliveries: made with their cause, each try ended once, none lost or made up, and a letter for what is given up.
//!
//! Which jobs need a delivery follows from the events alone: a job at rest was reported since it was last set going.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::backend::Answer;
use tidemill_engine::command::{Command, DeliveryEnd, DiscardDelivery, EndDelivery, ReplayDelivery};
use tidemill_engine::commit::NewJob;
use tidemill_engine::outbound::{Delivery, DeliveryKey, DeliveryLetter, FailedJobs, Target};
use tidemill_engine::policy::Policy;
use tidemill_engine::record::{DeadLetterState, RecordKey, RecordValue};
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::{
    Event, EventId, JobCounts, JobId, JobStatus, Json, KnownType, RequestId, TenantId, Timestamp,
};

use super::unreadable;
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

/// The tries of what is no alert.
const TRIES_MAX: u32 = 4;
/// The longest pause between tries of an alert, in milliseconds.
const ALERT_PAUSE_MILLIS_MAX: u64 = 300_000;

#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    /// Jobs whose end needs a callback.
    asked: BTreeSet<JobId>,
    known: BTreeMap<DeliveryKey, Known>,
    letters: BTreeMap<DeliveryKey, DeadLetterState>,
    /// The place of each event in the log.
    places: BTreeMap<EventId, usize>,
    /// The place of the last event that set a task of a job going.
    set_going: BTreeMap<JobId, usize>,
    /// The reports of each job: the place of the event, and the status.
    told: BTreeMap<JobId, BTreeSet<(usize, String)>>,
    /// The tenant and the name of each job.
    jobs: BTreeMap<JobId, (TenantId, Option<String>)>,
    /// Where the log ended when people were last told that a job failed.
    failed_told: BTreeMap<JobId, usize>,
    /// Whether more failed at once than an alert names, so that some were only counted.
    some_unnamed: bool,
    /// Ends of waits that a webhook must get.
    ends: BTreeSet<EventId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    target: Target,
    event: EventId,
    body: Json,
    replay: bool,
    /// The failed jobs it reports. Others join them.
    failed: Option<FailedJobs>,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waiting {
        attempts: u32,
        next: Timestamp,
    },
    /// It arrived or was given up.
    Over,
}

impl Known {
    fn of(delivery: &Delivery) -> Self {
        Self {
            target: delivery.target.clone(),
            event: delivery.event.id,
            body: delivery.body.clone(),
            replay: delivery.replay_of.is_some(),
            failed: delivery.failed_jobs.as_deref().cloned(),
            standing: Standing::Waiting { attempts: delivery.attempts, next: delivery.next_try_at },
        }
    }
}

impl Deliveries {
    /// Those that wait: the number of their next try, and when it is due.
    pub(crate) fn waiting(&self) -> Vec<(DeliveryKey, u32, Timestamp)> {
        let waiting = self.known.iter().filter_map(|(key, known)| match known.standing {
            Standing::Waiting { attempts, next } => Some((key.clone(), attempts + 1, next)),
            Standing::Over => None,
        });
        waiting.collect()
    }

    /// How many failed jobs a delivery reported when it was looked at last.
    pub(crate) fn failed_jobs_in(&self, key: &DeliveryKey) -> u32 {
        let failed = self.known.get(key).and_then(|known| known.failed.as_ref());
        failed.map_or(0, |failed| failed.count)
    }

    pub(crate) fn all(&self) -> Vec<DeliveryKey> {
        self.known.keys().cloned().collect()
    }

    pub(crate) fn letters(&self) -> Vec<DeliveryKey> {
        self.letters.keys().cloned().collect()
    }

    /// How often people got what each check of health found, by the check's mark.
    pub(super) fn of_checks(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let alerts = self.known.values().filter(|known| known.target == Target::People && !known.replay);
        for mark in alerts.filter_map(|known| known.body.as_str().split_once("check ")) {
            let number: String = mark.1.chars().take_while(char::is_ascii_digit).collect();
            *counts.entry(format!("check {number}")).or_default() += 1;
        }
        counts
    }

    /// A command was handed in, whatever became of it: ids of jobs are used once.
    pub(super) fn ask(&mut self, command: &Command) {
        if let Command::SubmitJob(submit) = command {
            let NewJob { job, tenant, name, .. } = &submit.job;
            self.jobs.insert(*job, (tenant.clone(), name.as_deref().map(str::to_owned)));
            if submit.callback.is_some() {
                self.asked.insert(*job);
            }
        }
    }

    pub(super) fn take(&mut self, event: &Event, place: usize) {
        self.places.insert(event.id, place);
        match KnownType::from_name(event.event_type.as_str()) {
            Some(KnownType::TaskPending) => {
                if let Some(job) = RequestId::trusted(event.entity.id.as_str()).job_part() {
                    self.set_going.insert(job, place);
                }
            }
            Some(KnownType::ExecutionResumed | KnownType::ExecutionFailed | KnownType::ExecutionExpired) => {
                self.ends.insert(event.id);
            }
            _ => {}
        }
    }

    /// Judges an answer and takes note of what it says.
    pub(super) fn hear(
        &mut self,
        command: &Command,
        answer: &Answer,
        now: Timestamp,
        policy: &Policy,
    ) -> Result<(), Violation> {
        self.ask(command);
        match command {
            Command::EndDelivery(end) => self.hear_end(end, answer, now, policy),
            Command::ReplayDelivery(ReplayDelivery { tenant, letter })
            | Command::DiscardDelivery(DiscardDelivery { tenant, letter }) => {
                let key = DeliveryKey { tenant: tenant.clone(), id: *letter };
                let is_full = policy.deliveries_max < Policy::default().deliveries_max;
                let fits = match (self.letters.get(&key), answer) {
                    (Some(DeadLetterState::Open), Ok(_)) | (None, Err(Refusal::NotFound { .. })) => true,
                    (Some(DeadLetterState::Open), Err(Refusal::TooManyWaiting { .. })) => is_full,
                    (Some(state), Err(Refusal::NotOpen(_))) => *state != DeadLetterState::Open,
                    _ => false,
                };
                demand(fits, "a delivery's dead letter is open once", || format!("{command:?}: {answer:?}"))?;
                match answer {
                    Ok(Reply::DeliveryReplayed { .. }) => self.letters.insert(key, DeadLetterState::Replayed),
                    Ok(_) => self.letters.insert(key, DeadLetterState::Discarded),
                    Err(_) => None,
                };
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn hear_end(
        &mut self,
        command: &EndDelivery,
        answer: &Answer,
        now: Timestamp,
        policy: &Policy,
    ) -> Result<(), Violation> {
        let key = DeliveryKey { tenant: command.tenant.clone(), id: command.delivery };
        let told = || format!("try {} of {}: {answer:?}", command.attempt, command.delivery);
        let Some(known) = self.known.get_mut(&key).filter(
            |known| matches!(known.standing, Standing::Waiting { attempts, .. } if attempts + 1 == command.attempt),
        ) else {
            let refused = matches!(answer, Err(Refusal::NotDelivering { .. }));
            return demand(refused, "each try of a delivery ends once", told);
        };
        // Another failure may have joined it since, and the try told too little.
        if known.failed.is_some() && matches!(answer, Err(Refusal::NotDelivering { .. })) {
            return Ok(());
        }
        let pause = policy.delivery_millis << (command.attempt - 1).min(20);
        let (retry_at, is_dead) = match (&command.end, known.target.is_alert()) {
            (DeliveryEnd::Arrived, _) => (None, false),
            (DeliveryEnd::Failed { .. }, true) => (Some(now.plus(pause.min(ALERT_PAUSE_MILLIS_MAX))), false),
            (DeliveryEnd::Failed { .. }, false) if command.attempt == TRIES_MAX => (None, true),
            (DeliveryEnd::Failed { .. }, false) => (Some(now.plus(pause)), false),
        };
        let fits = *answer == Ok(Reply::DeliveryEnded { retry_at, is_dead });
        demand(fits, "tries end as they must", told)?;
        known.standing = match retry_at {
            Some(next) => Standing::Waiting { attempts: command.attempt, next },
            None => Standing::Over,
        };
        if is_dead {
            self.letters.insert(key, DeadLetterState::Open);
        }
        Ok(())
    }

    /// Holds what waits against what is known, and takes in what is new.
    pub(super) fn look(&mut self, policy: &Policy, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let listed = ledger.deliveries().map_err(unreadable)?;
        let mut missing: BTreeSet<_> = self.waiting().into_iter().map(|(key, _, _)| key).collect();
        for (key, delivery) in listed {
            missing.remove(&key);
            let mut shown = Known::of(&delivery);
            self.take_failed(&key, shown.failed.as_ref());
            if let Some(known) = self.known.get_mut(&key) {
                if let (Some(before), Some(after)) = (&mut known.failed, &shown.failed) {
                    let grows = after.named.starts_with(&before.named) && after.count >= before.count;
                    let is_untried = *before == *after || delivery.attempts == 0;
                    demand(grows && is_untried, "failures join an alert that was not tried", || {
                        format!("{key:?} told of {before:?} and tells of {after:?}")
                    })?;
                    before.clone_from(after);
                    shown.body = known.body.clone();
                }
                demand(*known == shown, "a delivery changes by its tries only", || {
                    format!("{key:?} is {shown:?}, not {known:?}")
                })?;
                continue;
            }
            demand(delivery.attempts == 0, "a delivery begins untried", || format!("{delivery:?}"))?;
            self.begin(key, shown, policy)?;
        }
        demand(missing.is_empty(), "no delivery is lost", || format!("{missing:?}"))
    }

    /// Takes note of the failed jobs that an alert names and did not name before.
    fn take_failed(&mut self, key: &DeliveryKey, failed: Option<&FailedJobs>) {
        let Some(failed) = failed else { return };
        self.some_unnamed |= failed.count as usize > failed.named.len();
        let before = self.known.get(key).and_then(|known| known.failed.as_ref());
        let before = before.map_or(0, |before| before.named.len());
        let end = self.places.len();
        self.failed_told.extend(failed.named.iter().skip(before).map(|job| (job.job, end)));
    }

    fn begin(&mut self, key: DeliveryKey, new: Known, policy: &Policy) -> Result<(), Violation> {
        let Some(place) = self.places.get(&new.event).copied() else {
            return Err(Violation::new("what is told is written", format!("{key:?}: {new:?}")));
        };
        let wanted = match &new.target {
            Target::Callback(_) => true,
            Target::Workflow => policy.workflow_webhook,
            Target::People => policy.alerts.people,
            Target::AlertWebhook => policy.alerts.webhook,
            Target::Bus | Target::TaskToken => false,
        };
        demand(wanted, "nobody is told who does not want it", || format!("{new:?}"))?;
        if let (Target::Callback(_), false) = (&new.target, new.replay) {
            let told = new.body.read::<BTreeMap<String, Json>>().unwrap_or_default();
            let text =
                |name: &str| told.get(name).and_then(|value| value.read::<String>().ok()).unwrap_or_default();
            let asked = text("jobId").parse::<JobId>().ok().filter(|job| self.asked.contains(job));
            let Some(job) = asked else {
                return Err(Violation::new("who asked for it is told", format!("{new:?}")));
            };
            let is_first = self.told.entry(job).or_default().insert((place, text("status")));
            demand(is_first, "a rest is told once", || format!("{new:?}"))?;
        }
        self.known.insert(key, new);
        Ok(())
    }

    /// The newest report of a job at rest says so. A job that goes on was not reported since.
    pub(super) fn check_job(
        &self,
        job: JobId,
        status: JobStatus,
        counts: JobCounts,
        policy: &Policy,
    ) -> Result<(), Violation> {
        let from = self.set_going.get(&job).copied().unwrap_or_default();
        let rests = counts.pending + counts.processing == 0 && status != JobStatus::Running;
        if rests && status == JobStatus::Failed && self.people_want(job, policy) {
            let told = self.failed_told.get(&job).copied();
            demand(told.is_some_and(|told| told > from), "people hear of each job that failed", || {
                format!("{job} failed after {from}; told was {told:?}")
            })?;
        }
        if !self.asked.contains(&job) {
            return Ok(());
        }
        let told = self.told.get(&job).into_iter().flatten();
        let since: Vec<_> =
            told.filter(|(place, _)| *place > from).map(|(_, status)| status.as_str()).collect();
        let fits = if rests { since.last() == Some(&status.as_str()) } else { since.is_empty() };
        demand(fits, "each rest of a job is told", || {
            format!("{job} is {} with {counts:?}; told were {since:?}", status.as_str())
        })
    }

    /// Whether a failure of this job raises an alert for people, and the alert would name it.
    fn people_want(&self, job: JobId, policy: &Policy) -> bool {
        let Some((tenant, name)) = self.jobs.get(&job) else { return false };
        let wanted = policy.job_failed.as_ref().filter(|_| policy.alerts.people && !self.some_unnamed);
        wanted.is_some_and(|wanted| wanted.want(tenant, name.as_deref()))
    }

    /// Everything about deliveries is as it must be.
    pub(super) fn compare(&mut self, policy: &Policy, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        self.look(policy, ledger)?;
        self.look_at_letters(policy, ledger)?;
        if policy.workflow_webhook {
            let mut heard: BTreeMap<EventId, u32> = BTreeMap::new();
            let webhooks =
                self.known.values().filter(|known| known.target == Target::Workflow && !known.replay);
            webhooks.for_each(|known| *heard.entry(known.event).or_default() += 1);
            for end in &self.ends {
                let count = heard.get(end).copied().unwrap_or_default();
                demand(count == 1, "each end of a wait is told once", || format!("{end}: {count}"))?;
            }
        }
        Ok(())
    }

    /// Letters are kept as they were left, and people got an alert for each.
    pub(super) fn look_at_letters(
        &mut self,
        policy: &Policy,
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        let listed: BTreeMap<DeliveryKey, DeliveryLetter> =
            ledger.delivery_letters().map_err(unreadable)?.into_iter().collect();
        for (key, letter) in &listed {
            if !self.letters.contains_key(key) {
                // There was no room for it among those that wait.
                let fits = letter.attempts == 0 && policy.deliveries_max < Policy::default().deliveries_max;
                demand(fits, "what is given up was tried", || format!("{letter:?}"))?;
                let new = Known {
                    target: letter.target.clone(),
                    event: letter.event.id,
                    body: letter.body.clone(),
                    replay: false,
                    failed: None,
                    standing: Standing::Over,
                };
                self.begin(key.clone(), new, policy)?;
                self.letters.insert(key.clone(), DeadLetterState::Open);
            }
        }
        for (key, state) in &self.letters {
            let found = listed.get(key);
            let known = self.known.get(key);
            let is_kept = found.is_some_and(|letter| {
                letter.state == *state && known.is_some_and(|known| known.body == letter.body)
            });
            demand(is_kept, "dead letters of deliveries are kept", || format!("{key:?} is {found:?}"))?;
            let id = key.id.to_string();
            let is_alert =
                |known: &Known| known.target == Target::People && known.body.as_str().contains(&id);
            let is_told = !policy.alerts.people || self.known.values().any(is_alert);
            demand(is_told, "people hear of each delivery that is given up", || format!("{key:?}"))?;
        }
        Ok(())
    }

    /// A group died with the store: takes over what became of its tries and letters.
    pub(super) fn resync(&mut self, commands: &[Command], ledger: &mut dyn Ledger) -> Result<(), Violation> {
        for command in commands {
            let key = match command {
                Command::EndDelivery(end) => DeliveryKey { tenant: end.tenant.clone(), id: end.delivery },
                Command::ReplayDelivery(ReplayDelivery { tenant, letter })
                | Command::DiscardDelivery(DiscardDelivery { tenant, letter }) => {
                    DeliveryKey { tenant: tenant.clone(), id: *letter }
                }
                _ => continue,
            };
            let stored = ledger.record(&RecordKey::delivery(&key.tenant, key.id)).map_err(unreadable)?;
            if let Some(known) = self.known.get_mut(&key)
                && let Standing::Waiting { .. } = known.standing
            {
                known.standing = match stored.map(|record| record.value) {
                    Some(RecordValue::Delivery(delivery)) => {
                        Standing::Waiting { attempts: delivery.attempts, next: delivery.next_try_at }
                    }
                    _ => Standing::Over,
                };
            }
            let letter =
                ledger.record(&RecordKey::delivery_letter(&key.tenant, key.id)).map_err(unreadable)?;
            if let Some(RecordValue::DeliveryLetter(letter)) = letter.map(|record| record.value) {
                self.letters.insert(key, letter.state);
            }
        }
        Ok(())
    }
}
