//! Attempts of one tenant by definition and job.

use tidemill_engine::metrics::NamedMetrics;

use super::text::{Kind, Text, scaled};

pub(super) fn render(named: &NamedMetrics, text: &mut Text) {
    text.family(
        "tidemill_task_attempts_claimed_total",
        Kind::Counter,
        "Attempts of the tenant that workers took, by definition and job.",
    );
    for ((definition, job), counts) in named {
        text.sample(&[("definition", definition), ("job", job)], counts.claimed);
    }
    text.family(
        "tidemill_task_attempts_ended_total",
        Kind::Counter,
        "Attempts of the tenant whose end was reported, by definition, job and what followed.",
    );
    for ((definition, job), counts) in named {
        for (outcome, count) in &counts.ended {
            text.sample(&[("definition", definition), ("job", job), ("outcome", outcome)], count);
        }
    }
    text.family(
        "tidemill_task_attempt_seconds_total",
        Kind::Counter,
        "How long those attempts were held by their workers, in seconds.",
    );
    for ((definition, job), counts) in named {
        text.sample(&[("definition", definition), ("job", job)], scaled(counts.held_millis, 3));
    }
}
