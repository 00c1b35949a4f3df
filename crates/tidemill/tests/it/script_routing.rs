//! Scripts that run for events, and scripts of tasks, in a server and without one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

fn items(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(arguments).ok().json()["items"].as_array().unwrap().clone()
}

fn executions(sandbox: &Sandbox, status: &str) -> Vec<Value> {
    items(sandbox, &["executions", "list", "--status", status, "--limit", "1000", "--json"])
}

/// An execution with all that is known of it.
fn whole(sandbox: &Sandbox, execution: &Value) -> Value {
    sandbox.run(&["executions", "get", execution["id"].as_str().unwrap(), "--json"]).ok().json()
}

/// Saves a script and subscribes it to a type of events.
fn subscribe(sandbox: &Sandbox, id: &str, source: &str, event_type: &str) {
    let file = format!("{id}.js");
    sandbox.write(&file, source);
    sandbox.run(&["scripts", "put", id, &file, "--grant", "publish", "--grant", "submitJob"]).ok();
    sandbox.run(&["subscriptions", "add", "--script", id, "--type", event_type, "--id", id]).ok();
}

fn publish(sandbox: &Sandbox, event_type: &str, count: usize) {
    let events: Vec<_> =
        (0..count).map(|n| json!({ "eventType": event_type, "properties": { "n": n } })).collect();
    sandbox.write("events.json", &json!({ "events": events }).to_string());
    sandbox.run(&["events", "publish", "--file", "events.json"]).ok();
}

fn published(sandbox: &Sandbox, event_type: &str) -> Vec<u64> {
    let events = items(sandbox, &["events", "query", "--type", event_type, "--limit", "1000", "--json"]);
    events.iter().map(|event| event["properties"]["n"].as_u64().unwrap()).collect()
}

/// Killed with 500 executions that wait, and killed again in their midst: all run, and what they do happens once.
#[test]
fn queued_executions_survive_a_killed_server() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[("SCRIPT_WORKERS", "1"), ("SCRIPT_TIMEOUT", "10m")]);
    // The first one never ends, so the others wait.
    subscribe(&sandbox, "note", "while (true) {}", "order.placed");
    publish(&sandbox, "order.placed", 500);
    eventually("that all wait", || {
        executions(&sandbox, "queued").len() == 499 && executions(&sandbox, "processing").len() == 1
    });
    server.process.kill();
    assert_eq!(executions(&sandbox, "queued").len(), 500, "they are in the data directory");
    let source = "ctx.publish('order.noted', { n: ctx.event.data.n }); return ctx.event.data.n";
    sandbox.write("note.js", source);
    sandbox.run(&["scripts", "put", "note", "note.js"]).ok();

    let server = sandbox.serve(&[], &[]);
    eventually("that some have run", || published(&sandbox, "order.noted").len() >= 20);
    server.process.kill();
    let server = sandbox.serve(&[], &[]);
    eventually("that all have run", || executions(&sandbox, "success").len() == 500);
    let noted = published(&sandbox, "order.noted");
    assert_eq!(noted.len(), 500, "none of them twice");
    assert_eq!(noted.into_iter().collect::<BTreeSet<_>>(), (0..500).collect());
    let done = executions(&sandbox, "success");
    assert!(done.iter().all(|execution| execution["attempts"] == 1), "each has one end");
    assert!(whole(&sandbox, &done[0])["result"].as_u64().is_some_and(|n| n < 500));
    let all = items(&sandbox, &["executions", "list", "--limit", "1000", "--json"]);
    assert_eq!(all.len(), 500);
    server.stop().ok();
    assert_eq!(sandbox.run(&["verify"]).code, 0);
}

/// A stop lets what runs come to its end and leaves the rest.
#[test]
fn a_stop_waits_for_running_scripts() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[("SCRIPT_WORKERS", "1")]);
    // Busy for about a second, by work that no clock can shorten.
    let source = "let n = 0; for (let i = 0; i < 2e7; i++) n += i % 7; return n > 0";
    subscribe(&sandbox, "slow", source, "tick");
    publish(&sandbox, "tick", 2);
    eventually("the start of a script", || executions(&sandbox, "processing").len() == 1);
    server.process.signal(Signal::TERM);
    let ended = server.process.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    let done = executions(&sandbox, "success").len();
    assert!(done >= 1, "the one that ran has its end");
    assert_eq!(executions(&sandbox, "queued").len(), 2 - done, "the other waits for the next time");
}

