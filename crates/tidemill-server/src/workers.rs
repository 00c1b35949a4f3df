//! Workers on other machines: what they call themselves, which tenants they serve, and when they last reported.
//!
//! Nothing here is durable: a worker that is alive comes again within seconds. The leases say which tasks it has. A
//! name belongs to the key that uses it, so that nobody learns of workers that serve others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_model::TenantId;

use crate::admission::caller::Caller;

/// Workers of one key that are remembered. Beyond it the one that was silent for longest is forgotten.
const WORKERS_PER_KEY_MAX: usize = 1_000;
/// How long a worker that is silent is remembered.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<HashMap<String, Team>>);

/// The workers of one key.
#[derive(Debug, Default)]
struct Team {
    tenants: Arc<[TenantId]>,
    by_name: HashMap<String, Known>,
}

/// What is known of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) heard: Instant,
    /// The tasks that it runs at a time, if it said so.
    pub(crate) slots: Option<u32>,
}

impl Workers {
    /// Notes that a worker spoke. Only a claim names its slots.
    pub(crate) fn note_contact(&self, caller: &Caller, worker: &str, slots: Option<u32>, now: Instant) {
        let mut teams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !teams.contains_key(caller.name()) {
            // Keys that came to an end take their workers along.
            teams.retain(|_, team| team.by_name.values().any(|known| is_remembered(*known, now)));
        }
        let team = teams.entry(caller.name().to_owned()).or_default();
        team.tenants = Arc::clone(caller.tenants());
        if let Some(known) = team.by_name.get_mut(worker) {
            *known = Known { heard: now, slots: slots.or(known.slots) };
            return;
        }
        if team.by_name.len() >= WORKERS_PER_KEY_MAX {
            let oldest = team.by_name.iter().min_by_key(|(_, known)| known.heard);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                team.by_name.remove(&oldest);
            }
        }
        team.by_name.insert(worker.to_owned(), Known { heard: now, slots });
    }

    /// The workers that serve a tenant. One that came with several keys counts as it was last heard.
    pub(crate) fn of(&self, tenant: &TenantId, now: Instant) -> HashMap<String, Known> {
        let teams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found: HashMap<String, Known> = HashMap::new();
        for team in teams.values().filter(|team| team.tenants.contains(tenant)) {
            for (name, known) in team.by_name.iter().filter(|(_, known)| is_remembered(**known, now)) {
                let newest = found.entry(name.clone()).or_insert(*known);
                if newest.heard < known.heard {
                    *newest = *known;
                }
            }
        }
        found
    }
}

fn is_remembered(known: Known, now: Instant) -> bool {
    now.duration_since(known.heard) < REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Role;

    fn caller(key: &str, tenants: &[&str]) -> Caller {
        let tenants: Vec<_> = tenants.iter().map(|tenant| TenantId::trusted(tenant)).collect();
        Caller::key(key, Role::Worker, &tenants)
    }

    fn names(workers: &Workers, tenant: &str, now: Instant) -> Vec<String> {
        let mut names: Vec<_> = workers.of(&TenantId::trusted(tenant), now).into_keys().collect();
        names.sort();
        names
    }

    #[test]
    fn a_worker_is_known_to_the_tenants_of_its_key() {
        let (workers, now) = (Workers::default(), Instant::now());
        workers.note_contact(&caller("k1", &["a", "b"]), "both", Some(4), now);
        workers.note_contact(&caller("k2", &["b"]), "own", None, now);
        assert_eq!(names(&workers, "a", now), ["both"]);
        assert_eq!(names(&workers, "b", now), ["both", "own"]);
        assert_eq!(names(&workers, "c", now), [""; 0]);
        let later = now + REMEMBERED / 2;
        workers.note_contact(&caller("k1", &["a", "b"]), "both", None, later);
        let both = workers.of(&TenantId::trusted("a"), later)["both"];
        assert_eq!(both, Known { heard: later, slots: Some(4) }, "a heartbeat does not tell slots");
        assert_eq!(names(&workers, "b", now + REMEMBERED), ["both"], "the other was silent for too long");
    }

    #[test]
    fn a_key_that_makes_names_up_crowds_out_its_own_alone() {
        let (workers, now) = (Workers::default(), Instant::now());
        workers.note_contact(&caller("k2", &["a"]), "steady", None, now);
        for number in 0..WORKERS_PER_KEY_MAX + 5 {
            let at = now + Duration::from_millis(u64::try_from(number).unwrap());
            workers.note_contact(&caller("k1", &["a"]), &format!("w-{number:05}"), None, at);
        }
        let known = names(&workers, "a", now + Duration::from_secs(2));
        assert_eq!(known.len(), WORKERS_PER_KEY_MAX + 1);
        assert!(known.contains(&"steady".to_owned()) && !known.contains(&"w-00000".to_owned()));
    }
}
