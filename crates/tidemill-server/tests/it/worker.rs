//! The calls of remote workers: claims that are lost, repeated or abandoned, and fences that are stale.

use serde_json::{Value, json};
use tidemill_engine::engine::Claimant;
use tidemill_engine::policy::Policy;
use tidemill_model::{Role, WorkerId};
use tidemill_server::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Answer, Client, LONG, Lab, job_file};

async fn ready() -> (Lab, Client) {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    (lab, client)
}

async fn submit(client: &Client, id: &str) {
    client.post("/v1/tasks", &json!({"requestId": id, "name": "work"})).await.expect(202);
}

/// Sends a request and does not wait for the answer.
async fn begin_request(client: &Client, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).await.unwrap();
    let body = body.to_string();
    let head = client.head("POST", path, &[("Content-Type", "application/json")], "HTTP/1.1");
    let request = format!("{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer_of(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    tokio::time::timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("an answer comes").unwrap();
    Answer::parse(&bytes).unwrap()
}

#[tokio::test]
async fn a_task_is_claimed_kept_and_finished() {
    let (_lab, client) = ready().await;
    submit(&client, "r").await;
    let claimed = client.post("/v1/worker/claim", &json!({"workerId": "w1"})).await.expect(200);
    assert_eq!(claimed["leaseMs"], 45_000);
    let task = &claimed["tasks"][0];
    assert_eq!(
        (&task["requestId"], &task["tenantId"], &task["run"], &task["attempt"]),
        (&json!("r"), &json!("default"), &json!(1), &json!(1))
    );
    assert_eq!(task["execution"]["runner"], "command");
    assert_eq!(client.claim(1).await.len(), 0, "it is held");
    let with = |more: Value| {
        let mut body = json!({"requestId": "r", "fence": task["fence"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    client.post("/v1/worker/begin", &with(json!({"pid": 42}))).await.expect(200);
    let activity = json!({"type": "step_running", "stepName": "fetch", "timestamp": 1_700_000_000_000_u64});
    let beat = with(json!({"pid": 42, "rss": 1_000, "lastActivity": activity}));
    let renewed = client.post("/v1/worker/heartbeat", &beat).await.expect(200);
    assert_eq!(renewed["cancel"], false);
    assert!(renewed["leaseUntil"].as_u64() >= task["leaseUntil"].as_u64());
    assert_eq!(renewed["leaseMs"], 45_000);
    let outcome = json!({"status": "completed", "output": [1, 2], "durationMs": 5});
    let finished = client.finish(task, &outcome).await.expect(200);
    assert_eq!(finished, json!({"state": "completed", "repeated": false}));
    let again = client.finish(task, &outcome).await.expect(200);
    assert_eq!(again, json!({"state": "completed", "repeated": true}));
    let other = json!({"status": "failed", "error": "no", "errorCategory": "validation"});
    let answer = client.finish(task, &other).await;
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (409, "OUTCOME_DIFFERS"),
        "another outcome is too late"
    );
    let other = json!({"status": "completed", "output": [1, 3], "durationMs": 5});
    assert_eq!(client.finish(task, &other).await.code(), "OUTCOME_DIFFERS", "another output");
    let events = client.get("/v1/tasks/r/events?type=Task%20Completed").await.expect(200);
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    let events = client.get("/v1/tasks/r/events?type=Task%20Heartbeat").await.expect(200);
    assert_eq!(events["items"][0]["properties"]["lastActivity"]["stepName"], "fetch");
    let events = client.get("/v1/tasks/r/events?type=Task%20Processing%20Started").await.expect(200);
    assert_eq!(events["items"][0]["properties"]["processId"], 42);
}

#[tokio::test]
async fn a_stale_fence_writes_nothing() {
    let policy = Policy { lease_millis: 1, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let client = lab.local();
    client.define("work").await;
    submit(&client, "r").await;
    let old = client.claim(1).await.remove(0);
    let wait = json!({"workerId": "w2", "waitMs": 30_000});
    let new = client.post("/v1/worker/claim", &wait).await.expect(200)["tasks"][0].clone();
    assert!(new["fence"].as_u64() > old["fence"].as_u64(), "the lease ran out and another worker took it");
    let with = |more: Value| {
        let mut body = json!({"requestId": "r", "fence": old["fence"]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (path, body) in [
        ("begin", with(json!({"pid": 1}))),
        ("heartbeat", with(json!({}))),
        ("release", with(json!({"reason": "x"}))),
        ("finish", with(json!({"outcome": {"status": "completed"}}))),
    ] {
        let answer = client.post(&format!("/v1/worker/{path}"), &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "LEASE_LOST"), "{path}");
    }
    let put = client.send("PUT", &format!("/v1/worker/blobs/r/{}/logs/x", old["fence"]), &[], b"x").await;
    assert_eq!(put.code(), "LEASE_LOST");
    let completed = client.get("/v1/events?type=Task%20Completed").await.expect(200);
    assert_eq!(completed["items"], json!([]));
}

#[tokio::test]
async fn a_claim_can_be_repeated_when_its_answer_was_lost() {
    let (_lab, client) = ready().await;
    submit(&client, "a").await;
    submit(&client, "b").await;
    let claim = |id: &str| json!({"workerId": "w1", "claimId": id});
    // The answer is read by nobody: the connection goes once the claim has been made.
    let lost = begin_request(&client, "/v1/worker/claim", &claim("c1")).await;
    lost.readable().await.unwrap();
    drop(lost);
    let again = client.post("/v1/worker/claim", &claim("c1")).await.expect(200);
    let third = client.post("/v1/worker/claim", &claim("c1")).await.expect(200);
    assert_eq!(again["tasks"], third["tasks"]);
    assert_eq!(again["tasks"].as_array().unwrap().len(), 1);
    let next = client.post("/v1/worker/claim", &claim("c2")).await.expect(200);
    assert_ne!(next["tasks"][0]["requestId"], again["tasks"][0]["requestId"]);
    let other = json!({"workerId": "w2", "claimId": "c1"});
    assert_eq!(
        client.post("/v1/worker/claim", &other).await.expect(200)["tasks"],
        json!([]),
        "names are per worker"
    );
    for task in [&again["tasks"][0], &next["tasks"][0]] {
        client.complete(task, &json!({})).await;
    }
}

#[tokio::test]
async fn a_repeated_claim_gives_nothing_that_others_have() {
    let policy = Policy { lease_millis: 1, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let client = lab.local();
    client.define("work").await;
    submit(&client, "a").await;
    let claim = json!({"workerId": "w1", "claimId": "c1"});
    let first = client.post("/v1/worker/claim", &claim).await.expect(200)["tasks"][0].clone();
    let wait = json!({"workerId": "w2", "waitMs": 30_000});
    let other = client.post("/v1/worker/claim", &wait).await.expect(200)["tasks"][0].clone();
    assert!(other["fence"].as_u64() > first["fence"].as_u64(), "another worker has it");
    let again = client.post("/v1/worker/claim", &claim).await;
    assert_eq!((again.status, again.code().as_str()), (409, "CLAIM_USED"));
    client.complete(&other, &json!({})).await;
    let again = client.post("/v1/worker/claim", &claim).await;
    assert_eq!((again.status, again.code().as_str()), (409, "CLAIM_USED"), "it is done");
}

#[tokio::test]
async fn a_claim_waits_for_work_and_ends_with_its_time() {
    let (_lab, client) = ready().await;
    let waiting =
        begin_request(&client, "/v1/worker/claim", &json!({"workerId": "w1", "waitMs": 30_000})).await;
    let twice = json!({"workerId": "w2", "claimId": "same", "waitMs": 30_000});
    submit(&client, "r").await;
    let answer = answer_of(waiting).await.expect(200);
    assert_eq!(answer["tasks"][0]["requestId"], "r");
    let empty = client.post("/v1/worker/claim", &json!({"workerId": "w1", "waitMs": 1})).await.expect(200);
    assert_eq!(empty["tasks"], json!([]));
    // Two requests under one name get the same task, whichever comes first.
    let first = begin_request(&client, "/v1/worker/claim", &twice).await;
    let second = begin_request(&client, "/v1/worker/claim", &twice).await;
    submit(&client, "s").await;
    let answers = [answer_of(first).await.expect(200), answer_of(second).await.expect(200)];
    assert_eq!(answers[0]["tasks"], answers[1]["tasks"]);
    assert_eq!(answers[0]["tasks"][0]["requestId"], "s");
}

#[tokio::test]
async fn nothing_is_claimed_for_a_client_that_left() {
    let (_lab, client) = ready().await;
    for claim_id in [json!(null), json!("named")] {
        let mut request = json!({"workerId": "gone", "waitMs": 30_000});
        if !claim_id.is_null() {
            request["claimId"] = claim_id.clone();
        }
        let leaving = begin_request(&client, "/v1/worker/claim", &request).await;
        // Another request on a connection of its own is answered: the first one is being waited on by now, or will see
        // that nobody is there when it begins.
        client.get("/healthz").await.expect(200);
        drop(leaving);
        client.get("/healthz").await.expect(200);
        submit(&client, &format!("r-{}", claim_id.is_null())).await;
        let claimed =
            client.post("/v1/worker/claim", &json!({"workerId": "here", "waitMs": 30_000})).await.expect(200);
        let task = &claimed["tasks"][0];
        assert_eq!(task["requestId"], format!("r-{}", claim_id.is_null()));
        assert_eq!(
            client.get(&format!("/v1/tasks/{}", task["requestId"].as_str().unwrap())).await.expect(200)["attempt"],
            1
        );
        client.complete(task, &json!({})).await;
    }
}

#[tokio::test]
async fn a_released_task_goes_to_the_next_worker_uncounted() {
    let (_lab, client) = ready().await;
    submit(&client, "r").await;
    let first = client.claim(1).await.remove(0);
    let release = json!({"requestId": "r", "fence": first["fence"], "reason": "shutting down"});
    client.post("/v1/worker/release", &release).await.expect(200);
    let second = client.claim(1).await.remove(0);
    assert_eq!(second["attempt"], 1);
    assert!(second["fence"].as_u64() > first["fence"].as_u64());
}

#[tokio::test]
async fn a_worker_key_gets_the_tasks_of_its_tenants() {
    let lab = Lab::start().await;
    for tenant in ["acme", "other", "third"] {
        let admin = lab.key(tenant, Role::Admin).await;
        admin.define("work").await;
        submit(&admin, "same-id").await;
    }
    let worker = lab.worker_key(&["acme", "third"], Role::Worker).await;
    let mut tasks = worker.claim(10).await;
    tasks.sort_by_key(|task| task["tenantId"].to_string());
    let tenants: Vec<_> = tasks.iter().map(|task| task["tenantId"].as_str().unwrap()).collect();
    assert_eq!(tenants, ["acme", "third"]);
    worker.complete(&tasks[0], &json!({"of": "acme"})).await;
    let acme = lab.key("acme", Role::Reader).await;
    assert_eq!(acme.get("/v1/tasks/same-id").await.expect(200)["output"], json!({"of": "acme"}));
    let other = lab.key("other", Role::Reader).await;
    assert_eq!(other.get("/v1/tasks/same-id").await.expect(200)["status"], "pending");
    let path = format!("/v1/worker/blobs/same-id/{}/logs/output.log?tenantId=third", tasks[1]["fence"]);
    worker.send("PUT", &path, &[], b"log").await.expect(200);
    let path = format!("/v1/worker/blobs/same-id/{}/logs/output.log?tenantId=other", tasks[1]["fence"]);
    assert_eq!(worker.send("PUT", &path, &[], b"log").await.status, 404);
}

#[tokio::test]
async fn bad_calls_name_their_field() {
    let (_lab, client) = ready().await;
    for (body, field) in [
        (json!({}), "workerId"),
        (json!({"workerId": ""}), "workerId"),
        (json!({"workerId": "w", "slots": 0}), "slots"),
        (json!({"workerId": "w", "slots": 65}), "slots"),
        (json!({"workerId": "w", "waitMs": 30_001}), "waitMs"),
        (json!({"workerId": "w", "claimId": ""}), "claimId"),
        (json!({"workerId": "w", "claimId": "x".repeat(129)}), "claimId"),
    ] {
        let (status, _, at) = client.post("/v1/worker/claim", &body).await.problem();
        assert_eq!((status, at.as_str()), (400, field), "{body}");
    }
    let finish = |outcome: Value| json!({"requestId": "r", "fence": 1, "outcome": outcome});
    submit(&client, "r").await;
    client.claim(1).await;
    for (outcome, field) in [
        (json!({"status": "failed"}), "outcome.error"),
        (json!({"status": "timeout", "signal": "SIGHUP"}), "outcome.signal"),
        (json!({"status": "failed", "error": "x", "errorCategory": "cancelled"}), "outcome.errorCategory"),
        (
            json!({"status": "failed", "error": "x", "retryAfterMs": 999_999_999_999_u64}),
            "outcome.retryAfterMs",
        ),
    ] {
        let (status, _, at) = client.post("/v1/worker/finish", &finish(outcome.clone())).await.problem();
        assert_eq!((status, at.as_str()), (400, field), "{outcome}");
    }
    let mut unknown = finish(json!({"status": "completed"}));
    unknown["requestId"] = json!("ghost");
    assert_eq!(client.post("/v1/worker/finish", &unknown).await.status, 404);
    client.post("/v1/worker/finish", &finish(json!({"status": "completed"}))).await.expect(200);
}

#[tokio::test]
async fn a_report_brings_its_start_along_and_says_it_once() {
    let (_lab, client) = ready().await;
    submit(&client, "r").await;
    let task = client.claim(1).await.remove(0);
    let request =
        json!({"requestId": "r", "fence": task["fence"], "pid": 4711, "outcome": {"status": "completed"}});
    for repeated in [false, true] {
        let answer = client.post("/v1/worker/finish", &request).await.expect(200);
        assert_eq!((&answer["state"], &answer["repeated"]), (&json!("completed"), &json!(repeated)));
    }
    let history = client.get("/v1/tasks/r/events").await.expect(200);
    let events = history["items"].as_array().unwrap();
    let types: Vec<_> = events.iter().map(|event| event["eventType"].as_str().unwrap()).collect();
    assert_eq!(types, ["Task Pending", "Task Processing Started", "Task Completed"]);
    assert_eq!(events[1]["properties"]["processId"], 4711);
}

#[tokio::test]
async fn a_claim_tells_when_it_was_granted() {
    let (lab, client) = ready().await;
    let claim = json!({"workerId": "w1", "claimId": "c1", "waitMs": 30_000});
    let asking = lab.local();
    let sent_at = std::time::Instant::now();
    let asked = claim.clone();
    let waiting = tokio::spawn(async move { asking.post("/v1/worker/claim", &asked).await.expect(200) });
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let submitted = millis(sent_at.elapsed());
    submit(&client, "r").await;
    let answer = waiting.await.unwrap();
    let first = answer["claimedAfterMs"].as_i64().unwrap();
    // Not before the task was there, by the clock of the caller, and not after the answer.
    assert!(first + 100 >= submitted && first <= millis(sent_at.elapsed()), "{first} of {submitted}");
    // Asking again gives the same tasks, and says that they are older than the question.
    let sent_at = std::time::Instant::now();
    let again = client.post("/v1/worker/claim", &claim).await.expect(200);
    assert_eq!(again["tasks"], answer["tasks"]);
    let second = again["claimedAfterMs"].as_i64().unwrap();
    assert!(second < 0 && second >= -1_000 - millis(sent_at.elapsed()), "{second}");
    let nothing = client.post("/v1/worker/claim", &json!({"workerId": "w1"})).await.expect(200);
    assert_eq!((&nothing["tasks"], &nothing["claimedAfterMs"]), (&json!([]), &json!(0)));
}

fn millis(span: std::time::Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap()
}

#[tokio::test]
async fn a_claim_that_waits_ends_with_its_key() {
    let lab = Lab::start().await;
    let (admin, worker) = (lab.key("acme", Role::Admin).await, lab.worker_key(&["acme"], Role::Worker).await);
    let claim = json!({"workerId": "w1", "waitMs": 30_000});
    let waiting = begin_request(&worker, "/v1/worker/claim", &claim).await;
    let receive = json!({"waitMs": 30_000});
    let receiver = lab.key("acme", Role::Admin).await;
    let receiving = begin_request(&receiver, "/v1/queues/tasks/messages/receive", &receive).await;
    for key in [&worker, &receiver] {
        let id = key.token.as_ref().unwrap()[3..15].to_owned();
        admin.delete(&format!("/v1/keys/{id}")).await.expect(200);
    }
    assert_eq!(answer_of(waiting).await.status, 401);
    assert_eq!(answer_of(receiving).await.status, 401);
}

#[tokio::test]
async fn a_tenant_with_too_much_unfinished_is_told_so() {
    let policy = Policy { tenant_tasks_max: 2, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let client = lab.local();
    client.define("work").await;
    let job = job_file(&[("a", &[])]);
    let made = client.post("/v1/jobs", &job).await.expect(201)["jobId"].as_str().unwrap().to_owned();
    submit(&client, "r").await;
    for (path, body) in [
        ("/v1/jobs".to_owned(), job.clone()),
        (format!("/v1/jobs/{made}/tasks"), job_file(&[("b", &[])])),
        ("/v1/tasks".to_owned(), json!({"requestId": "s", "name": "work"})),
        ("/v1/queues/tasks/messages".to_owned(), json!({"body": {"name": "work"}})),
    ] {
        let answer = client.post(&path, &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "TENANT_FULL"), "{path}");
    }
    for held in client.claim(2).await {
        client.complete(&held, &json!({})).await;
    }
    client.post("/v1/jobs", &job).await.expect(201);
}

/// Failed jobs do not count against the limit, until they run again.
#[tokio::test]
async fn jobs_are_retried_as_far_as_there_is_room() {
    let policy = Policy { tenant_tasks_max: 2, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let client = lab.local();
    client.define("work").await;
    for _ in 0..3 {
        client.post("/v1/jobs", &job_file(&[("a", &[])])).await.expect(201);
        client.fail(&client.claim(1).await[0]).await;
    }
    let retried = client.post("/v1/jobs/retry", &json!({"all": true})).await.expect(202);
    assert_eq!((retried["jobIds"].as_array().unwrap().len(), &retried["more"]), (2, &json!(true)));
    let refused = client.post("/v1/jobs/retry", &json!({"all": true})).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "TENANT_FULL"));
    client.complete(&client.claim(1).await[0], &json!({})).await;
    let retried = client.post("/v1/jobs/retry", &json!({"all": true})).await.expect(202);
    assert_eq!((retried["jobIds"].as_array().unwrap().len(), &retried["more"]), (1, &json!(false)));
}

#[tokio::test]
async fn a_lease_is_the_keys_that_claimed_it() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (one, other) = (lab.key("acme", Role::Worker).await, lab.key("acme", Role::Worker).await);
    admin.define("work").await;
    admin.submit(&[("a", &[]), ("b", &[])]).await;
    let task = one.claim(1).await.remove(0);
    let named = json!({"requestId": task["requestId"], "fence": task["fence"]});
    let with = |more: Value| {
        let mut body = named.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let finish = with(json!({"outcome": {"status": "completed", "output": {"stolen": true}}}));
    for (path, body) in [
        ("begin", with(json!({"pid": 7}))),
        ("heartbeat", named.clone()),
        ("finish", finish.clone()),
        ("release", named.clone()),
    ] {
        let answer = other.post(&format!("/v1/worker/{path}"), &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "FOREIGN_LEASE"), "{path}");
    }
    let (request, fence) = (task["requestId"].as_str().unwrap(), &task["fence"]);
    let file = format!("/v1/worker/blobs/{request}/{fence}/logs/output.log");
    let answer = other.send("PUT", &file, &[], b"forged").await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "FOREIGN_LEASE"));
    // The key's own calls work, and once the task is given back any key may have it.
    one.send("PUT", &file, &[], b"mine").await.expect(200);
    one.post("/v1/worker/heartbeat", &named).await.expect(200);
    one.post("/v1/worker/release", &named).await.expect(200);
    let again = other.claim(2).await;
    assert!(again.iter().any(|taken| taken["requestId"] == task["requestId"]), "{again:?}");
    for task in &again {
        other.complete(task, &json!({})).await;
    }
    let stale = one.post("/v1/worker/finish", &finish).await;
    assert_eq!((stale.status, stale.code().as_str()), (409, "LEASE_LOST"), "it was given back");
}

/// What a client is told that sends a heartbeat.
async fn speak(client: &Client, request: &str, fence: u64) -> (u16, String) {
    let answer = client.post("/v1/worker/heartbeat", &json!({"requestId": request, "fence": fence})).await;
    (answer.status, if answer.status == 200 { String::new() } else { answer.code() })
}

#[tokio::test]
async fn no_key_speaks_for_the_servers_own_worker() {
    let lab = Lab::start().await;
    let (admin, worker) = (lab.key("acme", Role::Admin).await, lab.key("acme", Role::Worker).await);
    admin.define("work").await;
    admin.submit(&[("a", &[])]).await;
    let own = Claimant::in_process(WorkerId::trusted("own"), 1, 1);
    let task = lab.engine.claim(own).await.unwrap().tasks.remove(0);
    let (request, fence) = (task.task.request.as_str(), task.fence.0);
    let named = json!({"requestId": request, "fence": fence});
    let mut finish = named.clone();
    finish["outcome"] = json!({"status": "completed", "output": {"stolen": true}});
    for (path, body) in [("begin", &named), ("heartbeat", &named), ("finish", &finish), ("release", &named)] {
        let mut body = body.clone();
        if path == "begin" {
            body["pid"] = json!(7);
        }
        let answer = worker.post(&format!("/v1/worker/{path}"), &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "FOREIGN_LEASE"), "{path}");
    }
    let file = format!("/v1/worker/blobs/{request}/{fence}/logs/output.log");
    let answer = worker.send("PUT", &file, &[], b"forged").await;
    assert_eq!((answer.status, answer.code().as_str()), (403, "FOREIGN_LEASE"));
    assert_eq!(
        speak(&worker, request, fence + 1).await,
        (409, "LEASE_LOST".to_owned()),
        "nobody has that one"
    );
}

#[tokio::test]
async fn the_first_key_that_speaks_for_a_forgotten_lease_has_it() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let (one, other) = (lab.key("acme", Role::Worker).await, lab.key("acme", Role::Worker).await);
    admin.define("work").await;
    admin.submit(&[("a", &[])]).await;
    // As after a restart: the store has a lease of a remote worker, and the server knows nothing of its key.
    let remote =
        Claimant { generation: None, begin: None, ..Claimant::in_process(WorkerId::trusted("w1"), 1, 1) };
    let task = lab.engine.claim(remote).await.unwrap().tasks.remove(0);
    let (request, fence) = (task.task.request.as_str(), task.fence.0);
    assert_eq!(speak(&other, request, fence + 1).await.0, 409, "a wrong fence binds nothing");
    assert_eq!(speak(&one, request, fence).await.0, 200);
    assert_eq!(speak(&other, request, fence).await, (403, "FOREIGN_LEASE".to_owned()));
    assert_eq!(speak(&one, request, fence).await.0, 200);
}

#[tokio::test]
async fn calls_that_say_little_take_little() {
    let (_lab, client) = ready().await;
    let media = [("Content-Type", "application/json")];
    let padded = |body: &Value, bytes: usize| format!("{}{body}", " ".repeat(bytes)).into_bytes();
    let named = json!({"requestId": "r", "fence": 1});
    for (path, body) in [
        ("/v1/worker/claim", &json!({"workerId": "w"})),
        ("/v1/worker/begin", &json!({"requestId": "r", "fence": 1, "pid": 7})),
        ("/v1/worker/release", &named),
        ("/v1/queues/tasks/messages/receive", &json!({})),
        (
            "/v1/queues/tasks/messages/00000000000000000000000000000001-1/visibility",
            &json!({"visibleInMs": 1}),
        ),
        ("/v1/workflow/tokens/outcome", &json!({"token": "t"})),
    ] {
        let answer = client.send("POST", path, &media, &padded(body, 64 * 1024)).await;
        assert_eq!(answer.status, 413, "{path}: {}", answer.text());
        let answer = client.send("POST", path, &media, &padded(body, 60 * 1024)).await;
        assert_ne!(answer.status, 413, "{path}: {}", answer.text());
    }
    // A heartbeat has as much as its log needs when each of its bytes is escaped.
    let answer = client.send("POST", "/v1/worker/heartbeat", &media, &padded(&named, 2 << 20)).await;
    assert_eq!(answer.status, 413);
    submit(&client, "r").await;
    let task = client.claim(1).await.remove(0);
    let log = "\u{1}".repeat(256 * 1024);
    let beat = json!({"requestId": "r", "fence": task["fence"], "log": log});
    client.post("/v1/worker/heartbeat", &beat).await.expect(200);
}

#[tokio::test]
async fn a_claim_that_waits_holds_no_memory_of_its_body() {
    let config = ServerConfig {
        body_bytes_max: 16 * 1024,
        blob_bytes_max: 16 * 1024,
        bodies_bytes_max: 16 * 1024,
        ..ServerConfig::default()
    };
    let lab = Lab::with(config, Policy::default()).await;
    let client = lab.local();
    let media = [("Content-Type", "application/json")];
    let asker = client.clone();
    let claim = tokio::spawn(async move {
        let body = format!("{}{}", " ".repeat(15 * 1024), json!({"workerId": "w", "waitMs": 30_000}));
        asker.send("POST", "/v1/worker/claim", &media, body.as_bytes()).await
    });
    // Many bodies of 10 KiB have room one after the other, though the two would have none together.
    let other = format!("{}[]", " ".repeat(10 * 1024));
    let mut refused = 0;
    let mut room = 0;
    while room < 50 {
        assert!(!claim.is_finished(), "{refused} were refused while the claim waited");
        match client.send("POST", "/v1/jobs", &media, other.as_bytes()).await.status {
            400 => room += 1,
            503 => (refused, room) = (refused + 1, 0),
            status => panic!("{status}"),
        }
    }
    claim.abort();
}

/// What a dependency left is for the worker that holds a task which depends on it, and for nobody else.
#[tokio::test]
async fn a_worker_gets_what_the_dependencies_of_its_task_left() {
    let lab = Lab::start().await;
    let admin = lab.key("default", Role::Admin).await;
    let worker = lab.worker_key(&["default"], Role::Worker).await;
    let foreign = lab.worker_key(&["other"], Role::Worker).await;
    admin.define("work").await;
    admin.submit(&[("a", &[]), ("b", &["a"]), ("c", &[])]).await;
    let roots = worker.claim(2).await;
    let of = |tasks: &[Value], id: &str| tasks.iter().find(|task| task["taskId"] == id).unwrap().clone();
    let (parent, other) = (of(&roots, "a"), of(&roots, "c"));
    let name = |task: &Value| (task["requestId"].as_str().unwrap().to_owned(), task["fence"].clone());
    let (request, fence) = name(&parent);
    for (path, content) in
        [("artifacts/in/x%20y.txt", "content"), ("artifacts/unnamed", "u"), ("logs/output.log", "l")]
    {
        let path = format!("/v1/worker/blobs/{request}/{fence}/{path}");
        worker.send("PUT", &path, &[], content.as_bytes()).await.expect(200);
    }
    let digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
    let named = |path: &str, sha256: &str| json!({"path": path, "sizeBytes": 7, "sha256": sha256});
    for (artifacts, field) in [
        (json!([named("../x", digest)]), "outcome.artifacts[0].path"),
        (json!([named("x", "abc")]), "outcome.artifacts[0].sha256"),
        (json!([named("in/x y.txt", digest), named("gone", digest)]), "outcome.artifacts[1].path"),
        (json!([named("in/x y.txt", digest), named("in/x y.txt", digest)]), "outcome.artifacts[1].path"),
        (json!([named("unnamed", digest)]), "outcome.artifacts[0].sizeBytes"),
    ] {
        let answer = worker.finish(&parent, &json!({"status": "completed", "artifacts": artifacts})).await;
        let (status, _, _) = answer.problem();
        assert_eq!(
            (status, &answer.json()["details"][0]["field"]),
            (400, &json!(field)),
            "{}",
            answer.text()
        );
    }
    let artifacts = json!([named("in/x y.txt", digest)]);
    let outcome = json!({"status": "completed", "artifacts": artifacts});
    worker.finish(&parent, &outcome).await.expect(200);
    let child = worker.claim(1).await.remove(0);
    assert_eq!(child["input"]["dependencyArtifacts"]["a"], artifacts);
    let attempt = json!({"taskId": "a", "requestId": request, "run": 1, "attempt": 1, "fence": fence});
    assert_eq!(child["dependencyAttempts"], json!([attempt]));
    let (request, fence) = name(&child);
    let at = |request: &str, fence: &Value, rest: &str| format!("/v1/worker/inputs/{request}/{fence}/{rest}");
    let file = at(&request, &fence, "a/in/x%20y.txt");
    let got = worker.get(&file).await;
    assert_eq!((got.status, got.text()), (200, "content".to_owned()));
    let (free, its_fence) = name(&other);
    for (who, path, status, code) in [
        (&worker, at(&request, &fence, "a/unnamed"), 409, "ARTIFACT_MISSING"),
        (&worker, at(&request, &fence, "a/output.log"), 409, "ARTIFACT_MISSING"),
        (&worker, at(&request, &fence, "c/in/x%20y.txt"), 409, "ARTIFACT_MISSING"),
        (&worker, at(&free, &its_fence, "a/in/x%20y.txt"), 409, "ARTIFACT_MISSING"),
        (&worker, at(&request, &fence, "a/../x"), 404, "NOT_FOUND"),
        (&worker, at(&request, &json!(99), "a/in/x%20y.txt"), 409, "LEASE_LOST"),
        (&foreign, file.clone(), 404, "NOT_FOUND"),
        (&foreign, format!("{file}?tenantId=default"), 404, "NOT_FOUND"),
    ] {
        let answer = who.get(&path).await;
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{path}: {}", answer.text());
    }
    worker.complete(&child, &json!({})).await;
    assert_eq!(worker.get(&file).await.code(), "LEASE_LOST", "it is nobody's task any more");
}
