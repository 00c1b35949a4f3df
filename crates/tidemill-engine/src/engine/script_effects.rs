//! What a script asked for, made ready to be committed with its success: the same checks as for anybody else.

use std::sync::Arc;

use tidemill_model::{Context, Entity, EntityId, EntityType, Event, JobFile, Timestamp};

use super::limits::FILE_TASKS_BYTES_MAX;
use super::{Engine, EngineError, NewEvent, PublishRequest, Rights};
use crate::backend::Backend;
use crate::command::{Alert, Command, Prepared, Publish, PublishedEvent, ScriptEffect};
use crate::execution::{ExecutionKey, ScriptExecution};
use crate::reply::Reply;
use crate::scripts::{RunCall, SCRIPT_ORIGIN, ScriptBoard, Telling};

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
        let entity = Entity {
            kind: EntityType::trusted(SCRIPT_ENTITY),
            id: EntityId::trusted(execution.script_id.as_str()),
        };
        let mut ids = Vec::new();
        let mut events = Vec::new();
        for call in calls {
            match call {
                RunCall::Publish { id, event_type, data } => {
                    ids.push(id);
                    let (entity, properties) = (entity.clone(), data);
                    events.push(NewEvent { entity, event_type, timestamp: None, properties, ttl: None });
                }
                RunCall::SubmitJob { id, spec } => {
                    let value =
                        spec.read().map_err(|error| EngineError::invalid("job", error.to_string()))?;
                    let file = JobFile::read(value)?;
                    let (request, once) = self
                        .job_of_file(key.tenant.clone(), app.clone(), file, Rights::default(), None)
                        .await?;
                    let submit = self.prepare_job(request, once, FILE_TASKS_BYTES_MAX, id).await?;
                    effects.push(ScriptEffect::SubmitJob(Box::new(submit)));
                }
                RunCall::ResolveError { .. } => {
                    return Err(EngineError::invalid("resolveError", "is not available yet"));
                }
            }
        }
        if events.is_empty() {
            return Ok(effects);
        }
        let origin = context.origin.to_string();
        let request = PublishRequest { tenant: key.tenant.clone(), app, origin, events };
        self.check_publish(&request)?;
        let mut published = Vec::with_capacity(ids.len());
        for (id, event) in ids.into_iter().zip(request.events) {
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
            };
            let packed = self.pack(provisional)?;
            let shipped = self.ship(&request.tenant, id, packed).await?;
            published.push(PublishedEvent {
                entity: event.entity,
                event_type: event.event_type,
                timestamp: None,
                properties: Prepared { id: Some(id), ..shipped },
                ttl: None,
            });
        }
        let publish = Publish { tenant: request.tenant, app: request.app, context, events: published };
        effects.insert(0, ScriptEffect::Publish(publish));
        Ok(effects)
    }

    /// Who writes events that so many scripts brought about.
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

    pub(crate) fn script_now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Carries out a command of those who run scripts.
    pub(crate) async fn run_command(&self, command: Command) -> Result<Reply, EngineError> {
        self.execute(command).await
    }

    /// Tells an alert. It stands in memory too, so a store that cannot take it now does not matter.
    pub(crate) async fn tell_alert(&self, telling: Telling) {
        let Telling { tenant, is_raised, properties } = telling;
        let _ = self.execute(Command::Alert(Alert { tenant, is_raised, properties })).await;
    }
}
