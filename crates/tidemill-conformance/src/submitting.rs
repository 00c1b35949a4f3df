//! Submitting: what is refused, by which name, and that nothing of it is stored.

use tidemill_model::events::access_path::AccessPath;
use tidemill_model::work::dag_violation::DagViolation;
use tidemill_model::{Json, RetryPolicy, TaskId, TaskSpec};

use super::lab::value;
use super::shape::{acme, alone, graph, job_of, json, request, spec, task_id};
use super::{Lab, TestWorld};
use tidemill_engine::engine::{EngineError, IdempotencyKey, JobRequest, TaskRequest};
use tidemill_engine::reply::Refusal;

async fn nothing_is_stored<W: TestWorld>(lab: &Lab<W>) {
    assert!(lab.events(AccessPath::Tenant).await.is_empty());
    assert!(lab.engine.jobs(acme(), None, None, 10).await.expect("the backend works").is_empty());
    assert_eq!(lab.engine.queue_depth().await.expect("the backend works").messages, 0);
    assert!(lab.claim(10).await.is_empty());
}

async fn violations<W: TestWorld>(lab: &Lab<W>, tasks: Vec<TaskSpec>) -> Vec<DagViolation> {
    match lab.engine.submit_job(job_of(tasks)).await {
        Err(EngineError::Refused(Refusal::Graph(found))) => found.listed,
        answer => panic!("the graph is refused: {answer:?}"),
    }
}

/// A circle is refused by name.
pub async fn a_cycle_is_named<W: TestWorld>(lab: Lab<W>) {
    let found = violations(&lab, graph("a<c b<a c<b d<a e")).await;
    let [cycle @ DagViolation::Cycle { path, .. }] = found.as_slice() else { panic!("one cycle: {found:?}") };
    let mut names: Vec<_> = path.iter().map(TaskId::as_str).collect();
    assert_eq!(names.first(), names.last(), "back to where it began");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["a", "b", "c"]);
    assert!(cycle.to_string().contains("in a circle"), "{cycle}");
    nothing_is_stored(&lab).await;
}

