//! The real CLI against a model server on loopback. `TIDEMILL_TEST_CLAUDE` names the program; without it these tests say
//! so and pass, but not in CI.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};
use tidemill_agent::stub_model::StubModel;

use crate::lab::{Ended, Lab, children_of, files_with, processes_with, signal, until};

const KEY: &str = "sk-ant-test-0123456789abcdef";

/// A lab with the real CLI, or `None` when there is none.
fn real(name: &str) -> Option<(Lab, StubModel)> {
    let program = crate::parts::claude()?;
    let stub = StubModel::start(Vec::new()).unwrap();
    let mut lab = Lab::new(name);
    lab.set("CLAUDE_BIN", program);
    lab.set("ANTHROPIC_BASE_URL", stub.url());
    lab.set("ANTHROPIC_API_KEY", KEY);
    let home = lab.dir.to_str().unwrap().to_owned();
    lab.set("HOME", home);
    lab.set("CLAUDE_MODEL", "claude-sonnet-4-5");
    // This machine may be busy.
    lab.set("DEFAULT_TIMEOUT", "60s");
    Some((lab, stub))
}

fn schema() -> Value {
    json!({ "type": "object", "properties": { "answer": { "type": "string" }, "n": { "type": "integer" } }, "required": ["answer", "n"] })
}

/// A prompt that tells the stub what to say.
fn prompt(mark: &Value) -> String {
    format!("Do the task. [[stub: {mark}]]")
}

fn error_code(ended: &Ended) -> (Option<&str>, &'static str) {
    (ended.error()["code"].as_str(), ended.category())
}

#[test]
fn a_task_with_tools_and_a_schema_completes() {
    let Some((lab, stub)) = real("tools") else { return };
    lab.step(&json!({
        "prompt": prompt(&json!([
            { "text": "I look.", "tools": [{ "name": "Bash", "input": { "command": "echo hello > made.txt; cat made.txt", "description": "d" } }] },
            { "structured": { "answer": "hello", "n": 1 }, "usage": { "cache_read_input_tokens": 900 } }
        ])),
        "outputSchema": schema(), "tools": ["Bash", "Read"]
    }));
    let ended = lab.go();
    let result = ended.result();
    assert_eq!(result["output"], json!({ "answer": "hello", "n": 1 }));
    assert_eq!(fs::read_to_string(ended.output.join("work/made.txt")).unwrap(), "hello\n");
    let mut offered = stub.requests()[0].tools().iter().map(|tool| (*tool).to_owned()).collect::<Vec<_>>();
    offered.sort();
    assert_eq!(offered, ["Bash", "Read", "StructuredOutput"]);
    let usage = &result["usage"];
    assert_eq!(
        (&usage["inputTokens"], &usage["outputTokens"], &usage["cacheReadTokens"]),
        (&json!(200), &json!(40), &json!(1_200))
    );
    assert_eq!(usage["cacheWriteTokens"], 20);
    assert!(usage["costUsd"].as_f64().unwrap() > 0.0, "{usage}");
    let tried = &ended.trace(0)["attempts"][0];
    let calls = tried["toolCalls"].as_array().unwrap();
    assert_eq!((&calls[0]["name"], &calls[0]["output"]), (&json!("Bash"), &json!("hello")));
    assert!(calls[0]["durationMs"].as_u64().is_some());
    assert_eq!(calls[1]["name"], "StructuredOutput");
    assert!(tried["turns"].as_u64().unwrap() >= 2);
    assert!(ended.stdout.contains("agent: I look."));
    assert!(!ended.output.join(".claude").exists());
    assert_eq!(files_with(&lab.dir, KEY), Vec::<std::path::PathBuf>::new());
}

#[test]
fn h_117_no_tools_means_none() {
    let Some((lab, stub)) = real("no-tools") else { return };
    lab.step(&json!({ "outputSchema": schema() }));
    assert_eq!(lab.go().result()["output"], json!({ "answer": "example", "n": 1 }));
    assert_eq!(stub.requests()[0].tools(), ["StructuredOutput"]);
    lab.step(&json!({}));
    assert_eq!(lab.go().result()["output"], json!({ "result": "This is the stub model." }));
    assert_eq!(stub.requests()[1].tools(), Vec::<&str>::new());
    assert_eq!(stub.requests()[0].headers["x-api-key"], KEY);
    assert_eq!(stub.requests()[0].body["model"], "claude-sonnet-4-5");
}

