//! Tasks: on their own, listed, looked at, their histories and files.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::lab::{Client, LONG, Lab, SECRET, task_id};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn ready() -> (Lab, Client) {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    (lab, client)
}

#[tokio::test]
async fn pa_12_a_task_is_taken_and_announced() {
    let (_lab, client) = ready().await;
    let task = json!({"requestId": "req-1", "name": "work", "input": {"storeId": "store-1"}});
    let taken = client.post("/v1/tasks", &task).await.expect(202);
    assert_eq!(taken, json!({"requestId": "req-1", "status": "pending"}));
    assert_eq!(client.post("/v1/tasks", &task).await.expect(200), taken, "a repeat changes nothing");
    let mut other = task.clone();
    other["input"] = json!({});
    assert_eq!(client.post("/v1/tasks", &other).await.problem().0, 409);
    let events = client.get("/v1/tasks/req-1/events").await.expect(200);
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    assert_eq!(events["items"][0]["eventType"], "Task Pending");
    let seen = client.get("/v1/tasks/req-1").await.expect(200);
    assert_eq!(
        (&seen["status"], &seen["attempt"], &seen["lease"]),
        (&json!("pending"), &json!(0), &Value::Null)
    );
    assert_eq!(seen["input"], json!({"storeId": "store-1"}));
    let held = client.claim(1).await.remove(0);
    assert_eq!(held["input"], json!({"storeId": "store-1"}));
    assert_eq!(client.get("/v1/tasks/ghost").await.status, 404);
    assert_eq!(client.get("/v1/tasks/ghost/events").await.status, 404);
    let minted = client.post("/v1/tasks", &json!({"name": "work"})).await.expect(202);
    assert!(minted["requestId"].as_str().unwrap().starts_with("req-"));
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "k")];
    let body = br#"{"name":"work","input":{"x":1}}"#;
    let first = client.send("POST", "/v1/tasks", &headers, body).await.expect(202);
    assert_eq!(client.send("POST", "/v1/tasks", &headers, body).await.expect(200), first);
    let other = client.send("POST", "/v1/tasks", &headers, b"{\"name\":\"work\"}").await;
    assert_eq!((other.status, other.code().as_str()), (409, "IDEMPOTENCY_CONFLICT"));
}

#[tokio::test]
async fn pa_17_state_and_history_tell_every_attempt_and_error() {
    let (_lab, client) = ready().await;
    let retry = json!({"maxAttempts": 3, "firstDelay": 0, "maxDelay": 0});
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work", "retry": retry})).await.expect(202);
    for error in ["first", "second"] {
        let task = client.claim(1).await.remove(0);
        let begin = json!({"requestId": "r", "fence": task["fence"], "pid": 7});
        client.post("/v1/worker/begin", &begin).await.expect(200);
        let outcome = json!({"status": "failed", "error": error, "errorCategory": "network"});
        let ended = client.finish(&task, &outcome).await.expect(200);
        assert_eq!(ended["state"], "retrying");
    }
    let seen = client.get("/v1/tasks/r").await.expect(200);
    assert_eq!(
        (&seen["status"], &seen["error"], &seen["retrying"]),
        (&json!("processing"), &json!("second"), &json!(true))
    );
    let task = client.claim(1).await.remove(0);
    assert_eq!((&task["attempt"], task_id(&task)), (&json!(3), "task"));
    let lease = client.get("/v1/tasks/r").await.expect(200)["lease"].clone();
    assert_eq!(lease["workerId"], "w1");
    let usage = json!({"inputTokens": 5, "outputTokens": 7, "cacheReadTokens": 9});
    let outcome = json!({"status": "completed", "output": {"big": "x".repeat(300_000)}, "durationMs": 12, "usage": usage});
    client.finish(&task, &outcome).await.expect(200);
    let seen = client.get("/v1/tasks/r").await.expect(200);
    assert_eq!(seen["output"]["big"].as_str().unwrap().len(), 300_000, "a large output comes back whole");
    assert_eq!((&seen["usage"], &seen["durationMs"]), (&usage, &json!(12)));
    let types: Vec<_> = client.get("/v1/tasks/r/events?limit=200").await.expect(200)["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["eventType"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        types,
        [
            "Task Pending",
            "Task Processing Started",
            "Task Processing Failed",
            "Task Processing Started",
            "Task Processing Failed",
            "Task Completed"
        ]
    );
    let page = client.get("/v1/tasks/r/events?order=desc&limit=2").await.expect(200);
    assert_eq!(page["items"][0]["eventType"], "Task Completed");
    let next = page["nextCursor"].as_str().unwrap();
    let page = client.get(&format!("/v1/tasks/r/events?order=desc&limit=2&cursor={next}")).await.expect(200);
    assert_eq!(page["items"][1]["eventType"], "Task Processing Failed");
    let wrong = client.get(&format!("/v1/tasks/r/events?order=asc&cursor={next}")).await;
    assert_eq!(wrong.problem(), (400, "INVALID_PARAMETER".into(), "cursor".into()));
    let failed = client.get("/v1/tasks/r/events?type=Task%20Processing%20Failed").await.expect(200);
    assert_eq!(failed["items"][1]["properties"]["error"], "second");
}

