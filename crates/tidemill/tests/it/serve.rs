//! `tidemill serve` and the commands that speak to it.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox, eventually, is_alive};

fn items(ran: &Ran) -> Vec<Value> {
    ran.json()["items"].as_array().unwrap().clone()
}

/// A server that is killed in mid-job and started again completes the job, and each task has one outcome.
#[test]
fn a_job_survives_its_server() {
    let sandbox = Sandbox::new();
    let job = "\
name: survives
tasks:
- {taskId: a, run: echo a >> ran}
- {taskId: b, run: 'echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo b >> ran', dependsOn: [a]}
- {taskId: c, run: echo c >> ran, dependsOn: [b]}
";
    sandbox.write("job.yaml", job);
    let server = sandbox.serve(&[], &[]);
    assert!(sandbox.dir.join(".tidemill/server.json").exists());
    let submitted = sandbox.run(&["submit", "job.yaml"]).ok();
    let id = submitted.out.trim().to_owned();
    eventually("the start of b", || sandbox.read("pid").ends_with('\n'));
    let mut watch = sandbox.start(&["jobs", "watch", &id, "--server", &server.url], &[]);
    watch.wait_for("with 3 tasks");
    let child: u32 = sandbox.read("pid").trim().parse().unwrap();
    let address = server.url.trim_start_matches("http://").to_owned();
    server.process.kill();
    eventually("the end of what the killed server ran", || !is_alive(child));
    watch.wait_for("trying again");
    sandbox.write("go", "");
    let mut second = sandbox.start(&["serve", "--listen", &address], &[]);
    second.wait_for("listening on ");
    let watched = watch.end();
    assert_eq!(watched.code, 0, "{watched:#?}");
    assert!(watched.words.contains("completed: 3 tasks"), "{watched:#?}");
    assert_eq!(sandbox.read("ran"), "a\nb\nc\n");
    let completed = items(&sandbox.run(&["events", "query", "--type", "Task Completed", "--json"]).ok());
    let mut tasks: Vec<_> =
        completed.iter().map(|event| event["properties"]["taskId"].as_str().unwrap()).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, ["a", "b", "c"]);
    second.signal(Signal::TERM);
    assert_eq!(second.end().code, 0);
    assert_eq!(sandbox.run(&["verify"]).code, 0);
}

#[test]
fn a_signal_waits_for_running_tasks_and_a_second_one_does_not() {
    let sandbox = Sandbox::new();
    let job = "tasks:\n- {taskId: a, run: 'echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done; echo a >> ran'}\n";
    sandbox.write("job.yaml", job);
    let mut server = sandbox.serve(&[], &[]);
    sandbox.run(&["submit", "job.yaml"]).ok();
    eventually("the start of the task", || sandbox.read("pid").ends_with('\n'));
    server.process.signal(Signal::TERM);
    server.process.wait_for("stopping: running tasks may end within 30.0s");
    sandbox.write("go", "");
    let ended = server.process.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    assert_eq!(sandbox.read("ran"), "a\n");
    assert!(!sandbox.dir.join(".tidemill/server.json").exists());

    std::fs::remove_file(sandbox.dir.join("go")).unwrap();
    std::fs::remove_file(sandbox.dir.join("pid")).unwrap();
    let mut server = sandbox.serve(&[], &[("SHUTDOWN_GRACE_MS", "10m")]);
    sandbox.run(&["submit", "job.yaml"]).ok();
    eventually("the start of the task", || sandbox.read("pid").ends_with('\n'));
    let child: u32 = sandbox.read("pid").trim().parse().unwrap();
    server.process.signal(Signal::INT);
    server.process.wait_for("stopping");
    server.process.signal(Signal::INT);
    assert_eq!(server.process.end().code, 130);
    eventually("the end of the task", || !is_alive(child));
}

