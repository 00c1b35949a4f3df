//! Rights: a walk over the whole document with every role and with ids of another tenant.

use serde_json::{Value, json};
use tidemill_model::Role;
use tidemill_server::{App, Caller, ServeError, ServerConfig, check_listen, router};
use tower::ServiceExt;

use crate::document::operations;
use crate::lab::{Answer, Client, Lab};

/// Things of the tenant `acme`, by the names that paths use.
struct Belongings {
    job: String,
    task: String,
    letter: String,
    key: String,
    receipt: String,
    event: String,
    execution: String,
    bulk: String,
    fence: u64,
}

/// Makes one of everything that has an id.
async fn belongings(lab: &Lab, admin: &Client, worker: &Client) -> Belongings {
    admin.define("work").await;
    let job = admin.submit(&[("a", &[])]).await;
    let held = worker.claim(1).await.remove(0);
    // A task without attempts left becomes a dead letter.
    admin
        .post("/v1/tasks", &json!({"requestId": "doomed", "name": "work", "retry": {"maxAttempts": 1}}))
        .await
        .expect(202);
    let doomed = worker.claim(1).await.remove(0);
    let outcome = json!({"status": "failed", "error": "no", "errorCategory": "network"});
    worker.finish(&doomed, &outcome).await.expect(200);
    let letters = admin.get("/v1/dead-letters").await.expect(200);
    admin.post("/v1/queues/tasks/messages", &json!({"body": {"name": "work"}})).await.expect(202);
    let received = admin.post("/v1/queues/tasks/messages/receive", &json!({})).await.expect(200);
    admin.post("/v1/scripts", &json!({"id": "watch", "name": "w", "source": ""})).await.expect(201);
    let wish = json!({"id": "wish", "scriptId": "watch", "eventType": "user.created"});
    admin.post("/v1/subscriptions", &wish).await.expect(201);
    let event = admin.post("/v1/events", &json!({"eventType": "user.created"})).await.expect(202);
    let tenant = tidemill_model::TenantId::new("acme").unwrap();
    let execution = crate::executions::bury(lab, &tenant, "watch", 1).await.to_string();
    let failed = json!({
        "source": "elephant.workflow",
        "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": "acme-run", "county": "acme", "status": "FAILED", "phase": "SVL", "step": "SVL",
            "taskToken": "acme-token", "errors": [{"code": "31acme"}],
        },
    });
    admin.post("/v1/workflow-events", &failed).await.expect(202);
    let wish = json!({"action": "resume", "filter": {"county": "acme"}, "reason": "acme"});
    let bulk = admin.post("/v1/workflow/bulk", &wish).await.expect(202);
    let key = admin.post("/v1/keys", &json!({"role": "reader"})).await.expect(201);
    Belongings {
        execution,
        bulk: bulk["id"].as_str().unwrap().to_owned(),
        event: event["eventId"].as_str().unwrap().to_owned(),
        task: format!("{job}_a"),
        job,
        letter: letters["items"][0]["id"].as_str().unwrap().to_owned(),
        key: key["key"]["id"].as_str().unwrap().to_owned(),
        receipt: received["messages"][0]["receipt"].as_str().unwrap().to_owned(),
        fence: held["fence"].as_u64().unwrap(),
    }
}

/// A path with the ids of `own` in it.
fn filled(path: &str, own: &Belongings) -> String {
    path.replace("{jobId}", &own.job)
        .replace("{requestId}", &own.task)
        .replace("{receipt}", &own.receipt)
        .replace("{fence}", &own.fence.to_string())
        .replace("{path}", "logs/output.log")
        .replace("{name}", "work")
        .replace("{executionId}", "acme-run")
        .replace("{code}", "31acme")
        .replace("{bulkId}", &own.bulk)
        .replace("scripts/{id}", "scripts/watch")
        .replace("executions/{id}", &format!("executions/{}", own.execution))
        .replace("subscriptions/{id}", "subscriptions/wish")
        .replace("dead-letters/{id}", &format!("dead-letters/{}", own.letter))
        .replace("keys/{id}", &format!("keys/{}", own.key))
}

