//! Errors and parked executions, as people and servers handle them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

fn items(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    sandbox.run(arguments).ok().json()["items"].as_array().unwrap().clone()
}

fn failed(execution: &str, county: &str, code: &str) -> Value {
    json!({
        "source": "elephant.workflow",
        "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": execution, "county": county, "status": "FAILED", "phase": "Transform", "step": "Transform",
            "taskToken": format!("token-of-{execution}"), "errors": [{"code": code, "details": {"line": 7}}],
        },
    })
}

/// Publishes workflow events, a hundred at a time.
fn publish(sandbox: &Sandbox, events: &[Value]) {
    for some in events.chunks(100) {
        sandbox.write("events.json", &json!(some).to_string());
        sandbox.run(&["events", "publish", "--file", "events.json"]).ok();
    }
}

/// How often each execution was resumed.
fn resumed(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let events =
        items(sandbox, &["events", "query", "--type", "Execution Resumed", "--limit", "5000", "--json"]);
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event["entityId"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// A thousand executions wait for one code. One command resumes them; the server is killed in its midst.
#[test]
fn a_thousand_are_resumed_by_one_command_through_a_crash_and_none_twice() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let arn = |n: usize| format!("arn:aws:states:eu-west-1:1:execution:transform/{n}");
    let events: Vec<_> = (0..1_000).map(|n| failed(&arn(n), "Cook", "20Cook")).collect();
    publish(&sandbox, &events);
    publish(&sandbox, &[failed("other", "Lee", "20Lee")]);
    let top = items(&sandbox, &["errors", "top", "--json"]);
    assert_eq!((&top[0]["code"], top[0]["open"].as_u64()), (&json!("20Cook"), Some(1_000)));

    // A look changes nothing.
    let look = sandbox.run(&["parked", "resume", "--code", "20Cook"]);
    assert_eq!(look.code, 2, "nobody can be asked");
    assert!(look.words.contains("add --yes to resume 1,000 executions"), "{look:?}");
    assert!(look.out.contains("... and 990 more"), "{look:?}");
    let look = sandbox.run(&["parked", "resume", "--code", "20Cook", "--json"]).ok().json();
    assert_eq!(look["total"], 1_000);
    let nobody = sandbox.run(&["parked", "resume", "nope", "nope2", "--yes"]);
    assert!(nobody.code == 1 && nobody.words.contains("of 2 executions named none is parked"), "{nobody:?}");
    assert!(resumed(&sandbox).is_empty());

    let command = ["parked", "resume", "--code", "20Cook", "--yes", "--rate", "250", "--reason", "deployed"];
    let resuming = sandbox.start(&command, &[]);
    let mut bulk = String::new();
    eventually("that some are resumed", || {
        let bulks = items(&sandbox, &["parked", "bulks", "--json"]);
        bulk = bulks.first().map(|bulk| bulk["id"].as_str().unwrap().to_owned()).unwrap_or_default();
        bulks.first().is_some_and(|bulk| bulk["done"].as_u64().unwrap() > 0)
    });
    server.process.kill();
    let broken = resuming.end();
    assert!(broken.code == 1 && broken.words.contains(&format!("bulk {bulk} is kept")), "{broken:?}");

    let midway = resumed(&sandbox).len();
    assert!((1..1_000).contains(&midway), "it was killed in the middle: {midway}");

    let server = sandbox.serve(&["--no-worker"], &[]);
    let done = sandbox.run(&["parked", "follow", &bulk, "--json"]).ok().json();
    assert_eq!(
        (done["done"].as_u64(), done["failed"].as_u64(), &done["state"]),
        (Some(1_000), Some(0), &json!("done"))
    );
    let counts = resumed(&sandbox);
    assert_eq!(counts.len(), 1_000);
    assert!(counts.values().all(|count| *count == 1), "none twice");
    assert!((0..1_000).all(|n| counts.contains_key(&arn(n))));
    let left = items(&sandbox, &["parked", "list", "--json"]);
    assert_eq!((left.len(), &left[0]["executionId"]), (1, &json!("other")), "the other code was left alone");
    let shown = sandbox.run(&["parked", "show", &arn(7), "--json"]).ok().json();
    assert_eq!(shown["outcome"]["reason"], "deployed");
    assert!(!shown.to_string().contains("token-of"));
    assert_eq!(sandbox.run(&["parked", "resume", &arn(7)]).code, 1, "it is not parked any more");
    assert_eq!(server.stop().code, 0);
    // The tokens are nowhere in the data, and the key is beside it, not in it.
    let key = sandbox.dir.join(".tidemill.token-key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    for entry in std::fs::read_dir(sandbox.dir.join(".tidemill/log")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"token-of"), "a token is in the log");
    }
}

/// Executions that are named are all done, or it is said which are not.
#[test]
fn executions_that_are_named_and_not_parked_are_told() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let events: Vec<_> = (0..3).map(|n| failed(&format!("e-{n}"), "Cook", "20Cook")).collect();
    publish(&sandbox, &events);
    let some = sandbox.run(&["parked", "resume", "e-0", "e-1", "gone", "e-0", "--yes"]);
    assert_eq!(some.code, 1, "{some:?}");
    assert!(some.words.contains("not parked, or not fitting: gone\n"), "{some:?}");
    assert!(some.words.contains("2 resumed"), "{some:?}");
    assert_eq!(items(&sandbox, &["parked", "list", "--json"]).len(), 1);
    let look = sandbox.run(&["parked", "fail", "e-0", "e-2", "--county", "Cook", "--json"]).ok().json();
    assert_eq!((&look["total"], &look["leftOut"]), (&json!(1), &json!(["e-0"])));
    sandbox.run(&["parked", "fail", "e-2", "--county", "Cook", "--yes"]).ok();
    // A token that was used before parks nobody, and its sender learns so.
    let again = failed("e-2", "Cook", "20Lee");
    sandbox.write("again.json", &json!([again]).to_string());
    let again = sandbox.run(&["events", "publish", "--file", "again.json"]).ok();
    assert!(again.words.contains("its token parks nobody (used)"), "{again:?}");
    assert!(items(&sandbox, &["parked", "list", "--json"]).is_empty());
    assert_eq!(server.stop().code, 0);
}

