//! Files between tasks: what a task leaves is there for those that depend on it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidemill_engine::commit::TaskKey;
use tidemill_engine::engine::{AttemptReport, Claimant, WorkReport};
use tidemill_model::work::runner_spec::{Run, RunnerSpec};
use tidemill_model::{ArtifactFile, JobId, Json, TaskId, TaskName, TaskSpec, WorkerId};
use tidemill_worker::{Handlers, NativeWorker, WorkerConfig};

use crate::lab::{Ended, Lab, listed, options, shell, tenant};

fn task(id: &str, parents: &[&str], execution: &RunnerSpec) -> TaskSpec {
    TaskSpec {
        task_id: TaskId::new(id).unwrap(),
        name: TaskName::new("step").unwrap(),
        depends_on: parents.iter().map(|parent| TaskId::new(parent).unwrap()).collect(),
        input: Json::empty_object(),
        options: options(execution),
    }
}

fn key(job: JobId, task: &str) -> TaskKey {
    TaskKey { tenant: tenant(), request: job.request_id(&TaskId::new(task).unwrap()) }
}

async fn ended(lab: &Lab, job: JobId, task: &str) -> Ended {
    lab.ended(&key(job, task)).await
}

/// A task that leaves two files, one of them under a strange name, and says where.
const LEAVES: &str = r#"cd "$TIDEMILL_OUTPUT_DIR/artifacts"; mkdir -p 'a b'; printf one > x.txt
    printf two > "a b/$(printf 'new\nline')"; ln -s /etc/passwd link; mkfifo pipe
    echo "{\"path\":\"$TIDEMILL_OUTPUT_DIR/artifacts/x.txt\"}""#;
/// A task that tells what it finds.
const FINDS: &str = r#"cd "$TIDEMILL_INPUTS" && {
    echo "files: $(find -L . -type f | sort | tr '\n' ' ')"; cat a/x.txt; echo; cat "a/a b/"*; echo
    echo "kind: $(stat -c '%F with %h names' a/x.txt)"; cp -r . "$TIDEMILL_OUTPUT_DIR/artifacts/"; }"#;

