//! Jobs in which something fails, by the commands of users: JO-10, JO-11, JO-13, JO-14, JO-15, JO-20.

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

fn events(sandbox: &Sandbox, kind: &str) -> Vec<Value> {
    let ran = sandbox.run(&["events", "query", "--type", kind, "--json"]).ok();
    ran.json()["items"].as_array().unwrap().clone()
}

#[test]
fn jo_failures_stop_only_what_depends_on_them() {
    let sandbox = Sandbox::new();
    let job = "\
name: partly
tasks:
- {taskId: a, run: 'test -e fixed', retry: {maxAttempts: 1}}
- {taskId: a2, run: touch a2, dependsOn: [a]}
- {taskId: slow, run: 'test -e fixed || sleep 100', timeout: 1s}
- {taskId: slow2, run: touch slow2, dependsOn: [slow]}
- {taskId: b, run: 'while [ ! -e seen ]; do sleep 0.05; done'}
- {taskId: g, run: touch g, dependsOn: [b]}
";
    sandbox.write("job.yaml", job);
    let server = sandbox.serve(&[], &[]);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let view = || sandbox.run(&["jobs", "get", &id, "--json"]).ok().json();
    // Two have failed while another one runs.
    eventually("both failures", || view()["counts"]["failed"] == 2);
    assert_eq!(view()["status"], "failing");
    sandbox.write("seen", "");
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).code, 1);
    let rested = view();
    assert_eq!(rested["status"], "failed");
    assert!(sandbox.dir.join("g").exists(), "what does not depend on a failure goes on");
    for task in rested["tasks"].as_array().unwrap() {
        let expected = match task["taskId"].as_str().unwrap() {
            "a" | "slow" => json!("failed"),
            "b" | "g" => json!("completed"),
            _ => json!(null),
        };
        assert_eq!(task["status"], expected, "{task}");
    }
    let detected = events(&sandbox, "Job Failure Detected");
    assert_eq!(detected.len(), 2, "one for each failure, a timeout is one: {detected:#?}");
    assert_eq!(events(&sandbox, "Task Timeout").len(), 1);
    assert_eq!(events(&sandbox, "Job Completed").len(), 0);

    sandbox.write("fixed", "");
    sandbox.run(&["jobs", "resume", &id]).ok();
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json()["status"], "completed");
    assert!(sandbox.dir.join("a2").exists() && sandbox.dir.join("slow2").exists());
    assert_eq!(events(&sandbox, "Job Completed").len(), 1);
    assert_eq!(events(&sandbox, "Task Completed").len(), 6, "one outcome for each run");
    server.stop().ok();
}

