//! The pages for tasks, definitions, workers, submitting and traces.

use serde_json::{Value, json};
use tidemill_model::Role;

use crate::dashboard::{Browser, encoded};
use crate::lab::{Client, Lab};

const BAD: &str = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'";

#[tokio::test]
async fn tasks_are_listed_by_state_name_and_kind() {
    let lab = Lab::start().await;
    let (admin, worker) = (lab.key("acme", Role::Admin).await, lab.worker_key(&["acme"], Role::Worker).await);
    for name in ["work", "other"] {
        admin.define(name).await;
    }
    admin.post("/v1/tasks", &json!({"requestId": "alone-1", "name": "other"})).await.expect(202);
    let task = worker.claim(1).await.remove(0);
    worker.complete(&task, &json!(1)).await;
    let job = admin.submit(&[("of-job", &[])]).await;
    let ids = |answer: Value| -> Vec<String> {
        let items = answer["items"].as_array().unwrap();
        items.iter().map(|task| task["requestId"].as_str().unwrap().to_owned()).collect()
    };
    let own = format!("{job}_of-job");
    for (asked, expected) in [
        ("", vec![own.as_str(), "alone-1"]),
        ("?withoutJob=true", vec!["alone-1"]),
        ("?withoutJob=false", vec![&own]),
        ("?name=other", vec!["alone-1"]),
        ("?name=nobody", vec![]),
        ("?state=completed", vec!["alone-1"]),
        ("?state=completed&withoutJob=false", vec![]),
    ] {
        assert_eq!(ids(admin.get(&format!("/v1/tasks{asked}")).await.expect(200)), expected, "{asked}");
        let browser = Browser::logged_in(&admin).await;
        let page = browser.get(&format!("/tasks{asked}")).await;
        assert_eq!(page.status, 200);
        for id in [own.as_str(), "alone-1"] {
            assert_eq!(
                page.text().contains(&format!("\"/tasks/{id}\"")),
                expected.contains(&id),
                "{asked}: {id}"
            );
        }
    }
    assert_eq!(admin.get("/v1/tasks?withoutJob=perhaps").await.problem().2, "withoutJob");
}

#[tokio::test]
async fn definitions_are_shown_with_their_versions() {
    let lab = Lab::start().await;
    let (admin, other) = (lab.key("acme", Role::Admin).await, lab.key("other", Role::Admin).await);
    let draft =
        |command: &str| json!({"name": "work", "runner": "command", "command": command, "description": BAD});
    admin.post("/v1/task-definitions", &draft("echo first")).await.expect(201);
    admin.put("/v1/task-definitions/work", &draft(&format!("echo second {BAD}"))).await.expect(200);
    let browser = Browser::logged_in(&admin).await;
    let list = browser.get("/definitions").await.text();
    assert!(list.contains("href=\"/definitions/work\"") && list.contains("echo second"), "{list}");
    let newest = browser.get("/definitions/work").await.text();
    assert!(newest.contains("echo second") && newest.contains("/definitions/work?version=1"), "{newest}");
    assert!(!newest.contains("<script>alert") && !newest.contains("<img src=x"), "{newest}");
    let first = browser.get("/definitions/work?version=1").await.text();
    assert!(first.contains("echo first") && first.contains("an earlier version"), "{first}");
    for path in
        ["/definitions/work?version=3", "/definitions/none", &format!("/definitions/{}", encoded(BAD))]
    {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    let foreign = Browser::logged_in(&other).await;
    assert!(!foreign.get("/definitions").await.text().contains("/definitions/work"));
    assert_eq!(foreign.get("/definitions/work").await.status, 404);
    admin.delete("/v1/task-definitions/work").await.expect(204);
    let removed = browser.get("/definitions/work?version=2").await.text();
    assert!(removed.contains("was removed"), "{removed}");
}

#[tokio::test]
async fn a_page_of_workers_tells_no_tenant_of_another() {
    let lab = Lab::start().await;
    let (admin, other) = (lab.key("acme", Role::Admin).await, lab.key("other", Role::Admin).await);
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    admin.define("work").await;
    admin.post("/v1/tasks", &json!({"requestId": "mine", "name": "work"})).await.expect(202);
    let claim = json!({"workerId": format!("w-{BAD}"), "slots": 1});
    worker.post("/v1/worker/claim", &claim).await.expect(200);
    let page = Browser::logged_in(&admin).await.get("/workers").await.text();
    assert!(page.contains("\"/tasks/mine\"") && page.contains("present"), "{page}");
    assert!(
        page.contains("w-&lt;script") && !page.contains("<script>alert") && !page.contains("<img src=x"),
        "{page}"
    );
    let page = Browser::logged_in(&other).await.get("/workers").await.text();
    assert!(!page.contains("mine") && !page.contains("w-&lt;"), "{page}");
}

async fn browser_with_token(client: &Client, path: &str) -> (Browser, String) {
    let browser = Browser::logged_in(client).await;
    let token = browser.token(path).await;
    (browser, token)
}

#[tokio::test]
async fn a_job_is_checked_and_submitted_by_a_form() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (mut browser, token) = browser_with_token(&admin, "/submit").await;
    for (deed, status) in [("check", 200), ("submit", 400)] {
        // What the file says, and what only the server knows.
        for (text, told) in [
            (
                "{\"tasks\": [{\"taskId\": \"a\", \"run\": \"x\", \"timeout\": \"soon\"}]}".to_owned(),
                "tasks[0].timeout",
            ),
            ("{\"tasks\": [{\"taskId\": \"a\", \"name\": \"nobody\"}]}".to_owned(), "tasks[0].name"),
            ("{\"tasks\": [".to_owned(), "line 1, column"),
            (format!("{{\"{}\": 1}}", BAD.replace('"', "")), "&lt;script"),
        ] {
            let fields = [("deed", deed), ("job", text.as_str()), ("form_token", token.as_str())];
            let answer = browser.post("/submit", &fields).await;
            assert_eq!(answer.status, status, "{deed} {text}");
            let page = answer.text();
            assert!(page.contains(told) && page.contains("data-line"), "{told}: {page}");
            assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{page}");
        }
    }
    let right = "{\"name\": \"by hand\", \"tasks\": [{\"taskId\": \"a\", \"run\": \"x\"}]}";
    let fields = [("deed", "check"), ("job", right), ("form_token", token.as_str())];
    let page = browser.post("/submit", &fields).await.text();
    assert!(page.contains("can be submitted: 1 task."), "{page}");
    assert_eq!(admin.get("/v1/jobs").await.expect(200)["items"], json!([]), "a check keeps nothing");
    let without = browser.post("/submit", &[("deed", "submit"), ("job", right)]).await;
    assert_eq!(without.status, 403, "without the token of its page");
    let fields = [("deed", "submit"), ("job", right), ("form_token", token.as_str())];
    let answer = browser.post("/submit", &fields).await;
    assert_eq!(answer.status, 303, "{}", answer.text());
    let job = admin.get("/v1/jobs").await.expect(200)["items"][0].clone();
    assert_eq!(job["name"], "by hand");
    assert_eq!(answer.header("location"), Some(format!("/jobs/{}", job["jobId"].as_str().unwrap()).as_str()));
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(700 * 1024));
    let fields = [("deed", "check"), ("job", long.as_str()), ("form_token", token.as_str())];
    assert_eq!(browser.post("/submit", &fields).await.status, 413, "encoded it is larger than a form");
}

