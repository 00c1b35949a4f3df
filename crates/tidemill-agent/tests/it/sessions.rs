//! What a further try or attempt need not do again: sessions that are gone on with, steps that are reused.

use std::fs;

use serde_json::json;

use crate::lab::{Lab, api_error, prints, succeeds, success};

fn with_home(name: &str) -> Lab {
    let mut lab = Lab::new(name);
    let home = lab.dir.join("home");
    fs::create_dir_all(&home).unwrap();
    lab.set("TIDEMILL_AGENT_HOME", home.to_str().unwrap());
    lab
}

#[test]
fn a_further_try_goes_on_with_the_session() {
    let lab = with_home("resume-try");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "the whole task" }], "resumeSession": true }));
    lab.play_in_call(1, &api_error(529));
    lab.play(&succeeds(&json!({})));
    let ended = lab.go();
    ended.result();
    let id = lab.argument(1, "--session-id").unwrap();
    assert_eq!(lab.argument(2, "--resume"), Some(id.clone()));
    assert_eq!(lab.argument(2, "--session-id"), None);
    assert!(lab.prompt(1) == "the whole task" && lab.prompt(2).starts_with("You were interrupted."));
    assert_eq!(lab.noted("directory", 1), lab.noted("directory", 2));
    assert_eq!(ended.result()["sessionId"], json!(id));
    assert_eq!(ended.records_of("session")[0]["sessionId"], json!(id));
    let tries = ended.trace(0)["attempts"].as_array().unwrap().clone();
    assert_eq!((&tries[0]["resumed"], &tries[1]["resumed"]), (&json!(false), &json!(true)));
}

#[test]
fn a_further_attempt_goes_on_with_the_session_in_the_same_place() {
    let lab = with_home("resume-attempt");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }], "resumeSession": true, "maxAttempts": 1 }));
    lab.play_in_call(1, &api_error(529));
    lab.play(&succeeds(&json!({})));
    lab.go().error();
    lab.go().result();
    assert_eq!(lab.argument(2, "--resume"), lab.argument(1, "--session-id"));
    assert_eq!(lab.noted("directory", 1), lab.noted("directory", 2));
    let config = |call| {
        lab.noted("environment", call)
            .lines()
            .find(|line| line.starts_with("CLAUDE_CONFIG_DIR="))
            .map(str::to_owned)
    };
    assert_eq!(config(1), config(2));
    assert_eq!(config(1).unwrap(), format!("CLAUDE_CONFIG_DIR={}", lab.dir.join("home/claude").display()));
}

#[test]
fn without_the_switch_every_try_is_a_new_session() {
    let mut lab = with_home("no-resume");
    lab.set("TIDEMILL_AGENT_SESSION", "11111111-1111-4111-8111-111111111111");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }] }));
    lab.play_in_call(1, &api_error(529));
    lab.play(&succeeds(&json!({})));
    lab.go().result();
    assert_eq!((lab.argument(1, "--resume"), lab.argument(2, "--resume")), (None, None));
}

#[test]
fn a_session_that_is_lost_is_begun_anew_with_the_whole_prompt() {
    let mut lab = with_home("lost");
    let id = "11111111-1111-4111-8111-111111111111";
    lab.set("TIDEMILL_AGENT_SESSION", id);
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "the whole task" }], "resumeSession": true, "maxAttempts": 1 }));
    let line = success(
        &json!({ "subtype": "error_during_execution", "is_error": true, "num_turns": 0, "result": null, "total_cost_usd": 0.0, "usage": {} }),
    );
    lab.play_in_call(
        1,
        &format!("echo 'No conversation found with session ID: {id}' >&2\n{}", prints(&[line], 1)),
    );
    lab.play(&succeeds(&json!({})));
    let ended = lab.go();
    ended.result();
    assert_eq!(lab.argument(1, "--resume").as_deref(), Some(id));
    assert!(lab.argument(2, "--session-id").is_some());
    assert_eq!(lab.prompt(2), "the whole task");
}

