//! What must change so that a server has what a manifest wants. Nothing here calls anybody.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use tidemill_matcher::{Subscription, SubscriptionDraft};
use tidemill_model::{Json, Script, ScriptDraft, ScriptId, SubscriptionId};

use super::manifest::Manifest;

/// One change, in the order in which they are made.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    CreateScript(ScriptId),
    ChangeScript { id: ScriptId, version: u64, fields: Vec<&'static str> },
    CreateSubscription(SubscriptionId),
    ChangeSubscription { id: SubscriptionId, fields: Vec<&'static str> },
    RemoveSubscription(SubscriptionId),
    RemoveScript { id: ScriptId, version: u64 },
}

/// What is there and what is wanted, compared.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// What is there, is not wanted and is left alone.
    pub(super) left: Vec<String>,
    /// How many are as they should be.
    pub(super) unchanged: usize,
}

impl Plan {
    pub(super) fn new(
        wanted: &Manifest,
        scripts: &BTreeMap<ScriptId, Script>,
        subscriptions: &BTreeMap<SubscriptionId, Subscription>,
        prune: bool,
    ) -> Self {
        let mut plan = Self::default();
        for (id, script) in &wanted.scripts {
            match scripts.get(id) {
                None => plan.steps.push(Step::CreateScript(id.clone())),
                Some(known) => match script_changes(&script.draft, known) {
                    fields if fields.is_empty() => plan.unchanged += 1,
                    fields => {
                        plan.steps.push(Step::ChangeScript {
                            id: id.clone(),
                            version: known.version,
                            fields,
                        });
                    }
                },
            }
        }
        for (id, draft) in &wanted.subscriptions {
            match subscriptions.get(id) {
                None => plan.steps.push(Step::CreateSubscription(id.clone())),
                Some(known) => match subscription_changes(draft, known) {
                    fields if fields.is_empty() => plan.unchanged += 1,
                    fields => plan.steps.push(Step::ChangeSubscription { id: id.clone(), fields }),
                },
            }
        }
        for id in subscriptions.keys().filter(|id| !wanted.subscriptions.contains_key(*id)) {
            if prune {
                plan.steps.push(Step::RemoveSubscription(id.clone()));
            } else {
                plan.left.push(format!("subscription {id}"));
            }
        }
        for (id, known) in scripts.iter().filter(|(id, _)| !wanted.scripts.contains_key(*id)) {
            if prune {
                plan.steps.push(Step::RemoveScript { id: id.clone(), version: known.version });
            } else {
                plan.left.push(format!("script {id}"));
            }
        }
        plan
    }
}

fn script_changes(draft: &ScriptDraft, known: &Script) -> Vec<&'static str> {
    let mut fields = Vec::new();
    fields.extend((draft.name != known.name).then_some("name"));
    fields.extend((draft.source != known.source).then_some("source"));
    fields.extend((draft.grants != known.grants).then_some("grants"));
    fields
}

fn subscription_changes(draft: &SubscriptionDraft, known: &Subscription) -> Vec<&'static str> {
    let mut fields = Vec::new();
    fields.extend((draft.script_id != known.script_id).then_some("scriptId"));
    fields.extend((draft.event_type != known.event_type).then_some("eventType"));
    // Both are written out in the same way.
    fields.extend((Json::of(&draft.filter_rules) != known.filter_rules).then_some("filterRules"));
    fields.extend((draft.enabled != known.enabled).then_some("enabled"));
    fields
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateScript(id) => write!(f, "create script {id}"),
            Self::ChangeScript { id, fields, .. } => write!(f, "change script {id} ({})", fields.join(", ")),
            Self::CreateSubscription(id) => write!(f, "create subscription {id}"),
            Self::ChangeSubscription { id, fields } => {
                write!(f, "change subscription {id} ({})", fields.join(", "))
            }
            Self::RemoveSubscription(id) => write!(f, "remove subscription {id}"),
            Self::RemoveScript { id, .. } => write!(f, "remove script {id}"),
        }
    }
}

impl Serialize for Step {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
