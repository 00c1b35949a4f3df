//! Tasks that are agents, by the commands of users, with a script in the place of the Claude CLI.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fake_claude::{FakeClaude, SCHEMA};
use crate::sandbox::{Running, Sandbox, eventually, is_alive};

/// A lease of 1.5 s instead of 45.
const SHORT: [(&str, &str); 2] =
    [("VISIBILITY_EXTENSION_INTERVAL", "300"), ("VISIBILITY_EXTENSION_AMOUNT", "1")];

fn job(more: &str) -> String {
    format!(
        "name: asked\ntasks:\n- taskId: a\n  input: {{store: s-1}}\n  retry: {{firstDelay: 1ms, maxDelay: 1ms}}\n  agent:\n    prompt: 'Look at {{{{store}}}}'\n    outputSchema: {SCHEMA}\n{more}"
    )
}

fn events(sandbox: &Sandbox, kind: &str) -> Vec<Value> {
    let ran = sandbox.run(&["events", "query", "--type", kind, "--json"]).ok();
    ran.json()["items"].as_array().unwrap().clone()
}

/// The files that a task left, by their paths.
fn files(sandbox: &Sandbox, task: &str) -> Vec<String> {
    let ran = sandbox.run(&["tasks", "files", task, "--json"]).ok();
    let items = ran.json()["items"].as_array().unwrap().clone();
    items.iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect()
}

fn all_gone(processes: &[u32]) {
    eventually("the end of all processes of the agent", || !processes.iter().any(|pid| is_alive(*pid)));
}

#[test]
fn ag_02_03_04_14_a_job_with_an_agent_completes_and_tells_what_it_used() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["ok"]);
    sandbox.write("job.yaml", &job("- {taskId: b, run: 'cat \"$INPUT_FILE\"', dependsOn: [a]}\n"));
    let report = sandbox.run_with(&["run", "job.yaml", "--json"], &claude.environment()).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "fake" }));
    let given = &report["tasks"]["b"]["output"];
    assert_eq!(given["dependencyOutputs"], json!({ "a": { "answer": "fake" } }));
    let files = given["dependencyArtifacts"]["a"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"] == "task-result.json"), "{given}");
    assert!(claude.read(1, "prompt").contains("s-1"), "{}", claude.read(1, "prompt"));
    let completed = events(&sandbox, "Task Completed");
    let agent = completed.iter().find(|event| event["properties"]["taskId"] == "a").unwrap();
    let used = json!({
        "inputTokens": 120, "outputTokens": 30, "cacheReadTokens": 80, "cacheWriteTokens": 10, "turns": 2,
        "costUsd": 0.0125
    });
    assert_eq!(agent["properties"]["usage"], used);
    assert_eq!(agent["properties"]["sessionId"].as_str(), claude.flag(1, "--session-id").as_deref());
    let command = completed.iter().find(|event| event["properties"]["taskId"] == "b").unwrap();
    assert_eq!(command["properties"].get("usage"), None, "only agents have a usage");

    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    let shown = sandbox.run(&["tasks", "get", &task]).ok().out;
    assert!(shown.contains("\nused            240 tokens in 2 turns, 0.0125 USD\n"), "{shown}");
    let output = sandbox.dir.join(".output").join(&task);
    for file in ["artifacts/task-result.json", "logs/summary.log", "traces/session_trace.json"] {
        let local =
            std::fs::read_to_string(output.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let stored = sandbox.run(&["tasks", "files", &task, &format!("r1-a1/{file}")]).ok().out;
        assert_eq!(stored, local, "{file} is stored as it is");
    }
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(output.join("artifacts/task-result.json")).unwrap())
            .unwrap();
    assert_eq!(result, json!({ "answer": "fake" }));
    let summary = std::fs::read_to_string(output.join("logs/summary.log")).unwrap();
    for told in ["0.0125", "120", "30"] {
        assert!(summary.contains(told), "{told} is missing: {summary}");
    }
    let homes = std::fs::read_dir(sandbox.dir.join(".output/.agents")).map_or(0, Iterator::count);
    assert_eq!(homes, 0, "the home of the run goes with it");
}

