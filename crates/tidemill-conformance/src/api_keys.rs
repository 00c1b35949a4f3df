//! API keys.

use tidemill_model::{Role, TenantId};

use super::lab::is_not_found;
use super::shape::{acme, other};
use super::{Lab, TestWorld};
use tidemill_engine::engine::EngineError;

/// A key is known by its token alone, until it is revoked, and after a restart too.
pub async fn a_key_is_known_until_it_is_revoked<W: TestWorld>(lab: Lab<W>) {
    assert!(!lab.engine.has_keys().await.expect("the backend works"));
    let label = Some("build server".to_owned());
    let made = lab.engine.create_key(vec![acme()], Role::Producer, label.clone()).await;
    let (record, token) = made.expect("the key is made");
    assert!(lab.engine.has_keys().await.expect("the backend works"), "at once");
    assert_eq!((record.role, &record.tenants, &record.label), (Role::Producer, &vec![acme()], &label));
    assert_eq!(record.created_at, lab.now());
    let (second, second_token) =
        lab.engine.create_key(vec![acme(), other()], Role::Worker, None).await.expect("the key is made");
    let Some(lab) = lab.reopen().await else { return };
    assert!(lab.engine.has_keys().await.expect("the backend works"));
    let known = lab.engine.authenticate(&token.reveal()).await.expect("the backend works");
    assert_eq!(known.as_ref(), Some(&record));
    // Another secret under the same id, another id under the same secret, and what is no key at all.
    let (own, others) = (token.reveal(), second_token.reveal());
    let mixed = format!("{}{}", &own[..15], &others[15..]);
    for wrong in [mixed.as_str(), "", "tm_x", &own[..own.len() - 1], "Bearer x"] {
        assert_eq!(lab.engine.authenticate(wrong).await.expect("the backend works"), None, "{wrong}");
    }
    lab.pass(5);
    let revoked = lab.engine.revoke_key(&record.id).await.expect("it is there");
    assert_eq!(revoked.revoked_at, Some(lab.now()));
    assert_eq!(lab.engine.authenticate(&own).await.expect("the backend works"), None);
    assert_eq!(lab.engine.authenticate(&others).await.expect("the backend works"), Some(second.clone()));
    lab.pass(5);
    assert_eq!(lab.engine.revoke_key(&record.id).await.expect("it is there"), revoked, "once");
    lab.engine.revoke_key(&second.id).await.expect("it is there");
    assert!(
        lab.engine.has_keys().await.expect("the backend works"),
        "taking the last one away opens nothing"
    );
    let unknown = tidemill_model::KeyId::new("AAAAAAAAAAAA").expect("an id");
    assert!(is_not_found(&lab.engine.revoke_key(&unknown).await));
}

/// All of them, by id, in pages; no answer holds a secret.
pub async fn keys_are_listed<W: TestWorld>(lab: Lab<W>) {
    let mut ids = Vec::new();
    for role in Role::ALL {
        ids.push(lab.engine.create_key(vec![acme()], role, None).await.expect("the key is made").0.id);
    }
    ids.sort();
    let first = lab.engine.keys(None, 3).await.expect("the backend works");
    let rest = lab.engine.keys(first.last().map(|key| &key.id), 3).await.expect("the backend works");
    let found: Vec<_> = first.iter().chain(&rest).map(|key| key.id.clone()).collect();
    assert_eq!(found, ids);
}

/// One tenant, or several for a worker.
pub async fn a_key_names_its_tenants<W: TestWorld>(lab: Lab<W>) {
    let many: Vec<TenantId> = (0..101).map(|n| super::shape::tenant(&format!("t{n}"))).collect();
    for (tenants, role, fits) in [
        (&many[..0], Role::Admin, false),
        (&many[..1], Role::Admin, true),
        (&many[..2], Role::Admin, false),
        (&many[..2], Role::Producer, false),
        (&many[..2], Role::Worker, true),
        (&many[..100], Role::Worker, true),
        (&many[..], Role::Worker, false),
    ] {
        let answer = lab.engine.create_key(tenants.to_vec(), role, None).await;
        assert_eq!(answer.is_ok(), fits, "{role:?} of {}", tenants.len());
    }
    let answer = lab.engine.create_key(vec![acme()], Role::Reader, Some("a\nb".to_owned())).await;
    assert!(matches!(answer, Err(EngineError::Invalid { .. })), "{answer:?}");
}
