//! Take in an event of another sender: it is stored once, as sent, with the transition that it means.
//!
//! A worker of another system is known by its name. Its `Task Processing Started` takes the lease, its heartbeats extend
//! it, and its outcome counts once. What contradicts the state is refused, and nothing of it is stored.

use std::sync::Arc;

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::events::overflow;
use tidemill_model::{
    AppName, BadEvent, ErrorCategory, Event, EventId, Fence, Json, KnownType, LastError, Outcome, Owner,
    TaskHead, TaskId, TaskOptions, TaskSpec, TaskState, Timestamp,
};

use crate::engine::limits::EVENT_BYTES_MAX;
use crate::engine::{Engine, EngineError, check, digest, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::command::{Command, Finish, Once, Report, Spent};
use crate::kernel::commit::{NewTask, RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::{Draft, spec_of};
use crate::kernel::record::{Effect, RecordKey};
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskRef};
use crate::outside::meaning::{self, Meaning, Said, TaskSaying};
use crate::parking::park::Defeat;
use crate::triage::ingest;
use crate::work::rows::task_row;
use crate::work::running::finish;
use crate::work::running::give_up::{End, Exhausted, end_exhausted, report_failure};
use crate::work::submitting::submit_job::{earlier_effect, remember};
use crate::work::submitting::submit_task::ALONE;

/// What the owner of a lease begins with that another system's worker took.
const OUTSIDE: &str = "outside/";
/// The route under which events of other senders are known again.
const ONCE: &str = "event";

/// What became of an event of another sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakenEvent {
    pub event: EventId,
    /// It was here before, or the engine has recorded what it says: nothing changed.
    pub known: bool,
}

/// An event as it was sent. `received_at` is set by the decision.
#[derive(Debug, Clone)]
pub struct TakeIn {
    pub event: Event,
    /// Tells the same event from another one with its key.
    pub once: Once,
    pub meaning: Meaning,
}

impl Decision for TakeIn {
    fn touches(&self, state: &State, _now: Timestamp) -> Vec<RowKey> {
        let mut rows = vec![RowKey::Record(self.once.key.clone())];
        match &self.meaning {
            Meaning::Fact => rows.push(RowKey::of_entity(&self.event.tenant, &self.event.entity)),
            Meaning::OfJob { job, .. } => rows.push(RowKey::Job(self.event.tenant.clone(), *job)),
            Meaning::OfTask(saying) => {
                rows.push(task_row(&saying.task));
                rows.extend(ingest::task_rows(state, &saying.task.tenant, &saying.task.request));
            }
        }
        rows
    }

    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::Of(&self.event.tenant)
    }

    fn log_bytes(&self) -> u64 {
        self.event.detail_len() as u64 + 300_000
    }

    fn large_field(&self) -> &'static str {
        "properties"
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        let id = self.event.id;
        let once = std::slice::from_ref(&self.once);
        match earlier_effect(state, once, draft) {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Reply::TakenIn { event: id, known: true }),
            Err(_) => return Err(Refusal::EventDiffers(id)),
        }
        let limit_millis = draft.policy().ahead_millis_max;
        let ahead_millis = self.event.timestamp.since(draft.now());
        if ahead_millis > limit_millis {
            return Err(Refusal::TooFarAhead { ahead_millis, limit_millis });
        }
        match &self.meaning {
            Meaning::Fact => self.store(draft),
            Meaning::OfJob { job, known } => {
                let Some(job) = state.job(&self.event.tenant, *job) else {
                    return Err(Refusal::NotFound { what: "job", id: self.event.entity.id.to_string() });
                };
                let agrees = match known {
                    KnownType::JobCompleted => job.head.completed_at.is_some(),
                    KnownType::JobFailureDetected => !job.failed.is_empty(),
                    _ => false,
                };
                if !agrees {
                    return Err(Refusal::Reserved { what: "eventType", id: known.as_str().to_owned() });
                }
                // The engine has recorded it, and says it once.
                return Ok(Reply::TakenIn { event: id, known: true });
            }
            Meaning::OfTask(saying) => self.say(state, saying, draft)?,
        }
        remember(state, once, &Effect::Event(id), draft);
        Ok(Reply::TakenIn { event: id, known: false })
    }
}

impl TakeIn {
    fn store(&self, draft: &mut Draft<'_, '_>) {
        let received_at = draft.now();
        draft.push_event(Event { received_at, ..self.event.clone() });
    }