#[test]
fn ag_05_files_go_after_they_were_stored_if_that_is_wanted() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["ok"]);
    sandbox.write("job.yaml", &job(""));
    let mut environment = claude.environment();
    environment.retain(|(name, _)| *name != "CLAUDE_BIN");
    // Settings come from files too, and paths may be relative in one that is named.
    sandbox.write("own.yaml", "CLAUDE_BIN: ./claude\nCLAUDE_MODEL: from-file\nDEFAULT_TIMEOUT: 30s\n");
    environment.push(("DELETE_FILES_AFTER_UPLOAD", "true"));
    let arguments = ["--config", "own.yaml", "run", "job.yaml", "--json"];
    let report = sandbox.run_with(&arguments, &environment).ok().json();
    assert_eq!(claude.flag(1, "--model").as_deref(), Some("from-file"));
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    assert!(!sandbox.dir.join(".output").join(&task).exists());
    let stored = files(&sandbox, &task);
    for file in ["artifacts/task-result.json", "logs/summary.log", "traces/session_trace.json"] {
        assert!(stored.contains(&format!("r1-a1/{file}")), "{stored:?}");
    }
}

/// AG-01: the child by hand, in the three ways to give it its input.
#[test]
fn ag_01_the_input_is_the_argument_or_a_file_or_in_its_usual_place() {
    for way in ["argument", "file", "place"] {
        let sandbox = Sandbox::new();
        let claude = FakeClaude::new(&sandbox, &["ok"]);
        let spec = json!({ "steps": [{ "name": "s", "prompt": "Look at {{store}}", "outputSchema": {
            "type": "object", "properties": { "answer": { "type": "string" } }
        } }] });
        let spec = sandbox.write("agent.json", &spec.to_string());
        let output = sandbox.dir.join("out");
        std::fs::create_dir_all(&output).unwrap();
        let input = json!({ "store": format!("by {way}") }).to_string();
        let file = sandbox.write("given.json", &input);
        let mut environment = claude.environment();
        environment.push(("TIDEMILL_AGENT_FILE", spec.to_str().unwrap()));
        environment.push(("TIDEMILL_OUTPUT_DIR", output.to_str().unwrap()));
        let mut arguments = vec!["agent-task", "req-1"];
        match way {
            "argument" => arguments.push(&input),
            "file" => environment.push(("INPUT_FILE", file.to_str().unwrap())),
            _ => {
                std::fs::create_dir_all(sandbox.dir.join("inputs")).unwrap();
                sandbox.write("inputs/input.json", &input);
            }
        }
        let ran = sandbox.run_with(&arguments, &environment).ok();
        assert!(
            claude.read(1, "prompt").contains(&format!("by {way}")),
            "{way}: {}",
            claude.read(1, "prompt")
        );
        let result = ran.out.lines().filter_map(|line| line.strip_prefix("@@tidemill "));
        let result = result
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|line| line["kind"] == "result");
        assert!(result.is_some(), "{way}: {ran:#?}");
    }
}

#[test]
fn ag_15_what_passes_is_tried_again_and_what_does_not_is_not() {
    for (plan, calls, status) in [
        (&["429", "429", "ok"][..], 3, "completed"),
        (&["529", "ok"], 2, "completed"),
        (&["401"], 1, "failed"),
        (&["400"], 1, "failed"),
        (&["wrong"], 1, "failed"),
    ] {
        let sandbox = Sandbox::new();
        let claude = FakeClaude::new(&sandbox, plan);
        sandbox.write("job.yaml", &job(""));
        let report = sandbox.run_with(&["run", "job.yaml", "--json"], &claude.environment()).json();
        assert_eq!((&report["status"], claude.calls()), (&json!(status), calls), "{plan:?}: {report}");
        let outcomes = events(&sandbox, "Task Completed").len() + events(&sandbox, "Task Failed").len();
        assert_eq!(outcomes, 1);
        if plan[0] == "401" {
            let failed = &events(&sandbox, "Task Failed")[0]["properties"];
            assert_eq!(failed["errorCategory"], "auth");
            assert_eq!(failed["usage"]["inputTokens"], 10, "a failure is paid for too: {failed}");
        }
        if plan[0] == "wrong" {
            assert_eq!(events(&sandbox, "Task Failed")[0]["properties"]["errorCategory"], "validation");
        }
    }
}

#[test]
fn ag_08_an_agent_that_ends_well_and_tells_nothing_fails() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["nothing"]);
    sandbox.write("job.yaml", &job("    agentAttempts: 1\n"));
    assert_eq!(sandbox.run_with(&["run", "job.yaml"], &claude.environment()).code, 1);
    assert_eq!(events(&sandbox, "Task Completed").len(), 0);
    assert_eq!(claude.calls(), 3, "each attempt of the task tries once");
}

