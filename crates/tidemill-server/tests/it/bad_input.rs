//! Bad input: each with its documented answer, and nothing changes.

use serde_json::json;
use tidemill_engine::policy::Policy;
use tidemill_server::ServerConfig;

use crate::lab::{Lab, job_file};

const JSON: (&str, &str) = ("Content-Type", "application/json");

#[tokio::test]
async fn pa_18_bodies_that_are_no_json_are_told_where() {
    let lab = Lab::start().await;
    let client = lab.local();
    for (body, mark) in [
        (&b""[..], "line 1 column 0"),
        (b"{", "line 1 column 1"),
        (b"{\"tasks\": [}", "line 1 column 12"),
        (b"{}\n{}", "line 2 column 1"),
        (b"\xff\xfe", "byte 0"),
        (b"{\"tasks\": NaN}", "line 1"),
        (b"\0", "line 1"),
    ] {
        for path in
            ["/v1/jobs", "/v1/tasks", "/v1/task-definitions", "/v1/events", "/v1/keys", "/v1/worker/claim"]
        {
            let answer = client.send("POST", path, &[JSON], body).await;
            assert_eq!((answer.status, answer.code().as_str()), (400, "INVALID_JSON"), "{path} {body:?}");
            assert!(answer.text().contains(mark), "{}", answer.text());
        }
    }
    let deep = format!("{{\"tasks\": {}}}", "[".repeat(50_000));
    let answer = client.send("POST", "/v1/jobs", &[JSON], deep.as_bytes()).await;
    assert_eq!(answer.code(), "INVALID_JSON");
}