    fn say(&self, state: &State, saying: &TaskSaying, draft: &mut Draft<'_, '_>) -> Result<(), Refusal> {
        let key = &saying.task;
        let Some(task) = state.task(key) else {
            if key.request.job_part().is_some() {
                return Err(Refusal::NotFound { what: "task", id: key.request.to_string() });
            }
            // Nobody asked for it to run: its events are kept, and nothing follows from them.
            saying.check_names(1, Fence::default(), &self.event)?;
            draft.record(RecordWrite::Task(Arc::new(self.announced(saying))));
            self.store(draft);
            return Ok(());
        };
        let Some(head) = task.entry.head.as_ref() else {
            saying.check_names(1, Fence::default(), &self.event)?;
            self.store(draft);
            return Ok(());
        };
        saying.check_names(head.run, head.fence, &self.event)?;
        if head.run > 1 && task.entry.stream.last_timestamp().is_some_and(|last| self.event.timestamp < last)
        {
            // Without a run of its own it would be taken for one of a former run.
            return Err(Refusal::TooLate { request: key.request.clone() });
        }
        match &saying.said {
            Said::Fact => self.store(draft),
            Said::Started { until } => self.start(saying, &task, head, *until, draft)?,
            Said::Heartbeat { until } => {
                saying.held(head)?;
                let until = until.unwrap_or_else(|| draft.now().plus(draft.policy().lease_millis));
                draft.change(key, TaskChangeKind::Renew { fence: head.fence, until });
                self.store(draft);
            }
            Said::Completed => {
                saying.held(head)?;
                draft.stands_for(self.event.clone());
                finish::decide(state, &self.finish(saying, head), draft)?;
            }
            Said::AttemptFailed { error, category } => {
                saying.held(head)?;
                self.fail_attempt(state, saying, &task, head, (error, *category), draft);
            }
            Said::TimedOut => {
                saying.held(head)?;
                let end = Final {
                    outcome: Outcome::TimedOut,
                    category: ErrorCategory::Timeout,
                    error: "timed out",
                    fence: head.fence,
                    attempts: head.attempts.saturating_add(1),
                };
                self.end(state, key, &task, &end, draft);
            }
            Said::Failed { error, category, retry_count, is_dead_letter } => {
                let is_free = head.outcome().is_none() && !is_leased(head, draft.now());
                let fence = if *is_dead_letter && is_free {
                    head.fence.next()
                } else {
                    saying.held(head)?;
                    head.fence
                };
                let is_cancelled = *category == ErrorCategory::Cancelled;
                let end = Final {
                    outcome: if is_cancelled { Outcome::Cancelled } else { Outcome::Failed },
                    category: *category,
                    error,
                    fence,
                    attempts: retry_count.unwrap_or_else(|| head.attempts.saturating_add(1)),
                };
                self.end(state, key, &task, &end, draft);
            }
        }
        Ok(())
    }

    /// A task that is known by its events alone.
    fn announced(&self, saying: &TaskSaying) -> NewTask {
        let spec = TaskSpec {
            task_id: TaskId::trusted(ALONE),
            name: saying.name.clone(),
            depends_on: Vec::new(),
            input: Json::empty_object(),
            options: TaskOptions::default(),
        };
        let TaskKey { tenant, request } = saying.task.clone();
        NewTask { tenant, app: self.event.app.clone(), request, spec: Arc::new(spec) }
    }

    fn start(
        &self,
        saying: &TaskSaying,
        task: &TaskRef<'_>,
        head: &TaskHead,
        until: Option<Timestamp>,
        draft: &mut Draft<'_, '_>,
    ) -> Result<(), Refusal> {
        let (key, now) = (&saying.task, draft.now());
        let until = until.unwrap_or_else(|| now.plus(draft.policy().lease_millis));
        let mine = |lease: &tidemill_model::Lease| saying.is_owner(&lease.owner);
        match &head.state {
            TaskState::Done(_) => return Err(Refusal::TaskEnded(key.request.clone())),
            TaskState::Parked => return Err(Refusal::Parked(key.request.clone())),
            TaskState::Leased(lease) if mine(lease) => {
                draft.change(key, TaskChangeKind::Renew { fence: head.fence, until });
            }
            TaskState::Leased(lease) if lease.until >= now => {
                return Err(Refusal::Held { request: key.request.clone(), until: lease.until });
            }
            TaskState::Leased(_) | TaskState::Queued => {
                let fence = head.fence.next();
                let owner = saying.owner();
                let takeover = head.lease().is_some();
                draft.change(key, TaskChangeKind::Acquire { fence, owner, until, at: now, takeover });
                draft.change(key, TaskChangeKind::Begin { fence });
            }
        }
        debug_assert!(task.entry.head.is_some(), "only a dispatched task is begun");
        self.store(draft);
        Ok(())
    }

