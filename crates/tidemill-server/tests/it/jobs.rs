//! Jobs: submit, look, grow, steer.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidemill_model::Role;

use crate::lab::{Client, Lab, SAMPLE, job_file, task_id};

async fn ready() -> (Lab, Client) {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    (lab, client)
}

/// The status of every task of a job.
async fn statuses(client: &Client, job: &str) -> Value {
    let job = client.get(&format!("/v1/jobs/{job}")).await.expect(200);
    let tasks = job["tasks"].as_array().unwrap().iter();
    let pairs = tasks.map(|task| (task["taskId"].as_str().unwrap().to_owned(), task["status"].clone()));
    Value::Object(pairs.collect())
}

#[tokio::test]
async fn pa_01_pa_02_a_job_is_created_with_its_roots() {
    let (_lab, client) = ready().await;
    let mut file = job_file(&SAMPLE);
    file["requestId"] = json!("req-789");
    file["name"] = json!("sample");
    let created = client.post("/v1/jobs", &file).await.expect(201);
    let job = created["jobId"].as_str().unwrap();
    assert_eq!(created["requestId"], "req-789");
    assert_eq!(created["status"], "running");
    assert_eq!(created["totalTasks"], 5);
    assert_eq!(created["rootTasks"], json!(["task-A", "task-B"]));
    assert!(created["createdAt"].as_u64().unwrap() > 1_600_000_000_000);

    let events = client.get(&format!("/v1/jobs/{job}/events")).await.expect(200);
    assert_eq!(events["items"][0]["eventType"], "Job Created");
    let pending = client.get("/v1/events?type=Task%20Pending").await.expect(200);
    let mut entities: Vec<_> = pending["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["entityId"].as_str().unwrap())
        .collect();
    entities.sort_unstable();
    assert_eq!(entities, [format!("{job}_task-A"), format!("{job}_task-B")]);

    let seen = client.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!(seen["name"], "sample");
    assert_eq!(
        seen["counts"],
        json!({"waiting": 3, "pending": 2, "processing": 0, "completed": 0, "failed": 0})
    );
    assert_eq!(seen["tasks"][4]["blockedBy"], json!(["task-C", "task-D"]));
    assert_eq!(seen["tasks"][4]["status"], Value::Null);
    assert_eq!(seen["nextCursor"], Value::Null);
    let listed = client.get("/v1/jobs").await.expect(200);
    assert_eq!(listed["items"][0]["jobId"], job);
    assert_eq!(listed["items"][0].get("tasks"), None);
}

#[tokio::test]
async fn pa_03_to_pa_06_each_violation_has_its_code_and_changes_nothing() {
    let (_lab, client) = ready().await;
    let task = |id: &str, parents: &[&str]| json!({"taskId": id, "name": "work", "dependsOn": parents});
    let job = |tasks: &[Value]| json!({"tasks": tasks});
    let many: Vec<_> = (0..100_001).map(|n| json!({"taskId": format!("t{n}"), "name": "work"})).collect();
    for (file, code, field) in [
        (job(&[]), "EMPTY_TASKS", "tasks"),
        (job(&many), "TOO_MANY_TASKS", "tasks"),
        (job(&[task("a/b", &[])]), "INVALID_TASK_ID", "tasks[0].taskId"),
        (job(&[task("", &[])]), "INVALID_TASK_ID", "tasks[0].taskId"),
        (job(&[task(&"x".repeat(201), &[])]), "INVALID_TASK_ID", "tasks[0].taskId"),
        (job(&[task("a", &[]), task("a", &[])]), "DUPLICATE_TASK_ID", "tasks[1].taskId"),
        (job(&[task("a", &["a"])]), "SELF_DEPENDENCY", "tasks[0].dependsOn"),
        (job(&[task("a", &[]), task("b", &["a", "a"])]), "DUPLICATE_DEPENDENCY", "tasks[1].dependsOn"),
        (job(&[task("a", &["ghost"])]), "UNKNOWN_DEPENDENCY", "tasks[0].dependsOn"),
        (job(&[task("a", &["b"]), task("b", &["a"])]), "CYCLE", "tasks[0].dependsOn"),
        (job(&[json!({"taskId": "a", "name": "ghost"})]), "UNKNOWN_TASK_DEFINITION", "tasks[0].name"),
        (job(&[json!({"taskId": "a", "name": "work", "input": 7})]), "INVALID_INPUT", "tasks[0].input"),
        (
            job(&[json!({"taskId": "a", "name": "work", "input": {"dependencyOutputs": 1}})]),
            "INVALID_INPUT",
            "tasks[0].input",
        ),
        (job(&[json!({"taskId": "a", "name": "work", "agent": {}})]), "", ""),
        (job(&[json!({"taskId": "a", "agent": {"prompt": ""}})]), "INVALID_VALUE", "tasks[0].agent.prompt"),
        (job(&[json!({"taskId": "a", "script": 1})]), "INVALID_TYPE", "tasks[0].script"),
        (
            job(&[json!({"taskId": "a", "name": "work", "onFailure": "wait"})]),
            "INVALID_VALUE",
            "tasks[0].onFailure",
        ),
        (
            json!({"tasks": [task("a", &[])], "callbackUrl": "http://example.com/"}),
            "INVALID_VALUE",
            "callbackUrl",
        ),
        (
            json!({"tasks": [task("a", &[])], "callbackUrl": "http://user:secret@example.com/"}),
            "INVALID_VALUE",
            "callbackUrl",
        ),
        (
            json!({"tasks": [task("a", &[])], "callbackUrl": format!("http://a/{}", "x".repeat(2_048))}),
            "TOO_LONG",
            "callbackUrl",
        ),
        (json!({"tasks": [task("a", &[])], "color": "red"}), "UNKNOWN_FIELD", "color"),
    ] {
        let answer = client.post("/v1/jobs", &file).await;
        let (status, found, at) = answer.problem();
        assert_eq!(status, 400, "{}", answer.text());
        if !code.is_empty() {
            assert_eq!((found.as_str(), at.as_str()), (code, field), "{}", answer.text());
        }
    }
    assert_eq!(client.get("/v1/jobs").await.expect(200)["items"], json!([]));
    assert_eq!(client.get("/v1/events").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn pa_03_all_violations_are_listed_and_a_cycle_is_named() {
    let (_lab, client) = ready().await;
    let file = job_file(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["d"]), ("e", &["ghost"])]);
    let problem = client.post("/v1/jobs", &file).await.expect(400);
    let codes: BTreeSet<_> = problem["details"]
        .as_array()
        .unwrap()
        .iter()
        .map(|detail| detail["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, BTreeSet::from(["CYCLE", "SELF_DEPENDENCY", "UNKNOWN_DEPENDENCY"]));
    let cycle =
        problem["details"].as_array().unwrap().iter().find(|detail| detail["code"] == "CYCLE").unwrap();
    for task in ["a", "b", "c"] {
        assert!(cycle["message"].as_str().unwrap().contains(task), "{cycle}");
    }
}

#[tokio::test]
async fn pa_07_pa_08_added_tasks_are_checked_against_the_job() {
    let (_lab, client) = ready().await;
    let job = client.submit(&SAMPLE).await;
    let add = async |tasks: &[(&str, &[&str])]| {
        client.post(&format!("/v1/jobs/{job}/tasks"), &job_file(tasks)).await
    };
    let added = add(&[("task-F", &["task-A"]), ("task-G", &[])]).await.expect(201);
    assert_eq!(added["jobId"], job.as_str());
    assert_eq!(added["newTasks"], json!(["task-F", "task-G"]));
    assert_eq!((&added["previousTotalTasks"], &added["totalTasksNow"]), (&json!(5), &json!(7)));
    assert_eq!(added["dispatched"], json!(["task-G"]));
    assert_eq!(add(&[("x", &["stranger"])]).await.problem().1, "UNKNOWN_DEPENDENCY");
    let twice = add(&[("task-A", &[])]).await;
    assert_eq!((twice.status, twice.code().as_str()), (409, "DUPLICATE_TASK_ID"));
    let twice = add(&[("y", &[]), ("y", &[])]).await;
    assert_eq!((twice.status, twice.code().as_str()), (400, "DUPLICATE_TASK_ID"));
    let unknown = "/v1/jobs/job-00000000000000000000000000000001/tasks";
    assert_eq!(client.post(unknown, &job_file(&[("a", &[])])).await.problem().0, 404);

    let done = client.submit(&[("only", &[])]).await;
    for task in client.claim(64).await {
        client.complete(&task, &json!({})).await;
    }
    for task in client.claim(64).await {
        client.complete(&task, &json!({})).await;
    }
    let late = client.post(&format!("/v1/jobs/{done}/tasks"), &job_file(&[("a", &[])])).await;
    assert_eq!((late.status, late.code().as_str()), (409, "JOB_COMPLETED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pa_09_parallel_additions_leave_no_gap() {
    let (_lab, client) = ready().await;
    let job = client.submit(&SAMPLE).await;
    let mut adding = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (client, job) = (client.clone(), job.clone());
        adding.spawn(async move {
            let id = format!("added-{number}");
            let file = job_file(&[(id.as_str(), &["task-A"])]);
            client.post(&format!("/v1/jobs/{job}/tasks"), &file).await.expect(201)
        });
    }
    let mut totals = BTreeSet::new();
    while let Some(added) = adding.join_next().await {
        let added = added.unwrap();
        let (before, now) =
            (added["previousTotalTasks"].as_u64().unwrap(), added["totalTasksNow"].as_u64().unwrap());
        assert_eq!(now, before + 1);
        totals.insert(now);
    }
    assert_eq!(totals, (6..=25).collect());
}

#[tokio::test]
async fn pa_10_jobs_are_listed_in_pages_and_by_status() {
    let (_lab, client) = ready().await;
    let mut submitted = Vec::new();
    for number in 0..120 {
        let mut file = job_file(&[("a", &[])]);
        file["name"] = json!(if number % 2 == 0 { "even" } else { "odd" });
        let accepted = client.post("/v1/jobs", &file).await.expect(201);
        submitted.push(accepted["jobId"].as_str().unwrap().to_owned());
    }
    submitted.reverse();
    let all = async |query: &str| {
        let (mut jobs, mut sizes, mut cursor) = (Vec::new(), Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/jobs?{query}{cursor}")).await.expect(200);
            let items = page["items"].as_array().unwrap();
            sizes.push(items.len());
            jobs.extend(items.iter().map(|job| job["jobId"].as_str().unwrap().to_owned()));
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return (jobs, sizes),
            }
        }
    };
    assert_eq!(all("limit=50").await, (submitted.clone(), vec![50, 50, 20]));
    assert_eq!(all("").await.1, [50, 50, 20]);
    assert_eq!(all("limit=200").await.1, [120]);
    assert_eq!(all("status=running&limit=60").await.1, [60, 60]);
    assert_eq!(all("status=completed").await.0.len(), 0);
    let even: Vec<_> = submitted.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(all("name=even&limit=25").await.0, even);
    let middle =
        client.get(&format!("/v1/jobs/{}", submitted[60])).await.expect(200)["createdAt"].as_u64().unwrap();
    let later = all(&format!("from={middle}")).await.0;
    let earlier = all(&format!("to={}", middle - 1)).await.0;
    assert!(later.contains(&submitted[60]) && !earlier.contains(&submitted[60]));
    assert_eq!(later.len() + earlier.len(), 120);
    assert_eq!(
        client.get("/v1/jobs?cursor=nonsense").await.problem(),
        (400, "INVALID_PARAMETER".into(), "cursor".into())
    );
}

#[tokio::test]
async fn jo_20_pa_11_a_job_shows_its_phases() {
    let (_lab, client) = ready().await;
    let job = client.submit(&SAMPLE).await;
    let status = async || client.get(&format!("/v1/jobs/{job}")).await.expect(200)["status"].clone();
    assert_eq!(status().await, "running");
    let roots = client.claim(2).await;
    assert_eq!(roots.iter().map(task_id).collect::<BTreeSet<_>>(), BTreeSet::from(["task-A", "task-B"]));
    for task in &roots {
        let begin = json!({"requestId": task["requestId"], "fence": task["fence"], "pid": 1});
        client.post("/v1/worker/begin", &begin).await.expect(200);
    }
    assert_eq!(statuses(&client, &job).await["task-A"], "processing");
    for task in &roots {
        if task_id(task) == "task-A" {
            client.complete(task, &json!({"store": 1})).await;
        } else {
            client.fail(task).await;
        }
    }
    assert_eq!(status().await, "failing", "task-C is still to run");
    let rest = client.claim(5).await;
    assert_eq!(rest.iter().map(task_id).collect::<Vec<_>>(), ["task-C"]);
    assert_eq!(rest[0]["input"], json!({"dependencyOutputs": {"task-A": {"store": 1}}}));
    client.complete(&rest[0], &json!({})).await;
    assert_eq!(status().await, "failed");
    let seen = client.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!(
        seen["counts"],
        json!({"waiting": 2, "pending": 0, "processing": 0, "completed": 2, "failed": 1})
    );
    let failed = seen["tasks"].as_array().unwrap().iter().find(|task| task["taskId"] == "task-B").unwrap();
    assert_eq!((&failed["error"], &failed["errorCategory"]), (&json!("no"), &json!("validation")));
    assert!(failed["startedAt"].is_u64() && failed["finishedAt"].is_u64());
    assert_eq!(failed["attempt"], 1);
    let done = seen["tasks"].as_array().unwrap().iter().find(|task| task["taskId"] == "task-A").unwrap();
    assert_eq!(done["output"], json!({"store": 1}));

    let resumed = client.post(&format!("/v1/jobs/{job}/resume"), &json!({})).await.expect(202);
    assert_eq!(resumed["resumed"], json!(["task-B"]));
    assert_eq!(status().await, "running");
    for _ in 0..3 {
        for task in client.claim(5).await {
            client.complete(&task, &json!({})).await;
        }
    }
    let seen = client.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!(seen["status"], "completed");
    assert!(seen["completedAt"].is_u64());
}

#[tokio::test]
async fn pa_13_a_repeated_submission_is_the_same_job() {
    let (_lab, client) = ready().await;
    let file = job_file(&SAMPLE);
    let send = async |key: &str, file: &Value| {
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
        client.send("POST", "/v1/jobs", &headers, file.to_string().as_bytes()).await
    };
    let first = send("key-1", &file).await.expect(201);
    let second = send("key-1", &file).await.expect(200);
    assert_eq!(first, second);
    let other = send("key-1", &job_file(&[("a", &[])])).await;
    assert_eq!((other.status, other.code().as_str()), (409, "IDEMPOTENCY_CONFLICT"));
    assert_ne!(send("key-2", &file).await.expect(201)["jobId"], first["jobId"]);

    let mut named = file.clone();
    named["requestId"] = json!("mine");
    let first = client.post("/v1/jobs", &named).await.expect(201);
    assert_eq!(client.post("/v1/jobs", &named).await.expect(200), first);
    named["name"] = json!("another");
    assert_eq!(client.post("/v1/jobs", &named).await.code(), "IDEMPOTENCY_CONFLICT");
    assert_eq!(client.get("/v1/jobs").await.expect(200)["items"].as_array().unwrap().len(), 3);

    let long = "k".repeat(257);
    for bad in ["", "with\ttab", long.as_str()] {
        assert_eq!(send(bad, &file).await.problem().0, 400, "{bad:?}");
    }
}

#[tokio::test]
async fn pa_19_failed_jobs_are_resumed_and_others_are_not() {
    let (_lab, client) = ready().await;
    let job = client.submit(&[("a", &[]), ("b", &[]), ("c", &["a"])]).await;
    let resume = async |body: Value| client.post(&format!("/v1/jobs/{job}/resume"), &body).await;
    assert_eq!(resume(json!({})).await.problem(), (409, "NOTHING_TO_RESUME".into(), String::new()));
    for task in client.claim(2).await {
        client.fail(&task).await;
    }
    assert_eq!(resume(json!({"taskIds": ["c"]})).await.problem().1, "NOT_FAILED");
    assert_eq!(resume(json!({"taskIds": ["ghost"]})).await.status, 404);
    assert_eq!(
        resume(json!({"taskIds": ["no/id"]})).await.problem(),
        (400, "INVALID_TASK_ID".into(), "taskIds[0]".into())
    );
    assert_eq!(resume(json!({"taskIds": ["b"]})).await.expect(202)["resumed"], json!(["b"]));
    assert_eq!(resume(json!({})).await.expect(202)["resumed"], json!(["a"]));
    assert_eq!(resume(json!({})).await.status, 409);
}

#[tokio::test]
async fn a_cancelled_job_is_at_rest_until_it_is_resumed() {
    let (_lab, client) = ready().await;
    let job = client.submit(&SAMPLE).await;
    let held = client.claim(1).await.remove(0);
    let path = format!("/v1/jobs/{job}/cancel");
    let cancelled = client.post(&path, &json!({"reason": "enough"})).await.expect(202);
    assert_eq!(cancelled["cancelled"], json!(["task-A", "task-B"]));
    assert_eq!(client.post(&path, &json!({})).await.expect(202)["cancelled"], json!([]));
    let seen = client.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!(seen["status"], "cancelled");
    assert_eq!(seen["tasks"][0]["errorCategory"], "cancelled");
    assert_eq!(seen["tasks"][0]["cancelled"], true);
    assert_eq!(seen["tasks"][2].get("cancelled"), None, "it had not begun");
    assert_eq!(client.finish(&held, &json!({"status": "completed"})).await.code(), "LEASE_LOST");
    let beat = json!({"requestId": held["requestId"], "fence": held["fence"]});
    let answer = client.post("/v1/worker/heartbeat", &beat).await.expect(200);
    assert_eq!(answer, json!({"leaseUntil": null, "cancel": true}));
    assert_eq!(client.post(&format!("/v1/jobs/{job}/resume"), &json!({})).await.status, 202);
}

#[tokio::test]
async fn many_jobs_are_retried_and_cancelled_by_filter() {
    let (_lab, client) = ready().await;
    for name in ["red", "red", "blue"] {
        let mut file = job_file(&[("a", &[])]);
        file["name"] = json!(name);
        client.post("/v1/jobs", &file).await.expect(201);
    }
    for task in client.claim(3).await {
        client.fail(&task).await;
    }
    let retried = client.post("/v1/jobs/retry", &json!({"name": "red", "limit": 1})).await.expect(202);
    assert_eq!((retried["jobIds"].as_array().unwrap().len(), &retried["more"]), (1, &json!(true)));
    let retried = client.post("/v1/jobs/retry", &json!({"name": "red"})).await.expect(202);
    assert_eq!((retried["jobIds"].as_array().unwrap().len(), &retried["more"]), (1, &json!(false)));
    assert_eq!(client.get("/v1/jobs?status=failed").await.expect(200)["items"].as_array().unwrap().len(), 1);
    for (body, path) in [
        (json!({}), "retry"),
        (json!({"limit": 5}), "retry"),
        (json!({}), "cancel"),
        (json!({"reason": "tidy", "all": false}), "cancel"),
        (json!({"all": true, "name": "red"}), "cancel"),
    ] {
        assert_eq!(
            client.post(&format!("/v1/jobs/{path}"), &body).await.problem(),
            (400, "ONE_OF".into(), "all".into()),
            "{path} {body}"
        );
    }
    let cancelled = client.post("/v1/jobs/cancel", &json!({"all": true, "reason": "tidy"})).await.expect(202);
    assert_eq!(cancelled["jobIds"].as_array().unwrap().len(), 2, "nothing was cancelled before");
    for (body, field) in [
        (json!({"all": true, "limit": 0}), "limit"),
        (json!({"all": true, "limit": 100_000}), "limit"),
        (json!({"createdAfter": 5}), "createdAfter"),
        (json!({"status": "happy"}), "status"),
    ] {
        assert_eq!(
            client.post("/v1/jobs/cancel", &body).await.problem(),
            (400, "INVALID_FIELD".into(), field.into())
        );
    }
}

#[tokio::test]
async fn a_large_job_is_shown_in_part_and_paged() {
    let (_lab, client) = ready().await;
    let ids: Vec<String> = (0..1_300).map(|n| format!("t{n}")).collect();
    let tasks: Vec<(&str, &[&str])> = ids.iter().map(|id| (id.as_str(), &[][..])).collect();
    let job = client.submit(&tasks).await;
    let seen = client.get(&format!("/v1/jobs/{job}")).await.expect(200);
    assert_eq!((seen["tasks"].as_array().unwrap().len(), &seen["totalTasks"]), (1_000, &json!(1_300)));
    let mut found = BTreeSet::new();
    let mut cursor = seen["nextCursor"].as_str().unwrap().to_owned();
    let mut pages = 0;
    loop {
        let page = client.get(&format!("/v1/jobs/{job}/tasks?limit=200&cursor={cursor}")).await.expect(200);
        pages += 1;
        found.extend(
            page["items"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap().to_owned()),
        );
        match page["nextCursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((pages, found), (2, ids[1_000..].iter().cloned().collect()));
    for task in client.claim(3).await {
        client.complete(&task, &json!({})).await;
    }
    let page = client.get(&format!("/v1/jobs/{job}/tasks?status=completed")).await.expect(200);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["nextCursor"]), (3, &Value::Null));
    let page = client.get(&format!("/v1/jobs/{job}/tasks?status=waiting")).await.expect(200);
    assert_eq!(page["items"], json!([]));
}

#[tokio::test]
async fn a_producer_cannot_bring_commands_and_an_admin_can() {
    let (lab, client) = ready().await;
    drop(client);
    let producer = lab.key("default", Role::Producer).await;
    let admin = lab.key("default", Role::Admin).await;
    let inline = json!({"tasks": [{"taskId": "a", "run": ["rm", "-rf", "/"]}]});
    let refused = producer.post("/v1/jobs", &inline).await;
    assert_eq!(refused.problem().0, 403);
    assert_eq!(refused.code(), "INLINE_NOT_ALLOWED");
    for task in [json!({"run": "true"}), json!({"agent": "do it"})] {
        let refused = producer.post("/v1/tasks", &task).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "INLINE_NOT_ALLOWED"));
    }
    let agent = json!({"tasks": [{"taskId": "a", "agent": {"prompt": "do it"}}]});
    let refused = producer.post("/v1/jobs", &agent).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "INLINE_NOT_ALLOWED"));
    let job = producer.submit(&[("a", &[])]).await;
    let added = producer.post(&format!("/v1/jobs/{job}/tasks"), &inline).await;
    assert_eq!((added.status, added.code().as_str()), (403, "INLINE_NOT_ALLOWED"));
    admin.post("/v1/jobs", &inline).await.expect(201);
    assert_eq!(producer.get("/v1/jobs").await.expect(200)["items"].as_array().unwrap().len(), 2);
}

