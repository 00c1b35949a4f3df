//! The history: what the stored events say, event by event, checked against the promises as they come.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_engine::commit::{NewJob, TaskKey};
use tidemill_model::events::properties::{
    JobCompleted, JobCreated, JobFailureDetected, JobTasksAdded, TaskCompleted, TaskFailed, TaskHeartbeat,
    TaskIdentity, TaskPending, TaskProcessingFailed, TaskProcessingStarted, TaskStatuses, TaskTimeout,
};
use tidemill_model::{
    Entity, ErrorCategory, Event, Fence, JobCounts, JobId, Json, KnownType, Outcome, PublicState, RequestId,
    TenantId, Timestamp,
};

use super::job_history::JobHistory;
use super::task_history::{End, Run, TaskHistory};
use crate::actors::producer::{ToldChange, changed_input};
use crate::violation::{Violation, demand};

/// Everything the events of one store say.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) jobs: BTreeMap<JobId, JobHistory>,
    pub(super) tasks: BTreeMap<TaskKey, TaskHistory>,
    /// Jobs that were handed in and may come into being.
    offered: BTreeMap<JobId, NewJob>,
    /// Tasks that were given another input, and the number of the last change.
    changed: BTreeMap<TaskKey, u64>,
    ids: BTreeSet<u128>,
    last: BTreeMap<(TenantId, Entity), Timestamp>,
    /// What the events since the last `settle` were about.
    fresh: Fresh,
}

#[derive(Debug, Default)]
struct Fresh {
    /// Tasks that were completed, or named for the first time.
    moved: Vec<(JobId, usize)>,
    failed: Vec<TaskKey>,
    jobs: BTreeSet<JobId>,
}

impl History {
    pub(super) fn offer(&mut self, job: &NewJob) {
        self.offered.insert(job.job, job.clone());
    }

    /// The job was refused, or is another's repeat: its events must never appear.
    pub(super) fn withdraw(&mut self, job: JobId) {
        self.offered.remove(&job);
    }

    pub(super) fn is_offered(&self, job: JobId) -> bool {
        self.offered.contains_key(&job)
    }

    pub(super) fn task(&self, key: &TaskKey) -> Option<&TaskHistory> {
        self.tasks.get(key)
    }

    /// A standalone task begins by a raw message, without an event.
    pub(super) fn open_silently(&mut self, key: TaskKey) {
        let task = self.tasks.entry(key).or_default();
        if task.runs.is_empty() {
            task.runs.push(Run::default());
        }
    }

    /// Takes one event in, in the order of the log.
    pub(super) fn take(&mut self, event: &Event) -> Result<(), Violation> {
        let fresh = self.ids.insert(event.id.as_u128());
        demand(fresh, "no event is doubled", || format!("{} twice", event.id))?;
        let Some(known) = KnownType::from_name(event.event_type.as_str()) else { return Ok(()) };
        self.take_time(event)?;
        match known {
            KnownType::JobCreated => self.job_created(event),
            KnownType::JobTasksAdded => self.job_tasks_added(event),
            KnownType::JobTasksChanged => self.job_tasks_changed(event),
            KnownType::JobCompleted => self.job_completed(event),
            KnownType::JobFailureDetected => self.job_failure(event),
            KnownType::JobCancelled => {
                let job = self.job_of(event)?;
                (job.cancelled, job.rested) = (true, true);
                Ok(())
            }
            KnownType::TaskHealthCheck
            | KnownType::BudgetExceeded
            | KnownType::AlertRaised
            | KnownType::AlertCleared
            | KnownType::ExecutionResumed
            | KnownType::ExecutionFailed
            | KnownType::ExecutionExpired
            | KnownType::ErrorIgnored
            | KnownType::ErrorReopened => Ok(()),
            _ => self.task_event(event, known),
        }
    }

    fn take_time(&mut self, event: &Event) -> Result<(), Violation> {
        let key = (event.tenant.clone(), event.entity.clone());
        let before = self.last.insert(key, event.timestamp);
        demand(before.is_none_or(|before| before < event.timestamp), "timestamps of an entity grow", || {
            format!("{} of {} at {} after {before:?}", event.event_type, event.entity.id, event.timestamp)
        })
    }

