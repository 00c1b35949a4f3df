//! The oracle: what must hold, told by an independent model.
//!
//! It is fed only by the answers that actors got and by the events that are stored, and it never looks at the engine's
//! state. `history` follows the events, `leases` and `requests` follow the answers, and each group of commands must
//! make the two agree. Where an answer was lost with the store, all of the group is there or none (`doubt`).

mod artifacts;
mod deliveries;
mod doubt;
mod executions;
mod health;
mod history;
mod inspection;
mod job_history;
mod leases;
mod letters;
mod requests;
mod task_history;
mod timeline;
mod triage;
mod usage;

use std::collections::BTreeMap;

use tidemill_embedded::store::retention::Retention;
use tidemill_engine::backend::{Answer, Fault};
use tidemill_engine::command::{
    Advance, BudgetTarget, ChangeTarget, ChangeTasks, Command, Forget, Replay, Report, ResumeTarget,
};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::policy::Policy;
use tidemill_engine::reply::{Assignment, Ending, Refusal, Reply};
use tidemill_model::events::overflow;
use tidemill_model::events::properties::{FailureSource, TaskFailed};
use tidemill_model::{
    Event, JobId, KnownType, OnFailure, RequestId, TaskId, TaskOptions, TenantId, Timestamp,
};

use crate::actors::producer::ToldChange;
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};
use artifacts::Artifacts;
pub(crate) use deliveries::Deliveries;
use doubt::Doubt;
pub(crate) use executions::{Executions, subscriptions_of};
use health::Health;
use history::History;
use leases::{Due, Leases};
use letters::Letters;
use requests::{Made, Requests};
use triage::Triage;
use usage::Usages;

/// The model and its checks.
#[derive(Debug)]
pub struct Oracle {
    policy: Policy,
    history: History,
    leases: Leases,
    requests: Requests,
    letters: Letters,
    usages: Usages,
    artifacts: Artifacts,
    executions: Executions,
    deliveries: Deliveries,
    health: Health,
    triage: Triage,
    /// Every event that was ever seen, by its number less one.
    log: Vec<Event>,
    doubt: Option<Doubt>,
    /// Blobs that events name: the event's place in the log, whose it is, and its key.
    blobs: Vec<(usize, TenantId, String)>,
    /// The latest moment so far.
    latest: Timestamp,
    /// How long events are kept, and when that was last enforced.
    expired: Option<(Retention, Timestamp)>,
}