/// A body that the operation takes, about the things of `own`.
fn body_for(operation: &Value, own: &Belongings) -> Option<Value> {
    let task = |more: Value| {
        let mut body = json!({"requestId": own.task, "fence": own.fence});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    Some(match operation["operationId"].as_str().unwrap() {
        "createJob" => json!({"tasks": [{"taskId": "x", "name": "work"}]}),
        "addTasks" | "changeTasks" => json!({"tasks": [{"taskId": "x", "run": ["true"]}]}),
        "createTask" => json!({"name": "work"}),
        "createDefinition" | "replaceDefinition" => {
            json!({"name": "work", "runner": "command", "command": ["true"]})
        }
        "createScript" | "replaceScript" => json!({"name": "watch", "source": ""}),
        "createSubscription" | "replaceSubscription" => {
            json!({"scriptId": "watch", "eventType": "user.created"})
        }
        "explainEvent" => json!({"eventId": own.event}),
        "replayDeadLetters" | "discardDeadLetters" => json!({"kind": "script", "all": true}),
        "publishEvents" => json!({"eventType": "user.created"}),
        "publishWorkflowEvents" => json!({
            "source": "elephant.workflow",
            "detail-type": "ElephantErrorResolved",
            "detail": {"errorCode": "20Cook"},
        }),
        "resolveErrors" | "failErrors" | "reopenErrors" | "ignoreErrors" => json!({"errorCode": "31acme"}),
        "awaitToken" => json!({"token": "acme-token"}),
        "startBulk" => json!({"action": "resume", "filter": {"all": true}}),
        "createKey" => json!({"role": "reader"}),
        "setBudget" | "setJobBudget" => json!({"usd": 100}),
        "sendMessage" => json!({"body": {"name": "work"}, "attributes": {"requestId": own.task}}),
        "changeVisibility" => json!({"visibleInMs": 0}),
        "claimTasks" => json!({"workerId": "w"}),
        "beginTask" => task(json!({"pid": 1})),
        "heartbeat" | "releaseTask" => task(json!({})),
        "finishTask" => task(json!({"outcome": {"status": "completed"}})),
        "resumeWorkflowExecution" | "failWorkflowExecution" | "cancelBulk" => json!({}),
        "retryJobs" | "cancelJobs" => json!({"all": true}),
        "resumeJob" | "cancelJob" | "cancelTask" | "receiveMessages" => {
            json!({})
        }
        _ => return None,
    })
}

async fn call(client: &Client, path: &str, method: &str, operation: &Value, own: &Belongings) -> Answer {
    let path = filled(path, own);
    match body_for(operation, own) {
        Some(body) => {
            let headers = [("Content-Type", "application/json")];
            client.send(method, &path, &headers, body.to_string().as_bytes()).await
        }
        None if method == "POST" => {
            client.send(method, &path, &[("Content-Type", "application/json")], b"").await
        }
        None => client.send(method, &path, &[], b"bytes").await,
    }
}

/// Streams do not end by themselves; what they answer is known with the first bytes.
fn is_stream(operation: &Value) -> bool {
    operation["operationId"] == "streamEvents"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn se_09_every_route_wants_a_key_with_its_role() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.key("acme", Role::Worker).await;
    let own = belongings(&lab, &admin, &worker).await;
    let document = admin.get("/openapi.json").await.expect(200);
    let nobody = Client { token: None, ..admin.clone() };
    let stranger =
        Client { token: Some(format!("tm_{}_{}", "x".repeat(12), "y".repeat(43))), ..admin.clone() };
    let clients = [
        (Role::Reader, lab.key("acme", Role::Reader).await),
        (Role::Producer, lab.key("acme", Role::Producer).await),
        (Role::Worker, worker),
        (Role::Admin, admin),
    ];
    let mut checked = 0;
    for (path, method, operation) in operations(&document) {
        let Some(roles) = operation["x-roles"].as_array() else {
            assert_eq!(operation["security"], json!([]));
            assert!(call(&nobody, &path, &method, &operation, &own).await.status < 300, "{method} {path}");
            continue;
        };
        for client in [&nobody, &stranger] {
            let answer = call(client, &path, &method, &operation, &own).await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "UNAUTHENTICATED"), "{method} {path}");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
        for (role, client) in &clients {
            if roles.contains(&json!(role.as_str())) {
                if !is_stream(&operation) {
                    let answer = call(client, &path, &method, &operation, &own).await;
                    let refused = answer.status == 401 || answer.text().contains("\"FORBIDDEN\"");
                    assert!(!refused, "{role:?} {method} {path}: {}", answer.text());
                }
                continue;
            }
            let answer = call(client, &path, &method, &operation, &own).await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (403, "FORBIDDEN"),
                "{role:?} {method} {path}"
            );
            checked += 1;
        }
    }
    assert!(checked > 50, "{checked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn se_01_se_02_ids_of_another_tenant_do_not_exist() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.key("acme", Role::Worker).await;
    let own = belongings(&lab, &admin, &worker).await;
    admin.post("/v1/events", &json!({"eventType": "order.placed"})).await.expect(202);
    let before = admin.get(&format!("/v1/jobs/{}", own.job)).await.expect(200);
    let document = admin.get("/openapi.json").await.expect(200);
    let other_admin = lab.key("other", Role::Admin).await;
    let other_worker = lab.key("other", Role::Worker).await;
    let (mut absent, mut empty) = (0, 0);
    for (path, method, operation) in operations(&document) {
        let Some(roles) = operation["x-roles"].as_array() else { continue };
        if is_stream(&operation) {
            continue;
        }
        let client = if roles.contains(&json!("worker")) { &other_worker } else { &other_admin };
        let answer = call(client, &path, &method, &operation, &own).await;
        let name = operation["operationId"].as_str().unwrap();
        match name {
            // These make or name something of the caller's own, or nobody's.
            "createDefinition"
            | "createScript"
            | "publishEvents"
            | "createKey"
            | "createTask"
            | "createJob"
            | "checkJob"
            | "listWorkers"
            | "getQueue"
            | "replaceDefinition"
            | "deleteDefinition"
            | "getDefinition"
            | "setBudget"
            | "removeBudget"
            | "getMetrics"
            | "publishWorkflowEvents"
            | "listErrorCatalogue"
            | "lookUpErrorCode"
            | "testScript" => {}
            "startBulk" => assert_eq!(answer.expect(202)["total"], 0, "{name}"),
            // Without a code or an execution it has nothing to say.
            "listOccurrences" => assert_eq!(answer.status, 400),
            "listJobs"
            | "listTasks"
            | "listEvents"
            | "listDeadLetters"
            | "listUsage"
            | "listExecutions"
            | "listAlerts"
            | "listErrors"
            | "listCandidates"
            | "listWorkflowExecutions"
            | "listBulks" => {
                let events = answer.expect(200)["items"].to_string();
                assert!(!events.contains("acme") && !events.contains(&own.job), "{name}: {events}");
                empty += 1;
            }
            "createSubscription" => assert_eq!(answer.problem().1, "UNKNOWN_SCRIPT"),
            "listDefinitions" | "listKeys" | "listScripts" | "listSubscriptions" => {
                assert!(!answer.expect(200)["items"].to_string().contains("acme"), "{name}");
                empty += 1;
            }
            "replayDeadLetters" | "discardDeadLetters" => {
                assert!(
                    answer.status < 300 && answer.json()["ids"] == json!([]),
                    "{name}: {}",
                    answer.text()
                );
            }
            "checkHealth" | "getHealthCheck" => assert!(!answer.text().contains(&own.job), "{name}"),
            "retryJobs" | "cancelJobs" => assert_eq!(answer.expect(202)["jobIds"], json!([]), "{name}"),
            "claimTasks" => assert!(!answer.expect(200)["tasks"].to_string().contains("acme"), "{name}"),
            "receiveMessages" => {
                assert!(!answer.expect(200)["messages"].to_string().contains("acme"), "{name}");
            }
            // Everything else names something of acme's.
            _ => {
                assert_eq!(
                    (answer.status, answer.code().as_str()),
                    (404, "NOT_FOUND"),
                    "{name}: {}",
                    answer.text()
                );
                absent += 1;
            }
        }
    }
    assert!(absent >= 18 && empty >= 6, "{absent} {empty}");
    let after = admin.get(&format!("/v1/jobs/{}", own.job)).await.expect(200);
    assert_eq!(before, after);
    a_worker_of_two_tenants_reaches_no_further(&lab, &own).await;
}