/// The commands for people and programs, on a server and on the directory alone.
#[test]
fn definitions_jobs_tasks_and_events_by_command() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "double.yaml",
        "name: double\nrunner: command\ndescription: doubles\ncommand: 'echo \"{\\\"got\\\":$2}\"'\n",
    );
    let made = sandbox.run(&["definitions", "create", "double.yaml", "--json"]).ok().json();
    assert_eq!((&made["name"], &made["version"]), (&json!("double"), &json!(1)));
    assert_eq!(sandbox.run(&["definitions", "create", "double.yaml"]).code, 1, "it exists");
    sandbox.write("bad.yaml", "name: double\nrunner: command\ntimeout: 1ms\n");
    let bad = sandbox.run(&["definitions", "update", "bad.yaml"]);
    assert_eq!(bad.code, 2, "{bad:#?}");
    assert!(bad.words.contains("bad.yaml:3:10: timeout: "), "{bad:#?}");

    let server = sandbox.serve(&[], &[]);
    let updated =
        sandbox.run(&["definitions", "update", "double.yaml", "--if-version", "1", "--json"]).ok().json();
    assert_eq!(updated["version"], 2);
    assert_eq!(sandbox.run(&["definitions", "update", "double.yaml", "--if-version", "1"]).code, 1);
    assert_eq!(sandbox.run(&["definitions", "get", "double", "--version", "1"]).ok().json()["version"], 1);
    let listed = sandbox.run(&["definitions", "list"]).ok();
    assert!(listed.out.contains("double  command  2"), "{listed:#?}");

    sandbox.write("job.yaml", "name: by-name\ntasks:\n- {taskId: a, name: double, input: {n: 4}}\n- {taskId: b, run: exit 1, retry: {maxAttempts: 1}}\n");
    let watched = sandbox.run(&["submit", "job.yaml", "--watch", "--json"]);
    assert_eq!(watched.code, 1, "{watched:#?}");
    let report = watched.json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "got": { "n": 4 } }));
    let id = report["jobId"].as_str().unwrap().to_owned();
    let task = format!("{id}_a");

    let jobs =
        items(&sandbox.run(&["jobs", "list", "--name", "by-name", "--status", "failed", "--json"]).ok());
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0]["jobId"], id.as_str());
    let table = sandbox.run(&["jobs", "list"]).ok();
    assert!(table.out.starts_with("JOB ") && table.out.contains("by-name"), "{table:#?}");
    assert_eq!(sandbox.run(&["jobs", "get", &id, "--json"]).ok().json()["counts"]["failed"], 1);
    assert!(sandbox.run(&["jobs", "get", &id]).ok().out.contains("completed"));

    let view = sandbox.run(&["tasks", "get", &task, "--json"]).ok().json();
    assert_eq!((&view["definition"]["version"], &view["status"]), (&json!(2), &json!("completed")));
    assert!(sandbox.run(&["tasks", "get", &task]).ok().out.contains("definition      double version 2"));
    let history: Vec<_> = items(&sandbox.run(&["tasks", "history", &task, "--json"]).ok());
    let types: Vec<_> = history.iter().map(|event| event["eventType"].as_str().unwrap()).collect();
    assert_eq!(types, ["Task Pending", "Task Processing Started", "Task Completed"]);
    assert!(sandbox.run(&["tasks", "logs", &task]).ok().out.contains("{\"got\":{\"n\":4}}"));
    assert!(sandbox.run(&["tasks", "logs", &task, "-f"]).ok().out.contains("{\"got\""));
    let failed = items(&sandbox.run(&["tasks", "list", "--job", &id, "--state", "failed", "--json"]).ok());
    assert_eq!((failed.len(), &failed[0]["taskId"]), (1, &json!("b")));
    assert_eq!(items(&sandbox.run(&["tasks", "list", "--state", "completed", "--json"]).ok()).len(), 1);

    sandbox.write("more.yaml", "tasks:\n- {taskId: c, run: touch added, dependsOn: [a]}\n");
    sandbox.run(&["jobs", "add-tasks", &id, "more.yaml"]).ok();
    eventually("the added task", || sandbox.dir.join("added").exists());
    assert_eq!(
        sandbox.run(&["jobs", "resume", &id, "--task", "b", "--json"]).ok().json()["resumed"],
        json!(["b"])
    );
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).code, 1, "it fails again");
    assert_eq!(sandbox.run(&["tasks", "retry", &format!("{id}_b")]).code, 0);
    assert_eq!(sandbox.run(&["jobs", "watch", &id, "--json"]).code, 1);
    assert_eq!(
        sandbox.run(&["jobs", "retry", "--status", "failed", "--json"]).ok().json()["jobIds"],
        json!([id])
    );

    publish_and_query(&sandbox);
    sandbox.write("long.yaml", "tasks:\n- {taskId: a, run: 'echo $$ > pid; sleep 1000'}\n");
    let long = sandbox.run(&["submit", "long.yaml"]).ok().out.trim().to_owned();
    eventually("the start of the task", || sandbox.read("pid").ends_with('\n'));
    let child: u32 = sandbox.read("pid").trim().parse().unwrap();
    sandbox.run(&["jobs", "cancel", &long, "--reason", "enough"]).ok();
    eventually("the end of a cancelled task", || !is_alive(child));
    assert_eq!(sandbox.run(&["jobs", "get", &long, "--json"]).ok().json()["status"], "cancelled");
    let unknown = sandbox.run(&["jobs", "get", "job-00000000000000000000000000000000"]);
    assert_eq!(unknown.code, 1, "{unknown:#?}");
    assert_eq!(sandbox.run(&["definitions", "delete", "double"]).code, 0);
    server.stop().ok();
    // The same questions, now that nobody serves.
    assert_eq!(sandbox.run(&["jobs", "get", &id, "--json"]).ok().json()["jobId"], id.as_str());
    assert!(sandbox.run(&["tasks", "logs", &task]).ok().out.contains("{\"got\""));
}

