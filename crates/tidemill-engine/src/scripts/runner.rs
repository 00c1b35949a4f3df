//! Running what is queued: one execution at a time in each place, its end in one commit with all it asked for.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::EventQuery;
use tidemill_model::{Event, Json};

use crate::engine::EngineError;
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{Command, EndExecution, ExecutionEnd, ScriptEffect};
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::reply::{Refusal, Reply};
use crate::scripts::execution::{ExecutionKey, ExecutionStatus, RunError, ScriptExecution, SourceEvent};
use crate::scripts::host::{RunCall, RunDone, RunFailed, ScriptHost, ScriptRun};
use crate::scripts::{Place, Scripts, ScriptsConfig};
use crate::warn_seldom;

/// The largest result that is kept, as JSON.
pub const RESULT_BYTES_MAX: usize = 64 * 1_024;
/// How long to wait before asking a store again that could not answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an event may take to arrive where it is looked up, on a backend that gets events late. An event that is
/// not found afterwards is gone.
const LATE_MILLIS: u64 = 3_600_000;
/// What is kept of a stack, and of a line that a script wrote.
const STACK_CHARS_MAX: usize = 8 * 1_024;
const LOG_LINE_CHARS_MAX: usize = 8 * 1_024;
/// The longest delay before another try: an hour and a bit.
const DELAY_POWER_MAX: u32 = 12;

#[derive(Serialize, Deserialize)]
struct LogLine {
    level: String,
    text: String,
}

/// What is known of an event when its script is to run.
struct Found {
    /// Its properties with all that was moved out of them.
    data: Json,
    /// Its properties as they are stored, if the execution does not have them.
    stored: Option<Json>,
}

impl<B: Backend, H: ScriptHost> Scripts<B, H> {
    /// Runs an execution that is due. Tells whether it is to be tried again.
    pub(super) async fn run_one(&self, key: &ExecutionKey, place: &mut Place<'_, B, H>) -> bool {
        let record = loop {
            match self.engine.backend().record(RecordKey::execution(&key.tenant, key.id)).await {
                Ok(record) => break record,
                Err(fault) => {
                    if !self.bear(&fault.into()).await {
                        return false;
                    }
                }
            }
        };
        let Some(RecordValue::Execution(execution)) = record.map(|record| record.value) else { return false };
        if !execution.status.is_pending() {
            return false;
        }
        let mut stored = None;
        let (ended, took) = loop {
            match self.attempt(key, &execution, &mut stored).await {
                Ok(ended) => break ended,
                Err(error) => {
                    if !self.bear(&error).await {
                        return false;
                    }
                }
            }
        };
        place.free();
        let Some((class, status)) = self.end(key, execution.attempts + 1, ended, took, stored).await else {
            return false;
        };
        let board = self.engine.script_board();
        board.counters.ended(took, class.as_deref(), !status.is_pending());
        let told = board.alerts().ended(&key.tenant, class.is_some(), self.engine.now());
        if let Some(told) = told {
            self.engine.record_alert(told).await;
        }
        status.is_pending()
    }

    /// Waits a while if the store may work again, and tells whether it may.
    async fn bear(&self, error: &EngineError) -> bool {
        if matches!(error, EngineError::Fault(Fault::Stopped(_) | Fault::Newer(_)))
            || self.shared.stop.is_set()
        {
            return false;
        }
        warn_seldom!(error, "an execution of a script waits for the store");
        self.host.sleep(PATIENCE).await;
        true
    }

