//! Errors of workflows and tasks.

use std::collections::BTreeMap;

use tidemill_engine::engine::TriageMetrics;
use tidemill_engine::triage::ErrorCounts;
use tidemill_model::workflow::ErrorType;

use super::text::{Kind, Text};

pub(super) fn render(metrics: &TriageMetrics, text: &mut Text) {
    let mut by_type = BTreeMap::<ErrorType, ErrorCounts>::new();
    for (_, error_type, counts) in &metrics.by_type {
        by_type.entry(*error_type).or_default().add(counts);
    }
    text.family(
        "workflow_errors_total",
        Kind::Counter,
        "Occurrences of errors of workflows and tasks, by type of code.",
    );
    for (error_type, counts) in &by_type {
        text.sample(&[("type", &error_type.to_string())], counts.occurrences);
    }
    text.family(
        "workflow_errors_open_gauge",
        Kind::Gauge,
        "Errors of executions that are open, by type of code.",
    );
    for (error_type, counts) in &by_type {
        text.sample(&[("type", &error_type.to_string())], counts.open);
    }
    let parked = metrics.parked.iter().map(|(_, count)| count).sum::<usize>();
    text.gauge("workflow_parked_gauge", "Executions that wait for somebody to decide.", parked);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_type_and_tenants_together() {
        let tenant = |name: &str| tidemill_model::TenantId::trusted(name);
        let of = |text| ErrorType::parse(text).unwrap();
        let counts = |occurrences, open| ErrorCounts { occurrences, open, ..ErrorCounts::default() };
        let metrics = TriageMetrics {
            by_type: vec![
                (tenant("acme"), of("20"), counts(3, 2)),
                (tenant("acme"), of("30"), counts(1, 0)),
                (tenant("other"), of("20"), counts(4, 1)),
            ],
            parked: vec![(tenant("acme"), 5), (tenant("other"), 1)],
        };
        let mut text = Text::default();
        render(&metrics, &mut text);
        let text = text.end();
        for expected in [
            "# TYPE workflow_errors_total counter\nworkflow_errors_total{type=\"20\"} 7\n",
            "workflow_errors_total{type=\"30\"} 1\n",
            "workflow_errors_open_gauge{type=\"20\"} 3\n",
            "# TYPE workflow_parked_gauge gauge\nworkflow_parked_gauge 6\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        assert!(!text.contains("acme"));
    }
}
