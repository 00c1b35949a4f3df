//! Verify: the derived rows equal the fold of the log, and what users see equals the fold of the events.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tidemill_engine::state::State;
use tidemill_engine::state::job::{Job, KeptTask};
use tidemill_engine::state::row::{RowKey, is_open};
use tidemill_engine::state::stream::Stream;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::fold::fold_task;
use tidemill_model::events::overflow;
use tidemill_model::{Entity, Event, JobId, TaskSpec, TenantId, Timestamp};

use super::control::Control;
use super::difference::{name_of, sentence};
use super::rows::row_store::io_fault;
use super::watch::{Step, Watch, unwatched};
use super::{Store, query};
use crate::log::{Entry as LogEntry, LogPosition};

/// How many differences are reported; the rest are only counted.
const FINDINGS_MAX: usize = 100;

/// What was checked and what differs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub segments: u64,
    pub events: u64,
    pub rows: u64,
    pub tasks: u64,
    /// Large values that events name.
    pub blobs: u64,
    /// Those of them that are missing or damaged. Each is a difference as well.
    pub blobs_lost: u64,
    /// The log is damaged, so there was nothing to compare the rest with.
    pub only_log: bool,
    /// The first differences, as sentences.
    pub differences: Vec<String>,
    pub differences_total: u64,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.differences_total == 0
    }

    /// Whether nothing is wrong but that large values are not there.
    pub fn is_clean_but_for_blobs(&self) -> bool {
        self.differences_total == self.blobs_lost
    }

    fn add(&mut self, difference: impl FnOnce() -> String) {
        self.differences_total += 1;
        if self.differences.len() < FINDINGS_MAX {
            self.differences.push(difference());
        }
    }
}

impl Store {
    /// Checks everything that is derived against the log.
    pub fn verify(&self) -> Result<Findings, Fault> {
        self.verify_watched(&mut unwatched)
    }

    /// Like `verify`, for callers that want to know how far it is.
    pub fn verify_watched(&self, watch: &mut Watch<'_>) -> Result<Findings, Fault> {
        let mut findings = Findings { segments: self.reader.segments().len() as u64, ..Findings::default() };
        Step::begin(watch, "reading the log", None).end();
        for problem in self.keeper.verify()? {
            findings.add(|| problem);
        }
        if !findings.is_clean() {
            findings.only_log = true;
            return Ok(findings);
        }
        let expected = self.fold_log(&mut findings, watch)?;
        // Damage is reported, not repaired.
        self.rows.left_alone(|| {
            self.compare_rows(&expected, &mut findings, watch)?;
            self.compare_task_lists(&expected, &mut findings)?;
            self.compare_stored(&expected, &mut findings)
        })?;
        self.compare_events(&expected, &mut findings, watch)?;
        Ok(findings)
    }

    /// The state that the log alone gives.
    fn fold_log(&self, findings: &mut Findings, watch: &mut Watch<'_>) -> Result<State, Fault> {
        let mut state = State::default();
        let mut step = Step::begin(watch, "folding events", Some(self.log.next_seq().0 - 1));
        self.reader.replay::<Fault>(LogPosition::START, |entry| {
            match entry {
                LogEntry::Event(stored) => {
                    step.tick();
                    findings.events += 1;
                    self.check_blob(&stored.event, findings)?;
                    state.apply_event(stored.seq, &stored.event);
                }
                LogEntry::Control(bytes) => match Control::read(bytes)? {
                    Control::Record(write) => state.apply_record(&write),
                    Control::Task(change) => state.apply_task(&change),
                    Control::Enqueue(message) => state.apply_enqueue(&message),
                    Control::Visibility(change) => state.apply_visibility(&change),
                    Control::Settle(message) => state.apply_settle(message),
                    Control::Carry(key, row) => state.carry(key, row),
                },
            }
            Ok(())
        })?;
        step.end();
        Ok(state)
    }

