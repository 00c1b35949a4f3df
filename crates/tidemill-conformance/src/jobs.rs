//! Jobs: what their events say, how failures show, and what tasks hand to their children.

use serde_json::json;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::overflow::DETAIL_BYTES_MAX;
use tidemill_model::events::properties::TASK_STATUSES_MAX;
use tidemill_model::{ErrorCategory, JobStatus, KnownType, PublicState};

use super::lab::value;
use super::leases::beat;
use super::shape::{
    acme, alone, app, graph, job_of, long_text, property, request, spec, task_id, tenant, types, worker,
};
use super::{Lab, TestWorld};
use tidemill_engine::command::{Command, Finish, Report, Spent};
use tidemill_engine::engine::{EngineError, WorkReport};

/// Whatever happens within a millisecond, in this life of the process or in another: a job is completed when its last
/// task is or later, and no event reports a failure before it happened.
pub async fn a_job_is_not_completed_before_its_last_task<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a").await;
    let tasks = lab.claim(2).await;
    lab.engine.heartbeat(beat(&tasks[1])).await.expect("it is held");
    lab.complete(&tasks[1], "{}").await;
    lab.fail(&tasks[0], ErrorCategory::Auth).await;
    lab.engine.resume_job(acme(), job, None).await.expect("a failed");
    // The clock of `b` is the furthest, and it has ended.
    let lab = lab.reopen_if_it_can().await;
    lab.run(&["a"]).await;
    lab.run(&["c"]).await;
    let events = lab.events(AccessPath::Tenant).await;
    let ends = |kinds: &[&str]| {
        let of_kind = events.iter().filter(|event| kinds.contains(&event.event_type.as_str()));
        of_kind.map(|event| event.timestamp).collect::<Vec<_>>()
    };
    let (failed, told) = (ends(&["Task Failed"]), ends(&["Job Failure Detected"]));
    assert!(failed[0] <= told[0], "{failed:?} {told:?}");
    let (last, completed) = (ends(&["Task Completed"]).into_iter().max(), ends(&["Job Completed"]));
    assert!(last <= Some(completed[0]), "{last:?} {completed:?}");
    assert_eq!(lab.job(job).await.head.completed_at, Some(completed[0]));
    lab.check_job(job).await;
}

