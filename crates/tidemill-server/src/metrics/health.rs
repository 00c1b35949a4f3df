//! What the last checks of health found.

use tidemill_engine::health::{FindingKind, LastCheck};

use super::text::{Kind, Text, scaled};

pub(super) fn render(checks: &[LastCheck], text: &mut Text) {
    let sum = |of: fn(&LastCheck) -> u32| checks.iter().map(|check| u64::from(of(check))).sum::<u64>();
    text.family(
        "tidemill_health_tasks",
        Kind::Gauge,
        "Tasks that were being processed when health was checked last, by how they stood.",
    );
    for (health, count) in [
        ("healthy", sum(|check| check.summary.healthy)),
        ("warning", sum(|check| check.summary.warning)),
        ("critical", sum(|check| check.summary.critical)),
        ("overtime", sum(|check| check.summary.overtime)),
    ] {
        text.sample(&[("health", health)], count);
    }
    text.family(
        "tidemill_health_findings",
        Kind::Gauge,
        "What stood for too long when health was checked last, by kind.",
    );
    for kind in FindingKind::ALL {
        let found = checks.iter().filter_map(|check| check.findings.get(&kind)).sum::<u64>();
        text.sample(&[("kind", kind.as_str())], found);
    }
    let last = checks.iter().map(|check| check.checked_at.millis()).max().unwrap_or(0);
    text.gauge(
        "tidemill_health_last_check_timestamp_seconds",
        "When health was checked last, in seconds since 1970; 0 before the first time.",
        scaled(last, 3),
    );
}
