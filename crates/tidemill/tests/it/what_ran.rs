//! What ran is told by `tasks get`, and no secret with it.

use serde_json::{Value, json};

use crate::fake_claude::FakeClaude;
use crate::sandbox::Sandbox;

const SECRET: &str = "open-sesame-NeverToBeSeen";

#[test]
fn tasks_get_tells_what_ran_without_secrets() {
    let sandbox = Sandbox::new();
    let definition = "name: load\ncommand: [sh, -c, 'test -n \"$DB_URL\" && echo \"{\\\"n\\\":1}\"', 'a b']\nenv: {MODE: stored, DB_PASSWORD: literal-one}\nsecrets: [DB_URL]\n";
    sandbox.write("load.yaml", definition);
    sandbox.run(&["definitions", "create", "load.yaml"]).ok();
    sandbox.write(
        "job.yaml",
        "name: tell\ntasks:\n- {taskId: a, run: 'echo x > \"$TIDEMILL_OUTPUT_DIR/artifacts/x\"; echo \"{\\\"rows\\\":7}\"'}\n- {taskId: b, name: load, dependsOn: [a], env: {MODE: task}}\n",
    );
    let environment = [("TASK_SECRETS", "DB_URL"), ("DB_URL", SECRET)];
    let report = sandbox.run_with(&["run", "job.yaml", "--json"], &environment).ok().json();
    let task = |id: &str| format!("{}_{id}", report["jobId"].as_str().unwrap());
    let told = sandbox.run_with(&["tasks", "get", &task("b"), "--json"], &environment).ok();
    assert!(!told.out.contains(SECRET) && !told.out.contains("literal-one"), "{}", told.out);
    let ran = &told.json()["ran"];
    assert_eq!(ran["command"][0], "sh");
    assert_eq!(ran["arguments"], json!([task("b")]));
    let directory = ran["directory"].as_str().unwrap();
    assert!(std::path::Path::new(directory).join("input.json").exists(), "{directory}");
    let variable = |name: &str| {
        let all = ran["variables"].as_array().unwrap();
        all.iter().find(|variable| variable["name"] == name).cloned().unwrap_or(Value::Null)
    };
    assert_eq!(variable("DB_URL"), json!({ "name": "DB_URL", "origin": "secret" }));
    assert_eq!(variable("PATH"), json!({ "name": "PATH", "origin": "worker" }));
    assert_eq!(variable("MODE"), json!({ "name": "MODE", "value": "task", "origin": "task" }));
    assert_eq!(variable("DB_PASSWORD")["value"], "[REDACTED]");
    assert_eq!(variable("TASK_SECRETS"), Value::Null, "what it was not given is not told");
    assert_eq!(ran["dependencies"][0]["output"], json!({ "rows": 7 }));
    assert_eq!(ran["dependencies"][0]["artifacts"][0]["path"], "x");

    let text = sandbox.run_with(&["tasks", "get", &task("b")], &environment).ok().out;
    for line in [
        format!("directory       {directory}"),
        format!(
            "command         sh -c 'test -n \"$DB_URL\" && echo \"{{\\\"n\\\":1}}\"' 'a b' {}",
            task("b")
        ),
        "variable        DB_PASSWORD=[REDACTED]".to_owned(),
        "variable        DB_URL (a secret of the worker)".to_owned(),
        "variable        MODE=task".to_owned(),
        "variables       HOME, PATH of the worker".to_owned(),
        "given           a: {\"rows\":7}, files: x".to_owned(),
    ] {
        assert!(text.lines().any(|told| told == line), "{line}\n{text}");
    }
    assert!(!text.contains(SECRET), "{text}");
}

#[test]
fn an_agents_prompt_is_told_with_its_values() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["ok"]);
    sandbox.write(
        "job.yaml",
        "name: ask\ntasks:\n- {taskId: a, agent: 'tell of {{topic}}', input: {topic: spring tides}}\n",
    );
    let report = sandbox.run_with(&["run", "job.yaml", "--json"], &claude.environment()).ok().json();
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    let told = sandbox.run(&["tasks", "get", &task, "--json"]).ok().json();
    let prompt = &told["ran"]["prompts"][0];
    assert_eq!(prompt["filled"], true, "{told}");
    let text = prompt["text"].as_str().unwrap();
    assert!(text.starts_with("tell of ") && text.contains("spring tides"), "{text}");
    assert!(!told.to_string().contains("sk-ant"), "{told}");
}
