//! Alerts: when too many of a tenant's scripts fail, and when too many executions wait.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use tidemill_model::{Json, TenantId, Timestamp};

use crate::outbound::JOB_FAILED;

/// The span over which failures are counted.
const WINDOW_MILLIS: u64 = 5 * 60_000;
/// With fewer runs in that time nothing is said.
const RUNS_MIN: usize = 20;
/// An alert is raised above and cleared below, in percent.
const FAILURES_RAISE: usize = 10;
const FAILURES_CLEAR: usize = 5;
const DEPTH_RAISE: usize = 90;
const DEPTH_CLEAR: usize = 80;
/// An alert that stands for this long is repeated.
const REPEAT_MILLIS: u64 = 60 * 60_000;
/// Runs of one tenant that are remembered. More than these in the window make the window shorter.
const RUNS_MAX: usize = 10_000;

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    ScriptFailureRate,
    ScriptQueueDepth,
    /// Parked executions will be given up soon. It stands as long as there are such.
    ParkedExpiring,
    /// Something that a check of health told. It stands until another check finds it no more.
    TaskHealth,
    /// Jobs failed. It stands until people got the alert.
    JobFailed,
}

impl AlertKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScriptFailureRate => "script_failure_rate",
            Self::ScriptQueueDepth => "script_queue_depth",
            Self::ParkedExpiring => "parked_expiring",
            Self::TaskHealth => "task_health",
            Self::JobFailed => JOB_FAILED,
        }
    }
}

/// An alert that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StandingAlert {
    pub kind: AlertKind,
    pub tenant_id: TenantId,
    pub raised_at: Timestamp,
    /// In words.
    pub message: String,
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Telling {
    pub(crate) tenant: TenantId,
    pub(crate) kind: AlertKind,
    pub(crate) is_raised: bool,
    pub(crate) message: String,
    pub(crate) properties: Json,
}

#[derive(Debug, Default)]
pub(crate) struct Alerts {
    tenants: BTreeMap<TenantId, Runs>,
    depth: Option<(TenantId, Standing)>,
}

#[derive(Debug, Default)]
struct Runs {
    /// When each run ended, and whether it failed.
    ended: VecDeque<(Timestamp, bool)>,
    failed: usize,
    standing: Option<Standing>,
    /// Until then runs of a former life belong to the window, and nobody knows how they ended.
    blind_until: Option<Timestamp>,
}

#[derive(Debug)]
struct Standing {
    since: Timestamp,
    told: Timestamp,
    message: String,
}

/// What is read back of an alert that stands.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    alert: AlertKind,
    message: String,
    raised_at: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Properties<'a> {
    alert: AlertKind,
    message: &'a str,
    value_percent: usize,
    threshold_percent: usize,
    raised_at: Timestamp,
}

impl Alerts {
    /// Takes over an alert that a former life raised, by its properties.
    pub(crate) fn restore(&mut self, tenant: &TenantId, properties: &[u8], now: Timestamp) {
        let Ok(Stored { alert, message, raised_at }) = serde_json::from_slice(properties) else { return };
        let standing = Standing { since: raised_at, told: now, message };
        match alert {
            AlertKind::ScriptFailureRate => {
                let runs = self.tenants.entry(tenant.clone()).or_default();
                if runs.standing.is_none() {
                    runs.standing = Some(standing);
                    runs.blind_until = Some(now.plus(WINDOW_MILLIS));
                }
            }
            AlertKind::ScriptQueueDepth => {
                self.depth.get_or_insert_with(|| (tenant.clone(), standing));
            }
            // The executions and deliveries themselves tell it, and what is kept of the check.
            AlertKind::ParkedExpiring | AlertKind::TaskHealth | AlertKind::JobFailed => {}
        }
    }

    /// A run of a tenant's script ended.
    pub(crate) fn ended(&mut self, tenant: &TenantId, failed: bool, now: Timestamp) -> Option<Telling> {
        if !self.tenants.contains_key(tenant) {
            self.tenants.insert(tenant.clone(), Runs::default());
        }
        let runs = self.tenants.get_mut(tenant)?;
        runs.ended.push_back((now, failed));
        runs.failed += usize::from(failed);
        runs.look(tenant, now)
    }

    /// Time has passed: what is old no longer counts. Call it every so often.
    pub(crate) fn pass(&mut self, now: Timestamp) -> Vec<Telling> {
        let mut told = Vec::new();
        self.tenants.retain(|tenant, runs| {
            told.extend(runs.look(tenant, now));
            !runs.ended.is_empty() || runs.standing.is_some()
        });
        told
    }

