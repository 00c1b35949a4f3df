//! Ends that the CLI does not choose: time limits, silence, signals.

use std::fs;
use std::time::Instant;

use serde_json::json;

use crate::lab::{Lab, processes_with, signal, succeeds, success, until};

const SAYS: &str = r#"echo '{"type":"stream_event","event":{"type":"message_start","message":{"usage":{"input_tokens":70,"output_tokens":1}}}}'"#;

#[test]
fn ag_17_a_step_that_takes_too_long_is_a_timeout_and_tells_what_it_used() {
    let lab = Lab::new("timeout");
    lab.task(&json!({ "steps": [{ "name": "only", "prompt": "x", "timeout": 10 }], "maxAttempts": 1 }));
    // Interrupted, it tells what it used, as the CLI does.
    let last = success(
        &json!({ "subtype": "error_during_execution", "is_error": true, "total_cost_usd": 0.75, "result": null }),
    );
    lab.play(&format!("{SAYS}\nread -r line\ncase $line in *interrupt*) cat <<'E'\n{last}\nE\ncat >/dev/null; exit 1;; esac\nsleep 60"));
    let began = Instant::now();
    let ended = lab.go();
    assert!((1_000..8_000).contains(&began.elapsed().as_millis()));
    let error = ended.error();
    assert_eq!((error["code"].as_str(), ended.category()), (Some("AGENT_TIMEOUT"), "timeout"));
    assert_eq!((&error["usage"]["costUsd"], &error["usage"]["inputTokens"]), (&json!(0.75), &json!(100)));
}

#[test]
fn a_cli_that_hears_nothing_is_killed_with_all_it_started() {
    let lab = Lab::new("deaf");
    lab.task(&json!({ "steps": [{ "name": "only", "prompt": "x", "timeout": "1s" }], "maxAttempts": 1 }));
    let mark = "86.1234";
    lab.play(&format!("trap '' TERM INT\n{SAYS}\nsetsid sleep {mark} &\necho $! > \"$here/tool\"\nwhile true; do sleep {mark}; done"));
    let ended = lab.go();
    let error = ended.error();
    assert_eq!(error["code"], "AGENT_TIMEOUT");
    assert_eq!(error["usage"]["inputTokens"], 70, "what was heard counts without a result");
    assert_eq!(processes_with(mark), Vec::<u32>::new());
    assert!(ended.stdout.contains("processes were left behind and killed"), "{}", ended.stdout);
    assert_eq!(ended.trace(0)["attempts"][0]["exit"], "killed by signal 9");
}

