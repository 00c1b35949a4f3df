//! Attempts by the names that people gave: the definition of the task and the job. A tenant's names are its own.
//!
//! Names come from requests, so whatever they are, no more than a bounded number of them is held. Those that do not fit
//! are counted under [`OTHER`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidemill_model::TenantId;

/// Pairs of definition and job that are counted for a tenant by both names, and definitions that are counted by their name
/// alone after that.
pub const METRIC_NAMES_MAX: usize = 100;
/// What is shown of a name, in characters.
pub const METRIC_NAME_CHARS_MAX: usize = 100;
/// Tenants whose names are counted. Those that come later have none.
pub const METRIC_TENANTS_MAX: usize = 1_000;
/// Stands for names that found no place.
pub const OTHER: &str = "other";

/// What was counted under one definition and job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedCounts {
    /// Attempts that workers took.
    pub claimed: u64,
    /// Attempts whose end was reported, by what followed.
    pub ended: BTreeMap<&'static str, u64>,
    /// How long those had been held, in milliseconds.
    pub held_millis: u64,
}

/// Attempts of a tenant by definition and job; the job is empty for tasks without one and for jobs without a name.
pub type NamedMetrics = BTreeMap<(String, String), NamedCounts>;

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
pub(super) struct NameMeter(Mutex<Map<TenantId, Names>>);

#[derive(Debug, Default)]
struct Names {
    /// By definition, then by job.
    counts: Map<Box<str>, Map<Box<str>, NamedCounts>>,
    pairs: usize,
    definitions: usize,
}

impl NameMeter {
    pub(super) fn claimed(&self, tenant: &TenantId, definition: &str, job: Option<&str>) {
        self.count(tenant, definition, job, |counts| counts.claimed += 1);
    }

    pub(super) fn ended(
        &self,
        tenant: &TenantId,
        (definition, job): (&str, Option<&str>),
        outcome: &'static str,
        held_millis: u64,
    ) {
        self.count(tenant, definition, job, |counts| {
            *counts.ended.entry(outcome).or_default() += 1;
            counts.held_millis = counts.held_millis.saturating_add(held_millis);
        });
    }

    /// What was counted for one tenant.
    pub(super) fn read(&self, tenant: &TenantId) -> NamedMetrics {
        let all = self.lock();
        let Some(names) = all.get(tenant) else { return NamedMetrics::new() };
        let pairs = names.counts.iter().flat_map(|(definition, jobs)| {
            jobs.iter().map(move |(job, counts)| {
                ((String::from(&**definition), String::from(&**job)), counts.clone())
            })
        });
        pairs.collect()
    }

    fn count(
        &self,
        tenant: &TenantId,
        definition: &str,
        job: Option<&str>,
        count: impl FnOnce(&mut NamedCounts),
    ) {
        let mut all = self.lock();
        if !all.contains_key(tenant) {
            if all.len() >= METRIC_TENANTS_MAX {
                return;
            }
            all.insert(tenant.clone(), Names::default());
        }
        if let Some(names) = all.get_mut(tenant) {
            count(names.of(cut(definition), cut(job.unwrap_or_default())));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Map<TenantId, Names>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    /// Where a pair is counted. A name that is known costs two lookups and no memory.
    fn of(&mut self, definition: &str, job: &str) -> &mut NamedCounts {
        let knows = |definition, job| self.counts.get(definition).is_some_and(|jobs| jobs.contains_key(job));
        let (definition, job) = if knows(definition, job) {
            (definition, job)
        } else if self.pairs < METRIC_NAMES_MAX {
            self.pairs += 1;
            (definition, job)
        } else if knows(definition, OTHER) {
            (definition, OTHER)
        } else if self.definitions < METRIC_NAMES_MAX {
            self.definitions += 1;
            (definition, OTHER)
        } else {
            (OTHER, OTHER)
        };
        place(place(&mut self.counts, definition), job)
    }
}

/// The value of a key, which is made if it is not there.
fn place<'m, V: Default>(map: &'m mut Map<Box<str>, V>, key: &str) -> &'m mut V {
    if !map.contains_key(key) {
        map.insert(key.into(), V::default());
    }
    map.get_mut(key).expect("it was put there if it was not")
}

