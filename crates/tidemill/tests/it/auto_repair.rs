//! `examples/auto-repair`, from its events to its end, without a network.

use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

fn items(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(arguments).ok().json()["items"].as_array().unwrap().clone()
}

fn arn(name: &str) -> String {
    format!("arn:aws:states:eu-west-1:123456789012:execution:orders:{name}")
}

/// A copy of the example.
fn example() -> Sandbox {
    let sandbox = Sandbox::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/auto-repair");
    let folder = sandbox.dir.join("examples/auto-repair");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(example).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    sandbox
}

fn begin(sandbox: &Sandbox) {
    sandbox.run(&["definitions", "create", "examples/auto-repair/definition.yaml"]).ok();
    sandbox.run(&["scripts", "apply", "examples/auto-repair", "--yes"]).ok();
    sandbox.run(&["events", "publish", "--file", "examples/auto-repair/events.json"]).ok();
}

/// What `examples/auto-repair/run` does: two are mended and go on, two are given up after three tries.
#[test]
fn we_19_we_20_we_26_workflows_are_repaired_by_scripts_and_jobs_alone() {
    let sandbox = example();
    let server = sandbox.serve(&[], &[("WORKFLOW_AUTO_RESUME", "true")]);
    begin(&sandbox);

    let show = |name: &str| sandbox.run(&["parked", "show", &arn(name), "--json"]).ok().json();
    for name in ["trimmed", "turned"] {
        eventually("that it is mended and goes on", || show(name)["parked"] == false);
        let found = show(name);
        assert_eq!(
            (&found["token"], &found["outcome"]["output"]),
            (&json!("used"), &json!({"resolved": true}))
        );
        assert_eq!(found["errors"][0]["state"], "resolved", "{found}");
    }
    for (name, given_up) in [("hopeless", "70002"), ("mirror", "70001")] {
        let error_of = |found: &Value, code: &str| {
            let errors = found["errors"].as_array().cloned().unwrap_or_default();
            errors.into_iter().find(|error| error["code"] == json!(code))
        };
        eventually("that it is given up", || error_of(&show(name), given_up).is_some());
        let found = show(name);
        assert_eq!(error_of(&found, given_up).unwrap()["state"], "open");
        let others =
            found["errors"].as_array().unwrap().iter().filter(|error| error["code"] != json!(given_up));
        assert!(others.clone().count() == 1 && others.clone().all(|error| error["state"] == "unrecoverable"));
        assert_eq!(found["parked"], true, "somebody has to decide: {found}");
    }
    // No more tries than there may be, and none for a repair.
    let tries =
        items(&sandbox, &["events", "query", "--type", "Task Completed", "--limit", "1000", "--json"]);
    assert_eq!(tries.len(), 1 + 2 + 3 + 3);
    let highest =
        tries.iter().map(|event| event["properties"]["output"]["repair"]["try"].as_u64().unwrap()).max();
    assert_eq!(highest, Some(3));
    let candidates: Vec<_> = items(&sandbox, &["errors", "candidates", "--json"]);
    let codes: Vec<_> = candidates.iter().map(|item| item["code"].as_str().unwrap()).collect();
    assert!(codes.iter().all(|code| code.starts_with("70")), "nothing else is worth a try: {codes:?}");
    let letters = items(&sandbox, &["dead-letters", "list", "--kind", "script", "--json"]);
    assert!(letters.is_empty(), "{letters:?}");
    assert_eq!(server.stop().code, 0);
}

/// A try that is killed each time, one that never ends, and an execution that no try can be made for: a person hears of
/// each of them.
#[test]
fn a_repair_that_dies_for_good_is_given_up_aloud() {
    let sandbox = example();
    let mend = "examples/auto-repair/mend.sh";
    let dies = "case $(cat \"$INPUT_FILE\") in *killed*) kill -9 $$ ;; *endless*) sleep 600 ;; esac\n";
    let text = sandbox.read(mend);
    sandbox.write(mend, &text.replacen("set -eu\n", &format!("set -eu\n{dies}"), 1));
    let definition = "examples/auto-repair/definition.yaml";
    let text = sandbox.read(definition);
    assert!(text.contains("timeout: 1m"), "{text}");
    let hasty = "timeout: 1s\nretry: { firstDelay: 10ms, maxDelay: 10ms }";
    sandbox.write(definition, &text.replace("timeout: 1m", hasty));
    let long = format!("long-{}", "x".repeat(200));
    let failed = |name: &str, county: &str, phase: &str| {
        json!({
            "source": "elephant.workflow", "detail-type": "WorkflowEvent",
            "detail": {
                "executionId": name, "county": county, "status": "FAILED", "phase": phase, "step": phase,
                "taskToken": format!("secret-{county}"), "errors": [{ "code": "30a1b2c3d4", "details": {} }],
            },
        })
    };
    let dona_ana = "Do\u{f1}a_Ana (N.M.)";
    let events = [
        failed("run:killed/1_a-b", dona_ana, "MVL"),
        failed("run:endless", "Lee", "SVL"),
        failed(&long, "Cook", "SVL"),
    ];
    sandbox.write("examples/auto-repair/events.json", &json!(events).to_string());
    let server = sandbox.serve(&[], &[]);
    begin(&sandbox);
    for (id, county, given_up) in
        [("run:killed/1_a-b", dona_ana, "70001"), ("run:endless", "Lee", "70002"), (&long, "Cook", "70002")]
    {
        let show = || sandbox.run(&["parked", "show", id, "--json"]).ok().json();
        let state = |found: &Value, code: &str| {
            let errors = found["errors"].as_array().unwrap().clone();
            errors.into_iter().find(|error| error["code"] == json!(code)).map(|error| error["state"].clone())
        };
        eventually("that it is given up", || state(&show(), given_up).is_some());
        let found = show();
        assert_eq!(state(&found, given_up), Some(json!("open")), "{found}");
        assert_eq!(state(&found, "30a1b2c3d4"), Some(json!("unrecoverable")), "{found}");
        assert_eq!((&found["county"], &found["parked"]), (&json!(county), &json!(true)), "{found}");
    }
    let letters = items(&sandbox, &["dead-letters", "list", "--kind", "script", "--json"]);
    assert!(letters.is_empty(), "{letters:?}");
    assert_eq!(server.stop().code, 0);
}
