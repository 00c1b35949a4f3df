//! Checks of health over HTTP and on the dashboard.

use serde_json::{Value, json};
use tidemill_model::Role;

use crate::dashboard::Browser;
use crate::lab::{Client, Lab};

async fn begin(worker: &Client, task: &Value) {
    let begun = json!({"requestId": task["requestId"], "fence": task["fence"], "pid": 7});
    worker.post("/v1/worker/begin", &begun).await.expect(200);
}

#[tokio::test]
async fn hc_01_a_check_on_demand_lists_what_is_processing() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (reader, worker) = (lab.key("acme", Role::Reader).await, lab.key("acme", Role::Worker).await);
    let other = lab.key("other", Role::Admin).await;
    let none = reader.get("/v1/health-check").await;
    assert_eq!((none.status, none.code().as_str()), (404, "NOT_FOUND"));
    assert!(none.text().contains("POST /v1/health-check"), "{}", none.text());
    assert_eq!(reader.post("/v1/health-check", &json!({})).await.status, 403);
    let unknown = admin.post("/v1/health-check", &json!({"tenant": "other"})).await;
    assert_eq!(unknown.status, 400, "{}", unknown.text());
    admin.define("work").await;
    admin.submit(&[("a", &[]), ("b", &[]), ("c", &["a"])]).await;
    let tasks = worker.claim(2).await;
    for task in &tasks {
        begin(&worker, task).await;
    }
    let ids: Vec<_> = tasks.iter().map(|task| task["requestId"].as_str().unwrap()).collect();
    let mut before = Vec::new();
    for id in &ids {
        before.push(admin.get(&format!("/v1/tasks/{id}")).await.expect(200));
    }
    let found = admin.post("/v1/health-check", &json!({})).await.expect(200);
    assert_eq!(
        found["summary"],
        json!({"totalProcessing": 2, "healthy": 2, "warning": 0, "critical": 0, "overtime": 0})
    );
    assert_eq!((&found["isHealthy"], &found["findings"]), (&json!(true), &json!([])));
    let mut listed: Vec<_> =
        found["tasks"].as_array().unwrap().iter().map(|task| task["requestId"].as_str().unwrap()).collect();
    listed.sort_unstable();
    let mut expected = ids.clone();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(found["tasks"][0]["lastEventType"], "Task Processing Started");
    assert_eq!(reader.get("/v1/health-check").await.expect(200), found);
    for (id, before) in ids.iter().zip(before) {
        assert_eq!(admin.get(&format!("/v1/tasks/{id}")).await.expect(200), before, "it has not noticed");
    }
    let events = admin.get("/v1/events?entity=SYSTEM/health-check").await.expect(200);
    let [event] = &events["items"].as_array().unwrap()[..] else { panic!("one event: {events}") };
    assert_eq!(event["eventType"], "Task Health Check");
    assert!(event["SK"].as_str().unwrap().ends_with(found["eventId"].as_str().unwrap()), "{event}");
    assert_eq!(event["properties"], json!({"summary": found["summary"], "tasks": found["tasks"]}));
    assert_eq!(other.get("/v1/health-check").await.status, 404, "it is another's");
    let found = other.send("POST", "/v1/health-check", &[], b"").await.expect(200);
    assert_eq!((&found["summary"]["totalProcessing"], &found["tasks"]), (&json!(0), &json!([])));
}

#[tokio::test]
async fn the_dashboard_shows_the_last_check_and_makes_one() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (reader, worker) = (lab.key("acme", Role::Reader).await, lab.key("acme", Role::Worker).await);
    admin.define("work").await;
    admin.submit(&[("a", &[])]).await;
    let task = worker.claim(1).await.remove(0);
    let id = task["requestId"].as_str().unwrap();
    begin(&worker, &task).await;
    let mut browser = Browser::logged_in(&admin).await;
    assert!(browser.get("/health").await.text().contains("No check was made yet"));
    let token = browser.token("/health").await;
    let answer = browser.post("/health/check", &[("form_token", &token)]).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/health")));
    let page = browser.get("/health").await.text();
    assert!(page.contains(id) && page.contains("No running task needs a look"), "{page}");
    let looking = Browser::logged_in(&reader).await;
    let page = looking.get("/health").await.text();
    assert!(page.contains(id) && !page.contains("Check now"), "{page}");
}

#[tokio::test]
async fn what_a_check_told_stands_among_the_alerts_until_another_finds_it_well() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (other, worker) = (lab.key("other", Role::Admin).await, lab.key("acme", Role::Worker).await);
    admin.define("work").await;
    admin.submit(&[("a", &[]), ("b", &[])]).await;
    let task = worker.claim(1).await.remove(0);
    let id = task["requestId"].as_str().unwrap();
    begin(&worker, &task).await;
    let none = json!({"items": [], "nextCursor": null});
    admin.post("/v1/health-check", &json!({})).await.expect(200);
    assert_eq!(admin.get("/v1/alerts").await.expect(200), none);
    lab.pass(16 * 60_000);
    let found = admin.post("/v1/health-check", &json!({})).await.expect(200);
    let at = &found["checkedAt"];
    let alerts = admin.get("/v1/alerts").await.expect(200);
    let waits = found["findings"][0]["message"].as_str().unwrap();
    let alert = |message: &str| json!({"kind": "task_health", "tenantId": "acme", "raisedAt": at, "message": message});
    let expected = [alert(&format!("1 task is not well: 1 critical ({id})")), alert(waits)];
    assert_eq!(alerts["items"], json!(expected));
    assert_eq!(other.get("/v1/alerts").await.expect(200), none, "it is another's");
    let page = Browser::logged_in(&admin).await.get("/").await.text();
    assert!(page.contains("1 task is not well: 1 critical") && page.contains(waits), "{page}");
    // Told again after an hour, it stands since it was told first.
    lab.pass(61 * 60_000);
    admin.post("/v1/health-check", &json!({})).await.expect(200);
    assert_eq!(&admin.get("/v1/alerts").await.expect(200)["items"][0]["raisedAt"], at);
    for task in worker.claim(2).await {
        begin(&worker, &task).await;
    }
    admin.post("/v1/health-check", &json!({})).await.expect(200);
    assert_eq!(admin.get("/v1/alerts").await.expect(200), none);
}
