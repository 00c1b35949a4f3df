//! In the browser: submitting by hand, definitions, workers, and what an agent did.

use serde_json::json;

use crate::browser::Stage;
use crate::browser_axe::Axe;
use crate::browser_chromium::Chromium;
use crate::sandbox::eventually;

const WRONG: &str = "name: by hand\ntasks:\n- taskId: one\n  run: echo one\n  timeout: soon\n";
const RIGHT: &str = "name: by hand\ntasks:\n- {taskId: one, run: echo one}\n- {taskId: two, run: echo two, dependsOn: [one]}\n";
/// A task that leaves a trace, as an agent does.
const TRACED: &str = "\
name: an agent's trace
tasks:
- taskId: research
  run: >-
    mkdir -p \"$TIDEMILL_OUTPUT_DIR/traces\" && cp trace.json \"$TIDEMILL_OUTPUT_DIR/traces/session_trace.json\" &&
    echo '@@tidemill {\"kind\":\"result\",\"output\":{\"words\":120},\"usage\":{\"inputTokens\":15200,\"outputTokens\":1800,\"costUsd\":0.42}}'
";

/// Types a job that is wrong, then one that is right, then chooses a file and sends it.
pub(crate) fn submit_by_hand(stage: &Stage, browser: &mut Chromium, axe: Option<&mut Axe>) {
    browser.open(&format!("{}/submit", stage.url));
    browser.fill("#job-text", WRONG);
    browser.wait("document.querySelector('#checked')?.innerText.includes('tasks[0].timeout')");
    let told = browser.eval("document.querySelector('#checked').innerText");
    assert!(told.as_str().unwrap().contains("line 5, column 12"), "{told}");
    if let Some(axe) = axe {
        axe.judge(browser, "submit, with a problem");
    }
    browser.eval("document.querySelector('#checked button[data-line]').click()");
    let chosen = "(() => { const e = document.querySelector('#job-text'); return e.value.slice(e.selectionStart, e.selectionEnd); })()";
    assert_eq!(browser.eval(chosen), "soon", "the place of the problem is chosen");
    browser.fill("#job-text", RIGHT);
    browser.wait("document.querySelector('#checked .good-box')");
    let file = stage.sandbox.dir.join("chosen.yaml");
    let text = format!("{}- {{taskId: three, run: echo three}}\n", RIGHT.replace("by hand", "from a file"));
    std::fs::write(&file, text).unwrap();
    let input = json!({"expression": "document.querySelector('input[type=file]')"});
    let input = browser.call("Runtime.evaluate", &input)["result"]["objectId"].clone();
    browser.call("DOM.setFileInputFiles", &json!({"files": [file], "objectId": input}));
    browser.wait("document.querySelector('#checked .good-box')?.innerText.includes('3 tasks')");
    let text = browser.eval("document.querySelector('#job-text').value");
    assert!(text.as_str().unwrap().contains("from a file"), "{text}");
    browser.follow("button[value=submit]");
    let path = browser.eval("location.pathname").as_str().unwrap().to_owned();
    let job = path.strip_prefix("/jobs/").unwrap().to_owned();
    eventually("the end of the job", || stage.status(&job) == "completed");
}