/// Each of them made a program run what a producer wrote, or send the operator's key elsewhere.
#[tokio::test]
async fn se_08_a_producer_sets_no_variable_that_a_definition_does_not_open() {
    let (lab, client) = ready().await;
    let variables = ["TAR_OPTIONS", "LESSOPEN", "CC", "ANTHROPIC_BASE_URL", "HTTPS_PROXY"];
    let env: Value = variables.iter().map(|name| ((*name).to_owned(), json!(""))).collect();
    let draft = json!({"name": "pack", "command": ["tar", "-c", "."], "env": env, "openEnv": ["REGION"]});
    client.post("/v1/task-definitions", &draft).await.expect(201);
    let draft = json!({"name": "old", "command": ["tar", "-c", "."], "env": env});
    client.post("/v1/task-definitions", &draft).await.expect(201);
    let told = client.get("/v1/task-definitions/old").await.expect(200);
    assert_eq!(told["openEnv"], json!([]));
    drop(client);
    let producer = lab.key("default", Role::Producer).await;
    for (definition, reason) in [("pack", "does not name it in its openEnv"), ("old", "has no openEnv")] {
        for variable in variables {
            let tasks = json!([
                {"taskId": "a", "name": "pack", "env": {"REGION": "eu"}},
                {"taskId": "b", "name": definition, "env": {variable: "x"}},
            ]);
            let job = producer.post("/v1/jobs", &json!({"tasks": tasks})).await;
            let place = format!("tasks[1].env.{variable}");
            assert_eq!(job.problem(), (403, "VARIABLE_NOT_OPEN".into(), place));
            assert!(job.text().contains(reason), "{}", job.text());
            let task = json!({"name": definition, "env": {variable: "x"}});
            let task = producer.post("/v1/tasks", &task).await;
            assert_eq!(task.problem(), (403, "VARIABLE_NOT_OPEN".into(), format!("env.{variable}")));
        }
    }
    assert_eq!(producer.get("/v1/jobs").await.expect(200)["items"], json!([]), "nothing is submitted");
    let job = json!({"tasks": [{"taskId": "a", "name": "pack", "env": {"REGION": "eu"}}]});
    let job = producer.post("/v1/jobs", &job).await.expect(201);
    let more = json!({"tasks": [{"taskId": "b", "name": "pack", "env": {"CC": "x"}}]});
    let more = producer.post(&format!("/v1/jobs/{}/tasks", job["jobId"].as_str().unwrap()), &more).await;
    assert_eq!(more.problem(), (403, "VARIABLE_NOT_OPEN".into(), "tasks[0].env.CC".into()));
    let admin = lab.key("default", Role::Admin).await;
    let job = json!({"tasks": [{"taskId": "a", "name": "old", "env": {"CC": "x"}}]});
    admin.post("/v1/jobs", &job).await.expect(201);
}
