//! Agents with the real Claude CLI against a model server on loopback. `TIDEMILL_TEST_CLAUDE` names the program; without
//! it these tests say so and pass, but not in CI.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};
use tidemill_agent::stub_model::StubModel;

use crate::agent::kill_with_spawners;
use crate::parts;
use crate::sandbox::{Sandbox, eventually};

struct Lab {
    sandbox: Sandbox,
    stub: StubModel,
    environment: Vec<(&'static str, String)>,
}

impl Lab {
    /// A sandbox with the real CLI, or `None` when there is none.
    fn real() -> Option<Self> {
        let program = parts::claude()?;
        let stub = StubModel::start(Vec::new()).unwrap();
        let environment = vec![
            ("CLAUDE_BIN", program),
            ("ANTHROPIC_BASE_URL", stub.url()),
            ("ANTHROPIC_API_KEY", "sk-ant-real-cli-0123456789".to_owned()),
            ("CLAUDE_MODEL", "claude-sonnet-4-5".to_owned()),
            ("AGENT_RETRY_DELAY", "10".to_owned()),
        ];
        Some(Self { sandbox: Sandbox::new(), stub, environment })
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        self.environment.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// A job of one agent to whom the model says what is marked.
    fn job(&self, mark: &Value, agent: &Value, task: &Value) {
        let mut agent = agent.clone();
        agent["prompt"] = json!(format!("Do the task. [[stub: {mark}]]"));
        agent["outputSchema"] = json!({
            "type": "object", "required": ["answer"], "properties": { "answer": { "type": "string" } }
        });
        let mut entry = json!({ "taskId": "a", "agent": agent, "retry": { "firstDelay": 1, "maxDelay": 1 } });
        entry.as_object_mut().unwrap().extend(task.as_object().unwrap().clone());
        self.sandbox.write("job.json", &json!({ "name": "real", "tasks": [entry] }).to_string());
    }

    fn run(&self) -> Value {
        self.sandbox.run_with(&["run", "job.json", "--json"], &self.environment()).json()
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let ran = self.sandbox.run(&["events", "query", "--type", kind, "--json"]).ok();
        ran.json()["items"].as_array().unwrap().clone()
    }

    fn trace(&self, report: &Value, attempt: u32) -> Value {
        let task = format!("{}_a", report["jobId"].as_str().unwrap());
        let path = format!("r1-a{attempt}/traces/session_trace.json");
        self.sandbox.run(&["tasks", "files", &task, &path]).ok().json()
    }

    /// The processes that an agent of this sandbox runs, as far as they go by what they were started with.
    fn processes(&self) -> Vec<String> {
        let mark = self.sandbox.dir.to_str().unwrap();
        let read = |pid: &str, file: &str| {
            let bytes = std::fs::read(Path::new("/proc").join(pid).join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
        let all = pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
        let found = all.filter(|pid| read(pid, "environ").contains(&format!("CLAUDE_CONFIG_DIR={mark}")));
        found.map(|pid| format!("{pid} {}", read(&pid, "cmdline"))).collect()
    }

    fn all_gone(&self) {
        eventually("the end of the CLI and its tools", || self.processes().is_empty());
    }

    /// Waits until a tool hangs.
    fn until_a_tool_runs(&self) {
        eventually("the start of a tool", || {
            self.processes().iter().any(|process| process.contains(" tail -f /dev/null"))
        });
        assert!(self.processes().len() >= 2, "the CLI and its tool: {:#?}", self.processes());
    }
}

/// What never ends. The CLI itself refuses to sleep for long.
const HANG: &str = "tail -f /dev/null";

fn bash(command: &str) -> Value {
    json!({ "tools": [{ "name": "Bash", "input": { "command": command, "description": "d" } }] })
}

#[test]
fn ag_02_14_18_an_agent_with_tools_completes_with_its_usage_and_its_trace() {
    let Some(lab) = Lab::real() else { return };
    let mark = json!([bash("echo hello; touch made.txt"), { "structured": { "answer": "hello" } }]);
    lab.job(&mark, &json!({ "tools": ["Bash(echo:*)", "Bash(touch:*)"], "maxTurns": 7 }), &json!({}));
    let report = lab.run();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "hello" }), "{report}");
    let used = &lab.events("Task Completed")[0]["properties"]["usage"];
    assert_eq!((&used["inputTokens"], &used["outputTokens"]), (&json!(200), &json!(40)), "{used}");
    assert!(used["costUsd"].as_f64().unwrap() > 0.0 && used["turns"].as_u64().unwrap() >= 2, "{used}");
    let calls = lab.trace(&report, 1)[0]["attempts"][0]["toolCalls"].clone();
    assert_eq!((&calls[0]["name"], &calls[0]["output"]), (&json!("Bash"), &json!("hello")), "{calls}");
    lab.all_gone();
}

/// What `examples/agents/run` does without a key.
#[test]
fn the_example_completes_against_the_stub() {
    let Some(mut lab) = Lab::real() else { return };
    if !parts::has_python() {
        return;
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let rules = std::fs::read_to_string(examples.join("agents/stub-rules.json")).unwrap();
    let rules = rules.replace("@SITE@", examples.join("agents/site").to_str().unwrap());
    lab.stub = StubModel::start(serde_json::from_str(&rules).unwrap()).unwrap();
    lab.environment.retain(|(name, _)| *name != "ANTHROPIC_BASE_URL");
    lab.environment.push(("ANTHROPIC_BASE_URL", lab.stub.url()));
    std::os::unix::fs::symlink(&examples, lab.sandbox.dir.join("examples")).unwrap();
    let ran = lab.sandbox.run_with(&["run", "examples/agents/job.yaml", "--json"], &lab.environment()).ok();
    let tasks = &ran.json()["tasks"];
    assert_eq!(tasks["tags"]["output"]["tags"], json!(["lamps", "lanterns", "brass", "handmade"]));
    let compiled = &tasks["compile"]["output"];
    assert_eq!(compiled["fonts"], json!(["Source Serif 4", "Libre Franklin", "IBM Plex Mono"]), "{tasks}");
    let second = lab.stub.requests().iter().filter(|request| request.texts().contains("font-family")).count();
    assert!(second > 0, "the agent has read the style sheet with its tool");
}

#[test]
fn a_killed_server_leaves_neither_the_cli_nor_its_tools_and_the_task_completes_once() {
    let Some(lab) = Lab::real() else { return };
    let mark =
        json!({ "inOrder": [bash(HANG), bash(HANG), bash(HANG), { "structured": { "answer": "fourth" } }] });
    lab.job(&mark, &json!({ "tools": ["Bash"], "timeout": "10m" }), &json!({ "timeout": "20m" }));
    let server = lab.sandbox.serve(&[], &lab.environment());
    let id = lab.sandbox.run(&["submit", "job.json"]).ok().out.trim().to_owned();
    lab.until_a_tool_runs();
    server.process.kill();
    lab.all_gone();

    // An end in order, without time for the task.
    let mut environment = lab.environment();
    environment.push(("SHUTDOWN_GRACE_MS", "0"));
    let server = lab.sandbox.serve(&[], &environment);
    lab.until_a_tool_runs();
    server.stop().ok();
    lab.all_gone();

    // With all that starts processes for it, and without another server that would clean up.
    let server = lab.sandbox.serve(&[], &lab.environment());
    lab.until_a_tool_runs();
    kill_with_spawners(server.process);
    lab.all_gone();

    let server = lab.sandbox.serve(&[], &lab.environment());
    let report = lab.sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "fourth" }));
    server.stop().ok();
    lab.all_gone();
    assert_eq!(lab.events("Task Completed").len(), 1);
    assert_eq!(lab.events("Task Failed").len() + lab.events("Task Timeout").len(), 0);
}

