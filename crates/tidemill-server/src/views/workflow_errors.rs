//! Errors of workflows and tasks.

use tidemill_api::{
    ErrorCountsView, ErrorGroupView, ErrorKindName, ErrorStateName, ErrorView, HourView, MarkView,
    OccurrenceView, PlaceView,
};
use tidemill_engine::engine::{ShownError, ShownGroup, ShownOccurrence};
use tidemill_engine::triage::{ErrorCounts, ErrorGroup, ErrorState, GroupCell, GroupKind, Mark};
use tidemill_model::Timestamp;
use tidemill_model::workflow::Catalogue;

use super::View;

impl View<ErrorState> for ErrorStateName {
    fn of(state: ErrorState) -> Self {
        match state {
            ErrorState::Open => Self::Open,
            ErrorState::Resolved => Self::Resolved,
            ErrorState::Unrecoverable => Self::Unrecoverable,
            ErrorState::Ignored => Self::Ignored,
        }
    }
}

impl View<(&ShownGroup, &Catalogue)> for ErrorGroupView {
    fn of((shown, catalogue): (&ShownGroup, &Catalogue)) -> Self {
        let group: &ErrorGroup = &shown.group;
        let known = catalogue.lookup(&group.code);
        Self {
            code: group.code.clone(),
            error_type: group.code.error_type(),
            kind: match group.kind {
                GroupKind::Workflow => ErrorKindName::Workflow,
                GroupKind::Task => ErrorKindName::Task,
            },
            title: group.title.as_ref().map(ToString::to_string),
            phase: known.phase,
            category: known.category,
            description: known.description,
            counts: ErrorCountsView::of(shown.counts),
            first_seen: group.first_seen,
            last_seen: group.last_seen,
            settled: group.settled.as_ref().map(|settled| MarkView::of((settled.state, &settled.mark))),
            unrecoverable_since: group
                .unrecoverable
                .as_ref()
                .map(|mark| MarkView::of((ErrorState::Unrecoverable, mark))),
            ignored_since: group.ignored.as_ref().filter(|ignored| ignored.ended.is_none()).map(|ignored| {
                MarkView {
                    until: ignored.until,
                    until_occurrences: ignored.until_occurrences,
                    ..MarkView::of((ErrorState::Ignored, &ignored.mark))
                }
            }),
        }
    }
}

impl View<(ErrorState, &Mark)> for MarkView {
    fn of((state, mark): (ErrorState, &Mark)) -> Self {
        Self {
            since: mark.since,
            state: ErrorStateName::of(state),
            by: mark.by.as_ref().map(ToString::to_string),
            reason: mark.reason.as_ref().map(ToString::to_string),
            until: None,
            until_occurrences: None,
        }
    }
}

/// What was counted in each hour that is kept.
pub(crate) fn hours(group: &ErrorGroup) -> Vec<HourView> {
    const HOUR_MILLIS: u64 = 3_600_000;
    let view = |(hour, occurrences): &(u64, u64)| HourView {
        at: Timestamp::clamped(hour * HOUR_MILLIS),
        occurrences: *occurrences,
    };
    group.hours.iter().map(view).collect()
}

impl View<ErrorCounts> for ErrorCountsView {
    fn of(counts: ErrorCounts) -> Self {
        Self {
            occurrences: counts.occurrences,
            executions: counts.executions(),
            open: counts.open,
            resolved: counts.resolved,
            unrecoverable: counts.unrecoverable,
            ignored: counts.ignored,
        }
    }
}

impl View<&GroupCell> for PlaceView {
    fn of(place: &GroupCell) -> Self {
        Self {
            county: place.cell.county.to_string(),
            data_group_label: place.cell.data_group_label.as_ref().map(ToString::to_string),
            phase: place.cell.phase.to_string(),
            step: place.cell.step.to_string(),
            counts: ErrorCountsView::of(place.counts),
        }
    }
}

impl View<ShownOccurrence> for OccurrenceView {
    fn of(shown: ShownOccurrence) -> Self {
        let ShownOccurrence { execution, event, index, at, details } = shown;
        Self { execution_id: execution, event_id: event, index, at, details }
    }
}

impl View<&ShownError> for ErrorView {
    fn of(shown: &ShownError) -> Self {
        let error = &shown.error;
        Self {
            execution_id: error.execution.clone(),
            error_type: error.code.error_type(),
            code: error.code.clone(),
            state: ErrorStateName::of(shown.state),
            count: error.count,
            first_seen: error.first_seen,
            last_seen: error.last_seen,
            stale: shown.stale,
            by: error.by.as_ref().map(ToString::to_string),
            reason: error.reason.as_ref().map(ToString::to_string),
            occurrences: Vec::new(),
        }
    }
}
