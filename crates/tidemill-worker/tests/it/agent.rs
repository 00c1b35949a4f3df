//! What the process that drives an agent is given, and what is made of what it says. A shell stands in for it.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tidemill_engine::engine::Define;
use tidemill_model::work::runner_spec::{Pinned, RunnerSpec};
use tidemill_model::{AgentSpec, Json, MicroUsd};

use crate::lab::{Ended, Lab, env, eventually, listed, options, tenant};

/// A worker whose agents are driven by this text of a shell.
fn driven_by(lab: &mut Lab, text: &str) {
    let program = lab.directory.0.join("drive");
    std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    lab.config.agent_program = vec![program.into(), "agent-task".into()];
    lab.work("worker-1");
}

fn agent(spec: AgentSpec) -> RunnerSpec {
    RunnerSpec { agent: Some(spec), ..RunnerSpec::default() }
}

fn asked() -> RunnerSpec {
    agent(AgentSpec::of_prompt("do it"))
}

/// A task of a stored definition.
async fn defined(lab: &Lab, definition: &serde_json::Value) -> RunnerSpec {
    let draft = serde_json::from_value(definition.clone()).unwrap();
    let definition = lab.engine.define(tenant(), draft, Define::Create).await.unwrap();
    let pinned = Pinned { name: definition.name().clone(), version: definition.version };
    RunnerSpec { definition: Some(pinned), ..RunnerSpec::default() }
}

fn homes(lab: &Lab) -> usize {
    std::fs::read_dir(lab.output(".agents")).map_or(0, Iterator::count)
}