    /// `waiting` of `buffer` executions wait, most of them of `fullest`.
    pub(crate) fn depth(
        &mut self,
        waiting: usize,
        buffer: usize,
        fullest: Option<&TenantId>,
        now: Timestamp,
    ) -> Option<Telling> {
        let percent = waiting * 100 / buffer.max(1);
        let message = format!("{waiting} executions of scripts wait; the buffer is {buffer}");
        let tenant = self.depth.as_ref().map_or(fullest, |(tenant, _)| Some(tenant))?.clone();
        let mut standing = self.depth.take().map(|(_, standing)| standing);
        let limits = Limits { raise: DEPTH_RAISE, clear: DEPTH_CLEAR };
        let is_over = waiting * 100 > buffer * DEPTH_RAISE;
        let sight = Sight { percent, is_over, is_under: percent < DEPTH_CLEAR, message };
        let told = raise_or_clear(&mut standing, AlertKind::ScriptQueueDepth, &tenant, sight, limits, now);
        self.depth = standing.map(|standing| (tenant, standing));
        told
    }

    /// The alerts that stand; of one tenant if it is given.
    pub(crate) fn standing(&self, tenant: Option<&TenantId>) -> Vec<StandingAlert> {
        let rates = self.tenants.iter().filter_map(|(tenant, runs)| {
            Some((AlertKind::ScriptFailureRate, tenant, runs.standing.as_ref()?))
        });
        let depth =
            self.depth.iter().map(|(tenant, standing)| (AlertKind::ScriptQueueDepth, tenant, standing));
        rates
            .chain(depth)
            .filter(|(_, whose, _)| tenant.is_none_or(|tenant| tenant == *whose))
            .map(|(kind, tenant, standing)| StandingAlert {
                kind,
                tenant_id: tenant.clone(),
                raised_at: standing.since,
                message: standing.message.clone(),
            })
            .collect()
    }
}

impl Runs {
    fn look(&mut self, tenant: &TenantId, now: Timestamp) -> Option<Telling> {
        while let Some((at, failed)) = self.ended.front()
            && (now.since(*at) >= WINDOW_MILLIS || self.ended.len() > RUNS_MAX)
        {
            self.failed -= usize::from(*failed);
            self.ended.pop_front();
        }
        let (failed, runs) = (self.failed, self.ended.len());
        let is_blind = self.blind_until.is_some_and(|until| now < until) && runs < RUNS_MIN;
        let percent = failed * 100 / runs.max(1);
        let message = format!("{failed} of {runs} runs of scripts failed in the last 5 minutes");
        let sight = Sight {
            percent,
            is_over: runs >= RUNS_MIN && failed * 100 > runs * FAILURES_RAISE,
            // Without runs nothing fails.
            is_under: !is_blind && failed * 100 < (runs * FAILURES_CLEAR).max(1),
            message,
        };
        let limits = Limits { raise: FAILURES_RAISE, clear: FAILURES_CLEAR };
        raise_or_clear(&mut self.standing, AlertKind::ScriptFailureRate, tenant, sight, limits, now)
    }
}

struct Sight {
    percent: usize,
    is_over: bool,
    is_under: bool,
    message: String,
}

#[derive(Clone, Copy)]
struct Limits {
    raise: usize,
    clear: usize,
}

