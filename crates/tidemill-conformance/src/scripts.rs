//! Scripts and subscriptions: versions, limits of what may be removed, and what a restart leaves.

use serde_json::json;
use tidemill_matcher::{Subscription, SubscriptionDraft};
use tidemill_model::{Script, ScriptDraft, ScriptId, SubscriptionId};

use super::shape::{acme, app, event, other};
use super::{Lab, TestWorld, side_by_side};
use tidemill_engine::backend::Backend as _;
use tidemill_engine::engine::{EngineError, EventBatch, ScriptError, SubscriptionFilter, WriteScript};
use tidemill_engine::reply::Refusal;

fn script(source: &str) -> ScriptDraft {
    ScriptDraft::read(json!({ "id": "greet", "name": "Greets", "source": source, "grants": ["publish"] }))
        .expect("the draft is sound")
}

fn wish(id: &str) -> SubscriptionDraft {
    SubscriptionDraft::read(json!({
        "id": id, "scriptId": "greet", "eventType": "user.created", "filterRules": { "role": "admin" }
    }))
    .expect("the draft is sound")
}

fn greet() -> ScriptId {
    ScriptId::trusted("greet")
}

async fn put<W: TestWorld>(lab: &Lab<W>, source: &str, how: WriteScript) -> Result<Script, ScriptError> {
    lab.engine.put_script(&acme(), script(source), how).await
}

async fn made<W: TestWorld>(lab: &Lab<W>) -> Script {
    put(lab, "return 1", WriteScript::Create).await.expect("the script is accepted")
}

async fn subscribed<W: TestWorld>(lab: &Lab<W>, id: &str) -> Subscription {
    lab.engine.subscribe(&acme(), wish(id)).await.expect("the subscription is accepted")
}

/// Created once, replaced with a new version, removed, and created again with the next version, also after a restart.
pub async fn scripts_have_versions<W: TestWorld>(lab: Lab<W>) {
    let first = made(&lab).await;
    assert_eq!((first.version, first.created_at), (1, lab.now()));
    let taken = put(&lab, "x", WriteScript::Create).await;
    assert!(
        matches!(taken, Err(ScriptError::Engine(EngineError::Refused(Refusal::Exists { .. })))),
        "{taken:?}"
    );
    lab.pass(5);
    let stale = put(&lab, "x", WriteScript::Replace { if_match: Some(2) }).await;
    assert!(
        matches!(
            stale,
            Err(ScriptError::Engine(EngineError::Refused(Refusal::RecordConflict {
                expected: 2,
                actual: 1
            })))
        ),
        "{stale:?}"
    );
    let second =
        put(&lab, "return 2", WriteScript::Replace { if_match: Some(1) }).await.expect("it is there");
    assert_eq!((second.version, second.created_at, second.updated_at), (2, first.created_at, lab.now()));
    lab.engine.remove_script(&acme(), &greet(), None).await.expect("nobody uses it");
    let lab = lab.reopen_if_it_can().await;
    let find =
        async |version| lab.engine.script(&acme(), &greet(), version).await.expect("the backend works");
    assert_eq!(find(None).await, None);
    assert_eq!(find(Some(1)).await.expect("versions stay").source, "return 1");
    assert_eq!(made(&lab).await.version, 3, "versions never start again");
    let elsewhere = lab.engine.script(&other(), &greet(), Some(1)).await.expect("the backend works");
    assert_eq!(elsewhere, None, "scripts are their tenant's own");
    let listed = lab.engine.scripts(&acme(), None, 10).await.expect("the backend works");
    assert_eq!(listed.len(), 1, "lists have no versions");
}