#[tokio::test]
async fn tasks_are_listed_by_state() {
    let (_lab, client) = ready().await;
    for number in 0..9 {
        client
            .post("/v1/tasks", &json!({"requestId": format!("t{number}"), "name": "work"}))
            .await
            .expect(202);
    }
    let held = client.claim(6).await;
    for (place, task) in held.iter().enumerate() {
        let begin = json!({"requestId": task["requestId"], "fence": task["fence"], "pid": 7});
        client.post("/v1/worker/begin", &begin).await.expect(200);
        match place {
            0 | 1 => client.complete(task, &json!({})).await,
            2 => client.fail(task).await,
            3 => {
                let outcome =
                    json!({"status": "timeout", "timeoutMs": 1_000, "elapsedMs": 1_001, "signal": "SIGKILL"});
                client.finish(task, &outcome).await.expect(200);
            }
            _ => {}
        }
    }
    let list = async |query: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/tasks?limit=2{query}{cursor}")).await.expect(200);
            for task in page["items"].as_array().unwrap() {
                found.push(task["requestId"].as_str().unwrap().to_owned());
            }
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    };
    let ids = |tasks: &[Value]| -> BTreeSet<String> {
        tasks.iter().map(|task| task["requestId"].as_str().unwrap().to_owned()).collect()
    };
    let sets = [
        ("completed", ids(&held[..2])),
        ("failed", ids(&held[2..4])),
        ("processing", ids(&held[4..])),
        ("pending", (0..9).map(|n| format!("t{n}")).filter(|id| !ids(&held).contains(id)).collect()),
    ];
    for (state, expected) in &sets {
        let found = list(&format!("&state={state}")).await;
        assert_eq!(found.len(), expected.len(), "{state}: none twice");
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), *expected, "{state}");
    }
    assert_eq!(list("").await.len(), 9);
    // A retried task is listed once, in its new state.
    let again = held[2]["requestId"].as_str().unwrap();
    let path = format!("/v1/tasks/{again}/retry");
    assert_eq!(
        client.post(&path, &json!({})).await.expect(202),
        json!({"requestId": again, "status": "pending"})
    );
    let second = client.post(&path, &json!({})).await;
    assert_eq!((second.status, second.code().as_str()), (409, "NOT_FAILED"));
    assert!(!list("&state=failed").await.contains(&again.to_owned()));
    assert!(list("&state=pending").await.contains(&again.to_owned()));
    assert_eq!(list("").await.len(), 9);
    assert_eq!(client.get("/v1/tasks?state=lost").await.problem().0, 400);
}

