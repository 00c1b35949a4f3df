//! The overview, and what changes on pages without an event.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Command, DeliveryEnd, EndDelivery};
use tidemill_engine::engine::DeliveryFilter;
use tidemill_engine::policy::Policy;
use tidemill_model::{TenantId, Timestamp};
use tidemill_server::ServerConfig;

use crate::dashboard::Live;
use crate::lab::{Client, LONG, Lab};
use crate::workflow::{failed, path, publish};

/// The number that the overview shows under a name.
async fn figure(client: &Client, name: &str) -> String {
    let page = client.get("/").await.text();
    let (before, _) = page.split_once(&format!(">{name}<")).unwrap_or_else(|| panic!("no {name}: {page}"));
    let end = before.rfind("</").unwrap();
    before[..end].rsplit('>').next().unwrap().to_owned()
}

async fn until_figure(client: &Client, name: &str, expected: &str) {
    let asking = async {
        while figure(client, name).await != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, asking).await.unwrap_or_else(|_| panic!("{name} never was {expected}"));
}

#[tokio::test]
async fn tasks_without_a_job_count_and_what_runs_is_there_however_old_it_is() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    let submit = async || client.post("/v1/tasks", &json!({"name": "work", "input": {}})).await.expect(202);
    submit().await;
    let task = client.claim(1).await.remove(0);
    let begun = json!({"requestId": task["requestId"], "fence": task["fence"], "pid": 7});
    client.post("/v1/worker/begin", &begun).await.expect(200);
    let page = client.get("/").await.text();
    assert!(page.contains(task["requestId"].as_str().unwrap()), "{page}");
    until_figure(&client, "tasks processing", "1").await;
    submit().await;
    submit().await;
    until_figure(&client, "tasks pending", "2").await;
    for task in client.claim(2).await {
        let done = json!({"requestId": task["requestId"], "fence": task["fence"],
            "outcome": {"status": "completed"}});
        client.post("/v1/worker/finish", &done).await.expect(200);
    }
    until_figure(&client, "tasks pending", "0").await;
    until_figure(&client, "tasks processing", "1").await;
}

#[tokio::test]
async fn what_never_arrived_is_counted_and_shows_up_although_no_event_tells_it() {
    let policy = Policy { workflow_webhook: true, ..Policy::default() };
    // Nothing comes by the clock.
    let config = ServerConfig { stream_heartbeat: Duration::from_secs(3_600), ..ServerConfig::default() };
    let lab = Lab::with(config, policy).await;
    let client = lab.local();
    publish(&client, &[failed("e-1", "Cook", "SVL", &["31001"])]).await;
    client.post(&format!("{}/resume", path("e-1")), &json!({})).await.expect(200);
    assert_eq!(figure(&client, "dead letters").await, "0");
    let mut live = Live::open(&client, "/live/dead-letters?kind=event").await;
    live.read_until("Nothing was given up").await;
    let backend = lab.engine.backend();
    let due = backend
        .look(|state| state.deliveries().due(Timestamp::MAX, 1, |_| false))
        .await
        .unwrap()
        .due
        .remove(0);
    for attempt in 1..=4 {
        let end = DeliveryEnd::Failed { error: Arc::from("answered 500") };
        let ended = EndDelivery { tenant: due.tenant.clone(), delivery: due.id, attempt, told: 0, end };
        backend.execute(vec![Command::EndDelivery(ended)]).await.unwrap();
    }
    live.read_until("answered 500").await;
    assert_eq!(figure(&client, "dead letters").await, "1");
    let page = client.get("/").await.text();
    assert!(page.contains("/dead-letters?kind=event"), "{page}");
    let letters =
        lab.engine.delivery_letters(&TenantId::trusted("default"), &DeliveryFilter::default(), None, 9).await;
    assert_eq!(letters.unwrap().letters.len(), 1);
    let found: Value = client.get("/v1/dead-letters?kind=event").await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_length_of_a_lease_is_told_as_claims_tell_it() {
    let policy = Policy { lease_millis: 3_000, visibility_millis: 7_000, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let page = lab.local().get("/settings").await.text();
    let row = |name: &str| page.split(name).nth(1).unwrap().split("</tr>").next().unwrap().to_owned();
    assert!(row("Lease duration").contains("3.0 s"), "{}", row("Lease duration"));
    assert!(row("Visibility timeout of a received message").contains("7.0 s"));
}
