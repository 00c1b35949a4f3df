//! What is known of tasks between the events of an attempt.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Deserialize;
use serde_json::Value;
use tidemill_engine::commit::TaskKey;
use tidemill_model::{Event, Fence, JobId, KnownType, RequestId, TaskId, TenantId, Timestamp, TraceContext};

use super::span::Span;

/// Tasks whose events are remembered. Beyond them the log is asked when an attempt ends.
const TASKS_MAX: usize = 100_000;
/// Jobs that failed and go on, and traces whose first span was sent.
const REMEMBERED_MAX: usize = 10_000;

/// What the events of tasks say, as far as a span tells it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Facts {
    pub(super) request_id: RequestId,
    pub(super) job_id: Option<JobId>,
    task_id: Option<TaskId>,
    #[serde(default = "one")]
    pub(super) run: u32,
    name: Option<String>,
    worker_id: Option<String>,
    process_id: Option<u32>,
    pub(super) fence: Option<Fence>,
    attempt_number: Option<u32>,
    #[serde(default = "yes")]
    counted: bool,
    #[serde(default)]
    parked: bool,
    retry_count: Option<u32>,
    error: Option<String>,
    error_category: Option<String>,
    duration_ms: Option<u64>,
    elapsed_ms: Option<u64>,
    timeout_ms: Option<u64>,
    exit_code: Option<i64>,
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// An attempt that began and has not ended.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) fence: Fence,
    start: Timestamp,
    worker: Option<String>,
    process: Option<u32>,
}

impl Open {
    /// The attempt that a `Task Processing Started` is about.
    pub(super) fn of(event: &Event, facts: &Facts) -> Option<Self> {
        Some(Self {
            fence: facts.fence?,
            start: event.timestamp,
            worker: facts.worker_id.clone(),
            process: facts.process_id,
        })
    }
}

/// A task whose run goes on.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    pub(super) name: Option<String>,
    /// When the run was dispatched.
    pub(super) pending_at: Option<Timestamp>,
    run: u32,
    /// The number of the next attempt to end, if it is known.
    attempt: Option<u32>,
    open: Option<Open>,
    /// The attempt that ended last.
    ended: Option<Fence>,
}

#[derive(Debug, Default)]
pub(super) struct Tracker {
    tasks: HashMap<TaskKey, Track>,
    failing: HashSet<(TenantId, JobId)>,
    rooted: Remembered,
}

impl Tracker {
    /// A run was dispatched.
    pub(super) fn pending(&mut self, event: &Event, facts: &Facts) {
        let track = Track {
            name: facts.name.clone(),
            pending_at: Some(event.timestamp),
            run: facts.run,
            attempt: Some(1),
            ..Track::default()
        };
        self.insert(key_of(event, facts), track);
    }

    /// An attempt began. If another one had not ended, it is lost, and its span is the answer.
    pub(super) fn started(&mut self, event: &Event, facts: &Facts) -> Option<Span> {
        let open = Open::of(event, facts)?;
        let key = key_of(event, facts);
        if let Some(track) = self.tasks.get_mut(&key) {
            let before = track.open.replace(open.clone()).filter(|before| before.fence != open.fence)?;
            let track = track.clone();
            let mut span = span_of(&key, facts, &before, &track, event.timestamp);
            span.add_attribute("tidemill.outcome", Some("lost"));
            span.error = Some("the worker fell silent".to_owned());
            return Some(span);
        }
        // The first fence is that of the first attempt; of others the number is not known.
        let attempt = (open.fence == Fence(1)).then_some(1);
        self.insert(key, Track { run: facts.run, attempt, open: Some(open), ..Track::default() });
        None
    }

    /// Whether an attempt of the task is known to be under way.
    pub(super) fn knows(&self, key: &TaskKey) -> bool {
        self.tasks.get(key).is_some_and(|track| track.open.is_some())
    }