/// A failed task is noticed by a script, which submits a job to repair it.
#[test]
fn a_script_reacts_to_a_failed_task() {
    let sandbox = Sandbox::new();
    sandbox.write("repair.yaml", "name: repair\nrunner: command\ncommand: echo repaired >> repaired\n");
    sandbox.run(&["definitions", "create", "repair.yaml"]).ok();
    let server = sandbox.serve(&[], &[]);
    let source = "\
const { requestId, errorCategory } = ctx.event.data;
console.log('repairing', requestId);
const id = ctx.submitJob({ name: 'repair', tasks: [{ taskId: 'repair', name: 'repair', input: { errorCategory } }] });
return { id };
";
    subscribe(&sandbox, "repairer", source, "Task Failed");
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: exit 1, retry: {maxAttempts: 1}}\n");
    sandbox.run(&["submit", "job.yaml"]).ok();
    eventually("the repair", || sandbox.read("repaired") == "repaired\n");
    let done = executions(&sandbox, "success");
    let [execution] = &done[..] else { panic!("{done:#?}") };
    let execution = whole(&sandbox, execution);
    assert!(execution["logs"].to_string().contains("repairing"), "{execution:#?}");
    let job = execution["result"]["id"].as_str().unwrap();
    assert_eq!(sandbox.run(&["jobs", "get", job, "--json"]).ok().json()["name"], "repair");
    server.stop().ok();
}

/// A script that throws is tried again, and one that does not yield is ended; neither holds up the other.
#[test]
fn hostile_scripts_end_as_dead_letters() {
    let sandbox = Sandbox::new();
    let settings = [("SCRIPT_TIMEOUT", "300"), ("SCRIPT_MAX_RETRIES", "0")];
    let server = sandbox.serve(&[], &settings);
    subscribe(&sandbox, "endless", "while (true) {}", "tick");
    subscribe(&sandbox, "throws", "throw new Error('Bearer abcdefgh12345678')", "tick");
    subscribe(&sandbox, "large", "return 'x'.repeat(70000)", "tick");
    subscribe(&sandbox, "fine", "return ctx.event.type + ctx.tenant.id", "tick");
    publish(&sandbox, "tick", 1);
    eventually("three dead letters", || executions(&sandbox, "dead_letter").len() == 3);
    let done = executions(&sandbox, "success");
    let [fine] = &done[..] else { panic!("{done:#?}") };
    assert_eq!(whole(&sandbox, fine)["result"], "tickdefault");
    let dead = executions(&sandbox, "dead_letter");
    let of = |script: &str| {
        let found = dead.iter().find(|execution| execution["scriptId"] == script).unwrap();
        whole(&sandbox, found).to_string()
    };
    assert!(of("endless").contains("300 ms"), "{}", of("endless"));
    assert!(!of("throws").contains("abcdefgh12345678"), "{}", of("throws"));
    assert!(of("throws").contains("throws:1"), "the stack names the script: {}", of("throws"));
    assert!(of("large").contains("65536"), "{}", of("large"));
    server.stop().ok();
}

/// Scripts of tasks, from a definition and brought along, with the outputs of their parents.
#[test]
fn tasks_run_scripts() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "sum.yaml",
        "\
name: sum
runner: script
script: |
  const outputs = Object.values(ctx.input.dependencyOutputs);
  console.log('adding', outputs.length);
  return { sum: outputs.reduce((sum, output) => sum + output.n, 0) };
",
    );
    sandbox.run(&["definitions", "create", "sum.yaml"]).ok();
    sandbox.write(
        "job.yaml",
        "\
tasks:
- {taskId: a, script: 'return { n: ctx.input.n * 2 }', input: {n: 4}}
- {taskId: b, run: 'echo \"{\\\"n\\\":5}\"'}
- {taskId: c, name: sum, dependsOn: [a, b]}
",
    );
    let report = sandbox.run(&["run", "job.yaml", "--json"]).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "n": 8 }));
    assert_eq!(report["tasks"]["c"]["output"], json!({ "sum": 13 }));
    let job = report["jobId"].as_str().unwrap();
    let log = sandbox.run(&["tasks", "logs", &format!("{job}_c")]).ok().out;
    assert!(log.contains("adding 2"), "what a script wrote is its task's log: {log}");
    sandbox.write(
        "bad.yaml",
        "\
tasks:
- {taskId: slow, script: 'while (true) {}', timeout: 1s}
- {taskId: thrown, script: 'throw new ValidationError(`no such customer`)'}
",
    );
    let failed = sandbox.run(&["run", "bad.yaml", "--json"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    let report = failed.json();
    let text = |task: &str| report["tasks"][task].to_string();
    assert!(text("slow").contains("timeout"), "{}", text("slow"));
    assert!(text("thrown").contains("no such customer"), "{}", text("thrown"));
}

/// A run in this process serves the subscriptions of its data directory too.
#[test]
fn a_run_without_a_server_runs_scripts() {
    let sandbox = Sandbox::new();
    subscribe(&sandbox, "counts", "return ctx.event.data.taskId", "Task Completed");
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: a, run: 'true'}\n- {taskId: b, run: sleep 1, dependsOn: [a]}\n",
    );
    sandbox.run(&["run", "job.yaml"]).ok();
    let all = items(&sandbox, &["executions", "list", "--json"]);
    let done = executions(&sandbox, "success");
    assert!(done.iter().any(|execution| whole(&sandbox, execution)["result"] == "a"), "{all:#?}");
    // What the end of the job queued runs the next time.
    sandbox.run(&["run", "job.yaml"]).ok();
    let done = executions(&sandbox, "success");
    let results: Vec<_> = done.iter().map(|one| whole(&sandbox, one)["result"].clone()).collect();
    assert!(results.contains(&json!("b")), "{results:?}");
}