    /// The report that a completion stands for. Its output is in the event.
    fn finish(&self, saying: &TaskSaying, head: &TaskHead) -> Finish {
        let report = Report::Completed {
            output: None,
            overflow: None,
            duration_millis: 0,
            exit_code: 0,
            artifacts: Vec::new(),
        };
        Finish {
            task: saying.task.clone(),
            fence: head.fence,
            worker: saying.worker.clone(),
            report,
            spent: Spent::default(),
            cause: None,
            digest: short(&self.once.body_hash),
        }
    }

    /// An attempt failed. The message's visibility is its receiver's; after the last attempt the task is given up.
    fn fail_attempt(
        &self,
        state: &State,
        saying: &TaskSaying,
        task: &TaskRef<'_>,
        head: &TaskHead,
        (error, category): (&str, ErrorCategory),
        draft: &mut Draft<'_, '_>,
    ) {
        let key = &saying.task;
        let attempts = head.attempts.saturating_add(1);
        let attempts_max = spec_of(task).options.retry.unwrap_or(draft.policy().retry).max_attempts;
        self.store(draft);
        if attempts < attempts_max {
            draft.change(key, TaskChangeKind::Release { fence: head.fence, failed: Some(category) });
            return;
        }
        let error = finish::cut(error, draft.policy().error_chars_max);
        Defeat { key, task, category, error: &error, cause: None }.note(state, draft);
        let ended = TaskHead { attempts, last_error: Some(category), ..head.clone() };
        let said = LastError::new(error, category);
        let mut subject = draft.task_subject(key, task);
        subject.last = subject.last.max(Some(self.event.timestamp));
        end_exhausted(
            key,
            task,
            &ended,
            End { fence: head.fence, why: Exhausted::Attempts, said },
            subject,
            draft,
        );
        report_failure(task, draft);
    }

    /// The run ends as the event says, whatever the category is: its type decides.
    fn end(
        &self,
        state: &State,
        key: &TaskKey,
        task: &TaskRef<'_>,
        end: &Final<'_>,
        draft: &mut Draft<'_, '_>,
    ) {
        let Final { outcome, category, error, fence, attempts } = *end;
        draft.change(key, TaskChangeKind::Finish { fence, outcome, attempts, error: Some(category) });
        draft.settle(task.entry.message);
        self.store(draft);
        let error = finish::cut(error, draft.policy().error_chars_max);
        Defeat { key, task, category, error: &error, cause: None }.note(state, draft);
        report_failure(task, draft);
    }
}

/// How a run ends.
struct Final<'e> {
    outcome: Outcome,
    category: ErrorCategory,
    error: &'e str,
    fence: Fence,
    attempts: u32,
}

fn is_leased(head: &TaskHead, now: Timestamp) -> bool {
    head.lease().is_some_and(|lease| lease.until >= now)
}

impl TaskSaying {
    /// A name is easily taken: it is good for leases that were taken by events, and never for those of workers with a fence.
    fn owner(&self) -> Owner {
        Owner { worker: Arc::from(format!("{OUTSIDE}{}", self.worker)), generation: None }
    }

    fn is_owner(&self, owner: &Owner) -> bool {
        owner.worker.strip_prefix(OUTSIDE) == Some(self.worker.as_str()) && owner.generation.is_none()
    }

    /// Only the holder of the lease says how the work goes on.
    fn held(&self, head: &TaskHead) -> Result<(), Refusal> {
        if head.outcome().is_some() {
            return Err(Refusal::TaskEnded(self.task.request.clone()));
        }
        let is_holder = head.lease().is_some_and(|lease| self.is_owner(&lease.owner));
        if is_holder {
            return Ok(());
        }
        let given = self.fence.unwrap_or_default().0;
        Err(Refusal::LeaseLost { request: self.task.request.clone(), given, newest: head.fence.0 })
    }

    /// Run and fence belong to the engine: what an event says of them must be true.
    fn check_names(&self, run: u32, fence: Fence, event: &Event) -> Result<(), Refusal> {
        for (name, is_wrong) in [
            ("properties.run", self.run.is_some_and(|given| given != run)),
            ("properties.fence", self.fence.is_some_and(|given| given != fence)),
        ] {
            if is_wrong {
                return Err(Refusal::Reserved { what: name, id: event.id.to_string() });
            }
        }
        Ok(())
    }
}