impl Oracle {
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            history: History::default(),
            leases: Leases::default(),
            requests: Requests::default(),
            letters: Letters::default(),
            usages: Usages::default(),
            artifacts: Artifacts::default(),
            executions: Executions::default(),
            deliveries: Deliveries::default(),
            health: Health::default(),
            triage: Triage::default(),
            log: Vec::new(),
            doubt: None,
            blobs: Vec::new(),
            latest: Timestamp::MIN,
            expired: None,
        }
    }

    /// How many events there are.
    pub fn events(&self) -> u64 {
        self.log.len() as u64
    }

    /// All events so far.
    pub(crate) fn log(&self) -> &[Event] {
        &self.log
    }

    pub(crate) fn executions(&self) -> &Executions {
        &self.executions
    }

    pub(crate) fn deliveries(&self) -> &Deliveries {
        &self.deliveries
    }

    /// Time has moved on to this moment.
    pub fn time_is(&mut self, now: Timestamp) {
        self.latest = self.latest.max(now);
    }

    /// The latest moment so far.
    pub(crate) fn latest(&self) -> Timestamp {
        self.latest
    }

    /// A digest of all events.
    pub fn digest(&self) -> u64 {
        let mut digest: u128 = 0xcbf2_9ce4_8422_2325;
        for event in &self.log {
            let times = u128::from(event.timestamp.millis()) ^ event.properties.len() as u128;
            for word in [event.id.as_u128(), times] {
                digest = (digest ^ word).wrapping_mul(0x0000_0100_0000_01b3_0000_0100_0000_01b3);
            }
        }
        u64::try_from(digest >> 64).unwrap_or(0)
    }

    /// A group of commands was acknowledged.
    pub fn acknowledged(
        &mut self,
        commands: &[Command],
        answers: &[Answer],
        ledger: &mut dyn Ledger,
        now: Timestamp,
    ) -> Result<(), Violation> {
        demand(commands.len() == answers.len(), "every command is answered", || {
            format!("{}", answers.len())
        })?;
        let mut due = Vec::new();
        let mut standing = BTreeMap::new();
        if let ([command], [answer]) = (commands, answers) {
            self.check_room(command, answer)?;
        }
        for (command, answer) in commands.iter().zip(answers) {
            self.hear(command, answer, now, &mut due, &mut standing)?;
        }
        let before = self.log.len();
        let new = ledger.events_after(self.events()).map_err(unreadable)?;
        self.take_new(new)?;
        let strange = self.log[before..].iter().find(|event| event.received_at != now);
        demand(strange.is_none(), "events are stamped when they are taken", || format!("{strange:?}"))?;
        for (job, cancelled) in standing {
            if let Some(job) = self.history.jobs.get_mut(&job) {
                job.cancelled = cancelled;
            }
        }
        self.leases.settle();
        self.usages.settle();
        self.deliveries.look(&self.policy, ledger)?;
        self.check_due(&due, before)?;
        for task in answers.iter().flat_map(claimed) {
            self.artifacts.check(task, ledger)?;
        }
        let settled = self.history.settle()?;
        if self.policy.deliveries_max < Policy::default().deliveries_max && !settled.is_empty() {
            self.deliveries.look_at_letters(&self.policy, ledger)?;
        }
        for job in settled {
            self.check_job(job, ledger)?;
        }
        Ok(())
    }

    /// The store said that it wrote nothing.
    pub fn nothing_written(&mut self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let new = ledger.events_after(self.events()).map_err(unreadable)?;
        demand(new.is_empty(), "what is refused is not written", || format!("{new:?}"))
    }

    /// The store died over this group.
    pub fn unanswered(&mut self, commands: &[Command], now: Timestamp) {
        for command in commands {
            self.deliveries.ask(command);
            self.artifacts.ask(command);
        }
        self.doubt = Some(Doubt::new(commands, now, &self.requests, &self.policy));
    }

    fn hear(
        &mut self,
        command: &Command,
        answer: &Answer,
        now: Timestamp,
        due: &mut Vec<Due>,
        standing: &mut BTreeMap<JobId, bool>,
    ) -> Result<(), Violation> {
        self.check_timeout(command, answer)?;
        self.leases.hear(command, answer, now, &self.policy, due)?;
        self.letters.hear(command, answer, |key| self.history.tasks.contains_key(key))?;
        self.usages.hear(command, answer)?;
        self.artifacts.hear(command, answer);
        self.executions.hear(command, answer)?;
        self.deliveries.hear(command, answer, now, &self.policy)?;
        self.health.hear(command, answer)?;
        self.triage.hear(command, answer);
        self.check_owner(command, answer)?;
        match (command, answer) {
            (Command::SubmitJob(submit), answer) => {
                let made = self.requests.submitted_job(submit, answer, now, &self.policy)?;
                if made == Made::New {
                    self.history.offer(&submit.job);
                }
            }
            (Command::SubmitTask(submit), answer) => {
                self.requests.submitted_task(submit, answer, now, &self.policy)?;
            }
            (Command::PutRecord(put), answer) => self.requests.put(put, answer)?,
            (Command::Forget(Forget { keys }), Ok(Reply::Forgotten { records })) => {
                self.requests.forget(keys, *records, now)?;
            }
            (Command::ChangeTasks(change), Ok(_)) => self.changed(change),
            (Command::Claim(_), Ok(Reply::Claimed { tasks, .. })) => {
                for task in tasks {
                    self.history.check_input(&task.task, &task.spec.input)?;
                }
            }
            (Command::Send(send), Ok(Reply::Sent { .. })) => self.sent(&send.task),
            (Command::Cancel(cancel), Ok(_)) => {
                standing.insert(cancel.job, true);
            }
            (Command::Resume(resume), Ok(reply)) => {
                if let Reply::Resumed { tasks } = reply {
                    self.letters.run_again(&resume.tenant, tasks);
                }
                let job = match &resume.target {
                    ResumeTarget::Job { job, .. } => Some(*job),
                    ResumeTarget::Task(request) => request.job_part(),
                };
                standing.extend(job.map(|job| (job, false)));
            }
            (Command::Replay(_), Ok(Reply::Replayed { request })) => {
                standing.extend(request.job_part().map(|job| (job, false)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Tasks have another input now.
    fn changed(&mut self, change: &ChangeTasks) {
        let key = |request| TaskKey { tenant: change.tenant.clone(), request };
        match &change.target {
            ChangeTarget::Job { job, told, .. } => {
                let Ok(ToldChange { number, tasks }) = told.read::<ToldChange>() else { return };
                for task in tasks {
                    let key = key(job.request_id(&task));
                    self.leases.reworked(&key);
                    self.history.change(key, number);
                }
            }
            ChangeTarget::Alone { request, .. } => self.leases.reworked(&key(request.clone())),
        }
    }

    /// An attempt that took too long is tried again if the task asks for it and has attempts left, and ends its run if not.
    fn check_timeout(&self, command: &Command, answer: &Answer) -> Result<(), Violation> {
        let (Command::Finish(finish), Ok(Reply::Finished { ending, ended: Some(_) })) = (command, answer)
        else {
            return Ok(());
        };
        let (Report::TimedOut { .. }, Some(options)) = (&finish.report, self.options_of(&finish.task)) else {
            return Ok(());
        };
        let policy = options.retry.unwrap_or(self.policy.retry);
        let attempts = self.leases.of(&finish.task).map_or(0, |facts| facts.attempts) + 1;
        let again = policy.on_timeout && attempts < policy.max_attempts;
        let fits = match ending {
            Ending::Retrying { .. } => again,
            Ending::Parked => !again && options.on_failure == OnFailure::Park,
            Ending::Done(_) => !again && options.on_failure == OnFailure::Fail,
        };
        demand(fits, "a timeout is tried again if the task asks for it", || {
            format!("{} attempt {attempts} of {policy:?}: {ending:?}", finish.task.request)
        })
    }

    /// What was asked for with a task.
    fn options_of(&self, key: &TaskKey) -> Option<&TaskOptions> {
        let Some((job, task)) = key.request.parts() else {
            return self.requests.alone.get(key).map(|task| &task.spec.options);
        };
        let job = self.history.jobs.get(&job)?;
        job.index_of(&TaskId::trusted(task)).map(|index| &job.tasks[index].options)
    }

    /// A tenant gets as many unfinished tasks as it may have, and no more. Within a group nothing tells what others changed
    /// before.
    fn check_room(&self, command: &Command, answer: &Answer) -> Result<(), Violation> {
        let (tenant, more) = match command {
            Command::SubmitJob(submit) => (&submit.job.tenant, submit.job.tasks.len()),
            Command::AddTasks(add) => (&add.tenant, add.tasks.len() + self.woken(add.job)),
            Command::SubmitTask(submit) => (&submit.task.tenant, 1),
            Command::Resume(resume) => (&resume.tenant, self.resumed(resume)),
            Command::Replay(Replay { tenant, message }) => {
                let Some(key) = self.letters.task_of(tenant, *message) else { return Ok(()) };
                (tenant, self.run_again(&key))
            }
            _ => return Ok(()),
        };
        let fits = more == 0 || self.unfinished(tenant) + more <= self.policy.tenant_tasks_max;
        let holds = match answer {
            Ok(
                Reply::JobSubmitted { repeated: false, .. }
                | Reply::TaskSubmitted { repeated: false, .. }
                | Reply::TasksAdded { .. }
                | Reply::Resumed { .. }
                | Reply::Replayed { .. },
            ) => fits,
            Err(Refusal::TenantFull { .. }) => !fits,
            _ => true,
        };
        demand(holds, "a tenant has as much unfinished as it may", || {
            format!("{} and {more}: {answer:?}", self.unfinished(tenant))
        })
    }

    /// A raw message makes a standalone task that nobody knew.
    fn sent(&mut self, task: &tidemill_engine::commit::NewTask) {
        let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
        if key.request.job_part().is_none() && !self.requests.alone.contains_key(&key) {
            self.requests.alone.insert(key.clone(), task.clone());
            self.leases.opened(&key, 1);
            self.history.open_silently(key);
        }
    }

    /// A caller that names another tenant's job gets the answer that there is none.
    fn check_owner(&self, command: &Command, answer: &Answer) -> Result<(), Violation> {
        let (tenant, job): (&TenantId, JobId) = match command {
            Command::AddTasks(add) => (&add.tenant, add.job),
            Command::ChangeTasks(ChangeTasks { tenant, target: ChangeTarget::Job { job, .. }, .. }) => {
                (tenant, *job)
            }
            Command::Cancel(cancel) => (&cancel.tenant, cancel.job),
            Command::CancelTask(cancel) => match cancel.request.job_part() {
                Some(job) => (&cancel.tenant, job),
                None => return Ok(()),
            },
            Command::Advance(Advance { tenant, job }) => (tenant, *job),
            Command::SetBudget(set) => match set.target {
                BudgetTarget::Job(job) => (&set.tenant, job),
                BudgetTarget::Tenant(_) => return Ok(()),
            },
            Command::Resume(resume) => match &resume.target {
                ResumeTarget::Job { job, .. } => (&resume.tenant, *job),
                ResumeTarget::Task(request) => match request.job_part() {
                    Some(job) => (&resume.tenant, job),
                    None => return Ok(()),
                },
            },
            _ => return Ok(()),
        };
        let Some(known) = self.history.jobs.get(&job) else { return Ok(()) };
        let missing = matches!(answer, Err(Refusal::NotFound { what: "job" | "task", .. }));
        demand(missing || *tenant == known.tenant, "a tenant cannot touch another's", || {
            format!("{tenant} got {answer:?} for {job}")
        })
    }

    /// Takes in events that came since the last look.
    fn take_new(&mut self, new: Vec<(u64, Event)>) -> Result<(), Violation> {
        for (number, event) in new {
            let expected = self.events() + 1;
            demand(number == expected, "events count on without a hole", || {
                format!("{number}, not {expected}")
            })?;
            self.history.take(&event)?;
            self.follow_lease(&event);
            self.usages.take(&event, &self.requests.alone)?;
            if let Ok(Some(place)) = overflow::reference(&event.properties) {
                self.blobs.push((self.log.len(), event.tenant.clone(), place.key));
            }
            self.deliveries.take(&event, self.log.len() + 1);
            self.health.take(&event)?;
            self.log.push(event);
        }
        Ok(())
    }

    /// What an event tells about a lease.
    fn follow_lease(&mut self, event: &Event) {
        let Some(known) = KnownType::from_name(event.event_type.as_str()) else { return };
        if event.entity.kind.as_str() != "TASK" {
            return;
        }
        let key =
            TaskKey { tenant: event.tenant.clone(), request: RequestId::trusted(event.entity.id.as_str()) };
        let Some(task) = self.history.task(&key) else { return };
        let (run, fence) = (task.run(), task.fence);
        match known {
            KnownType::TaskPending => self.leases.opened(&key, run),
            KnownType::TaskCompleted | KnownType::TaskTimeout => self.leases.shown(&key, run, fence, true),
            KnownType::TaskFailed => {
                self.leases.shown(&key, run, fence, true);
                let failed = event.properties.read::<TaskFailed>();
                if failed.is_ok_and(|failed| failed.source == FailureSource::Dlq) {
                    self.letters.expect(key, run);
                }
            }
            _ => {
                // What is parked is held by nobody.
                let is_over = task.is_parked();
                self.leases.shown(&key, run, fence, is_over);
            }
        }
    }

    fn check_due(&self, due: &[Due], before: usize) -> Result<(), Violation> {
        for due in due {
            match due {
                Due::Written { task, known, fence } => {
                    let found = self.log[before..].iter().any(|event| {
                        event.event_type.as_str() == known.as_str()
                            && event.entity.id.as_str() == task.request.as_str()
                            && event.tenant == task.tenant
                            && fence_of(event) == Some(*fence)
                    });
                    demand(found, "what is acknowledged is written", || {
                        format!("{} of {} with fence {fence}", known.as_str(), task.request)
                    })?;
                }
                Due::Ended { task, fence, outcome } => {
                    let runs = self.history.task(task).map(|task| task.runs.as_slice()).unwrap_or_default();
                    let ends = runs.iter().filter_map(|run| run.end);
                    let found = ends.into_iter().any(|end| end.fence == *fence && end.outcome == *outcome);
                    demand(found, "a repeat is of something that was", || format!("{due:?}"))?;
                }
                Due::Deposed { task, fence } => {
                    let held = self.leases.of(task).and_then(|facts| facts.holder.as_ref());
                    let still = held.is_some_and(|holder| holder.fence == *fence);
                    demand(!still, "the holder of a lease is heard", || {
                        format!("{} with fence {fence}", task.request)
                    })?;
                }
                Due::Alone { suspect, beside } => {
                    let held = |(task, fence): &&(TaskKey, u64)| {
                        let holder = self.leases.of(task).and_then(|facts| facts.holder.as_ref());
                        holder.is_some_and(|holder| holder.fence == *fence)
                    };
                    let beside = beside.iter().find(held);
                    demand(beside.is_none(), "a suspect runs alone", || format!("{suspect:?} {beside:?}"))?;
                }
                Due::Runs { task, run } => {
                    let known = self.history.task(task).is_some_and(|task| *run <= task.run());
                    demand(known, "what runs was dispatched", || format!("{task:?} run {run}"))?;
                }
            }
        }
        Ok(())
    }
}

/// What the world puts under a key in the blob store.
pub(crate) fn blob_of(key: &str) -> Vec<u8> {
    key.as_bytes().repeat(20)
}

/// The fence that an event names.
fn fence_of(event: &Event) -> Option<u64> {
    let text = event.properties.as_str();
    let (_, rest) = text.rsplit_once(r#""fence":"#)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

/// The tasks that an answer hands out.
fn claimed(answer: &Answer) -> &[Assignment] {
    match answer {
        Ok(Reply::Claimed { tasks, .. }) => tasks,
        _ => &[],
    }
}

/// Nothing is wrong with the disk when the oracle looks, so a fault is a broken promise.
#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn unreadable(fault: Fault) -> Violation {
    Violation::new("what is stored can be read", fault.to_string())
}