#[tokio::test]
async fn a_task_without_a_job_can_be_cancelled() {
    let (_lab, client) = ready().await;
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work"})).await.expect(202);
    let cancelled = client.post("/v1/tasks/r/cancel", &json!({"reason": "no"})).await.expect(202);
    assert_eq!(cancelled, json!({"requestId": "r", "cancelled": true}));
    let seen = client.get("/v1/tasks/r").await.expect(200);
    assert_eq!((&seen["status"], &seen["cancelled"]), (&json!("failed"), &json!(true)));
    let job = client.submit(&[("a", &[])]).await;
    let part = client.post(&format!("/v1/tasks/{job}_a/cancel"), &json!({})).await;
    assert_eq!((part.status, part.code().as_str()), (409, "PART_OF_JOB"));
    assert_eq!(client.post("/v1/tasks/ghost/cancel", &json!({})).await.status, 404);
}

#[tokio::test]
async fn files_are_stored_listed_and_given_back() {
    let (_lab, client) = ready().await;
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work"})).await.expect(202);
    let task = client.claim(1).await.remove(0);
    let fence = task["fence"].as_u64().unwrap();
    let put = async |path: &str, fence: u64, bytes: &[u8]| {
        client.send("PUT", &format!("/v1/worker/blobs/r/{fence}/{path}"), &[], bytes).await
    };
    let stored = put("logs/output.log", fence, b"line 1\nline 2\n").await.expect(200);
    assert_eq!(stored, json!({"path": "r1-a1/logs/output.log", "sizeBytes": 14}));
    put("artifacts/deep/report.bin", fence, &[0, 255, 1]).await.expect(200);
    put("r1-a1/artifacts/other.txt", fence, b"x").await.expect(200);
    put("artifacts/empty", fence, b"").await.expect(200);
    for (path, fence, expected) in [
        ("artifacts/x", fence + 1, (409, "LEASE_LOST")),
        ("artifacts/x", fence - 1, (409, "LEASE_LOST")),
        ("secrets/x", fence, (400, "INVALID_PARAMETER")),
        ("r9-a9/logs/x", fence, (400, "INVALID_PARAMETER")),
        ("artifacts/..%2f..%2fx", fence, (404, "NOT_FOUND")),
        ("artifacts/%00", fence, (404, "NOT_FOUND")),
    ] {
        let answer = put(path, fence, b"x").await;
        assert_eq!((answer.status, answer.code().as_str()), expected, "{path}");
    }
    let files = client.get("/v1/tasks/r/artifacts").await.expect(200);
    let paths: Vec<_> =
        files["items"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "r1-a1/artifacts/deep/report.bin",
            "r1-a1/artifacts/empty",
            "r1-a1/artifacts/other.txt",
            "r1-a1/logs/output.log"
        ]
    );
    let page = client.get("/v1/tasks/r/artifacts?limit=3").await.expect(200);
    let next = page["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/tasks/r/artifacts?cursor={next}")).await.expect(200);
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    let file = client.get("/v1/tasks/r/artifacts/r1-a1/artifacts/deep/report.bin").await;
    assert_eq!((file.status, file.body.as_slice()), (200, &[0, 255, 1][..]));
    assert_eq!(file.header("content-type"), Some("application/octet-stream"));
    assert_eq!(file.header("content-disposition"), Some("attachment"));
    for path in ["files.json", "r1-a1/artifacts/ghost", "artifacts/ghost", "deep/report.bin", "..%2fx"] {
        assert_eq!(client.get(&format!("/v1/tasks/r/artifacts/{path}")).await.status, 404, "{path}");
    }
    client.complete(&task, &json!({})).await;
    let log = client.get("/v1/tasks/r/logs").await;
    assert_eq!((log.status, log.text().as_str()), (200, "line 1\nline 2\n"));
    assert_eq!(log.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(client.get("/v1/tasks/r/logs?attempt=2").await.text(), "");
    assert_eq!(client.get("/v1/tasks/ghost/logs").await.status, 404);
    assert_eq!(put("artifacts/late", fence, b"x").await.code(), "LEASE_LOST");
}

