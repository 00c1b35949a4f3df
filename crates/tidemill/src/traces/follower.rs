//! Follows the log and makes spans of what it tells.

use std::time::Duration;

use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::clock::{Clock as _, SystemClock};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::Engine;
use tidemill_engine::metrics::SpanMeter;
use tidemill_engine::reads::Reads as _;
use tidemill_engine::warn_seldom;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{Entity, Event, JobId, KnownType, TenantId, Timestamp, TraceContext};
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;

use super::span::Span;
use super::tracker::{Facts, Open, Tracker, ids_of, key_of, outcome_of};

/// Events that are read at a time.
const PAGE: usize = 256;
/// How long to wait before asking a store again that could not answer.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Follower<B> {
    engine: Engine<B>,
    spans: Sender<Span>,
    meter: SpanMeter,
    tracker: Tracker,
    /// The number of the last event that was looked at.
    after: u64,
    /// When this life began.
    began: Timestamp,
    /// The job whose end was told last, and the version it had.
    told: Option<(JobId, u64)>,
    /// The job whose attempt ended last, and when: the event of its end may bear an earlier time.
    last: Option<(JobId, Timestamp)>,
}

impl<B: Backend> Follower<B> {
    pub(super) fn new(engine: Engine<B>, spans: Sender<Span>, meter: SpanMeter) -> Self {
        let after = engine.backend().newest();
        let began = SystemClock::start().now();
        Self { engine, spans, meter, tracker: Tracker::default(), after, began, told: None, last: None }
    }

