//! Four stories of new users, told from the docs alone: what they type, and what they see.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tidemill_agent::stub_model::StubModel;

use crate::outbound::{Listener, ok_json};
use crate::parts;
use crate::sandbox::{Sandbox, eventually};

/// What curl gets, and the status.
fn curl(sandbox: &Sandbox, arguments: &[&str]) -> (u16, String) {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-w", "\n%{http_code}"]).args(arguments);
    let output = sandbox.in_its_place(curl).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').expect("curl tells the status");
    (status.parse().unwrap(), body.to_owned())
}

/// docs/reference/job-files.md, docs/reference/worker.md, docs/reference/alerts.md: files go from task to task, a failure is told to Slack, and the mended file
/// goes on where the job stopped.
#[test]
fn an_etl_hands_files_on_and_tells_slack_of_its_failure() {
    let sandbox = Sandbox::new();
    let slack = Listener::start(|_, _| ok_json("ok"));
    let job = |table: &str| {
        format!(
            "name: nightly-etl
tasks:
  - taskId: extract
    run: |
      printf 'ada,10\\nbob,5\\nada,7\\n' > \"$TIDEMILL_OUTPUT_DIR/artifacts/orders.csv\"
      echo '{{\"rows\": 3}}'
    retry: 5
  - taskId: transform
    run: [totals]
    path: [bin]
    dependsOn: extract
  - taskId: load
    run: |
      cat \"$TIDEMILL_INPUTS/transform/totals.csv\"
      test -n \"$TABLE\" || {{ echo 'no such table: customers' >&2; exit 3; }}
    dependsOn: [transform]
    retry: 1
{table}"
        )
    };
    std::fs::create_dir(sandbox.dir.join("bin")).unwrap();
    let totals = sandbox.write(
        "bin/totals",
        "#!/bin/sh\nawk -F, '{t[$1]+=$2} END {for (c in t) print c \",\" t[c]}' \"$TIDEMILL_INPUTS/extract/orders.csv\" | sort \
         > \"$TIDEMILL_OUTPUT_DIR/artifacts/totals.csv\"\n",
    );
    std::fs::set_permissions(totals, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    sandbox.write("etl.yaml", &job(""));
    let hook = format!("{}/services/T/B/x", slack.url);
    let settings = [
        ("SLACK_WEBHOOK_URL", hook.as_str()),
        ("ALERT_JOB_FAILED", "true"),
        ("ALERT_JOB_FAILED_WAIT_MS", "1s"),
    ];
    assert_eq!(sandbox.run_with(&["alerts", "test"], &settings).ok().out, "");
    let ran = sandbox.run_with(&["run", "etl.yaml"], &settings);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let told = slack.of("/services/T/B/x");
    let told = told.last().unwrap().json();
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("*Job failed*") && text.contains("nightly-etl job-"), "{text}");
    assert!(text.contains("task load failed: exit code 3: no such table: customers"), "{text}");

    sandbox.write("etl.yaml", &job("    env: {TABLE: customers}\n"));
    let ran = sandbox.run(&["run", "etl.yaml", "--resume"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(ran.words.contains("task load was changed in the file;"), "{ran:#?}");
    let ran = sandbox.run(&["run", "etl.yaml", "--resume", "--update"]).ok();
    assert!(ran.words.contains("2 tasks completed before, 1 run again"), "{ran:#?}");
    let jobs = sandbox.run(&["jobs", "list", "--json"]).json();
    let id = jobs["items"][0]["jobId"].as_str().unwrap().to_owned();
    let logs = sandbox.run(&["jobs", "logs", &id]).ok();
    assert!(logs.out.contains("load      | ada,17\nload      | bob,5\n"), "{logs:#?}");
    let transform = format!("{id}/transform");
    for path in ["r1-a1/artifacts/totals.csv", "artifacts/totals.csv"] {
        assert_eq!(sandbox.run(&["tasks", "files", &transform, path]).ok().out, "ada,17\nbob,5\n", "{path}");
    }
    let missing = sandbox.run(&["tasks", "files", &transform, "artifacts/nothing.csv"]);
    assert_eq!(missing.code, 1, "{missing:#?}");
}

/// docs/reference/http-api.md: a program hands work in, waits, reads the result or why there is none, and may ask twice.
#[test]
fn a_program_has_a_task_done_in_the_background() {
    if !parts::has_curl() || !parts::has_python() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write(
        "resize.yaml",
        "name: resize\ncommand: sh resize.sh\ninputArg: false\nretry: {maxAttempts: 2, firstDelay: 10ms}\n",
    );
    sandbox.write(
        "resize.sh",
        "grep -q '\"width\": *[1-9]' \"$INPUT_FILE\" || { echo 'width must be positive' >&2; exit 1; }\n\
         echo '{\"file\": \"thumb.png\"}'\n",
    );
    let server = sandbox.serve(&[], &[]);
    sandbox.run(&["definitions", "create", "resize.yaml"]).ok();
    let tasks = format!("{}/v1/tasks", server.url);
    let submit = |key: &str, body: Value| {
        let key = format!("Idempotency-Key: {key}");
        let (status, answer) = curl(
            &sandbox,
            &["-H", "Content-Type: application/json", "-H", &key, "-d", &body.to_string(), &tasks],
        );
        (status, serde_json::from_str::<Value>(&answer).unwrap())
    };
    let wait = |id: &Value| {
        let url = format!("{tasks}/{}", id.as_str().unwrap());
        let mut task = Value::Null;
        eventually("the task ends", || {
            task = serde_json::from_str(&curl(&sandbox, &[&url]).1).unwrap();
            task["status"] == "completed" || task["status"] == "failed"
        });
        task
    };
    let good = json!({"name": "resize", "input": {"width": 10}});
    let (status, first) = submit("photo-1", good.clone());
    assert_eq!(status, 202, "{first}");
    assert_eq!(wait(&first["requestId"])["output"], json!({"file": "thumb.png"}));
    let (status, again) = submit("photo-1", good);
    assert_eq!((status, &again["requestId"]), (200, &first["requestId"]));
    let (status, other) = submit("photo-1", json!({"name": "resize", "input": {"width": 11}}));
    assert_eq!((status, &other["code"]), (409, &json!("IDEMPOTENCY_CONFLICT")));
    let (_, bad) = submit("photo-2", json!({"name": "resize", "input": {"width": 0}}));
    let failed = wait(&bad["requestId"]);
    assert_eq!(failed["lastError"]["message"], "exit code 1: width must be positive");
    assert_eq!(failed["attempt"], 2);
    let (status, typo) = submit("photo-3", json!({"name": "resize", "inputs": {}}));
    assert_eq!((status, &typo["detail"]), (400, &json!("inputs: unknown field; did you mean input?")));
    server.stop();
}

/// docs/reference/agents.md, docs/reference/dashboard.md: agents between commands, and what they did as a page.
#[test]
fn a_graph_with_agents_shows_what_they_did() {
    let Some(program) = parts::claude().filter(|_| parts::has_curl()) else { return };
    let sandbox = Sandbox::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    std::os::unix::fs::symlink(&examples, sandbox.dir.join("examples")).unwrap();
    let rules = std::fs::read_to_string(examples.join("agents/stub-rules.json")).unwrap();
    let rules = rules.replace("@SITE@", examples.join("agents/site").to_str().unwrap());
    let stub = StubModel::start(serde_json::from_str(&rules).unwrap()).unwrap();
    let url = stub.url();
    let settings = [
        ("CLAUDE_BIN", program.as_str()),
        ("ANTHROPIC_BASE_URL", url.as_str()),
        ("ANTHROPIC_API_KEY", "sk-ant-story-0123456789"),
        ("CLAUDE_MODEL", "claude-sonnet-4-5"),
    ];
    let server = sandbox.serve(&[], &settings);
    let ran = sandbox.run(&["submit", "examples/agents/job.yaml", "--watch"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let jobs = sandbox.run(&["jobs", "list", "--json"]).json();
    let id = jobs["items"][0]["jobId"].as_str().unwrap().to_owned();
    let (status, page) = curl(&sandbox, &[&format!("{}/tasks/{id}_fonts", server.url)]);
    assert_eq!(status, 200, "{page}");
    let link = format!("/tasks/{id}_fonts/trace/r1-a1");
    assert!(page.contains(&link), "{page}");
    let (status, page) = curl(&sandbox, &[&format!("{}{link}", server.url)]);
    assert_eq!(status, 200, "{page}");
    for shown in ["find", "name", "Read", "style.css", "StructuredOutput", "claude-sonnet-4-5"] {
        assert!(page.contains(shown), "{shown} is not on the page: {page}");
    }
    let trace =
        sandbox.run(&["tasks", "files", &format!("{id}/fonts"), "traces/session_trace.json"]).ok().json();
    assert_eq!(trace[0]["attempts"][0]["toolCalls"][0]["name"], "Read", "{trace}");
    let usage = sandbox.run(&["usage", "--by", "definition", "--json"]).ok().json();
    assert!(usage.to_string().contains("fonts"), "{usage}");
    server.stop();
}

/// docs/how-to/move-a-store.md, docs/reference/command-line.md: keys, a backup, a restore that is closed until it has a key, and what can be saved of a damaged disk.
#[test]
fn an_operator_keeps_keys_and_restores_a_store() {
    if !parts::has_curl() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "name: nightly\ntasks:\n- {taskId: a, run: 'echo kept'}\n- {taskId: b, run: 'true', dependsOn: a}\n",
    );
    sandbox.run(&["run", "job.yaml"]).ok();
    let server = sandbox.serve(&[], &[]);
    let admin =
        sandbox.run(&["keys", "create", "--role", "admin", "--label", "ops"]).ok().out.trim().to_owned();
    let refused = sandbox.run(&["keys", "list"]);
    assert!(refused.code == 1 && refused.words.contains("UNAUTHENTICATED"), "{refused:#?}");
    let key = [("TIDEMILL_API_KEY", admin.as_str())];
    sandbox.run_with(&["keys", "create", "--role", "producer", "--label", "app"], &key).ok();
    let keys = sandbox.run_with(&["keys", "list", "--json"], &key).ok().json();
    let app = keys["items"].as_array().unwrap().iter().find(|key| key["label"] == "app").unwrap();
    sandbox.run_with(&["keys", "revoke", app["id"].as_str().unwrap()], &key).ok();
    let offline = sandbox.run(&["export", "--out", "backup.jsonl"]);
    assert!(offline.code == 2 && offline.words.contains("stop it first"), "{offline:#?}");
    server.stop();

    sandbox.run(&["export", "--out", "backup.jsonl"]).ok();
    let imported = sandbox.run(&["import", "backup.jsonl", "--data", "restored"]).ok();
    assert!(imported.words.contains("it stays closed"), "{imported:#?}");
    let mut copy = Command::new("cp");
    copy.args(["-a", ".tidemill/blobs/.", "restored/blobs/"]);
    assert!(sandbox.in_its_place(copy).status().unwrap().success());
    let mut server = sandbox.serve(&["--data", "restored"], &[]);
    server.process.wait_for("closed: the store came without the API keys");
    let jobs = format!("{}/v1/jobs", server.url);
    assert!(curl(&sandbox, &[&jobs]).1.contains("STORE_CLOSED"));
    server.stop();
    let admin = sandbox.run(&["keys", "create", "--role", "admin", "--data", "restored"]).ok().out;
    let server = sandbox.serve(&["--data", "restored"], &[]);
    let jobs = format!("{}/v1/jobs", server.url);
    let header = format!("Authorization: Bearer {}", admin.trim());
    let (status, list) = curl(&sandbox, &["-H", &header, &jobs]);
    assert!(status == 200 && list.contains("nightly"), "{status} {list}");
    assert_eq!(curl(&sandbox, &[&jobs]).0, 401);
    let id = serde_json::from_str::<Value>(&list).unwrap()["items"][0]["jobId"].as_str().unwrap().to_owned();
    server.stop();
    let logs = sandbox.run(&["jobs", "logs", &id, "--data", "restored"]).ok();
    assert!(logs.out.contains("kept"), "{logs:#?}");
    let verified = sandbox.run(&["verify", "--data", "restored"]).ok();
    assert!(verified.words.contains("all is as it should be"), "{verified:#?}");
    let doctor = sandbox.run(&["doctor", "--data", "restored"]);
    let is_well = |line: &str| line.starts_with("data directory") && line.contains(" OK ");
    assert!(doctor.out.lines().any(is_well), "{doctor:#?}");

    let log = std::fs::read_dir(sandbox.dir.join("restored/log")).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.extension().is_some_and(|extension| extension == "log")).min().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    for byte in &mut bytes[3_000..3_050] {
        *byte = !*byte;
    }
    std::fs::write(&log, bytes).unwrap();
    let damaged = sandbox.run(&["verify", "--data", "restored"]);
    assert!(damaged.code == 1 && damaged.words.contains("tidemill salvage --to DIR"), "{damaged:#?}");
    let saved = sandbox.run(&["salvage", "--data", "restored", "--to", "rescued"]);
    assert!(saved.code == 3 && saved.words.contains("what was whole"), "{saved:#?}");
    sandbox.run(&["verify", "--data", "rescued"]).ok();
}