    fn job_created(&mut self, event: &Event) -> Result<(), Violation> {
        let created: JobCreated = read(event)?;
        let Some(offer) = self.offered.remove(&created.job_id) else {
            return Err(Violation::new("jobs are made once and only when asked", created.job_id.to_string()));
        };
        demand(offer.tenant == event.tenant, "events stay with their tenant", || format!("{event:?}"))?;
        let told = created.tasks.unwrap_or_default();
        let same = told.iter().eq(offer.tasks.iter().map(|task| &**task));
        demand(same, "a job is stored as it was handed in", || created.job_id.to_string())?;
        let mut job = JobHistory::new(offer.tenant, offer.app, created.job_id);
        job.grow(&offer.tasks)?;
        self.fresh.moved.extend((0..job.tasks.len()).map(|index| (job.job, index)));
        self.fresh.jobs.insert(job.job);
        self.jobs.insert(job.job, job);
        Ok(())
    }

    /// The tasks have another input, which their next claim gives. None of them was completed.
    fn job_tasks_changed(&mut self, event: &Event) -> Result<(), Violation> {
        let told: ToldChange = read(event)?;
        let job = self.job_of(event)?.job;
        for task in told.tasks {
            let key = TaskKey { tenant: event.tenant.clone(), request: job.request_id(&task) };
            self.change(key, told.number);
        }
        Ok(())
    }

    /// A task was given another input.
    pub(super) fn change(&mut self, key: TaskKey, number: u64) {
        self.changed.insert(key, number);
    }

    /// A task was handed out: it has the input that it was given last.
    pub(super) fn check_input(&self, key: &TaskKey, input: &Json) -> Result<(), Violation> {
        let Some(number) = self.changed.get(key) else { return Ok(()) };
        demand(*input == changed_input(*number), "a changed task runs with what it was changed to", || {
            format!("{} has {}, not change {number}", key.request, input.as_str())
        })
    }

    fn job_tasks_added(&mut self, event: &Event) -> Result<(), Violation> {
        let added: JobTasksAdded = read(event)?;
        let job = self.job_of(event)?;
        let before = job.tasks.len();
        job.grow(added.new_tasks.as_deref().unwrap_or_default())?;
        let after = job.tasks.len();
        let id = job.job;
        let told = (added.previous_total_tasks as usize, added.total_tasks_now as usize);
        demand(told == (before, after), "additions count right", || {
            format!("{id}: {told:?}, not {before}, {after}")
        })?;
        self.fresh.moved.extend((before..after).map(|index| (id, index)));
        self.fresh.jobs.insert(id);
        Ok(())
    }

    fn job_completed(&mut self, event: &Event) -> Result<(), Violation> {
        let completed: JobCompleted = read(event)?;
        let job = self.job_of(event)?;
        job.completions += 1;
        job.rested = true;
        let (id, total) = (job.job, job.tasks.len());
        demand(job.completions == 1, "Job Completed is written once", || id.to_string())?;
        demand(completed.total_tasks as usize == total, "Job Completed counts right", || id.to_string())?;
        let counts = self.counts(id);
        demand(counts.completed == counts.total(), "Job Completed comes last", || {
            format!("{id}: {counts:?}")
        })?;
        let last = self.last_end(id);
        demand(last <= Some(event.timestamp), "a job is not completed before its last task", || {
            format!("{id} at {}, its last task at {last:?}", event.timestamp)
        })?;
        self.fresh.jobs.insert(id);
        self.check_statuses(id, &completed.statuses)
    }

    fn job_failure(&mut self, event: &Event) -> Result<(), Violation> {
        let failure: JobFailureDetected = read(event)?;
        let job = self.job_of(event)?;
        job.rested = true;
        let id = job.job;
        let Some(index) = job.index_of(&failure.failed_task_id) else {
            return Err(Violation::new("failures name tasks of the job", format!("{failure:?}")));
        };
        let key = TaskKey { tenant: event.tenant.clone(), request: job.tasks[index].request.clone() };
        let run = self.tasks.get_mut(&key).and_then(|task| task.runs.last_mut());
        let reported = run.filter(|run| run.end.is_some_and(|end| end.outcome != Outcome::Completed));
        let Some(run) = reported else {
            return Err(Violation::new("only failures are reported", key.request.to_string()));
        };
        run.reports += 1;
        let ended = run.end.map(|end| end.at);
        demand(ended <= Some(event.timestamp), "a failure is not told before it happened", || {
            format!("{} at {}, not {ended:?}", key.request, event.timestamp)
        })?;
        self.check_statuses(id, &failure.statuses)
    }