/// A task that has no attempts left is shown with what the last one said, line by line.
#[test]
fn the_last_error_is_shown_with_its_lines() {
    let sandbox = Sandbox::new();
    let script = "import sys\ndef load():\n    raise OSError('no route to host\\x1b[2J')\nload()\n";
    sandbox.write("load.py", script);
    sandbox.write(
        "job.yaml",
        "name: nightly\ntasks:\n\
         - {taskId: load, run: python3 load.py, retry: {maxAttempts: 2, firstDelay: 1ms}}\n\
         - {taskId: late, run: sleep 100, timeout: 1s}\n",
    );
    let ran = sandbox.run(&["run", "job.yaml"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let told = |line: &str| ran.words.lines().any(|told| told == line);
    assert!(told("  load (attempt 2): exit code 1: Traceback (most recent call last):"), "{ran:#?}");
    assert!(told("      File \"~/load.py\", line 4, in <module>"), "{ran:#?}");
    assert!(told("    OSError: no route to host"), "{ran:#?}");
    assert!(
        ran.words.contains(" load failed for good: exit code 1: OSError: no route to host\n"),
        "{ran:#?}"
    );
    let report = sandbox.run(&["jobs", "list", "--json"]).ok().json();
    let job = report["items"][0]["jobId"].as_str().unwrap().to_owned();

    let shown = sandbox.run(&["jobs", "get", &job]).ok().out;
    assert!(shown.contains("-          exit code 1: OSError: no route to host\n"), "one line: {shown}");
    assert!(shown.contains("\nload: exit code 1: Traceback (most recent call last):\n    File"), "{shown}");
    assert!(shown.contains("\n  OSError: no route to host\n"), "{shown}");
    assert!(shown.contains("timed out after 1000 ms"), "{shown}");
    assert!(!shown.contains("max retries exhausted"), "{shown}");

    let task = format!("{job}_load");
    let shown = sandbox.run(&["tasks", "get", &task]).ok().out;
    assert!(shown.contains("\nerror           exit code 1: Traceback (most recent call last):\n"), "{shown}");
    assert!(shown.contains("\n                OSError: no route to host\n"), "{shown}");
    assert!(shown.contains("\nended with      max retries exhausted, moved to DLQ\n"), "{shown}");
    let view = sandbox.run(&["tasks", "get", &task, "--json"]).ok().json();
    assert_eq!(view["error"], "max retries exhausted, moved to DLQ");
    let last = &view["lastError"];
    assert!(last["message"].as_str().unwrap().contains("line 4, in <module>\n"), "{last}");
    assert_eq!(last["category"], "network");
    let view = sandbox.run(&["tasks", "get", &format!("{job}_late"), "--json"]).ok().json();
    assert_eq!(view["lastError"], json!({"message": "timed out after 1000 ms", "category": "timeout"}));

    let shown = sandbox.run(&["dead-letters", "list"]).ok().out;
    assert!(
        shown.contains("ERROR\n") && shown.ends_with("exit code 1: OSError: no route to host\n"),
        "{shown}"
    );
    let letters = sandbox.run(&["dead-letters", "list", "--json"]).ok().json();
    assert_eq!(letters["items"][0]["lastError"], *last, "{letters}");
    assert_eq!(letters["items"][0]["reason"], "max retries exhausted, moved to DLQ");
}

/// An attempt that takes too long is tried again if the job file or the definition says so.
#[test]
fn a_timeout_is_tried_again_if_the_file_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "tasks:\n\
         - {taskId: once, run: 'sleep 100', timeout: 1s, retry: {maxAttempts: 2, firstDelay: 1ms}}\n\
         - {taskId: mends, run: 'test -e mended || { touch mended; sleep 100; }', timeout: 1s, \
            retry: {firstDelay: 1ms, onTimeout: true}}\n\
         - {taskId: never, run: 'sleep 100', timeout: 1s, retry: {maxAttempts: 2, firstDelay: 1ms, onTimeout: true}}\n",
    );
    let report = sandbox.run(&["run", "job.yaml", "--json"]).json();
    let tasks = &report["tasks"];
    let told = |task: &str| (tasks[task]["status"].clone(), tasks[task]["attempt"].clone());
    assert_eq!(told("once"), (json!("failed"), json!(1)), "{report}");
    assert_eq!(told("mends"), (json!("completed"), json!(2)), "{report}");
    assert_eq!(told("never"), (json!("failed"), json!(2)), "{report}");
    let failed = events(&sandbox, "Task Processing Failed");
    let failed: Vec<_> = failed.iter().map(|event| &event["properties"]["errorCategory"]).collect();
    assert_eq!(failed, ["timeout", "timeout"]);
    assert_eq!(events(&sandbox, "Task Timeout").len(), 2);
}

/// JO-05: a task without a job causes no event of a job.
#[test]
fn jo_05_a_task_alone_belongs_to_no_job() {
    let sandbox = Sandbox::new();
    sandbox.write("touch.yaml", "name: touch\nrunner: command\ncommand: [touch, done]\n");
    sandbox.run(&["definitions", "create", "touch.yaml"]).ok();
    let server = sandbox.serve(&[], &[]);
    let body = r#"{"name":"touch","requestId":"alone"}"#;
    post(&server.url, "/v1/tasks", body);
    eventually("the task", || {
        let ran = sandbox.run(&["tasks", "get", "alone", "--json"]);
        ran.code == 0 && ran.json()["status"] == "completed"
    });
    for kind in ["Job Created", "Job Completed", "Job Failure Detected"] {
        assert_eq!(events(&sandbox, kind).len(), 0);
    }
    server.stop().ok();
}

/// One request, as a program without a library would send it.
fn post(url: &str, path: &str, body: &str) {
    use std::io::{Read as _, Write as _};
    let address = url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
}
