//! Which workers a tenant has, and that nobody sees more than that.

use serde_json::{Value, json};
use tidemill_engine::engine::Claimant;
use tidemill_model::{Role, WorkerId};

use crate::lab::{Client, Lab};

async fn claim(client: &Client, worker: &str, slots: u32, total: &str) -> Vec<Value> {
    let body = json!({"workerId": worker, "slots": slots}).to_string();
    let headers = [("Content-Type", "application/json"), ("Tidemill-Worker-Slots", total)];
    let answer = client.send("POST", "/v1/worker/claim", &headers, body.as_bytes()).await.expect(200);
    answer["tasks"].as_array().unwrap().clone()
}

async fn submit(client: &Client, id: &str) {
    client.post("/v1/tasks", &json!({"requestId": id, "name": "work"})).await.expect(202);
}

async fn workers(client: &Client) -> Vec<Value> {
    client.get("/v1/workers").await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn workers_are_listed_with_what_they_run_for_the_tenant_that_asks() {
    let lab = Lab::start().await;
    let (acme, other) = (lab.key("acme", Role::Admin).await, lab.key("other", Role::Admin).await);
    let both = lab.worker_key(&["acme", "other"], Role::Worker).await;
    let own = lab.worker_key(&["other"], Role::Worker).await;
    for (tenant, id) in [(&acme, "of-acme"), (&other, "of-other")] {
        tenant.define("work").await;
        submit(tenant, id).await;
    }
    assert_eq!(workers(&acme).await, [""; 0], "nobody is there");
    assert_eq!(claim(&both, "w-both", 2, "4").await.len(), 2);
    assert_eq!(claim(&own, "w-own", 1, "9").await.len(), 0);

    let seen = workers(&acme).await;
    let [worker] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(
        (&worker["workerId"], &worker["place"], &worker["slots"], &worker["running"]),
        (&json!("w-both"), &json!("remote"), &json!(4), &json!(1)),
        "{worker}"
    );
    assert!(worker["lastSeenAt"].as_u64().is_some_and(|at| at > 1_000_000_000_000), "{worker}");
    let [task] = &worker["tasks"].as_array().unwrap()[..] else { panic!("{worker}") };
    assert_eq!(
        (&task["requestId"], &task["name"], &task["attempt"]),
        (&json!("of-acme"), &json!("work"), &json!(1))
    );
    assert!(task["leaseUntil"].as_u64() > task["since"].as_u64(), "{task}");
    let whole = acme.get("/v1/workers").await.text();
    assert!(!whole.contains("of-other") && !whole.contains("w-own"), "{whole}");

    let seen = workers(&other).await;
    let names: Vec<_> = seen.iter().map(|worker| worker["workerId"].as_str().unwrap()).collect();
    assert_eq!(names, ["w-both", "w-own"]);
    assert_eq!(seen[1]["slots"], 9);
    let first = other.get("/v1/workers?limit=1").await.expect(200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = other.get(&format!("/v1/workers?limit=1&cursor={cursor}")).await.expect(200);
    assert_eq!((&second["items"][0]["workerId"], second["nextCursor"].is_null()), (&json!("w-own"), true));
    assert_eq!(other.get("/v1/workers?cursor=worker1.%21").await.problem().2, "cursor");

    // A worker's key does not see other workers.
    assert_eq!(both.get("/v1/workers").await.code(), "FORBIDDEN");
    let reader = lab.key("acme", Role::Reader).await;
    assert_eq!(workers(&reader).await.len(), 1);
}

/// `workerId` may be left out: the holder of the lease speaks then. Where nobody holds it, nobody is listed.
#[tokio::test]
async fn who_gives_no_name_is_the_holder_of_the_lease_or_nobody() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    admin.define("work").await;
    for id in ["stopped", "done"] {
        submit(&admin, id).await;
    }
    let tasks = claim(&worker, "w-1", 2, "2").await;
    let beat = |task: &Value| json!({"requestId": task["requestId"], "fence": task["fence"]});
    for task in &tasks {
        worker.post("/v1/worker/heartbeat", &beat(task)).await.expect(200);
    }
    let [stopped, done] =
        ["stopped", "done"].map(|id| tasks.iter().find(|task| task["requestId"] == id).unwrap());
    admin.post("/v1/tasks/stopped/cancel", &json!({})).await.expect(202);
    assert_eq!(worker.post("/v1/worker/heartbeat", &beat(stopped)).await.expect(200)["cancel"], true);
    for _ in 0..2 {
        worker.complete(done, &json!(1)).await;
    }
    let seen = workers(&admin).await;
    let names: Vec<_> = seen.iter().map(|worker| worker["workerId"].as_str().unwrap()).collect();
    assert_eq!(names, ["w-1"]);
}

#[tokio::test]
async fn the_servers_own_worker_is_there_for_every_tenant() {
    let lab = Lab::start().await;
    let (acme, other) = (lab.key("acme", Role::Admin).await, lab.key("other", Role::Admin).await);
    acme.define("work").await;
    submit(&acme, "of-acme").await;
    let _slots = lab.engine.slot_meter().add(3);
    let worker = WorkerId::trusted("command-1");
    let request = Claimant { worker, generation: Some(1), max: 1, tenants: None, begin: None };
    assert_eq!(lab.engine.claim(request).await.unwrap().tasks.len(), 1);
    for (client, running) in [(&acme, 1), (&other, 0)] {
        let seen = workers(client).await;
        let [worker] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(
            (&worker["workerId"], &worker["place"], &worker["slots"], &worker["running"]),
            (&json!("command-1"), &json!("server"), &json!(3), &json!(running)),
        );
        assert_eq!(worker["tasks"].as_array().unwrap().len(), running);
    }
}