    /// The states that a job event lists are those that the events before it give.
    fn check_statuses(&self, job: JobId, told: &TaskStatuses) -> Result<(), Violation> {
        let known = &self.jobs[&job];
        for (task, state) in &told.task_statuses {
            let found = known.index_of(task).and_then(|index| self.state_at(known, index));
            demand(found == *state, "job events list the states as they are", || {
                format!("{task} of {job} is {found:?}, not {state:?}")
            })?;
        }
        let whole = told.truncated || told.task_statuses.len() == known.tasks.len();
        demand(whole, "job events list all states", || job.to_string())?;
        let counts_right = told.counts.is_none_or(|counts| counts == self.counts(job));
        demand(counts_right, "job events count right", || format!("{job}: {:?}", told.counts))
    }

    fn task_event(&mut self, event: &Event, known: KnownType) -> Result<(), Violation> {
        match known {
            KnownType::TaskPending => self.task_pending(event),
            KnownType::TaskProcessingStarted => {
                let started: TaskProcessingStarted = read(event)?;
                self.working_run(event, &started.task, started.fence)?.begun = true;
                Ok(())
            }
            KnownType::TaskProcessingFailed => {
                let failed: TaskProcessingFailed = read(event)?;
                let run = self.working_run(event, &failed.task, failed.fence)?;
                (run.begun, run.parked) = (true, failed.parked);
                Ok(())
            }
            KnownType::TaskHeartbeat => {
                let beat: TaskHeartbeat = read(event)?;
                let (request_id, run) = (beat.request_id.clone(), beat.run);
                let told = TaskIdentity { request_id, job_id: None, task_id: None, run };
                self.working_run(event, &told, beat.fence)?.begun = true;
                self.count_heartbeat(&key_of(event, &told)?, &beat)
            }
            KnownType::TaskCompleted => {
                let completed: TaskCompleted = read(event)?;
                self.end_run(event, &completed.task, completed.fence, Outcome::Completed)
            }
            KnownType::TaskTimeout => {
                let timeout: TaskTimeout = read(event)?;
                self.end_run(event, &timeout.task, timeout.fence, Outcome::TimedOut)
            }
            KnownType::TaskFailed => {
                let failed: TaskFailed = read(event)?;
                let outcome = match failed.error_category {
                    ErrorCategory::Cancelled => Outcome::Cancelled,
                    _ => Outcome::Failed,
                };
                let fence =
                    failed.fence.ok_or_else(|| Violation::new("ends name a fence", format!("{event:?}")))?;
                self.end_run(event, &failed.task, fence, outcome)
            }
            _ => Ok(()),
        }
    }

    fn task_pending(&mut self, event: &Event) -> Result<(), Violation> {
        let pending: TaskPending = read(event)?;
        let key = key_of(event, &pending.task)?;
        let place = match (pending.task.job_id, &pending.task.task_id) {
            (Some(job), Some(id)) => {
                let found = self.jobs.get(&job).filter(|job| job.tenant == event.tenant);
                let Some(job) = found else {
                    return Err(Violation::new("tasks belong to a job", key.request.to_string()));
                };
                let Some(index) = job.index_of(id) else {
                    return Err(Violation::new("tasks belong to their job", key.request.to_string()));
                };
                let waits = job.tasks[index].parents.iter().find(|parent| !self.is_completed(job, **parent));
                demand(waits.is_none(), "a child starts after all its parents", || key.request.to_string())?;
                self.fresh.jobs.insert(job.job);
                Some((job.job, index))
            }
            _ => None,
        };
        let task =
            self.tasks.entry(key.clone()).or_insert_with(|| TaskHistory { job: place, ..Default::default() });
        let (run, open) = (task.run(), task.is_live() && !task.is_parked());
        demand(pending.task.run == run + 1 && !open, "a run is dispatched once", || {
            format!(
                "{} run {} while run {run} is {}",
                key.request,
                pending.task.run,
                if open { "open" } else { "over" }
            )
        })?;
        demand(!task.is_completed(), "what is completed stays", || key.request.to_string())?;
        task.runs.push(Run { announced: true, ..Run::default() });
        Ok(())
    }