/// The key of tokens cannot be made: the sender of a token learns that, and nothing is stored.
#[test]
fn a_token_that_cannot_be_kept_is_refused_with_its_reason() {
    let sandbox = Sandbox::new();
    let place = [("TOKEN_KEY_FILE", "place/token.key")];
    let run = |arguments: &[&str]| sandbox.run_with(arguments, &place);
    let server = sandbox.serve(&["--no-worker"], &place);
    sandbox.write("events.json", &json!([failed("e-0", "Cook", "20Cook")]).to_string());
    let ran = run(&["events", "publish", "--file", "events.json"]);
    assert!(ran.code == 1 && ran.words.contains("the file of the key that seals tokens"), "{ran:?}");
    assert_eq!(run(&["errors", "list", "--json"]).ok().json()["items"], json!([]), "nothing was stored");
    // Somebody mends it: the server needs no restart.
    std::fs::create_dir(sandbox.dir.join("place")).unwrap();
    run(&["events", "publish", "--file", "events.json"]).ok();
    assert_eq!(run(&["parked", "list", "--json"]).ok().json()["items"][0]["executionId"], json!("e-0"));
    assert_eq!(server.stop().code, 0);
}

/// Ctrl-C ends the watching, not the work.
#[test]
fn a_bulk_goes_on_without_whoever_began_it() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let events: Vec<_> = (0..40).map(|n| failed(&format!("e-{n}"), "Cook", "20Cook")).collect();
    publish(&sandbox, &events);
    let mut failing = sandbox.start(&["parked", "fail", "--county", "Cook", "--yes", "--rate", "20"], &[]);
    failing.wait_for("failing");
    failing.signal(Signal::INT);
    let ran = failing.end();
    assert!(ran.code == 130 && ran.words.contains("the server goes on: bulk "), "{ran:?}");
    eventually("that all have ended", || items(&sandbox, &["parked", "list", "--json"]).is_empty());
    let shown = sandbox.run(&["parked", "show", "e-3", "--json"]).ok().json();
    assert_eq!(
        (&shown["outcome"]["error"], &shown["outcome"]["cause"]),
        (&json!("ResolutionFailed"), &json!("Unable to resolve errors"))
    );
    assert_eq!(server.stop().code, 0);
}

