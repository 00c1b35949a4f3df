//! A job on a server that goes on with a changed file.

use serde_json::json;

use crate::sandbox::{Sandbox, Server};

fn job(b: &str, more: &str) -> String {
    format!(
        "name: x\ntasks:\n- {{taskId: a, run: 'echo a >> ran'}}\n\
         - {{taskId: b, run: '{b}', dependsOn: [a], retry: 1}}\n{more}"
    )
}

/// The job of the file has failed on the server.
fn failed(sandbox: &Sandbox) -> (Server, String) {
    let server = sandbox.serve(&[], &[]);
    sandbox.write("job.yaml", &job("exit 1", ""));
    let ran = sandbox.run(&["submit", "job.yaml", "--watch", "--json"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let id = ran.json()["jobId"].as_str().unwrap().to_owned();
    (server, id)
}

#[test]
fn a_job_on_a_server_goes_on_with_a_changed_file() {
    let sandbox = Sandbox::new();
    let (server, id) = failed(&sandbox);
    let in_use = sandbox.run(&["run", "job.yaml", "--resume", "--update"]);
    assert_eq!(in_use.code, 2, "{in_use:#?}");
    assert!(in_use.words.contains("`tidemill jobs resume JOB --update job.yaml`"), "{in_use:#?}");
    let in_use = sandbox.run(&["run", "job.yaml", "--resume"]);
    assert!(in_use.words.contains("`tidemill jobs resume JOB`"), "{in_use:#?}");

    sandbox.write("bad.yaml", "tasks:\n- {taskId: a, runs: x}\n- {taskId: b, run: x, timeout: soon}\n");
    let bad = sandbox.run(&["jobs", "resume", &id, "--update", "bad.yaml"]);
    assert_eq!((bad.code, bad.words.lines().count()), (2, 3), "{bad:#?}");
    assert!(bad.words.contains("bad.yaml:2:21: tasks[0].runs: unknown field; did you mean run?"), "{bad:#?}");
    sandbox.write("less.yaml", "tasks:\n- {taskId: b, run: 'true'}\n");
    let less = sandbox.run(&["jobs", "resume", &id, "--update", "less.yaml"]);
    assert_eq!(less.code, 2, "{less:#?}");
    assert!(less.words.contains("less.yaml:2:3: tasks[0].dependsOn: differs"), "{less:#?}");

    sandbox
        .write("job.yaml", &job("echo mended >> ran", "- {taskId: c, run: 'echo c >> ran', dependsOn: b}\n"));
    let ran = sandbox.run(&["jobs", "resume", &id, "--update", "job.yaml"]).ok();
    for line in ["task b goes on with what the file says now", "task c is new", "running again: b"] {
        assert!(ran.words.contains(line), "{line}: {ran:#?}");
    }
    sandbox.run(&["jobs", "watch", &id]).ok();
    assert_eq!(sandbox.read("ran"), "a\nmended\nc\n");
    server.stop().ok();
}

/// A cancelled job takes no further tasks before it is open again, and no task of it may start with what it had before.
#[test]
fn a_cancelled_job_goes_on_with_a_changed_file() {
    let sandbox = Sandbox::new();
    let (server, id) = failed(&sandbox);
    sandbox.run(&["jobs", "cancel", &id]).ok();
    sandbox
        .write("job.yaml", &job("echo mended >> ran", "- {taskId: c, run: 'echo c >> ran', dependsOn: b}\n"));
    let ran = sandbox.run(&["jobs", "resume", &id, "--update", "job.yaml", "--json"]).ok();
    assert_eq!((&ran.json()["resumed"], &ran.json()["added"]), (&json!(["b"]), &json!(["c"])), "{ran:#?}");
    sandbox.run(&["jobs", "watch", &id]).ok();
    assert_eq!(sandbox.read("ran"), "a\nmended\nc\n");
    server.stop().ok();
}