    /// The run an event belongs to, which must be open, with a fence that is not older than one seen before.
    fn open_run(&mut self, event: &Event, told: &TaskIdentity, fence: Fence) -> Result<&mut Run, Violation> {
        let key = key_of(event, told)?;
        let Some(task) = self.tasks.get_mut(&key) else {
            return Err(Violation::new("tasks are dispatched before they run", key.request.to_string()));
        };
        demand(task.run() == told.run, "events belong to the newest run", || {
            format!("{} of {} run {}, not {}", event.event_type, key.request, told.run, task.run())
        })?;
        demand(fence.0 >= task.fence, "fences grow", || {
            format!("{} of {} with fence {} after {}", event.event_type, key.request, fence.0, task.fence)
        })?;
        demand(fence.0 > 0, "whoever runs a task has a fence", || key.request.to_string())?;
        task.fence = fence.0;
        if let Some((job, _)) = task.job {
            self.fresh.jobs.insert(job);
        }
        let run = task.runs.last_mut().expect("it has the run that the event names");
        demand(run.end.is_none(), "exactly one outcome per run", || {
            format!("{} of {} run {} after {:?}", event.event_type, key.request, told.run, run.end)
        })?;
        Ok(run)
    }

    /// The run of an event that says that somebody works.
    fn working_run(
        &mut self,
        event: &Event,
        told: &TaskIdentity,
        fence: Fence,
    ) -> Result<&mut Run, Violation> {
        let run = self.open_run(event, told, fence)?;
        demand(!run.parked, "nobody runs what is parked", || {
            format!("{} of {}", event.event_type, told.request_id)
        })?;
        Ok(run)
    }

    fn end_run(
        &mut self,
        event: &Event,
        told: &TaskIdentity,
        fence: Fence,
        outcome: Outcome,
    ) -> Result<(), Violation> {
        self.open_run(event, told, fence)?.end =
            Some(End { outcome, fence: fence.0, event: event.id, at: event.timestamp });
        let key = key_of(event, told)?;
        let task = &self.tasks[&key];
        let earlier = task.runs.iter().rev().nth(1).and_then(|run| run.end);
        demand(earlier.is_none_or(|earlier| earlier.fence < fence.0), "fences are never used again", || {
            format!("{} ends run {} with fence {}", key.request, told.run, fence.0)
        })?;
        if outcome == Outcome::Completed {
            self.fresh.moved.extend(task.job);
        } else if outcome != Outcome::Cancelled && task.job.is_some() {
            self.fresh.failed.push(key);
        }
        Ok(())
    }

    fn count_heartbeat(&mut self, key: &TaskKey, beat: &TaskHeartbeat) -> Result<(), Violation> {
        let task = self.tasks.get_mut(key).expect("its run is open");
        let expected = if task.heartbeat.0 == beat.fence.0 { task.heartbeat.1 + 1 } else { 1 };
        task.heartbeat = (beat.fence.0, beat.heartbeat_number);
        demand(beat.heartbeat_number == expected, "heartbeats count on", || {
            format!("{} says {}, not {expected}", key.request, beat.heartbeat_number)
        })
    }

    /// Whether an event belongs to work that was finished at some time, or to none at all.
    pub(super) fn may_expire(&self, event: &Event) -> bool {
        let id = event.entity.id.as_str();
        match event.entity.kind.as_str() {
            "TASK" => {
                let request = RequestId::trusted(id);
                if let Some(job) = request.job_part() {
                    return self.jobs.get(&job).is_some_and(|job| job.rested);
                }
                let key = TaskKey { tenant: event.tenant.clone(), request };
                self.tasks.get(&key).is_some_and(|task| task.runs.iter().any(|run| run.end.is_some()))
            }
            "JOB" => id.parse().is_ok_and(|job: JobId| self.jobs.get(&job).is_some_and(|job| job.rested)),
            _ => true,
        }
    }

