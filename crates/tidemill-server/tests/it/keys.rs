//! API keys: made, listed, used, revoked.

use serde_json::json;
use tidemill_model::Role;
use tidemill_server::ServerConfig;

use crate::lab::{Client, Lab};

#[tokio::test]
async fn the_first_key_ends_keyless_mode_at_once() {
    let lab = Lab::start().await;
    let local = lab.local();
    let created = local.post("/v1/keys", &json!({"role": "admin", "label": "first"})).await.expect(201);
    assert_eq!(created["key"]["tenants"], json!(["default"]));
    assert_eq!(created["key"]["label"], "first");
    assert_eq!(local.get("/v1/jobs").await.status, 401);
    assert_eq!(local.get("/healthz").await.status, 200);
    let token = created["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with(&format!("tm_{}_", created["key"]["id"].as_str().unwrap())));
    let admin = Client { token: Some(token.clone()), ..local.clone() };
    admin.get("/v1/jobs").await.expect(200);
    let listed = admin.get("/v1/keys").await;
    assert!(!listed.text().contains(&token[16..]), "no list shows a secret");
    assert_eq!(listed.expect(200)["items"].as_array().unwrap().len(), 1);

    let id = created["key"]["id"].as_str().unwrap();
    let revoked = admin.delete(&format!("/v1/keys/{id}")).await.expect(200);
    assert!(revoked["revokedAt"].is_u64());
    assert_eq!(admin.get("/v1/jobs").await.status, 401);
    assert_eq!(local.get("/v1/jobs").await.status, 401, "the last key is gone and the door stays shut");
}

#[tokio::test]
async fn an_admin_rules_the_keys_of_its_tenant_only() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let other = lab.key("other", Role::Admin).await;
    let shared = lab.worker_key(&["acme", "other"], Role::Worker).await;
    let created = admin.post("/v1/keys", &json!({"role": "reader"})).await.expect(201);
    assert_eq!(created["key"]["tenants"], json!(["acme"]));
    let foreign = json!({"role": "reader", "tenants": ["other"]});
    let refused = admin.post("/v1/keys", &foreign).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "FOREIGN_TENANT"));
    let ids = |answer: serde_json::Value| -> Vec<String> {
        answer["items"].as_array().unwrap().iter().map(|key| key["id"].as_str().unwrap().to_owned()).collect()
    };
    let own = ids(admin.get("/v1/keys").await.expect(200));
    assert_eq!(own.len(), 2, "its own and the reader's");
    let foreign = ids(other.get("/v1/keys").await.expect(200));
    assert_eq!(foreign.len(), 1);
    for id in [foreign[0].as_str(), &shared.token.as_ref().unwrap()[3..15], "AAAAAAAAAAAA", "short"] {
        assert_eq!(admin.delete(&format!("/v1/keys/{id}")).await.status, 404, "{id}");
    }
    other.get("/v1/jobs").await.expect(200);
    for (body, field) in [
        (json!({"role": "king"}), "role"),
        (json!({"role": "reader", "tenants": ["a#b"]}), "tenants[0]"),
        (json!({"role": "worker", "tenants": ["acme", "acme"]}), "tenants[1]"),
        (json!({"role": "reader", "tenants": []}), "tenants"),
        (json!({"role": "reader", "label": "a\u{0}b"}), "label"),
    ] {
        assert_eq!(
            admin.post("/v1/keys", &body).await.problem(),
            (400, "INVALID_FIELD".into(), field.into()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    for _ in 0..6 {
        lab.key("acme", Role::Reader).await;
        lab.key("other", Role::Reader).await;
    }
    let (mut seen, mut cursor) = (0, String::new());
    loop {
        let page = admin.get(&format!("/v1/keys?limit=3{cursor}")).await.expect(200);
        seen += page["items"].as_array().unwrap().len();
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, 7);
}

#[tokio::test]
async fn tokens_that_are_none_are_refused() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let token = admin.token.clone().unwrap();
    let mut wrong = token.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == 'A' { 'Q' } else { 'A' });
    let nobody = Client { token: None, ..admin };
    for value in [
        format!("Bearer {wrong}"),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {token}"),
        token.clone(),
        format!("Bearer {token} x"),
        format!("Bearer {}", "tm_".repeat(1_000)),
    ] {
        let answer = nobody.send("GET", "/v1/jobs", &[("Authorization", &value)], b"").await;
        assert_eq!(answer.status, 401, "{value}");
        assert!(!answer.text().contains(&token[16..]));
    }
    let two = [("Authorization", format!("Bearer {token}")), ("Authorization", format!("Bearer {token}"))];
    let two: Vec<_> = two.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(nobody.send("GET", "/v1/jobs", &two, b"").await.status, 401);
    let lower = format!("bearer {token}");
    assert_eq!(nobody.send("GET", "/v1/jobs", &[("Authorization", &lower)], b"").await.status, 200);
}

#[tokio::test]
async fn each_key_has_a_rate_of_its_own() {
    let config = ServerConfig { rate_per_second: 5, ..ServerConfig::default() };
    let lab = Lab::with(config, tidemill_engine::policy::Policy::default()).await;
    let (eager, calm) = (lab.key("acme", Role::Reader).await, lab.key("acme", Role::Reader).await);
    let mut refused = None;
    for _ in 0..100 {
        let answer = eager.get("/v1/jobs").await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a hundred requests at once are too many");
    assert_eq!((refused.status, refused.code().as_str()), (429, "RATE_LIMITED"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    calm.get("/v1/jobs").await.expect(200);
}

#[tokio::test]
async fn all_keys_of_a_tenant_share_a_rate() {
    let config = ServerConfig { tenant_rate_per_second: Some(5), ..ServerConfig::default() };
    let lab = Lab::with(config, tidemill_engine::policy::Policy::default()).await;
    let mut refused = None;
    for _ in 0..100 {
        let answer = lab.key("acme", Role::Reader).await.get("/v1/jobs").await;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("a hundred keys ask no more than the tenant may");
    assert_eq!((refused.status, refused.code().as_str()), (429, "TENANT_RATE_LIMITED"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    lab.key("globex", Role::Reader).await.get("/v1/jobs").await.expect(200);
}
