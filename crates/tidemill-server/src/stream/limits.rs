//! How many streams each key and each tenant has open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::admission::caller::Caller;
use crate::problem::Problem;

/// Seconds after which a stream may have ended.
const RETRY_SECONDS: u64 = 5;

#[derive(Debug, Clone)]
pub(crate) struct StreamLimits {
    per_key: Places,
    per_tenant: Places,
}

/// One open stream. Dropping it gives its places back.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    _key: Place,
    _tenant: Option<Place>,
}

impl StreamLimits {
    pub(crate) fn new(per_key_max: usize, per_tenant_max: usize) -> Self {
        Self { per_key: Places::new(per_key_max), per_tenant: Places::new(per_tenant_max) }
    }

    /// A place for one more stream of this caller, if there is one.
    pub(crate) fn take(&self, caller: &Caller) -> Result<StreamPermit, Problem> {
        let full = |code, detail| Problem::too_many(code, detail, RETRY_SECONDS);
        let key = self.per_key.take(caller.name());
        let key = key.ok_or_else(|| full("TOO_MANY_STREAMS", "this key has too many streams open"))?;
        let tenant = match caller.limited_tenant() {
            Some(tenant) => Some(self.per_tenant.take(tenant.as_str()).ok_or_else(|| {
                full("TENANT_TOO_MANY_STREAMS", "the keys of this tenant have too many streams open")
            })?),
            None => None,
        };
        Ok(StreamPermit { _key: key, _tenant: tenant })
    }
}

/// Places by name, at most `most` for each.
#[derive(Debug, Clone)]
struct Places {
    most: usize,
    open: Arc<Mutex<HashMap<Box<str>, usize>>>,
}

#[derive(Debug)]
struct Place {
    places: Places,
    name: Box<str>,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    fn take(&self, name: &str) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(name.into()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Place { places: self.clone(), name: name.into() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::{Role, TenantId};

    use super::*;

    #[test]
    fn places_are_per_key_and_per_tenant_and_come_back() {
        let limits = StreamLimits::new(2, 3);
        let taken = |key: &str, tenant: &str| {
            let caller = Caller::key(key, Role::Reader, &[TenantId::trusted(tenant)]);
            limits.take(&caller).map_err(|problem| problem.code.into_owned())
        };
        let first = taken("a", "acme").unwrap();
        let _second = taken("a", "acme").unwrap();
        assert_eq!(taken("a", "acme").unwrap_err(), "TOO_MANY_STREAMS");
        let _third = taken("b", "acme").unwrap();
        assert_eq!(taken("b", "acme").unwrap_err(), "TENANT_TOO_MANY_STREAMS");
        let _other = taken("c", "globex").unwrap();
        drop(first);
        assert!(taken("b", "acme").is_ok());
        let local = Caller::local(TenantId::trusted("acme"));
        assert!(limits.take(&local).is_ok(), "who has no key has a place of their own");
    }
}