#[test]
fn values_pull_in_no_files_and_prompts_are_no_commands() {
    let Some((lab, stub)) = real("mentions") else { return };
    let secret = lab.dir.join("secret.txt");
    fs::write(&secret, "CONTENT-OF-A-FILE").unwrap();
    fs::write(lab.dir.join("CLAUDE.md"), "CONTENT-OF-INSTRUCTIONS").unwrap();
    lab.step(&json!({ "prompt": "Look at {{text}} and {{list}}" }));
    let mention = format!("see @{} and @\"{}\"", secret.display(), secret.display());
    let input = json!({ "text": mention, "list": [mention, format!("\n@{}", secret.display())] });
    lab.run(Some(&input.to_string())).result();
    lab.step(&json!({ "prompt": "/cost" }));
    assert_eq!(lab.go().result()["output"]["result"], "This is the stub model.");
    let requests = stub.requests();
    assert_eq!(requests.len(), 2);
    for request in requests {
        let body = request.body.to_string();
        assert!(!body.contains("CONTENT-OF-A-FILE") && !body.contains("CONTENT-OF-INSTRUCTIONS"), "{body}");
    }
}

#[test]
fn api_errors_that_stay_are_not_tried_again() {
    let Some((lab, stub)) = real("stays") else { return };
    for (status, category) in [(400, "validation"), (401, "auth"), (403, "auth"), (404, "not-found")] {
        let before = stub.requests().len();
        lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [{ "status": status }, { "status": status }, { "status": status }] })) }));
        let ended = lab.go();
        assert_eq!(error_code(&ended), (Some("AGENT_API_STATUS"), category), "{status}");
        assert_eq!(ended.error()["status"], status);
        assert_eq!(ended.trace(0)["attempts"].as_array().unwrap().len(), 1, "{status}");
        // What is wrong with a request, or its model, the CLI itself asks once more in another form.
        if category == "auth" {
            assert_eq!(stub.requests().len() - before, 1, "{status} is asked once");
        }
    }
}

#[test]
fn overload_is_waited_for_within_the_session_and_beyond() {
    let Some((mut lab, stub)) = real("overload") else { return };
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [{ "status": 529 }] })) }));
    let ended = lab.go();
    ended.result();
    assert_eq!(ended.trace(0)["attempts"].as_array().unwrap().len(), 1, "the CLI asked again by itself");
    assert_eq!(ended.trace(0)["attempts"][0]["apiRetries"][0]["status"], 529);
    lab.set("AGENT_MAX_ATTEMPTS", "2");
    let always: Vec<_> = (0..9).map(|_| json!({ "status": 529 })).collect();
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": always })) }));
    let before = stub.requests().len();
    let ended = lab.go();
    assert_eq!(error_code(&ended), (Some("AGENT_API_STATUS"), "server-error"));
    assert_eq!(ended.trace(0)["attempts"].as_array().unwrap().len(), 2);
    assert_eq!(stub.requests().len() - before, 4, "two requests per try");
}

#[test]
fn a_rate_limit_is_honoured() {
    let Some((mut lab, stub)) = real("rate-limit") else { return };
    let short = json!({ "status": 429, "retryAfter": 2 });
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [short] })) }));
    lab.go().result();
    let requests = stub.requests();
    let gap = requests[1].at.duration_since(requests[0].at).as_millis();
    assert!((2_000..12_000).contains(&gap), "{gap}");
    // Twelve seconds are ours to wait: the CLI is ended, and a new try begins after them.
    let long = json!({ "status": 429, "retryAfter": 12 });
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [long] })) }));
    let ended = lab.go();
    ended.result();
    let tries = ended.trace(0)["attempts"].as_array().unwrap().clone();
    assert_eq!((tries.len(), tries[0]["nextTryAfterMs"].as_u64()), (2, Some(12_000)));
    let requests = stub.requests();
    assert!(requests[3].at.duration_since(requests[2].at).as_millis() >= 12_000);
    // And an hour is the worker's.
    lab.set("AGENT_RETRY_DELAY", "10ms");
    let hour = json!({ "status": 429, "retryAfter": 3_600 });
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [hour] })) }));
    #[expect(clippy::disallowed_methods, reason = "the deadline is told in time of the wall")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    lab.set("TIDEMILL_DEADLINE_MS", (now + 120_000).to_string());
    let ended = lab.go();
    assert_eq!(error_code(&ended), (Some("AGENT_API_STATUS"), "rate-limit"));
    assert_eq!(ended.error()["retryAfterMs"], 3_600_000);
}

