//! `examples/auto-repair`, from its events to its end, without a network.

use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

fn items(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(arguments).ok().json()["items"].as_array().unwrap().clone()
}

fn arn(name: &str) -> String {
    format!("arn:aws:states:eu-west-1:123456789012:execution:county:{name}")
}

/// What `examples/auto-repair/run` does: two are mended and go on, two are given up after three tries.
#[test]
fn we_19_we_20_we_26_workflows_are_repaired_by_scripts_and_jobs_alone() {
    let sandbox = Sandbox::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/auto-repair");
    let folder = sandbox.dir.join("examples/auto-repair");
    std::fs::create_dir_all(&folder).unwrap();
    for entry in std::fs::read_dir(example).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let server = sandbox.serve(&[], &[("WORKFLOW_AUTO_RESUME", "true")]);
    sandbox.run(&["definitions", "create", "examples/auto-repair/definition.yaml"]).ok();
    sandbox.run(&["scripts", "apply", "examples/auto-repair", "--yes"]).ok();
    sandbox.run(&["events", "publish", "--file", "examples/auto-repair/events.json"]).ok();

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
