//! Every failure that a CLI can come up with has its code and class, and is visible in the trace.

use serde_json::json;

use crate::lab::{Lab, api_error, prints, succeeds, success};

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn failures_have_their_codes_and_classes() {
    let result = |fields: serde_json::Value, code: i32| prints(&[success(&fields)], code);
    let error = |text: &str| result(json!({ "is_error": true, "result": text }), 1);
    let broken = r#"echo '{"type":"assistant","message"'; echo 'plain text'; exit 0"#.to_owned();
    for (name, play, code, category, calls) in [
        ("empty", result(json!({ "result": "" }), 0), "AGENT_EMPTY_RESULT", "server-error", 2),
        (
            "turns",
            result(
                json!({ "subtype": "error_max_turns", "is_error": true, "result": null, "errors": ["Reached maximum number of turns (2)"] }),
                1,
            ),
            "AGENT_MAX_TURNS",
            "validation",
            1,
        ),
        (
            "money",
            result(json!({ "subtype": "error_max_budget_usd", "is_error": true }), 1),
            "AGENT_MAX_COST",
            "validation",
            1,
        ),
        (
            "refusal",
            result(
                json!({ "stop_reason": "refusal", "is_error": true, "result": "API Error: unable to respond" }),
                1,
            ),
            "AGENT_REFUSED",
            "validation",
            1,
        ),
        (
            "refusal-well-ended",
            result(json!({ "stop_reason": "refusal" }), 0),
            "AGENT_REFUSED",
            "validation",
            1,
        ),
        (
            "output-retries",
            result(json!({ "subtype": "error_max_structured_output_retries", "is_error": true }), 1),
            "AGENT_OUTPUT_RETRIES",
            "validation",
            1,
        ),
        (
            "command",
            result(json!({ "num_turns": 0, "result": "Unknown command" }), 0),
            "AGENT_NOT_ASKED",
            "validation",
            1,
        ),
        ("400", api_error(400), "AGENT_API_STATUS", "validation", 1),
        ("401", api_error(401), "AGENT_API_STATUS", "auth", 1),
        ("403", api_error(403), "AGENT_API_STATUS", "auth", 1),
        ("404", api_error(404), "AGENT_API_STATUS", "not-found", 1),
        ("429", api_error(429), "AGENT_API_STATUS", "rate-limit", 2),
        ("500", api_error(500), "AGENT_API_STATUS", "server-error", 2),
        ("529", api_error(529), "AGENT_API_STATUS", "server-error", 2),
        (
            "refused",
            error("API Error: Connection refused (ECONNREFUSED)"),
            "AGENT_API_UNREACHABLE",
            "network",
            2,
        ),
        (
            "reset",
            error("API Error: Unable to connect to API (ECONNRESET)"),
            "AGENT_API_UNREACHABLE",
            "network",
            2,
        ),
        ("api-timeout", error("Request timed out"), "AGENT_API_TIMEOUT", "timeout", 2),
        ("no-login", error("Not logged in · Please run /login"), "AGENT_NOT_LOGGED_IN", "auth", 1),
        ("no-result", "exit 0".to_owned(), "AGENT_NO_RESULT", "server-error", 2),
        ("broken", broken, "AGENT_BROKEN_STREAM", "parse", 1),
        (
            "misused",
            "echo \"error: unknown option '--x'\" >&2; exit 1".to_owned(),
            "AGENT_CLI_MISUSED",
            "validation",
            1,
        ),
        ("failed", "echo oh >&2; exit 1".to_owned(), "AGENT_CLI_FAILED", "unknown", 1),
        ("killed", "kill -KILL $$".to_owned(), "AGENT_CLI_KILLED", "server-error", 2),
        (
            "killed-after-result",
            format!("cat <<'E'\n{}\nE\nkill -KILL $$", success(&json!({}))),
            "AGENT_CLI_KILLED",
            "server-error",
            2,
        ),
        (
            "long-line",
            "head -c 17000000 /dev/zero | tr '\\0' x; exit 0".to_owned(),
            "AGENT_LINE_TOO_LONG",
            "parse",
            1,
        ),
    ] {
        let mut lab = Lab::new(name);
        lab.set("AGENT_MAX_ATTEMPTS", "2");
        lab.step(&json!({}));
        lab.play(&play);
        let ended = lab.go();
        let error = ended.error();
        assert_eq!(
            (error["code"].as_str(), ended.category(), lab.calls()),
            (Some(code), category, calls),
            "{name}: {error}"
        );
        assert!(error["message"].as_str().unwrap().starts_with("step only: "), "{name}: {error}");
        let trace = ended.trace(0);
        assert_eq!(trace["status"], "failed", "{name}");
        assert_eq!(trace["attempts"].as_array().unwrap().len(), calls, "{name}");
        for tried in trace["attempts"].as_array().unwrap() {
            assert_eq!(tried["outcome"]["error"]["code"], code, "{name}: {tried}");
            assert_eq!(tried["outcome"]["error"]["category"], category, "{name}: {tried}");
        }
        assert!(ended.file("logs/summary.log").contains(code), "{name}");
        assert_eq!(
            error["usage"],
            ended.records_of("usage").last().map_or(error["usage"].clone(), |told| told["usage"].clone()),
            "{name}"
        );
    }
}