#[test]
fn connections_that_break_are_the_networks_fault() {
    let Some((mut lab, stub)) = real("network") else { return };
    lab.set("AGENT_MAX_ATTEMPTS", "1");
    let resets: Vec<_> = (0..9).map(|_| json!({ "fault": "reset" })).collect();
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": resets })) }));
    assert_eq!(error_code(&lab.go()), (Some("AGENT_API_UNREACHABLE"), "network"));
    drop(stub);
    lab.step(&json!({}));
    assert_eq!(error_code(&lab.go()), (Some("AGENT_API_UNREACHABLE"), "network"));
}

#[test]
fn a_stream_that_hangs_is_given_up_and_a_slow_one_is_not() {
    let Some((mut lab, stub)) = real("hang") else { return };
    lab.set("AGENT_IDLE_TIMEOUT", "8s");
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [{ "text": "never said", "fault": "hangMidStream" }] })) }));
    let ended = lab.go();
    ended.result();
    let tries = ended.trace(0)["attempts"].as_array().unwrap().clone();
    assert_eq!(tries[0]["outcome"]["error"]["code"], "AGENT_IDLE");
    assert_eq!(tries[0]["usage"]["inputTokens"], 100, "what was heard counts");
    assert_eq!((tries.len(), stub.requests().len()), (2, 2));
    // Seven events with a pause between them: longer than the silence that is allowed, and never silent.
    lab.step(&json!({ "prompt": prompt(&json!([{ "text": "slowly", "pauseMs": 1_500 }])) }));
    let began = Instant::now();
    let ended = lab.go();
    assert_eq!(ended.result()["output"]["result"], "slowly");
    assert!(began.elapsed().as_secs() >= 9);
    assert_eq!(ended.trace(0)["attempts"].as_array().unwrap().len(), 1);
    // No answer at all.
    lab.set("AGENT_MAX_ATTEMPTS", "1");
    lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": [{ "fault": "hang" }] })) }));
    assert_eq!(error_code(&lab.go()), (Some("AGENT_IDLE"), "timeout"));
}

#[test]
fn garbage_and_broken_streams_fail_and_are_told() {
    let Some((mut lab, _stub)) = real("garbage") else { return };
    lab.set("AGENT_MAX_ATTEMPTS", "1");
    for fault in ["garbage", "resetMidStream"] {
        let always: Vec<_> = (0..9).map(|_| json!({ "text": "x", "fault": fault })).collect();
        lab.step(&json!({ "prompt": prompt(&json!({ "inOrder": always })) }));
        let ended = lab.go();
        let told = error_code(&ended);
        let known = [(Some("AGENT_API_FAILED"), "server-error"), (Some("AGENT_API_UNREACHABLE"), "network")];
        assert!(known.contains(&told), "{fault}: {}", ended.error());
    }
}

#[test]
fn what_a_model_does_wrong_is_told_apart() {
    let Some((lab, _stub)) = real("wrong") else { return };
    let forever: Vec<_> = (0..20)
        .map(|_| json!({ "tools": [{ "name": "Bash", "input": { "command": "true", "description": "d" } }] }))
        .collect();
    let wrong: Vec<_> = (0..20).map(|_| json!({ "structured": { "answer": 7 } })).collect();
    let talk: Vec<_> = (0..20).map(|_| json!({ "text": "I would rather talk" })).collect();
    for (name, fields, code) in [
        (
            "turns",
            json!({ "prompt": prompt(&json!(forever)), "tools": ["Bash"], "maxTurns": 2 }),
            "AGENT_MAX_TURNS",
        ),
        (
            "wrong output",
            json!({ "prompt": prompt(&json!(wrong)), "outputSchema": schema() }),
            "AGENT_OUTPUT_RETRIES",
        ),
        ("no output", json!({ "prompt": prompt(&json!(talk)), "outputSchema": schema() }), "AGENT_NO_OUTPUT"),
        (
            "refusal",
            json!({ "prompt": prompt(&json!(vec![json!({ "text": "no", "stopReason": "refusal" }); 9])) }),
            "AGENT_REFUSED",
        ),
        (
            "nothing",
            json!({ "prompt": prompt(&json!(vec![json!({ "text": "" }); 9])), "maxTurns": 5 }),
            "AGENT_EMPTY_RESULT",
        ),
    ] {
        let mut step = json!({ "name": "only" });
        step.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        lab.task(&json!({ "steps": [step], "maxAttempts": 1 }));
        let ended = lab.go();
        assert_eq!(ended.error()["code"], code, "{name}: {}", ended.error());
        assert!(ended.error()["usage"]["inputTokens"].as_u64().unwrap() > 0, "{name}");
    }
}