/// A subscription has its script for good: neither before nor after a restart can the script be taken from under it.
pub async fn a_script_with_subscriptions_stays<W: TestWorld>(lab: Lab<W>) {
    let ghost = lab.engine.subscribe(&acme(), wish("s")).await;
    assert!(matches!(ghost, Err(ScriptError::Engine(EngineError::Fields(_)))), "{ghost:?}");
    made(&lab).await;
    subscribed(&lab, "s").await;
    let lab = lab.reopen_if_it_can().await;
    let refused = lab.engine.remove_script(&acme(), &greet(), None).await;
    assert!(matches!(refused, Err(ScriptError::Subscribed { count: 1, .. })), "{refused:?}");
    let id = SubscriptionId::trusted("s");
    lab.engine.unsubscribe(&acme(), &id).await.expect("it is there");
    lab.engine.remove_script(&acme(), &greet(), None).await.expect("nobody uses it any more");
    let listed = lab.engine.subscriptions(&acme(), &SubscriptionFilter::default(), None, 10).await;
    assert_eq!(listed.expect("the backend works"), []);
}

/// A removal and a subscription that come together: one of them wins, and no subscription is left without its script.
pub async fn a_removal_and_a_subscription_do_not_pass_each_other<W: TestWorld>(lab: Lab<W>) {
    for round in 0..10 {
        made(&lab).await;
        let id = format!("s{round}");
        let tenant = acme();
        let (engine, script) = (&lab.engine, greet());
        let both = (0..2).map(|which| {
            let (tenant, script, id) = (&tenant, &script, &id);
            async move {
                if which == round % 2 {
                    engine.remove_script(tenant, script, None).await.is_ok()
                } else {
                    engine.subscribe(tenant, wish(id)).await.is_ok()
                }
            }
        });
        let done = side_by_side(both).await;
        assert_eq!(done.iter().filter(|done| **done).count(), 1, "{done:?}");
        let left = engine.subscription(&tenant, &SubscriptionId::trusted(&id)).await.expect("it works");
        let there = engine.script(&tenant, &script, None).await.expect("the backend works");
        assert_eq!(left.is_some(), there.is_some(), "round {round}");
        if left.is_some() {
            engine.unsubscribe(&tenant, &SubscriptionId::trusted(&id)).await.expect("it is there");
            engine.remove_script(&tenant, &script, None).await.expect("nobody uses it");
        }
    }
}

/// What a subscription sees begins when it is made, and again when it is enabled; other changes move nothing.
pub async fn a_subscription_sees_what_comes_after_it<W: TestWorld>(lab: Lab<W>) {
    made(&lab).await;
    let publish = async || {
        let request = EventBatch {
            tenant: acme(),
            app: app("orders"),
            origin: "producer-api".to_owned(),
            events: vec![event("store-1", "user.created", "{}")],
        };
        lab.engine.publish(request).await.expect("the event is accepted");
        lab.engine.backend().newest()
    };
    let before = publish().await;
    let subscription = subscribed(&lab, "s").await;
    assert_eq!(subscription.since_seq, before);
    let id = subscription.id.clone();
    let later = publish().await;
    assert!(later > before);
    let changed =
        lab.engine.resubscribe(&acme(), &id, &SubscriptionDraft { enabled: false, ..wish("s") }).await;
    let changed = changed.expect("it is there");
    assert_eq!((changed.enabled, changed.since_seq), (false, before));
    let enabled = lab.engine.enable_subscription(&acme(), &id, true).await.expect("it is there");
    assert_eq!(enabled.since_seq, later);
    publish().await;
    let same = lab.engine.enable_subscription(&acme(), &id, true).await.expect("it is there");
    assert_eq!(same, enabled, "what is enabled already stays as it is");
    let elsewhere = lab.engine.enable_subscription(&other(), &id, false).await;
    assert!(
        matches!(elsewhere, Err(ScriptError::Engine(EngineError::Refused(Refusal::NotFound { .. })))),
        "{elsewhere:?}"
    );
    let lab = lab.reopen_if_it_can().await;
    let kept = lab.engine.subscription(&acme(), &id).await.expect("the backend works");
    assert_eq!(kept, Some(enabled));
}