#[tokio::test]
async fn what_readers_cannot_read_is_refused_and_the_deepest_that_is_taken_reads() {
    let lab = Lab::start().await;
    let client = lab.local();
    let nested = |levels: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
    let send = async |properties: &str| {
        let body = format!(r#"{{"events":[{{"eventType":"x","properties":{properties}}}]}}"#);
        client.send("POST", "/v1/events", &[JSON], body.as_bytes()).await
    };
    let many = format!(r#"{{"n":{}}}"#, "9".repeat(400));
    for properties in [r#"{"n":1e999}"#, &*many, r#"{"a":"\ud800"}"#, r#"{"\ud800":1}"#, &*nested(101)] {
        let (status, _, field) = send(properties).await.problem();
        assert_eq!((status, field.as_str()), (400, "events[0].properties"), "{properties}");
    }
    send(&nested(100)).await.expect(202);
    let found = client.get("/v1/events").await.expect(200);
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
}

#[tokio::test]
async fn wrong_types_and_unknown_fields_are_named() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    for (path, body, field) in [
        ("/v1/jobs", json!([]), "body"),
        ("/v1/jobs", json!("x"), "body"),
        ("/v1/jobs/cancel", json!([null, null]), "body"),
        ("/v1/jobs/retry", json!([]), "body"),
        ("/v1/events", json!({"events": [["x"]]}), "events"),
        ("/v1/queues/tasks/messages", json!({"body": ["w"]}), "body"),
        ("/v1/queues/tasks/messages", json!({"body": {"name": "w"}, "attributes": [null]}), "attributes"),
        ("/v1/jobs", json!({"tasks": {}}), "tasks"),
        ("/v1/jobs", json!({"tasks": [7]}), "tasks[0]"),
        ("/v1/jobs", json!({"tasks": [{"taskId": 7, "name": "work"}]}), "tasks[0].taskId"),
        (
            "/v1/jobs",
            json!({"tasks": [{"taskId": "a", "name": "work", "timeout": "soon"}]}),
            "tasks[0].timeout",
        ),
        ("/v1/jobs", json!({"tasks": [{"taskId": "a", "name": "work", "size": 1}]}), "tasks[0].size"),
        ("/v1/jobs", json!({"task": []}), "task"),
        ("/v1/tasks", json!({"name": "work", "input": "x"}), "input"),
        ("/v1/tasks", json!({"name": "work", "colour": 1}), "colour"),
        ("/v1/events", json!({"eventType": 5}), "eventType"),
        ("/v1/events", json!({"eventType": "x", "extra": 1}), "extra"),
        ("/v1/keys", json!({"role": "admin", "tenant": "x"}), "tenant"),
        ("/v1/keys", json!({"role": "admin", "label": "x".repeat(201)}), "label"),
        ("/v1/jobs", json!({"name": "x".repeat(201), "tasks": [{"taskId": "a", "name": "work"}]}), "name"),
        ("/v1/jobs/cancel", json!({"all": true, "reason": "x".repeat(100_000)}), "reason"),
        ("/v1/worker/claim", json!({"workerId": "w", "slots": 1e300}), "slots"),
    ] {
        let answer = client.post(path, &body).await;
        let problem = answer.json();
        assert_eq!(answer.status, 400, "{path} {body}");
        let fields: Vec<_> = problem["details"]
            .as_array()
            .unwrap()
            .iter()
            .map(|detail| detail["field"].as_str().unwrap())
            .collect();
        assert!(fields.contains(&field), "{path} {body}: {problem}");
    }
    assert_eq!(client.get("/v1/jobs").await.expect(200)["items"], json!([]));
}

/// Every POST that reads nothing, as the server's own description lists them.
#[tokio::test]
async fn what_is_said_where_nothing_is_read_is_refused_by_name() {
    let lab = Lab::start().await;
    let client = lab.local();
    let document = client.get("/openapi.json").await.expect(200);
    let mut refused = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{jobId}", "job-00000000000000000000000000000000");
        // Whatever else is named need not exist: the body is looked at first.
        let path: String = path
            .split('/')
            .map(|part| if part.starts_with('{') { "x" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        for (method, operation) in operations.as_object().unwrap() {
            if method != "post" || !operation["requestBody"].is_null() {
                continue;
            }
            let send = async |body: &str| client.send("POST", &path, &[JSON], body.as_bytes()).await;
            let told = |field: &str, code: &str| (400, code.to_owned(), field.to_owned());
            for (body, expected) in [
                (r#"{"surprise": 1}"#, told("surprise", "UNKNOWN_FIELD")),
                ("[]", told("body", "INVALID_FIELD")),
                ("null", told("body", "INVALID_FIELD")),
                ("{", told("body", "INVALID_JSON")),
            ] {
                assert_eq!(send(body).await.problem(), expected, "{path} {body}");
            }
            for body in ["", "{}", " { } "] {
                assert_ne!(send(body).await.status, 400, "{path} {body:?}");
            }
            let form = [("Content-Type", "application/x-www-form-urlencoded")];
            assert_eq!(client.send("POST", &path, &form, b"surprise=1").await.status, 415, "{path}");
            refused.push(path.clone());
        }
    }
    for known in ["/v1/subscriptions/x/enable", "/v1/dead-letters/x/replay", "/v1/health-check"] {
        assert!(refused.iter().any(|path| path == known), "{known}: {refused:?}");
    }
}

#[tokio::test]
async fn wrong_content_types_and_large_bodies_are_refused() {
    let config = ServerConfig { body_bytes_max: 10_000, blob_bytes_max: 100, ..ServerConfig::default() };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    client.define("work").await;
    let file = job_file(&[("a", &[])]).to_string();
    for media in ["text/plain", "application/xml", "application/json; charset=utf-16", "application/jsonx"] {
        let answer = client.send("POST", "/v1/jobs", &[("Content-Type", media)], file.as_bytes()).await;
        assert_eq!((answer.status, answer.code().as_str()), (415, "UNSUPPORTED_MEDIA_TYPE"), "{media}");
    }
    assert_eq!(client.send("POST", "/v1/jobs", &[], file.as_bytes()).await.status, 415);
    let accepted = [("Content-Type", "application/json; charset=UTF-8")];
    client.send("POST", "/v1/jobs", &accepted, file.as_bytes()).await.expect(201);
    let padded = |size: usize| format!("{file}{}", " ".repeat(size - file.len()));
    client.send("POST", "/v1/jobs", &[JSON], padded(10_000).as_bytes()).await.expect(201);
    for size in [10_001, 5_000_000] {
        let answer = client.send("POST", "/v1/jobs", &[JSON], padded(size).as_bytes()).await;
        assert_eq!((answer.status, answer.code().as_str()), (413, "TOO_LARGE"), "{size}");
    }
    let task = client.claim(1).await.remove(0);
    let path = format!("/v1/worker/blobs/{}/{}/logs/x", task["requestId"].as_str().unwrap(), task["fence"]);
    client.send("PUT", &path, &[], &[7; 100]).await.expect(200);
    assert_eq!(client.send("PUT", &path, &[], &[7; 101]).await.status, 413);
}

#[tokio::test]
async fn pa_18_errors_tell_no_paths_and_no_stacks() {
    let lab = Lab::start().await;
    let client = lab.local();
    let mut answers = Vec::new();
    for path in [
        "/v1/jobs/x",
        "/v1/jobs/job-00000000000000000000000000000000",
        "/v1/tasks/%00",
        "/v1/tasks/%ff",
        "/v1/tasks/..%2f..%2fetc%2fpasswd",
        "/v1/dead-letters/zz",
        "/v1/task-definitions/%20",
        "/v1/jobs?limit=-1",
        "/v1/jobs?limit=99999999999999999999",
        "/v1/jobs?cursor=%00",
        "/v1/jobs?%ff=1",
        "/v1/jobs?unknown=1",
        "/v1/events?from=abc",
        "/nowhere",
        "//",
        "/v1/jobs/",
    ] {
        answers.push((path, client.get(path).await));
    }
    answers.push(("/v1/keys", client.post("/v1/keys", &json!({"role": "x".repeat(100_000)})).await));
    for (path, answer) in answers {
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        answer.code();
        let text = answer.text();
        for inside in ["/home", "/tmp", "/work", ".rs", "panicked", "tidemill_", "stack"] {
            assert!(!text.contains(inside), "{path}: {text}");
        }
        assert!(text.len() < 10_000, "{path}: {} bytes", text.len());
    }
}

#[tokio::test]
async fn probes_answer() {
    let lab = Lab::start().await;
    let client = lab.local();
    let ready = |warnings: &[&str], workers: usize, total: usize, busy: usize| {
        json!({
            "status": "ready", "reasons": [], "warnings": warnings, "workers": workers,
            "slots": {"total": total, "busy": busy},
        })
    };
    assert_eq!(client.get("/readyz").await.expect(200), ready(&[], 0, 0, 0));
    assert_eq!(client.get("/healthz").await.expect(200), json!({"status": "ok"}));
    client.define("work").await;
    client.submit(&[("a", &[])]).await;
    let alone = ["tasks wait and no worker was heard of since the server started"];
    assert_eq!(client.get("/readyz").await.expect(200), ready(&alone, 0, 0, 0));
    let (slots, busy) = (lab.engine.slot_meter().add(3), lab.engine.slot_meter().busy());
    assert_eq!(client.get("/readyz").await.expect(200), ready(&[], 0, 3, 1), "it works itself");
    drop((slots, busy));
    client.claim(1).await;
    client.submit(&[("b", &[])]).await;
    assert_eq!(client.get("/readyz").await.expect(200), ready(&[], 1, 0, 0), "somebody was heard of");
}

#[tokio::test]
async fn a_store_that_stopped_is_503_without_its_reasons() {
    let (lab, disk) = Lab::on_breakable_disk().await;
    let client = lab.local();
    client.define("work").await;
    disk.break_down();
    let answer = client.post("/v1/jobs", &job_file(&[("a", &[])])).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "STORE_UNAVAILABLE"));
    assert!(answer.header("retry-after").is_some());
    assert!(!answer.text().contains("/var") && !answer.text().contains("EIO"), "{}", answer.text());
    let readiness = client.get("/readyz").await;
    assert_eq!(readiness.status, 503);
    let (status, reasons) = (&readiness.json()["status"], &readiness.json()["reasons"]);
    assert_eq!((status, reasons), (&json!("unavailable"), &json!(["the store stopped"])));
    client.get("/healthz").await.expect(503);
}
