//! Metrics in the text format of Prometheus. The names are a promise.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidemill_engine::engine::TriageMetrics;
use tidemill_engine::scripts::{BUCKETS_MILLIS, ScriptMetrics};
use tidemill_engine::triage::Counts;
use tidemill_model::workflow::ErrorType;

/// The content type.
pub(crate) const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text of all metrics.
pub(crate) fn render(scripts: &ScriptMetrics, triage: &TriageMetrics) -> String {
    let mut text = of_scripts(scripts);
    text.push_str(&of_triage(triage));
    text
}

/// Tenants are added up: their names are nobody else's business.
fn of_triage(metrics: &TriageMetrics) -> String {
    let mut text = String::new();
    let mut by_type = BTreeMap::<ErrorType, Counts>::new();
    for (_, error_type, counts) in &metrics.by_type {
        by_type.entry(*error_type).or_default().add(counts);
    }
    let name = "workflow_errors_total";
    head(&mut text, name, "counter", "Occurrences of errors of workflows and tasks, by type of code.");
    for (error_type, counts) in &by_type {
        line(&mut text, &format!("{name}{{type=\"{error_type}\"}}"), counts.occurrences);
    }
    let name = "workflow_errors_open_gauge";
    head(&mut text, name, "gauge", "Errors of executions that are open, by type of code.");
    for (error_type, counts) in &by_type {
        line(&mut text, &format!("{name}{{type=\"{error_type}\"}}"), counts.open);
    }
    let name = "workflow_parked_gauge";
    head(&mut text, name, "gauge", "Executions that wait for somebody to decide.");
    line(&mut text, name, metrics.parked.iter().map(|(_, count)| count).sum::<usize>());
    text
}

fn of_scripts(metrics: &ScriptMetrics) -> String {
    let mut text = String::new();
    let counters = [
        ("events_matched_total", "Events that passed a subscription's rules.", metrics.events_matched_total),
        (
            "events_filtered_total",
            "Events of a subscription's type that its rules kept out.",
            metrics.events_filtered_total,
        ),
        ("executions_queued_total", "Executions that were queued.", metrics.executions_queued_total),
        ("executions_success_total", "Executions that succeeded.", metrics.executions_success_total),
    ];
    for (name, about, value) in counters {
        head(&mut text, name, "counter", about);
        line(&mut text, name, value);
    }
    head(&mut text, "executions_failed_total", "counter", "Runs that failed, by the class of their error.");
    for (class, count) in &metrics.executions_failed_total {
        line(&mut text, &format!("executions_failed_total{{error_type=\"{}\"}}", label(class)), count);
    }
    head(&mut text, "dlq_events_total", "counter", "Executions that failed for good.");
    line(&mut text, "dlq_events_total", metrics.dlq_events_total);
    head(&mut text, "queue_depth_gauge", "gauge", "Executions that wait or run.");
    line(&mut text, "queue_depth_gauge", metrics.queue_depth_gauge);

    let name = "execution_duration_histogram";
    let histogram = &metrics.execution_duration_histogram;
    head(&mut text, name, "histogram", "How long runs took, in seconds.");
    for (bound, count) in BUCKETS_MILLIS.into_iter().zip(histogram.buckets) {
        line(&mut text, &format!("{name}_bucket{{le=\"{}\"}}", seconds(bound)), count);
    }
    line(&mut text, &format!("{name}_bucket{{le=\"+Inf\"}}"), histogram.count);
    line(&mut text, &format!("{name}_sum"), histogram.sum_seconds);
    line(&mut text, &format!("{name}_count"), histogram.count);

    let name = "execution_duration_seconds_quantile";
    head(&mut text, name, "gauge", "Quantiles of the last runs' durations.");
    for (quantile, value) in &metrics.quantiles {
        line(&mut text, &format!("{name}{{quantile=\"{quantile}\"}}"), value);
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, about: &str) {
    let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{name} {value}");
}

fn seconds(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sc_27_sc_30_the_text_has_the_eight_names_with_their_values() {
        let mut metrics = ScriptMetrics {
            events_matched_total: 1,
            events_filtered_total: 2,
            executions_queued_total: 3,
            executions_success_total: 4,
            dlq_events_total: 6,
            queue_depth_gauge: 7,
            quantiles: vec![(0.5, 0.25), (0.95, 1.5), (0.99, 2.0)],
            ..ScriptMetrics::default()
        };
        metrics.executions_failed_total.insert("timeout".to_owned(), 5);
        metrics.execution_duration_histogram.buckets[12] = 2;
        metrics.execution_duration_histogram.count = 3;
        metrics.execution_duration_histogram.sum_seconds = 70.5;
        let text = render(&metrics, &TriageMetrics::default());
        for expected in [
            "# TYPE events_matched_total counter\nevents_matched_total 1\n",
            "events_filtered_total 2\n",
            "executions_queued_total 3\n",
            "executions_success_total 4\n",
            "executions_failed_total{error_type=\"timeout\"} 5\n",
            "dlq_events_total 6\n",
            "# TYPE queue_depth_gauge gauge\nqueue_depth_gauge 7\n",
            "# TYPE execution_duration_histogram histogram\n",
            "execution_duration_histogram_bucket{le=\"0.005\"} 0\n",
            "execution_duration_histogram_bucket{le=\"2.5\"} 0\n",
            "execution_duration_histogram_bucket{le=\"60\"} 2\n",
            "execution_duration_histogram_bucket{le=\"+Inf\"} 3\n",
            "execution_duration_histogram_sum 70.5\n",
            "execution_duration_histogram_count 3\n",
            "execution_duration_seconds_quantile{quantile=\"0.99\"} 2\n",
        ] {
            assert!(text.contains(expected), "{expected}\n{text}");
        }
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn errors_are_counted_by_type_and_tenants_together() {
        let tenant = |name: &str| tidemill_model::TenantId::trusted(name);
        let of = |text| ErrorType::parse(text).unwrap();
        let counts = |occurrences, open| Counts { occurrences, open, ..Counts::default() };
        let metrics = TriageMetrics {
            by_type: vec![
                (tenant("acme"), of("20"), counts(3, 2)),
                (tenant("acme"), of("30"), counts(1, 0)),
                (tenant("other"), of("20"), counts(4, 1)),
            ],
            parked: vec![(tenant("acme"), 5), (tenant("other"), 1)],
        };
        let text = of_triage(&metrics);
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