    /// What must be there once a group is: dispatched children, told failures, ended jobs.
    pub(super) fn settle(&mut self) -> Result<BTreeSet<JobId>, Violation> {
        let fresh = std::mem::take(&mut self.fresh);
        for (id, index) in &fresh.moved {
            let job = &self.jobs[id];
            if job.cancelled {
                continue;
            }
            let concerned = job.tasks[*index].children.iter().chain(std::iter::once(index));
            for task in concerned {
                self.check_dispatched(job, *task)?;
            }
        }
        for key in &fresh.failed {
            let told = self.tasks[key].runs.iter().filter(|run| run.end.is_some());
            let wrong = told.filter(|run| {
                let failed =
                    run.end.is_some_and(|end| matches!(end.outcome, Outcome::Failed | Outcome::TimedOut));
                run.reports != u32::from(failed)
            });
            demand(wrong.count() == 0, "a failure is told once", || key.request.to_string())?;
        }
        for id in &fresh.jobs {
            let counts = self.counts(*id);
            let ended = self.jobs[id].completions == 1;
            demand(ended == (counts.completed == counts.total()), "a finished job is ended at once", || {
                format!("{id}: {counts:?}")
            })?;
        }
        Ok(fresh.jobs)
    }

    /// A task whose parents are all completed is dispatched.
    pub(super) fn check_dispatched(&self, job: &JobHistory, index: usize) -> Result<(), Violation> {
        let task = &job.tasks[index];
        let ready = task.parents.iter().all(|parent| self.is_completed(job, *parent));
        demand(!ready || self.state_at(job, index).is_some(), "what is ready is dispatched", || {
            let parents: Vec<&str> =
                task.parents.iter().map(|parent| job.tasks[*parent].id.as_str()).collect();
            format!("{} after {}", task.request, parents.join(", "))
        })
    }

    pub(super) fn state_at(&self, job: &JobHistory, index: usize) -> Option<PublicState> {
        let key = TaskKey { tenant: job.tenant.clone(), request: job.tasks[index].request.clone() };
        self.tasks.get(&key).and_then(TaskHistory::state)
    }

    /// When the last task of a job ended.
    fn last_end(&self, job: JobId) -> Option<Timestamp> {
        let job = &self.jobs[&job];
        let keys = job
            .tasks
            .iter()
            .map(|task| TaskKey { tenant: job.tenant.clone(), request: task.request.clone() });
        keys.filter_map(|key| Some(self.tasks.get(&key)?.end()?.at)).max()
    }

    fn is_completed(&self, job: &JobHistory, index: usize) -> bool {
        self.state_at(job, index) == Some(PublicState::Completed)
    }

    pub(super) fn counts(&self, job: JobId) -> JobCounts {
        let job = &self.jobs[&job];
        let mut counts = JobCounts::default();
        for index in 0..job.tasks.len() {
            *counts.of(self.state_at(job, index)) += 1;
            let key = TaskKey { tenant: job.tenant.clone(), request: job.tasks[index].request.clone() };
            counts.parked += u32::from(self.tasks.get(&key).is_some_and(TaskHistory::is_parked));
        }
        counts
    }

    fn job_of(&mut self, event: &Event) -> Result<&mut JobHistory, Violation> {
        let job = JobId::new(event.entity.id.as_str()).ok().and_then(|id| self.jobs.get_mut(&id));
        let job = job.filter(|job| job.tenant == event.tenant && job.app == event.app);
        job.ok_or_else(|| Violation::new("job events belong to a job of the tenant", format!("{event:?}")))
    }
}

fn key_of(event: &Event, told: &TaskIdentity) -> Result<TaskKey, Violation> {
    let same = event.entity.id.as_str() == told.request_id.as_str();
    demand(same, "task events carry their own task's id", || format!("{event:?}"))?;
    Ok(TaskKey { tenant: event.tenant.clone(), request: RequestId::trusted(told.request_id.as_str()) })
}

pub(super) fn read<'a, T: serde::Deserialize<'a>>(event: &'a Event) -> Result<T, Violation> {
    event.properties.read().map_err(|error| {
        Violation::new(
            "properties can be read",
            format!("{}: {error}: {:?}", event.event_type, event.properties),
        )
    })
}