/// What a model said is not what went wrong: the code of the runner is.
#[tokio::test]
async fn errors_of_agents_are_told_and_grouped_by_their_code() {
    let (_lab, client) = ready().await;
    for (id, said) in [("one", "I would rather not."), ("two", "Sure, here is a poem."), ("three", "Why?")] {
        client.post("/v1/tasks", &json!({"requestId": id, "name": "work"})).await.expect(202);
        let task = client.claim(1).await.remove(0);
        let error = format!("no output of the wanted form; it said: {said} (AGENT_NO_OUTPUT, exit code 1)");
        let outcome = json!({
            "status": "failed", "error": error, "errorCategory": "validation", "errorCode": "AGENT_NO_OUTPUT",
        });
        client.finish(&task, &outcome).await.expect(200);
        let last = &client.get(&format!("/v1/tasks/{id}")).await.expect(200)["lastError"];
        assert_eq!((&last["code"], &last["message"]), (&json!("AGENT_NO_OUTPUT"), &json!(error)), "{last}");
    }
    let groups = client.get("/v1/workflow/errors").await.expect(200);
    let [group] = &groups["items"].as_array().unwrap()[..] else { panic!("{groups}") };
    assert_eq!(group["title"], "no output of the wanted form (AGENT_NO_OUTPUT)", "{group}");
    assert!(group["code"].as_str().unwrap().starts_with("99"), "{group}");
}

#[tokio::test]
async fn a_file_without_its_attempt_is_that_of_the_newest_that_left_it() {
    let (_lab, client) = ready().await;
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work"})).await.expect(202);
    for (run, files) in
        [&["traces/a.json", "artifacts/first"][..], &["traces/a.json"], &[]].iter().enumerate()
    {
        let task = client.claim(1).await.remove(0);
        for path in *files {
            let path = format!("/v1/worker/blobs/r/{}/{path}", task["fence"]);
            client.send("PUT", &path, &[], format!("of run {}", run + 1).as_bytes()).await.expect(200);
        }
        client
            .finish(&task, &json!({"status": "failed", "error": "no", "errorCategory": "validation"}))
            .await
            .expect(200);
        client.post("/v1/tasks/r/retry", &json!({})).await.expect(202);
    }
    for (path, expected) in
        [("traces/a.json", "of run 2"), ("artifacts/first", "of run 1"), ("r1-a1/traces/a.json", "of run 1")]
    {
        let file = client.get(&format!("/v1/tasks/r/artifacts/{path}")).await;
        assert_eq!((file.status, file.text().as_str()), (200, expected), "{path}");
    }
    assert_eq!(client.get("/v1/tasks/r/artifacts/traces/b.json").await.status, 404);
    assert_eq!(client.get("/v1/tasks/ghost/artifacts/traces/a.json").await.status, 404);
}

/// A task may give its files any name that Linux takes.
#[tokio::test]
async fn files_of_any_name_are_given_back() {
    let (_lab, client) = ready().await;
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work"})).await.expect(202);
    let task = client.claim(1).await.remove(0);
    let fence = task["fence"].as_u64().unwrap();
    let long = "x".repeat(480);
    let names =
        ["a\nb", "a\u{1b}[2Jb", "a\u{202e}b", "a\\b", "a#b", "a\tb", "a?b&c", "%2F", "\u{7f}\u{85}", &long];
    let encoded = |name: &str| {
        name.bytes().fold(String::new(), |mut text, byte| {
            write!(text, "%{byte:02X}").expect("a text can be written to");
            text
        })
    };
    for name in names {
        let path = format!("/v1/worker/blobs/r/{fence}/artifacts/{}", encoded(name));
        let stored = client.send("PUT", &path, &[], name.as_bytes()).await.expect(200);
        assert_eq!(stored["path"], format!("r1-a1/artifacts/{name}"));
    }
    client.complete(&task, &json!({})).await;
    // A page for each, so that every name is a place to go on from.
    let mut listed = Vec::new();
    let mut page = client.get("/v1/tasks/r/artifacts?limit=1").await.expect(200);
    loop {
        listed.push(page["items"][0]["path"].as_str().unwrap().to_owned());
        let Some(next) = page["nextCursor"].as_str() else { break };
        page = client.get(&format!("/v1/tasks/r/artifacts?limit=1&cursor={next}")).await.expect(200);
    }
    assert_eq!(listed.len(), names.len(), "{listed:?}");
    for path in listed {
        let name = path.strip_prefix("r1-a1/artifacts/").unwrap();
        let file = client.get(&format!("/v1/tasks/r/artifacts/r1-a1/artifacts/{}", encoded(name))).await;
        assert_eq!((file.status, file.text().as_str()), (200, name), "{name:?}");
    }
}

