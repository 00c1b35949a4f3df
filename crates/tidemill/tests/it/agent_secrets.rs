//! SE-07: no secret that an agent was given is found in anything that Tidemill keeps or answers.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::fake_claude::{FakeClaude, SCHEMA};
use crate::sandbox::Sandbox;

const API_KEY: &str = "sk-ant-api03-NeverToBeSeen0123456789";
const OAUTH: &str = "oauth-token-value-NeverToBeSeen";
const AWS_KEY: &str = "AKIANEVERTOBESEEN0123";

fn find(text: &[u8]) -> Option<&'static str> {
    let holds = |secret: &&str| text.windows(secret.len()).any(|window| window == secret.as_bytes());
    [API_KEY, OAUTH, AWS_KEY].into_iter().find(holds)
}

fn all_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all_files(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

#[test]
fn se_07_no_secret_of_an_agent_is_kept_or_answered() {
    let sandbox = Sandbox::new();
    // The first call succeeds and repeats all it knows in its output; those after it fail with it in their errors.
    let claude = FakeClaude::new(&sandbox, &["leak"]);
    let mut environment = claude.environment();
    environment.retain(|(name, _)| *name != "ANTHROPIC_API_KEY");
    let secrets =
        [("ANTHROPIC_API_KEY", API_KEY), ("CLAUDE_CODE_OAUTH_TOKEN", OAUTH), ("DEPLOY_KEY", AWS_KEY)];
    environment.extend(secrets);
    environment.push(("TASK_SECRETS", "DEPLOY_KEY"));
    // Every line that there is.
    environment.push(("TIDEMILL_LOG", "trace"));
    sandbox.write(
        "leaky.yaml",
        &format!("name: leaky\nprompt: tell all\noutputSchema: {SCHEMA}\nsecrets: [DEPLOY_KEY]\nmaxAttempts: 2\nretry: {{firstDelay: 1ms}}\nidleTimeout: 60s\n"),
    );
    sandbox.run(&["definitions", "create", "leaky.yaml"]).ok();
    sandbox.write(
        "job.yaml",
        "name: leaks\ntasks:\n- {taskId: a, name: leaky}\n- {taskId: b, name: leaky, dependsOn: [a]}\n",
    );
    let ran = sandbox.run_with(&["run", "job.yaml", "--json"], &environment);
    assert_eq!(ran.code, 1, "the second task fails: {ran:#?}");
    let report = ran.json();
    assert_eq!(report["tasks"]["a"]["status"], "completed", "{report}");
    for call in 1..=2 {
        let given = claude.read(call, "env");
        assert!(secrets.iter().all(|(name, value)| given.contains(&format!("{name}={value}"))), "{given}");
    }

    let mut answers = vec![("run", ran.out), ("words", ran.words)];
    for task in ["a", "b"] {
        let id = format!("{}_{task}", report["jobId"].as_str().unwrap());
        for command in ["get", "history", "logs", "files"] {
            answers.push((command, sandbox.run(&["tasks", command, &id, "--json"]).out));
        }
        let list = sandbox.run(&["tasks", "files", &id, "--json"]).ok().json();
        let paths: Vec<_> =
            list["items"].as_array().unwrap().iter().map(|item| item["path"].clone()).collect();
        for file in ["traces/session_trace.json", "artifacts/leaked.txt"] {
            assert!(paths.iter().any(|path| path.as_str().unwrap().ends_with(file)), "{file}: {paths:?}");
        }
        for path in paths {
            let file = sandbox.command(&["tasks", "files", &id, path.as_str().unwrap()]).output().unwrap();
            assert!(file.status.success());
            answers.push(("file", String::from_utf8_lossy(&file.stdout).into_owned()));
        }
    }
    answers.push(("dead letters", sandbox.run(&["dead-letters", "list", "--json"]).ok().out));
    answers.push(("events", sandbox.run(&["events", "query", "--limit", "1000", "--json"]).out));
    answers.push(("export", sandbox.run(&["export"]).ok().out));
    answers.push(("config", sandbox.run_with(&["config", "--json"], &environment).ok().out));
    for (what, text) in &answers {
        assert_eq!(find(text.as_bytes()), None, "in {what}: {text}");
    }
    assert!(answers.iter().any(|(what, text)| *what == "file" && text.contains("[REDACTED]")), "it was told");

    // Whatever was sealed and compressed was read by the export; the rest lies there as it is.
    let mut files = Vec::new();
    all_files(&sandbox.dir.join(".tidemill"), &mut files);
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        assert_eq!(find(&std::fs::read(&file).unwrap()), None, "in {}", file.display());
    }
    // Logs and traces on this machine's own disk are clean too; what the agent wrote by itself is its own.
    let mut files = Vec::new();
    all_files(&sandbox.dir.join(".output"), &mut files);
    let written_by_us = |file: &PathBuf| {
        let path = file.to_string_lossy();
        path.contains("/logs/") || path.contains("/traces/") || path.ends_with("task-result.json")
    };
    for file in files.into_iter().filter(written_by_us) {
        assert_eq!(find(&std::fs::read(&file).unwrap()), None, "in {}", file.display());
    }
}

/// Settings that list names are no secrets, though the name of one says SECRET.
#[test]
fn the_names_of_secrets_are_none() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["names"]);
    let mut environment = claude.environment();
    environment.push(("TASK_SECRETS", "STRIPE_KEY"));
    sandbox.write("telling.yaml", &format!("name: telling\nprompt: tell\noutputSchema: {SCHEMA}\n"));
    sandbox.run(&["definitions", "create", "telling.yaml"]).ok();
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: a, name: telling}\n- {taskId: b, run: 'true', secrets: [STRIPE_KEY]}\n",
    );
    let ran = sandbox.run_with(&["run", "job.yaml", "--json"], &environment);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let report = ran.json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "STRIPE_KEY is set" }), "{report}");
    let id = format!("{}_b", report["jobId"].as_str().unwrap());
    let told = sandbox.run(&["tasks", "get", &id]).ok().out;
    assert!(told.contains("asks for the variable STRIPE_KEY"), "{told}");
}

/// An output without the secret that only the worker knows is kept if it satisfies its schema, and else fails with a code.
#[test]
fn an_output_is_checked_again_once_a_secret_is_cut_out_of_it() {
    let sandbox = Sandbox::new();
    let claude = FakeClaude::new(&sandbox, &["unseen"]);
    let mut environment = claude.environment();
    environment.push(("DEPLOY_KEY", AWS_KEY));
    let strict = SCHEMA.replace("{type: string}", "{type: string, pattern: '^DEPLOY is AKIA'}");
    for (name, schema) in [("loose", SCHEMA), ("strict", &strict)] {
        let definition = format!("name: {name}\nprompt: tell\noutputSchema: {schema}\nmaxAttempts: 1\n");
        sandbox.write("definition.yaml", &definition);
        sandbox.run(&["definitions", "create", "definition.yaml"]).ok();
    }
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, name: loose}\n- {taskId: b, name: strict}\n");
    let ran = sandbox.run_with(&["run", "job.yaml", "--json"], &environment);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let report = ran.json();
    assert_eq!(report["tasks"]["a"]["output"], json!({ "answer": "DEPLOY is [REDACTED]" }), "{report}");
    let id = format!("{}_b", report["jobId"].as_str().unwrap());
    let told = sandbox.run(&["tasks", "get", &id]).ok().out;
    for part in ["AGENT_BAD_OUTPUT", "a secret was cut out of the output", "/answer"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(find(told.as_bytes()), None, "{told}");
}