#[test]
fn money_has_a_limit() {
    let Some((lab, _stub)) = real("money") else { return };
    let forever: Vec<_> = (0..20)
        .map(|_| json!({ "tools": [{ "name": "Bash", "input": { "command": "true", "description": "d" } }] }))
        .collect();
    let step =
        json!({ "name": "only", "prompt": prompt(&json!(forever)), "tools": ["Bash"], "maxTurns": 20 });
    lab.task(&json!({ "steps": [step], "maxCostUsd": 0.003 }));
    let ended = lab.go();
    assert_eq!(error_code(&ended), (Some("AGENT_MAX_COST"), "validation"));
    assert!(ended.error()["usage"]["costUsd"].as_f64().unwrap() >= 0.003);
}

#[test]
fn without_credentials_it_says_what_to_do() {
    let Some((mut lab, _stub)) = real("login") else { return };
    lab.unset("ANTHROPIC_API_KEY");
    lab.step(&json!({}));
    let ended = lab.go();
    assert_eq!(error_code(&ended), (Some("AGENT_NOT_LOGGED_IN"), "auth"));
    assert!(ended.error()["message"].as_str().unwrap().contains("set ANTHROPIC_API_KEY"));
}

#[test]
fn hooks_of_the_definition_run_and_can_deny() {
    let Some((lab, _stub)) = real("hooks") else { return };
    let deny = format!("cat > {}/hook.json; echo no >&2; exit 2", lab.dir.display());
    lab.task(&json!({
        "steps": [{ "name": "only", "tools": ["Bash"], "prompt": prompt(&json!([
            { "tools": [{ "name": "Bash", "input": { "command": "touch made", "description": "d" } }] }, { "text": "ended" }
        ])) }],
        "settings": { "hooks": { "PreToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command", "command": deny }] }] } }
    }));
    let ended = lab.go();
    assert_eq!(ended.result()["output"]["result"], "ended");
    assert!(!ended.output.join("work/made").exists());
    let hook: Value = serde_json::from_str(&fs::read_to_string(lab.dir.join("hook.json")).unwrap()).unwrap();
    assert_eq!(hook["tool_name"], "Bash");
    assert_eq!(ended.trace(0)["attempts"][0]["toolCalls"][0]["isError"], true);
}

#[test]
fn tools_that_are_not_allowed_are_denied() {
    let Some((lab, _stub)) = real("denied") else { return };
    lab.step(&json!({ "tools": ["Bash(ls:*)"], "prompt": prompt(&json!([
        { "tools": [{ "name": "Bash", "input": { "command": "touch made", "description": "d" } }] }, { "text": "ended" }
    ])) }));
    let ended = lab.go();
    ended.result();
    // Making a file in the own directory may count as an edit; what counts is that the call is told.
    let denied = ended.trace(0)["attempts"][0]["permissionDenials"].as_array().unwrap().len();
    assert_eq!(denied == 0, ended.output.join("work/made").exists(), "{}", ended.trace(0));
}

#[test]
fn a_step_that_takes_too_long_tells_what_it_cost_and_leaves_nothing() {
    let Some((lab, _stub)) = real("too-long") else { return };
    let step = json!({ "name": "only", "tools": ["Bash"], "timeout": "6s", "prompt": prompt(&json!([
        { "tools": [{ "name": "Bash", "input": { "command": "while true; do /bin/sleep 0.6543; done", "description": "d" } }] }
    ])) });
    lab.task(&json!({ "steps": [step], "maxAttempts": 1 }));
    let ended = lab.go();
    assert_eq!(error_code(&ended), (Some("AGENT_TIMEOUT"), "timeout"));
    assert!(ended.error()["usage"]["costUsd"].as_f64().unwrap() > 0.0, "{}", ended.error());
    assert_eq!(processes_with("0.6543"), Vec::<u32>::new());
}