#[test]
fn a_missing_cli_is_told_at_once_and_by_the_doctor() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", &job(""));
    let absent = [("CLAUDE_BIN", "/nonexistent/claude")];
    let ran = sandbox.run_with(&["run", "job.yaml", "--json"], &absent);
    assert_eq!((ran.code, &ran.json()["tasks"]["a"]["errorCategory"]), (1, &json!("not-found")), "{ran:#?}");
    let finding = |environment: &[(&str, &str)]| {
        let checks = sandbox.run_with(&["doctor", "--json"], environment).json()["checks"].clone();
        checks.as_array().unwrap().iter().find(|check| check["check"] == "claude").unwrap().clone()
    };
    let told = finding(&absent);
    assert_eq!(told["verdict"], "WARN");
    assert!(told["advice"].as_str().unwrap().contains("npm install"), "{told}");
    let claude = FakeClaude::new(&sandbox, &["ok"]);
    let told = finding(&claude.environment());
    assert_eq!(told["verdict"], "OK", "{told}");
    assert!(told["found"].as_str().unwrap().contains("9.9.9 (fake)"), "{told}");
    let told = finding(&claude.environment()[..2]);
    assert!(told["found"].as_str().unwrap().contains("nothing to log in with"), "{told}");
}

/// The server and all that starts processes for it are killed at once, as a machine without memory would do it.
#[test]
fn a_killed_server_leaves_no_process_of_an_agent_and_the_task_completes_once() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["hold"]);
    sandbox.write("job.yaml", &job("    timeout: 5m\n"));
    let server = sandbox.serve(&[], &claude.environment());
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let first = claude.processes(1);
    server.process.kill();
    all_gone(&first);

    let server = sandbox.serve(&[], &claude.environment());
    let second = claude.processes(2);
    // This time the spawner goes too, and no other server comes to clean up.
    kill_with_spawners(server.process);
    all_gone(&second);
    let server = sandbox.serve(&[], &claude.environment());

    claude.processes(3);
    claude.release();
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "held" }));
    all_gone(&claude.processes(3));
    server.stop().ok();
    assert_eq!(events(&sandbox, "Task Completed").len(), 1);
    assert_eq!(events(&sandbox, "Task Failed").len() + events(&sandbox, "Task Timeout").len(), 0);
}

/// Kills a server and what starts processes for it, so that neither can clean up after the other.
pub(crate) fn kill_with_spawners(server: Running) {
    let spawners = children_of(server.pid());
    assert!(!spawners.is_empty());
    server.signal(Signal::STOP);
    for pid in spawners {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, Signal::KILL).unwrap();
    }
    server.kill();
}

pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        rest.split_ascii_whitespace().nth(1).and_then(|field| field.parse().ok()) == Some(parent)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

#[test]
fn a_shutdown_waits_for_an_agent_or_gives_its_task_back() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["hold"]);
    sandbox.write("job.yaml", &job(""));
    let mut environment = claude.environment();
    environment.push(("SHUTDOWN_GRACE_MS", "0"));
    let server = sandbox.serve(&[], &environment);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let first = claude.processes(1);
    server.stop().ok();
    all_gone(&first);
    let view = sandbox.run(&["jobs", "get", &id, "--json"]).ok().json();
    assert_eq!(view["status"], "running", "it was given back: {view}");

    let server = sandbox.serve(&[], &claude.environment());
    claude.processes(2);
    server.process.signal(Signal::TERM);
    claude.release();
    let ended = server.process.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    let view = sandbox.run(&["jobs", "get", &id, "--json"]).ok().json();
    assert_eq!(view["status"], "completed", "there was time for it: {view}");
    assert_eq!(events(&sandbox, "Task Completed").len(), 1);
}

#[test]
fn ag_17_a_timeout_ends_the_agent_and_the_tools_that_hide_from_it() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["hold"]);
    // The step's own limit: a failure that is tried again, within the attempt and after it.
    sandbox.write(
        "job.yaml",
        &job("    timeout: 10ms\n    agentAttempts: 1\n")
            .replace("firstDelay: 1ms", "maxAttempts: 2, firstDelay: 1ms"),
    );
    assert_eq!(sandbox.run_with(&["run", "job.yaml"], &claude.environment()).code, 1);
    assert_eq!(claude.calls(), 2);
    let failed = events(&sandbox, "Task Processing Failed");
    assert!(failed.iter().all(|event| event["properties"]["errorCategory"] == "timeout"), "{failed:#?}");
    all_gone(&[claude.processes(1), claude.processes(2)].concat());

    // The task's limit: its end.
    sandbox.write("late.yaml", &job("    timeout: 5m\n  timeout: 4s\n").replace("name: asked", "name: late"));
    let ran = sandbox.run_with(&["run", "late.yaml"], &claude.environment());
    assert_eq!(ran.code, 1);
    let ends = events(&sandbox, "Task Timeout").len() + events(&sandbox, "Task Failed").len();
    assert_eq!(ends, 2, "one for each job");
    for call in 3..=claude.calls() {
        all_gone(&claude.processes(call));
    }
}