#[test]
fn a_step_that_fails_ends_the_task_and_keeps_what_came_before() {
    let lab = Lab::new("second-step");
    lab.task(&json!({ "steps": [{ "name": "one", "prompt": "x" }, { "name": "two", "prompt": "y" }, { "name": "three", "prompt": "z" }] }));
    lab.play_in_call(1, &succeeds(&json!({ "total_cost_usd": 0.25 })));
    lab.play(&api_error(401));
    let ended = lab.go();
    assert_eq!(ended.error()["status"], 401);
    assert_eq!(ended.error()["usage"]["costUsd"], 0.25, "what was paid is told");
    assert_eq!(
        (lab.calls(), ended.trace(0)["status"].as_str(), ended.trace(1)["status"].as_str()),
        (2, Some("completed"), Some("failed"))
    );
    assert!(ended.output.join("artifacts/one.json").exists());
    assert!(!ended.output.join("artifacts/task-result.json").exists());
}

#[test]
fn a_model_that_gives_no_output_of_the_wanted_form_has_failed() {
    let lab = Lab::new("no-output");
    lab.step(&json!({ "outputSchema": { "type": "object" } }));
    lab.play(&succeeds(&json!({ "result": "I would rather talk" })));
    let ended = lab.go();
    assert_eq!((ended.error()["code"].as_str(), ended.category()), (Some("AGENT_NO_OUTPUT"), "validation"));
    assert!(ended.error()["message"].as_str().unwrap().contains("I would rather talk"));
}

#[test]
fn a_later_error_takes_a_success_back() {
    let lab = Lab::new("taken-back");
    lab.step(&json!({}));
    let (first, last) = (
        success(&json!({})),
        success(
            &json!({ "subtype": "error_max_turns", "is_error": false, "result": null, "total_cost_usd": 0.5, "usage": {} }),
        ),
    );
    lab.play(&prints(&[first.clone(), last.clone()], 0));
    let ended = lab.go();
    assert_eq!(ended.error()["code"], "AGENT_MAX_TURNS");
    let used = &ended.error()["usage"];
    assert_eq!((&used["costUsd"], &used["inputTokens"]), (&json!(0.5), &json!(100)), "both are paid for");
    // The other way round nothing is made good.
    lab.play(&prints(&[last, first], 0));
    assert_eq!(lab.go().error()["code"], "AGENT_MAX_TURNS");
}

#[test]
fn half_a_character_does_not_lose_a_result() {
    let lab = Lab::new("half");
    lab.step(&json!({}));
    let line = success(&json!({ "result": "cut HERE" })).replace("HERE", "\\ud83d");
    lab.play(&prints(&[line], 0));
    let ended = lab.go();
    assert_eq!(ended.result()["output"]["result"], "cut \u{fffd}");
    assert_eq!(ended.trace(0)["attempts"][0]["brokenLines"]["count"], 0);
}