#[test]
fn told_to_stop_it_leaves_no_process() {
    let Some((lab, _stub)) = real("stopped") else { return };
    let ready = lab.dir.join("ready");
    lab.step(&json!({ "tools": ["Bash"], "prompt": prompt(&json!([
        { "tools": [{ "name": "Bash", "input": { "command": format!("touch {}; while true; do /bin/sleep 0.7654; done", ready.display()), "description": "d" } }] }
    ])) }));
    let attempt = lab.start(Some("{}"));
    until("the tool", || ready.exists());
    signal(attempt.child.id(), "TERM");
    let ended = attempt.wait();
    assert_eq!(ended.status.code(), Some(143), "{}", ended.stdout);
    let error = ended.records.last().unwrap();
    assert_eq!((&error["code"], &error["usage"]["inputTokens"]), (&json!("AGENT_STOPPED"), &json!(100)));
    assert_eq!(processes_with("0.7654"), Vec::<u32>::new());
    assert_eq!(processes_with(lab.dir.to_str().unwrap()), Vec::<u32>::new());
    assert_eq!(ended.trace(0)["attempts"][0]["toolCalls"][0]["name"], "Bash");
}

#[test]
fn a_further_attempt_resumes_the_session_and_pays_only_the_rest() {
    let Some((mut lab, stub)) = real("resume") else { return };
    let home = lab.dir.join("home");
    fs::create_dir_all(&home).unwrap();
    lab.set("TIDEMILL_AGENT_HOME", home.to_str().unwrap());
    let said = json!({ "inOrder": [
        { "tools": [{ "name": "Bash", "input": { "command": "echo first > made.txt", "description": "d" } }] },
        { "status": 529 }, { "status": 529 }, { "status": 529 }, { "status": 529 },
        { "tools": [{ "name": "Bash", "input": { "command": "cat made.txt", "description": "d" } }] },
        { "structured": { "answer": "first", "n": 1 } }
    ] });
    let step =
        json!({ "name": "only", "tools": ["Bash"], "prompt": prompt(&said), "outputSchema": schema() });
    lab.task(&json!({ "steps": [step], "maxAttempts": 2, "resumeSession": true }));
    let first = lab.go();
    assert_eq!(error_code(&first), (Some("AGENT_API_STATUS"), "server-error"));
    let before = stub.requests().len();
    let second = lab.go();
    assert_eq!(second.result()["output"], json!({ "answer": "first", "n": 1 }));
    assert_eq!(second.result()["sessionId"], first.error()["sessionId"]);
    let resumed = &stub.requests()[before];
    let texts = resumed.texts();
    assert!(texts.contains("Do the task.") && texts.contains("You were interrupted."), "{texts}");
    assert!(
        resumed.body["messages"].to_string().contains("echo first > made.txt"),
        "the work done before is there"
    );
    assert_eq!(second.trace(0)["attempts"][0]["toolCalls"][0]["output"], "first", "and so are the files");
    let usage = &second.result()["usage"];
    assert_eq!(usage["inputTokens"], 200, "only the two requests of this attempt: {usage}");
    let cost = usage["costUsd"].as_f64().unwrap();
    let first_cost = first.error()["usage"]["costUsd"].as_f64().unwrap();
    assert!(cost > first_cost && cost < 2.5 * first_cost, "{cost} after {first_cost}");
    // Elsewhere the session is not there, and the task begins anew.
    let other = lab.dir.join("other");
    lab.set("TIDEMILL_AGENT_HOME", other.to_str().unwrap());
    lab.set("TIDEMILL_AGENT_SESSION", second.result()["sessionId"].as_str().unwrap());
    lab.go().result();
}

#[test]
fn todos_are_followed() {
    let Some((lab, _stub)) = real("todos") else { return };
    lab.step(&json!({ "tools": ["TaskCreate", "TaskUpdate", "Bash"], "prompt": prompt(&json!([
        { "tools": [{ "name": "TaskCreate", "input": { "subject": "read it", "description": "all of it" } }] },
        { "tools": [{ "name": "TaskUpdate", "input": { "taskId": "1", "status": "in_progress" } }] },
        { "tools": [{ "name": "TaskUpdate", "input": { "taskId": "1", "status": "completed" } }] },
        { "text": "ended" }
    ])) }));
    let ended = lab.go();
    ended.result();
    let todos = &ended.trace(0)["attempts"][0]["todos"];
    assert_eq!(
        (&todos[0]["content"], &todos[0]["status"]),
        (&json!("read it"), &json!("completed")),
        "{}",
        ended.trace(0)
    );
    assert!(todos[0]["inProgressMs"].as_u64().is_some());
}