/// A worker's key may name several tenants, but no call reaches beyond them.
async fn a_worker_of_two_tenants_reaches_no_further(lab: &Lab, own: &Belongings) {
    let both = lab.worker_key(&["acme", "other"], Role::Worker).await;
    let beat = |tenant: Option<&str>| {
        let mut body = json!({"requestId": own.task, "fence": own.fence});
        if let Some(tenant) = tenant {
            body["tenantId"] = json!(tenant);
        }
        body
    };
    assert_eq!(
        both.post("/v1/worker/heartbeat", &beat(None)).await.problem(),
        (400, "MISSING_FIELD".into(), "tenantId".into())
    );
    assert_eq!(both.post("/v1/worker/heartbeat", &beat(Some("other"))).await.status, 404);
    assert_eq!(both.post("/v1/worker/heartbeat", &beat(Some("third"))).await.status, 404);
    let anothers = both.post("/v1/worker/heartbeat", &beat(Some("acme"))).await;
    assert_eq!(
        (anothers.status, anothers.code().as_str()),
        (403, "FOREIGN_LEASE"),
        "its tenant, not its lease"
    );
}

#[tokio::test]
async fn without_keys_only_this_machines_own_pages_come_in() {
    let lab = Lab::start().await;
    let client = lab.local();
    let port = lab.address.port();
    let here = format!("localhost:{port}");
    for path in ["/v1/jobs", "/v1/stream", "/", "/docs", "/openapi.json", "/v1/nowhere"] {
        for (host, origin, code) in [
            (format!("evil.example:{port}"), None, "FOREIGN_HOST"),
            ("localhost".to_owned(), None, "FOREIGN_HOST"),
            (String::new(), None, "FOREIGN_HOST"),
            (here.clone(), Some("http://evil.example".to_owned()), "FOREIGN_ORIGIN"),
            (here.clone(), Some("null".to_owned()), "FOREIGN_ORIGIN"),
            (here.clone(), Some(format!("https://localhost:{port}")), "FOREIGN_ORIGIN"),
        ] {
            let mut headers = vec![("Host", host.as_str())];
            headers.extend(origin.as_deref().map(|origin| ("Origin", origin)));
            let answer = client.send("GET", path, &headers, b"").await;
            assert_eq!((answer.status, answer.code().as_str()), (403, code), "{path} {headers:?}");
        }
    }
    // A target in absolute form names the host as well, and it counts before the header.
    for (target, status) in
        [(format!("http://evil.example:{port}/v1/jobs"), 403), (format!("http://{here}/v1/jobs"), 200)]
    {
        let answer = client.send("GET", &target, &[("Host", &here)], b"").await;
        assert_eq!(answer.status, status, "{target}");
    }
    let own = format!("http://{here}");
    let answer = client.send("GET", "/v1/jobs", &[("Host", &here), ("Origin", &own)], b"").await;
    assert_eq!(answer.status, 200);
    // What a form of another page could send is refused whatever it says.
    for (path, body) in [
        ("/v1/jobs/cancel", &b"{}"[..]),
        ("/v1/tasks/x/retry", b""),
        ("/v1/dead-letters/00000000000000000000000000000001/replay", b""),
        ("/v1/jobs/job-00000000000000000000000000000001/resume", b""),
    ] {
        for media in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
            let answer = client.send("POST", path, &[("Content-Type", media)], body).await;
            assert_eq!(answer.status, 415, "{path} {media}");
        }
        assert_eq!(client.send("POST", path, &[], body).await.status, 415, "{path}");
    }
}

