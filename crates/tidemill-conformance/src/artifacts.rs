//! Files between tasks: what the completed attempt of a parent left is named for its children, and nothing else is.

use std::collections::BTreeMap;

use serde_json::json;
use tidemill_model::work::artifact::ARTIFACTS_MAX;
use tidemill_model::{ArtifactFile, ErrorCategory};

use super::lab::{is_outcome_different, value};
use super::shape::{acme, graph, property, task_id, tenant};
use super::{Lab, TestWorld};
use tidemill_engine::backend::Backend;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{EngineError, WorkReport};
use tidemill_engine::reply::Assignment;

fn named(path: &str, content: &str) -> ArtifactFile {
    // The engine takes the word of workers for it; they check what they get.
    let sha256 = format!("{:064x}", content.bytes().fold(7_u128, |sum, byte| sum * 31 + u128::from(byte)));
    ArtifactFile { path: path.to_owned(), size_bytes: content.len() as u64, sha256 }
}

/// Keeps a file of an attempt as its worker does.
async fn keep<W: TestWorld>(lab: &Lab<W>, task: &Assignment, path: &str, content: &str) -> ArtifactFile {
    let kept = format!("r{}-a{}/artifacts/{path}", task.run, task.attempt);
    lab.engine.put_task_file(&task.task, &kept, content.into()).await.expect("the file is kept");
    named(path, content)
}

fn with(artifacts: Vec<ArtifactFile>) -> WorkReport {
    WorkReport::completed(super::shape::json("{}"), 1).with_artifacts(artifacts)
}

/// A child gets the names of its parents' files, beside their outputs, and can read each of them.
pub async fn artifacts_reach_the_children<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b c<a+b d<c").await;
    let roots = lab.claim(2).await;
    let artifact = keep(&lab, &roots[0], "deep/er/x\n\u{1}.txt", "content").await;
    let listed = json!([{
        "path": "deep/er/x\n\u{1}.txt", "sizeBytes": 7, "sha256": artifact.sha256,
    }]);
    lab.report(&roots[0], with(vec![artifact.clone()])).await.expect("the outcome is taken");
    let again = lab.report(&roots[0], with(vec![artifact])).await.expect("it is the same one");
    assert!(again.repeated);
    let other = lab.report(&roots[0], with(Vec::new())).await;
    assert!(is_outcome_different(&other), "{other:?}");
    lab.complete(&roots[1], "{}").await;
    let completed = lab.history(&roots[0].task.request).await.pop().expect("there is a history");
    assert_eq!(property(&completed, "artifacts")[0]["path"], "r1-a1/artifacts/deep/er/x\n\u{1}.txt");

    let lab = lab.reopen_if_it_can().await;
    let child = lab.claim_one().await;
    let work = lab.engine.work_of(&child).await.expect("all is there");
    let outputs = json!({"a": {}, "b": {}});
    assert_eq!(
        value(&work.input),
        json!({"dependencyOutputs": outputs, "dependencyArtifacts": {"a": listed}}),
        "b left nothing"
    );
    let body = lab.engine.message_body(&child.task).await.expect("all is there");
    assert_eq!(value(&body)["dependencyArtifacts"], json!({"a": listed}));
    let files = lab.engine.files_of_parent(&child.task, &task_id("a")).await.expect("the store works");
    let files = files.expect("a left some");
    assert_eq!(work.dependency_artifacts, std::slice::from_ref(&files));
    let path = &files.artifacts[0].path;
    let bytes = lab.engine.parent_file(&acme(), &files, path).await.expect("it is kept");
    assert_eq!(bytes, b"content");
    // Nobody else's, and none that was not named.
    let missing = lab.engine.parent_file(&acme(), &files, "none").await;
    assert!(matches!(missing, Err(EngineError::BlobMissing { .. })), "{missing:?}");
    let foreign = lab.engine.parent_file(&tenant("other"), &files, path).await;
    assert!(matches!(foreign, Err(EngineError::BlobMissing { .. })), "{foreign:?}");
    for (task, parent) in [("d", "a"), ("c", "b"), ("c", "c"), ("c", "none")] {
        let key = TaskKey { tenant: acme(), request: job.request_id(&task_id(task)) };
        let found = lab.engine.files_of_parent(&key, &task_id(parent)).await.expect("the store works");
        assert_eq!(found, None, "{parent} for {task}");
    }
}

