//! Apply: how commits change the state. Nothing else does.

use std::sync::Arc;

use tidemill_model::{Event, JobId, KnownType, TaskHead, TaskState};

use crate::kernel::commit::{
    Commit, Delivered, Message, MessageId, NewTask, RecordWrite, TaskChange, TaskChangeKind, TaskKey,
    Visibility,
};
use crate::kernel::state::job::{Job, JobHead, KeptTask};
use crate::kernel::state::queue::Queued;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::stream::Stream;
use crate::kernel::state::trail::{Links, Seq};
use crate::kernel::state::{Alone, State};

impl State {
    /// Makes a commit true. `first` is the number of its first event; the answer is the pointers of each event.
    pub fn apply(&mut self, commit: &Commit, first: Seq) -> Vec<Links> {
        for write in &commit.records {
            self.apply_record(write);
        }
        for change in &commit.tasks {
            self.apply_task(change);
        }
        for message in &commit.enqueue {
            self.apply_enqueue(message);
        }
        for visibility in &commit.visibility {
            self.apply_visibility(visibility);
        }
        for message in &commit.settle {
            self.apply_settle(*message);
        }
        (first.0..).zip(&commit.events).map(|(seq, event)| self.apply_event(Seq(seq), event)).collect()
    }

    pub fn apply_record(&mut self, write: &RecordWrite) {
        // Only these change what a job comes to.
        let job = match write {
            RecordWrite::Job(new) => Some((&new.tenant, new.job)),
            RecordWrite::JobTasks { tenant, job, .. }
            | RecordWrite::JobSpecs { tenant, job, .. }
            | RecordWrite::JobCancelled { tenant, job, .. } => Some((tenant, *job)),
            _ => None,
        };
        let before = job.map(|(_, job)| self.load_of_job(job));
        self.write_record(write);
        if let (Some((tenant, job)), Some(before)) = (job, before) {
            self.book_job_load(tenant, job, before);
        }
    }

    fn write_record(&mut self, write: &RecordWrite) {
        match write {
            RecordWrite::Job(new) => {
                let mut job = Job::new(JobHead {
                    tenant: new.tenant.clone(),
                    app: new.app.clone(),
                    job: new.job,
                    request: new.request.clone(),
                    name: new.name.clone(),
                    created_at: new.created_at,
                    completed_at: None,
                    cancelled: false,
                    counts: tidemill_model::JobCounts::default(),
                    stream: Stream::default(),
                    version: 1,
                    allowance: None,
                    hops: 0,
                    callback: None,
                });
                job.grow(&new.tasks);
                self.rows.touch(|| RowKey::Job(new.tenant.clone(), new.job));
                self.rows.touch_lists(&new.tenant, new.job, 0, job.nodes.len());
                self.jobs.insert(new.job, job);
            }
            RecordWrite::JobTasks { job, tasks, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                let first = found.nodes.len();
                found.grow(tasks);
                found.head.version += 1;
                found.head.completed_at = None;
                self.rows.touch_lists(&found.head.tenant, *job, first, found.nodes.len());
                self.rows.touch(|| RowKey::Job(found.head.tenant.clone(), *job));
            }
            RecordWrite::JobSpecs { job, specs, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                for spec in specs.iter() {
                    if let Some(index) = found.change(spec) {
                        let index = index as usize;
                        self.rows.touch_lists(&found.head.tenant, *job, index, index + 1);
                    }
                }
                found.head.version += 1;
                self.rows.touch(|| RowKey::Job(found.head.tenant.clone(), *job));
            }
            RecordWrite::AloneSpec { task, spec } => {
                let load = self.load_of_alone(task);
                let Some(alone) = self.alone.get_mut(task) else { return };
                let changed = NewTask { spec: Arc::clone(spec), ..(*alone.task).clone() };
                alone.task = Arc::new(changed);
                self.rows.touch(|| RowKey::Task(task.clone()));
                self.book_alone_load(task, load);
            }
            RecordWrite::JobCancelled { job, cancelled, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                found.head.cancelled = *cancelled;
                found.head.version += 1;
                let tenant = found.head.tenant.clone();
                self.rows.touch(|| RowKey::Job(tenant, *job));
            }
            RecordWrite::JobAllowance { job, allowance, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                found.head.allowance = allowance.map(Box::new);
                found.head.version += 1;
                let tenant = found.head.tenant.clone();
                self.rows.touch(|| RowKey::Job(tenant, *job));
            }
            RecordWrite::JobHops { job, hops, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                found.head.hops = *hops;
                found.head.version += 1;
                let tenant = found.head.tenant.clone();
                self.rows.touch(|| RowKey::Job(tenant, *job));
            }
            RecordWrite::JobCallback { job, url, .. } => {
                let Some(found) = self.jobs.get_mut(job) else { return };
                found.head.callback = Some(Arc::clone(url));
                found.head.version += 1;
                let tenant = found.head.tenant.clone();
                self.rows.touch(|| RowKey::Job(tenant, *job));
            }
            RecordWrite::Task(new) => {
                let key = TaskKey { tenant: new.tenant.clone(), request: new.request.clone() };
                self.rows.touch(|| RowKey::Task(key.clone()));
                self.alone.insert(key, Alone { task: Arc::clone(new), entry: KeptTask::default() });
            }
            RecordWrite::Put { key, record } => {
                self.rows.touch(|| RowKey::Record(key.clone()));
                self.pending.note(key, record.as_ref());
                self.deliveries.note(key, record.as_ref());
                self.triage.note(key, record.as_ref());
                self.records.insert(key.clone(), record.clone());
            }
        }
    }

