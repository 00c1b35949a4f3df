//! Executions, their dead letters, metrics and alerts. Runs are ended by hand: nothing here runs scripts.

use std::sync::Arc;

use serde_json::{Value, json};
use tidemill_engine::backend::Backend as _;
use tidemill_engine::command::{Command, EndExecution, ExecutionEnd, Match, NewExecution};
use tidemill_engine::execution::{ExecutionId, RunError, SourceEvent};
use tidemill_engine::record::RecordKey;
use tidemill_model::{
    AppName, EntityId, EntityType, EventId, EventType, Json, Role, ScriptId, SubscriptionId, TenantId,
    Timestamp,
};

use crate::lab::Lab;

fn default() -> TenantId {
    TenantId::new("default").unwrap()
}

/// Queues an execution of `script` for an event with this number.
pub(crate) async fn queue(lab: &Lab, tenant: &TenantId, script: &str, number: u128) -> ExecutionId {
    let event = SourceEvent {
        id: EventId::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0000 + (number << 80)),
        event_type: EventType::new("user.created").unwrap(),
        timestamp: Timestamp::new("t", 1_760_000_000_000).unwrap(),
        app_name: AppName::new("app").unwrap(),
        entity_type: EntityType::new("USER").unwrap(),
        entity_id: EntityId::new("u1").unwrap(),
        data: Some(Json::of(&json!({"role": "admin"}))),
        hop: 0,
    };
    let new = NewExecution {
        tenant: tenant.clone(),
        script: ScriptId::new(script).unwrap(),
        subscription: SubscriptionId::new("sub").unwrap(),
        event: event.clone(),
    };
    let backend = lab.engine.backend();
    let cursor = backend.record(RecordKey::scripts_cursor()).await.unwrap();
    let cursor_version = cursor.map_or(0, |record| record.version);
    let to = Some(backend.newest());
    let command = Command::Match(Match { lane: None, cursor_version, to, executions: vec![new] });
    backend.execute(vec![command]).await.unwrap().remove(0).unwrap();
    ExecutionId::of(event.id, &SubscriptionId::new("sub").unwrap())
}

async fn end(lab: &Lab, tenant: &TenantId, execution: ExecutionId, attempt: u32, end: ExecutionEnd) {
    let logs = Some(Json::of(&json!([{"level": "info", "text": "hello"}])));
    let tenant = tenant.clone();
    let ended = EndExecution { tenant, execution, attempt, duration_millis: 7, logs, end };
    let command = Command::EndExecution(ended);
    lab.engine.backend().execute(vec![command]).await.unwrap().remove(0).unwrap();
}

fn failed(retry_in_millis: Option<u64>) -> ExecutionEnd {
    let error =
        RunError { class: Arc::from("script"), message: Arc::from("boom"), stack: Arc::from("at greet:2:9") };
    ExecutionEnd::Failed { error, retry_in_millis, data: None }
}

/// Fails an execution for good.
pub(crate) async fn bury(lab: &Lab, tenant: &TenantId, script: &str, number: u128) -> ExecutionId {
    let id = queue(lab, tenant, script, number).await;
    end(lab, tenant, id, 1, failed(None)).await;
    id
}

