//! What ran: told afterwards as it was resolved, and without secrets.

use serde_json::json;
use tidemill_model::{DefinitionDraft, JobFile, Json, Run, Runner};

use super::shape::{acme, app, property, task_id, worker};
use super::{Lab, World};
use tidemill_engine::command::Surroundings;
use tidemill_engine::engine::{Beginning, ClaimRequest, Define, Origin, Rights};

/// Command, variables, worker, place and what the parents gave, at the version that the task was pinned to.
pub async fn what_ran_is_told_afterwards<W: World>(lab: Lab<W>) {
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

    let request = ClaimRequest { begin: None, ..super::lab::claim_request("worker-1", 1) };
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
        ("MODE", Some((Some("task"), Origin::Task))),
        ("API_TOKEN", Some((Some("[REDACTED]"), Origin::Task))),
        ("DB_URL", Some((None, Origin::Secret))),
        ("PATH", Some((None, Origin::Worker))),
        ("TIDEMILL_OUTPUT_DIR", Some((Some("/out/x"), Origin::Tidemill))),
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
