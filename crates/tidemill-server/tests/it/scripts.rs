//! Scripts and subscriptions: written, read, versioned, explained.

use serde_json::{Value, json};
use tidemill_engine::clock::{Clock, SystemClock};
use tidemill_engine::engine::ScriptChange;
use tidemill_model::{Role, ScriptId, SubscriptionId, TenantId};

use crate::lab::{Client, Lab};

async fn greet(client: &Client) -> Value {
    let draft = json!({"id": "greet", "name": "Greets", "source": "return 'hi'", "grants": ["publish"]});
    client.post("/v1/scripts", &draft).await.expect(201)
}

async fn subscribe(client: &Client, id: &str, rules: &Value) -> Value {
    let draft = json!({"id": id, "scriptId": "greet", "eventType": "user.created", "filterRules": rules});
    client.post("/v1/subscriptions", &draft).await.expect(201)
}

#[tokio::test]
async fn a_script_goes_round() {
    let lab = Lab::start().await;
    let client = lab.local();
    let draft = json!({"id": "greet", "name": "Greets", "source": "return 'hi'", "grants": ["publish"]});
    let created = client.post("/v1/scripts", &draft).await;
    assert_eq!(created.header("etag"), Some("\"1\""));
    let created = created.expect(201);
    for (field, value) in draft.as_object().unwrap() {
        assert_eq!(&created[field], value, "{field}");
    }
    assert_eq!(created["version"], 1);
    let again = client.post("/v1/scripts", &draft).await;
    assert_eq!((again.status, again.code().as_str()), (409, "EXISTS"));
    assert_eq!(client.get("/v1/scripts/greet").await.expect(200), created);
    let listed = client.get("/v1/scripts").await.expect(200);
    assert_eq!(
        (&listed["items"][0]["id"], &listed["items"][0]["sourceBytes"]),
        (&json!("greet"), &json!(11))
    );
    assert_eq!(listed["items"][0].get("source"), None, "lists are short");

    let put = async |version: &str, body: &Value| {
        let headers = [("Content-Type", "application/json"), ("If-Match", version)];
        client.send("PUT", "/v1/scripts/greet", &headers, body.to_string().as_bytes()).await
    };
    let second = json!({"name": "Greets", "source": "return 'hello'"});
    let mismatch = put("\"7\"", &second).await;
    assert_eq!((mismatch.status, mismatch.code().as_str()), (412, "VERSION_MISMATCH"));
    let replaced = put("\"1\"", &second).await.expect(200);
    assert_eq!(
        (&replaced["version"], &replaced["grants"]),
        (&json!(2), &json!([])),
        "grants go with the version"
    );
    assert_eq!(replaced["createdAt"], created["createdAt"]);
    assert_eq!(client.get("/v1/scripts/greet?version=1").await.expect(200)["source"], "return 'hi'");
    assert_eq!(client.get("/v1/scripts/greet?version=9").await.status, 404);
    assert_eq!(client.put("/v1/scripts/ghost", &second).await.status, 404);
    assert_eq!(
        client.put("/v1/scripts/greet", &json!({"id": "other", "name": "x", "source": ""})).await.problem(),
        (400, "INVALID_FIELD".into(), "id".into())
    );

    let stale = client.send("DELETE", "/v1/scripts/greet", &[("If-Match", "1")], b"").await;
    assert_eq!(stale.status, 412);
    assert_eq!(client.delete("/v1/scripts/greet").await.status, 204);
    assert_eq!(client.delete("/v1/scripts/greet").await.status, 404);
    assert_eq!(client.get("/v1/scripts").await.expect(200)["items"], json!([]));
    assert_eq!(client.get("/v1/scripts/greet?version=2").await.expect(200)["version"], 2);
    assert_eq!(greet(&client).await["version"], 3, "versions never start again");
    assert_eq!(client.delete("/v1/scripts/greet").await.status, 204);
    assert_eq!(greet(&client).await["version"], 4);

    let minted = client.post("/v1/scripts", &json!({"name": "x", "source": ""})).await.expect(201);
    assert_eq!(minted["id"].as_str().unwrap().len(), 36, "{minted}");
    let first = client.get("/v1/scripts?limit=1").await.expect(200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/scripts?limit=1&cursor={cursor}")).await.expect(200);
    assert_ne!(first["items"][0]["id"], rest["items"][0]["id"]);
    assert_eq!(rest["nextCursor"], Value::Null);
}

#[tokio::test]
async fn a_script_that_does_not_compile_is_refused_with_its_place() {
    let lab = Lab::start().await;
    let client = lab.local();
    let bad = json!({"id": "bad", "name": "Bad", "source": "const a = 1;\nreturn @;"});
    let refused = client.post("/v1/scripts", &bad).await;
    assert_eq!(refused.problem(), (400, "COMPILE_ERROR".into(), "source".into()));
    let detail = &refused.json()["details"][0];
    assert_eq!((&detail["line"], &detail["column"]), (&json!(2), &json!(8)));
    assert_eq!(client.get("/v1/scripts/bad").await.status, 404);
    greet(&client).await;
    let refused = client.put("/v1/scripts/greet", &json!({"name": "x", "source": "@"})).await;
    assert_eq!(refused.problem().1, "COMPILE_ERROR");
    assert_eq!(client.get("/v1/scripts/greet").await.expect(200)["version"], 1);

    let app = tidemill_server::App::new(&lab.engine, tidemill_server::ServerConfig::default());
    let mut request = axum::http::Request::post("/v1/scripts")
        .header("content-type", "application/json")
        .body(axum::body::Body::from(bad.to_string()))
        .unwrap();
    let local = tidemill_server::Caller::local(TenantId::new("default").unwrap());
    request.extensions_mut().insert(local);
    let answer = tower::ServiceExt::oneshot(tidemill_server::router(app), request).await.unwrap();
    assert_eq!(answer.status(), 503, "nothing is saved that nobody compiled");
}

#[tokio::test]
async fn sc_01_a_subscription_has_its_seven_fields_and_goes_round() {
    let lab = Lab::start().await;
    let client = lab.local();
    greet(&client).await;
    let made = subscribe(&client, "admins", &json!({"role": "admin"})).await;
    for field in ["id", "scriptId", "tenantId", "eventType", "filterRules", "enabled", "createdAt"] {
        assert!(made.get(field).is_some(), "{field}: {made}");
    }
    assert_eq!((&made["tenantId"], &made["enabled"]), (&json!("default"), &json!(true)));
    let written = json!({"logic": "AND", "conditions": [{"field": "role", "op": "eq", "value": "admin"}]});
    assert_eq!(made["filterRules"], written);
    assert_eq!(client.get("/v1/subscriptions/admins").await.expect(200), made);
    let taken = json!({"id": "admins", "scriptId": "greet", "eventType": "x"});
    assert_eq!(client.post("/v1/subscriptions", &taken).await.problem().1, "EXISTS");

    let path = "/v1/subscriptions/admins";
    client.post("/v1/events", &json!({"eventType": "user.created"})).await.expect(202);
    let disabled = client.post(&format!("{path}/disable"), &json!({})).await.expect(200);
    assert_eq!((&disabled["enabled"], &disabled["sinceSeq"]), (&json!(false), &made["sinceSeq"]));
    let enabled = client.post(&format!("{path}/enable"), &json!({})).await.expect(200);
    assert!(enabled["sinceSeq"].as_u64() > made["sinceSeq"].as_u64(), "it sees what comes from now on");
    client.post("/v1/events", &json!({"eventType": "user.created"})).await.expect(202);
    assert_eq!(client.post(&format!("{path}/enable"), &json!({})).await.expect(200), enabled);
    let mut changed = enabled.clone();
    changed["eventType"] = json!("user.deleted");
    changed["filterRules"] = json!(null);
    let replaced = client.put(path, &changed).await.expect(200);
    assert_eq!((&replaced["eventType"], &replaced["filterRules"]), (&json!("user.deleted"), &json!(null)));
    assert_eq!(replaced["sinceSeq"], enabled["sinceSeq"], "one that stays enabled misses nothing");

    subscribe(&client, "others", &json!(null)).await;
    let count = async |query: &str| {
        let page = client.get(&format!("/v1/subscriptions{query}")).await.expect(200);
        page["items"].as_array().unwrap().len()
    };
    assert_eq!(count("").await, 2);
    assert_eq!(count("?eventType=user.deleted").await, 1);
    assert_eq!(count("?scriptId=greet&enabled=true").await, 2);
    assert_eq!(count("?scriptId=nobody").await, 0);
    assert_eq!(count("?enabled=false").await, 0);
    let first = client.get("/v1/subscriptions?limit=1").await.expect(200);
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(count(&format!("?limit=1&cursor={cursor}")).await, 1);

    let used = client.delete("/v1/scripts/greet").await;
    assert_eq!((used.status, used.code().as_str()), (409, "IN_USE"));
    assert_eq!(client.delete(path).await.status, 204);
    assert_eq!(client.delete(path).await.status, 404);
    assert_eq!(client.get(path).await.status, 404);
    assert_eq!(client.delete("/v1/subscriptions/others").await.status, 204);
    assert_eq!(client.delete("/v1/scripts/greet").await.status, 204);
}

#[tokio::test]
async fn se_04_bad_rules_and_unknown_scripts_are_refused_when_saved() {
    let lab = Lab::start().await;
    let client = lab.local();
    greet(&client).await;
    for (rules, field) in [
        (json!({"role": {"$where": "1"}}), "filterRules.role"),
        (json!({"logic": "XOR", "conditions": {"a": 1}}), "filterRules.logic"),
        (json!({"constructor.name": "x"}), "filterRules"),
        (json!({"a": {"regex": ".*"}}), "filterRules.a"),
        (json!("role == 'admin'"), "filterRules"),
    ] {
        let draft = json!({"scriptId": "greet", "eventType": "user.created", "filterRules": rules});
        let (status, code, at) = client.post("/v1/subscriptions", &draft).await.problem();
        assert_eq!((status, code.as_str()), (400, "INVALID_FILTER"), "{rules}");
        assert!(at.starts_with(field), "{rules}: {at}");
    }
    let ghost = json!({"scriptId": "ghost", "eventType": "user.created"});
    assert_eq!(
        client.post("/v1/subscriptions", &ghost).await.problem(),
        (400, "UNKNOWN_SCRIPT".into(), "scriptId".into())
    );
    subscribe(&client, "s", &json!(null)).await;
    assert_eq!(client.put("/v1/subscriptions/s", &ghost).await.problem().1, "UNKNOWN_SCRIPT");
    assert_eq!(client.put("/v1/subscriptions/none", &ghost).await.status, 404);
    // What was refused counts for nothing.
    assert_eq!(client.delete("/v1/subscriptions/s").await.status, 204);
    assert_eq!(client.delete("/v1/scripts/greet").await.status, 204);
}

#[tokio::test]
async fn an_event_is_explained() {
    let lab = Lab::start().await;
    let client = lab.local();
    greet(&client).await;
    subscribe(&client, "adults", &json!({"role": "admin", "user.age": {"gte": 18}})).await;
    subscribe(&client, "all", &json!(null)).await;
    subscribe(&client, "off", &json!({"role": "admin"})).await;
    client.post("/v1/subscriptions/off/disable", &json!({})).await.expect(200);
    let other = json!({"id": "other", "scriptId": "greet", "eventType": "user.deleted"});
    client.post("/v1/subscriptions", &other).await.expect(201);

    let event = json!({"eventType": "user.created", "properties": {"role": "admin", "user": {"age": 17}}});
    let told = client.post("/v1/scripts/explain", &json!({"event": event})).await.expect(200);
    let verdicts: Vec<_> =
        told["subscriptions"].as_array().unwrap().iter().map(|one| &one["verdict"]).collect();
    assert_eq!(verdicts, ["filtered", "matched", "disabled"]);
    assert_eq!(told["otherTypes"], 1);
    assert_eq!(
        told["subscriptions"][0]["conditions"],
        json!([
            {"place": "conditions[0]", "field": "role", "op": "eq", "value": "admin", "actual": "admin", "passed": true},
            {"place": "conditions[1]", "field": "user.age", "op": "gte", "value": 18, "actual": 17, "passed": false},
        ])
    );

    let published = client.post("/v1/events", &event).await.expect(202);
    let by_id = json!({"eventId": published["eventId"]});
    let told = client.post("/v1/scripts/explain", &by_id).await.expect(200);
    assert_eq!(
        (&told["eventId"], &told["subscriptions"][1]["verdict"]),
        (&published["eventId"], &json!("matched"))
    );
    let one =
        client.post("/v1/scripts/explain", &json!({"event": event, "scriptId": "nobody"})).await.expect(200);
    assert_eq!(one["subscriptions"], json!([]));
    let absent = json!({"eventId": "01900000-0000-7000-8000-000000000000"});
    assert_eq!(client.post("/v1/scripts/explain", &absent).await.status, 404);
    assert_eq!(client.post("/v1/scripts/explain", &json!({})).await.problem().1, "MISSING_FIELD");
    let both = json!({"event": event, "eventId": published["eventId"]});
    assert_eq!(client.post("/v1/scripts/explain", &both).await.problem().1, "ONE_OF");
    // Another tenant finds neither the event nor the subscriptions.
    let stranger = lab.key("other", Role::Reader).await;
    assert_eq!(stranger.post("/v1/scripts/explain", &by_id).await.status, 404);
    let told = stranger.post("/v1/scripts/explain", &json!({"event": event})).await.expect(200);
    assert_eq!(told["subscriptions"], json!([]));
}

/// Whatever time an event has, it is found by its id, and subscriptions that came later say so.
#[tokio::test]
async fn an_event_of_any_time_is_explained_and_later_subscriptions_say_so() {
    let lab = Lab::start().await;
    let client = lab.local();
    greet(&client).await;
    subscribe(&client, "first", &json!(null)).await;
    subscribe(&client, "enabled", &json!(null)).await;
    client.post("/v1/subscriptions/enabled/disable", &json!({})).await.expect(200);
    let mut ids = Vec::new();
    // Years ago, just now, and nearly as far ahead as may be.
    for timestamp in [Some(1_600_000_000_000_u64), None, Some(SystemClock::start().now().millis() + 200_000)]
    {
        let mut event = json!({"eventType": "user.created", "properties": {"role": "admin"}});
        if let Some(timestamp) = timestamp {
            event["timestamp"] = json!(timestamp);
        }
        ids.push(client.post("/v1/events", &event).await.expect(202)["eventId"].clone());
    }
    subscribe(&client, "second", &json!(null)).await;
    client.post("/v1/subscriptions/enabled/enable", &json!({})).await.expect(200);
    for id in ids {
        let told = client.post("/v1/scripts/explain", &json!({ "eventId": id })).await.expect(200);
        let verdicts: Vec<_> = told["subscriptions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["subscriptionId"].as_str().unwrap(), one["verdict"].as_str().unwrap()))
            .collect();
        assert_eq!(verdicts, [("enabled", "before"), ("first", "matched"), ("second", "before")], "{told}");
    }
}

#[tokio::test]
async fn every_change_is_told_to_whoever_matches() {
    let lab = Lab::start().await;
    let client = lab.local();
    let changes = lab.engine.script_changes();
    let listening = changes.listen();
    greet(&client).await;
    listening.await;
    let tenant = TenantId::new("default").unwrap();
    let script = ScriptChange::Script(tenant.clone(), ScriptId::new("greet").unwrap());
    let subscription = ScriptChange::Subscription(tenant, SubscriptionId::new("s").unwrap());
    assert_eq!(changes.take(), std::slice::from_ref(&script));
    subscribe(&client, "s", &json!(null)).await;
    client.post("/v1/subscriptions/s/disable", &json!({})).await.expect(200);
    assert_eq!(changes.take(), std::slice::from_ref(&subscription));
    client.post("/v1/subscriptions/s/disable", &json!({})).await.expect(200);
    assert_eq!(changes.take(), [], "nothing changed");
    assert_eq!(client.delete("/v1/subscriptions/s").await.status, 204);
    assert_eq!(client.delete("/v1/scripts/greet").await.status, 204);
    assert_eq!(changes.take(), [script, subscription]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_has_a_thousand_scripts_and_no_more() {
    let lab = Lab::with(
        tidemill_server::ServerConfig { rate_per_second: 0, ..tidemill_server::ServerConfig::default() },
        tidemill_engine::policy::Policy::default(),
    )
    .await;
    let tenant = TenantId::new("default").unwrap();
    for number in 0..tidemill_model::authored::script::SCRIPTS_MAX - 1 {
        let draft = json!({"id": format!("s{number}"), "name": "x", "source": ""});
        let draft = tidemill_model::ScriptDraft::read(draft).unwrap();
        let create = tidemill_engine::engine::WriteScript::Create;
        lab.engine.put_script(&tenant, draft, create).await.unwrap();
    }
    let client = lab.local();
    greet(&client).await;
    let over = client.post("/v1/scripts", &json!({"name": "x", "source": ""})).await;
    assert_eq!(over.problem().1, "TOO_MANY");
    assert_eq!(client.delete("/v1/scripts/s7").await.status, 204);
    client.post("/v1/scripts", &json!({"name": "x", "source": ""})).await.expect(201);
    // A name that is taken gives its place back.
    assert_eq!(client.delete("/v1/scripts/s8").await.status, 204);
    let taken = json!({"id": "greet", "name": "x", "source": ""});
    assert_eq!(client.post("/v1/scripts", &taken).await.problem().1, "EXISTS");
    client.post("/v1/scripts", &json!({"name": "x", "source": ""})).await.expect(201);
}