fn short(hash: &[u8; 32]) -> u64 {
    u64::from_be_bytes(*hash.first_chunk().expect("a digest has 32 bytes"))
}

impl<B: Backend> Engine<B> {
    /// Reads an event as another system sends it. Of its keys only those of the table are needed; `app` is whose it is if
    /// no key says so.
    pub fn read_sent(&self, detail: &str, app: &AppName) -> Result<Event, EngineError> {
        Event::from_sender(detail, self.inner.clock.now(), app).map_err(|bad| {
            let field = bad.field().map_or("detail", |field| field).to_owned();
            match bad {
                BadEvent::Timestamp(bad) => {
                    EngineError::invalid(field, format!("is {}; it must be epoch milliseconds", bad.value))
                }
                bad => {
                    let text = bad.to_string();
                    let problem = text.strip_prefix(&format!("{field} ")).unwrap_or(&text).to_owned();
                    EngineError::invalid(field, problem)
                }
            }
        })
    }

    /// Takes in an event of another sender with the transition that it means. `sender` is whose it is if it does not say so.
    pub async fn take_in(&self, event: Event, sender: &str) -> Result<TakenEvent, EngineError> {
        check::size("properties", event.properties.len(), EVENT_BYTES_MAX)?;
        check::value("properties", &event.properties)?;
        if let Some(beside) = &event.beside {
            for (field, part) in [("context", &beside.context), ("detail", &beside.fields)] {
                if let Some(part) = part {
                    check::value(field, part)?;
                }
            }
        }
        let meaning = meaning::of(&event, sender, self.inner.clock.now())?;
        let body_hash = hash_of(&event)?;
        if let Some(found) = self.stored_before(&event).await? {
            if hash_of(&self.rehydrate(found).await?)? != body_hash {
                return Err(Refusal::EventDiffers(event.id).into());
            }
            return Ok(TakenEvent { event: event.id, known: true });
        }
        let name = format!("{}#{}", event.timestamp, event.id);
        let key = RecordKey::idempotency(&event.tenant, ONCE, &name);
        let once = Once { key, body_hash, lasting: false };
        let event = self.shipped(event).await?;
        let reply = self.execute(Command::TakeIn(TakeIn { event, once, meaning })).await?;
        take_reply!(reply, Reply::TakenIn { event, known } => TakenEvent { event, known })
    }

    /// The event with its large fields in the blob store. A sender may have put them there itself.
    async fn shipped(&self, event: Event) -> Result<Event, EngineError> {
        if let Some(place) = overflow::reference(&event.properties)? {
            const FIELD: &str = "properties._s3Overflow";
            if place.bucket != self.inner.bucket {
                return Err(EngineError::invalid(FIELD, "names another bucket"));
            }
            let size = self.inner.backend.blob_size(event.tenant.clone(), place.key.clone()).await?;
            if size.is_none() {
                return Err(EngineError::invalid(FIELD, format!("names {}, which is not there", place.key)));
            }
            return Ok(event);
        }
        let packed = self.pack(event.clone())?;
        let prepared = self.ship(&event.tenant, event.id, packed).await?;
        Ok(Event { properties: prepared.properties, ..event })
    }

    /// The event that is stored under the same key, if there is one.
    async fn stored_before(&self, event: &Event) -> Result<Option<Event>, EngineError> {
        let path = AccessPath::Entity(event.entity.clone());
        let query = EventQuery {
            from: Some(event.timestamp),
            to: Some(event.timestamp),
            ..EventQuery::all(event.tenant.clone(), path)
        };
        let page = self.inner.backend.events(query).await?;
        Ok(page.events.into_iter().find(|found| found.id == event.id))
    }
}

/// Equal for events that say the same, in whichever order and with whichever spaces.
fn hash_of(event: &Event) -> Result<[u8; 32], EngineError> {
    let detail: serde_json::Value = serde_json::from_str(&event.to_detail())
        .map_err(|error| EngineError::invalid("detail", format!("cannot be read: {error}")))?;
    Ok(digest::of(&[sorted(detail).to_string().as_bytes()]))
}

fn sorted(value: serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(fields) => {
            let fields: std::collections::BTreeMap<_, _> = fields.into_iter().collect();
            fields.into_iter().map(|(name, value)| (name, sorted(value))).collect()
        }
        serde_json::Value::Array(values) => values.into_iter().map(sorted).collect(),
        value => value,
    }
}
