//! Scripts.

use tidemill_engine::scripts::{BUCKETS_MILLIS, ScriptMetrics};

use super::text::{Kind, Text, scaled};

pub(super) fn render(metrics: &ScriptMetrics, text: &mut Text) {
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
        text.counter(name, about, value);
    }
    text.family("executions_failed_total", Kind::Counter, "Runs that failed, by the class of their error.");
    for (class, count) in &metrics.executions_failed_total {
        text.sample(&[("error_type", class)], count);
    }
    text.counter("dlq_events_total", "Executions that failed for good.", metrics.dlq_events_total);
    text.gauge("queue_depth_gauge", "Executions that wait or run.", metrics.queue_depth_gauge);

    let histogram = &metrics.execution_duration_histogram;
    text.family("execution_duration_histogram", Kind::Histogram, "How long runs took, in seconds.");
    for (bound, count) in BUCKETS_MILLIS.into_iter().zip(histogram.buckets) {
        text.bucket(&scaled(bound, 3), count);
    }
    text.bucket("+Inf", histogram.count);
    text.line("_sum", &[], histogram.sum_seconds);
    text.line("_count", &[], histogram.count);

    text.family(
        "execution_duration_seconds_quantile",
        Kind::Gauge,
        "Quantiles of the last runs' durations, in seconds.",
    );
    for (quantile, value) in &metrics.quantiles {
        text.sample(&[("quantile", &quantile.to_string())], value);
    }
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
        let mut text = Text::default();
        render(&metrics, &mut text);
        let text = text.end();
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
}