#[tokio::test]
async fn who_may_not_submit_is_told_so() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (reader, producer) = (lab.key("acme", Role::Reader).await, lab.key("acme", Role::Producer).await);
    admin.define("work").await;
    let page = Browser::logged_in(&reader).await.get("/submit").await.text();
    assert!(page.contains("role producer or admin") && !page.contains("<textarea"), "{page}");
    let (mut browser, token) = browser_with_token(&reader, "/jobs").await;
    let named = "{\"tasks\": [{\"taskId\": \"a\", \"name\": \"work\"}]}";
    let fields = [("deed", "submit"), ("job", named), ("form_token", token.as_str())];
    assert_eq!(browser.post("/submit", &fields).await.status, 403);
    assert_eq!(reader.post("/v1/jobs/check", &json!({"tasks": []})).await.code(), "FORBIDDEN");
    let (mut browser, token) = browser_with_token(&producer, "/submit").await;
    let inline = "{\"tasks\": [{\"taskId\": \"a\", \"run\": \"x\"}]}";
    let fields = [("deed", "check"), ("job", inline), ("form_token", token.as_str())];
    let page = browser.post("/submit", &fields).await.text();
    assert!(page.contains("tasks[0].run"), "a producer brings no commands: {page}");
    let fields = [("deed", "check"), ("job", named), ("form_token", token.as_str())];
    assert!(browser.post("/submit", &fields).await.text().contains("can be submitted"));
}

#[tokio::test]
async fn a_trace_is_a_page_and_a_download() {
    let lab = Lab::start().await;
    let (admin, other) = (lab.key("acme", Role::Admin).await, lab.key("other", Role::Admin).await);
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    admin.define("work").await;
    admin.post("/v1/tasks", &json!({"requestId": "agent", "name": "work"})).await.expect(202);
    let task = worker.claim(1).await.remove(0);
    let trace = json!([{
        "name": "research", "status": "completed", "model": "some-model", "maxTurns": 30, "durationMs": 4200,
        "startedAt": 1_763_238_912_345_u64,
        "usage": {"inputTokens": 5200, "outputTokens": 800, "turns": 7, "costUsd": 0.42},
        "attempts": [{
            "number": 1, "turns": 7, "outcome": {"status": "completed"},
            "toolCalls": [{"id": "1", "name": "Bash", "durationMs": 250, "isError": false, "input": {"command": BAD}, "output": BAD}],
        }],
    }]);
    let bytes = trace.to_string();
    let put = |name: &'static str, bytes: Vec<u8>| {
        let (worker, fence) = (worker.clone(), task["fence"].clone());
        async move {
            let path = format!("/v1/worker/blobs/agent/{fence}/traces/{name}");
            worker.send("PUT", &path, &[], &bytes).await.expect(200);
        }
    };
    put("session_trace.json", bytes.clone().into_bytes()).await;
    put("other.json", b"{}".to_vec()).await;
    worker.complete(&task, &json!(1)).await;
    let browser = Browser::logged_in(&admin).await;
    let page = browser.get("/tasks/agent").await.text();
    assert!(page.contains("href=\"/tasks/agent/trace/r1-a1\""), "{page}");
    let answer = browser.get("/tasks/agent/trace/r1-a1").await;
    let page = answer.text();
    assert_eq!(answer.status, 200, "{page}");
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    for text in
        ["research", "some-model", "Bash", "250 ms", "5,200", "$0.42", "7 of 30", "&lt;script&gt;alert"]
    {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "{page}");
    let file = browser.get("/tasks/agent/files/r1-a1/traces/session_trace.json").await;
    assert_eq!((file.text(), file.header("content-disposition")), (bytes, Some("attachment")));
    for path in ["/tasks/agent/trace/r1-a2", "/tasks/agent/trace/..", "/tasks/none/trace/r1-a1"] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    assert_eq!(Browser::logged_in(&other).await.get("/tasks/agent/trace/r1-a1").await.status, 404);
}