/// The beginning of a name.
fn cut(name: &str) -> &str {
    // A name has no more characters than bytes.
    if name.len() <= METRIC_NAME_CHARS_MAX {
        return name;
    }
    name.char_indices().nth(METRIC_NAME_CHARS_MAX).map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::trusted(name)
    }

    fn claimed(meter: &NameMeter, of: &str, pairs: &[(&str, &str)]) -> Vec<u64> {
        let read = meter.read(&tenant(of));
        let of = |(definition, job): &(&str, &str)| {
            read.get(&((*definition).to_owned(), (*job).to_owned())).map_or(0, |counts| counts.claimed)
        };
        pairs.iter().map(of).collect()
    }

    #[test]
    fn names_belong_to_their_tenant() {
        let meter = NameMeter::default();
        meter.claimed(&tenant("acme"), "scrape", Some("nightly"));
        meter.claimed(&tenant("acme"), "scrape", None);
        meter.ended(&tenant("acme"), ("scrape", Some("nightly")), "completed", 1_500);
        meter.claimed(&tenant("other"), "mine", None);
        let counts =
            NamedCounts { claimed: 1, ended: BTreeMap::from([("completed", 1)]), held_millis: 1_500 };
        let alone = NamedCounts { claimed: 1, ..NamedCounts::default() };
        let pair = |job: &str| ("scrape".to_owned(), job.to_owned());
        let expected = BTreeMap::from([(pair("nightly"), counts), (pair(""), alone)]);
        assert_eq!(meter.read(&tenant("acme")), expected);
        assert_eq!(claimed(&meter, "other", &[("mine", ""), ("scrape", "nightly")]), [1, 0]);
        assert_eq!(meter.read(&tenant("nobody")), NamedMetrics::new());
    }

    #[test]
    fn names_that_find_no_place_are_counted_together_and_hold_no_memory() {
        let meter = NameMeter::default();
        let acme = tenant("acme");
        // A job that is named anew each time takes all the places of pairs; definitions still have their own.
        for number in 0..METRIC_NAMES_MAX + 50 {
            meter.claimed(&acme, "scrape", Some(&format!("night {number}")));
        }
        assert_eq!(claimed(&meter, "acme", &[("scrape", "night 0"), ("scrape", OTHER)]), [1, 50]);
        meter.claimed(&acme, "parse", Some("night 0"));
        assert_eq!(claimed(&meter, "acme", &[("parse", OTHER), ("parse", "night 0")]), [1, 0]);
        for number in 0..2 * METRIC_NAMES_MAX {
            meter.claimed(&acme, &format!("definition {number}"), None);
        }
        meter.claimed(&acme, "scrape", Some("night 0"));
        let beyond = 2 * METRIC_NAMES_MAX - (METRIC_NAMES_MAX - 2);
        let found = claimed(&meter, "acme", &[("scrape", "night 0"), (OTHER, OTHER)]);
        assert_eq!(found, [2, beyond as u64], "what is known stays known");
        assert_eq!(meter.read(&acme).len(), 2 * METRIC_NAMES_MAX + 1);
        let total: u64 = meter.read(&acme).values().map(|counts| counts.claimed).sum();
        assert_eq!(total, (METRIC_NAMES_MAX + 50 + 1 + 2 * METRIC_NAMES_MAX + 1) as u64, "each counts once");
    }

    #[test]
    fn a_definition_that_is_called_other_is_counted_with_the_others() {
        let meter = NameMeter::default();
        for number in 0..3 * METRIC_NAMES_MAX {
            meter.claimed(&tenant("acme"), &format!("definition {number}"), Some(OTHER));
            meter.claimed(&tenant("acme"), OTHER, Some(OTHER));
        }
        let total: u64 = meter.read(&tenant("acme")).values().map(|counts| counts.claimed).sum();
        assert_eq!(total, 6 * METRIC_NAMES_MAX as u64);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        for (name, bytes) in [("", 0), ("scrape", 6), (&"x".repeat(100), 100), (&"x".repeat(5_000), 100)] {
            assert_eq!(cut(name).len(), bytes);
        }
        assert_eq!(cut(&"é".repeat(5_000)), "é".repeat(METRIC_NAME_CHARS_MAX));
        assert_eq!(cut(&"é".repeat(60)), "é".repeat(60));
    }

    #[test]
    fn no_more_tenants_are_held_than_fit() {
        let meter = NameMeter::default();
        for number in 0..METRIC_TENANTS_MAX + 10 {
            meter.claimed(&tenant(&format!("t-{number}")), "scrape", None);
        }
        assert_eq!(meter.lock().len(), METRIC_TENANTS_MAX);
        meter.claimed(&tenant("t-0"), "scrape", None);
        assert_eq!(claimed(&meter, "t-0", &[("scrape", "")]), [2]);
    }
}
