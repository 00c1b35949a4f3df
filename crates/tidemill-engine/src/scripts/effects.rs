//! What a script asked for, made ready to be committed with its success: the same checks as for anybody else.

use std::sync::Arc;

use tidemill_model::workflow::{self, ErrorCode, ErrorScope};
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, Event, JobFile, Json, ScriptId, TenantId, Timestamp,
};

use crate::engine::limits::{FILE_TASKS_BYTES_MAX, LIST_MAX};
use crate::engine::{Engine, EngineError, EventBatch, NewEvent, Rights};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::{Alert, Command, Prepared, Publish, PublishedEvent, ScriptEffect};
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{ALERT, RecordKind, RecordValue};
use crate::scripts::execution::{ExecutionKey, ScriptExecution};
use crate::scripts::{RunCall, SCRIPT_ORIGIN, ScriptBoard, Telling};
use crate::triage::changes::cut_tokens;
use crate::triage::{ErrorMark, WorkflowItem};
use crate::warn_seldom;
use crate::work::submitting::submit_job::check_job;

/// The kind of entity that events of scripts are about, unless they say otherwise.
const SCRIPT_ENTITY: &str = "SCRIPT";

impl<B: Backend> Engine<B> {
    /// Checks what a script asked for. An error that is not the store's is the script's own fault.
    pub(crate) async fn script_effects(
        &self,
        key: &ExecutionKey,
        execution: &ScriptExecution,
        calls: Vec<RunCall>,
    ) -> Result<Vec<ScriptEffect>, EngineError> {
        let mut effects = Vec::new();
        let context = self.script_context(execution.event.hop.saturating_add(1));
        let app = execution.event.app_name.clone();
        let entity = script_entity(&execution.script_id);
        let mut ids = Vec::new();
        let mut events = Vec::new();
        let mut marks = Vec::new();
        for call in calls {
            match call {
                RunCall::Publish { id, event_type, data } => {
                    ids.push(id);
                    let (entity, properties) = (entity.clone(), data);
                    events.push(NewEvent { entity, event_type, timestamp: None, properties, ttl: None });
                }
                RunCall::SubmitJob { id, spec } => {
                    let file = job_file_of(&spec)?;
                    let (request, once) = self
                        .job_of_file(key.tenant.clone(), app.clone(), file, Rights::default(), None)
                        .await?;
                    let submit = self.prepare_job(request, once, FILE_TASKS_BYTES_MAX, id).await?;
                    effects.push(ScriptEffect::SubmitJob(Box::new(submit)));
                }
                RunCall::ResolveError { id, error } => {
                    let (event, item) = self.resolve_of(&execution.script_id, &error)?;
                    marks.push((id, event, Some(item)));
                }
            }
        }
        if events.is_empty() && marks.is_empty() {
            return Ok(effects);
        }
        let origin = context.origin.to_string();
        let request = EventBatch { tenant: key.tenant.clone(), app, origin, events };
        if !request.events.is_empty() {
            self.check_publish(&request)?;
        }
        let mut all = Vec::with_capacity(ids.len() + marks.len());
        let mut tokens = Vec::new();
        for (at, (id, event)) in ids.into_iter().zip(request.events).enumerate() {
            let made = self.as_workflow(&request.tenant, &format!("events[{at}]"), &event, &mut tokens)?;
            all.push(made.map_or((id, event, None), |(event, item)| (id, event, Some(item))));
        }
        let found = all.iter_mut().map(|(_, event, item)| (event, item.as_mut()));
        cut_tokens(&tokens, "events", ".properties", found)?;
        all.extend(marks);
        let mut published = Vec::with_capacity(all.len());
        for (id, event, workflow) in all {
            let provisional = Event {
                id,
                tenant: request.tenant.clone(),
                app: request.app.clone(),
                entity: event.entity.clone(),
                event_type: event.event_type.clone(),
                timestamp: Timestamp::MIN,
                received_at: Timestamp::MIN,
                context: context.clone(),
                properties: event.properties,
                ttl: None,
                beside: None,
            };
            let packed = self.pack(provisional)?;
            let shipped = self.ship(&request.tenant, id, packed).await?;
            published.push(PublishedEvent {
                entity: event.entity,
                event_type: event.event_type,
                timestamp: None,
                properties: Prepared { id: Some(id), ..shipped },
                ttl: None,
                workflow,
            });
        }
        let publish = Publish { tenant: request.tenant, app: request.app, context, events: published };
        effects.insert(0, ScriptEffect::Publish(publish));
        Ok(effects)
    }