    /// A large value that an event names must be there, and whole.
    fn check_blob(&self, event: &Event, findings: &mut Findings) -> Result<(), Fault> {
        let Ok(Some(place)) = overflow::reference(&event.properties) else { return Ok(()) };
        findings.blobs += 1;
        let problem = match self.blobs.get(&event.tenant, &place.key) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => "missing",
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => "damaged",
            Err(error) => return Err(io_fault(&error)),
        };
        findings.blobs_lost += 1;
        findings.add(|| format!("event {} names the blob {}, which is {problem}", event.id, place.key));
        Ok(())
    }

    /// Every row that the log gives must stand.
    fn compare_rows(
        &self,
        expected: &State,
        findings: &mut Findings,
        watch: &mut Watch<'_>,
    ) -> Result<(), Fault> {
        let keys = keys_of(expected);
        let mut step = Step::begin(watch, "comparing rows", Some(keys.len() as u64));
        for key in keys {
            step.tick();
            findings.rows += 1;
            let want = expected.row(&key);
            match self.decider.row(&key) {
                Ok(have) if have == want => {}
                Ok(have) => findings.add(|| sentence(&key, have.as_ref(), want.as_ref())),
                Err(Fault::Damaged(problem)) => {
                    findings.add(|| format!("{} cannot be read: {problem}", name_of(&key)));
                }
                Err(fault) => return Err(fault),
            }
        }
        step.end();
        Ok(())
    }

    /// A job's tasks must be those it was given.
    fn compare_task_lists(&self, expected: &State, findings: &mut Findings) -> Result<(), Fault> {
        for job in expected.jobs() {
            findings.rows += 1;
            let (tenant, id) = (&job.head.tenant, job.head.job);
            let have = match self.task_list(tenant, id) {
                Ok(have) => have,
                Err(Fault::Damaged(problem)) => {
                    let name = name_of(&RowKey::JobTasks(tenant.clone(), id, 0));
                    findings.add(|| format!("{name} cannot be read: {problem}"));
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            if !have.iter().eq(job.nodes.iter().map(|node| &node.spec)) {
                let name = name_of(&RowKey::JobTasks(tenant.clone(), id, 0));
                let (have, want) = (have.len(), job.nodes.len());
                findings.add(|| format!("{name} has other tasks ({have}) than the log gives ({want})"));
            }
        }
        Ok(())
    }

    fn task_list(&self, tenant: &TenantId, job: JobId) -> Result<Vec<Arc<TaskSpec>>, Fault> {
        if let Some(job) = self.decider.state.job(tenant, job) {
            return Ok(job.nodes.iter().map(|node| Arc::clone(&node.spec)).collect());
        }
        Ok(self.rows.job(tenant, job)?.map(|rows| rows.task_list()).unwrap_or_default())
    }

    /// Every row that stands must come from the log, and the list of open rows must be right.
    fn compare_stored(&self, expected: &State, findings: &mut Findings) -> Result<(), Fault> {
        let mut listed: HashSet<RowKey> = match self.rows.open_keys() {
            Ok(keys) => keys.into_iter().collect(),
            Err(Fault::Damaged(problem)) => {
                findings.add(|| format!("the list of open work cannot be read: {problem}"));
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        let mut problems = Vec::new();
        let scanned = self.rows.scan(&[], &mut |key, row| {
            if !self.is_wanted(expected, &key) {
                problems.push(sentence(&key, Some(&row), None));
            }
            let (is_listed, is_open) = (listed.remove(&key), is_open(&key, &row) == Some(true));
            if is_listed != is_open {
                let [is, says] = [is_open, is_listed].map(|open| if open { "open" } else { "at rest" });
                problems.push(format!("{} is {is}, but the list of open work says {says}", name_of(&key)));
            }
            problems.len() < FINDINGS_MAX
        });
        match scanned {
            Ok(()) if problems.len() < FINDINGS_MAX => {
                let left = listed.iter().map(name_of);
                problems.extend(left.map(|name| format!("{name} is listed as open work, but has no row")));
            }
            Ok(()) => {}
            // If the log gives it, it was reported by name.
            Err(Fault::Damaged(problem)) => {
                problems.push(format!("{problem}, so not all rows could be looked at"));
            }
            Err(fault) => return Err(fault),
        }
        for problem in problems {
            findings.add(|| problem);
        }
        for key in keys_of(&self.decider.state) {
            if expected.row(&key).is_none() {
                findings.add(|| sentence(&key, self.decider.state.row(&key).as_ref(), None));
            }
        }
        Ok(())
    }

    /// Whether a stored row is one that the log gives, or one that is gone already and only not flushed.
    fn is_wanted(&self, expected: &State, key: &RowKey) -> bool {
        if let RowKey::JobTasks(tenant, job, first) = key {
            return expected.job(tenant, *job).is_some_and(|job| (*first as usize) < job.nodes.len());
        }
        if expected.row(key).is_some() {
            return true;
        }
        match key {
            // All messages are in memory: one that is only stored was settled since.
            RowKey::Message(message) => self.decider.state.queue().get(*message).is_none(),
            key => !self.decider.row(key).is_ok_and(|row| row.is_some()),
        }
    }

    /// What a task's head says must be what its events fold into.
    fn compare_events(
        &self,
        expected: &State,
        findings: &mut Findings,
        watch: &mut Watch<'_>,
    ) -> Result<(), Fault> {
        let mut step = Step::begin(watch, "folding tasks", None);
        let mut check =
            |tenant: &TenantId, request: &tidemill_model::RequestId, entry: &KeptTask| -> Result<(), Fault> {
                step.tick();
                findings.tasks += 1;
                let events = self.history(tenant, Entity::task(request), &entry.stream)?;
                let beside = |event: &tidemill_model::Event| {
                    event.event_type.as_str() == tidemill_model::KnownType::TaskHeartbeat.as_str()
                };
                let in_chain = events.iter().filter(|event| !beside(event)).count() as u64;
                if in_chain < entry.stream.version() {
                    // Some of its events have expired.
                    return Ok(());
                }
                let fold = match fold_task(&events) {
                    Ok(fold) => fold,
                    Err(problem) => {
                        findings.add(|| format!("the events of task {request} cannot be: {problem}"));
                        return Ok(());
                    }
                };
                if entry.head.is_none() {
                    // Known by events of other senders alone: nobody asked for it to run.
                    return Ok(());
                }
                let head = entry.head.as_ref().filter(|_| entry.stream.version() > 0);
                let have = head.map(|head| (head.public_state(), head.is_parked(), head.run));
                let want = fold.map(|fold| (fold.state, fold.parked, fold.run));
                if have != want {
                    findings.add(|| format!("task {request} is {have:?}, but its events say {want:?}"));
                }
                Ok(())
            };
        for (key, alone) in expected.alone() {
            check(&key.tenant, &key.request, &alone.entry)?;
        }
        for job in expected.jobs() {
            for node in &job.nodes {
                if node.entry.head.is_some() {
                    check(&job.head.tenant, &job.head.job.request_id(&node.spec.task_id), &node.entry)?;
                }
            }
        }
        step.end();
        Ok(())
    }

    fn history(
        &self,
        tenant: &TenantId,
        entity: Entity,
        stream: &Stream,
    ) -> Result<Vec<tidemill_model::Event>, Fault> {
        let mut query = EventQuery::all(tenant.clone(), AccessPath::Entity(entity));
        let mut events = Vec::new();
        loop {
            let page = query::answer(&self.reader, Some(stream), &query, Timestamp::MIN)?;
            events.extend(page.events);
            match page.next {
                None => return Ok(events),
                next => query.after = next,
            }
        }
    }
}

/// All rows of a state, in order.
fn keys_of(state: &State) -> Vec<RowKey> {
    let mut keys = Vec::new();
    for job in state.jobs() {
        let head = &job.head;
        keys.push(RowKey::Job(head.tenant.clone(), head.job));
        keys.extend(task_keys(job));
    }
    keys.extend(state.alone().map(|(key, _)| RowKey::Task(key.clone())));
    keys.extend(state.queue().iter().map(|queued| RowKey::Message(queued.message.id)));
    keys.extend(
        state.records().filter(|(_, record)| record.is_some()).map(|(key, _)| RowKey::Record(key.clone())),
    );
    keys.extend(state.entities().map(|((tenant, entity), _)| RowKey::Entity(tenant.clone(), entity.clone())));
    keys.sort();
    keys
}

fn task_keys(job: &Job) -> impl Iterator<Item = RowKey> {
    let dispatched = job.nodes.iter().filter(|node| node.entry.head.is_some());
    dispatched.map(|node| {
        let request = job.head.job.request_id(&node.spec.task_id);
        RowKey::Task(tidemill_engine::commit::TaskKey { tenant: job.head.tenant.clone(), request })
    })
}