    /// One run. An error here is the store's, not the script's.
    async fn attempt(
        &self,
        key: &ExecutionKey,
        execution: &ScriptExecution,
        stored: &mut Option<Json>,
    ) -> Result<(Result<(RunDone, Vec<ScriptEffect>), RunFailed>, Duration), EngineError> {
        let failed = |failed: RunFailed| {
            let took = failed.took;
            (Err(failed), took)
        };
        let Some(script) = self.engine.script(&key.tenant, &execution.script_id, None).await? else {
            return Ok(failed(RunFailed::validation("script deleted")));
        };
        let found = match self.event_of(key, &execution.event).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(failed(RunFailed::validation("event expired"))),
            Err(EngineError::BlobMissing { key }) => {
                let message = format!("event expired: blob {key} is missing");
                return Ok(failed(RunFailed::validation(message)));
            }
            Err(error) => return Err(error),
        };
        stored.clone_from(&found.stored);
        if let Some(problem) = found.data.problem() {
            return Ok(failed(RunFailed::validation(format!("the event cannot be read: it {problem}"))));
        }
        let run = ScriptRun {
            tenant: key.tenant.clone(),
            execution: key.id,
            script: Arc::new(script),
            event_id: execution.event.id,
            event_type: execution.event.event_type.clone(),
            timestamp: execution.event.timestamp,
            data: found.data,
            now: self.engine.now(),
            result_bytes_max: RESULT_BYTES_MAX,
        };
        let mut done = match self.host.run(run).await {
            Ok(done) => done,
            Err(error) => return Ok(failed(error)),
        };
        let took = done.took;
        let size = done.result.len();
        let problem = if size > RESULT_BYTES_MAX {
            Some(format!("has {size} bytes; the limit is {RESULT_BYTES_MAX}"))
        } else {
            done.result.problem().map(|problem| problem.to_string())
        };
        if let Some(problem) = problem {
            let message = format!("the result {problem}");
            let error = RunFailed {
                class: Arc::from("output"),
                is_transient: true,
                ..RunFailed::validation(message)
            };
            return Ok((Err(RunFailed { logs: done.logs, took, ..error }), took));
        }
        let calls = std::mem::take(&mut done.calls);
        if let Some(error) = self.over_rate(key, &calls) {
            return Ok((Err(RunFailed { logs: done.logs, took, ..error }), took));
        }
        match self.engine.script_effects(key, execution, calls).await {
            Ok(effects) => Ok((Ok((done, effects)), took)),
            Err(
                error @ (EngineError::Fault(_) | EngineError::BlobMissing { .. } | EngineError::History(_)),
            ) => Err(error),
            // What it asked for is wrong, and will be the next time.
            Err(error) => {
                let logs = done.logs;
                Ok((Err(RunFailed { logs, took, ..RunFailed::validation(error.to_string()) }), took))
            }
        }
    }

    /// What is said when a tenant's scripts publish too much.
    fn over_rate(&self, key: &ExecutionKey, calls: &[RunCall]) -> Option<RunFailed> {
        let events = calls.iter().filter(|call| matches!(call, RunCall::Publish { .. })).count();
        if events == 0 {
            return None;
        }
        let mut published = self.shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        if published.take(&key.tenant, events, self.engine.now()) {
            return None;
        }
        let message = format!(
            "the scripts of this tenant publish more than {} events per second; nothing was published",
            published.per_second()
        );
        Some(RunFailed {
            class: Arc::from("rate_limit"),
            is_transient: true,
            ..RunFailed::validation(message)
        })
    }

    /// The event of an execution; `None` when it is gone.
    async fn event_of(&self, key: &ExecutionKey, source: &SourceEvent) -> Result<Option<Found>, EngineError> {
        if let Some(data) = &source.data {
            let event = self.event_with(key, source, data.clone());
            let whole = self.engine.rehydrate(event).await?;
            return Ok(Some(Found { data: whole.properties, stored: None }));
        }
        let path = AccessPath::Entity(source.entity());
        let (from, to) = (Some(source.timestamp), Some(source.timestamp));
        let mut query = EventQuery { from, to, ..EventQuery::all(key.tenant.clone(), path) };
        loop {
            let page = self.engine.backend().events(query.clone()).await?;
            if let Some(event) = page.events.into_iter().find(|event| event.id == source.id) {
                let stored = event.properties.clone();
                let whole = self.engine.rehydrate(event).await?;
                return Ok(Some(Found { data: whole.properties, stored: Some(stored) }));
            }
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        let age = self.engine.now().since(source.timestamp);
        if self.engine.backend().events_lag() && age < LATE_MILLIS {
            let late = format!("event {} cannot be read yet", source.id);
            return Err(Fault::Unavailable(late).into());
        }
        Ok(None)
    }

    /// An event, as far as it is needed to put its large fields back.
    fn event_with(&self, key: &ExecutionKey, source: &SourceEvent, properties: Json) -> Event {
        Event {
            id: source.id,
            tenant: key.tenant.clone(),
            app: source.app_name.clone(),
            entity: source.entity(),
            event_type: source.event_type.clone(),
            timestamp: source.timestamp,
            received_at: source.timestamp,
            context: self.engine.script_context(0),
            properties,
            ttl: None,
            beside: None,
        }
    }

    /// Records how a run ended. Gives the class of its error, if it has one, and where the execution stands then.
    async fn end(
        &self,
        key: &ExecutionKey,
        attempt: u32,
        ended: Result<(RunDone, Vec<ScriptEffect>), RunFailed>,
        took: Duration,
        stored: Option<Json>,
    ) -> Option<(Option<Arc<str>>, ExecutionStatus)> {
        let (logs, mut end, mut class) = match ended {
            Ok((done, effects)) => {
                (done.logs, ExecutionEnd::Succeeded { result: Some(done.result), effects }, None)
            }
            Err(failed) => {
                let class = Arc::clone(&failed.class);
                (failed.logs.clone(), self.failure(failed, attempt, stored.clone()), Some(class))
            }
        };
        let logs = logs.map(|logs| self.clean_logs(&logs));
        let duration_millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        loop {
            let command = EndExecution {
                tenant: key.tenant.clone(),
                execution: key.id,
                attempt,
                duration_millis,
                logs: logs.clone(),
                end: end.clone(),
            };
            match self.engine.execute(Command::EndExecution(command)).await {
                Ok(Reply::ExecutionEnded { status, .. }) => {
                    if status == ExecutionStatus::DeadLetter && class.is_none() {
                        // The decision refused what it asked for: too many scripts stand before it.
                        class = Some(Arc::from("validation"));
                    }
                    return Some((class, status));
                }
                Ok(_) | Err(EngineError::Refused(Refusal::NotUnderWay { .. })) => return None,
                Err(error @ EngineError::Refused(_)) if class.is_none() => {
                    let mut failed = RunFailed::validation(error.to_string());
                    if let EngineError::Refused(Refusal::TenantFull { .. }) = error {
                        // There may be room the next time.
                        (failed.class, failed.is_transient) = (Arc::from("rate-limit"), true);
                    }
                    class = Some(Arc::clone(&failed.class));
                    end = self.failure(failed, attempt, stored.clone());
                }
                Err(error) => {
                    if !self.bear(&error).await {
                        return None;
                    }
                }
            }
        }
    }

    fn failure(&self, failed: RunFailed, attempt: u32, data: Option<Json>) -> ExecutionEnd {
        let ScriptsConfig { max_retries, .. } = self.config;
        let may_retry = failed.is_transient && attempt <= max_retries;
        let retry_in_millis = may_retry.then(|| 1_000 << attempt.min(DELAY_POWER_MAX));
        let error = RunError {
            class: failed.class,
            message: Arc::from(self.engine.clean(&failed.message)),
            stack: Arc::from(self.engine.clean_within(&failed.stack, STACK_CHARS_MAX)),
        };
        ExecutionEnd::Failed { error, retry_in_millis, data }
    }

    /// What a script wrote, without what must not be seen.
    fn clean_logs(&self, logs: &Json) -> Json {
        let Ok(mut lines) = logs.read::<Vec<LogLine>>() else { return Json::trusted("[]") };
        for line in &mut lines {
            line.text = self.engine.clean_within(&line.text, LOG_LINE_CHARS_MAX);
        }
        Json::of(&lines)
    }
}
