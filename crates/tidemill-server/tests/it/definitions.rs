//! Task definitions: written, read, versioned, pinned.

use serde_json::{Value, json};
use tidemill_engine::policy::Policy;
use tidemill_model::{Role, TaskSecrets};
use tidemill_server::ServerConfig;

use crate::lab::Lab;

#[tokio::test]
async fn pa_14_a_definition_goes_round() {
    let lab = Lab::start().await;
    let client = lab.local();
    let draft =
        json!({"name": "greet", "runner": "command", "command": ["echo", "hi"], "description": "says hi"});
    let created = client.post("/v1/task-definitions", &draft).await;
    assert_eq!(created.header("etag"), Some("\"1\""));
    let created = created.expect(201);
    assert_eq!((&created["version"], &created["command"]), (&json!(1), &json!(["echo", "hi"])));
    let again = client.post("/v1/task-definitions", &draft).await;
    assert_eq!((again.status, again.code().as_str()), (409, "EXISTS"));
    assert_eq!(client.get("/v1/task-definitions/greet").await.expect(200), created);
    assert_eq!(client.get("/v1/task-definitions").await.expect(200)["items"], json!([created]));

    let second = json!({"runner": "command", "command": "echo hello"});
    let put = async |version: &str, body: &Value| {
        let headers = [("Content-Type", "application/json"), ("If-Match", version)];
        client.send("PUT", "/v1/task-definitions/greet", &headers, body.to_string().as_bytes()).await
    };
    let mismatch = put("\"7\"", &second).await;
    assert_eq!((mismatch.status, mismatch.code().as_str()), (412, "VERSION_MISMATCH"));
    assert_eq!(put("\"1\"", &second).await.expect(200)["version"], 2);
    assert_eq!(put("2", &second).await.expect(200)["version"], 3);
    assert_eq!(put("two", &second).await.problem().0, 400);
    let mut renamed = second.clone();
    renamed["name"] = json!("other");
    assert_eq!(
        client.put("/v1/task-definitions/greet", &renamed).await.problem(),
        (400, "INVALID_FIELD".into(), "name".into())
    );
    assert_eq!(client.put("/v1/task-definitions/ghost", &second).await.status, 404);
    let first = client.get("/v1/task-definitions/greet?version=1").await.expect(200);
    assert_eq!(first["command"], json!(["echo", "hi"]));
    assert_eq!(client.get("/v1/task-definitions/greet?version=9").await.status, 404);

    let stale = client.send("DELETE", "/v1/task-definitions/greet", &[("If-Match", "1")], b"").await;
    assert_eq!(stale.status, 412);
    assert_eq!(client.delete("/v1/task-definitions/greet").await.status, 204);
    assert_eq!(client.get("/v1/task-definitions/greet").await.status, 404);
    assert_eq!(client.delete("/v1/task-definitions/greet").await.status, 404);
}

#[tokio::test]
async fn pa_15_bad_definitions_are_refused_with_all_that_is_wrong() {
    let lab = Lab::start().await;
    let client = lab.local();
    for (draft, code) in [
        (json!({"name": "a b", "runner": "command", "command": ["x"]}), ""),
        (json!({"runner": "command", "command": ["x"]}), "MISSING_FIELD"),
        (json!({"name": "a", "runner": "command"}), ""),
        (json!({"name": "a", "runner": "command", "command": []}), ""),
        (json!({"name": "a", "runner": "magic"}), ""),
        (json!({"name": "a", "runner": "command", "command": ["x"], "timeout": 1}), "OUT_OF_RANGE"),
        (json!({"name": "a", "runner": "command", "command": ["x"], "timeout": "8d"}), "OUT_OF_RANGE"),
        (
            json!({"name": "a", "runner": "command", "command": ["x"], "env": {"PATH": "/x"}}),
            "RESERVED_VARIABLE",
        ),
        (
            json!({"name": "a", "runner": "command", "command": ["x"], "env": {"LD_PRELOAD": "x"}}),
            "RESERVED_VARIABLE",
        ),
        (json!({"name": "a", "runner": "command", "command": ["x"], "shape": 1}), "UNKNOWN_FIELD"),
        (json!({"name": "a", "runner": "agent"}), "MISSING_FIELD"),
        (json!({"name": "a", "runner": "script"}), "MISSING_FIELD"),
        (json!({"name": "a", "runner": "script", "script": "return @"}), "COMPILE_ERROR"),
        (json!([]), ""),
    ] {
        let answer = client.post("/v1/task-definitions", &draft).await;
        let (status, found, _) = answer.problem();
        assert_eq!(status, 400, "{draft}");
        assert!(code.is_empty() || found == code, "{draft}: {}", answer.text());
    }
    let two = json!({"name": "a", "runner": "command", "timeout": 1, "color": 1, "command": ["x"]});
    let problem = client.post("/v1/task-definitions", &two).await.expect(400);
    assert_eq!(problem["details"].as_array().unwrap().len(), 2, "{problem}");
    assert_eq!(client.get("/v1/task-definitions").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn pa_16_a_job_keeps_the_version_it_began_with() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    let job = client.submit(&[("a", &[]), ("b", &["a"])]).await;
    let changed = json!({"runner": "command", "command": ["false"]});
    client.put("/v1/task-definitions/work", &changed).await.expect(200);
    let in_use = client.delete("/v1/task-definitions/work").await;
    assert_eq!((in_use.status, in_use.code().as_str()), (409, "IN_USE"));
    for _ in 0..2 {
        let task = client.claim(1).await.remove(0);
        assert_eq!(task["execution"]["command"], json!(["true"]));
        assert_eq!(task["execution"]["definition"], json!({"name": "work", "version": 1}));
        client.complete(&task, &json!({})).await;
    }
    let task = client.get(&format!("/v1/tasks/{job}_a")).await.expect(200);
    assert_eq!(task["definition"], json!({"name": "work", "version": 1}));
    client.submit(&[("a", &[])]).await;
    let task = client.claim(1).await.remove(0);
    assert_eq!(task["execution"]["command"], json!(["false"]));
    client.complete(&task, &json!({})).await;
    assert_eq!(client.delete("/v1/task-definitions/work").await.status, 204);
}

#[tokio::test]
async fn definitions_are_listed_in_pages_and_per_tenant() {
    let lab = Lab::start().await;
    let acme = lab.key("acme", Role::Admin).await;
    let other = lab.key("other", Role::Admin).await;
    for number in 0..7 {
        acme.define(&format!("d{number}")).await;
    }
    other.define("d0").await;
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = acme.get(&format!("/v1/task-definitions?limit=3{cursor}")).await.expect(200);
        let items = page["items"].as_array().unwrap().clone();
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["d0", "d1", "d2", "d3", "d4", "d5", "d6"]);
    assert_eq!(other.get("/v1/task-definitions").await.expect(200)["items"].as_array().unwrap().len(), 1);
    assert_eq!(other.get("/v1/task-definitions/d1").await.status, 404);
}