/// Events in and out, on the server of the test.
fn publish_and_query(sandbox: &Sandbox) {
    let published = sandbox
        .run(&[
            "events",
            "publish",
            "--type",
            "user.created",
            "--entity",
            "USER/u1",
            "--properties",
            "{\"a\":1}",
        ])
        .ok();
    assert_eq!(published.out.lines().count(), 1);
    sandbox.write(
        "events.yaml",
        "events:\n- {eventType: user.created, entityType: USER, entityId: u2}\n- {eventType: user.gone}\n",
    );
    assert_eq!(sandbox.run(&["events", "publish", "--file", "events.yaml"]).ok().out.lines().count(), 2);
    let of_one = items(&sandbox.run(&["events", "query", "--entity", "USER/u1", "--json"]).ok());
    assert_eq!((of_one.len(), &of_one[0]["properties"]), (1, &json!({ "a": 1 })));
    let newest = items(
        &sandbox
            .run(&["events", "query", "--type", "user.created", "--order", "desc", "--limit", "1", "--json"])
            .ok(),
    );
    assert_eq!(newest[0]["entityId"], "u2");
    let tail = sandbox
        .run(&["events", "tail", "--after", "0", "--type", "user.created", "--count", "2", "--json"])
        .ok();
    assert_eq!(tail.out.lines().count(), 2, "{tail:#?}");
}

/// A job that is submitted to a directory runs when a server is started on it; H-040: the same key gives the same job.
#[test]
fn a_job_waits_in_a_directory_for_its_server() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: echo a >> ran}\n");
    let submit = ["submit", "job.yaml", "--idempotency-key", "k1", "--data", ".tidemill"];
    let first = sandbox.run(&submit).ok();
    let second = sandbox.run(&["submit", "job.yaml", "--idempotency-key", "k1"]).ok();
    assert_eq!(first.out, second.out);
    assert!(first.words.contains("it runs when `tidemill serve` is started on .tidemill"), "{first:#?}");
    let server = sandbox.serve(&[], &[]);
    let watched = sandbox.run(&["jobs", "watch", first.out.trim(), "--json"]).ok();
    assert_eq!(watched.json()["status"], "completed");
    server.stop().ok();
    assert_eq!(sandbox.read("ran"), "a\n");
    let again = sandbox.run(&submit).ok();
    assert_eq!(again.out, first.out);
    assert!(again.words.contains("submitted before, and completed: nothing was started"), "{again:#?}");
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: echo b >> ran}\n");
    let changed = sandbox.run(&submit);
    let named = format!("which made job {} (IDEMPOTENCY_CONFLICT)", first.out.trim());
    assert!(changed.code == 1 && changed.words.contains(&named), "{changed:#?}");
}

#[test]
fn the_settings_for_a_service_are_good() {
    let sandbox = Sandbox::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/systemd/tidemill.yaml");
    let shown = sandbox.run(&["config", "--config", file]).ok();
    assert!(shown.out.contains("production"), "{shown:#?}");
}

