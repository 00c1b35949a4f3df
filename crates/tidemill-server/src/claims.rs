//! Claims by name: asking again gives the same tasks.
//!
//! An answer can be lost on its way. The worker then asks again under the same name and gets what it had been given,
//! as long as it is remembered here; after that the leases run out by themselves.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill_engine::reply::Assignment;

/// Claims that are remembered. Beyond it the oldest are forgotten.
const CLAIMS_MAX: usize = 4_096;
/// How long they are remembered: far longer than a worker that is alive takes to ask again.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The caller and worker of a claim, and its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ClaimName {
    pub(crate) caller: String,
    pub(crate) worker: String,
    pub(crate) claim: String,
}

/// What a claim gave, once it gave something. The request that holds the lock is working on it.
pub(crate) type Given = Arc<tokio::sync::Mutex<Option<Taken>>>;

/// Tasks that were claimed.
#[derive(Debug, Clone)]
pub(crate) struct Taken {
    pub(crate) tasks: Vec<Assignment>,
    /// Their leases began no earlier.
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_name: HashMap<ClaimName, Given>,
    /// Oldest first.
    order: VecDeque<(Instant, ClaimName)>,
}

impl Claims {
    pub(crate) fn given(&self, name: ClaimName, now: Instant) -> Given {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(given) = table.by_name.get(&name) {
            return Arc::clone(given);
        }
        while let Some((since, _)) = table.order.front() {
            if table.order.len() < CLAIMS_MAX && now.duration_since(*since) < REMEMBERED {
                break;
            }
            if let Some((_, oldest)) = table.order.pop_front() {
                table.by_name.remove(&oldest);
            }
        }
        let given = Given::default();
        table.by_name.insert(name.clone(), Arc::clone(&given));
        table.order.push_back((now, name));
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_remembered_up_to_a_limit() {
        let claims = Claims::default();
        let name = |number: usize| ClaimName {
            caller: "key".to_owned(),
            worker: "w".to_owned(),
            claim: number.to_string(),
        };
        let now = Instant::now();
        let first = claims.given(name(0), now);
        assert!(Arc::ptr_eq(&first, &claims.given(name(0), now)));
        for number in 1..=CLAIMS_MAX {
            claims.given(name(number), now);
        }
        let second = claims.given(name(0), now);
        assert!(!Arc::ptr_eq(&first, &second), "others took its place");
        claims.given(name(1_000_000), now + REMEMBERED);
        assert_eq!(claims.table.lock().unwrap().by_name.len(), 1, "all others are too old");
    }
}
