//! What the checks of this process found last, and that one runs at a time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidemill_model::events::properties::HealthSummary;
use tidemill_model::{TenantId, Timestamp};

use crate::health::report::{FindingKind, HealthReport};
use crate::kernel::notice::Notice;

/// What the last check of a tenant counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCheck {
    pub checked_at: Timestamp,
    pub summary: HealthSummary,
    /// How many of each kind stood for too long; those without any are absent.
    pub findings: BTreeMap<FindingKind, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct HealthBoard {
    last: Mutex<BTreeMap<TenantId, LastCheck>>,
    is_busy: Mutex<bool>,
    freed: Notice,
}

/// The right to check. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'b>(&'b HealthBoard);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.is_busy) = false;
        self.0.freed.ring();
    }
}

impl HealthBoard {
    /// Waits until nobody else checks.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        loop {
            let freed = self.freed.listen();
            if !std::mem::replace(&mut *lock(&self.is_busy), true) {
                return Turn(self);
            }
            freed.await;
        }
    }

    pub(crate) fn note(&self, tenant: &TenantId, report: &HealthReport) {
        let findings = report.findings.iter().map(|finding| (finding.kind, finding.count)).collect();
        let last = LastCheck { checked_at: report.checked_at, summary: report.summary, findings };
        lock(&self.last).insert(tenant.clone(), last);
    }

    pub(crate) fn last(&self) -> BTreeMap<TenantId, LastCheck> {
        lock(&self.last).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
