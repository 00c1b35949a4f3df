//! Subscriptions: which events a script is to run for. Written, changed, looked up; a subscription has no versions.

use std::sync::Arc;

use tidemill_matcher::{Subscription, SubscriptionDraft};
use tidemill_model::{EventType, Json, ScriptId, SubscriptionId, TenantId};

use crate::definitions::definition::{put, read};
use crate::engine::limits::LIST_MAX;
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::{Backend, Fault};
use crate::kernel::command::PutRecords;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{RecordKey, RecordKind};
use crate::kernel::reply::Refusal;
use crate::scripts::script::{ScriptChange, ScriptError, WRITES_MAX, exists, removal, unknown};

/// Which subscriptions of a tenant are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscriptionFilter {
    pub script: Option<ScriptId>,
    pub event_type: Option<EventType>,
    pub enabled: Option<bool>,
}

impl SubscriptionFilter {
    fn passes(&self, subscription: &Subscription) -> bool {
        self.script.as_ref().is_none_or(|script| *script == subscription.script_id)
            && self.event_type.as_ref().is_none_or(|event_type| *event_type == subscription.event_type)
            && self.enabled.is_none_or(|enabled| enabled == subscription.enabled)
    }
}

impl<B: Backend> Engine<B> {
    /// Makes a subscription. It sees the events that come after it.
    pub async fn subscribe(
        &self,
        tenant: &TenantId,
        draft: SubscriptionDraft,
    ) -> Result<Subscription, ScriptError> {
        self.counted(tenant).await?;
        self.inner.scripts.reserve(tenant, &draft.script_id, true)?;
        let made = self.write_subscription(tenant, &draft).await;
        if made.is_err() {
            self.inner.scripts.release(tenant, &draft.script_id, true);
        }
        made
    }

    async fn write_subscription(
        &self,
        tenant: &TenantId,
        draft: &SubscriptionDraft,
    ) -> Result<Subscription, ScriptError> {
        self.must_exist(tenant, &draft.script_id).await?;
        let id =
            draft.id.clone().unwrap_or_else(|| SubscriptionId::trusted(&self.mint_event_id().to_string()));
        let subscription = Subscription {
            id: id.clone(),
            script_id: draft.script_id.clone(),
            tenant_id: tenant.clone(),
            event_type: draft.event_type.clone(),
            filter_rules: Json::of(&draft.filter_rules),
            enabled: draft.enabled,
            created_at: self.inner.clock.now(),
            since_seq: self.inner.backend.newest(),
        };
        let records = vec![put(subscription_key(tenant, &id), &subscription, 0)];
        match self.put_records(PutRecords { records, unused: None }).await {
            Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {
                Err(exists("subscription", id.as_str()))
            }
            Err(error) => Err(error.into()),
            Ok(()) => {
                self.script_changes().note_change(ScriptChange::Subscription(tenant.clone(), id));
                Ok(subscription)
            }
        }
    }

    /// Replaces what a subscription says. One that was disabled and no longer is sees the events that come from now on;
    /// one that stays enabled misses none meanwhile.
    pub async fn resubscribe(
        &self,
        tenant: &TenantId,
        id: &SubscriptionId,
        draft: &SubscriptionDraft,
    ) -> Result<Subscription, ScriptError> {
        self.counted(tenant).await?;
        self.inner.scripts.reserve(tenant, &draft.script_id, false)?;
        let changed = async {
            self.must_exist(tenant, &draft.script_id).await?;
            let rules = Json::of(&draft.filter_rules);
            self.change_subscription(tenant, id, |known| Subscription {
                script_id: draft.script_id.clone(),
                event_type: draft.event_type.clone(),
                filter_rules: rules.clone(),
                enabled: draft.enabled,
                ..known
            })
            .await
        };
        match changed.await {
            Ok((before, subscription)) => {
                // The reservation is the new script's; the former one has one less.
                self.inner.scripts.release(tenant, &before.script_id, false);
                Ok(subscription)
            }
            Err(error) => {
                self.inner.scripts.release(tenant, &draft.script_id, false);
                Err(error)
            }
        }
    }