/// What of an attempt's log stands behind a word.
async fn logged(lab: &Lab, key: &tidemill_engine::commit::TaskKey, path: &str) -> String {
    let log = lab.blob(key, path).await.unwrap_or_else(|| panic!("{path} is there"));
    String::from_utf8(log).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_gets_its_spec_its_home_and_its_deadline() {
    let mut lab = Lab::idle();
    let text = r#"echo "args $#: $1 $2 $3"; echo "spec $(cat "$TIDEMILL_AGENT_FILE")"
        stat -c 'modes %a' "$TIDEMILL_AGENT_FILE" "$TIDEMILL_AGENT_HOME"
        touch "$TIDEMILL_AGENT_HOME/state"; echo "session ${TIDEMILL_AGENT_SESSION-none}"
        now=$(date +%s); left=$((TIDEMILL_DEADLINE_MS / 1000 - now)); echo "left $left"
        echo '@@tidemill {"kind":"result","output":{"ok":true}}'"#;
    driven_by(&mut lab, text);
    let spec = AgentSpec { max_cost: Some(MicroUsd(1_500_000)), ..AgentSpec::of_prompt("do it") };
    let mut wanted = options(&agent(spec.clone()));
    wanted.timeout_ms = Some(60_000);
    let key = lab.submit("req-1", r#"{"a":1}"#, wanted).await;
    assert_eq!(lab.ended(&key).await.output(), json!({ "ok": true }));
    let log = logged(&lab, &key, "r1-a1/logs/output.log").await;
    assert!(log.contains("args 3: agent-task req-1 {\"a\":1}\n"), "{log}");
    let written = log.lines().find_map(|line| line.strip_prefix("spec ")).unwrap();
    assert_eq!(serde_json::from_str::<AgentSpec>(written).unwrap(), spec);
    assert!(log.contains("modes 600\nmodes 700\nsession none\n"), "{log}");
    let left = log.lines().find_map(|line| line.strip_prefix("left ")).unwrap();
    assert!((55..=60).contains(&left.parse::<i64>().unwrap()), "{left}");
    eventually("the home goes with the run", || homes(&lab) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_08_an_agent_gets_what_its_cli_needs_and_no_other_secret() {
    let mut lab = Lab::idle();
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "sk-ant-none"),
        ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "oauth"),
        ("CLAUDE_MODEL", "m"),
        ("AGENT_MAX_ATTEMPTS", "2"),
        ("DEFAULT_TIMEOUT", "1000"),
        ("API_TIMEOUT_MS", "1"),
        ("HTTPS_PROXY", "http://127.0.0.1:2"),
        ("NODE_EXTRA_CA_CERTS", "/ca.pem"),
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("AWS_SECRET_ACCESS_KEY", "aws"),
        ("AWS_SESSION_TOKEN", "aws"),
        ("TIDEMILL_API_KEY", "tm_x"),
        ("GITHUB_TOKEN", "gh"),
        ("NODE_OPTIONS", "--x"),
        ("LD_PRELOAD_X", "x"),
    ] {
        lab.config.environment.push((name.into(), value.into()));
    }
    driven_by(&mut lab, "tr '\\0' '\\n' < /proc/$$/environ; echo '@@tidemill {\"kind\":\"result\"}'");
    let key = lab.submit("req-1", "{}", options(&asked())).await;
    lab.ended(&key).await.output();
    let log = logged(&lab, &key, "r1-a1/logs/output.log").await;
    let seen: BTreeMap<&str, &str> = log.lines().filter_map(|line| line.split_once('=')).collect();
    let names: Vec<_> = seen.keys().copied().filter(|name| *name != "PWD" && *name != "_").collect();
    let expected = [
        "AGENT_MAX_ATTEMPTS",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "API_TIMEOUT_MS",
        "APP_NAME",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_MODEL",
        "DEFAULT_TIMEOUT",
        "HTTPS_PROXY",
        "INPUT_FILE",
        "NODE_EXTRA_CA_CERTS",
        "PATH",
        "TENANT_ID",
        "TIDEMILL_AGENT_FILE",
        "TIDEMILL_AGENT_HOME",
        "TIDEMILL_ATTEMPT",
        "TIDEMILL_DEADLINE_MS",
        "TIDEMILL_FENCE",
        "TIDEMILL_INPUTS",
        "TIDEMILL_OUTPUT_DIR",
        "TIDEMILL_REQUEST_ID",
        "TIDEMILL_RUN",
        "TIDEMILL_SECRET_NAMES",
        "TIDEMILL_SPAWN",
        "TIDEMILL_TASK_ID",
        "TIDEMILL_TIMEOUT_MS",
    ];
    assert_eq!(names, expected);
    assert_eq!(seen["TIDEMILL_SECRET_NAMES"], "ANTHROPIC_API_KEY,CLAUDE_CODE_OAUTH_TOKEN");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_ends_well_without_a_result_has_failed() {
    let mut lab = Lab::idle();
    // Neither a last line nor a file stands in for it.
    driven_by(
        &mut lab,
        r#"echo '{"x":1}' > "$TIDEMILL_OUTPUT_DIR/artifacts/task-result.json"; echo '{"x":2}'; exit 0"#,
    );
    let key = lab.submit("req-1", "{}", options(&asked())).await;
    let ended = lab.ended(&key).await;
    let failed = ended.first_of("Task Processing Failed");
    assert_eq!(failed["errorCategory"], "unknown");
    assert_eq!(failed["error"], "the agent ended without a result");
    assert_eq!(ended.count("Task Processing Failed"), 3, "it is tried again: {:?}", ended.types());
}

fn usage_of(ended: &Ended, event_type: &str) -> serde_json::Value {
    ended.first_of(event_type)["usage"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_attempt_used_is_recorded_however_it_ends() {
    let mut lab = Lab::idle();
    let text = r#"use='{"inputTokens":100,"outputTokens":7,"costUsd":0.25}'
        case $2 in
        done) echo "@@tidemill {\"kind\":\"result\",\"output\":{},\"usage\":$use,\"sessionId\":\"s-1\"}";;
        fails) echo "@@tidemill {\"kind\":\"error\",\"status\":401,\"message\":\"no\",\"usage\":$use}"; exit 1;;
        slow) echo "@@tidemill {\"kind\":\"usage\",\"usage\":{\"inputTokens\":1}}"
              echo "@@tidemill {\"kind\":\"usage\",\"usage\":$use}"; sleep 100;;
        esac"#;
    driven_by(&mut lab, text);
    let used = json!({ "inputTokens": 100, "outputTokens": 7, "cacheReadTokens": 0, "costUsd": 0.25 });
    for (id, event) in [("done", "Task Completed"), ("fails", "Task Failed"), ("slow", "Task Timeout")] {
        let mut wanted = options(&asked());
        wanted.timeout_ms = Some(if id == "slow" { 1_000 } else { 60_000 });
        let key = lab.submit(id, "{}", wanted).await;
        let ended = lab.ended(&key).await;
        assert_eq!(ended.types().last(), Some(&event), "{:?}", ended.last());
        assert_eq!(usage_of(&ended, event), used, "{id}");
        if id == "done" {
            assert_eq!(ended.last()["sessionId"], "s-1");
        }
    }
    eventually("nothing is left of their homes", || homes(&lab) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_further_attempt_goes_on_with_the_session_if_the_agent_says_so() {
    let mut lab = Lab::idle();
    let text = r#"echo "@@tidemill {\"kind\":\"session\",\"sessionId\":\"s-$TIDEMILL_ATTEMPT\"}"
        echo "$TIDEMILL_ATTEMPT" >> "$TIDEMILL_AGENT_HOME/state"
        if [ "$TIDEMILL_ATTEMPT" -lt 3 ]; then echo ECONNRESET >&2; exit 1; fi
        state=$(cat "$TIDEMILL_AGENT_HOME/state" | tr '\n' ' ')
        echo "@@tidemill {\"kind\":\"result\",\"output\":{\"from\":\"${TIDEMILL_AGENT_SESSION-none}\",\"state\":\"$state\"}}""#;
    driven_by(&mut lab, text);
    let going_on = AgentSpec { resume_session: true, ..AgentSpec::of_prompt("do it") };
    for (id, spec, expected) in [
        ("on", going_on, json!({ "from": "s-2", "state": "1 2 3 " })),
        ("over", AgentSpec::of_prompt("do it"), json!({ "from": "none", "state": "1 2 3 " })),
    ] {
        let key = lab.submit(id, "{}", options(&agent(spec))).await;
        let ended = lab.ended(&key).await;
        assert_eq!(ended.output(), expected, "{id}");
        assert_eq!(ended.first_of("Task Processing Failed")["sessionId"], "s-1", "{id}");
    }
    eventually("nothing is left of their homes", || homes(&lab) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_what_an_agent_was_given_is_taken_out_of_all_that_it_says_and_leaves() {
    let mut lab = Lab::idle();
    let secrets = ["sk-ant-api03-SECRETSECRET", "oauth-value-0123456789", "proxied-by-definition"];
    for (name, value) in
        ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_OWN_PASSWORD"].into_iter().zip(secrets)
    {
        lab.config.environment.push((name.into(), value.into()));
    }
    let text = r#"all="$ANTHROPIC_API_KEY,$CLAUDE_CODE_OAUTH_TOKEN,$CLAUDE_OWN_PASSWORD"
        echo "log $all"; echo "words $all" >&2
        mkdir "$TIDEMILL_OUTPUT_DIR/traces"; echo "trace $all" > "$TIDEMILL_OUTPUT_DIR/traces/t.json"
        echo "file $all" > "$TIDEMILL_OUTPUT_DIR/artifacts/a.txt"
        case $2 in
        line) echo "@@tidemill {\"kind\":\"result\",\"output\":{\"said\":\"$all\"}}";;
        file) echo "{\"said\":\"$all\"}" > "$TIDEMILL_OUTPUT_DIR/artifacts/out.json"
              echo '@@tidemill {"kind":"result","outputFile":"artifacts/out.json"}';;
        fail) echo "@@tidemill {\"kind\":\"error\",\"message\":\"bad $all\",\"status\":401}"; exit 1;;
        esac"#;
    driven_by(&mut lab, text);
    for id in ["line", "file", "fail"] {
        let key = lab.submit(id, "{}", options(&asked())).await;
        let ended = lab.ended(&key).await;
        let clean = "[REDACTED],[REDACTED],[REDACTED]";
        if id == "fail" {
            assert!(ended.failure().1.contains(clean), "{:?}", ended.failure());
        } else {
            assert_eq!(ended.output(), json!({ "said": clean }));
        }
        for (path, word) in
            [("logs/output.log", "log "), ("traces/t.json", "trace "), ("artifacts/a.txt", "file ")]
        {
            let text = logged(&lab, &key, &format!("r1-a1/{path}")).await;
            assert!(text.contains(&format!("{word}{clean}")), "{text}");
        }
        let told = ended.events.iter().map(|event| event.properties.as_str().to_owned());
        for text in told.chain(lab.shown()) {
            assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_a_secret_that_looks_like_the_protocol_breaks_nothing_and_literal_values_are_none() {
    let mut lab = Lab::idle();
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "@@tidemill "),
        ("CLAUDE_ONE_TOKEN", r#""kind":"result","#),
        ("CLAUDE_TWO_TOKEN", "inputTokens"),
        ("CLAUDE_THREE_TOKEN", "10000001"),
    ] {
        lab.config.environment.push((name.into(), value.into()));
    }
    let text = r#"echo "names $TIDEMILL_SECRET_NAMES"
        echo "@@tidemill {\"kind\":\"result\",\"output\":{\"mode\":\"$MODE_KEY\",\"two\":\"input\u0054okens\"},\"usage\":{\"inputTokens\":10000001}}""#;
    driven_by(&mut lab, text);
    let literal = env(&[("MODE_KEY", "literal-value"), ("CLAUDE_ONE_TOKEN", "another-literal")]);
    let execution = RunnerSpec { env: literal, ..asked() };
    let key = lab.submit("req-1", "{}", options(&execution)).await;
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output(), json!({ "mode": "literal-value", "two": "[REDACTED]" }));
    assert_eq!(usage_of(&ended, "Task Completed")["inputTokens"], 10_000_001);
    let log = logged(&lab, &key, "r1-a1/logs/output.log").await;
    let names = "names ANTHROPIC_API_KEY,CLAUDE_TWO_TOKEN,CLAUDE_THREE_TOKEN\n";
    assert!(log.contains(names), "what a literal value replaced is no secret: {log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_secrets_are_found_in_other_forms_and_also_those_that_only_the_worker_has() {
    let mut lab = Lab::idle();
    for (name, value) in [
        ("DATABASE_LOGIN", "name: \"ann\"\npass: open-sesame\n"),
        ("TIDEMILL_API_KEY", "worker-only-key"),
        ("HTTPS_PROXY", "http://ann:proxy-password@127.0.0.1:2"),
    ] {
        lab.config.environment.push((name.into(), value.into()));
    }
    lab.config.task_secrets = listed("DATABASE_LOGIN");
    let text = r#"echo "given $TIDEMILL_SECRET_NAMES"
        echo "line $(printf %s "$DATABASE_LOGIN" | tail -n 1)"; printf '%s\n' 'json name: \"ann\"\npass: open-sesame'
        echo "encoded $(printf %s "$DATABASE_LOGIN" | base64)"; echo "worker-only-key"; echo "proxy $HTTPS_PROXY"
        case $2 in
        free) echo '@@tidemill {"kind":"result","output":{"said":"worker-\u006fnly-key"}}';;
        held) echo '@@tidemill {"kind":"result","output":{"said":"worker-only-key"}}';;
        esac"#;
    driven_by(&mut lab, text);
    let definition =
        json!({ "name": "say", "runner": "agent", "prompt": "do it", "secrets": ["DATABASE_LOGIN"] });
    let given = defined(&lab, &definition).await;
    let key = lab.submit("free", "{}", options(&given)).await;
    assert_eq!(lab.ended(&key).await.output(), json!({ "said": "[REDACTED]" }));
    let log = logged(&lab, &key, "r1-a1/logs/output.log").await;
    let clean = "given DATABASE_LOGIN\nline [REDACTED]\njson [REDACTED]\nencoded [REDACTED]";
    assert!(log.starts_with(clean), "{log}");
    assert!(log.ends_with("\n[REDACTED]\nproxy http://[REDACTED]@127.0.0.1:2\n"), "{log}");
    // What the agent's process checked is not what is left.
    let schema = json!({ "type": "object", "properties": { "said": { "pattern": "^worker" } } });
    let mut spec = AgentSpec::of_prompt("do it");
    spec.steps[0].output_schema = Some(Json::of(&schema));
    let key = lab.submit("held", "{}", options(&agent(spec))).await;
    let (category, error) = lab.ended(&key).await.failure();
    assert_eq!((category.as_str(), error.contains("a secret was cut out")), ("validation", true), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_names_of_files_are_cleaned() {
    let mut lab = Lab::idle();
    lab.config.environment.push(("ANTHROPIC_API_KEY".into(), "sesame-1\nsesame-2".into()));
    let text = r#"cd "$TIDEMILL_OUTPUT_DIR"; mkdir -p traces artifacts/deep
        echo a > artifacts/deep/x-sesame-1; echo b > artifacts/deep/x-sesame-2; echo c > traces/sesame-1.json
        dd if=/dev/null of=artifacts/sesame-2 bs=1 seek=68M 2>/dev/null
        echo '@@tidemill {"kind":"result","output":{}}'"#;
    driven_by(&mut lab, text);
    let key = lab.submit("req-1", "{}", options(&asked())).await;
    lab.ended(&key).await.output();
    for (path, text) in [
        ("artifacts/deep/x-[REDACTED]", "a\n"),
        ("artifacts/deep/x-[REDACTED]-2", "b\n"),
        ("traces/[REDACTED].json", "c\n"),
    ] {
        assert_eq!(logged(&lab, &key, &format!("r1-a1/{path}")).await, text);
    }
    assert_eq!(lab.blob(&key, "r1-a1/artifacts/deep/x-sesame-1").await, None);
    let shown = lab.shown().join("\n");
    assert!(shown.contains("artifacts/[REDACTED] is 71303168 bytes and is not kept"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_driver_runs_no_agents() {
    let lab = Lab::working();
    let key = lab.submit("req-1", "{}", options(&asked())).await;
    assert_eq!(lab.ended(&key).await.failure().0, "not-found");
}