fn ids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn sc_14_sc_15_executions_are_listed_and_shown() {
    let lab = Lab::start().await;
    let client = lab.local();
    let tenant = default();
    let waiting = queue(&lab, &tenant, "greet", 1).await;
    let retrying = queue(&lab, &tenant, "greet", 2).await;
    end(&lab, &tenant, retrying, 1, failed(Some(2_000))).await;
    let done = queue(&lab, &tenant, "other", 3).await;
    let result = Some(Json::of(&json!({"n": 1})));
    end(&lab, &tenant, done, 1, ExecutionEnd::Succeeded { result, effects: Vec::new() }).await;
    let dead = bury(&lab, &tenant, "greet", 4).await;

    let all = client.get("/v1/executions").await.expect(200);
    assert_eq!(ids(&all), [dead, done, retrying, waiting].map(|id| id.to_string()), "newest first");
    let statuses: Vec<_> = all["items"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, ["dead_letter", "success", "retrying", "queued"]);
    for (query, expected) in [
        ("?status=queued", vec![waiting]),
        ("?status=success", vec![done]),
        ("?status=processing", vec![]),
        ("?scriptId=greet", vec![dead, retrying, waiting]),
        ("?scriptId=greet&status=dead_letter", vec![dead]),
        ("?subscriptionId=sub&scriptId=other", vec![done]),
        ("?subscriptionId=none", vec![]),
    ] {
        let found = client.get(&format!("/v1/executions{query}")).await.expect(200);
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(ids(&found), expected, "{query}");
    }
    let listed = &all["items"][1];
    assert_eq!((listed.get("result"), listed.get("logs")), (None, None), "lists are short");
    let shown = client.get(&format!("/v1/executions/{done}")).await.expect(200);
    assert_eq!(
        (&shown["result"], &shown["durationMs"], &shown["attempts"]),
        (&json!({"n": 1}), &json!(7), &json!(1))
    );
    assert_eq!(shown["logs"], json!([{"level": "info", "text": "hello"}]));
    let shown = client.get(&format!("/v1/executions/{retrying}")).await.expect(200);
    assert_eq!(shown["error"], json!({"class": "script", "message": "boom", "stack": "at greet:2:9"}));
    assert!(shown["nextRunAt"].as_u64() > shown["createdAt"].as_u64(), "{shown}");
    assert_eq!(client.get("/v1/executions/none").await.status, 404);
    assert_eq!(client.get("/v1/executions?status=lost").await.status, 400);

    let first = client.get("/v1/executions?limit=3").await.expect(200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/executions?limit=3&cursor={cursor}")).await.expect(200);
    assert_eq!(ids(&rest), [waiting.to_string()]);
}

#[tokio::test]
async fn sc_20_a_dead_letter_has_its_ten_fields_and_is_replayed_or_discarded() {
    let lab = Lab::start().await;
    let client = lab.local();
    let tenant = default();
    let first = bury(&lab, &tenant, "greet", 1).await;
    let second = bury(&lab, &tenant, "greet", 2).await;
    let path = format!("/v1/dead-letters/{first}");
    let letter = client.get(&path).await.expect(200);
    for (field, value) in [
        ("kind", json!("script")),
        ("id", json!(first.to_string())),
        ("tenantId", json!("default")),
        ("scriptId", json!("greet")),
        ("eventType", json!("user.created")),
        ("eventData", json!({"role": "admin"})),
        ("errorMessage", json!("boom")),
        ("stackTrace", json!("at greet:2:9")),
        ("retryCount", json!(0)),
        ("state", json!("open")),
        ("errorClass", json!("script")),
    ] {
        assert_eq!(letter[field], value, "{field}");
    }
    assert!(letter["failedAt"].is_u64() && letter["createdAt"].is_u64(), "{letter}");
    assert_eq!(client.get("/v1/dead-letters").await.expect(200)["items"], json!([]), "tasks are the default");
    assert_eq!(client.get("/v1/dead-letters?kind=event").await.expect(200)["items"], json!([]));

    let replayed = client.post(&format!("{path}/replay"), &json!({})).await.expect(202);
    let again = replayed["executionId"].as_str().unwrap();
    let execution = client.get(&format!("/v1/executions/{again}")).await.expect(200);
    assert_eq!(
        (&execution["status"], &execution["retryCount"], &execution["replayOf"]),
        (&json!("queued"), &json!(0), &json!(first.to_string()))
    );
    let letter = client.get(&path).await.expect(200);
    assert_eq!((&letter["state"], &letter["replayedBy"]), (&json!("replayed"), &json!(again)));
    let twice = client.post(&format!("{path}/replay"), &json!({})).await;
    assert_eq!((twice.status, twice.code().as_str()), (409, "NOT_OPEN"));
    assert!(twice.json()["detail"].as_str().unwrap().contains(&first.to_string()), "{}", twice.json());
    let put_aside = client.post(&format!("/v1/dead-letters/{second}/discard"), &json!({})).await.expect(200);
    assert_eq!(put_aside["state"], "discarded");
    for (state, count) in [("open", 0), ("replayed", 1), ("discarded", 1)] {
        let found = client.get(&format!("/v1/dead-letters?kind=script&state={state}")).await.expect(200);
        assert_eq!(ids(&found).len(), count, "{state}");
    }
    for id in ["none", "01990000-0000-7000-8000-000000000000", "01990000000070008000000000000000"] {
        assert_eq!(client.get(&format!("/v1/dead-letters/{id}")).await.status, 404, "{id}");
    }
}

#[tokio::test]
async fn sc_21_letters_are_filtered_and_changed_together() {
    let lab = Lab::start().await;
    let client = lab.local();
    let tenant = default();
    let mut greet = Vec::new();
    for number in 1..=3 {
        greet.push(bury(&lab, &tenant, "greet", number).await.to_string());
    }
    let other = bury(&lab, &tenant, "other", 9).await.to_string();
    let list = async |query: &str| {
        ids(&client.get(&format!("/v1/dead-letters?kind=script{query}")).await.expect(200))
    };
    assert_eq!(list("&scriptId=greet").await, greet);
    assert_eq!(list("&eventType=user.deleted").await, Vec::<String>::new());
    let at = client.get(&format!("/v1/dead-letters/{other}")).await.expect(200)["failedAt"].as_u64().unwrap();
    assert!(list(&format!("&from={at}&to={at}")).await.contains(&other), "both ends count");
    assert!(list(&format!("&from={}", at + 60_000)).await.is_empty());
    let page = client.get("/v1/dead-letters?kind=script&limit=3").await.expect(200);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = list(&format!("&limit=3&cursor={cursor}")).await;
    assert_eq!(rest, std::slice::from_ref(&other));
    assert_eq!(
        client.get("/v1/dead-letters?scriptId=greet").await.problem(),
        (400, "INVALID_PARAMETER".into(), "scriptId".into())
    );

    let none = json!({"kind": "script", "scriptId": "nobody"});
    let many = client.post("/v1/dead-letters/replay", &none).await.expect(202);
    assert_eq!(many, json!({"ids": [], "more": false}));
    let some = json!({"kind": "script", "scriptId": "greet", "eventType": "user.created", "to": at + 1_000});
    let many = client.post("/v1/dead-letters/replay", &some).await.expect(202);
    assert_eq!(many, json!({"ids": greet, "more": false}));
    for body in [
        json!({"kind": "script"}),
        json!({"kind": "event", "dryRun": true}),
        json!({"kind": "task"}),
        json!({"kind": "script", "all": true, "scriptId": "greet"}),
    ] {
        let refused = client.post("/v1/dead-letters/discard", &body).await.problem();
        assert_eq!(refused, (400, "ONE_OF".into(), "all".into()), "{body}");
    }
    let every = json!({"kind": "script", "all": true});
    let many = client.post("/v1/dead-letters/discard", &every).await.expect(200);
    assert_eq!(many["ids"], json!([other]));
    assert!(list("&state=open").await.is_empty());
    for (body, code, field) in [
        (json!({}), "MISSING_FIELD", "kind"),
        (json!({"kind": "task", "scriptId": "greet"}), "INVALID_FIELD", "scriptId"),
        (json!({"kind": "script", "state": "open"}), "UNKNOWN_FIELD", "state"),
    ] {
        let (_, found, at) = client.post("/v1/dead-letters/replay", &body).await.problem();
        assert_eq!((found.as_str(), at.as_str()), (code, field), "{body}");
    }
}

#[tokio::test]
async fn sc_21_another_tenants_letters_and_executions_are_not_there() {
    let lab = Lab::start().await;
    let acme = TenantId::new("acme").unwrap();
    let letter = bury(&lab, &acme, "greet", 1).await;
    let stranger = lab.key("other", Role::Admin).await;
    for path in ["/v1/executions", "/v1/dead-letters?kind=script", "/v1/alerts"] {
        assert_eq!(stranger.get(path).await.expect(200)["items"], json!([]), "{path}");
    }
    assert_eq!(stranger.get(&format!("/v1/executions/{letter}")).await.status, 404);
    assert_eq!(stranger.get(&format!("/v1/dead-letters/{letter}")).await.status, 404);
    assert_eq!(stranger.post(&format!("/v1/dead-letters/{letter}/replay"), &json!({})).await.status, 404);
    let every = json!({"kind": "script", "all": true});
    let all = stranger.post("/v1/dead-letters/discard", &every).await.expect(200);
    assert_eq!(all["ids"], json!([]));
    let own = lab.key("acme", Role::Reader).await;
    assert_eq!(own.get(&format!("/v1/dead-letters/{letter}")).await.expect(200)["state"], "open");
    assert_eq!(own.post(&format!("/v1/dead-letters/{letter}/replay"), &json!({})).await.status, 403);
}

#[tokio::test]
async fn sc_27_the_metrics_are_text() {
    let lab = Lab::start().await;
    let answer = lab.local().get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    for name in [
        "events_matched_total",
        "events_filtered_total",
        "executions_queued_total",
        "executions_success_total",
        "executions_failed_total",
        "dlq_events_total",
        "queue_depth_gauge",
        "execution_duration_histogram",
    ] {
        assert!(answer.text().contains(&format!("# TYPE {name} ")), "{name}: {}", answer.text());
    }
    assert_eq!(lab.local().get("/v1/alerts").await.expect(200), json!({"items": [], "nextCursor": null}));
}