    /// What is known of a task whose run ends with this event.
    pub(super) fn over(&mut self, key: &TaskKey) -> Option<Track> {
        self.tasks.remove(key)
    }

    /// The span of the attempt that this event ends. `found` is its beginning if it is not known here.
    pub(super) fn ended(
        &mut self,
        kind: KnownType,
        event: &Event,
        facts: &Facts,
        found: Option<Open>,
    ) -> Option<Span> {
        let key = key_of(event, facts);
        if !self.tasks.contains_key(&key) {
            self.insert(key.clone(), Track { run: facts.run, ..Track::default() });
        }
        let mut untracked = Track { run: facts.run, ..Track::default() };
        let track = self.tasks.get_mut(&key).unwrap_or(&mut untracked);
        // The last attempt's own event may be followed by one that ends the task under the same fence.
        let found = found.filter(|found| track.ended != Some(found.fence));
        let open = track.open.take().or(found)?;
        let known = track.clone();
        track.ended = Some(open.fence);
        if kind == KnownType::TaskProcessingFailed && facts.counted {
            track.attempt = facts.attempt_number.map(|number| number + 1);
        }
        let track = known;
        let mut span = span_of(&key, facts, &open, &track, event.timestamp);
        let took = facts.duration_ms.or(facts.elapsed_ms);
        // A short child's beginning comes with its end.
        if let Some(start) = took.and_then(|took| event.timestamp.millis().checked_sub(took)) {
            span.start = span.start.min(Timestamp::clamped(start));
        }
        span.add_attribute("tidemill.outcome", Some(outcome_of(kind, facts)));
        span.add_attribute("process.exit.code", facts.exit_code);
        span.add_attribute("error.type", class_of(kind, facts));
        span.error = match kind {
            KnownType::TaskCompleted => None,
            KnownType::TaskTimeout => {
                Some(format!("timed out after {} ms", facts.timeout_ms.unwrap_or_default()))
            }
            _ => Some(facts.error.clone().unwrap_or_default()),
        };
        Some(span)
    }

    /// A job failed and goes on.
    pub(super) fn is_failing(&self, tenant: &TenantId, job: JobId) -> bool {
        !self.failing.is_empty() && self.failing.contains(&(tenant.clone(), job))
    }

    pub(super) fn fails(&mut self, tenant: &TenantId, job: JobId) {
        if self.failing.len() < REMEMBERED_MAX {
            self.failing.insert((tenant.clone(), job));
        }
    }

    pub(super) fn rests(&mut self, tenant: &TenantId, job: JobId) {
        self.failing.remove(&(tenant.clone(), job));
    }

    /// The place of a span that stands for a whole trace: the first of it, or below it when that was sent already.
    pub(super) fn root(&mut self, root: TraceContext, event: &Event) -> (TraceContext, Option<TraceContext>) {
        if self.rooted.insert(root) { (root, None) } else { (root.other(event.id.as_u128()), Some(root)) }
    }

    pub(super) fn knows_root(&self, root: TraceContext) -> bool {
        self.rooted.set.contains(&root)
    }

    /// The first span of a trace was told by a former life.
    pub(super) fn note_sent_root(&mut self, root: TraceContext) {
        self.rooted.insert(root);
    }

    fn insert(&mut self, key: TaskKey, track: Track) {
        if self.tasks.len() < TASKS_MAX || self.tasks.contains_key(&key) {
            self.tasks.insert(key, track);
        }
    }
}

pub(super) fn key_of(event: &Event, facts: &Facts) -> TaskKey {
    TaskKey { tenant: event.tenant.clone(), request: facts.request_id.clone() }
}

