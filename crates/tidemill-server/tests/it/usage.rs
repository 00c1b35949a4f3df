//! What agents used, and budgets, over HTTP.

use serde_json::{Value, json};
use tidemill_model::Role;

use crate::lab::{Client, Lab};

/// A server with an agent and a command that jobs can name.
async fn ready() -> (Lab, Client, Client) {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.key("acme", Role::Worker).await;
    define(&admin).await;
    (lab, admin, worker)
}

async fn define(admin: &Client) {
    admin.define("plain").await;
    let agent = json!({"name": "tags", "runner": "agent", "prompt": "Find tags for {{storeId}}."});
    admin.post("/v1/task-definitions", &agent).await.expect(201);
}

fn usage(cost: f64) -> Value {
    json!({
        "inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 3, "cacheWriteTokens": 4, "turns": 2, "costUsd": cost
    })
}

async fn submit(client: &Client, job: &Value) -> String {
    client.post("/v1/jobs", job).await.expect(201)["jobId"].as_str().unwrap().to_owned()
}

/// Claims one task and completes it for this much.
async fn work(worker: &Client, cost: f64) {
    let task = worker.claim(1).await.remove(0);
    let outcome = json!({"status": "completed", "durationMs": 700, "usage": usage(cost)});
    worker.finish(&task, &outcome).await.expect(200);
}

fn today(events: &Value) -> String {
    let millis = events["items"][0]["timestamp"].as_u64().unwrap();
    tidemill_model::Day::of(tidemill_model::Timestamp::clamped(millis)).to_string()
}

#[tokio::test]
async fn ag_14_what_agents_used_is_summed() {
    let (lab, admin, worker) = ready().await;
    let two = json!({"tasks": [{"taskId": "a", "name": "tags"}, {"taskId": "b", "name": "plain"}]});
    let job = submit(&admin, &two).await;
    // A failed attempt is paid too.
    let task = worker.claim(1).await.remove(0);
    let failed = json!({
        "status": "failed", "error": "not now", "errorCategory": "network", "usage": usage(0.25), "sessionId": "s-1"
    });
    assert_eq!(worker.finish(&task, &failed).await.expect(200)["state"], "retrying");
    work(&worker, 0.5).await;
    let seen = admin.get(&format!("/v1/jobs/{job}")).await.expect(200);
    let sum = json!({
        "attempts": 2, "tasks": 1, "inputTokens": 200, "outputTokens": 40, "cacheReadTokens": 6, "cacheWriteTokens": 8,
        "turns": 4, "durationMs": seen["usage"]["durationMs"], "costUsd": 0.75
    });
    assert_eq!(seen["usage"], sum);
    assert!(seen["usage"]["durationMs"].as_u64().unwrap() >= 700);
    assert_eq!(seen.get("budget"), None);
    let events = admin.get(&format!("/v1/jobs/{job}/events")).await.expect(200);
    let (day, name) = (today(&events), task["name"].as_str().unwrap());
    let row = |key: &str| {
        let mut row = sum.clone();
        row["key"] = key.into();
        row
    };
    for (query, expected) in [
        ("", vec![row(&day)]),
        ("?by=day", vec![row(&day)]),
        ("?by=tenant", vec![row("acme")]),
        ("?by=job", vec![row(&job)]),
        ("?by=job&from=2020-01-01&to=2020-01-02", vec![]),
        ("?by=day&to=2020-01-02", vec![]),
    ] {
        let page = admin.get(&format!("/v1/usage{query}")).await.expect(200);
        assert_eq!(page["items"], json!(expected), "{query}");
        assert_eq!(page["nextCursor"], Value::Null, "{query}");
    }
    let names = admin.get("/v1/usage?by=definition").await.expect(200);
    assert!(names["items"].as_array().unwrap().iter().any(|row| row["key"] == name), "{names}");
    let within = admin.get(&format!("/v1/usage?by=definition&from={day}&to={day}")).await.expect(200);
    assert_eq!(within["items"], names["items"]);
    // Pages of one.
    let first = admin.get("/v1/usage?by=definition&limit=1").await.expect(200);
    let next = first["nextCursor"].as_str().unwrap();
    let second = admin.get(&format!("/v1/usage?by=definition&limit=1&cursor={next}")).await.expect(200);
    let both = json!([first["items"][0], second["items"][0]]);
    assert_eq!((both, &second["nextCursor"]), (names["items"].clone(), &Value::Null));
    // Another tenant sees nothing of it.
    let stranger = lab.key("other", Role::Reader).await;
    for by in ["job", "definition", "day"] {
        let page = stranger.get(&format!("/v1/usage?by={by}")).await.expect(200);
        assert_eq!(page["items"], json!([]), "{by}");
    }
    let total = stranger.get("/v1/usage?by=tenant").await.expect(200);
    assert_eq!((&total["items"][0]["key"], &total["items"][0]["attempts"]), (&json!("other"), &json!(0)));
}