#[test]
fn a_retry_goes_on_with_the_session_when_the_agent_says_so() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["529", "429", "ok"]);
    // One try in each attempt, so that the session passes from attempt to attempt.
    sandbox.write("job.yaml", &job("    agentAttempts: 1\n    resumeSession: true\n"));
    let report = sandbox.run_with(&["run", "job.yaml", "--json"], &claude.environment()).ok().json();
    assert_eq!(report["tasks"]["a"]["attempt"], 3);
    let session = claude.flag(1, "--session-id").unwrap();
    for call in [2, 3] {
        assert_eq!(claude.flag(call, "--resume").as_deref(), Some(session.as_str()), "{call}");
    }
    let completed = events(&sandbox, "Task Completed");
    assert_eq!(completed[0]["properties"]["sessionId"], session.as_str());
}

#[test]
fn a_session_survives_the_death_of_its_worker() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["hold", "ok"]);
    sandbox.write("job.yaml", &job("    resumeSession: true\n"));
    let server = sandbox.serve(&[], &claude.environment());
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let first = claude.processes(1);
    // Its session is noted as soon as it is told.
    let homes = sandbox.dir.join(".output/.agents");
    eventually("the session is noted", || {
        let notes = std::fs::read_dir(&homes).into_iter().flatten().flatten();
        notes.filter(|entry| entry.path().extension().is_some_and(|end| end == "session")).count() == 1
    });
    server.process.kill();
    all_gone(&first);
    let server = sandbox.serve(&[], &claude.environment());
    sandbox.run(&["jobs", "watch", &id, "--json"]).ok();
    assert_eq!(claude.flag(2, "--resume"), claude.flag(1, "--session-id"));
    eventually("the home goes with the run", || std::fs::read_dir(&homes).map_or(0, Iterator::count) == 0);
    server.stop().ok();
}

#[test]
fn a_worker_elsewhere_runs_agents_too() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let claude = FakeClaude::new(&elsewhere, &["529", "ok"]);
    sandbox.write("asked.yaml", &format!(
        "name: ask\nprompt: 'Look at {{{{store}}}}'\noutputSchema: {SCHEMA}\nagentAttempts: 1\nresumeSession: true\nmaxCostUsd: 2.5\nretry: {{firstDelay: 1ms}}\n"
    ));
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, name: ask, input: {store: far}}\n");
    let admin = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let producer = sandbox.run(&["keys", "create", "--role", "producer"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let admin = [("TIDEMILL_API_KEY", admin.as_str())];
    sandbox.run_with(&["definitions", "create", "asked.yaml"], &admin).ok();
    let mut environment = claude.environment();
    environment.push(("TIDEMILL_API_KEY", &key));
    let mut worker = elsewhere.start(&["worker", "--server", &server.url], &environment);
    worker.wait_for("working for http://");
    // A producer that may not bring agents along names a stored one.
    let producer = [("TIDEMILL_API_KEY", producer.as_str())];
    let report = sandbox.run_with(&["submit", "job.yaml", "--watch", "--json"], &producer).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "fake" }));
    assert!(claude.read(1, "prompt").contains("far"));
    assert_eq!(claude.flag(1, "--max-budget-usd").as_deref(), Some("2.50"));
    assert_eq!(claude.flag(2, "--resume"), claude.flag(1, "--session-id"));
    for call in [1, 2] {
        let env = claude.read(call, "env");
        assert!(env.contains("ANTHROPIC_API_KEY=") && !env.contains("TIDEMILL_API_KEY"), "{env}");
    }
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    let stored = sandbox.run_with(&["tasks", "files", &task, "--json"], &admin).ok().out;
    assert!(stored.contains("r1-a2/traces/session_trace.json"), "{stored}");
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    server.stop().ok();
}

/// A worker that is killed on another machine: its lease runs out and the next one completes the task.
#[test]
fn a_killed_worker_elsewhere_leaves_no_process_and_the_task_is_taken_over() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let claude = FakeClaude::new(&elsewhere, &["hold"]);
    sandbox.write("job.yaml", &job(""));
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let environment: Vec<_> = claude.environment().into_iter().chain(SHORT).collect();
    let start = || {
        let mut worker = elsewhere.start(&["worker", "--server", &server.url], &environment);
        worker.wait_for("working for http://");
        worker
    };
    let worker = start();
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    let first = claude.processes(1);
    worker.kill();
    all_gone(&first);
    let worker = start();
    claude.processes(2);
    claude.release();
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "held" }));
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    server.stop().ok();
    assert_eq!(events(&sandbox, "Task Completed").len(), 1);
}
