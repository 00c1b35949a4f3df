//! Checks of health.

use tidemill_api::{FindingKindName, FindingView, HealthCheckView, HealthSummaryView, TaskHealthView};
use tidemill_engine::health::{Finding, FindingKind, HealthReport};
use tidemill_model::events::properties;

use super::View;

impl View<FindingKind> for FindingKindName {
    fn of(kind: FindingKind) -> Self {
        match kind {
            FindingKind::Pending => Self::Pending,
            FindingKind::Parked => Self::Parked,
            FindingKind::StalledJobs => Self::StalledJobs,
            FindingKind::Outbound => Self::Outbound,
        }
    }
}

impl View<HealthReport> for HealthCheckView {
    fn of(report: HealthReport) -> Self {
        let is_healthy = report.is_healthy();
        let properties::HealthSummary { total_processing, healthy, warning, critical, overtime } =
            report.summary;
        let task = |task: properties::TaskHealth| TaskHealthView {
            request_id: task.request_id.to_string(),
            health: task.health.into(),
            elapsed: task.elapsed,
            time_since_last_event: task.time_since_last_event,
            last_event_type: task.last_event_type,
            worker_id: task.worker_id.map(|worker| worker.to_string()),
        };
        let finding = |finding: Finding| FindingView {
            kind: FindingKindName::of(finding.kind),
            count: finding.count,
            message: finding.message,
            examples: finding.examples,
        };
        Self {
            checked_at: report.checked_at,
            event_id: report.event_id,
            is_healthy,
            summary: HealthSummaryView { total_processing, healthy, warning, critical, overtime },
            tasks: report.tasks.into_iter().map(task).collect(),
            findings: report.findings.into_iter().map(finding).collect(),
        }
    }
}