#[tokio::test]
async fn a_budget_stops_agents_until_it_is_raised() {
    let (lab, admin, worker) = ready().await;
    let producer = lab.key("acme", Role::Producer).await;
    let job = json!({
        "budget": {"usd": 1},
        "tasks": [
            {"taskId": "a", "name": "tags"},
            {"taskId": "b", "name": "tags", "dependsOn": ["a"]},
            {"taskId": "c", "name": "plain", "dependsOn": ["a"]}
        ]
    });
    let job = submit(&producer, &job).await;
    let claimed = worker.claim(1).await.remove(0);
    assert_eq!(claimed["budgetLeftUsd"], 1.0);
    let outcome = json!({"status": "completed", "usage": usage(1.25)});
    worker.finish(&claimed, &outcome).await.expect(200);
    let seen = admin.get(&format!("/v1/jobs/{job}")).await.expect(200);
    let budget = json!({"usd": 1.0, "spent": {"usd": 1.25, "tokens": 127}, "usedUp": true});
    assert_eq!(seen["budget"], budget);
    let mut names = Vec::new();
    for _ in 0..2 {
        names.extend(worker.claim(5).await.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
    }
    assert_eq!(names, ["c"], "the command runs, the agent does not");
    let stopped = admin.get(&format!("/v1/tasks/{job}_b")).await.expect(200);
    assert_eq!(stopped["error"], "the job's budget of 1.00 USD is used up: 1.25 USD");
    let events = admin.get(&format!("/v1/tasks/{job}_b/events?type=Task%20Failed")).await.expect(200);
    assert_eq!(events["items"][0]["properties"]["code"], "BUDGET_EXCEEDED");
    let told = admin.get(&format!("/v1/jobs/{job}/events?type=Budget%20Exceeded")).await.expect(200);
    assert_eq!(told["items"].as_array().unwrap().len(), 1);
    assert_eq!(told["items"][0]["properties"]["scope"], "job");

    let path = format!("/v1/jobs/{job}/budget");
    assert_eq!(producer.put(&path, &json!({"usd": 9})).await.problem().0, 403, "only an admin raises it");
    let raised = admin.put(&path, &json!({"usd": 9})).await.expect(200);
    assert_eq!((&raised["usedUp"], &raised["usd"]), (&json!(false), &json!(9.0)));
    producer.post(&format!("/v1/jobs/{job}/resume"), &json!({})).await.expect(202);
    let again = worker.claim(1).await.remove(0);
    assert_eq!((&again["taskId"], &again["budgetLeftUsd"]), (&json!("b"), &json!(7.75)));
    admin.delete(&path).await.expect(204);
    let seen = admin.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!(seen.get("budget"), None);
}

#[tokio::test]
async fn a_tenants_budget_is_set_by_its_admin() {
    let (lab, admin, worker) = ready().await;
    assert_eq!(admin.get("/v1/budget").await.problem().0, 404);
    let set =
        admin.put("/v1/budget", &json!({"usd": 2.5, "tokens": 1000, "period": "day"})).await.expect(200);
    let expected = json!({
        "usd": 2.5, "tokens": 1000, "period": "day", "spent": {"usd": 0.0, "tokens": 0}, "usedUp": false
    });
    assert_eq!(set, expected);
    let reader = lab.key("acme", Role::Reader).await;
    assert_eq!(reader.get("/v1/budget").await.expect(200), expected);
    for role in [Role::Reader, Role::Producer, Role::Worker] {
        let client = lab.key("acme", role).await;
        assert_eq!(client.put("/v1/budget", &json!({"usd": 1})).await.status, 403, "{role:?}");
        assert_eq!(client.delete("/v1/budget").await.status, 403, "{role:?}");
    }
    submit(&admin, &json!({"tasks": [{"taskId": "a", "name": "tags"}]})).await;
    work(&worker, 3.0).await;
    assert_eq!(admin.get("/v1/budget").await.expect(200)["usedUp"], true);
    let job = submit(&admin, &json!({"tasks": [{"taskId": "a", "name": "tags"}]})).await;
    assert!(worker.claim(1).await.is_empty());
    let stopped = admin.get(&format!("/v1/tasks/{job}_a")).await.expect(200);
    assert_eq!(stopped["error"], "the tenant's budget of 2.50 USD a day is used up: 3.00 USD");
    // Nobody else is concerned.
    let (other, theirs) = (lab.key("other", Role::Admin).await, lab.key("other", Role::Worker).await);
    define(&other).await;
    submit(&other, &json!({"tasks": [{"taskId": "a", "name": "tags"}]})).await;
    assert_eq!(theirs.claim(1).await.len(), 1);
    assert_eq!(other.get("/v1/budget").await.problem().0, 404);
    // What came as a raw message is known to be an agent's once it was claimed.
    let message = json!({"body": {"name": "tags"}, "attributes": {"requestId": "by-hand"}});
    admin.post("/v1/queues/tasks/messages", &message).await.expect(202);
    assert!(worker.claim(1).await.is_empty());
    let stopped = admin.get("/v1/tasks/by-hand").await.expect(200);
    assert_eq!(
        stopped["error"],
        "agent may not start: the tenant's budget of 2.50 USD a day is used up: 3.00 USD"
    );
    for _ in 0..2 {
        admin.delete("/v1/budget").await.expect(204);
    }
    assert_eq!(admin.get("/v1/budget").await.problem().0, 404);
}

#[tokio::test]
async fn a_session_comes_with_the_next_claim() {
    let (_lab, admin, worker) = ready().await;
    let retry = json!({"maxAttempts": 3, "firstDelay": 0, "maxDelay": 0});
    let job = submit(&admin, &json!({"tasks": [{"taskId": "a", "name": "tags", "retry": retry}]})).await;
    let task = worker.claim(1).await.remove(0);
    assert_eq!(task.get("sessionId"), None);
    let outcome = json!({"status": "failed", "error": "x", "errorCategory": "network", "sessionId": "s-1"});
    worker.finish(&task, &outcome).await.expect(200);
    let task = worker.claim(1).await.remove(0);
    assert_eq!(task["sessionId"], "s-1");
    // Given back, with what it had used and where it had come to.
    let released = json!({
        "requestId": task["requestId"], "fence": task["fence"], "reason": "shutdown", "sessionId": "s-2",
        "usage": usage(0.5)
    });
    worker.post("/v1/worker/release", &released).await.expect(200);
    let task = worker.claim(1).await.remove(0);
    assert_eq!(task["sessionId"], "s-2");
    let seen = admin.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!((&seen["usage"]["attempts"], &seen["usage"]["costUsd"]), (&json!(1), &json!(0.5)));
    let events =
        admin.get(&format!("/v1/tasks/{job}_a/events?type=Task%20Processing%20Failed")).await.expect(200);
    let sessions: Vec<_> =
        events["items"].as_array().unwrap().iter().map(|event| &event["properties"]["sessionId"]).collect();
    assert_eq!(sessions, ["s-1", "s-2"]);
}

#[tokio::test]
async fn bad_usage_and_budgets_are_refused() {
    let (_lab, admin, worker) = ready().await;
    let job = submit(&admin, &json!({"tasks": [{"taskId": "a", "name": "tags"}]})).await;
    for (path, field) in [
        ("/v1/usage?by=week", "by"),
        ("/v1/usage?from=yesterday", "from"),
        ("/v1/usage?to=2026-02-30", "to"),
        ("/v1/usage?from=2026-11-16&to=2026-11-15", "from"),
        ("/v1/usage?limit=0", "limit"),
        ("/v1/usage?cursor=x", "cursor"),
        ("/v1/usage?by=day&cursor=usage-day1.x", "cursor"),
        ("/v1/usage?by=job&cursor=usage-job1.x", "cursor"),
        ("/v1/usage?since=2026-11-16", "since"),
    ] {
        let answer = admin.get(path).await;
        assert_eq!((answer.status, answer.problem().2.as_str()), (400, field), "{path}: {}", answer.text());
    }
    let of_job = format!("/v1/jobs/{job}/budget");
    for (path, body, field) in [
        ("/v1/budget", json!({}), "usd"),
        ("/v1/budget", json!({"usd": -1}), "usd"),
        ("/v1/budget", json!({"usd": "5"}), "usd"),
        ("/v1/budget", json!({"usd": 2e6}), "usd"),
        ("/v1/budget", json!({"tokens": 1.5}), "tokens"),
        ("/v1/budget", json!({"tokens": 2_000_000_000_000_u64}), "tokens"),
        ("/v1/budget", json!({"usd": 1, "period": "week"}), "period"),
        ("/v1/budget", json!({"usd": 1, "eur": 1}), "eur"),
        (of_job.as_str(), json!({"usd": 1, "period": "day"}), "period"),
        (of_job.as_str(), json!({"usd": null}), "usd"),
    ] {
        let answer = admin.put(path, &body).await;
        assert_eq!((answer.status, answer.problem().2.as_str()), (400, field), "{body}: {}", answer.text());
    }
    assert_eq!(
        admin.put(&format!("/v1/jobs/job-{}/budget", "0".repeat(32)), &json!({"usd": 1})).await.status,
        404
    );
    let wrong = json!({"budget": {"usd": -2}, "tasks": [{"taskId": "a", "name": "tags"}]});
    let answer = admin.post("/v1/jobs", &wrong).await;
    assert_eq!((answer.status, answer.problem().2.as_str()), (400, "budget.usd"));
    let task = worker.claim(1).await.remove(0);
    for outcome in [
        json!({"status": "completed", "usage": {"costUsd": -1}}),
        json!({"status": "completed", "usage": {"costUsd": "1"}}),
        json!({"status": "completed", "usage": {"inputTokens": -1}}),
        json!({"status": "completed", "usage": {"dollars": 1}}),
        json!({"status": "completed", "sessionId": "a b"}),
        json!({"status": "completed", "sessionId": ""}),
    ] {
        let answer = worker.finish(&task, &outcome).await;
        assert_eq!(answer.status, 400, "{outcome}: {}", answer.text());
        assert!(answer.problem().2.starts_with("outcome"), "{outcome}: {}", answer.text());
    }
}
