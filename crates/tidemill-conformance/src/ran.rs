//! What ran: told afterwards as it was resolved, and without secrets.

use serde_json::json;
use tidemill_model::{AddTasksFile, DefinitionDraft, ErrorCategory, JobFile, JobId, Json, Run, Runner};

use super::shape::{acme, app, property, task_id, worker};
use super::{Lab, TestWorld};
use tidemill_engine::command::Surroundings;
use tidemill_engine::engine::{Beginning, Claimant, Define, RanOrigin, Rights};

/// Command, variables, worker, place and what the parents gave, at the version that the task was pinned to.
pub async fn what_ran_is_told_afterwards<W: TestWorld>(lab: Lab<W>) {
    let draft = |command: &str| -> DefinitionDraft {
        serde_json::from_value(json!({
            "name": "load", "runner": "command", "command": command, "secrets": ["DB_URL"],
            "env": {"MODE": "stored", "API_TOKEN": "literal-token-value"},
        }))
        .expect("a draft")
    };
    lab.engine.define(acme(), draft("load --all"), Define::Create).await.expect("it is accepted");
    let file = json!({"tasks": [
        {"taskId": "a", "run": ["echo", "a b"]},
        {"taskId": "b", "name": "load", "dependsOn": ["a"], "env": {"MODE": "task"}},
    ]});
    let file = JobFile::read(file).expect("the file is sound");
    let rights = Rights { inline: true };
    let job = lab.engine.submit_job_file(acme(), app("orders"), file, rights, None).await;
    let job = job.expect("the job is accepted").job;
    lab.engine
        .define(acme(), draft("another"), Define::Replace { if_match: None })
        .await
        .expect("it is accepted");
    let ran = async |lab: &Lab<W>, task: &str| {
        let snapshot = lab.task(&job.request_id(&task_id(task))).await;
        lab.world.settled().await;
        lab.engine.ran(&snapshot).await.expect("the store works")
    };
    assert_eq!(ran(&lab, "b").await, None, "nothing ran yet");
    let parent = lab.claim_one().await;
    lab.complete(&parent, r#"{"rows":7}"#).await;
    let told = ran(&lab, "a").await.expect("it ran");
    let command = Some(Run::Argv(vec!["echo".to_owned(), "a b".to_owned()]));
    assert_eq!((told.runner, told.command, told.arguments), (Some(Runner::Command), command, vec![]));

    let request = Claimant { begin: None, ..super::lab::claim_request("worker-1", 1) };
    let child = lab.engine.claim(request).await.expect("the claim is accepted").tasks.remove(0);
    let many = (0..100).map(|at| format!("V{at}"));
    let variables =
        ["PATH", "DB_URL", "MODE", "no name"].map(str::to_owned).into_iter().chain(many).collect();
    let surroundings = Surroundings { directory: Some("/out/x".to_owned()), variables };
    let beginning = Beginning { process_id: 42, surroundings };
    lab.engine
        .begin(child.task.clone(), child.fence, worker("worker-1"), beginning)
        .await
        .expect("it is held");
    let started = lab.history(&child.task.request).await.pop().expect("there is a history");
    assert_eq!(property(&started, "directory"), "/out/x");
    assert_eq!(property(&started, "variables").as_array().map(Vec::len), Some(64), "no more than that");
    lab.complete(&child, "{}").await;

    let lab = lab.reopen_if_it_can().await;
    let told = ran(&lab, "b").await.expect("it ran");
    assert_eq!((told.worker_id.as_str(), told.process_id, told.run), ("worker-1", 42, 1));
    assert_eq!(told.directory.as_deref(), Some("/out/x"));
    assert_eq!(told.command, Some(Run::Shell("load --all".to_owned())), "as it was when it was submitted");
    assert_eq!(told.arguments, [child.task.request.as_str()]);
    let variable = |name: &str| {
        let found = told.variables.iter().find(|variable| variable.name == name);
        found.map(|variable| (variable.value.as_deref(), variable.origin))
    };
    for (name, expected) in [
        ("MODE", Some((Some("task"), RanOrigin::Task))),
        ("API_TOKEN", Some((Some("[REDACTED]"), RanOrigin::Task))),
        ("DB_URL", Some((None, RanOrigin::Secret))),
        ("PATH", Some((None, RanOrigin::Worker))),
        ("TIDEMILL_OUTPUT_DIR", Some((Some("/out/x"), RanOrigin::Tidemill))),
        ("no name", None),
    ] {
        assert_eq!(variable(name), expected, "{name}");
    }
    let given: Vec<_> = told
        .dependencies
        .iter()
        .map(|given| (given.task.as_str(), given.output.as_ref().map(Json::as_str)))
        .collect();
    assert_eq!(given, [("a", Some(r#"{"rows":7}"#))]);
}

/// For a task that was given other work since, no command is shown as what ran: neither of an attempt that ended, nor
/// of one that was claimed with the old work and began after the change.
pub async fn what_ran_is_not_what_a_task_was_changed_to<W: TestWorld>(lab: Lab<W>) {
    let tasks = |command: &str| json!([{ "taskId": "a", "run": command, "retry": { "maxAttempts": 1 } }]);
    let file = JobFile::read(json!({ "tasks": tasks("first") })).expect("the file is sound");
    let rights = Rights { inline: true };
    let job = lab.engine.submit_job_file(acme(), app("orders"), file, rights, None).await;
    let job = job.expect("the job is accepted").job;
    let change = async |lab: &Lab<W>, command: &str| {
        let file = AddTasksFile::read(json!({ "tasks": tasks(command) })).expect("the file is sound");
        let changed = lab.engine.change_tasks_file(acme(), job, file, rights, "ann").await;
        assert_eq!(changed.expect("it is accepted").changed.len(), 1);
    };
    let told = async |lab: &Lab<W>, job: JobId| {
        let snapshot = lab.task(&job.request_id(&task_id("a"))).await;
        lab.world.settled().await;
        let ran = lab.engine.ran(&snapshot).await.expect("the store works").expect("it ran");
        (ran.run, ran.changed_since, ran.command)
    };
    let ran = |run: u32, command: &str| (run, false, Some(Run::Shell(command.to_owned())));

    let failed = lab.claim_one().await;
    lab.fail(&failed, ErrorCategory::Auth).await;
    assert_eq!(told(&lab, job).await, ran(1, "first"));
    change(&lab, "second").await;
    assert_eq!(told(&lab, job).await, (1, true, None));
    lab.engine.resume_job(acme(), job, None).await.expect("it is accepted");
    let lab = lab.reopen_if_it_can().await;
    assert_eq!(told(&lab, job).await, (1, true, None), "it did not begin again");

    let request = Claimant { begin: None, ..super::lab::claim_request("worker-1", 1) };
    let claimed = lab.engine.claim(request).await.expect("the claim is accepted").tasks.remove(0);
    change(&lab, "third").await;
    let beginning = Beginning { process_id: 42, surroundings: Surroundings::default() };
    let begun = lab.engine.begin(claimed.task.clone(), claimed.fence, worker("worker-1"), beginning).await;
    begun.expect("it is held");
    assert_eq!(told(&lab, job).await, (2, true, None), "it runs what it was claimed with");
    lab.fail(&claimed, ErrorCategory::Auth).await;
    lab.engine.resume_job(acme(), job, None).await.expect("it is accepted");
    let last = lab.claim_one().await;
    assert_eq!(told(&lab, job).await, ran(3, "third"));
    lab.complete(&last, "{}").await;
    assert_eq!(told(&lab, job).await, ran(3, "third"));
}
