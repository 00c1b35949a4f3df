//! Executions of workflows, and what is done with many of them.

use std::sync::Arc;

use tidemill_api::{
    BulkActionName, BulkFilterView, BulkPreviewView, BulkStateName, BulkView, CodeCount, OutcomeView,
    TokenStateName, WorkflowExecutionView,
};
use tidemill_engine::engine::{BulkPreview, ShownTriageExecution};
use tidemill_engine::triage::{Bulk, BulkAction, BulkFilter, BulkState, Cell, Parked, TokenState};
use tidemill_model::BadId;
use tidemill_model::workflow::{ErrorCode, PhaseStep, WorkflowRunId, WorkflowStatus};

use super::View;
use crate::problem::Problem;

/// An execution of which only its place is known.
fn standing(execution_id: WorkflowRunId, cell: &Cell, is_task: bool) -> WorkflowExecutionView {
    let place = PhaseStep { phase: cell.phase.to_string(), step: cell.step.to_string() };
    WorkflowExecutionView {
        unknown_place: !is_task && place.unknown(),
        execution_id,
        county: cell.county.to_string(),
        data_group_label: cell.data_group_label.as_ref().map(ToString::to_string),
        phase: place.phase,
        step: place.step,
        status: WorkflowStatus::Failed,
        parked: false,
        parked_at: None,
        deadline: None,
        codes: Vec::new(),
        token: TokenStateName::None,
        request_id: None,
        status_at: None,
        first_event_at: None,
        last_event_at: None,
        outcome: None,
        errors: Vec::new(),
    }
}

impl View<&Parked> for WorkflowExecutionView {
    fn of(parked: &Parked) -> Self {
        Self {
            parked: true,
            parked_at: Some(parked.since),
            deadline: Some(parked.deadline),
            codes: parked.codes.clone(),
            token: TokenStateName::Unused,
            request_id: parked.task.as_ref().map(ToString::to_string),
            ..standing(parked.execution.clone(), &parked.cell, parked.task.is_some())
        }
    }
}

impl View<&ShownTriageExecution> for WorkflowExecutionView {
    fn of(shown: &ShownTriageExecution) -> Self {
        let execution = &shown.execution;
        let parked = shown.parked.as_deref();
        Self {
            status: execution.status,
            parked: execution.parked,
            parked_at: parked.map(|parked| parked.since),
            deadline: parked.map(|parked| parked.deadline),
            codes: execution.codes.clone(),
            token: TokenStateName::of(execution.token),
            request_id: execution.task.as_ref().map(ToString::to_string),
            status_at: Some(execution.status_at),
            first_event_at: Some(execution.first_event_at),
            last_event_at: Some(execution.last_event_at),
            outcome: execution.outcome.as_ref().map(OutcomeView::of),
            ..standing(execution.id.clone(), &execution.cell, execution.task.is_some())
        }
    }
}

impl View<TokenState> for TokenStateName {
    fn of(state: TokenState) -> Self {
        match state {
            TokenState::None => Self::None,
            TokenState::Unused => Self::Unused,
            TokenState::Used => Self::Used,
            TokenState::Expired => Self::Expired,
            TokenState::Replaced => Self::Replaced,
        }
    }
}

/// What a filter means. Ids are checked here, so that a wrong one is named by its place.
pub(crate) fn bulk_filter(view: BulkFilterView) -> Result<BulkFilter, Problem> {
    let id = |(at, id): (usize, String)| {
        let wrong = |error: BadId| {
            Problem::invalid_field(format!("filter.executionIds[{at}]"), error.problem.to_string())
        };
        WorkflowRunId::new(id).map_err(wrong)
    };
    let ids = |ids: Vec<String>| ids.into_iter().enumerate().map(id).collect::<Result<_, _>>();
    Ok(BulkFilter {
        code: view.code,
        error_type: view.error_type,
        county: view.county.map(Arc::from),
        phase: view.phase.map(Arc::from),
        step: view.step.map(Arc::from),
        executions: view.execution_ids.map(ids).transpose()?,
        settled: view.settled,
    })
}

impl View<&BulkFilter> for BulkFilterView {
    fn of(filter: &BulkFilter) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_ref().map(ToString::to_string);
        Self {
            code: filter.code.clone(),
            error_type: filter.error_type,
            county: text(&filter.county),
            phase: text(&filter.phase),
            step: text(&filter.step),
            execution_ids: filter
                .executions
                .as_ref()
                .map(|ids| ids.iter().map(ToString::to_string).collect()),
            settled: filter.settled,
            all: *filter == BulkFilter::default(),
        }
    }
}

impl View<&BulkPreview> for BulkPreviewView {
    fn of(preview: &BulkPreview) -> Self {
        let count =
            |(code, executions): &(ErrorCode, u64)| CodeCount { code: code.clone(), executions: *executions };
        Self {
            total: preview.total,
            by_code: preview.by_code.iter().map(count).collect(),
            oldest: preview.oldest,
            first: preview.first.iter().map(|parked| WorkflowExecutionView::of(&**parked)).collect(),
            left_out: preview.left_out.clone(),
        }
    }
}

impl View<&Bulk> for BulkView {
    fn of(bulk: &Bulk) -> Self {
        Self {
            id: bulk.id.to_string(),
            action: match bulk.action {
                BulkAction::Resume { .. } => BulkActionName::Resume,
                BulkAction::Fail { .. } => BulkActionName::Fail,
            },
            filter: BulkFilterView::of(&bulk.filter),
            state: match bulk.state {
                BulkState::Running => BulkStateName::Running,
                BulkState::Done => BulkStateName::Done,
                BulkState::Cancelled => BulkStateName::Cancelled,
            },
            total: bulk.total,
            done: bulk.done,
            failed: bulk.failed,
            skipped: bulk.skipped,
            rate_per_second: bulk.rate_per_second,
            cutoff: bulk.cutoff,
            created_at: bulk.created_at,
            ended_at: bulk.ended_at,
            by: bulk.by.as_ref().map(ToString::to_string),
            reason: bulk.reason.as_ref().map(ToString::to_string),
        }
    }
}