#[tokio::test]
async fn a_definition_asks_only_for_variables_that_the_operator_lists() {
    let draft = |secrets: &[&str]| json!({"name": "ask", "command": ["x"], "secrets": secrets});
    // Only the workers know; what is the installation's own is refused everywhere.
    let lab = Lab::start().await;
    let client = lab.local();
    client.post("/v1/task-definitions", &draft(&["DB_URL"])).await.expect(201);
    for own in ["TIDEMILL_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
        let refused = client.put("/v1/task-definitions/ask", &draft(&["DB_URL", own])).await;
        assert_eq!(refused.problem(), (400, "RESERVED_VARIABLE".into(), "secrets[1]".into()));
    }
    let list = TaskSecrets::parse("DB_URL,other:STRIPE_KEY", |_| false).unwrap();
    let config = ServerConfig { task_secrets: Some(list), ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    for name in ["SLACK_BOT_TOKEN", "WEBHOOK_SIGNING_KEY", "TOKEN_KEY", "STRIPE_KEY"] {
        let refused = client.post("/v1/task-definitions", &draft(&["DB_URL", name])).await;
        assert_eq!(refused.problem(), (400, "SECRET_NOT_LISTED".into(), "secrets[1]".into()));
        assert!(refused.text().contains("TASK_SECRETS"), "{}", refused.text());
    }
    client.post("/v1/task-definitions", &draft(&["DB_URL"])).await.expect(201);
    let refused = client.put("/v1/task-definitions/ask", &draft(&["TOKEN_KEY"])).await;
    assert_eq!(refused.problem(), (400, "SECRET_NOT_LISTED".into(), "secrets[0]".into()));
    let theirs = lab.key("other", Role::Admin).await;
    theirs.post("/v1/task-definitions", &draft(&["DB_URL", "STRIPE_KEY"])).await.expect(201);
}

#[tokio::test]
async fn work_that_is_brought_along_asks_only_for_what_is_listed() {
    let list = TaskSecrets::parse("DB_URL,other:STRIPE_KEY", |_| false).unwrap();
    let config = ServerConfig { task_secrets: Some(list), ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let (admin, producer) = (lab.key("default", Role::Admin).await, lab.key("default", Role::Producer).await);
    let task = |secrets: &[&str]| json!({"taskId": "a", "run": "true", "secrets": secrets});
    let job =
        |secrets: &[&str]| json!({"tasks": [task(&[]), {"taskId": "b", "run": "true", "secrets": secrets}]});
    let accepted = admin.post("/v1/jobs", &job(&["DB_URL"])).await.expect(201);
    let place = |at: &str| (400, "SECRET_NOT_LISTED".to_owned(), at.to_owned());
    assert_eq!(
        admin.post("/v1/jobs", &job(&["DB_URL", "STRIPE_KEY"])).await.problem(),
        place("tasks[1].secrets[1]")
    );
    let id = accepted["jobId"].as_str().unwrap().to_owned();
    let tasks = format!("/v1/jobs/{id}/tasks");
    let more = json!({"tasks": [{"taskId": "c", "run": "true", "secrets": ["TOKEN_KEY"]}]});
    assert_eq!(admin.post(&tasks, &more).await.problem(), place("tasks[0].secrets[0]"));
    assert_eq!(admin.put(&tasks, &job(&["STRIPE_KEY"])).await.problem(), place("tasks[1].secrets[0]"));
    let alone = json!({"run": "true", "secrets": ["STRIPE_KEY"]});
    assert_eq!(admin.post("/v1/tasks", &alone).await.problem(), place("secrets[0]"));
    // A caller that may bring no command may name no secret, listed or not.
    for secrets in [["DB_URL"], ["TOKEN_KEY"]] {
        let refused = producer.post("/v1/jobs", &job(&secrets)).await.problem();
        assert_eq!((refused.0, refused.1.as_str()), (403, "INLINE_NOT_ALLOWED"));
    }
    admin.post("/v1/task-definitions", &json!({"name": "ask", "command": ["x"]})).await.expect(201);
    for field in ["secrets", "path"] {
        let named = json!({"tasks": [{"taskId": "a", "name": "ask", field: ["DB_URL"]}]});
        let refused = producer.post("/v1/jobs", &named).await.problem();
        assert_eq!(refused, (400, "INVALID_VALUE".to_owned(), format!("tasks[0].{field}")));
    }
}
