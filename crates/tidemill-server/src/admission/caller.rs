//! The caller of a request, and what it may do.

use std::sync::Arc;

use tidemill_engine::engine::EngineError;
use tidemill_engine::warn_seldom;
use tidemill_model::TenantId;
use tidemill_model::security::api_key::KeyId;
use tokio::sync::watch;

use crate::api::Role;
use crate::app::App;

/// The sender of a request. Put into the extensions of a request that is handled in process, it stands for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    tenants: Arc<[TenantId]>,
    identity: Identity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    /// A user who may open the data directory.
    Operator,
    /// A user who may reach a server without keys, as long as it has none.
    Keyless,
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

    /// The person at the machine, as long as there are no keys.
    pub(crate) fn keyless(tenant: TenantId) -> Self {
        Self { tenants: Arc::from([tenant]), identity: Identity::Keyless }
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
            Identity::Operator | Identity::Keyless => true,
            Identity::Key { role, .. } => roles.contains(role),
        }
    }

    pub(crate) fn is_operator(&self) -> bool {
        matches!(self.identity, Identity::Operator | Identity::Keyless)
    }

    /// Whether the caller may bring commands of its own.
    pub(crate) fn may_run_inline(&self) -> bool {
        self.has_any(&[Role::Admin])
    }

    /// The tenant whose limits count for the caller: that of a key which has one.
    pub(crate) fn limited_tenant(&self) -> Option<&TenantId> {
        match (&self.identity, &*self.tenants) {
            (Identity::Key { .. }, [tenant]) => Some(tenant),
            _ => None,
        }
    }

    /// Whether the caller came with a key.
    pub(crate) fn has_key(&self) -> bool {
        matches!(self.identity, Identity::Key { .. })
    }

    /// The name under which limits are counted and deeds are recorded.
    pub(crate) fn name(&self) -> &str {
        match &self.identity {
            Identity::Operator | Identity::Keyless => "local",
            Identity::Key { id, .. } => id,
        }
    }
}

/// Watches over a waiting caller: its key may be revoked meanwhile, or the first key made.
pub(crate) struct Welcome {
    app: App,
    caller: Caller,
    keys: watch::Receiver<u64>,
}

impl Welcome {
    pub(crate) fn of(app: &App, caller: &Caller) -> Self {
        Self { app: app.clone(), caller: caller.clone(), keys: app.key_changes() }
    }

    /// Whether the caller could come in now. A store that cannot tell lets nobody go on.
    pub(crate) async fn holds(&self) -> bool {
        match &self.caller.identity {
            Identity::Operator => true,
            Identity::Keyless => is_so(self.app.engine().has_keys().await.map(|has_keys| !has_keys)),
            Identity::Key { id, .. } => match KeyId::new(id.as_ref()) {
                Ok(id) => is_so(self.app.engine().is_in_force(&id).await),
                Err(_) => false,
            },
        }
    }

    /// Waits until the caller is no longer welcome.
    pub(crate) async fn ended(&mut self) {
        loop {
            if self.keys.changed().await.is_err() {
                // Without a server nobody makes keys.
                return std::future::pending().await;
            }
            if !self.holds().await {
                return;
            }
        }
    }
}

fn is_so(looked: Result<bool, EngineError>) -> bool {
    looked.unwrap_or_else(|error| {
        warn_seldom!(error, "somebody is sent away: nobody can say whether the key is still in force");
        false
    })
}