/// The events of a job and of its tasks carry the documented properties and no more.
pub async fn events_carry_the_documented_properties<W: TestWorld>(lab: Lab<W>) {
    let mut tasks = graph("a b<a");
    tasks[0].input = super::shape::json(r#"{"storeId":"store-123"}"#);
    let submitted = lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted");
    let (job, a) = (submitted.job, submitted.job.request_id(&task_id("a")));
    assert_eq!((submitted.total_tasks, submitted.root_tasks), (2, vec![task_id("a")]));
    assert_eq!(submitted.created_at, lab.now());
    let task = lab.claim_one().await;
    lab.complete(&task, r#"{"rows":[1,2]}"#).await;
    lab.run(&["b"]).await;

    let created = &lab.job_history(job).await[0];
    assert_eq!(
        value(&created.properties),
        json!({
            "jobId": job.to_string(),
            "requestId": submitted.request.as_str(),
            "tasks": [
                {"taskId": "a", "name": "work", "dependsOn": [], "input": {"storeId": "store-123"}},
                {"taskId": "b", "name": "work", "dependsOn": ["a"], "input": {}},
            ],
            "totalTasks": 2,
        })
    );
    assert_eq!(&*created.context.origin, "producer-api");
    let history = lab.history(&a).await;
    let expected = [
        json!({"requestId": a.as_str(), "jobId": job.to_string(), "taskId": "a", "name": "work", "dependsOn": []}),
        json!({
            "requestId": a.as_str(), "jobId": job.to_string(), "taskId": "a", "workerId": "worker-1",
            "processId": 4_711, "effectiveUntil": task.lease_until.millis(), "fence": 1,
        }),
        json!({
            "requestId": a.as_str(), "jobId": job.to_string(), "taskId": "a", "output": {"rows": [1, 2]},
            "durationMs": 5, "exitCode": 0, "fence": 1,
        }),
    ];
    assert_eq!(history.iter().map(|event| value(&event.properties)).collect::<Vec<_>>(), expected);
    assert!(history[1].context.worker_id.is_some() && history[0].context.worker_id.is_none());
    let done = lab.job_history(job).await.pop().expect("there is a history");
    let statuses = json!({"a": "completed", "b": "completed"});
    let expected = json!({"jobId": job.to_string(), "totalTasks": 2, "taskStatuses": statuses});
    assert_eq!(value(&done.properties), expected);
    assert_eq!(&*done.context.origin, "dispatcher");
    assert_eq!(lab.job(job).await.head.completed_at, Some(done.timestamp));
}

/// A failure stops only its own descendants; one event per task and run reports it, with all states at the time.
pub async fn a_failure_leaves_independent_tasks_running<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a d<a e<c+d g<b").await;
    lab.run(&["a", "b"]).await;
    let tasks = lab.claim(9).await;
    let [c, d, g] = tasks.as_slice() else { panic!("three tasks: {tasks:?}") };
    lab.fail(c, ErrorCategory::Programming).await;
    assert_eq!(lab.status(job).await, JobStatus::Failing);
    let report = lab.job_history(job).await.pop().expect("there is a history");
    assert_eq!(report.event_type.as_str(), "Job Failure Detected");
    assert_eq!(property(&report, "failedTaskId"), "c");
    assert_eq!(
        property(&report, "taskStatuses"),
        json!({"a": "completed", "b": "completed", "c": "failed", "d": "processing", "e": null, "g": "processing"})
    );
    lab.complete(d, "{}").await;
    lab.complete(g, "{}").await;
    assert_eq!(lab.status(job).await, JobStatus::Failed);
    assert_eq!(lab.state(job, "e").await, None);
    assert_eq!(lab.count(KnownType::JobFailureDetected).await, 1);
    assert_eq!(lab.count(KnownType::JobCompleted).await, 0);
    lab.check_job(job).await;

    lab.engine.resume_job(acme(), job, None).await.expect("c failed");
    let again = lab.claim_one().await;
    lab.fail(&again, ErrorCategory::Programming).await;
    assert_eq!(lab.count(KnownType::JobFailureDetected).await, 2, "once more for the new run");
    lab.check_job(job).await;
}

/// running, failing, failed, running again, completed.
pub async fn the_status_follows_the_tasks<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a").await;
    assert_eq!(lab.status(job).await, JobStatus::Running);
    let tasks = lab.claim(2).await;
    assert_eq!(lab.state(job, "a").await, Some(PublicState::Processing));
    lab.fail(&tasks[0], ErrorCategory::Auth).await;
    assert_eq!(lab.status(job).await, JobStatus::Failing);
    lab.complete(&tasks[1], "{}").await;
    assert_eq!(lab.status(job).await, JobStatus::Failed);
    lab.engine.resume_job(acme(), job, None).await.expect("a failed");
    assert_eq!(lab.status(job).await, JobStatus::Running);
    lab.run(&["a"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Running);
    lab.run(&["c"]).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    let counts = lab.job(job).await.head.counts;
    assert_eq!((counts.completed, counts.total()), (3, 3));
    lab.check_job(job).await;
}

/// Two jobs with the same names, and a task on its own, have nothing to do with each other.
pub async fn the_same_names_in_two_jobs_do_not_interfere<W: TestWorld>(lab: Lab<W>) {
    let first = lab.submit("a b<a").await;
    let second = lab.submit("a b<a").await;
    lab.engine.submit_task(alone("a")).await.expect("the task is accepted");
    lab.run(&["a", "a", "task"]).await;
    lab.run(&["b", "b"]).await;
    for job in [first, second] {
        assert_eq!(lab.status(job).await, JobStatus::Completed);
        assert_eq!(types(&lab.job_history(job).await), ["Job Created", "Job Completed"]);
        lab.check_job(job).await;
    }
}

/// A child gets its own input and one output per dependency; a root gets its input as it is.
pub async fn outputs_reach_the_children<W: TestWorld>(lab: Lab<W>) {
    let mut tasks = graph("a b c d e<a+b+c+d");
    tasks[0].input = super::shape::json(r#"{"storeId":"store-123"}"#);
    tasks[4].input = super::shape::json(r#"{"limit":3}"#);
    let job = lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job;
    let roots = lab.claim(4).await;
    let work = lab.engine.work_of(&roots[0]).await.expect("there is an input");
    assert_eq!(work.input.as_str(), r#"{"storeId":"store-123"}"#);
    lab.complete(&roots[0], "[1,null]").await;
    let silent = WorkReport::Completed {
        output: None,
        duration_millis: 1,
        exit_code: 0,
        artifacts: Vec::new(),
        usage: None,
        session_id: None,
    };
    lab.report(&roots[1], silent).await.expect("the outcome is taken");
    let completed = lab.history(&roots[1].task.request).await.pop().expect("there is a history");
    assert_eq!(property(&completed, "output"), json!({}), "no result is an empty one");
    lab.complete(&roots[2], "null").await;
    // As in events that others wrote.
    let report = Report::Completed {
        output: None,
        overflow: None,
        duration_millis: 1,
        exit_code: 0,
        artifacts: Vec::new(),
    };
    let (task, fence, worker) = (roots[3].task.clone(), roots[3].fence, worker("worker-1"));
    lab.execute(Command::Finish(Finish {
        task,
        fence,
        worker,
        report,
        spent: Spent::default(),
        cause: None,
        digest: 0,
    }))
    .await
    .expect("it is held");
    let child = lab.claim_one().await;
    let work = lab.engine.work_of(&child).await.expect("the outputs are there");
    let outputs = json!({"a": [1, null], "b": {}, "c": null, "d": {}});
    assert_eq!(value(&work.input), json!({"limit": 3, "dependencyOutputs": outputs}));
    let body = lab.engine.message_body(&child.task).await.expect("the outputs are there");
    assert_eq!(
        value(&body),
        json!({
            "requestId": child.task.request.as_str(), "taskId": "e", "jobId": job.to_string(), "name": "work",
            "input": {"limit": 3}, "dependencyOutputs": outputs,
        })
    );
}

/// Outputs beyond the bus's limit go to a blob and come back whole, to readers and to children.
pub async fn large_outputs_reach_the_children<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a+b").await;
    let roots = lab.claim(2).await;
    let [fits, overflows] = [long_text(DETAIL_BYTES_MAX - 4_096), long_text(DETAIL_BYTES_MAX)];
    for (task, output) in roots.iter().zip([&fits, &overflows]) {
        lab.report(task, WorkReport::completed(output.clone(), 1)).await.expect("the outcome is taken");
    }
    let stored = |task: usize| {
        let query = tidemill_model::events::event_query::EventQuery::all(
            acme(),
            AccessPath::TypeEntity(
                KnownType::TaskCompleted.event_type(),
                tidemill_model::Entity::task(&roots[task].task.request),
            ),
        );
        lab.engine.events(query, false)
    };
    lab.world.settled().await;
    let inline = stored(0).await.expect("the query is answered").events.remove(0);
    assert!(property(&inline, "_s3Overflow").is_null() && !property(&inline, "output").is_null());
    let moved = stored(1).await.expect("the query is answered").events.remove(0);
    assert!(property(&moved, "output").is_null());
    let place = format!("events/{}/{}-payload.json", roots[1].task.request, moved.id);
    assert_eq!(property(&moved, "_s3Overflow")["key"], place);
    let child = lab.claim_one().await;
    let work = lab.engine.work_of(&child).await.expect("the outputs are there");
    assert_eq!(work.dependency_outputs, [(task_id("a"), fits), (task_id("b"), overflows)]);
    lab.complete(&child, "{}").await;
    lab.check_job(job).await;
}

/// A job whose list of tasks is beyond the bus's limit is created all the same.
pub async fn a_large_job_is_created_and_grows<W: TestWorld>(lab: Lab<W>) {
    let with_input = |name: &str, parents: &[&str]| {
        let mut task = spec(name, parents);
        task.input = super::shape::json(&format!(r#"{{"text":"{}"}}"#, "x".repeat(DETAIL_BYTES_MAX)));
        task
    };
    let tasks = vec![with_input("a", &[]), spec("b", &["a"])];
    let job = lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job;
    lab.engine.add_tasks(acme(), job, vec![with_input("c", &["b"])]).await.expect("the task is accepted");
    for name in ["a", "b", "c"] {
        let task = lab.claim_one().await;
        assert_eq!(task.spec.task_id.as_str(), name);
        let input = lab.engine.work_of(&task).await.expect("there is an input").input;
        assert_eq!(input.len() > DETAIL_BYTES_MAX, name != "b");
        lab.complete(&task, "{}").await;
    }
    lab.check_job(job).await;
}

/// States are listed whole up to 1,000 tasks; above, only what is failed or at work, with counts.
pub async fn states_of_large_jobs_are_listed_in_part<W: TestWorld>(lab: Lab<W>) {
    for (count, is_whole) in [(TASK_STATUSES_MAX, true), (TASK_STATUSES_MAX + 1, false)] {
        let tasks = (0..count).map(|n| spec(&format!("t{n:04}"), &[])).collect();
        let job = lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job;
        let tasks = lab.claim(3).await;
        lab.fail(&tasks[0], ErrorCategory::Auth).await;
        lab.fail(&tasks[2], ErrorCategory::Auth).await;
        let report = lab.job_history(job).await.pop().expect("there is a history");
        let statuses = property(&report, "taskStatuses");
        if is_whole {
            assert_eq!(statuses.as_object().map(serde_json::Map::len), Some(count));
            assert!(property(&report, "truncated").is_null() && property(&report, "counts").is_null());
        } else {
            let [first, second, third] = [0, 1, 2].map(|at| tasks[at].spec.task_id.as_str());
            assert_eq!(statuses, json!({first: "failed", second: "processing", third: "failed"}));
            assert_eq!(property(&report, "truncated"), true);
            let counts =
                json!({"waiting": 0, "pending": count - 3, "processing": 1, "completed": 0, "failed": 2});
            assert_eq!(property(&report, "counts"), counts);
        }
        lab.check_job(job).await;
        lab.engine.cancel(acme(), job, "test".to_owned(), None).await.expect("the job is running");
    }
}

/// Jobs are listed newest first, by status and by pages; tasks in the order of the job.
pub async fn jobs_and_tasks_are_listed_by_pages<W: TestWorld>(lab: Lab<W>) {
    let mut jobs = Vec::new();
    for n in 0..7u64 {
        let mut request = job_of(graph("a"));
        request.name = Some(format!("nightly {n}"));
        jobs.push(lab.engine.submit_job(request).await.expect("the job is accepted").job);
        lab.pass(1);
        if n % 2 == 0 {
            lab.run(&["a"]).await;
        } else {
            lab.engine
                .cancel(acme(), jobs[jobs.len() - 1], "test".to_owned(), None)
                .await
                .expect("it is running");
        }
    }
    jobs.reverse();
    let mut listed = Vec::new();
    loop {
        let before = listed.last().copied();
        let page = lab.engine.jobs(acme(), None, before, 3).await.expect("the backend works");
        if page.is_empty() {
            break;
        }
        listed.extend(page.iter().map(|job| job.head.job));
    }
    assert_eq!(listed, jobs);
    let completed =
        lab.engine.jobs(acme(), Some(JobStatus::Completed), None, 100).await.expect("the backend works");
    assert_eq!(completed.len(), 4);
    assert_eq!(completed[0].head.name.as_deref(), Some("nightly 6"));
    assert!(lab.engine.jobs(tenant("nobody"), None, None, 100).await.expect("the backend works").is_empty());
    assert!(matches!(lab.engine.jobs(acme(), None, None, 1_001).await, Err(EngineError::Invalid { .. })));

    let job = lab.submit("z y x w<z v<z").await;
    let page = lab.engine.job_tasks(acme(), job, 1, 3).await.expect("the backend works");
    let names: Vec<_> = page.iter().map(|task| task.spec.task_id.as_str()).collect();
    assert_eq!(names, ["y", "x", "w"]);
    assert_eq!((page[0].state, page[2].state), (Some(PublicState::Pending), None));
    assert!(lab.engine.job_tasks(acme(), job, 5, 3).await.expect("the backend works").is_empty());
}

/// The end of a task on its own is no matter for any job.
pub async fn a_task_on_its_own_causes_no_job_event<W: TestWorld>(lab: Lab<W>) {
    for (id, category) in [("t-1", None), ("t-2", Some(ErrorCategory::Auth))] {
        lab.engine.submit_task(alone(id)).await.expect("the task is accepted");
        let task = lab.claim_one().await;
        assert_eq!((task.job, &task.app), (None, &app("orders")));
        match category {
            Some(category) => drop(lab.fail(&task, category).await),
            None => lab.complete(&task, "{}").await,
        }
    }
    let events = lab.events(AccessPath::Tenant).await;
    assert!(events.iter().all(|event| event.entity.kind.as_str() == "TASK"));
    let pending = &lab.history(&request("t-1")).await[0];
    assert_eq!(value(&pending.properties), json!({"requestId": "t-1", "name": "work"}));
}