fn raise_or_clear(
    standing: &mut Option<Standing>,
    kind: AlertKind,
    tenant: &TenantId,
    sight: Sight,
    limits: Limits,
    now: Timestamp,
) -> Option<Telling> {
    let Sight { percent, is_over, is_under, message } = sight;
    let (since, is_raised) = match standing {
        None if is_over => {
            *standing = Some(Standing { since: now, told: now, message: message.clone() });
            (now, true)
        }
        Some(known) if is_under => {
            let since = known.since;
            *standing = None;
            (since, false)
        }
        Some(known) if is_over && now.since(known.told) >= REPEAT_MILLIS => {
            known.told = now;
            known.message.clone_from(&message);
            (known.since, true)
        }
        _ => return None,
    };
    let properties = Json::of(&Properties {
        alert: kind,
        message: &message,
        value_percent: percent,
        threshold_percent: if is_raised { limits.raise } else { limits.clear },
        raised_at: since,
    });
    Some(Telling { tenant: tenant.clone(), kind, is_raised, message, properties })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acme() -> TenantId {
        TenantId::trusted("acme")
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::clamped(1_800_000_000_000 + seconds * 1_000)
    }

    fn runs(alerts: &mut Alerts, total: usize, failed: usize, now: Timestamp) -> Vec<bool> {
        let ended = (0..total).filter_map(|n| alerts.ended(&acme(), n < failed, now));
        ended.map(|telling| telling.is_raised).collect()
    }

    #[test]
    fn three_of_twenty_raise_and_one_of_twenty_does_not() {
        for (total, failed, expected) in
            [(20, 3, vec![true]), (20, 1, vec![]), (20, 2, vec![]), (19, 19, vec![]), (21, 21, vec![true])]
        {
            assert_eq!(runs(&mut Alerts::default(), total, failed, at(0)), expected, "{failed} of {total}");
        }
    }

    #[test]
    fn an_episode_is_told_once_an_hour_and_cleared_once() {
        let mut alerts = Alerts::default();
        assert_eq!(runs(&mut alerts, 20, 20, at(0)), [true]);
        assert_eq!(runs(&mut alerts, 20, 20, at(60)), Vec::<bool>::new(), "once per episode");
        assert_eq!(alerts.standing(Some(&acme())).len(), 1);
        assert!(alerts.standing(Some(&TenantId::trusted("other"))).is_empty());
        for minute in 2..60 {
            assert_eq!(runs(&mut alerts, 20, 20, at(minute * 60)), Vec::<bool>::new(), "minute {minute}");
        }
        assert_eq!(runs(&mut alerts, 20, 20, at(3_600)), [true], "an hour later");
        // All of it is long ago.
        let told = alerts.pass(at(3_600 + 400));
        assert_eq!(told.len(), 1);
        assert!(!told[0].is_raised);
        assert!(alerts.standing(None).is_empty());
        assert!(alerts.pass(at(9_000)).is_empty());
    }

    #[test]
    fn it_is_cleared_below_five_percent_and_not_before() {
        let mut alerts = Alerts::default();
        assert_eq!(runs(&mut alerts, 20, 3, at(0)), [true]);
        assert_eq!(runs(&mut alerts, 40, 0, at(1)), Vec::<bool>::new(), "3 of 60 are 5 %");
        assert_eq!(runs(&mut alerts, 1, 0, at(1)), [false]);
    }

    #[test]
    fn an_alert_of_a_former_life_stands_until_something_is_known() {
        let mut former = Alerts::default();
        assert_eq!(runs(&mut former, 19, 19, at(0)), Vec::<bool>::new());
        let raised = former.ended(&acme(), true, at(1)).unwrap();
        let deep = former.depth(2_000, 1_000, Some(&acme()), at(1)).unwrap();
        let restored = |now| {
            let mut alerts = Alerts::default();
            alerts.restore(&acme(), raised.properties.as_str().as_bytes(), now);
            alerts.restore(&acme(), deep.properties.as_str().as_bytes(), now);
            alerts
        };
        let mut alerts = restored(at(10));
        assert_eq!(alerts.standing(None), former.standing(None));
        assert!(alerts.pass(at(10)).is_empty(), "that nothing was seen yet says nothing");
        assert_eq!(alerts.depth(0, 1_000, None, at(11)).map(|told| told.is_raised), Some(false));
        let told = alerts.pass(at(310));
        assert_eq!(
            told.iter().map(|told| told.is_raised).collect::<Vec<_>>(),
            [false],
            "a whole window later"
        );
        assert!(alerts.standing(None).is_empty());
        assert_eq!(runs(&mut restored(at(10)), 20, 0, at(11)), [false], "or with enough good runs");
        assert_eq!(
            runs(&mut restored(at(10)), 20, 20, at(11)),
            Vec::<bool>::new(),
            "it goes on, and was told"
        );
        let mut strange = Alerts::default();
        strange.restore(&acme(), b"{}", at(0));
        assert!(strange.standing(None).is_empty());
    }

    #[test]
    fn depth_counts_against_the_buffer() {
        let mut alerts = Alerts::default();
        assert_eq!(alerts.depth(900, 1_000, Some(&acme()), at(0)), None);
        assert!(alerts.depth(901, 1_000, Some(&acme()), at(0)).unwrap().is_raised);
        assert_eq!(alerts.depth(2_000, 1_000, Some(&acme()), at(1)), None);
        assert_eq!(alerts.depth(850, 1_000, Some(&acme()), at(2)), None, "nearly is not below");
        assert!(!alerts.depth(0, 1_000, None, at(3)).unwrap().is_raised);
    }
}
