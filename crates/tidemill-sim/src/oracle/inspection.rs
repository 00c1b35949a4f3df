//! Inspection: the whole of what a ledger shows, held against the whole of what is known.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_embedded::store::retention::Retention;
use tidemill_engine::command::{Command, Forget, Resume, ResumeTarget};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::record::Effect;
use tidemill_model::events::fold::{fold_job, fold_task};
use tidemill_model::{
    Event, JobId, JobStatus, KnownType, Outcome, RequestId, TaskState, TenantId, Timestamp,
};

use super::doubt::{Doubt, Witness};
use super::job_history::JobHistory;
use super::leases::AHEAD_MILLIS;
use super::task_history::TaskHistory;
use super::{Oracle, blob_of, unreadable};
use crate::actors::producer::DELAY_MILLIS_MAX;
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

impl Oracle {
    /// The store is open again: everything acknowledged is there, and of the last group all or nothing.
    pub fn reopened(&mut self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let extra = self.compare_log(ledger)?;
        let doubt = self.doubt.take();
        if let Some(doubt) = &doubt {
            self.resolve(doubt, extra, ledger)?;
            self.executions.resync(&doubt.commands, &self.log, ledger)?;
            self.deliveries.resync(&doubt.commands, ledger)?;
            self.health.resync(&doubt.commands, ledger)?;
        } else {
            demand(extra.is_empty(), "nothing is written that nobody asked for", || format!("{extra:?}"))?;
        }
        self.take_expired_keys(ledger)?;
        self.inspect(ledger)
    }

    /// All that was known, unchanged and in its place; what lies behind it is the answer.
    fn compare_log(&self, ledger: &mut dyn Ledger) -> Result<Vec<(u64, Event)>, Violation> {
        let mut stored = ledger.events_after(0).map_err(unreadable)?.into_iter().peekable();
        for (number, known) in (1..).zip(&self.log) {
            let found = stored.next_if(|(at, _)| *at == number).map(|(_, event)| event);
            match found {
                // What has outlived its own time may be kept as an empty link in its entity's history.
                Some(found) => {
                    demand(found == *known || self.may_be_gone(known), "an event never changes", || {
                        format!("{number} is {found:?}, not {known:?}")
                    })?;
                }
                None => demand(self.may_be_gone(known), "nothing acknowledged is lost", || {
                    format!("{number}: {} of {}", known.event_type, known.entity.id)
                })?,
            }
        }
        Ok(stored.collect())
    }

    /// Whether retention may have taken this event.
    pub(super) fn may_be_gone(&self, event: &Event) -> bool {
        let past = self.expired.is_some_and(|(retention, at)| {
            retention.is_past(event, at) && (is_heartbeat(event) || self.history.may_expire(event))
        });
        past || event.is_outlived(self.latest)
    }

    /// Takes note of which expired keys are gone. A clock that goes back must not make them count again.
    pub fn take_expired_keys(&mut self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let Some((_, at)) = self.expired else { return Ok(()) };
        for key in self.requests.over(at) {
            if ledger.record(&key).map_err(unreadable)?.is_none() {
                self.requests.let_go(&key);
            }
        }
        Ok(())
    }

    /// Retention is let loose, now.
    pub fn expiring(&mut self, retention: Option<Retention>, now: Timestamp) {
        let at = self.expired.map_or(now, |(_, before)| before.max(now));
        self.expired = retention.map(|retention| (retention, at));
    }

    /// Finds out whether a group happened, and takes over what its answers would have told.
    fn resolve(
        &mut self,
        doubt: &Doubt,
        extra: Vec<(u64, Event)>,
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        let mut present = 0;
        for witness in &doubt.witnesses {
            present += usize::from(match witness {
                Witness::Event(told) => extra.iter().any(|(_, event)| event.properties == *told),
                Witness::Job(job) => extra.iter().any(|(_, event)| is_creation(event, *job)),
                Witness::Record { key, version } => {
                    ledger.record(key).map_err(unreadable)?.is_some_and(|record| record.version == *version)
                }
            });
        }
        let whole = present == 0 || present == doubt.witnesses.len();
        demand(whole, "a group is there whole or not at all", || {
            format!("{present} of {} witnesses: {:?}", doubt.witnesses.len(), doubt.witnesses)
        })?;
        if present == 0 && !doubt.witnesses.is_empty() {
            demand(extra.is_empty(), "a group is there whole or not at all", || format!("{extra:?}"))?;
            return Ok(());
        }
        self.take_over(doubt, extra, ledger)?;
        self.history.settle()?;
        for key in self.leases.tasks.keys().cloned().collect::<Vec<_>>() {
            if !doubt.may_touch(&key) {
                continue;
            }
            let head = ledger.task(&key).map_err(unreadable)?.and_then(|task| task.head);
            let Some(head) = head else {
                return Err(Violation::new("what was dispatched is known", format!("{key:?}")));
            };
            self.leases.resync(&key, &head, doubt.commands.len() as u64)?;
        }
        Ok(())
    }