#[test]
fn without_its_output_directory_a_server_never_says_that_it_listens() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with(&["serve", "--listen", "127.0.0.1:0"], &[("OUTPUT_DIR", "/dev/null/out")]);
    assert!(
        ran.code != 0 && ran.words.contains("the output directory /dev/null/out cannot be used"),
        "{ran:#?}"
    );
    assert!(!ran.words.contains("listening on"), "{ran:#?}");
}

/// A flag counts for more than a variable: a command on a restored directory does not go to the live server.
#[test]
fn a_directory_that_a_flag_names_beats_a_server_of_the_environment() {
    let sandbox = Sandbox::new();
    let nowhere = [("TIDEMILL_SERVER", "http://127.0.0.1:1")];
    sandbox.run_with(&["keys", "create", "--role", "admin", "--data", "copy"], &nowhere).ok();
    assert!(sandbox.dir.join("copy/log").is_dir());
    let listed = sandbox.run_with(&["keys", "list"], &nowhere);
    assert!(listed.code != 0 && listed.words.contains("cannot reach"), "{listed:#?}");
}

#[test]
fn a_directory_in_use_and_an_address_in_use_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    let server = sandbox.serve(&[], &[]);
    let second = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 2, "{second:#?}");
    assert!(second.words.contains(&format!("in use by process {}", server.process.pid())), "{second:#?}");
    let run = sandbox.run(&["run", "job.yaml"]);
    assert_eq!(run.code, 2, "{run:#?}");
    assert!(run.words.contains(&format!("in use by the server {}", server.url)), "{run:#?}");
    let address = server.url.trim_start_matches("http://");
    let third = sandbox.run(&["serve", "--data", "other", "--listen", address]);
    assert_eq!(third.code, 2, "{third:#?}");
    assert!(third.words.contains("cannot listen on"), "{third:#?}");
    server.stop().ok();
    let away = sandbox.run(&["jobs", "list", "--server", "http://127.0.0.1:9"]);
    assert_eq!(away.code, 1);
    assert!(away.words.starts_with("tidemill: cannot reach http://127.0.0.1:9: "), "{away:#?}");
}

/// A server that is stopped in order leaves rows as of the end of the log: the next one replays nothing, and a salvage knows
/// where jobs stood whose events are lost.
#[test]
fn a_server_that_was_stopped_leaves_its_rows() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: a, run: echo a}\n- {taskId: b, run: echo b, dependsOn: [a]}\n",
    );
    let server = sandbox.serve(&[], &[]);
    for _ in 0..3 {
        sandbox.run(&["submit", "job.yaml", "--watch", "--server", &server.url]).ok();
    }
    server.stop().ok();
    let segment = sandbox.dir.join(".tidemill/log/0000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    // More than a job takes, so that the first event of one is hit.
    bytes[used / 3..used / 3 * 2].fill(7);
    std::fs::write(&segment, bytes).unwrap();
    let saved = sandbox.run(&["salvage", "--to", "with-rows", "--json"]);
    assert_eq!(saved.code, 3, "{saved:#?}");
    let told = saved.json();
    assert_eq!(
        (&told["rowsUsed"], &told["jobs"], &told["goneTotal"]),
        (&json!(true), &json!(3), &json!(0)),
        "{told}"
    );
    let jobs = items(&sandbox.run(&["jobs", "list", "--data", "with-rows", "--json"]).ok());
    assert!(jobs.iter().all(|job| job["status"] == "completed"), "{jobs:?}");

    std::fs::remove_file(sandbox.dir.join(".tidemill/derived/rows.redb")).unwrap();
    let saved = sandbox.run(&["salvage", "--to", "without", "--json"]);
    let told = saved.json();
    let gone = told["gone"].as_array().unwrap();
    let there = told["jobs"].as_u64().unwrap();
    assert_eq!((&told["rowsUsed"], gone.len() as u64), (&json!(false), 3 - there), "{told}");
    let id = gone[0]["jobId"].as_str().unwrap();
    assert!(id.starts_with("job-") && gone[0]["tenantId"] == "default", "{told}");
    let words = sandbox.run(&["salvage", "--to", "again"]).out;
    assert!(words.contains(&format!("job {id} of tenant default is gone")), "{words}");
    assert!(words.contains("there were no rows that could be read"), "{words}");
}
