//! When to raise an alarm: once for each task, attempt and health, again after an hour, and once more when it is
//! over.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use tidemill_model::events::properties::HealthLevel;
use tidemill_model::{RequestId, Timestamp};

use crate::health::report::{Finding, FindingKind};
use crate::health::rule::{HealthRules, Judged};
use crate::kernel::clock::AHEAD_MILLIS_MAX;

/// An alarm that stands for this long is repeated.
const REPEAT_MILLIS: u64 = 60 * 60_000;
/// How many of a tenant's worst tasks raise alarms. The others are counted, and raise alarms when these are well.
const REQUESTS_MAX: usize = 1_000;
/// Alarms that are remembered, those of tasks that became less ill included.
const REMEMBERED_MAX: usize = 2 * REQUESTS_MAX;

/// Alarms that were raised and are not over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alarms {
    pub(crate) tasks: Vec<TaskAlarm>,
    pub(crate) findings: Vec<FindingAlarm>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskAlarm {
    pub(crate) request_id: RequestId,
    pub(crate) run: u32,
    pub(crate) attempt: u32,
    pub(crate) health: HealthLevel,
    /// When it was raised first, if it was raised more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) told_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FindingAlarm {
    pub(crate) kind: FindingKind,
    /// When it was raised first, if it was raised more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_at: Option<Timestamp>,
    pub(crate) told_at: Timestamp,
}

impl TaskAlarm {
    pub(crate) fn since(&self) -> Timestamp {
        self.first_at.unwrap_or(self.told_at)
    }
}

impl FindingAlarm {
    pub(crate) fn since(&self) -> Timestamp {
        self.first_at.unwrap_or(self.told_at)
    }
}

/// What a check changes about alarms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change<'c> {
    pub(crate) after: Alarms,
    pub(crate) raised: Vec<&'c Judged>,
    pub(crate) raised_findings: Vec<&'c Finding>,
    /// Tasks that are well again, and whether they are still processing.
    pub(crate) recovered: Vec<(RequestId, bool)>,
    pub(crate) recovered_findings: Vec<FindingKind>,
}

impl Alarms {
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.findings.is_empty()
    }

    /// The alarms to raise now. `ill` are all tasks that are not healthy, the worst first; `processing` are those of
    /// the alarmed tasks that still run.
    pub(crate) fn after<'c>(
        &self,
        ill: &'c [Judged],
        processing: &HashSet<RequestId>,
        findings: &'c [Finding],
        rules: &HealthRules,
        now: Timestamp,
    ) -> Change<'c> {
        let mut change = Change {
            after: Self::default(),
            raised: Vec::new(),
            raised_findings: Vec::new(),
            recovered: Vec::new(),
            recovered_findings: Vec::new(),
        };
        let before: HashMap<&RequestId, &TaskAlarm> =
            self.tasks.iter().map(|alarm| (&alarm.request_id, alarm)).collect();
        let mut alarmed: HashSet<&RequestId> = HashSet::new();
        for task in ill.iter().filter(|task| rules.alarms(task.health)).take(REQUESTS_MAX) {
            let before = before.get(&task.request);
            let known = before.filter(|known| {
                let key = (known.run, known.attempt, known.health);
                key == (task.run, task.attempt, task.health) && was_just_told(known.told_at, now)
            });
            if known.is_none() {
                change.raised.push(task);
            }
            alarmed.insert(&task.request);
            change.after.tasks.push(TaskAlarm {
                request_id: task.request.clone(),
                run: task.run,
                attempt: task.attempt,
                health: task.health,
                first_at: before.map(|known| known.since()),
                told_at: known.map_or(now, |known| known.told_at),
            });
        }
        let ill: HashSet<&RequestId> = ill.iter().map(|task| &task.request).collect();
        for known in self.tasks.iter().filter(|known| !alarmed.contains(&known.request_id)) {
            if !ill.contains(&known.request_id) {
                let is_processing = processing.contains(&known.request_id);
                change.recovered.push((known.request_id.clone(), is_processing));
            } else if change.after.tasks.len() < REMEMBERED_MAX {
                // Better, and not well.
                change.after.tasks.push(known.clone());
            }
        }
        for finding in findings {
            let before = self.findings.iter().find(|known| known.kind == finding.kind);
            let known = before.filter(|known| was_just_told(known.told_at, now));
            if known.is_none() {
                change.raised_findings.push(finding);
            }
            let told_at = known.map_or(now, |known| known.told_at);
            let first_at = before.map(FindingAlarm::since);
            change.after.findings.push(FindingAlarm { kind: finding.kind, first_at, told_at });
        }
        let is_over = |known: &&FindingAlarm| !findings.iter().any(|finding| finding.kind == known.kind);
        change.recovered_findings.extend(self.findings.iter().filter(is_over).map(|known| known.kind));
        change
    }
}