#[test]
fn errors_are_seen_marked_and_looked_up_without_a_server() {
    let sandbox = Sandbox::new();
    publish(
        &sandbox,
        &[failed("e1", "Cook", "20Cook"), failed("e2", "Lee", "20Lee"), failed("e3", "Lee", "20Lee")],
    );
    let top = sandbox.run(&["errors", "top"]).ok();
    assert!(top.out.starts_with("CODE") && top.out.contains("20Lee"), "{top:?}");
    let shown = sandbox.run(&["errors", "show", "20Lee"]).ok().out;
    for part in ["2 occurrences in 2 executions: 2 open", "trend", "COUNTY", "e2", "{\"line\":7}"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = sandbox.run(&["errors", "show", "20Lee", "--execution", "e2", "--json"]).ok().json();
    assert_eq!(shown["occurrences"][0]["details"], json!({"line": 7}));
    let marked = sandbox.run(&["errors", "resolve", "20Lee", "--execution", "e2", "--reason", "fixed"]).ok();
    assert!(marked.words.contains("1 error changed"), "{marked:?}");
    sandbox.run(&["errors", "unrecoverable", "--execution", "e3"]).ok();
    let list = items(&sandbox, &["errors", "list", "--code", "20Lee", "--json"]);
    assert_eq!((list[0]["resolved"].as_u64(), list[0]["unrecoverable"].as_u64()), (Some(1), Some(1)));
    let candidates = items(&sandbox, &["errors", "candidates", "--json"]);
    assert_eq!((candidates.len(), &candidates[0]["code"]), (1, &json!("20Cook")));
    sandbox.run(&["errors", "ignore", "20Cook", "--for", "2h"]).ok();
    assert!(items(&sandbox, &["errors", "top", "--json"]).is_empty());
    sandbox.run(&["errors", "reopen", "20Cook"]).ok();
    assert_eq!(items(&sandbox, &["errors", "list", "--state", "open", "--json"]).len(), 1);
    assert_eq!(sandbox.run(&["errors", "resolve"]).code, 2, "neither code nor execution");
    assert_eq!(sandbox.run(&["errors", "resolve", "29999"]).code, 1);
    assert_eq!(sandbox.run(&["errors", "ignore", "20Cook", "--for", "soon"]).code, 2);
    // Without a server the command itself carries out what it asks for.
    assert_eq!(sandbox.run(&["parked", "resume"]).code, 2, "nothing is named");
    let done = sandbox.run(&["parked", "resume", "--county", "Lee", "--yes", "--json"]).ok().json();
    assert_eq!((done["done"].as_u64(), &done["state"]), (Some(2), &json!("done")));
    let one = sandbox.run(&["parked", "resume", "e1", "--output", "{\"rows\":3}", "--json"]).ok().json();
    assert_eq!(one["outcome"]["output"], json!({"rows": 3}));
    // Codes.
    let known = sandbox.run(&["errors", "catalogue", "10050Broward"]).ok().json();
    assert_eq!(known["category"], "Timeout");
    assert!(sandbox.run(&["errors", "catalogue"]).ok().out.contains("10140-10148"));
    let code = sandbox
        .run(&["errors", "hash", "--message", "is required", "--path", "/owner", "--county", "Cook"])
        .ok();
    assert_eq!(code.out.trim(), "30fd0b8ee2a44fb5bc200f00645cfc0c6ee5601afd15b3c5313c757495ec48f332");
}

#[test]
fn a_task_that_is_parked_goes_on_with_what_it_is_given() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[]);
    sandbox.write(
        "job.yaml",
        "
name: county-load
tasks:
  - taskId: load
    run: [sh, -c, 'echo \"no such county\" >&2; exit 3']
    onFailure: park
    labels: { county: Cook }
    retry: { maxAttempts: 1 }
  - taskId: count
    dependsOn: [load]
    run: [sh, -c, 'cat \"$INPUT_FILE\"']
  - taskId: again
    run: [sh, -c, 'test -e ready && echo \"{\\\"ok\\\": true}\"']
    onFailure: park
    retry: { maxAttempts: 1 }
",
    );
    let job = sandbox.run(&["submit", "job.yaml", "--json"]).ok().json();
    let job = job["jobId"].as_str().unwrap().to_owned();
    eventually("that both are parked", || items(&sandbox, &["parked", "list", "--json"]).len() == 2);
    let load = format!("{job}_load");
    let shown = sandbox.run(&["parked", "show", &load, "--json"]).ok().json();
    assert_eq!(
        (&shown["county"], &shown["phase"], &shown["step"], &shown["requestId"]),
        (&json!("Cook"), &json!("county-load"), &json!("load"), &json!(load))
    );
    let code = shown["codes"][0].as_str().unwrap().to_owned();
    assert!(code.starts_with("99"), "{shown}");
    let task_errors = items(&sandbox, &["errors", "list", "--kind", "task", "--json"]);
    assert!(task_errors.iter().any(|error| error["code"] == json!(code)), "{task_errors:?}");

    let done = sandbox.run(&["parked", "resume", &load, "--output", "{\"rows\": 12}", "--json"]).ok().json();
    assert_eq!(done["parked"], false);
    sandbox.write("ready", "");
    sandbox.run(&["parked", "resume", &format!("{job}_again"), "--rerun"]).ok();
    eventually("that the job completes", || {
        sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "completed"
    });
    let task = |id: &str| sandbox.run(&["tasks", "get", &format!("{job}_{id}"), "--json"]).ok().json();
    assert_eq!(task("load")["output"], json!({"rows": 12}));
    assert_eq!(
        task("count")["output"]["dependencyOutputs"]["load"],
        json!({"rows": 12}),
        "dependents see it"
    );
    assert_eq!(task("again")["output"], json!({"ok": true}));
    assert_eq!(sandbox.run(&["parked", "resume", &load]).code, 1, "once");
    assert_eq!(server.stop().code, 0);
}