#[test]
fn ag_17_a_timeout_ends_the_tool_that_has_a_group_of_its_own() {
    let Some(lab) = Lab::real() else { return };
    let mark = json!({ "inOrder": [bash(&format!("trap '' TERM INT HUP; {HANG}; {HANG}")), { "structured": { "answer": "second" } }] });
    lab.job(&mark, &json!({ "tools": ["Bash"], "timeout": "6s", "agentAttempts": 1 }), &json!({}));
    let report = lab.run();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "second" }), "the next attempt: {report}");
    let failed = lab.events("Task Processing Failed");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["properties"]["errorCategory"], "timeout");
    assert!(
        failed[0]["properties"]["usage"]["inputTokens"].as_u64() > Some(0),
        "it is paid for: {}",
        failed[0]
    );
    lab.all_gone();
}

#[test]
fn ag_15_two_refusals_for_haste_and_then_a_result() {
    let Some(lab) = Lab::real() else { return };
    let busy = json!({ "status": 429, "retryAfter": 1 });
    // The CLI itself asks once more in each try.
    let mark = json!({ "inOrder": [busy, busy, busy, busy, { "structured": { "answer": "at last" } }] });
    lab.job(&mark, &json!({}), &json!({}));
    let report = lab.run();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "at last" }), "{report}");
    assert_eq!(report["tasks"]["a"]["attempt"], 1, "within one attempt");
    assert_eq!(lab.stub.requests().len(), 5);
}