    /// Enables or disables a subscription. Repeating it changes nothing.
    pub async fn enable_subscription(
        &self,
        tenant: &TenantId,
        id: &SubscriptionId,
        enabled: bool,
    ) -> Result<Subscription, ScriptError> {
        let changed = self.change_subscription(tenant, id, |known| Subscription { enabled, ..known }).await;
        changed.map(|(_, subscription)| subscription)
    }

    /// Writes a subscription again, and gives it as it was before and as it stands then.
    async fn change_subscription(
        &self,
        tenant: &TenantId,
        id: &SubscriptionId,
        change: impl Fn(Subscription) -> Subscription,
    ) -> Result<(Subscription, Subscription), ScriptError> {
        let key = subscription_key(tenant, id);
        for _ in 0..WRITES_MAX {
            let (at, known) = self.stored::<Subscription>(&key).await?;
            let known = known.ok_or_else(|| unknown("subscription", id.as_str()))?;
            let mut changed = change(known.clone());
            if changed == known {
                return Ok((known, changed));
            }
            if changed.enabled && !known.enabled {
                changed.since_seq = self.inner.backend.newest();
            }
            let records = vec![put(key.clone(), &changed, at)];
            match self.put_records(PutRecords { records, unused: None }).await {
                Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.script_changes().note_change(ScriptChange::Subscription(tenant.clone(), id.clone()));
                    return Ok((known, changed));
                }
            }
        }
        Err(Fault::Damaged(format!("the subscription {id} changes all the time")).into())
    }

    /// Removes a subscription. What it matched before runs all the same.
    pub async fn unsubscribe(&self, tenant: &TenantId, id: &SubscriptionId) -> Result<(), ScriptError> {
        self.counted(tenant).await?;
        let key = subscription_key(tenant, id);
        for _ in 0..WRITES_MAX {
            let (at, known) = self.stored::<Subscription>(&key).await?;
            let known = known.ok_or_else(|| unknown("subscription", id.as_str()))?;
            let records = vec![removal(key.clone(), at)];
            match self.put_records(PutRecords { records, unused: None }).await {
                Err(EngineError::Refused(Refusal::RecordConflict { .. })) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.inner.scripts.release(tenant, &known.script_id, true);
                    self.script_changes().note_change(ScriptChange::Subscription(tenant.clone(), id.clone()));
                    return Ok(());
                }
            }
        }
        Err(Fault::Damaged(format!("the subscription {id} changes all the time")).into())
    }

    pub async fn subscription(
        &self,
        tenant: &TenantId,
        id: &SubscriptionId,
    ) -> Result<Option<Subscription>, EngineError> {
        Ok(self.stored(&subscription_key(tenant, id)).await?.1)
    }

    /// A tenant's subscriptions that pass the filter, by id, those after `after`.
    pub async fn subscriptions(
        &self,
        tenant: &TenantId,
        filter: &SubscriptionFilter,
        after: Option<&SubscriptionId>,
        limit: usize,
    ) -> Result<Vec<Subscription>, EngineError> {
        check::count("limit", limit, LIST_MAX)?;
        let mut found = Vec::new();
        let mut from = after.map(|id| Arc::from(id.as_str()));
        loop {
            let page = self.subscription_page(tenant, from.take()).await?;
            let is_last = page.len() < LIST_MAX;
            for subscription in page {
                from = Some(Arc::from(subscription.id.as_str()));
                if filter.passes(&subscription) {
                    found.push(subscription);
                    if found.len() == limit {
                        return Ok(found);
                    }
                }
            }
            if is_last {
                return Ok(found);
            }
        }
    }

    /// All of a tenant's subscriptions, page by page.
    pub(crate) async fn subscription_page(
        &self,
        tenant: &TenantId,
        after: Option<Arc<str>>,
    ) -> Result<Vec<Subscription>, EngineError> {
        let (kind, tenant) = (RecordKind::Subscription, Some(tenant.clone()));
        let records = self.inner.backend.records(kind, tenant, after, LIST_MAX).await?;
        records.iter().map(|(key, record)| read(key, record)).collect()
    }
}

fn subscription_key(tenant: &TenantId, id: &SubscriptionId) -> RecordKey {
    RecordKey { kind: RecordKind::Subscription, tenant: Some(tenant.clone()), id: Arc::from(id.as_str()) }
}