/// A refusal lists all problems at once, with their fields.
pub async fn all_violations_are_told<W: TestWorld>(lab: Lab<W>) {
    let mut tasks = graph("a a b<b c<zz d<a+a e");
    tasks[5].input = json("[]");
    let found = violations(&lab, tasks).await;
    let told: Vec<_> = found.iter().map(|one| (one.code(), one.field())).collect();
    for expected in [
        ("DUPLICATE_TASK_ID", "tasks[1].taskId"),
        ("SELF_DEPENDENCY", "tasks[2].dependsOn"),
        ("UNKNOWN_DEPENDENCY", "tasks[3].dependsOn"),
        ("DUPLICATE_DEPENDENCY", "tasks[4].dependsOn"),
        ("INVALID_INPUT", "tasks[5].input"),
    ] {
        assert!(told.contains(&(expected.0, expected.1.to_owned())), "{expected:?} in {told:?}");
    }
    assert_eq!(violations(&lab, Vec::new()).await, [DagViolation::EmptyTasks]);
    let mut reserved = spec("a", &[]);
    reserved.input = json(r#"{"dependencyOutputs":{}}"#);
    assert_eq!(violations(&lab, vec![reserved]).await[0].code(), "INVALID_INPUT");
    nothing_is_stored(&lab).await;
}

/// One more than a hundred thousand.
pub async fn a_job_with_100_001_tasks_is_refused<W: TestWorld>(lab: Lab<W>) {
    let tasks = (0..100_001).map(|n| spec(&format!("t{n}"), &[])).collect();
    assert_eq!(violations(&lab, tasks).await, [DagViolation::TooManyTasks { count: 100_001 }]);
    nothing_is_stored(&lab).await;
}

/// A refusal names the field, the value and the bound of options, names and sizes.
pub async fn options_out_of_bounds_are_refused<W: TestWorld>(lab: Lab<W>) {
    let with = |change: fn(&mut TaskSpec)| {
        let mut tasks = graph("a b");
        change(&mut tasks[1]);
        job_of(tasks)
    };
    let rows: [(JobRequest, &str); 7] = [
        (
            with(|task| task.options.timeout_ms = Some(999)),
            "tasks[1].timeout is 999; it must be from 1000 to 604800000",
        ),
        (
            with(|task| task.options.timeout_ms = Some(604_800_001)),
            "tasks[1].timeout is 604800001; it must be from 1000 to 604800000",
        ),
        (
            with(|task| task.options.retry = Some(RetryPolicy { max_attempts: 0, ..RetryPolicy::default() })),
            "tasks[1].retry.maxAttempts is 0; it must be from 1 to 1000",
        ),
        (
            with(|task| {
                task.options.retry = Some(RetryPolicy { max_delay: u64::MAX, ..RetryPolicy::default() });
            }),
            "tasks[1].retry.maxDelay is 18446744073709551615; it must be from 0 to 604800000",
        ),
        (
            with(|task| task.input = Json::of(&serde_json::json!({"text": "x".repeat(16 * 1024 * 1024)}))),
            "tasks is 16777336 bytes; the limit is 16777216",
        ),
        (JobRequest { name: Some(String::new()), ..job_of(graph("a")) }, "name is empty"),
        (
            JobRequest { name: Some("a\nb".to_owned()), ..job_of(graph("a")) },
            "name holds '\\n'; control characters are refused",
        ),
    ];
    for (request, expected) in rows {
        let error = lab.engine.submit_job(request).await.expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
    let key = IdempotencyKey { route: "POST /v1/jobs".to_owned(), key: "k".repeat(257), body_hash: [0; 32] };
    let error = lab.engine.submit_job(JobRequest { idempotency: Some(key), ..job_of(graph("a")) }).await;
    assert_eq!(
        error.expect_err("the key is too long").to_string(),
        "idempotencyKey is 257 bytes long; the limit is 256"
    );
    nothing_is_stored(&lab).await;
}

/// A client may not claim an id that only the engine mints, and bad inputs are refused.
pub async fn a_bad_task_on_its_own_is_refused<W: TestWorld>(lab: Lab<W>) {
    let job = tidemill_model::JobId::from_u128(7).request_id(&task_id("a"));
    let input = |text: &str| TaskRequest { input: json(text), ..alone("t-1") };
    let rows = [
        (
            TaskRequest { request: Some(job), ..alone("t-1") },
            "requestId has the form of a job task's id, which only the engine may mint",
        ),
        (input("[]"), "input is not a JSON object"),
        (input(r#"{"dependencyOutputs":{}}"#), "input has the reserved key dependencyOutputs"),
        (input(r#"{"n":1e999}"#), "input holds a number beyond the range of a double"),
        (input(r#"{"a":["\ud800"]}"#), "input holds a text with half of a surrogate pair"),
    ];
    for (request, expected) in rows {
        let error = lab.engine.submit_task(request).await.expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
    nothing_is_stored(&lab).await;
}

/// Ids that nobody gave are made, and are all different.
pub async fn absent_ids_are_minted<W: TestWorld>(lab: Lab<W>) {
    let mut requests = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let task = lab.engine.submit_task(TaskRequest { request: None, ..alone("unused") }).await;
        requests.insert(task.expect("the task is accepted").request);
        let job = lab.engine.submit_job(job_of(graph("a"))).await.expect("the job is accepted");
        assert!(lab.job(job.job).await.head.request == job.request);
        requests.insert(job.request);
    }
    assert_eq!(requests.len(), 40);
}

/// A task on its own has its message's body, its options and its name.
pub async fn a_task_on_its_own_runs<W: TestWorld>(lab: Lab<W>) {
    let mut sent = alone("t-1");
    sent.input = json(r#"{"n":1}"#);
    sent.options.timeout_ms = Some(5_000);
    let answer = lab.engine.submit_task(sent).await.expect("the task is accepted");
    assert_eq!((answer.request, answer.repeated), (request("t-1"), false));
    let task = lab.claim_one().await;
    assert_eq!((task.spec.options.timeout_ms, task.input().as_str()), (Some(5_000), r#"{"n":1}"#));
    assert_eq!(lab.engine.work_of(&task).await.expect("there is an input").input.as_str(), r#"{"n":1}"#);
    let body = lab.engine.message_body(&task.task).await.expect("the task is known");
    let expected =
        serde_json::json!({"requestId": "t-1", "name": "work", "input": {"n": 1}, "dependencyOutputs": {}});
    assert_eq!(value(&body), expected);
    lab.complete(&task, "{}").await;
    lab.check_task(&request("t-1")).await;
}