#[tokio::test]
async fn a_running_task_is_heard_live() {
    let (_lab, client) = ready().await;
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work"})).await.expect(202);
    let task = client.claim(1).await.remove(0);
    let mut listener = TcpStream::connect(client.address).await.unwrap();
    let request = client.head("GET", "/v1/tasks/r/logs?follow=true", &[], "HTTP/1.0") + "\r\n";
    listener.write_all(request.as_bytes()).await.unwrap();
    let beat = |log: &str| json!({"requestId": "r", "fence": task["fence"], "log": log});
    client.post("/v1/worker/heartbeat", &beat("hello ")).await.expect(200);
    let mut heard = Vec::new();
    tokio::time::timeout(LONG, async {
        while !String::from_utf8_lossy(&heard).contains("hello ") {
            assert_ne!(listener.read_buf(&mut heard).await.unwrap(), 0);
        }
    })
    .await
    .expect("output is heard while the task runs");
    client.post("/v1/worker/heartbeat", &beat("world")).await.expect(200);
    assert_eq!(client.get("/v1/tasks/r/logs").await.text(), "hello world");
    client.complete(&task, &json!({})).await;
    tokio::time::timeout(LONG, listener.read_to_end(&mut heard))
        .await
        .expect("it ends with the task")
        .unwrap();
    assert!(String::from_utf8_lossy(&heard).ends_with("hello world"), "{}", String::from_utf8_lossy(&heard));
}

#[tokio::test]
async fn se_07_se_11_secrets_are_taken_out_of_errors() {
    let (_lab, client) = ready().await;
    client.post("/v1/tasks", &json!({"requestId": "r", "name": "work"})).await.expect(202);
    let task = client.claim(1).await.remove(0);
    let error = format!("cannot log in with {SECRET} as AKIAABCDEFGHIJKLMNOP in /home/somebody/x");
    let outcome = json!({"status": "failed", "error": error, "errorCategory": "auth"});
    client.finish(&task, &outcome).await.expect(200);
    let reason = json!({"reason": format!("because of {SECRET}")});
    let job = client.submit(&[("a", &[])]).await;
    client.post(&format!("/v1/jobs/{job}/cancel"), &reason).await.expect(202);
    for path in
        ["/v1/tasks/r", "/v1/tasks/r/events", "/v1/events", &format!("/v1/jobs/{job}/events"), "/v1/tasks"]
    {
        let text = client.get(path).await.text();
        for secret in [SECRET, "AKIAABCDEFGHIJKLMNOP", "/home/somebody"] {
            assert!(!text.contains(secret), "{path}: {text}");
        }
    }
    assert!(client.get("/v1/tasks/r").await.text().contains("[REDACTED]"));
    // What a client sends is not repeated either.
    let bad = json!({"tasks": [{"taskId": "a", "name": "work", SECRET: 1}]});
    let answer = client.post("/v1/jobs", &bad).await;
    assert_eq!(answer.status, 400);
    assert!(!answer.text().contains(SECRET), "{}", answer.text());
}