#[test]
fn a_token_key_that_is_missing_or_wrong_stops_the_start_and_the_doctor_says_so() {
    let sandbox = Sandbox::new();
    let check = |ran: crate::sandbox::Ran| -> Value {
        let checks = ran.json()["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["check"] == "token key").unwrap()
    };
    assert_eq!(check(sandbox.run(&["doctor", "--json"]))["verdict"], "OK");
    let nowhere = [("TOKEN_KEY_FILE", "missing/token.key")];
    let found = check(sandbox.run_with(&["doctor", "--json"], &nowhere));
    assert_eq!(found["verdict"], "WARN", "{found}");
    publish(&sandbox, &[failed("e1", "Cook", "20Cook")]);
    let key = sandbox.dir.join(".tidemill.token-key");
    let kept = std::fs::read(&key).unwrap();
    assert_eq!(check(sandbox.run(&["doctor", "--json"]))["verdict"], "OK");
    std::fs::remove_file(&key).unwrap();
    let ran = sandbox.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(ran.code == 2 && ran.words.contains("is not there; name it with TOKEN_KEY_FILE"), "{ran:?}");
    assert_eq!(check(sandbox.run(&["doctor", "--json"]))["verdict"], "FAIL");
    sandbox.write(".tidemill.token-key", &"ab".repeat(32));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let ran = sandbox.run(&["parked", "list"]);
    assert!(ran.code == 2 && ran.words.contains("is not the one"), "{ran:?}");
    std::fs::write(&key, kept).unwrap();
    assert_eq!(items(&sandbox, &["parked", "list", "--json"]).len(), 1);
    // Somewhere else, if that is wanted.
    std::fs::rename(&key, sandbox.dir.join("elsewhere.key")).unwrap();
    let elsewhere = [("TOKEN_KEY_FILE", "elsewhere.key")];
    sandbox.run_with(&["parked", "resume", "e1"], &elsewhere).ok();
}

#[test]
fn other_families_and_codes_come_from_files() {
    let sandbox = Sandbox::new();
    sandbox.write("families.yaml", "families:\n  - { source: acme.flow, statusType: Step Changed }\n");
    sandbox.write(
        "codes.yaml",
        "codes:\n  - { code: 20Acme, category: Conveyor, description: The belt stopped. }\n",
    );
    let settings = [("WORKFLOW_FAMILIES", "families.yaml"), ("WORKFLOW_CATALOGUE", "codes.yaml")];
    let mut event = failed("e1", "Cook", "20Acme");
    event["source"] = json!("acme.flow");
    event["detail-type"] = json!("Step Changed");
    sandbox.write("event.json", &event.to_string());
    let publish = ["events", "publish", "--file", "event.json"];
    let refused = sandbox.run(&publish);
    assert!(refused.code == 2 && refused.words.contains("event.json:1:"), "{refused:?}");
    sandbox.run_with(&publish, &settings).ok();
    let known = sandbox.run_with(&["errors", "catalogue", "20Acme"], &settings).ok().json();
    assert_eq!(known["category"], "Conveyor");
    let top = sandbox.run_with(&["errors", "top", "--json"], &settings).ok().json();
    assert_eq!(top["items"][0]["category"], "Conveyor");
    // Mistakes have their place.
    sandbox.write("families.yaml", "families:\n  - source: acme.flow\n    statusType: Task Failed\n");
    sandbox.write("codes.yaml", "codes:\n  - code: X\n    description: no\n");
    let wrong = sandbox.run_with(&["errors", "top"], &settings);
    assert_eq!(wrong.code, 2);
    assert!(wrong.words.contains("families.yaml:3:") && wrong.words.contains("codes.yaml:2:"), "{wrong:?}");
}
