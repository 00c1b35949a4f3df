//! Who asks, and what they may do.

use std::sync::Arc;

use tidemill_model::TenantId;

use crate::api::Role;

/// Who sent a request. Put into the extensions of a request that is handled in process, it stands for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    tenants: Arc<[TenantId]>,
    identity: Identity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    /// Whoever may open the data directory, or reach a server that has no keys.
    Operator,
    Key {
        id: Arc<str>,
        role: Role,
    },
}

impl Caller {
    /// The person at the machine: may do everything within `tenant`, and make keys for any.
    pub fn local(tenant: TenantId) -> Self {
        Self { tenants: Arc::from([tenant]), identity: Identity::Operator }
    }

    pub(crate) fn key(id: &str, role: Role, tenants: &[TenantId]) -> Self {
        Self { tenants: Arc::from(tenants), identity: Identity::Key { id: Arc::from(id), role } }
    }

    /// The tenant whose data the caller sees. Workers may have several; for them this is the first.
    pub(crate) fn tenant(&self) -> Option<&TenantId> {
        self.tenants.first()
    }

    pub(crate) fn tenants(&self) -> &Arc<[TenantId]> {
        &self.tenants
    }

    /// Whether one of `roles` is the caller's. An operator has all of them.
    pub(crate) fn has_any(&self, roles: &[Role]) -> bool {
        match &self.identity {
            Identity::Operator => true,
            Identity::Key { role, .. } => roles.contains(role),
        }
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.identity == Identity::Operator
    }

    /// Whether the caller may bring commands of its own.
    pub(crate) fn may_run_inline(&self) -> bool {
        self.has_any(&[Role::Admin])
    }

    /// The name under which limits are counted and deeds are recorded.
    pub(crate) fn name(&self) -> &str {
        match &self.identity {
            Identity::Operator => "local",
            Identity::Key { id, .. } => id,
        }
    }
}