/// Whether it is too early to tell again. One that was told ahead of the clock was told before the clock was set back.
fn was_just_told(told_at: Timestamp, now: Timestamp) -> bool {
    now.since(told_at) < REPEAT_MILLIS && told_at.since(now) <= AHEAD_MILLIS_MAX
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    fn at(minutes: u64) -> Timestamp {
        Timestamp::clamped(1_800_000_000_000 + minutes * 60_000)
    }

    fn ill(name: &str, attempt: u32, health: HealthLevel) -> Judged {
        Judged {
            health,
            silent_millis: Reverse(1),
            elapsed_millis: Reverse(1),
            request: RequestId::trusted(name),
            run: 1,
            attempt,
            worker: None,
        }
    }

    fn finding(kind: FindingKind) -> Finding {
        Finding { kind, count: 1, message: "it is so".to_owned(), examples: Vec::new() }
    }

    /// What a series of checks tells, one line each: `+t-1` raised, `-t-1` well again, `.t-1` gone.
    #[derive(Default)]
    struct Series {
        alarms: Alarms,
        rules: HealthRules,
    }

    impl Series {
        fn check(
            &mut self,
            minute: u64,
            tasks: &[Judged],
            found: &[FindingKind],
            healthy: &[&str],
        ) -> String {
            let findings: Vec<_> = found.iter().copied().map(finding).collect();
            let all = healthy.iter().map(|name| RequestId::trusted(name));
            let processing = all.chain(tasks.iter().map(|task| task.request.clone())).collect();
            let change = self.alarms.after(tasks, &processing, &findings, &self.rules, at(minute));
            let raised = change.raised.iter().map(|task| format!("+{}", task.request));
            let recovered = change.recovered.iter();
            let recovered =
                recovered.map(|(task, processing)| format!("{}{task}", if *processing { "-" } else { "." }));
            let more = change.raised_findings.iter().map(|finding| format!("+{}", finding.kind.as_str()));
            let over = change.recovered_findings.iter().map(|kind| format!("-{}", kind.as_str()));
            let told: Vec<_> = raised.chain(recovered).chain(more).chain(over).collect();
            self.alarms = change.after;
            told.join(" ")
        }
    }

    #[test]
    fn a_task_is_told_of_once_and_again_when_it_is_well() {
        let mut series = Series::default();
        let stuck = [ill("t-1", 1, HealthLevel::Critical)];
        assert_eq!(series.check(0, &stuck, &[], &[]), "+t-1");
        assert_eq!(series.check(5, &stuck, &[], &[]), "");
        assert_eq!(series.check(10, &stuck, &[], &[]), "");
        assert_eq!(series.check(15, &[], &[], &["t-1"]), "-t-1");
        assert_eq!(series.check(20, &[], &[], &["t-1"]), "");
        assert_eq!(series.check(25, &stuck, &[], &[]), "+t-1", "it is another time");
        assert_eq!(series.check(30, &[], &[], &[]), ".t-1", "it ended");
        assert!(series.alarms.is_empty());
    }

    #[test]
    fn another_attempt_another_health_and_an_hour_are_told() {
        let mut series = Series::default();
        for (minute, tasks, expected) in [
            (0, [ill("t-1", 1, HealthLevel::Overtime)], "+t-1"),
            (5, [ill("t-1", 1, HealthLevel::Critical)], "+t-1"),
            (10, [ill("t-1", 2, HealthLevel::Critical)], "+t-1"),
            (69, [ill("t-1", 2, HealthLevel::Critical)], ""),
            (70, [ill("t-1", 2, HealthLevel::Critical)], "+t-1"),
            (75, [ill("t-1", 2, HealthLevel::Critical)], ""),
        ] {
            assert_eq!(series.check(minute, &tasks, &[], &[]), expected, "minute {minute}");
        }
    }

    #[test]
    fn what_was_told_before_the_clock_was_set_back_is_told_again() {
        let mut series = Series::default();
        let stuck = [ill("t-1", 1, HealthLevel::Critical)];
        assert_eq!(series.check(10_000, &stuck, &[FindingKind::Pending], &[]), "+t-1 +pending");
        assert_eq!(series.check(0, &stuck, &[FindingKind::Pending], &[]), "+t-1 +pending");
        assert_eq!(series.check(5, &stuck, &[FindingKind::Pending], &[]), "");
    }

    #[test]
    fn warnings_alarm_only_who_wants_them() {
        let warned = [ill("t-1", 1, HealthLevel::Warning)];
        let mut series = Series::default();
        assert_eq!(series.check(0, &warned, &[], &[]), "");
        assert_eq!(series.check(5, &[], &[], &["t-1"]), "", "nobody heard of it");
        assert_eq!(series.check(10, &[ill("t-1", 1, HealthLevel::Critical)], &[], &[]), "+t-1");
        assert_eq!(series.check(15, &warned, &[], &[]), "", "better, and not well");
        assert_eq!(series.check(20, &[], &[], &["t-1"]), "-t-1");
        series.rules.alert_warnings = true;
        assert_eq!(series.check(25, &warned, &[], &[]), "+t-1");
    }

    #[test]
    fn findings_are_told_once_an_hour_and_when_they_are_over() {
        let mut series = Series::default();
        let found = [FindingKind::Pending, FindingKind::Outbound];
        assert_eq!(series.check(0, &[], &found, &[]), "+pending +outbound");
        assert_eq!(series.check(59, &[], &found, &[]), "");
        assert_eq!(series.check(60, &[], &found[..1], &[]), "+pending -outbound");
        assert_eq!(series.check(65, &[], &[], &[]), "-pending");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_nobody_is_called_well_who_is_not() {
        let mut series = Series::default();
        let many = |range: std::ops::Range<usize>, health| -> Vec<Judged> {
            range.map(|n| ill(&format!("t-{n:05}"), 1, health)).collect()
        };
        let told = series.check(0, &many(0..5_000, HealthLevel::Overtime), &[], &[]);
        assert_eq!(told.split(' ').count(), REQUESTS_MAX);
        // Worse ones push them aside.
        let mut both = many(5_000..9_000, HealthLevel::Critical);
        both.extend(many(0..5_000, HealthLevel::Overtime));
        let told = series.check(5, &both, &[], &[]);
        assert!(told.split(' ').all(|word| word.starts_with('+')), "nobody is well");
        assert_eq!(series.alarms.tasks.len(), REMEMBERED_MAX);
        assert_eq!(series.check(10, &both, &[], &[]), "");
    }
}
