//! Tries within one attempt: what is tried again, when, and until when.

use std::time::Instant;

use serde_json::{Value, json};

use crate::lab::{Lab, api_error, prints, succeeds, success};

fn now_millis() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the deadline is told in time of the wall")]
    let now = std::time::SystemTime::now();
    u64::try_from(now.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[test]
fn ag_15_what_passes_is_tried_again_with_growing_delays() {
    let mut lab = Lab::new("again");
    lab.set("AGENT_RETRY_DELAY", "100ms");
    lab.step(&json!({}));
    lab.play_in_call(1, &api_error(429));
    lab.play_in_call(2, &api_error(529));
    lab.play(&succeeds(&json!({})));
    let ended = lab.go();
    ended.result();
    assert_eq!(lab.calls(), 3);
    let tries = ended.trace(0)["attempts"].as_array().unwrap().clone();
    let delays: Vec<_> = tries.iter().map(|tried| tried["nextTryAfterMs"].as_u64()).collect();
    assert!(
        (80..=120).contains(&delays[0].unwrap()) && (160..=240).contains(&delays[1].unwrap()),
        "{delays:?}"
    );
    assert_eq!(delays[2], None);
    let began = |at: usize| tries[at]["startedAt"].as_u64().unwrap();
    assert!(began(1) - began(0) >= delays[0].unwrap() && began(2) - began(1) >= delays[1].unwrap());
    assert_eq!(tries[2]["outcome"], json!({ "status": "completed" }));
    assert!(ended.stdout.contains(r#""type":"waiting""#));
    let ids: std::collections::BTreeSet<_> = (1..=3).map(|call| lab.argument(call, "--session-id")).collect();
    assert_eq!(ids.len(), 3, "each try is a session of its own");
}

#[test]
fn h_033_the_number_of_tries_can_be_set() {
    for (variable, spec, expected) in
        [(None, None, 3), (Some("2"), None, 2), (Some("2"), Some(1), 1), (None, Some(4), 4)]
    {
        let mut lab = Lab::new("number");
        if let Some(variable) = variable {
            lab.set("AGENT_MAX_ATTEMPTS", variable);
        }
        lab.set("AGENT_RETRY_DELAY", "1ms");
        lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }], "maxAttempts": spec }));
        lab.play(&api_error(529));
        assert_eq!(lab.go().error()["status"], 529);
        assert_eq!(lab.calls(), expected, "{variable:?} {spec:?}");
    }
}

#[test]
fn usage_of_all_tries_is_summed_and_told_as_it_grows() {
    let lab = Lab::new("sum");
    lab.step(&json!({}));
    let failed = success(&json!({ "is_error": true, "api_error_status": 529, "total_cost_usd": 0.1 }));
    lab.play_in_call(1, &prints(&[failed], 1));
    lab.play(&succeeds(&json!({ "total_cost_usd": 0.2 })));
    let ended = lab.go();
    let usage = &ended.result()["usage"];
    assert_eq!((&usage["inputTokens"], &usage["turns"]), (&json!(200), &json!(4)));
    assert!((usage["costUsd"].as_f64().unwrap() - 0.3).abs() < 1e-9);
    let told: Vec<_> = ended
        .records_of("usage")
        .iter()
        .map(|record| record["usage"]["inputTokens"].as_u64().unwrap())
        .collect();
    assert_eq!(told, [100, 200]);
}

#[test]
fn a_long_wait_that_the_api_asks_for_is_left_to_the_worker() {
    let mut lab = Lab::new("retry-after");
    lab.step(&json!({}));
    lab.set("TIDEMILL_DEADLINE_MS", (now_millis() + 60_000).to_string());
    let retry = json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": 90_000, "error_status": 429, "error": "rate_limit" });
    // Until it is interrupted it waits, as the CLI does.
    lab.play(&format!("echo '{retry}'\nread -r line\ncase $line in *interrupt*) exit 1;; esac\nsleep 60"));
    let began = Instant::now();
    let ended = lab.go();
    assert!(began.elapsed().as_secs() < 20);
    let error = ended.error();
    assert_eq!((&error["status"], &error["retryAfterMs"]), (&json!(429), &json!(90_000)));
    assert_eq!((ended.category(), lab.calls()), ("rate-limit", 1));
}