/// What an attempt left that never came to its end is not taken for what the next one left, nor is an older run's.
pub async fn artifacts_of_other_attempts_reach_nobody<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let lost = lab.claim_one().await;
    let half = keep(&lab, &lost, "half", "ha").await;
    lab.pass(lab.engine.policy().lease_millis + 1);
    let second = lab.claim_one().await;
    assert_eq!((second.run, second.attempt), (1, 1), "a lost lease is no attempt");
    assert!(lab.report(&lost, with(vec![half])).await.is_err(), "it is not its task any more");
    let old = keep(&lab, &second, "old", "old").await;
    let report = WorkReport::failed("it broke", ErrorCategory::Auth).with_artifacts(vec![old]);
    lab.report(&second, report).await.expect("the outcome is taken");
    lab.engine.resume_job(acme(), job, None).await.expect("a failed");
    let third = lab.claim_one().await;
    let whole = keep(&lab, &third, "whole", "whole").await;
    lab.report(&third, with(vec![whole.clone()])).await.expect("the outcome is taken");
    // Whether the child was there before or was added later.
    lab.engine.add_tasks(acme(), job, graph("c<a")).await.expect("the job is open");
    for child in lab.claim(3).await {
        let work = lab.engine.work_of(&child).await.expect("all is there");
        let files = &work.dependency_artifacts[0];
        assert_eq!((files.run, files.attempt, files.fence), (2, 1, third.fence));
        assert_eq!(files.artifacts, std::slice::from_ref(&whole), "{}", child.spec.task_id);
        lab.complete(&child, "{}").await;
    }
    lab.check_job(job).await;
}

/// A long list of files is moved out of its event as a large output is, and comes back whole.
pub async fn many_artifacts_reach_the_children<W: TestWorld>(lab: Lab<W>) {
    let job = lab.submit("a b<a").await;
    let root = lab.claim_one().await;
    let path = |at: usize| format!("{at:04}-{}", "x".repeat(240));
    let mut artifacts: Vec<_> = (0..ARTIFACTS_MAX).map(|at| named(&path(at), "")).collect();
    artifacts.push(named("too-many", ""));
    let refused = lab.report(&root, with(artifacts.clone())).await;
    assert!(matches!(refused, Err(EngineError::Invalid { .. })), "{refused:?}");
    artifacts.pop();
    let up = vec![named("../up", "")];
    let refused = lab.report(&root, with(up)).await;
    assert!(
        matches!(&refused, Err(EngineError::Invalid { field, .. }) if field == "artifacts[0].path"),
        "{refused:?}"
    );
    // As if each had been kept for itself, which takes long.
    let kept: BTreeMap<_, _> =
        artifacts.iter().map(|file| (format!("r1-a1/artifacts/{}", file.path), 0)).collect();
    let list = format!("task/logs/{}/files.json", root.task.request);
    let bytes = serde_json::to_vec(&kept).expect("it is JSON");
    lab.world.backend().put_blob(acme(), list, bytes).await.expect("the backend works");
    lab.report(&root, with(artifacts.clone())).await.expect("the outcome is taken");
    let again = lab.report(&root, with(artifacts.clone())).await.expect("it is the same one");
    assert!(again.repeated);
    let child = lab.claim_one().await;
    let work = lab.engine.work_of(&child).await.expect("all is there");
    assert_eq!(work.dependency_artifacts[0].artifacts, artifacts);
    lab.complete(&child, "{}").await;
    lab.check_job(job).await;
}

/// A completion names only files that were kept under its lease, each once and with its size. Any other is refused with
/// the field, and changes nothing.
pub async fn artifacts_that_were_not_kept_are_refused<W: TestWorld>(lab: Lab<W>) {
    lab.submit("a b<a").await;
    let root = lab.claim_one().await;
    let kept = keep(&lab, &root, "kept", "content").await;
    let sized = ArtifactFile { size_bytes: 8, ..kept.clone() };
    for (artifacts, expected, problem) in [
        (vec![kept.clone(), named("never", "")], "artifacts[1].path", "names a file that was not stored"),
        (vec![kept.clone(), kept.clone()], "artifacts[1].path", "is \"kept\", as that of another one"),
        (vec![sized], "artifacts[0].sizeBytes", "is 8, but 7 bytes were stored"),
    ] {
        let refused = lab.report(&root, with(artifacts)).await;
        let Err(EngineError::Invalid { field, problem: told }) = &refused else { panic!("{refused:?}") };
        assert_eq!(field, expected);
        assert!(told.starts_with(problem), "{told}");
    }
    // What is kept and not listed, as it may be where several servers keep files of one task.
    let list = format!("task/logs/{}/files.json", root.task.request);
    lab.world.backend().put_blob(acme(), list, b"{}".to_vec()).await.expect("the backend works");
    lab.report(&root, with(vec![kept.clone()])).await.expect("the outcome is taken");
    let child = lab.claim_one().await;
    let work = lab.engine.work_of(&child).await.expect("all is there");
    assert_eq!(work.dependency_artifacts[0].artifacts, [kept]);
}