async fn log(lab: &Lab, key: &TaskKey) -> String {
    String::from_utf8(lab.blob(key, "r1-a1/logs/output.log").await.unwrap_or_default()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_finds_links_to_what_its_parents_left_on_this_machine() {
    let lab = Lab::working();
    let job = lab.submit_tasks(vec![task("a", &[], &shell(LEAVES)), task("b", &["a"], &shell(FINDS))]).await;
    let parent = ended(&lab, job, "a").await;
    let child = ended(&lab, job, "b").await;
    assert!(child.types().contains(&"Task Completed"), "{:?}", child.last());
    let said = log(&lab, &key(job, "b")).await;
    for part in ["one\n", "two\n", "kind: regular file with 2 names", "./a/x.txt"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("passwd") && !said.contains("link ") && !said.contains("pipe"), "{said}");
    let named = &parent.last()["artifacts"];
    assert_eq!(named[0]["path"], "r1-a1/artifacts/a b/new\nline", "{named}");
    assert_eq!(named[1]["sizeBytes"], 3);
    assert_eq!(named.as_array().unwrap().len(), 2, "links and pipes are no artifacts");
    // The path that it told is good, and what others rely on is read-only now.
    let path = parent.output()["path"].as_str().unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o222, 0);
    let place = lab.output(key(job, "a").request.as_str());
    assert_eq!(std::fs::read_to_string(place.join("artifacts/x.txt")).unwrap(), "one");
    assert!(Path::new(&path).starts_with(&place), "{path} in {}", place.display());
    // What a task passes on with `cp -r` is a file too.
    let passed = &child.last()["artifacts"];
    assert_eq!(passed.as_array().map(Vec::len), Some(2), "{passed}");
    // What was given goes with the attempt.
    let inputs = lab.output(key(job, "b").request.as_str()).join("last/inputs");
    assert!(!inputs.exists(), "{}", inputs.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_whose_parents_left_nothing_finds_an_empty_directory() {
    let lab = Lab::working();
    let finds = r#"cd "$TIDEMILL_INPUTS" && echo "{\"found\":\"$(ls -A)\",\"name\":\"$(basename "$PWD")\"}""#;
    let job = lab.submit_tasks(vec![task("a", &[], &shell(finds)), task("b", &["a"], &shell(finds))]).await;
    for name in ["a", "b"] {
        let output = ended(&lab, job, name).await.output();
        assert_eq!(output, serde_json::json!({ "found": "", "name": "inputs" }), "{name}");
        let inputs = lab.output(key(job, name).request.as_str()).join("last/inputs");
        assert!(!inputs.exists(), "{}", inputs.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_linked_from_elsewhere_keeps_its_mode() {
    let lab = Lab::working();
    let leaves = r#"printf one > "$TIDEMILL_OUTPUT_DIR/own"; ln "$TIDEMILL_OUTPUT_DIR/own" "$TIDEMILL_OUTPUT_DIR/artifacts/x.txt""#;
    let finds = r#"stat -c '%h names' "$TIDEMILL_INPUTS/a/x.txt"; cat "$TIDEMILL_INPUTS/a/x.txt""#;
    let job = lab.submit_tasks(vec![task("a", &[], &shell(leaves)), task("b", &["a"], &shell(finds))]).await;
    ended(&lab, job, "b").await;
    let said = log(&lab, &key(job, "b")).await;
    assert!(said.contains("1 names") && said.contains("one"), "it has a copy: {said}");
    let own = lab.output(key(job, "a").request.as_str()).join("last/artifacts/x.txt");
    assert_ne!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o200, 0, "its task may write it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_changed_or_is_not_here_is_fetched() {
    let mut lab = Lab::working();
    let gate = lab.directory.0.join("go").display().to_string();
    let wait = shell(&format!("while [ ! -e {gate} ]; do sleep 0.02; done"));
    let tasks = vec![
        task("a", &[], &shell(LEAVES)),
        task("gate", &[], &wait),
        task("b", &["a", "gate"], &shell(FINDS)),
    ];
    let job = lab.submit_tasks(tasks).await;
    let path = ended(&lab, job, "a").await.output()["path"].as_str().unwrap().to_owned();
    std::fs::write(&path, "changed").unwrap();
    std::fs::write(&gate, "").unwrap();
    ended(&lab, job, "b").await;
    let said = log(&lab, &key(job, "b")).await;
    assert!(said.contains("one\n") && said.contains("kind: regular file"), "{said}");
    // Another worker with a tree of its own.
    lab.shut_down(std::time::Duration::from_secs(10)).await;
    std::fs::remove_file(&gate).unwrap();
    let other = {
        let mut config = lab.config.clone();
        config.output_dir = lab.directory.0.join("elsewhere");
        config
    };
    lab.work("worker-2");
    let tasks = vec![
        task("a", &[], &shell(LEAVES)),
        task("gate", &[], &wait),
        task("b", &["a", "gate"], &shell(FINDS)),
    ];
    let job = lab.submit_tasks(tasks).await;
    ended(&lab, job, "a").await;
    lab.config = other;
    // The first one has the gate; it claims nothing more once it stops.
    {
        let mut stopping = std::pin::pin!(lab.shut_down(std::time::Duration::from_secs(20)));
        std::future::poll_fn(|waker| {
            let _ = stopping.as_mut().poll(waker);
            std::task::Poll::Ready(())
        })
        .await;
        std::fs::write(&gate, "").unwrap();
        stopping.await;
    }
    lab.work("worker-3");
    ended(&lab, job, "b").await;
    let said = log(&lab, &key(job, "b")).await;
    assert!(said.contains("one\n") && said.contains("kind: regular file"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_kept_any_more_fails_the_child_with_its_name() {
    let mut lab = Lab::idle();
    lab.config.keep_files = false;
    lab.work("worker-1");
    let gate = lab.directory.0.join("go").display().to_string();
    let wait = shell(&format!("while [ ! -e {gate} ]; do sleep 0.02; done"));
    let tasks = vec![
        task("a", &[], &shell(LEAVES)),
        task("gate", &[], &wait),
        task("b", &["a", "gate"], &shell(FINDS)),
    ];
    let job = lab.submit_tasks(tasks).await;
    ended(&lab, job, "a").await;
    // The worker removes what it left once that is told.
    let left = lab.output(key(job, "a").request.as_str()).join("r1-a1-f1");
    while left.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    // What can never be kept is told in the log that is, and holds no directory back.
    let said = log(&lab, &key(job, "a")).await;
    assert!(said.contains("[tidemill] 2 entries in artifacts are not kept: only plain files"), "{said}");
    let blobs = lab.directory.0.join("data/blobs");
    let found = walk(&blobs);
    let blob = found.iter().find(|path| path.ends_with("x.txt")).unwrap_or_else(|| panic!("{found:?}"));
    std::fs::remove_file(blob).unwrap();
    std::fs::write(&gate, "").unwrap();
    let (category, error) = ended(&lab, job, "b").await.failure();
    assert_eq!(category, "not-found");
    assert!(error.starts_with("artifact \"x.txt\" of task a cannot be had: "), "{error}");
    assert!(error.ends_with(NO_SECOND_RUN), "{error}");
}

/// What is advised where a file is gone: a resume would be refused.
const NO_SECOND_RUN: &str = "; a completed task does not run again, so submit its job anew";

fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(walk(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Its files are told and given without them, wherever it runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_does_not_reach_a_child_by_a_file() {
    let mut lab = Lab::idle();
    lab.config.environment.push(("DB_LOGIN".into(), "open-sesame/1?".into()));
    lab.config.task_secrets = listed("DB_LOGIN");
    lab.work("worker-1");
    let text =
        r#"cd "$TIDEMILL_OUTPUT_DIR/artifacts"; echo "x $DB_LOGIN" > f; echo y > "name-$DB_LOGIN" || true"#;
    let text = text.replace("name-$DB_LOGIN", "name-$(printf %s \"$DB_LOGIN\" | base64)");
    let parent = crate::command::define(&lab, "leaky", Run::Shell(text), &["DB_LOGIN"]).await;
    let find = shell(r#"cat "$TIDEMILL_INPUTS/a/f"; ls "$TIDEMILL_INPUTS/a"; cat "$INPUT_FILE""#);
    let job = lab.submit_tasks(vec![task("a", &[], &parent), task("b", &["a"], &find)]).await;
    let child = ended(&lab, job, "b").await;
    assert!(child.types().contains(&"Task Completed"), "{:?}", child.last());
    let said = log(&lab, &key(job, "b")).await;
    assert!(said.contains("x [REDACTED]") && said.contains("name-[REDACTED]"), "{said}");
    assert!(!said.contains("open-sesame") && !said.contains("b3Blbi1z"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_of_another_user_can_read_and_not_change_what_its_parents_left() {
    if !rustix::process::getuid().is_root() {
        println!("left out: only root may start processes of other users");
        return;
    }
    let mut lab = Lab::idle();
    let mut config = crate::lab::spawner_config("run-as-files", 1);
    config.run_as = Some(tidemill_worker::spawner::RunAs { uid: 65_534, gid: 65_534 });
    lab.spawner = tidemill_worker::spawner::Spawner::start(config).unwrap();
    lab.work("worker-1");
    let text = r#"cd "$TIDEMILL_INPUTS/a"; cat x.txt; echo; cat 'a b'/*; echo
        (echo changed > x.txt) 2>/dev/null && echo wrote; (: > new) 2>/dev/null && echo made
        rm -f x.txt 2>/dev/null; [ -e x.txt ] && echo still there; chmod u+w x.txt 2>/dev/null && echo moded; id -u"#;
    let job = lab.submit_tasks(vec![task("a", &[], &shell(LEAVES)), task("b", &["a"], &shell(text))]).await;
    ended(&lab, job, "b").await;
    let said = log(&lab, &key(job, "b")).await;
    assert_eq!(said, "one\ntwo\nstill there\n65534\n");
}

/// What a process that was killed left of an attempt is not there for the next one, nor shown as the last.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_attempt_leaves_nothing() {
    let lab = Lab::working();
    lab.run("req-1", &shell("echo first > $TIDEMILL_OUTPUT_DIR/artifacts/f")).await;
    let place = lab.output("req-1");
    let shown = std::fs::read_link(place.join("last")).unwrap();
    assert_eq!(shown, Path::new("r1-a1-f1"));
    // As a process leaves it that is killed: an attempt that runs, and the note of it. Another one had just finished.
    let dead = lab.output(".attempts/999999999-1");
    std::fs::create_dir_all(place.join("r1-a2-f2/artifacts")).unwrap();
    std::fs::create_dir_all(&dead).unwrap();
    for (note, target) in [("0", "req-1/r1-a2-f2"), ("1", "req-1/r1-a1-f1"), ("2", "req-2/r1-a1-f1")] {
        std::os::unix::fs::symlink(target, dead.join(note)).unwrap();
    }
    // And as a former release left it.
    std::fs::create_dir_all(dead.join("req-9.r1-a1-f1/artifacts")).unwrap();
    std::fs::create_dir_all(lab.output("req-2/r1-a1-f1/artifacts")).unwrap();
    let mut again = Lab::idle();
    again.config.output_dir = lab.config.output_dir.clone();
    again.work("worker-2");
    assert!(!place.join("r1-a2-f2").exists() && !dead.exists() && !lab.output("req-2").exists());
    assert_eq!(std::fs::read_to_string(place.join("artifacts/f")).unwrap(), "first\n");
}

/// Where a former release had directories are links now.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_former_release_left_is_replaced() {
    let lab = Lab::working();
    let place = lab.output("req-1");
    for name in ["artifacts/old", "logs/output.log"] {
        std::fs::create_dir_all(place.join(name).parent().unwrap()).unwrap();
        std::fs::write(place.join(name), "old").unwrap();
    }
    std::fs::write(place.join("input.json"), "old").unwrap();
    lab.run("req-1", &shell("echo new > $TIDEMILL_OUTPUT_DIR/artifacts/new; echo said")).await.output();
    crate::lab::eventually("the attempt is shown", || place.join("last").exists()).await;
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    assert_eq!(
        (read("artifacts/new"), read("logs/output.log"), read("input.json")),
        ("new\n".into(), "said\n".into(), "{}".into())
    );
    assert!(!place.join("artifacts/old").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_reads_what_its_parents_left() {
    let lab = Lab::idle();
    let job = lab.submit_tasks(vec![task("a", &[], &shell("true")), task("b", &["a"], &shell("true"))]).await;
    let worker = WorkerId::new("by-hand").unwrap();
    let request = Claimant::in_process(worker.clone(), lab.engine.backend().generation(), 1);
    let parent = lab.engine.claim(request).await.unwrap().tasks.remove(0);
    for (path, content) in [("x", "one"), ("torn", "tor"), ("gone", "one")] {
        let kept = format!("r1-a1/artifacts/{path}");
        lab.engine.put_task_file(&parent.task, &kept, content.into()).await.unwrap();
    }
    let named = |path: &str, sha256: &str| ArtifactFile {
        path: path.to_owned(),
        size_bytes: 3,
        sha256: sha256.to_owned(),
    };
    // The digest of "one", which the content of the other one has not.
    let digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
    let report = WorkReport::completed(Json::empty_object(), 1).with_artifacts(vec![
        named("torn", digest),
        named("x", digest),
        named("gone", digest),
    ]);
    lab.engine.finish(AttemptReport::of(&parent, worker, report)).await.unwrap();
    let found = walk(&lab.directory.0.join("data/blobs"));
    let blob = found.iter().find(|path| path.ends_with("gone.")).unwrap_or_else(|| panic!("{found:?}"));
    std::fs::remove_file(blob).unwrap();
    let handlers = Handlers::new()
        .on("step", |task| async move {
            let mut found = Vec::new();
            for path in ["x", "torn", "gone", "none"] {
                found.push(match task.artifact("a", path).await {
                    Ok(bytes) => String::from_utf8(bytes).unwrap(),
                    Err(error) => error.to_string(),
                });
            }
            Ok(Json::of(&serde_json::json!({ "found": found })))
        })
        .unwrap();
    let config = WorkerConfig::new(WorkerId::new("native-1").unwrap());
    let worker = NativeWorker::new(lab.engine.clone(), handlers, config).start();
    let output = ended(&lab, job, "b").await.output();
    worker.shut_down(std::time::Duration::from_secs(10)).await;
    let found: Vec<&str> =
        output["found"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert_eq!(found[0], "one");
    assert_eq!(found[1], "artifact \"torn\" of task a is not what its task left");
    assert!(found[2].starts_with("artifact \"gone\" of task a cannot be had: blob "), "{found:?}");
    assert!(found[2].ends_with(NO_SECOND_RUN), "{found:?}");
    assert_eq!(found[3], "task a is no dependency that left a file \"none\"");
}
