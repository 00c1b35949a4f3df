//! Dead letters: of tasks, of scripts and of deliveries to others.

use tidemill_api::{DeliveryLetterView, LetterState, ScriptLetterView, TaskLetterView};
use tidemill_engine::execution::ScriptLetter;
use tidemill_engine::outbound::{DeliveryLetter, Target};
use tidemill_engine::record::{DeadLetter, DeadLetterState};
use tidemill_model::TenantId;

use super::View;

impl View<&DeadLetter> for TaskLetterView {
    fn of(letter: &DeadLetter) -> Self {
        Self {
            id: format!("{:032x}", letter.message.0),
            request_id: letter.request.to_string(),
            run: letter.run,
            reason: letter.reason.to_string(),
            last_error: letter.last_error.clone().map(Into::into),
            since: letter.since.millis(),
            state: LetterState::of(letter.state),
        }
    }
}

impl View<(&TenantId, ScriptLetter)> for ScriptLetterView {
    fn of((tenant, letter): (&TenantId, ScriptLetter)) -> Self {
        let id = letter.id.to_string();
        Self {
            execution_id: id.clone(),
            id,
            tenant_id: tenant.clone(),
            script_id: letter.script_id,
            event_type: letter.event.event_type,
            event_data: letter.event.data.and_then(|data| data.read().ok()),
            error_message: letter.error.message.to_string(),
            stack_trace: letter.error.stack.to_string(),
            retry_count: letter.retry_count,
            failed_at: letter.failed_at,
            created_at: letter.created_at,
            subscription_id: letter.subscription_id,
            event_id: letter.event.id,
            error_class: letter.error.class.to_string(),
            state: LetterState::of(letter.state),
            replayed_by: letter.replayed_by.map(|id| id.to_string()),
        }
    }
}

impl View<(&TenantId, DeliveryLetter)> for DeliveryLetterView {
    fn of((tenant, letter): (&TenantId, DeliveryLetter)) -> Self {
        let target = letter.target.name().to_owned();
        let url = match letter.target {
            Target::Callback(url) => Some(url.to_string()),
            _ => None,
        };
        Self {
            id: letter.id.to_string(),
            tenant_id: tenant.clone(),
            target,
            url,
            event_id: letter.event.id,
            event_type: letter.event.event_type,
            entity_type: letter.event.entity_type,
            entity_id: letter.event.entity_id,
            body: letter.body.read().ok(),
            error_message: letter.error.to_string(),
            attempts: letter.attempts,
            failed_at: letter.failed_at,
            created_at: letter.created_at,
            state: LetterState::of(letter.state),
            replayed_by: letter.replayed_by.map(|id| id.to_string()),
        }
    }
}

impl View<DeadLetterState> for LetterState {
    fn of(state: DeadLetterState) -> Self {
        match state {
            DeadLetterState::Open => Self::Open,
            DeadLetterState::Replayed => Self::Replayed,
            DeadLetterState::Discarded => Self::Discarded,
        }
    }
}