    fn take_over(
        &mut self,
        doubt: &Doubt,
        extra: Vec<(u64, Event)>,
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        for command in &doubt.commands {
            match command {
                Command::SubmitJob(submit) => self.history.offer(&submit.job),
                Command::Send(send) => {
                    let key =
                        TaskKey { tenant: send.task.tenant.clone(), request: send.task.request.clone() };
                    let announced = extra.iter().any(|(_, event)| is_pending(event, &key));
                    if !announced && ledger.task(&key).map_err(unreadable)?.is_some() {
                        self.sent(&send.task);
                    }
                }
                _ => {}
            }
        }
        self.usages.doubt();
        self.take_new(extra)?;
        self.usages.settle();
        self.usages.resync(&doubt.commands, ledger)?;
        for command in &doubt.commands {
            match command {
                Command::SubmitJob(submit) => {
                    let job = submit.job.job;
                    if self.history.is_offered(job) {
                        self.history.withdraw(job);
                    } else {
                        let once = submit.once.first();
                        self.requests.remember(once, Effect::Job(job), doubt.now, &self.policy);
                    }
                }
                Command::SubmitTask(submit) => {
                    let task = &submit.task;
                    let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
                    if self.history.task(&key).is_some() && !self.requests.alone.contains_key(&key) {
                        let effect = Effect::Task(key.request.clone());
                        self.requests.remember(submit.once.first(), effect, doubt.now, &self.policy);
                        self.requests.alone.insert(key, task.clone());
                    } else if let Some(once) = submit.once.first()
                        && self.requests.is_free(once, doubt.now)
                        && let Some(record) = ledger.record(&once.key).map_err(unreadable)?
                        && record.expires_at.is_none_or(|at| at > doubt.now)
                    {
                        // It repeated a task under a key of its own.
                        let effect = Effect::Task(key.request);
                        self.requests.remember(Some(once), effect, doubt.now, &self.policy);
                    }
                }
                Command::PutRecord(put) => {
                    let found = ledger.record(&put.key).map_err(unreadable)?;
                    let met = put.expected.is_none_or(|expected| expected == self.requests.version(&put.key));
                    if met && self.requests.compare(&put.key, found.as_ref()).is_err() {
                        self.requests.set(put);
                    }
                }
                Command::Forget(Forget { keys }) => {
                    for key in keys {
                        if ledger.record(key).map_err(unreadable)?.is_none() {
                            self.requests.let_go(key);
                        }
                    }
                }
                Command::Cancel(cancel) => self.take_standing(&cancel.tenant, cancel.job, ledger)?,
                Command::Resume(resume) => {
                    let job = match &resume.target {
                        ResumeTarget::Job { job, .. } => Some(*job),
                        ResumeTarget::Task(request) => request.job_part(),
                    };
                    if let Some(job) = job {
                        self.take_standing(&resume.tenant, job, ledger)?;
                    }
                    self.compare_letters(true, ledger)?;
                }
                Command::Replay(_) | Command::Discard(_) => {
                    let listed = ledger.dead_letters().map_err(unreadable)?;
                    for (tenant, letter) in &listed {
                        if let Some(job) = letter.request.job_part() {
                            self.take_standing(tenant, job, ledger)?;
                        }
                    }
                    self.compare_letters(true, ledger)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take_standing(
        &mut self,
        tenant: &TenantId,
        job: JobId,
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        let shown = ledger.job(tenant, job).map_err(unreadable)?;
        if let (Some(shown), Some(known)) = (shown, self.history.jobs.get_mut(&job)) {
            known.cancelled = shown.head.cancelled;
        }
        Ok(())
    }

    /// Everything that can be asked for is as it must be.
    pub fn inspect(&mut self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        self.deliveries.compare(&self.policy, ledger)?;
        self.health.compare(&self.policy, &self.deliveries, ledger)?;
        for job in self.history.jobs.keys() {
            self.check_job(*job, ledger)?;
        }
        for (key, task) in &self.history.tasks {
            let shown = ledger.task(key).map_err(unreadable)?;
            let Some(head) = shown.as_ref().and_then(|shown| shown.head.as_ref()) else {
                return Err(Violation::new("what was dispatched is known", format!("{key:?}")));
            };
            self.leases.compare(key, head)?;
            let outcome = task.end().map(|end| end.outcome);
            demand(
                head.outcome() == outcome && head.run == task.run() && head.is_parked() == task.is_parked(),
                "heads say what the events say",
                || format!("{} is {head:?}; by its events {task:?}", key.request),
            )?;
            let has_events = task.runs.iter().any(|run| run.announced || run.begun || run.end.is_some());
            let state = task.state().filter(|_| has_events);
            let state_shown = shown.as_ref().and_then(|shown| shown.state);
            demand(state_shown == state, "tasks show the fold of their events", || {
                format!("{} shows {state_shown:?}, not {state:?}", key.request)
            })?;
        }
        for key in self.requests.records.keys() {
            let found = ledger.record(key).map_err(unreadable)?;
            self.requests.compare(key, found.as_ref())?;
        }
        self.check_loads(ledger)?;
        self.list_letters(ledger)?;
        self.usages.check(ledger)?;
        self.executions.compare(&self.log, ledger)?;
        self.triage.compare(&self.log, ledger)?;
        self.check_blobs(ledger)
    }

    /// How many unfinished tasks a tenant has, without those of jobs at rest.
    pub(super) fn unfinished(&self, tenant: &TenantId) -> usize {
        let alone = self.history.tasks.iter().filter(|(key, task)| {
            key.tenant == *tenant && key.request.job_part().is_none() && task.is_live()
        });
        let jobs = self.history.jobs.values().filter(|job| job.tenant == *tenant);
        let jobs = jobs.map(|job| self.open(job)).filter(|(_, is_at_rest)| !is_at_rest);
        alone.count() + jobs.map(|(open, _)| open).sum::<usize>()
    }

    /// How many unfinished tasks a job has, and whether it is at rest.
    fn open(&self, job: &JobHistory) -> (usize, bool) {
        let key = |request: &RequestId| TaskKey { tenant: job.tenant.clone(), request: request.clone() };
        let tasks = || job.tasks.iter().map(|task| key(&task.request));
        let has_failed = tasks().any(|key| self.end_of(&key).is_some_and(|end| end != Outcome::Completed));
        let open = tasks().filter(|key| self.end_of(key).is_none()).count();
        let has_live = tasks().any(|key| self.history.task(&key).is_some_and(TaskHistory::is_live));
        (open, !has_live && (has_failed || job.cancelled))
    }

    fn end_of(&self, key: &TaskKey) -> Option<Outcome> {
        self.history.task(key).and_then(TaskHistory::end).map(|end| end.outcome)
    }

    /// How many unfinished tasks count again when a job is woken.
    pub(super) fn woken(&self, job: JobId) -> usize {
        match self.history.jobs.get(&job).map(|job| self.open(job)) {
            Some((open, true)) => open,
            _ => 0,
        }
    }

    /// How many unfinished tasks there are more when a task runs again.
    pub(super) fn run_again(&self, key: &TaskKey) -> usize {
        let woken = key.request.job_part().map_or(0, |job| self.woken(job));
        woken + usize::from(self.end_of(key).is_some())
    }

    /// How many unfinished tasks there are more when this is resumed.
    pub(super) fn resumed(&self, resume: &Resume) -> usize {
        let key = |request: RequestId| TaskKey { tenant: resume.tenant.clone(), request };
        match &resume.target {
            ResumeTarget::Task(request) => self.run_again(&key(request.clone())),
            ResumeTarget::Job { job, tasks: Some(named) } => {
                let named: BTreeSet<RequestId> = named.iter().map(|task| job.request_id(task)).collect();
                let ended = named.into_iter().filter(|request| self.end_of(&key(request.clone())).is_some());
                self.woken(*job) + ended.count()
            }
            ResumeTarget::Job { job, tasks: None } => {
                let tasks = self.history.jobs.get(job).into_iter().flat_map(|job| &job.tasks);
                let failed = tasks.filter(|task| {
                    self.end_of(&key(task.request.clone())).is_some_and(|end| end != Outcome::Completed)
                });
                self.woken(*job) + failed.count()
            }
        }
    }

    /// What is booked of a tenant's unfinished tasks is what there is.
    pub(super) fn check_loads(&self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let tenants: BTreeSet<&TenantId> = self.history.tasks.keys().map(|key| &key.tenant).collect();
        for tenant in tenants {
            let (booked, counted) = ledger.load_of(tenant).map_err(unreadable)?;
            let known = self.unfinished(tenant);
            demand(booked == counted && booked.tasks == known, "unfinished tasks are counted", || {
                format!(
                    "{tenant} has {booked:?} by the books, {counted:?} in memory and {known} by its events"
                )
            })?;
        }
        Ok(())
    }

    /// Whatever an event that is there names in the blob store is there too.
    fn check_blobs(&self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        for (number, tenant, key) in &self.blobs {
            let found = ledger.blob(tenant, key).map_err(unreadable)?;
            let whole = found.as_deref() == Some(blob_of(key).as_slice());
            let gone = found.is_none() && self.may_be_gone(&self.log[*number]);
            demand(whole || gone, "a blob outlives the event that names it", || format!("{key}: {found:?}"))?;
        }
        Ok(())
    }

    /// Long after the last command, a blob that no event came to name is gone.
    pub fn check_unnamed_blobs(
        &self,
        put: &[(TenantId, String)],
        ledger: &mut dyn Ledger,
    ) -> Result<(), Violation> {
        let named: BTreeSet<(&TenantId, &str)> =
            self.blobs.iter().map(|(_, tenant, key)| (tenant, key.as_str())).collect();
        for (tenant, key) in put.iter().filter(|(tenant, key)| !named.contains(&(tenant, key.as_str()))) {
            let found = ledger.blob(tenant, key).map_err(unreadable)?;
            demand(found.is_none(), "a blob that nobody names is swept", || key.clone())?;
        }
        Ok(())
    }

    /// All dead letters; none may be gone.
    pub fn list_letters(
        &mut self,
        ledger: &mut dyn Ledger,
    ) -> Result<Vec<(TenantId, tidemill_engine::record::DeadLetter)>, Violation> {
        self.compare_letters(false, ledger)
    }

    fn compare_letters(
        &mut self,
        doubtful: bool,
        ledger: &mut dyn Ledger,
    ) -> Result<Vec<(TenantId, tidemill_engine::record::DeadLetter)>, Violation> {
        let listed = ledger.dead_letters().map_err(unreadable)?;
        let run_of = |key: &TaskKey| self.history.task(key).map_or(0, TaskHistory::run);
        self.letters.compare(listed.clone(), doubtful, run_of)?;
        Ok(listed)
    }

    /// A job shows the fold of its tasks' events.
    pub(super) fn check_job(&self, job: JobId, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let known = &self.history.jobs[&job];
        let Some(shown) = ledger.job(&known.tenant, job).map_err(unreadable)? else {
            return Err(Violation::new("a job that was taken is there", job.to_string()));
        };
        let counts = self.history.counts(job);
        demand(shown.head.counts == counts, "job counts equal the fold of events", || {
            format!("{job} counts {:?}, not {counts:?}", shown.head.counts)
        })?;
        demand(shown.head.cancelled == known.cancelled, "a job is cancelled when it was said", || {
            format!("{job}: {}", shown.head.cancelled)
        })?;
        let status = match counts.status() {
            JobStatus::Completed => JobStatus::Completed,
            _ if known.cancelled => JobStatus::Cancelled,
            status => status,
        };
        self.deliveries.check_job(job, status, counts, &self.policy)
    }

    /// After a whole sweep nothing stands still: a task that waits has a message, one that runs a live lease or one.
    pub fn check_swept(&self, ledger: &mut dyn Ledger, now: Timestamp) -> Result<(), Violation> {
        let mut messages: BTreeMap<TaskKey, Vec<u32>> = BTreeMap::new();
        let mut visible_at: BTreeMap<(TaskKey, u32), Timestamp> = BTreeMap::new();
        let last = now.plus(self.policy.lease_millis + AHEAD_MILLIS);
        for queued in ledger.messages().map_err(unreadable)? {
            let (task, run) = (queued.message.task, queued.message.run);
            let at = queued.visible_at;
            let first = visible_at.entry((task.clone(), run)).or_insert(at);
            *first = at.min(*first);
            messages.entry(task).or_default().push(run);
        }
        for (key, task) in self.history.tasks.iter().filter(|(_, task)| task.is_live() && !task.is_parked()) {
            let has_message = messages.get(key).is_some_and(|runs| runs.contains(&task.run()));
            let held = self.leases.of(key).and_then(|facts| facts.holder.as_ref());
            let is_held = self.leases.of(key).is_some_and(|facts| facts.may_hold(now, last));
            demand(has_message || is_held, "nothing stands still after a sweep", || {
                let runs = messages.get(key);
                format!(
                    "{} run {} has messages of runs {runs:?} only; held by {held:?}",
                    key.request,
                    task.run()
                )
            })?;
        }
        // No actor of the world asks for a longer delay, so a message that is hidden for longer waits for a time of
        // another clock.
        let soon = now.plus(DELAY_MILLIS_MAX + AHEAD_MILLIS);
        for (key, task) in self.history.tasks.iter().filter(|(_, task)| task.is_live() && !task.is_parked()) {
            // The holder's task gets a message when the lease is over, whatever becomes of others that were sent for
            // it.
            let is_held = self.leases.of(key).is_some_and(|facts| facts.may_hold(now, last));
            let at = visible_at.get(&(key.clone(), task.run())).copied();
            let is_soon = is_held || at.is_none_or(|at| at <= soon);
            demand(is_soon, "what is queued can be claimed soon after a sweep", || {
                format!("{} at {at:?}, and it is {now}", key.request)
            })?;
        }
        for job in self.history.jobs.values().filter(|job| !job.cancelled) {
            for index in 0..job.tasks.len() {
                self.history.check_dispatched(job, index)?;
            }
        }
        Ok(())
    }

    /// The tasks that wait for somebody.
    pub fn parked(&self) -> Vec<TaskKey> {
        self.history.tasks.iter().filter(|(_, task)| task.is_parked()).map(|(key, _)| key.clone()).collect()
    }

    /// What is still going on.
    pub fn active(&self) -> Vec<&TaskKey> {
        self.history.tasks.iter().filter(|(_, task)| task.is_live()).map(|(key, _)| key).collect()
    }

    /// Nothing goes on any more: every job has come to an end, and the plain folds of its events say the same.
    pub fn check_rest(&self, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        let mut events: BTreeMap<(&str, &str), Vec<&Event>> = BTreeMap::new();
        for event in &self.log {
            events.entry((event.tenant.as_str(), event.entity.id.as_str())).or_default().push(event);
        }
        for (key, task) in &self.history.tasks {
            let own = events.get(&(key.tenant.as_str(), key.request.as_str()));
            let folded = fold_task(own.into_iter().flatten().copied())
                .map_err(|bad| Violation::new("events fold into a task", bad.to_string()))?;
            let Some(folded) = folded else { continue };
            let outcome = task.end().map(|end| end.outcome);
            demand(
                folded.outcome == outcome && folded.run == task.run() && folded.parked == task.is_parked(),
                "the fold of a task is its state",
                || format!("{} folds into {folded:?}, not {task:?}", key.request),
            )?;
            let head = ledger.task(key).map_err(unreadable)?.and_then(|shown| shown.head);
            let done = head.as_ref().is_some_and(|head| matches!(head.state, TaskState::Done(_)));
            demand(done, "everything comes to an end", || format!("{} is {head:?}", key.request))?;
        }
        for job in self.history.jobs.values() {
            let id = job.job.to_string();
            let tasks = job.tasks.iter().map(|task| task.request.as_str());
            let own = std::iter::once(id.as_str()).chain(tasks);
            let own = own.filter_map(|entity| events.get(&(job.tenant.as_str(), entity))).flatten().copied();
            let folded =
                fold_job(own).map_err(|bad| Violation::new("events fold into a job", bad.to_string()))?;
            let Some(shown) = ledger.job(&job.tenant, job.job).map_err(unreadable)? else {
                return Err(Violation::new("a job that was taken is there", id));
            };
            demand(folded.counts == shown.head.counts, "job counts equal the fold of events", || {
                format!("{id} counts {:?}, not {:?}", shown.head.counts, folded.counts)
            })?;
            let ended =
                matches!(shown.status, JobStatus::Completed | JobStatus::Failed | JobStatus::Cancelled);
            demand(ended, "every job comes to an end", || {
                format!("{id} is {:?}: {:?}", shown.status, folded.counts)
            })?;
            let completed = shown.status == JobStatus::Completed;
            demand(completed == (job.completions == 1), "Job Completed is written once", || id.clone())?;
        }
        Ok(())
    }
}

fn is_heartbeat(event: &Event) -> bool {
    event.event_type.as_str() == KnownType::TaskHeartbeat.as_str()
}

fn is_creation(event: &Event, job: JobId) -> bool {
    event.event_type.as_str() == KnownType::JobCreated.as_str() && event.entity.id.as_str() == job.to_string()
}

fn is_pending(event: &Event, key: &TaskKey) -> bool {
    event.event_type.as_str() == KnownType::TaskPending.as_str()
        && event.tenant == key.tenant
        && event.entity.id.as_str() == key.request.as_str()
}
