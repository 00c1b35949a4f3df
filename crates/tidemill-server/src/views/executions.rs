//! Executions of scripts, and the alerts about them.

use tidemill_api::{AlertKindName, AlertView, ExecutionStatusName, ExecutionView, RunErrorView};
use tidemill_engine::engine::{ShownExecution, ShownStatus};
use tidemill_engine::execution::RunError;
use tidemill_engine::scripts::{AlertKind, StandingAlert};
use tidemill_model::TenantId;

use super::View;

impl View<(&TenantId, ShownExecution)> for ExecutionView {
    fn of((tenant, shown): (&TenantId, ShownExecution)) -> Self {
        let ShownExecution { status, execution } = shown;
        let is_pending = execution.status.is_pending();
        Self {
            id: execution.id.to_string(),
            tenant_id: tenant.clone(),
            retry_count: execution.retry_count(),
            script_id: execution.script_id,
            subscription_id: execution.subscription_id,
            event_id: execution.event.id,
            event_type: execution.event.event_type,
            event_timestamp: execution.event.timestamp,
            status: ExecutionStatusName::of(status),
            attempts: execution.attempts,
            hop: execution.event.hop,
            created_at: execution.created_at,
            next_run_at: Some(execution.next_run_at).filter(|_| is_pending),
            ended_at: execution.ended_at,
            duration_ms: execution.duration_ms,
            error: execution.error.as_ref().map(RunErrorView::of),
            result: execution.result,
            logs: execution.logs,
            replay_of: execution.replay_of.map(|id| id.to_string()),
        }
    }
}

/// The same without what may be long.
pub(crate) fn listed_execution(tenant: &TenantId, shown: ShownExecution) -> ExecutionView {
    let mut view = ExecutionView { result: None, logs: None, ..ExecutionView::of((tenant, shown)) };
    if let Some(error) = &mut view.error {
        error.stack.clear();
    }
    view
}

impl View<ShownStatus> for ExecutionStatusName {
    fn of(status: ShownStatus) -> Self {
        match status {
            ShownStatus::Queued => Self::Queued,
            ShownStatus::Processing => Self::Processing,
            ShownStatus::Retrying => Self::Retrying,
            ShownStatus::Success => Self::Success,
            ShownStatus::DeadLetter => Self::DeadLetter,
        }
    }
}

impl View<&RunError> for RunErrorView {
    fn of(error: &RunError) -> Self {
        Self {
            class: error.class.to_string(),
            message: error.message.to_string(),
            stack: error.stack.to_string(),
        }
    }
}

impl View<StandingAlert> for AlertView {
    fn of(alert: StandingAlert) -> Self {
        Self {
            kind: match alert.kind {
                AlertKind::ScriptFailureRate => AlertKindName::ScriptFailureRate,
                AlertKind::ScriptQueueDepth => AlertKindName::ScriptQueueDepth,
                AlertKind::ParkedExpiring => AlertKindName::ParkedExpiring,
                AlertKind::TaskHealth => AlertKindName::TaskHealth,
                AlertKind::JobFailed => AlertKindName::JobFailed,
            },
            tenant_id: alert.tenant_id,
            raised_at: alert.raised_at,
            message: alert.message,
        }
    }
}