#[test]
fn a_short_wait_is_waited_within_the_session_and_a_vain_one_is_not() {
    let mut lab = Lab::new("short-wait");
    lab.set("AGENT_IDLE_TIMEOUT", "1s");
    lab.step(&json!({}));
    let retry = |status: u16, delay: u64| json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": delay, "error_status": status });
    // The wait is longer than the silence that is allowed otherwise.
    lab.play(&format!("echo '{}'\nsleep 1.5\n{}", retry(529, 1_500), succeeds(&json!({}))));
    lab.go().result();
    lab.play(&format!(
        "echo '{}'\nread -r line\necho \"$line\" > \"$here/second-line\"\nexit 1",
        retry(401, 500)
    ));
    let ended = lab.go();
    assert_eq!((ended.error()["status"].as_u64(), ended.category()), (Some(401), "auth"));
    let line: Value =
        serde_json::from_str(&std::fs::read_to_string(lab.dir.join("fake/second-line")).unwrap()).unwrap();
    assert_eq!(
        (&line["type"], &line["request"]["subtype"]),
        (&json!("control_request"), &json!("interrupt"))
    );
}

#[test]
fn h_032_no_try_begins_that_cannot_end_in_time() {
    let mut lab = Lab::new("no-time");
    lab.step(&json!({}));
    lab.play(&succeeds(&json!({})));
    lab.set("TIDEMILL_DEADLINE_MS", (now_millis() + 500).to_string());
    let ended = lab.go();
    assert_eq!((ended.error()["code"].as_str(), ended.category()), (Some("AGENT_NO_TIME_LEFT"), "timeout"));
    assert_eq!(lab.calls(), 0);
    // A try that fails leaves no time for the delay before the next one.
    lab.set("TIDEMILL_DEADLINE_MS", (now_millis() + 6_000).to_string());
    lab.set("AGENT_RETRY_DELAY", "30s");
    lab.play(&api_error(529));
    let ended = lab.go();
    assert_eq!((ended.error()["status"].as_u64(), lab.calls()), (Some(529), 1));
}

#[test]
fn ag_16_the_time_of_a_step_is_held_in_its_bounds() {
    let mut lab = Lab::new("bounds");
    for (step, default, expected) in [
        (json!({ "timeout": 10 }), None, 1_000),
        (json!({ "timeout": "1h" }), None, 900_000),
        (json!({ "timeout": "30s" }), Some("9000"), 30_000),
        (json!({}), None, 120_000),
        (json!({}), Some("9000"), 9_000),
    ] {
        lab.step(&step);
        lab.play(&succeeds(&json!({})));
        match default {
            Some(default) => lab.set("DEFAULT_TIMEOUT", default),
            None => lab.unset("DEFAULT_TIMEOUT"),
        }
        let ended = lab.go();
        ended.result();
        assert_eq!(ended.trace(0)["timeoutMs"], expected, "{step} {default:?}");
    }
}

#[test]
fn money_is_counted_over_all_tries() {
    let lab = Lab::new("budget");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }, { "name": "b", "prompt": "y" }], "maxCostUsd": 0.5 }));
    lab.play_in_call(1, &succeeds(&json!({ "total_cost_usd": 0.3 })));
    lab.play(&prints(
        &[success(&json!({ "is_error": true, "api_error_status": 529, "total_cost_usd": 0.2 }))],
        1,
    ));
    let ended = lab.go();
    assert_eq!((ended.error()["code"].as_str(), ended.category()), (Some("AGENT_MAX_COST"), "validation"));
    assert_eq!(lab.argument(1, "--max-budget-usd").as_deref(), Some("0.50"));
    assert_eq!(lab.argument(2, "--max-budget-usd").as_deref(), Some("0.20"));
    assert_eq!(lab.calls(), 2, "nothing is left for a third");
    let said = "the attempt has cost 0.50 USD; its limit is 0.50 USD (maxCostUsd)";
    assert_eq!(ended.error()["message"], said);
}

