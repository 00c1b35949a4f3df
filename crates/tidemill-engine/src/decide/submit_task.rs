//! Submit a task on its own.

use std::sync::Arc;

use tidemill_model::properties::{TaskIdentity, TaskPending};
use tidemill_model::{Json, KnownType};

use super::draft::{By, Draft, Subject};
use super::submit_job::{earlier_effect, remember};
use crate::command::SubmitTask;
use crate::commit::{Expect, RecordWrite, TaskChangeKind, TaskKey};
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
    if let Some(effect) = earlier_effect(state, command.once.as_ref(), draft)? {
        let Effect::Task(request) = effect else { return Err(Refusal::IdempotencyConflict) };
        return Ok(Reply::TaskSubmitted { request, repeated: true });
    }
    let key = TaskKey { tenant: task.tenant.clone(), request: task.request.clone() };
    if let Some(known) = state.task(&key) {
        let same = matches!(known.place, Place::Alone(earlier) if earlier.spec == task.spec);
        return if same {
            Ok(Reply::TaskSubmitted { request: key.request, repeated: true })
        } else {
            Err(Refusal::RequestTaken(key.request))
        };
    }
    draft.expect(Expect::TaskAbsent(key.clone()));
    remember(state, command.once.as_ref(), Effect::Task(key.request.clone()), draft);
    draft.record(RecordWrite::Task(Arc::new(task.clone())));
    draft.change(&key, TaskChangeKind::Dispatch);
    draft.enqueue(&key, 1, draft.now());
    let mut subject = Subject {
        tenant: task.tenant.clone(),
        app: task.app.clone(),
        entity: draft.site().task(&key.request),
        last: None,
    };
    let pending = TaskPending {
        task: TaskIdentity { request_id: key.request.clone(), job_id: None, task_id: None, run: 1 },
        name: task.spec.name.clone(),
        depends_on: None,
    };
    draft.event(&mut subject, KnownType::TaskPending, By::component(Origin::ProducerApi), Json::of(&pending));
    Ok(Reply::TaskSubmitted { request: key.request, repeated: false })
}