    /// Until it is stopped; then up to what has happened.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            let newest = self.engine.backend().newest();
            let events = match self.engine.backend().follow(self.after, PAGE).await {
                Ok(events) => events,
                Err(fault @ (Fault::Stopped(_) | Fault::Damaged(_))) => {
                    warn_seldom!(fault, "there are no more traces");
                    return;
                }
                Err(fault) => {
                    warn_seldom!(fault, "events could not be read for traces");
                    tokio::time::sleep(PATIENCE).await;
                    continue;
                }
            };
            if events.is_empty() {
                // What is left out has expired.
                self.after = self.after.max(newest);
                if *stopped.borrow() {
                    return;
                }
                tokio::select! {
                    () = self.engine.backend().committed(self.after) => {}
                    // Without a handle it is over too.
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
                continue;
            }
            for (number, event) in events {
                self.after = number;
                self.look_at(&event).await;
            }
        }
    }

    async fn look_at(&mut self, event: &Event) {
        let Some(kind) = KnownType::from_name(event.event_type.as_str()) else { return };
        match kind {
            KnownType::JobCompleted | KnownType::JobCancelled | KnownType::JobFailureDetected => {
                if let Some(job) = job_of(event) {
                    self.job(kind, job, event).await;
                }
            }
            KnownType::TaskPending
            | KnownType::TaskProcessingStarted
            | KnownType::TaskProcessingFailed
            | KnownType::TaskCompleted
            | KnownType::TaskFailed
            | KnownType::TaskTimeout => {
                // An event that cannot be read tells nothing.
                if let Ok(facts) = event.properties.read::<Facts>() {
                    self.task(kind, event, &facts).await;
                }
            }
            _ => {}
        }
    }

    async fn task(&mut self, kind: KnownType, event: &Event, facts: &Facts) {
        match kind {
            KnownType::TaskPending => return self.tracker.pending(event, facts),
            KnownType::TaskProcessingStarted => {
                let lost = self.tracker.started(event, facts);
                return self.push_named(lost, event, facts).await;
            }
            _ => {}
        }
        let key = key_of(event, facts);
        let found = if self.tracker.knows(&key) { None } else { self.begun(event, facts).await };
        let ended = self.tracker.ended(kind, event, facts, found);
        self.last = facts.job_id.map(|job| (job, event.timestamp));
        self.push_named(ended, event, facts).await;
        if kind == KnownType::TaskProcessingFailed {
            return;
        }
        let track = self.tracker.over(&key).unwrap_or_default();
        match facts.job_id {
            Some(job) if self.tracker.is_failing(&event.tenant, job) => {
                self.job(KnownType::JobFailureDetected, job, event).await;
            }
            Some(_) => {}
            None => self.alone(kind, event, facts, track.name, track.pending_at).await,
        }
    }

    /// The span of a task without a job, whose run is over.
    async fn alone(
        &mut self,
        kind: KnownType,
        event: &Event,
        facts: &Facts,
        name: Option<String>,
        pending_at: Option<Timestamp>,
    ) {
        let key = key_of(event, facts);
        let pending_at = match pending_at {
            Some(at) => at,
            None => match self.newest(KnownType::TaskPending, event, facts).await {
                Some(pending) => pending.timestamp,
                None => return,
            },
        };
        let name = match name {
            Some(name) => name,
            None => self.name_of(&key).await,
        };
        let root = TraceContext::of_task(&key.tenant, &key.request);
        // Its first run has ended, and its span was sent then.
        if facts.run > 1 {
            self.tracker.note_sent_root(root);
        }
        let (context, parent) = self.tracker.root(root, event);
        let outcome = outcome_of(kind, facts);
        let error = (kind != KnownType::TaskCompleted).then(|| outcome.to_owned());
        let attributes = ids_of(&key.tenant, None);
        let mut span =
            Span { context, parent, name, start: pending_at, end: event.timestamp, attributes, error };
        span.add_attribute("tidemill.request_id", Some(key.request.as_str()));
        span.add_attribute("tidemill.status", Some(outcome));
        self.push(span);
    }

    /// The span of a job, if it is at rest.
    async fn job(&mut self, kind: KnownType, job: JobId, event: &Event) {
        let found = self.engine.backend().job(event.tenant.clone(), job).await;
        let Ok(Some(snapshot)) = found else { return self.tracker.rests(&event.tenant, job) };
        if kind == KnownType::JobFailureDetected && !snapshot.head.is_at_rest() {
            return self.tracker.fails(&event.tenant, job);
        }
        self.tracker.rests(&event.tenant, job);
        // One commit has the end of a task and the failure of its job.
        let end = Some((job, snapshot.head.version));
        if std::mem::replace(&mut self.told, end) == end {
            return;
        }
        let status = match kind {
            KnownType::JobCompleted => "completed",
            KnownType::JobCancelled => "cancelled",
            _ => "failed",
        };
        let head = snapshot.head;
        let last = self.last.filter(|(other, _)| *other == job).map(|(_, at)| at);
        let root = TraceContext::of_job(job);
        if head.created_at < self.began
            && !self.tracker.knows_root(root)
            && self.ended_before(&head.tenant, job).await
        {
            self.tracker.note_sent_root(root);
        }
        let (context, parent) = self.tracker.root(root, event);
        let mut span = Span {
            context,
            parent,
            name: head.name.as_deref().unwrap_or("job").to_owned(),
            start: head.created_at,
            end: last.map_or(event.timestamp, |last| last.max(event.timestamp)),
            attributes: ids_of(&event.tenant, Some(job)),
            error: (status != "completed").then(|| format!("the job is {status}")),
        };
        span.add_attribute("tidemill.request_id", Some(head.request.as_str()));
        span.add_attribute("tidemill.status", Some(status));
        span.add_attribute("tidemill.tasks", Some(head.counts.total()));
        self.push(span);
    }

    /// Whether a former life saw the job come to an end. It goes on since somebody resumed it.
    async fn ended_before(&self, tenant: &TenantId, job: JobId) -> bool {
        for kind in [KnownType::JobFailureDetected, KnownType::JobCancelled, KnownType::JobCompleted] {
            let path = AccessPath::TypeEntity(kind.event_type(), Entity::job(job));
            let query =
                EventQuery { to: Some(self.began), limit: 1, ..EventQuery::all(tenant.clone(), path) };
            let found = self.engine.backend().events(query).await;
            if found.is_ok_and(|found| !found.events.is_empty()) {
                return true;
            }
        }
        false
    }

    /// The beginning of the attempt that an event ends, from the log.
    async fn begun(&self, event: &Event, facts: &Facts) -> Option<Open> {
        let started = self.newest(KnownType::TaskProcessingStarted, event, facts).await?;
        let open = Open::of(&started, &started.properties.read::<Facts>().ok()?)?;
        (Some(open.fence) == facts.fence).then_some(open)
    }

    /// The newest event of this type of the same task, no later than the given one.
    async fn newest(&self, kind: KnownType, event: &Event, facts: &Facts) -> Option<Event> {
        let path = AccessPath::TypeEntity(kind.event_type(), Entity::task(&facts.request_id));
        let query = EventQuery {
            order: Order::Descending,
            limit: 1,
            to: Some(event.timestamp),
            ..EventQuery::all(event.tenant.clone(), path)
        };
        let found = self.engine.backend().events(query).await;
        found.inspect_err(incomplete).ok()?.events.into_iter().next()
    }

    async fn name_of(&self, key: &TaskKey) -> String {
        let found = self.engine.backend().task(key.clone()).await;
        let found = found.inspect_err(incomplete).ok().flatten();
        found.map_or_else(|| "task".to_owned(), |task| task.spec.name.to_string())
    }

    async fn push_named(&mut self, span: Option<Span>, event: &Event, facts: &Facts) {
        let Some(mut span) = span else { return };
        if span.name.is_empty() {
            span.name = self.name_of(&key_of(event, facts)).await;
        }
        self.push(span);
    }

    fn push(&self, span: Span) {
        if self.spans.try_send(span).is_err() {
            self.meter.dropped(1);
        }
    }
}

fn job_of(event: &Event) -> Option<JobId> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct OfJob {
        job_id: JobId,
    }
    event.properties.read::<OfJob>().ok().map(|found| found.job_id)
}

/// A span lacks something that could not be looked up. Readers of traces see the rest.
fn incomplete(fault: &Fault) {
    warn_seldom!(fault, "a trace is told without all that belongs to it");
}