#[test]
fn silence_is_a_timeout_unless_a_tool_runs() {
    let mut lab = Lab::new("silence");
    lab.set("AGENT_IDLE_TIMEOUT", "1s");
    lab.step(&json!({}));
    lab.play_in_call(1, &format!("{SAYS}\nread -r line\nexit 1"));
    let call = json!({ "type": "assistant", "message": { "content": [{ "type": "tool_use", "id": "t", "name": "Bash", "input": {} }] } });
    let answer = json!({ "type": "user", "message": { "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "" }] } });
    lab.play(&format!("echo '{call}'\nsleep 2\necho '{answer}'\n{}", succeeds(&json!({}))));
    let ended = lab.go();
    ended.result();
    let tries = ended.trace(0)["attempts"].as_array().unwrap().clone();
    assert_eq!(tries.len(), 2);
    assert_eq!(tries[0]["outcome"]["error"]["code"], "AGENT_IDLE");
    assert_eq!(tries[0]["outcome"]["error"]["category"], "timeout");
    assert!(tries[1]["toolCalls"][0]["durationMs"].as_u64().unwrap() >= 1_900);
}

#[test]
fn a_cli_that_does_not_end_after_its_result_is_ended_and_the_result_counts() {
    let lab = Lab::new("lingers");
    lab.step(&json!({}));
    lab.play(&format!("cat <<'E'\n{}\nE\nexec sleep 86.4321", success(&json!({}))));
    let ended = lab.go();
    assert_eq!(ended.result()["output"]["result"], "all done");
    assert!(ended.stdout.contains("claude had told its result and did not end"));
    assert_eq!(processes_with("86.4321"), Vec::<u32>::new());
}

#[test]
fn told_to_stop_it_ends_the_cli_and_writes_what_happened() {
    for name in ["TERM", "INT"] {
        let lab = Lab::new("stop");
        lab.step(&json!({}));
        let mark = if name == "TERM" { "86.7001" } else { "86.7002" };
        lab.play(&format!("{SAYS}\nsetsid sleep {mark} &\necho ready > \"$here/ready\"\nexec sleep {mark}"));
        let attempt = lab.start(Some("{}"));
        until("the call", || lab.dir.join("fake/ready").exists());
        signal(attempt.child.id(), name);
        let began = Instant::now();
        let ended = attempt.wait();
        assert!(began.elapsed().as_millis() < 4_500, "{:?}", began.elapsed());
        assert_eq!(ended.status.code(), Some(143));
        let error = ended.records.last().unwrap();
        assert_eq!(
            (error["kind"].as_str(), error["code"].as_str(), ended.category()),
            (Some("error"), Some("AGENT_STOPPED"), "timeout")
        );
        assert_eq!(error["usage"]["inputTokens"], 70);
        assert_eq!(ended.records_of("usage")[0]["usage"]["inputTokens"], 70);
        assert_eq!(ended.trace(0)["attempts"][0]["outcome"]["error"]["code"], "AGENT_STOPPED");
        assert!(ended.file("logs/summary.log").contains("Status: failed AGENT_STOPPED"));
        assert_eq!(processes_with(mark), Vec::<u32>::new());
    }
}

#[test]
fn told_to_stop_between_two_tries_it_does_not_begin_another() {
    let mut lab = Lab::new("stop-between");
    lab.set("AGENT_RETRY_DELAY", "60s");
    lab.step(&json!({}));
    lab.play(&crate::lab::api_error(529));
    let attempt = lab.start(Some("{}"));
    let trace = lab.dir.join("output-1/traces/session_trace.json");
    until("the first try", || fs::read_to_string(&trace).is_ok_and(|text| text.contains("AGENT_API_STATUS")));
    signal(attempt.child.id(), "TERM");
    let ended = attempt.wait();
    assert_eq!((ended.status.code(), lab.calls()), (Some(143), 1));
}

#[test]
fn the_cli_dies_with_a_process_that_had_no_time_to_end_it() {
    let lab = Lab::new("killed");
    lab.step(&json!({}));
    let mark = "86.8001";
    lab.play(&format!("{SAYS}\necho ready > \"$here/ready\"\nexec sleep {mark}"));
    let attempt = lab.start(Some("{}"));
    until("the call", || lab.dir.join("fake/ready").exists());
    signal(attempt.child.id(), "KILL");
    let _ = attempt.wait();
    until("the end of the CLI", || processes_with(mark).is_empty());
}

/// A worker that kills this process charges what the last line said.
#[test]
fn every_answer_is_told_at_once_with_what_it_costs_about() {
    let lab = Lab::new("told");
    lab.step(&json!({}));
    let event =
        |event: serde_json::Value| format!("echo '{}'\n", json!({ "type": "stream_event", "event": event }));
    let begins = event(
        json!({ "type": "message_start", "message": { "model": "claude-sonnet-4-5", "usage": { "input_tokens": 1000, "output_tokens": 1 } } }),
    );
    let ends = event(json!({ "type": "message_delta", "usage": { "output_tokens": 200 } }));
    lab.play(&format!("{begins}{ends}{begins}{ends}echo ready > \"$here/ready\"\nexec sleep 86.8101"));
    let attempt = lab.start(Some("{}"));
    until("the call", || lab.dir.join("fake/ready").exists());
    signal(attempt.child.id(), "TERM");
    let ended = attempt.wait();
    let told = ended.records_of("usage");
    let costs: Vec<f64> = told.iter().map(|record| record["usage"]["costUsd"].as_f64().unwrap()).collect();
    assert_eq!(costs, [0.003_015, 0.006, 0.009_015, 0.012], "{}", ended.stdout);
    assert_eq!(ended.records.last().unwrap()["usage"]["costUsd"], 0.012, "what was killed is paid for");
    let tried = &ended.trace(0)["attempts"][0];
    assert_eq!((&tried["costIsEstimated"], &tried["usage"]["costUsd"]), (&json!(true), &json!(0.012)));
    assert!(ended.file("logs/summary.log").contains("cost estimated"));
}

#[test]
fn an_estimate_counts_for_the_limit_of_the_cost() {
    let lab = Lab::new("estimate");
    lab.task(&json!({ "steps": [{ "name": "only", "prompt": "x" }], "maxCostUsd": 0.01 }));
    // It dies without a word about money, again and again.
    let event = json!({ "type": "stream_event", "event": { "type": "message_start", "message": { "model": "claude-sonnet-4-5", "usage": { "input_tokens": 2000 } } } });
    lab.play(&format!("echo '{event}'\nkill -9 $$"));
    let ended = lab.go();
    assert_eq!(
        (ended.error()["code"].as_str(), lab.calls()),
        (Some("AGENT_MAX_COST"), 2),
        "{}",
        ended.stdout
    );
    assert_eq!(lab.argument(2, "--max-budget-usd").as_deref(), Some("0.004"));
}