/// Definitions in two versions, an agent's trace, and the pages of them.
pub(crate) fn more_to_look_at(stage: &Stage, browser: &mut Chromium) -> Vec<(&'static str, String)> {
    for (deed, command) in [("create", "echo first"), ("update", "echo second; sleep 1")] {
        let draft = json!({
            "name": "load-orders", "runner": "command", "command": command, "timeout": "5m",
            "description": "Loads the orders of a day into the warehouse", "labels": {"team": "warehouse"},
        });
        stage.sandbox.write("definition.json", &draft.to_string());
        stage.run(&["definitions", deed, "definition.json"]);
    }
    let bad = "<script>alert(1)</script>";
    let call = |name: &str, at: u64, input: serde_json::Value, output: &str, is_error: bool| {
        json!({
            "id": at.to_string(), "name": name, "startedAt": 1_763_238_912_345_u64 + at, "durationMs": 120 + at,
            "isError": is_error, "input": input, "output": output,
        })
    };
    let trace = json!([
        {
            "requestId": "x", "name": "find sources", "status": "completed", "model": "claude-sonnet-4-5", "maxTurns": 30,
            "startedAt": 1_763_238_912_345_u64, "durationMs": 48_200,
            "usage": {"inputTokens": 12_000, "outputTokens": 1_200, "cacheReadTokens": 90_000, "cacheWriteTokens": 8_000, "turns": 7, "costUsd": 0.31},
            "attempts": [{
                "number": 1, "turns": 7, "durationMs": 48_200, "outcome": {"status": "completed"}, "exit": "exit code 0",
                "toolCalls": [
                    call("WebSearch", 10, json!({"query": "county records 2026"}), "12 results", false),
                    call("Bash", 2_000, json!({"command": format!("grep -r orders . # {bad}")}), bad, true),
                    call("Read", 5_000, json!({"file_path": "/srv/orders/orders.csv"}), "id,amount\n1,20\n2,30", false),
                ],
                "todos": [{"content": "find the records", "status": "completed"}, {"content": "compare them", "status": "in_progress"}],
            }],
        },
        {
            "requestId": "x", "name": "write the summary", "status": "failed", "model": "claude-sonnet-4-5", "maxTurns": 10,
            "startedAt": 1_763_238_962_345_u64, "durationMs": 9_000,
            "usage": {"inputTokens": 3_200, "outputTokens": 600, "turns": 2, "costUsd": 0.11},
            "attempts": [
                {"number": 1, "durationMs": 4_000, "outcome": {"status": "failed", "error": {"code": "AGENT_API_STATUS", "category": "server-error", "message": "overloaded"}}, "toolCalls": []},
                {"number": 2, "durationMs": 5_000, "costIsEstimated": true, "usage": {"costUsd": 0.05}, "outcome": {"status": "failed", "error": {"code": "AGENT_MAX_TURNS", "category": "validation", "message": bad}}, "toolCalls": []},
            ],
        },
    ]);
    stage.sandbox.write("trace.json", &trace.to_string());
    let job = stage.submit("traced.yaml", TRACED);
    eventually("the end of the job", || stage.status(&job) == "completed");
    let task = format!("{job}_research");
    browser.open(&format!("{}/tasks/{task}", stage.url));
    assert!(browser.eval("document.querySelector(\"#files a[href*='/trace/']\") !== null") == true);
    browser.follow("#trace a[href*='/trace/']");
    let shown = browser.eval("document.body.innerText");
    for text in ["find sources", "WebSearch", "write the summary", "AGENT_MAX_TURNS", bad, "$0.42"] {
        assert!(shown.as_str().unwrap().contains(text), "{text} is not in {shown}");
    }
    let trace = browser.eval("location.pathname").as_str().unwrap().to_owned();
    vec![
        ("submit", "/submit".to_owned()),
        ("tasks", "/tasks".to_owned()),
        ("tasks-failed", "/tasks?state=failed".to_owned()),
        ("definitions", "/definitions".to_owned()),
        ("definition", "/definitions/load-orders".to_owned()),
        ("definition-earlier", "/definitions/load-orders?version=1".to_owned()),
        ("workers", "/workers".to_owned()),
        ("trace", trace),
        ("task-traced", format!("/tasks/{task}")),
    ]
}

/// The server's own worker has the task that runs.
pub(crate) fn see_who_works(stage: &Stage, browser: &mut Chromium) {
    browser.open(&format!("{}/workers", stage.url));
    browser.wait("document.querySelector('#list .state[data-state=present]')");
    let shown = browser.eval("document.querySelector('#list').innerText");
    for text in ["in this server", "parse", " of "] {
        assert!(shown.as_str().unwrap().contains(text), "{text} is not in {shown}");
    }
    browser.follow("#list td a[href^='/tasks/']");
    assert_eq!(browser.eval("document.querySelector('#task .state').dataset.state"), "processing");
}