fn span_of(key: &TaskKey, facts: &Facts, open: &Open, track: &Track, end: Timestamp) -> Span {
    let TaskKey { tenant, request } = key;
    let mut span = Span {
        context: TraceContext::of_attempt(tenant, facts.job_id, request, open.fence),
        parent: Some(TraceContext::root(tenant, facts.job_id, request)),
        name: track.name.clone().unwrap_or_default(),
        start: open.start,
        end,
        attributes: ids_of(tenant, facts.job_id),
        error: None,
    };
    span.add_attribute("tidemill.request_id", Some(request.as_str()));
    span.add_attribute("tidemill.task_id", facts.task_id.as_ref().map(TaskId::as_str));
    span.add_attribute("tidemill.run", Some(track.run));
    span.add_attribute("tidemill.attempt", facts.attempt_number.or(facts.retry_count).or(track.attempt));
    span.add_attribute("tidemill.fence", Some(open.fence.0));
    span.add_attribute("tidemill.worker_id", open.worker.clone());
    span.add_attribute("process.pid", open.process);
    span
}

/// The attributes that every span has.
pub(super) fn ids_of(tenant: &TenantId, job: Option<JobId>) -> Vec<(&'static str, Value)> {
    let mut ids = vec![("tidemill.tenant", Value::from(tenant.as_str()))];
    ids.extend(job.map(|job| ("tidemill.job_id", Value::from(job.to_string()))));
    ids
}

pub(super) fn outcome_of(kind: KnownType, facts: &Facts) -> &'static str {
    match kind {
        KnownType::TaskCompleted => "completed",
        KnownType::TaskTimeout => "timed_out",
        KnownType::TaskProcessingFailed if facts.parked => "parked",
        KnownType::TaskProcessingFailed if !facts.counted => "given_back",
        // Whether another attempt follows is not known yet.
        KnownType::TaskProcessingFailed => "failed",
        _ if facts.error_category.as_deref() == Some("cancelled") => "cancelled",
        _ => "failed",
    }
}

fn class_of(kind: KnownType, facts: &Facts) -> Option<String> {
    match kind {
        KnownType::TaskCompleted => None,
        KnownType::TaskTimeout => Some("timeout".to_owned()),
        _ => facts.error_category.clone(),
    }
}

/// A set that forgets its oldest.
#[derive(Debug, Default)]
struct Remembered {
    set: HashSet<TraceContext>,
    order: VecDeque<TraceContext>,
}

