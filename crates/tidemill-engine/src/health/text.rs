//! What health alerts say.

use tidemill_model::RequestId;
use tidemill_model::events::properties::HealthLevel;

use crate::health::report::{Finding, FindingKind};
use crate::health::rule::Judged;

/// How many tasks are named; the others are counted.
pub const LINES_MAX: usize = 20;

/// What alerts are about.
pub const KIND: &str = "task_health";

/// Reports tasks and what else stands still. `types` gives the type of a task's newest event.
pub(crate) fn raised<'t>(
    stage: &str,
    tenant: &str,
    tasks: &[&Judged],
    findings: &[&Finding],
    types: impl Fn(&RequestId) -> Option<&'t str>,
) -> String {
    let mut lines = vec![format!(":rotating_light: *Task health* ({stage}, tenant {tenant})")];
    lines.extend(tasks.iter().take(LINES_MAX).map(|task| {
        let worker = task.worker.as_ref().map_or("no worker", |worker| worker.as_str());
        format!(
            "• {} {}: running {}, silent for {}, last event {}, {worker}",
            task.request,
            health_word(task.health),
            span(task.elapsed_millis.0),
            span(task.silent_millis.0),
            types(&task.request).unwrap_or("unknown"),
        )
    }));
    lines.extend(rest(tasks.len(), "task"));
    lines.extend(findings.iter().map(|finding| format!("• {}: {}", finding.kind.as_str(), finding.message)));
    lines.join("\n")
}

/// Tells that tasks are well, or no longer processing, and that what stood does so no longer.
pub(crate) fn recovered(
    stage: &str,
    tenant: &str,
    tasks: &[(RequestId, bool)],
    findings: &[FindingKind],
) -> String {
    let mut lines = vec![format!(":white_check_mark: *Task health: recovered* ({stage}, tenant {tenant})")];
    lines.extend(tasks.iter().take(LINES_MAX).map(|(request, is_processing)| {
        let how = if *is_processing { "is healthy again" } else { "is no longer processing" };
        format!("• {request} {how}")
    }));
    lines.extend(rest(tasks.len(), "task"));
    lines.extend(findings.iter().map(|kind| format!("• {}: over", kind.as_str())));
    lines.join("\n")
}

fn rest(count: usize, what: &str) -> Option<String> {
    let left = count.checked_sub(LINES_MAX).filter(|left| *left > 0)?;
    Some(format!("and {left} more {what}{}", if left == 1 { "" } else { "s" }))
}

pub fn health_word(health: HealthLevel) -> &'static str {
    match health {
        HealthLevel::Critical => "critical",
        HealthLevel::Overtime => "overtime",
        HealthLevel::Warning => "warning",
        HealthLevel::Healthy => "healthy",
    }
}

/// A span in its two largest units.
pub fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    let two = |first: u64, unit: &str, second: u64, small: &str| match second {
        0 => format!("{first} {unit}"),
        _ => format!("{first} {unit} {second} {small}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use tidemill_model::WorkerId;

    use super::*;

    fn judged(name: &str, worker: Option<&str>) -> Judged {
        Judged {
            health: HealthLevel::Critical,
            silent_millis: Reverse(190_000),
            elapsed_millis: Reverse(3_900_000),
            request: RequestId::trusted(name),
            run: 1,
            attempt: 1,
            worker: worker.map(WorkerId::trusted),
        }
    }

    #[test]
    fn a_line_for_each_task_and_a_count_of_the_rest() {
        let tasks: Vec<_> = (0..22).map(|n| judged(&format!("req-{n}"), Some("w-1"))).collect();
        let tasks: Vec<_> = tasks.iter().collect();
        let text = raised("prod", "acme", &tasks, &[], |_| Some("Task Heartbeat"));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 22);
        assert_eq!(lines[0], ":rotating_light: *Task health* (prod, tenant acme)");
        assert_eq!(
            lines[1],
            "• req-0 critical: running 1 h 5 min, silent for 3 min 10 s, last event Task Heartbeat, w-1"
        );
        assert_eq!(lines[21], "and 2 more tasks");
        let lone = judged("req-1", None);
        let finding = Finding {
            kind: FindingKind::Pending,
            count: 3,
            message: "3 tasks wait".to_owned(),
            examples: Vec::new(),
        };
        let text = raised("prod", "acme", &[&lone], &[&finding], |_| None);
        assert!(text.ends_with("last event unknown, no worker\n• pending: 3 tasks wait"), "{text}");
        let over = [(RequestId::trusted("a"), true), (RequestId::trusted("b"), false)];
        assert_eq!(
            recovered("prod", "acme", &over, &[FindingKind::Outbound]),
            ":white_check_mark: *Task health: recovered* (prod, tenant acme)\n• a is healthy again\n\
             • b is no longer processing\n• outbound: over"
        );
    }

    #[test]
    fn spans_have_their_two_largest_units() {
        for (millis, expected) in [
            (0, "0 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (61_000, "1 min 1 s"),
            (3_600_000, "1 h"),
            (90_061_000, "1 d 1 h"),
        ] {
            assert_eq!(span(millis), expected, "{millis}");
        }
    }
}