#[test]
fn h_055_a_finished_task_is_not_paid_for_again() {
    let lab = with_home("reuse");
    lab.step(&json!({ "tools": ["Bash"] }));
    lab.play(&succeeds(&json!({})));
    let first = lab.go();
    let second = lab.go();
    assert_eq!(second.result()["output"], first.result()["output"]);
    assert_eq!(second.result()["usage"]["inputTokens"], 0);
    assert_eq!(second.result()["sessionId"], first.result()["sessionId"]);
    assert_eq!((lab.calls(), second.trace(0)["status"].as_str()), (1, Some("reused")));
    assert!(second.output.join("artifacts/task-result.json").exists());
    // Another input is another task.
    lab.run(Some(r#"{"other":1}"#)).result();
    assert_eq!(lab.calls(), 2);
}

#[test]
fn steps_are_reused_as_far_as_they_can_be_relied_on() {
    // (tools of the first step, sessions are kept, calls of the second attempt)
    for (tools, resumes, calls) in
        [(json!([]), false, 1), (json!(["Write"]), false, 2), (json!(["Write"]), true, 1)]
    {
        let lab = with_home("reuse-steps");
        lab.task(&json!({
            "steps": [{ "name": "one", "prompt": "x", "tools": tools }, { "name": "two", "prompt": "{{previous.result}}" }],
            "maxAttempts": 1, "resumeSession": resumes
        }));
        lab.play_in_call(1, &succeeds(&json!({ "result": "from one" })));
        lab.play_in_call(2, &api_error(529));
        lab.play(&succeeds(&json!({ "result": "from one" })));
        lab.go().error();
        assert_eq!(lab.calls(), 2);
        let ended = lab.go();
        ended.result();
        assert_eq!(lab.calls() - 2, calls, "{tools} {resumes}");
        let last = u32::try_from(lab.calls()).unwrap();
        let expected = "<data path=\"previous.result\">from one</data>";
        if resumes {
            assert_eq!(lab.argument(last, "--resume"), lab.argument(2, "--session-id"));
        } else {
            assert_eq!(lab.prompt(last), expected);
        }
    }
}

#[test]
fn what_a_session_cost_before_is_not_counted_again() {
    let lab = with_home("session-budget");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }], "resumeSession": true, "maxCostUsd": 1.0 }));
    let models = json!({ "m": { "inputTokens": 10, "outputTokens": 1, "costUSD": 0.25 } });
    let line = success(
        &json!({ "is_error": true, "api_error_status": 529, "total_cost_usd": 0.25, "modelUsage": models, "model_usage_since_last_result": models }),
    );
    lab.play_in_call(1, &prints(&[line], 1));
    lab.play(&succeeds(&json!({ "total_cost_usd": 0.5, "modelUsage": { "m": { "inputTokens": 20, "costUSD": 0.5 } }, "model_usage_since_last_result": models })));
    let ended = lab.go();
    assert_eq!(ended.result()["usage"]["costUsd"], 0.5, "the part of each call, not the sum of the session");
    assert_eq!(lab.argument(2, "--max-budget-usd").as_deref(), Some("0.75"));
}

/// The files of a run are open to the agent itself, which must not become flags of its own.
#[test]
fn a_noted_session_that_is_no_id_is_no_session() {
    let mut lab = with_home("flag");
    lab.set("TIDEMILL_AGENT_SESSION", "--dangerously-skip-permissions");
    lab.task(&json!({ "steps": [{ "name": "a", "prompt": "x" }], "resumeSession": true, "maxAttempts": 1 }));
    lab.play(&api_error(529));
    lab.go().error();
    let noted = lab.dir.join("home/session.json");
    let kept = fs::read_to_string(&noted).unwrap();
    let id = lab.argument(1, "--session-id").unwrap();
    fs::write(&noted, kept.replace(&id, "--dangerously-skip-permissions")).unwrap();
    lab.go().error();
    for call in [1, 2] {
        assert!(!lab.noted("arguments", call).contains("--dangerously"), "{}", lab.noted("arguments", call));
        assert_eq!(lab.argument(call, "--resume"), None);
    }
}