    pub fn apply_task(&mut self, change: &TaskChange) {
        let key = &change.task;
        let live = if let Some((id, task)) = key.request.parts() {
            let load = self.load_of_job(id);
            let job = id;
            let Some(job) = self.jobs.get_mut(&job) else { return };
            let Some(index) = job.index_of(task) else { return };
            let before = job.node(index).entry.public_state();
            let entry = &mut job.nodes[index as usize].entry;
            change_head(&mut entry.head, &change.kind);
            self.suspicion.note(key, entry.head.as_ref());
            let live = entry.is_live();
            job.ready.remove(&index);
            job.book(index, before);
            #[cfg(feature = "faults")]
            if self.faults.skip_counter && before != job.node(index).entry.public_state() {
                job.forget_a_completion(index);
            }
            // A heartbeat changes nothing but the lease.
            if !matches!(change.kind, TaskChangeKind::Renew { .. }) {
                job.head.version += 1;
                let (tenant, id) = (job.head.tenant.clone(), job.head.job);
                self.rows.touch(|| RowKey::Job(tenant, id));
            }
            self.book_job_load(&key.tenant, id, load);
            live
        } else {
            let load = self.load_of_alone(key);
            let Some(alone) = self.alone.get_mut(key) else { return };
            change_head(&mut alone.entry.head, &change.kind);
            self.suspicion.note(key, alone.entry.head.as_ref());
            let live = alone.entry.is_live();
            self.book_alone_load(key, load);
            live
        };
        self.rows.touch(|| RowKey::Task(key.clone()));
        if live {
            if !self.live.contains(key) {
                self.live.insert(key.clone());
            }
        } else {
            self.live.remove(key);
        }
    }

    pub fn apply_enqueue(&mut self, message: &Message) {
        let queued = Queued {
            message: message.clone(),
            visible_at: message.not_before,
            deliveries: 0,
            receives: 0,
            wait_millis: message.wait_millis,
        };
        self.queue.insert(queued);
        self.rows.touch(|| RowKey::Message(message.id));
        // A message of another run stands for nothing, and a duplicate does not displace the one that stands.
        let Some(entry) = self.task(&message.task).map(|task| task.entry) else { return };
        let standing = entry.message.and_then(|standing| self.queue.get(standing));
        let stands = standing.is_some_and(|standing| entry.is_open_in(standing.message.run));
        if stands || !entry.is_open_in(message.run) {
            return;
        }
        if let Some(entry) = self.entry_mut(&message.task) {
            entry.message = Some(message.id);
            self.rows.touch(|| RowKey::Task(message.task.clone()));
        }
    }

    pub fn apply_visibility(&mut self, change: &Visibility) {
        self.queue.set_visible(change);
        self.rows.touch(|| RowKey::Message(change.message));
        if change.delivered != Delivered::No {
            let Some(message) = self.queue.get(change.message).map(|queued| queued.message.clone()) else {
                return;
            };
            let task = message.task;
            self.queue.took_turn(&task.tenant);
            if let Some(entry) = self.entry_mut(&task).filter(|entry| entry.is_open_in(message.run)) {
                entry.message = Some(change.message);
                self.rows.touch(|| RowKey::Task(task));
            }
        }
    }

    pub fn apply_settle(&mut self, message: MessageId) {
        let Some(queued) = self.queue.remove(message) else { return };
        if self.rows.stored_messages.contains(&message) {
            self.rows.touch(|| RowKey::Message(message));
        } else {
            self.rows.dirty.remove(&RowKey::Message(message));
        }
        let task = queued.message.task;
        if let Some(entry) = self.entry_mut(&task)
            && entry.message == Some(message)
        {
            entry.message = None;
            self.rows.touch(|| RowKey::Task(task));
        }
    }