#[test]
fn a_retry_resumes_the_session_instead_of_paying_again() {
    let Some(lab) = Lab::real() else { return };
    let down = json!({ "status": 529 });
    let mark =
        json!({ "inOrder": [bash("echo found-it"), down, down, { "structured": { "answer": "resumed" } }] });
    lab.job(&mark, &json!({ "tools": ["Bash"], "agentAttempts": 1, "resumeSession": true }), &json!({}));
    let report = lab.run();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "resumed" }), "{report}");
    assert_eq!(report["tasks"]["a"]["attempt"], 2);
    let requests = lab.stub.requests();
    let last = requests.last().unwrap();
    assert!(last.texts().contains("found-it"), "what the first attempt found is there: {}", last.texts());
    let sessions: Vec<_> = ["Task Processing Failed", "Task Completed"]
        .map(|kind| lab.events(kind)[0]["properties"]["sessionId"].clone())
        .to_vec();
    assert!(sessions[0].is_string() && sessions[0] == sessions[1], "{sessions:?}");
}

#[test]
fn se_07_what_the_shell_of_an_agent_shows_of_its_environment_is_not_kept() {
    let Some(mut lab) = Lab::real() else { return };
    let secrets = ["sk-ant-real-cli-0123456789", "oauth-real-cli-NeverSeen", "AKIAREALCLINEVERSEEN"];
    lab.environment.push(("CLAUDE_CODE_OAUTH_TOKEN", secrets[1].to_owned()));
    lab.environment.push(("CLAUDE_TEST_KEY", secrets[2].to_owned()));
    let mark = json!([
        bash("env; env > leaked.txt; mkdir -p \"$PWD/../artifacts\"; env > \"$PWD/../artifacts/leaked.txt\""),
        { "structured": { "answer": format!("I saw {}", secrets.join(" and ")) } }
    ]);
    lab.job(&mark, &json!({ "tools": ["Bash"] }), &json!({}));
    // The job itself holds the secrets, so that the model can repeat them; what follows from it must not.
    let report = lab.run();
    let answer = report["tasks"]["a"]["output"]["answer"].as_str().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(answer, "I saw [REDACTED] and [REDACTED] and [REDACTED]");
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    let list = lab.sandbox.run(&["tasks", "files", &task, "--json"]).ok().json();
    let mut seen = 0;
    for item in list["items"].as_array().unwrap() {
        let file = lab.sandbox.run(&["tasks", "files", &task, item["path"].as_str().unwrap()]).ok().out;
        seen += file.matches("[REDACTED]").count();
        for secret in secrets {
            assert!(!file.contains(secret), "{secret} in {item}: {file}");
        }
    }
    assert!(seen > 3, "the shell has shown them");
    for kind in ["Task Completed", "Task Heartbeat", "Task Processing Started"] {
        let text = serde_json::to_string(&lab.events(kind)).unwrap();
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
}

#[test]
fn a_worker_elsewhere_drives_the_cli() {
    let Some(lab) = Lab::real() else { return };
    let elsewhere = Sandbox::new();
    lab.job(&json!({ "structured": { "answer": "from afar" } }), &json!({}), &json!({}));
    let server = lab.sandbox.serve(&["--no-worker"], &[]);
    let mut worker = elsewhere.start(&["worker", "--server", &server.url], &lab.environment());
    worker.wait_for("working for http://");
    let report = lab.sandbox.run(&["submit", "job.json", "--watch", "--json"]).ok().json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "from afar" }));
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().code, 0);
    server.stop().ok();
}