#[test]
fn a_budget_that_is_used_up_is_named() {
    let mut lab = Lab::new("named-budget");
    let name = "the job's budget of 5.00 USD, of which 4.50 USD were spent before";
    lab.set("TIDEMILL_BUDGET", name);
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }], "maxCostUsd": 0.5 }));
    let spent = json!({ "is_error": true, "subtype": "error_max_budget_usd", "total_cost_usd": 0.6 });
    lab.play(&prints(&[success(&spent)], 1));
    let ended = lab.go();
    assert_eq!(ended.error()["code"].as_str(), Some("AGENT_MAX_COST"));
    let said = ended.error()["message"].as_str().unwrap().to_owned();
    assert!(said.ends_with(&format!("; its limit is 0.50 USD, what is left of {name}")), "{said}");
}

#[test]
fn what_an_attempt_cost_and_its_limit_are_told_once_each() {
    let lab = Lab::new("spent");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }], "maxCostUsd": 0.01 }));
    let spent = json!({
        "is_error": true, "subtype": "error_max_budget_usd", "total_cost_usd": 0.0135, "result": null,
        "errors": ["Reached maximum budget ($0.01)"], "num_turns": 1,
    });
    lab.play(&prints(&[success(&spent)], 1));
    let ended = lab.go();
    let said = "step a: the attempt has cost 0.0135 USD; its limit is 0.01 USD (maxCostUsd)";
    assert_eq!(ended.error()["message"], said);
    assert!(ended.stdout.contains("step a: 1 turn, "), "{}", ended.stdout);
}

/// Whether the CLI asks again is its matter, and nothing is said of it where it is ended.
#[test]
fn the_log_says_of_the_next_request_only_what_is_known() {
    let lab = Lab::new("next-request");
    lab.step(&json!({}));
    let retry = |status: u16, delay: u64| json!({ "type": "system", "subtype": "api_retry", "attempt": 1, "retry_delay_ms": delay, "error_status": status });
    lab.play(&format!("echo '{}'\n{}", retry(529, 30), succeeds(&json!({}))));
    let ended = lab.go();
    ended.result();
    let waits = "agent: the API failed (status 529); the CLI means to ask again in 30 ms\n";
    assert!(ended.stdout.contains(waits), "{}", ended.stdout);
    lab.play(&format!("echo '{}'\nread -r line\nexit 1", retry(401, 500)));
    let ended = lab.go();
    assert!(ended.stdout.contains("agent: the API failed (status 401); this try ends\n"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("500 ms"), "{}", ended.stdout);
    let said = ended.error()["message"].as_str().unwrap().to_owned();
    assert!(said.ends_with("with status 401; check ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN"), "{said}");
}

#[test]
fn the_limit_of_the_task_is_named_with_what_is_kept_of_it() {
    let mut lab = Lab::new("named-limit");
    lab.step(&json!({}));
    lab.play("read -r line\nread -r line\nexit 1");
    lab.set("TIDEMILL_DEADLINE_MS", (now_millis() + 4_000).to_string());
    lab.set("TIDEMILL_TIMEOUT_MS", "8000");
    let ended = lab.go();
    assert_eq!((ended.error()["code"].as_str(), ended.category()), (Some("AGENT_TIMEOUT"), "timeout"));
    let said = ended.error()["message"].as_str().unwrap().to_owned();
    let expected = "step only: the time of the task (timeout: 8s) ended before the step did; work stops ";
    assert!(said.starts_with(expected) && said.contains(" ms earlier"), "{said}");
    assert_eq!(lab.calls(), 1);
    assert!(ended.stdout.contains("agent: step only: try 2 of 3 is left out: "), "{}", ended.stdout);
    assert!(ended.stdout.contains(" ms are left for the task\n"), "{}", ended.stdout);
}
