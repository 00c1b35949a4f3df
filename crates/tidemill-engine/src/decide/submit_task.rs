//! Submit a task on its own.

use std::sync::Arc;

use tidemill_model::properties::{TaskIdentity, TaskPending};
use tidemill_model::{Json, KnownType};

use super::draft::{By, Draft, Subject};
use super::submit_job::{earlier_effect, remember};
use super::tenant_limit;
use crate::command::SubmitTask;
use crate::commit::{NewTask, RecordWrite, TaskChangeKind, TaskKey};
use crate::record::Effect;
use crate::reply::{Refusal, Reply};
use crate::site::Origin;
use crate::state::{Place, State};

pub(super) fn decide(
    state: &State,
    command: &SubmitTask,
    draft: &mut Draft<'_, '_>,
) -> Result<Reply, Refusal> {
    let task = &command.task;
    let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
    if let Some(effect) = earlier_effect(state, &command.once, draft)? {
        let Effect::Task(request) = &effect else { return Err(Refusal::IdempotencyConflict) };
        // The id names another task than the key does.
        if *request != key.request && state.task(&key).is_some() {
            return Err(Refusal::IdempotencyConflict);
        }
        remember(state, &command.once, &effect, draft);
        return Ok(Reply::TaskSubmitted { request: request.clone(), repeated: true });
    }
    if let Some(known) = state.task(&key) {
        let is_same = |earlier: &NewTask| earlier.spec == task.spec && earlier.app == task.app;
        if !matches!(known.place, Place::Alone(earlier) if is_same(earlier)) {
            return Err(Refusal::RequestTaken(key.request));
        }
        remember(state, &command.once, &Effect::Task(key.request.clone()), draft);
        return Ok(Reply::TaskSubmitted { request: key.request, repeated: true });
    }
    tenant_limit::check(state, &key.tenant, [&task.spec], draft)?;
    remember(state, &command.once, &Effect::Task(key.request.clone()), draft);
    draft.record(RecordWrite::Task(Arc::new(task.clone())));
    draft.change(&key, TaskChangeKind::Dispatch);
    draft.enqueue(&key, 1, draft.now());
    let mut subject = Subject {
        tenant: task.tenant.clone(),
        app: task.app.clone(),
        entity: draft.site().task(&key.request),
        last: None,
    };
    let identity = TaskIdentity { request_id: key.request.clone(), job_id: None, task_id: None, run: 1 };
    let pending = TaskPending::alone(identity, task.spec.name.clone());
    draft.event(&mut subject, KnownType::TaskPending, By::component(Origin::ProducerApi), Json::of(&pending));
    Ok(Reply::TaskSubmitted { request: key.request, repeated: false })
}