#[test]
fn a_cli_that_is_killed_leaves_no_tool_behind_and_is_tried_again() {
    let Some((lab, _stub)) = real("killed") else { return };
    let ready = lab.dir.join("ready");
    let endless = format!("touch {}; while true; do /bin/sleep 0.8765; done", ready.display());
    lab.step(&json!({ "tools": ["Bash"], "prompt": prompt(&json!({ "inOrder": [
        { "tools": [{ "name": "Bash", "input": { "command": endless, "description": "d" } }] }, { "text": "the second time" }
    ] })) }));
    let attempt = lab.start(Some("{}"));
    until("the tool", || ready.exists());
    let cli = children_of(attempt.child.id());
    assert_eq!(cli.len(), 1);
    signal(cli[0], "KILL");
    let ended = attempt.wait();
    assert_eq!(ended.result()["output"]["result"], "the second time");
    assert_eq!(ended.trace(0)["attempts"][0]["outcome"]["error"]["code"], "AGENT_CLI_KILLED");
    assert!(ended.stdout.contains("processes were left behind and killed"), "{}", ended.stdout);
    assert_eq!(processes_with("0.8765"), Vec::<u32>::new());
}

#[test]
fn several_tools_of_one_turn_are_told_apart() {
    let Some((mut lab, _stub)) = real("parallel") else { return };
    // Another way to log in.
    lab.unset("ANTHROPIC_API_KEY");
    lab.set("ANTHROPIC_AUTH_TOKEN", KEY);
    let bash = |command: &str| json!({ "name": "Bash", "input": { "command": command, "description": "d" } });
    lab.step(&json!({ "tools": ["Bash"], "prompt": prompt(&json!([{ "tools": [bash("echo one"), bash("echo two")] }, { "text": "ended" }])) }));
    let ended = lab.go();
    ended.result();
    let calls = ended.trace(0)["attempts"][0]["toolCalls"].clone();
    let outputs: Vec<_> =
        calls.as_array().unwrap().iter().map(|call| call["output"].as_str().unwrap()).collect();
    assert_eq!(outputs, ["one", "two"]);
}

#[test]
fn h_118_permissions_are_skipped_on_purpose_only() {
    let Some((mut lab, _stub)) = real("skip") else { return };
    let bash = json!({ "name": "Bash", "input": { "command": "touch /tmp/../tmp/x-$$ && rm /tmp/x-$$ && echo done", "description": "d" } });
    let step = json!({ "tools": ["Bash(ls:*)"], "prompt": prompt(&json!([{ "tools": [bash] }, { "text": "ended" }])) });
    lab.step(&step);
    let ended = lab.go();
    ended.result();
    assert_eq!(ended.trace(0)["attempts"][0]["permissionDenials"].as_array().unwrap().len(), 1);
    lab.set("CLAUDE_SKIP_PERMISSIONS", "true");
    // For tests as root, which the CLI refuses otherwise.
    lab.set("IS_SANDBOX", "1");
    let ended = lab.go();
    ended.result();
    assert_eq!(ended.trace(0)["attempts"][0]["toolCalls"][0]["output"], "done");
    assert!(ended.stdout.contains("agent: CLAUDE_SKIP_PERMISSIONS is set"));
}

#[test]
fn a_long_path_does_no_harm() {
    let Some((mut lab, _stub)) = real("path") else { return };
    let output = lab.dir.join("x".repeat(150)).join("y".repeat(150));
    lab.set("TIDEMILL_OUTPUT_DIR", output.to_str().unwrap());
    lab.step(&json!({ "tools": ["Bash"], "prompt": prompt(&json!([
        { "tools": [{ "name": "Bash", "input": { "command": "echo hello", "description": "d" } }] }, { "text": "ended" }
    ])) }));
    let ended = lab.go();
    assert_eq!(ended.result()["output"]["result"], "ended");
    assert!(output.join("artifacts/task-result.json").exists());
}
