//! What comes of a task that completes.

use std::fs;

use serde_json::{Value, json};

use crate::lab::{Lab, files_with, prints, succeeds, success};

#[test]
fn ag_01_the_input_is_an_argument_a_file_or_in_its_place() {
    let mut lab = Lab::new("input");
    lab.step(&json!({ "prompt": "from {{from}}" }));
    lab.play(&succeeds(&json!({})));
    lab.run(Some(r#"{"from":"argument"}"#)).result();
    fs::create_dir_all(lab.dir.join("inputs")).unwrap();
    fs::write(lab.dir.join("inputs/input.json"), r#"{"from":"place"}"#).unwrap();
    lab.run(None).result();
    fs::write(lab.dir.join("own.json"), r#"{"from":"file"}"#).unwrap();
    lab.set("INPUT_FILE", lab.dir.join("own.json").to_str().unwrap());
    lab.run(None).result();
    for (call, from) in [(1, "argument"), (2, "place"), (3, "file")] {
        assert_eq!(lab.prompt(call), format!("from <data path=\"from\">{from}</data>"));
    }
}

#[test]
fn ag_02_03_a_text_is_a_result_and_the_files_tell_of_it() {
    let lab = Lab::new("text");
    lab.step(&json!({}));
    lab.play(&succeeds(&json!({})));
    let ended = lab.go();
    let result = ended.result();
    assert_eq!(result["output"], json!({ "result": "all done" }));
    let expected = json!({
        "inputTokens": 100, "outputTokens": 40, "cacheReadTokens": 300, "turns": 2, "costUsd": 0.0125
    });
    assert_eq!(result["usage"], expected);
    assert_eq!(result["sessionId"].as_str(), lab.argument(1, "--session-id").as_deref());
    for file in ["artifacts/task-result.json", "artifacts/only.json"] {
        assert_eq!(serde_json::from_str::<Value>(&ended.file(file)).unwrap(), result["output"], "{file}");
    }
    let summary = ended.file("logs/summary.log");
    for part in [
        "Request: request-1",
        "Status: completed",
        "Turns: 2",
        "Tokens: 100 in, 40 out",
        "Cost: $0.0125",
        "Duration: ",
    ] {
        assert!(summary.contains(part), "{part} is missing in {summary}");
    }
    let trace = ended.trace(0);
    assert_eq!((&trace["name"], &trace["status"]), (&json!("only"), &json!("completed")));
    assert_eq!(trace["attempts"][0]["usage"], expected);
    assert!(!ended.output.join(".claude").exists(), "the state of the CLI is gone");
}

#[test]
fn ag_08_an_output_satisfies_its_schema() {
    let schema = json!({ "type": "object", "properties": { "tags": { "type": "array", "items": { "type": "string" } } }, "required": ["tags"] });
    let lab = Lab::new("schema");
    lab.step(&json!({ "outputSchema": schema, "outputFile": "tags.json" }));
    lab.play(&succeeds(&json!({ "structured_output": { "tags": ["a"] } })));
    let ended = lab.go();
    assert_eq!(ended.result()["output"], json!({ "tags": ["a"] }));
    assert_eq!(lab.argument(1, "--json-schema"), Some(schema.to_string()));
    assert_eq!(
        serde_json::from_str::<Value>(&ended.file("artifacts/tags.json")).unwrap(),
        json!({ "tags": ["a"] })
    );
    for output in [json!({ "tags": "a" }), json!({})] {
        lab.play(&succeeds(&json!({ "structured_output": output })));
        let ended = lab.go();
        assert_eq!(
            (ended.error()["code"].as_str(), ended.category()),
            (Some("AGENT_BAD_OUTPUT"), "validation")
        );
        assert!(!ended.output.join("artifacts/task-result.json").exists());
    }
}

#[test]
fn an_output_satisfies_its_schema_also_without_the_secrets_in_it() {
    let schema = json!({ "type": "object", "properties": { "code": { "type": "string", "maxLength": 9 } } });
    let mut lab = Lab::new("schema-secret");
    lab.set("TIDEMILL_SECRET_NAMES", "LOGIN");
    lab.set("LOGIN", "sesame-77");
    lab.step(&json!({ "outputSchema": schema }));
    lab.play(&succeeds(&json!({ "structured_output": { "code": "sesame-77" } })));
    let ended = lab.go();
    let error = ended.error();
    assert_eq!((error["code"].as_str(), ended.category()), (Some("AGENT_BAD_OUTPUT"), "validation"));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("a secret was cut out") && !message.contains("sesame"), "{message}");
    lab.play(&succeeds(&json!({ "structured_output": { "code": "other", "note": "c2VzYW1lLTc3" } })));
    assert_eq!(lab.go().result()["output"], json!({ "code": "other", "note": "[REDACTED]" }));
}

#[test]
fn steps_run_in_order_and_see_what_came_before() {
    let lab = Lab::new("steps");
    lab.task(&json!({ "steps": [
        { "name": "find", "prompt": "find in {{page}}", "outputSchema": { "type": "object" } },
        { "name": "rate", "prompt": "rate {{steps.find.tag}}", "outputFile": "rated.json" },
        { "name": "sum", "prompt": "sum {{previous.result}} of {{steps.find}}", "model": "small" },
    ] }));
    lab.play_in_call(
        1,
        &succeeds(&json!({ "structured_output": { "tag": "shoes" }, "total_cost_usd": 0.5 })),
    );
    lab.play_in_call(2, &succeeds(&json!({ "result": "five", "total_cost_usd": 0.25 })));
    lab.play_in_call(3, &succeeds(&json!({ "result": "end", "total_cost_usd": 0.25 })));
    let ended = lab.run(Some(r#"{"page":"P"}"#));
    let result = ended.result();
    assert_eq!(result["output"], json!({ "result": "end" }), "the last step's output is the task's");
    assert_eq!((&result["usage"]["costUsd"], &result["usage"]["turns"]), (&json!(1.0), &json!(6)));
    let data = |path: &str, text: &str| format!("<data path=\"{path}\">{text}</data>");
    assert_eq!(lab.prompt(1), format!("find in {}", data("page", "P")));
    assert_eq!(lab.prompt(2), format!("rate {}", data("steps.find.tag", "shoes")));
    let third =
        format!("sum {} of {}", data("previous.result", "five"), data("steps.find", r#"{"tag":"shoes"}"#));
    assert_eq!(lab.prompt(3), third);
    assert_eq!(lab.argument(1, "--model").as_deref(), Some("claude-opus-4-5"));
    assert_eq!(lab.argument(3, "--model").as_deref(), Some("small"));
    for (file, expected) in [
        ("artifacts/find.json", json!({ "tag": "shoes" })),
        ("artifacts/rated.json", json!({ "result": "five" })),
        ("artifacts/sum.json", json!({ "result": "end" })),
        ("artifacts/task-result.json", json!({ "result": "end" })),
    ] {
        assert_eq!(serde_json::from_str::<Value>(&ended.file(file)).unwrap(), expected, "{file}");
    }
    assert_eq!(ended.trace(2)["name"], "sum");
    assert!(ended.file("logs/summary.log").contains("Step rate: completed"));
}

#[test]
fn ag_18_the_trace_tells_of_tools_cache_todos_and_retries() {
    let todo = |id: &str, status: &str| {
        json!({ "type": "assistant", "message": { "content": [{ "type": "tool_use", "id": id, "name": "TodoWrite",
            "input": { "todos": [{ "content": "read", "status": status }] } }] } })
    };
    let done = |id: &str| json!({ "type": "user", "message": { "content": [{ "type": "tool_result", "tool_use_id": id, "content": "ok" }] } });
    let lines = [
        json!({ "type": "system", "subtype": "init", "model": "m-1", "tools": ["Bash"], "claude_code_version": "9.9" }),
        json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 10, "error_status": 529, "error": "server_error" }),
        todo("t1", "pending"),
        done("t1"),
        todo("t2", "in_progress"),
        done("t2"),
        json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": "I look" },
            { "type": "tool_use", "id": "t3", "name": "Bash", "input": { "command": "ls" } }] } }),
        json!({ "type": "tomorrow", "what": 1 }),
    ];
    let mut script = format!("cat <<'E'\n{}\nE\nsleep 0.3\n", lines.map(|line| line.to_string()).join("\n"));
    script += &prints(
        &[
            done("t3").to_string(),
            "this is {no json".to_owned(),
            todo("t4", "completed").to_string(),
            done("t4").to_string(),
            success(&json!({ "permission_denials": [{ "tool_name": "Write" }] })),
        ],
        0,
    );
    let lab = Lab::new("trace");
    lab.step(&json!({ "tools": ["Bash"] }));
    lab.play(&script);
    let ended = lab.go();
    ended.result();
    let tried = &ended.trace(0)["attempts"][0];
    assert_eq!((&tried["cliVersion"], &tried["model"]), (&json!("9.9"), &json!("m-1")));
    let bash = tried["toolCalls"].as_array().unwrap().iter().find(|call| call["name"] == "Bash").unwrap();
    assert_eq!((&bash["input"], &bash["output"]), (&json!({ "command": "ls" }), &json!("ok")));
    assert!((250..5_000).contains(&bash["durationMs"].as_u64().unwrap()), "{bash}");
    assert_eq!(
        tried["cache"],
        json!({ "inputTokens": 100, "cacheReadTokens": 300, "cacheWriteTokens": 0, "efficiencyPercent": 75.0 })
    );
    let todo = &tried["todos"][0];
    assert_eq!((&todo["content"], &todo["status"]), (&json!("read"), &json!("completed")));
    assert!(todo["inProgressMs"].as_u64().unwrap() >= 250, "{todo}");
    assert_eq!(tried["apiRetries"][0]["status"], 529);
    assert_eq!(
        (&tried["brokenLines"]["count"], &tried["brokenLines"]["samples"][0]),
        (&json!(1), &json!("this is {no json"))
    );
    assert_eq!(tried["permissionDenials"][0]["tool_name"], "Write");
    for line in ["agent: I look", "agent: tool Bash {\"command\":\"ls\"}", "agent: tool Bash done after"] {
        assert!(ended.stdout.contains(line), "{line} is missing in {}", ended.stdout);
    }
    assert_eq!(
        ended.records_of("activity")[0],
        &json!({ "kind": "activity", "type": "sdk_query", "stepName": "only" })
    );
}

#[test]
fn a_large_output_goes_by_its_file() {
    let lab = Lab::new("large");
    lab.step(&json!({}));
    let line = success(&json!({ "result": "x".repeat(600_000) }));
    fs::write(lab.dir.join("fake/line"), line).unwrap();
    lab.play("cat \"$here/line\"; echo; cat >/dev/null; exit 0");
    let ended = lab.go();
    assert_eq!(ended.result()["outputFile"], "artifacts/task-result.json");
    assert_eq!(ended.result().get("output"), None);
    assert!(ended.file("artifacts/task-result.json").len() > 600_000);
}

#[test]
fn no_secret_is_seen_anywhere() {
    let secrets = [
        "sk-ant-oat01-SECRETSECRET",
        "an-ordinary-looking-value",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    ];
    let mut lab = Lab::new("secrets");
    lab.step(&json!({ "tools": ["Bash"] }));
    for (name, value) in
        ["CLAUDE_CODE_OAUTH_TOKEN", "SHOP_PASSWORD", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
            .into_iter()
            .zip(secrets)
    {
        lab.set(name, value);
    }
    let said = secrets.join(" ");
    let lines = [
        json!({ "type": "assistant", "message": { "content": [{ "type": "text", "text": said },
            { "type": "tool_use", "id": "t", "name": "Bash", "input": { "command": format!("echo {said}") } }] } }).to_string(),
        json!({ "type": "user", "message": { "content": [{ "type": "tool_result", "tool_use_id": "t", "content": [{ "type": "text", "text": said }] }] } }).to_string(),
        format!("broken {said}"),
        json!({ "type": "system", "subtype": "api_retry", "retry_delay_ms": 1, "error": said }).to_string(),
    ];
    let mut good = lines.to_vec();
    good.push(success(&json!({ "result": said, "permission_denials": [{ "tool_input": said }] })));
    let mut bad = lines.to_vec();
    bad.push(success(&json!({ "is_error": true, "result": format!("API Error: {said}"), "errors": [said] })));
    for (play, code) in [(prints(&good, 0), 0), (format!("echo '{said}' >&2\n{}", prints(&bad, 1)), 1)] {
        lab.play(&play);
        let ended = lab.go();
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stdout);
        for secret in secrets {
            assert!(!ended.stdout.contains(secret), "{secret} is in {}", ended.stdout);
            assert!(!ended.stderr.contains(secret));
            assert_eq!(files_with(&ended.output, secret), Vec::<std::path::PathBuf>::new(), "{secret}");
        }
        assert!(ended.stdout.contains("[REDACTED]"));
    }
    let environment = lab.noted("environment", 1);
    assert!(environment.contains("CLAUDE_CODE_OAUTH_TOKEN=") && environment.contains("SHOP_PASSWORD="));
    assert!(!environment.contains("AWS_") && !environment.contains("TIDEMILL_"), "{environment}");
}