    /// Checks what a script asked for as a run does before it commits, and carries nothing out. An error that is not the
    /// store's is what the run would fail with.
    pub async fn check_script_calls(
        &self,
        tenant: &TenantId,
        app: &AppName,
        script: &ScriptId,
        calls: &[RunCall],
    ) -> Result<(), EngineError> {
        let entity = script_entity(script);
        let mut events = Vec::new();
        for call in calls {
            match call {
                RunCall::Publish { event_type, data, .. } => events.push(NewEvent {
                    entity: entity.clone(),
                    event_type: event_type.clone(),
                    timestamp: None,
                    properties: data.clone(),
                    ttl: None,
                }),
                RunCall::SubmitJob { spec, .. } => {
                    let file = job_file_of(spec)?;
                    let (tenant, app) = (tenant.clone(), app.clone());
                    let (request, _) = self.job_of_file(tenant, app, file, Rights::default(), None).await?;
                    check_job(&request, FILE_TASKS_BYTES_MAX)?;
                }
                RunCall::ResolveError { error, .. } => drop(self.resolve_of(script, error)?),
            }
        }
        if events.is_empty() {
            return Ok(());
        }
        let origin = self.script_context(1).origin.to_string();
        let request = EventBatch { tenant: tenant.clone(), app: app.clone(), origin, events };
        self.check_publish(&request)?;
        for (at, event) in request.events.iter().enumerate() {
            self.as_workflow(tenant, &format!("events[{at}]"), event, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Errors that a script says are mended: `{executionId?, errorCode?, reason?}`.
    fn resolve_of(&self, script: &ScriptId, error: &Json) -> Result<(NewEvent, WorkflowItem), EngineError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Asked {
            execution_id: Option<String>,
            error_code: Option<String>,
            reason: Option<String>,
        }
        let asked: Asked =
            error.read().map_err(|error| EngineError::invalid("resolveError", error.to_string()))?;
        let id = asked.execution_id.map(workflow::WorkflowRunId::new).transpose()?;
        let code = asked.error_code.map(ErrorCode::new).transpose()?;
        let scope = ErrorScope::of(id, code)
            .ok_or_else(|| EngineError::invalid("resolveError", "needs executionId, errorCode or both"))?;
        let by = format!("script {script}");
        self.mark_event(&scope, ErrorMark::Resolve, Some(by), asked.reason)
    }

    /// The author of events that came about through `hop` scripts.
    pub(crate) fn script_context(&self, hop: u32) -> Context {
        Context {
            environment: self.inner.site.environment(),
            origin: Arc::from(format!("{SCRIPT_ORIGIN}{hop}")),
            worker_id: None,
        }
    }

    pub(crate) fn script_board(&self) -> &ScriptBoard {
        &self.inner.board
    }

    /// Takes over the alerts that a former life raised.
    pub(crate) async fn restore_alerts(&self) -> Result<(), Fault> {
        let mut after = None;
        loop {
            let page = self.inner.backend.all_records(RecordKind::System, after.take(), LIST_MAX).await?;
            let is_last = page.len() < LIST_MAX;
            after = page.last().map(|(key, _)| key.clone());
            let now = self.now();
            let mut alerts = self.inner.board.alerts();
            for (key, record) in page {
                if let (Some(tenant), true, RecordValue::Bytes(bytes)) =
                    (&key.tenant, key.id.starts_with(ALERT), &record.value)
                {
                    alerts.restore(tenant, bytes, now);
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Records an alert. It stands in memory too, so a store that cannot take it now does not matter.
    pub(crate) async fn record_alert(&self, telling: Telling) {
        let Telling { tenant, kind, is_raised, message, properties } = telling;
        let alert = Alert { tenant, name: kind.as_str(), is_raised, message, properties };
        if let Err(error) = self.execute(Command::Alert(alert)).await {
            warn_seldom!(error, alert = kind.as_str(), "an alert could not be recorded");
        }
    }
}

/// What events of a script are about.
fn script_entity(script: &ScriptId) -> Entity {
    Entity { kind: EntityType::trusted(SCRIPT_ENTITY), id: EntityId::trusted(script.as_str()) }
}

fn job_file_of(spec: &Json) -> Result<JobFile, EngineError> {
    let value = spec.read().map_err(|error| EngineError::invalid("job", error.to_string()))?;
    Ok(JobFile::read(value)?)
}