    /// Takes an event into its entity's stream.
    pub fn apply_event(&mut self, seq: Seq, event: &Event) -> Links {
        let aside = event.event_type.as_str() == KnownType::TaskHeartbeat.as_str();
        let push = |stream: &mut Stream| stream.push(seq, event.position(), aside);
        // The id of a job that another system names is any other entity's.
        match (event.entity.kind.as_str(), JobId::new(event.entity.id.as_str())) {
            ("TASK", _) => {
                let request = tidemill_model::RequestId::trusted(event.entity.id.as_str());
                let key = TaskKey { tenant: event.tenant.clone(), request };
                // Unknown only while a log without its beginning is read; the row is carried further on.
                let Some(entry) = self.entry_mut(&key) else { return Links::default() };
                let links = push(&mut entry.stream);
                if let Some(job) = key.request.job_part().and_then(|job| self.jobs.get_mut(&job)) {
                    job.told_at = job.told_at.max(Some(event.timestamp));
                }
                self.rows.touch(|| RowKey::Task(key));
                links
            }
            ("JOB", Ok(id)) => {
                let Some(job) = self.jobs.get_mut(&id) else { return Links::default() };
                let links = push(&mut job.head.stream);
                if event.event_type.as_str() == KnownType::JobCompleted.as_str() {
                    job.head.completed_at = Some(event.timestamp);
                }
                let key = RowKey::Job(event.tenant.clone(), job.head.job);
                self.rows.touch(|| key);
                links
            }
            _ => {
                let key = (event.tenant.clone(), event.entity.clone());
                self.rows.touch(|| RowKey::Entity(key.0.clone(), key.1.clone()));
                push(self.entities.entry(key).or_default())
            }
        }
    }

    fn entry_mut(&mut self, key: &TaskKey) -> Option<&mut KeptTask> {
        if let Some((job, task)) = key.request.parts() {
            let job = self.jobs.get_mut(&job).filter(|job| job.head.tenant == key.tenant)?;
            let index = job.index_of(task)?;
            return Some(&mut job.nodes[index as usize].entry);
        }
        self.alone.get_mut(key).map(|alone| &mut alone.entry)
    }
}

/// The one place where a task's head moves.
pub(crate) fn change_head(slot: &mut Option<TaskHead>, change: &TaskChangeKind) {
    if let TaskChangeKind::Dispatch = change {
        slot.get_or_insert_with(TaskHead::dispatched);
        return;
    }
    let Some(head) = slot.as_mut() else { return };
    match change {
        TaskChangeKind::Dispatch => {}
        TaskChangeKind::Acquire { fence, owner, until, at, takeover } => {
            head.fence = *fence;
            head.reported = None;
            head.takeovers = head.takeovers.saturating_add(u32::from(*takeover));
            head.state = TaskState::Leased(tidemill_model::Lease {
                owner: owner.clone(),
                until: *until,
                claimed_at: *at,
                heartbeats: 0,
            });
        }
        TaskChangeKind::Begin { .. } => head.begun = true,
        TaskChangeKind::Renew { until, .. } => {
            head.begun = true;
            if let TaskState::Leased(lease) = &mut head.state {
                lease.until = lease.until.max(*until);
                lease.heartbeats += 1;
            }
        }
        TaskChangeKind::Shorten { until, .. } => {
            if let TaskState::Leased(lease) = &mut head.state {
                lease.until = lease.until.min(*until);
            }
        }
        TaskChangeKind::Release { failed, .. } => {
            head.state = TaskState::Queued;
            if let Some(category) = failed {
                head.crashes = 0;
                head.attempts = head.attempts.saturating_add(1);
                head.last_error = Some(*category);
                head.failed_fence = Some(head.fence);
                head.begun = true;
            }
        }
        TaskChangeKind::Revoke { .. } => {
            head.takeovers = head.takeovers.saturating_add(1);
            head.state = TaskState::Queued;
        }
        TaskChangeKind::Interrupt { .. } => {
            head.crashes = head.crashes.saturating_add(1);
            head.state = TaskState::Queued;
        }
        TaskChangeKind::Finish { fence, outcome, attempts, error } => {
            head.fence = *fence;
            head.crashes = 0;
            head.attempts = *attempts;
            head.last_error = error.or(head.last_error);
            head.state = TaskState::Done(*outcome);
        }
        TaskChangeKind::Park { fence, attempts, error } => {
            head.fence = *fence;
            head.crashes = 0;
            head.attempts = *attempts;
            head.last_error = Some(*error);
            head.failed_fence = Some(*fence);
            head.begun = true;
            head.state = TaskState::Parked;
        }
        TaskChangeKind::Reopen { run } => {
            let (fence, reworked) = (head.fence, head.reworked);
            *head = TaskHead { run: *run, fence, reworked, ..TaskHead::dispatched() };
        }
        TaskChangeKind::Session { session, .. } => head.session = Some(session.clone()),
        TaskChangeKind::Reported { digest, .. } => head.reported = Some(*digest),
        TaskChangeKind::Bury { letter } => head.letter = Some(letter.0),
        TaskChangeKind::Rework { fence } => head.reworked = *fence,
    }
}