impl Remembered {
    /// Whether it was not there.
    fn insert(&mut self, context: TraceContext) -> bool {
        if !self.set.insert(context) {
            return false;
        }
        self.order.push_back(context);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidemill_model::{AppName, Context, Entity, EventId, Json};

    use super::*;

    fn event(kind: KnownType, at: u64, properties: &Value) -> (Event, Facts) {
        let mut all = json!({ "requestId": "r", "run": 1 });
        all.as_object_mut().unwrap().extend(properties.as_object().unwrap().clone());
        let event = Event {
            id: EventId::from_u128(u128::from(at)),
            tenant: TenantId::trusted("acme"),
            app: AppName::trusted("app"),
            entity: Entity::task(&RequestId::trusted("r")),
            event_type: kind.event_type(),
            timestamp: Timestamp::clamped(1_700_000_000_000 + at),
            received_at: Timestamp::clamped(1_700_000_000_000 + at),
            context: Context { environment: "test".into(), origin: "sqs-worker".into(), worker_id: None },
            properties: Json::of(&all),
            ttl: None,
            beside: None,
        };
        let facts = event.properties.read().unwrap();
        (event, facts)
    }

    fn told<'a>(span: &'a Span, name: &str) -> &'a Value {
        span.attributes.iter().find(|(own, _)| *own == name).map_or(&Value::Null, |(_, value)| value)
    }

    fn started(tracker: &mut Tracker, at: u64, fence: u64) -> Option<Span> {
        let properties = json!({ "fence": fence, "workerId": "w", "processId": 7 });
        let (event, facts) = event(KnownType::TaskProcessingStarted, at, &properties);
        tracker.started(&event, &facts)
    }

    fn ended(tracker: &mut Tracker, kind: KnownType, at: u64, properties: &Value) -> Option<Span> {
        let (event, facts) = event(kind, at, properties);
        tracker.ended(kind, &event, &facts, None)
    }

    #[test]
    fn an_attempt_whose_worker_fell_silent_ends_with_the_next_one() {
        let mut tracker = Tracker::default();
        let (pending, facts) = event(KnownType::TaskPending, 0, &json!({ "name": "work" }));
        tracker.pending(&pending, &facts);
        assert_eq!(started(&mut tracker, 10, 1), None);
        assert_eq!(started(&mut tracker, 11, 1), None, "the same one is no other");
        let lost = started(&mut tracker, 500, 2).unwrap();
        assert_eq!(
            (told(&lost, "tidemill.outcome"), told(&lost, "tidemill.fence")),
            (&json!("lost"), &json!(1))
        );
        assert_eq!((lost.name.as_str(), lost.end.since(lost.start)), ("work", 489));
        assert!(lost.error.is_some());
        let done = json!({ "fence": 2, "durationMs": 100, "exitCode": 0 });
        let span = ended(&mut tracker, KnownType::TaskCompleted, 600, &done).unwrap();
        assert_eq!(
            (span.error.as_ref(), told(&span, "tidemill.attempt")),
            (None, &json!(1)),
            "no attempt had ended"
        );
        assert_ne!(span.context, lost.context);
        assert_eq!(span.parent, lost.parent);
    }

    #[test]
    fn the_end_of_a_task_is_no_second_end_of_its_last_attempt() {
        let mut tracker = Tracker::default();
        started(&mut tracker, 0, 1);
        let failed = json!({ "fence": 1, "attemptNumber": 1, "error": "no", "errorCategory": "network" });
        let span = ended(&mut tracker, KnownType::TaskProcessingFailed, 5, &failed).unwrap();
        assert_eq!(told(&span, "error.type"), "network");
        let over = json!({ "fence": 1, "retryCount": 1, "error": "no", "errorCategory": "network", "source": "dlq" });
        let (event, facts) = event(KnownType::TaskFailed, 5, &over);
        // The log still has the beginning.
        let found = Open { fence: Fence(1), start: event.timestamp, worker: None, process: None };
        assert_eq!(tracker.ended(KnownType::TaskFailed, &event, &facts, Some(found)), None);
    }

    #[test]
    fn what_began_before_is_told_from_the_log() {
        let mut tracker = Tracker::default();
        let (event, facts) =
            event(KnownType::TaskTimeout, 900, &json!({ "fence": 4, "timeoutMs": 50, "elapsedMs": 60 }));
        assert!(!tracker.knows(&key_of(&event, &facts)));
        assert_eq!(
            tracker.ended(KnownType::TaskTimeout, &event, &facts, None),
            None,
            "nothing is known of it"
        );
        let found = Open {
            fence: Fence(4),
            start: Timestamp::clamped(1_700_000_000_899),
            worker: None,
            process: None,
        };
        let span = tracker.ended(KnownType::TaskTimeout, &event, &facts, Some(found)).unwrap();
        assert_eq!(span.end.since(span.start), 60, "it says how long it took");
        assert_eq!(
            (told(&span, "tidemill.outcome"), told(&span, "tidemill.attempt")),
            (&json!("timed_out"), &Value::Null)
        );
        assert_eq!(span.error.as_deref(), Some("timed out after 50 ms"));
    }

    #[test]
    fn the_first_span_of_a_trace_is_told_once() {
        let mut tracker = Tracker::default();
        let root = TraceContext::of_job(JobId::from_u128(9));
        let (first, _) = event(KnownType::TaskCompleted, 1, &json!({}));
        let (second, _) = event(KnownType::TaskCompleted, 2, &json!({}));
        assert_eq!(tracker.root(root, &first), (root, None));
        let (below, parent) = tracker.root(root, &second);
        assert_eq!((below.trace_id(), parent), (root.trace_id(), Some(root)));
        assert_ne!(below.span_id(), root.span_id());
    }
}