/// A script that does not compile is refused when it is handed in, with its place: in a job, in a task, in a definition.
#[test]
fn scripts_of_tasks_are_compiled_when_they_are_handed_in() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: fine, script: return 1}\n- {taskId: wrong, script: 'return ]'}\n",
    );
    for how in [&["submit", "job.yaml", "--data", ".tidemill"][..], &["run", "job.yaml"]] {
        let refused = sandbox.run(how);
        assert_eq!(refused.code, 2, "{refused:#?}");
        for words in ["tasks[1].script", "of task wrong", "line 1, column 8"] {
            assert!(refused.words.contains(words), "{words}: {refused:#?}");
        }
    }
    assert!(items(&sandbox, &["jobs", "list", "--json"]).is_empty(), "nothing was made");
    sandbox.write("wrong.yaml", "name: wrong\nrunner: script\nscript: |\n  const a = 1;\n  return ];\n");
    let refused = sandbox.run(&["definitions", "create", "wrong.yaml"]);
    assert_eq!(refused.code, 2, "{refused:#?}");
    assert!(refused.words.contains("line 2, column 8"), "{refused:#?}");
}

/// Every hostile script that the sandbox is tested with, all of them at once and as one tenant's, leaves the server
/// responsive and the scripts of another tenant on time.
#[test]
fn hostile_scripts_of_one_tenant_hold_up_no_other() {
    let sandbox = Sandbox::new();
    let hostile = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidemill-script/tests/hostile");
    let mut scripts = Vec::new();
    for file in std::fs::read_dir(hostile).unwrap() {
        let path = file.unwrap().path();
        let id = path.file_stem().unwrap().to_string_lossy().into_owned();
        // These do not compile, and are refused when they are saved.
        if !id.starts_with("syntax_") {
            sandbox.write(&format!("{id}.js"), &std::fs::read_to_string(&path).unwrap());
            scripts.push(json!({ "id": id, "subscriptions": [{ "eventType": "tick" }] }));
        }
    }
    let count = scripts.len();
    assert!(count >= 100, "{count}");
    sandbox.write("scripts.yaml", &json!({ "scripts": scripts }).to_string());
    let evil = [("TENANT_ID", "evil")];
    sandbox.run_with(&["scripts", "apply", ".", "--yes"], &evil).ok();
    sandbox.run_with(&["events", "publish", "--type", "tick"], &evil).ok();
    subscribe(&sandbox, "fine", "return ctx.event.data.n", "tock");

    // They run from the first moment on, six at a time, most of them for as long as they may.
    let settings = [
        ("SCRIPT_TIMEOUT", "300"),
        ("SCRIPT_MEMORY_MB", "32"),
        ("SCRIPT_MAX_RETRIES", "1"),
        ("SCRIPT_WORKERS", "4"),
    ];
    let server = sandbox.serve(&[], &settings);
    let mut slowest = Duration::ZERO;
    for n in 1..=10 {
        let begin = Instant::now();
        publish(&sandbox, "tock", 1);
        eventually("a script of another tenant", || executions(&sandbox, "success").len() == n);
        slowest = slowest.max(begin.elapsed());
    }
    // Each look takes a process of its own here, so this is far more than the script took.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let mine = items(&sandbox, &["executions", "list", "--json"]);
    assert!(mine.iter().all(|one| one["status"] == "success" && one["attempts"] == 1), "{mine:#?}");
    server.stop().ok();
    let list = ["executions", "list", "--limit", "1000", "--json"];
    let theirs = sandbox.run_with(&list, &evil).ok().json()["items"].as_array().unwrap().clone();
    assert_eq!(theirs.len(), count, "each was queued once");
    let ran = theirs.iter().filter(|one| one["attempts"] != 0).count();
    assert!(ran >= 10, "they ran meanwhile: {ran}");
}
