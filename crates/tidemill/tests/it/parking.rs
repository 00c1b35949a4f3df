//! Tasks that wait for somebody when they have failed for good.

use crate::sandbox::{Sandbox, eventually};

const JOB: &str = "\
name: parked
tasks:
- {taskId: a, run: 'test -e fixed', retry: {maxAttempts: 1}, onFailure: park, labels: {county: Cook}}
- {taskId: b, run: touch b, dependsOn: [a]}
- {taskId: c, run: touch c}
";

#[test]
fn a_run_ends_when_all_that_is_left_is_parked_and_can_go_on() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let ran = sandbox.run(&["run", "job.yaml"]);
    assert_eq!(ran.code, 3, "{}", ran.words);
    assert!(ran.words.contains("waiting for a decision: 1 of 3 tasks, 1 task not started"), "{}", ran.words);
    assert!(ran.words.contains("a failed and is parked: exit code 1"), "{}", ran.words);
    assert!(ran.words.contains("--resume"), "{}", ran.words);
    assert!(sandbox.dir.join("c").exists() && !sandbox.dir.join("b").exists());

    let jobs = sandbox.run(&["jobs", "list", "--json"]).ok().json();
    let id = jobs["items"][0]["jobId"].as_str().unwrap().to_owned();
    let job = sandbox.run(&["jobs", "get", &id, "--json"]).ok().json();
    assert_eq!((job["status"].as_str(), job["counts"]["parked"].as_u64()), (Some("failing"), Some(1)));
    let task = &job["tasks"][0];
    assert_eq!((task["status"].as_str(), task["parked"].as_bool()), (Some("processing"), Some(true)));
    assert_eq!(task["error"], "exit code 1");
    let tasks = sandbox.run(&["tasks", "list"]).ok().out;
    let row = tasks.lines().find(|line| line.contains("_a ")).unwrap();
    assert!(row.contains(" parked "), "{tasks}");
    let events = sandbox.run(&["events", "query", "--type", "WorkflowEvent", "--json"]).ok().json();
    let [event] = &events["items"].as_array().unwrap()[..] else { panic!("{events}") };
    let detail = &event["properties"];
    assert_eq!((detail["status"].as_str(), detail["county"].as_str()), (Some("FAILED"), Some("Cook")));
    assert_eq!((detail["phase"].as_str(), detail["step"].as_str()), (Some("parked"), Some("a")));
    assert_eq!(detail["taskToken"], "[REDACTED]");
    assert!(detail["errors"][0]["code"].as_str().unwrap().starts_with("99"), "{detail}");
    sandbox.run(&["verify"]).ok();

    // It waits for as long as nobody comes, and the same again is no surprise.
    assert_eq!(sandbox.run(&["run", "job.yaml", "--resume", "--json"]).code, 3);
    sandbox.write("fixed", "");
    let again = sandbox.run(&["run", "job.yaml", "--resume"]).ok();
    assert!(again.words.contains("completed: 3 tasks"), "{}", again.words);
    assert!(sandbox.dir.join("b").exists());
    sandbox.run(&["verify"]).ok();
}

#[test]
fn a_server_keeps_what_is_parked_over_a_restart() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let server = sandbox.serve(&[], &[]);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let view = || sandbox.run(&["jobs", "get", &id, "--json"]).ok().json();
    eventually("it is parked", || view()["counts"]["parked"] == 1);
    assert_eq!(sandbox.run(&["jobs", "watch", &id]).code, 3);
    server.stop().ok();
    let server = sandbox.serve(&[], &[]);
    assert_eq!(view()["counts"]["parked"], 1);
    sandbox.write("fixed", "");
    sandbox.run(&["tasks", "retry", &format!("{id}_a")]).ok();
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json()["status"], "completed");
    server.stop().ok();
}

/// The person who decides names a task as anywhere else: by its job and its name there.
#[test]
fn parked_and_errors_take_job_and_task() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let server = sandbox.serve(&[], &[]);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let view = || sandbox.run(&["jobs", "get", &id, "--json"]).ok().json();
    eventually("it is parked", || view()["counts"]["parked"] == 1);
    let (whole, task) = (format!("{id}_a"), format!("{id}/a"));
    let shown = sandbox.run(&["parked", "show", &task, "--json"]).ok().json();
    assert_eq!(shown["executionId"], whole.as_str());
    let codes = sandbox.run(&["errors", "list", "--json"]).ok().json();
    let code = codes["items"][0]["code"].as_str().unwrap();
    sandbox.run(&["errors", "show", code, "--execution", &task]).ok();
    sandbox.run(&["errors", "resolve", "--execution", &task]).ok();
    // A part of the job's id does as well.
    let part = format!("{}…{}/a", &id[..12], &id[id.len() - 6..]);
    sandbox.run(&["parked", "resume", &part, "--output", "{}"]).ok();
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json()["status"], "completed");
    server.stop().ok();
}