#[tokio::test]
async fn without_keys_other_addresses_are_refused() {
    let lab = Lab::start().await;
    let outside = "192.0.2.7:7070".parse().unwrap();
    let refused = check_listen(&lab.engine, outside).await.unwrap_err();
    assert!(matches!(refused, ServeError::NeedsKeys(_)));
    assert!(refused.to_string().contains("API key"), "{refused}");
    check_listen(&lab.engine, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    check_listen(&lab.engine, "[::1]:0".parse().unwrap()).await.unwrap();
    lab.key("acme", Role::Admin).await;
    check_listen(&lab.engine, outside).await.unwrap();
}

#[tokio::test]
async fn in_process_a_caller_stands_for_a_key() {
    let lab = Lab::start().await;
    let app = App::new(&lab.engine, ServerConfig::default());
    let request = |caller: Option<Caller>| {
        let mut request = axum::http::Request::get("/v1/jobs").body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().extend(axum::http::Extensions::new());
        if let Some(caller) = caller {
            request.extensions_mut().insert(caller);
        }
        request
    };
    let local = Caller::local(tidemill_model::TenantId::new("default").unwrap());
    let answer = router(app.clone()).oneshot(request(Some(local.clone()))).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(router(app.clone()).oneshot(request(None)).await.unwrap().status(), 401);
    lab.key("acme", Role::Admin).await;
    assert_eq!(router(app.clone()).oneshot(request(Some(local))).await.unwrap().status(), 200);
    assert_eq!(router(app).oneshot(request(None)).await.unwrap().status(), 401);
}
