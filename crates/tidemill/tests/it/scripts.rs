//! Scripts from the command line: tried out, saved, applied from a folder, run for events, replayed.

use std::path::Path;

use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

const EVENT: &str = "eventType: user.created\nproperties: { role: admin, name: Ada }\n";

/// The folder of examples in this repository.
fn examples() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts").display().to_string()
}

#[test]
fn a_script_is_tried_out_without_a_server_and_without_effect() {
    let sandbox = Sandbox::new();
    sandbox.write("event.yaml", EVENT);
    sandbox.write(
        "greet.js",
        "const { name } = ctx.event.data;\nconsole.log('hello', name);\n\
         ctx.publish('user.greeted', { name });\nreturn { name, type: ctx.event.type };\n",
    );
    let test = |more: &[&str]| {
        let arguments = [&["scripts", "test", "greet.js", "--event", "event.yaml"], more].concat();
        sandbox.run(&arguments)
    };
    let ran = test(&["--grant", "publish"]).ok();
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(result, json!({"name": "Ada", "type": "user.created"}), "{ran:#?}");
    for words in ["info: hello Ada", "would publish \"user.greeted\": {\"name\":\"Ada\"}", "took "] {
        assert!(ran.words.contains(words), "{words}: {ran:#?}");
    }
    let ran = test(&["--grant", "publish", "--json"]).ok().json();
    assert_eq!(ran["logs"], json!([{"level": "info", "text": "hello Ada"}]));
    assert_eq!(
        (&ran["calls"][0]["call"], &ran["calls"][0]["type"]),
        (&json!("publish"), &json!("user.greeted"))
    );
    assert!(ran["stats"]["wallMicros"].as_u64().unwrap() > 0);
    let denied = test(&["--json"]);
    assert_eq!((denied.code, &denied.json()["error"]["class"]), (1, &json!("permission")));
    assert_eq!(denied.json()["error"]["place"]["line"], 3);
    assert!(!sandbox.dir.join(".tidemill").exists(), "nothing was made");

    sandbox.write("loop.js", "while (true) {}");
    let arguments = ["scripts", "test", "loop.js", "--event", "event.yaml", "--timeout", "200ms", "--json"];
    let endless = sandbox.run(&arguments);
    assert_eq!((endless.code, &endless.json()["error"]["class"]), (1, &json!("timeout")), "{endless:#?}");
    sandbox.write("bomb.js", "const all = []; while (true) all.push(new Array(10000).fill(1));");
    let bomb =
        sandbox.run(&["scripts", "test", "bomb.js", "--event", "event.yaml", "--memory", "16", "--json"]);
    assert_eq!((bomb.code, &bomb.json()["error"]["class"]), (1, &json!("memory")), "{bomb:#?}");
    sandbox.write("wrong.js", "const a = 1;\nreturn ];\n");
    let wrong = sandbox.run(&["scripts", "test", "wrong.js", "--event", "event.yaml"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.words.contains("wrong.js:2:8: "), "{wrong:#?}");
    sandbox.write("no-type.yaml", "properties: {}\n");
    let wrong = sandbox.run(&["scripts", "test", "greet.js", "--event", "no-type.yaml"]);
    assert_eq!(wrong.code, 2);
    assert!(wrong.words.contains("eventType"), "{wrong:#?}");
}

#[test]
fn scripts_and_subscriptions_are_managed_offline() {
    let sandbox = Sandbox::new();
    sandbox.write("greet.js", "return 1");
    let put = sandbox.run(&["scripts", "put", "greet", "greet.js", "--grant", "publish"]).ok();
    assert!(put.words.contains("greet is at version 1"), "{put:#?}");
    sandbox.write("greet.js", "return 2");
    let put = sandbox.run(&["scripts", "put", "greet", "greet.js", "--name", "Greets", "--json"]).ok().json();
    assert_eq!(
        (&put["version"], &put["grants"], &put["name"]),
        (&json!(2), &json!(["publish"]), &json!("Greets"))
    );
    assert_eq!(sandbox.run(&["scripts", "get", "greet", "--source"]).ok().out, "return 2");
    assert_eq!(sandbox.run(&["scripts", "get", "greet", "--version", "1"]).ok().json()["source"], "return 1");
    let stale = sandbox.run(&["scripts", "put", "greet", "greet.js", "--if-version", "1"]);
    assert_eq!(stale.code, 1, "{stale:#?}");
    assert!(stale.words.contains("VERSION_MISMATCH"), "{stale:#?}");
    sandbox.write("wrong.js", "const a = 1;\nreturn ];\n");
    let wrong = sandbox.run(&["scripts", "put", "greet", "wrong.js"]);
    assert_eq!(wrong.code, 2, "{wrong:#?}");
    assert!(wrong.words.contains("wrong.js:2:8: "), "{wrong:#?}");
    let table = sandbox.run(&["scripts", "list"]).ok().out;
    assert!(table.starts_with("ID     VERSION") && table.contains("greet  2"), "{table}");

    let add = |more: &[&str]| {
        let arguments =
            [&["subscriptions", "add", "--script", "greet", "--type", "user.created"], more].concat();
        sandbox.run(&arguments)
    };
    let id = add(&["--id", "admins", "--filter", r#"{"role": "admin"}"#]).ok().out;
    assert_eq!(id, "admins\n");
    let wrong = add(&["--filter", r#"{"role": {"$gt": 1}}"#]);
    assert_eq!(wrong.code, 2, "{wrong:#?}");
    assert!(wrong.words.contains("filterRules.role"), "{wrong:#?}");
    let ghost = sandbox.run(&["subscriptions", "add", "--script", "ghost", "--type", "x"]);
    assert!(ghost.code == 1 && ghost.words.contains("UNKNOWN_SCRIPT"), "{ghost:#?}");
    sandbox.run(&["subscriptions", "disable", "admins"]).ok();
    let listed = sandbox.run(&["subscriptions", "list", "--enabled", "false", "--json"]).ok().json();
    assert_eq!(listed["items"][0]["id"], "admins");
    sandbox.run(&["subscriptions", "enable", "admins"]).ok();
    sandbox.write("event.yaml", "eventType: user.created\nproperties: { role: user }\n");
    let told = sandbox.run(&["scripts", "explain", "--event", "event.yaml"]).ok().out;
    assert_eq!(
        told,
        "admins (script greet): filtered\n  FAILED  role eq \"admin\": the event has \"user\"\n"
    );

    let used = sandbox.run(&["scripts", "delete", "greet"]);
    assert!(used.code == 1 && used.words.contains("IN_USE"), "{used:#?}");
    sandbox.run(&["subscriptions", "delete", "admins"]).ok();
    sandbox.run(&["scripts", "delete", "greet"]).ok();
    assert_eq!(sandbox.run(&["scripts", "list", "--json"]).ok().json(), json!({ "items": [] }));
    assert_eq!(sandbox.run(&["executions", "list", "--json"]).ok().json(), json!({ "items": [] }));
    let letters = sandbox.run(&["dead-letters", "list", "--kind", "script", "--json"]).ok().json();
    assert_eq!(letters, json!({ "items": [] }));
}

#[test]
fn a_folder_is_applied_after_a_look_at_the_plan() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.dir.join("folder")).unwrap();
    sandbox.write("folder/greet.js", "return 1");
    sandbox.write(
        "folder/scripts.yaml",
        "scripts:\n- id: greet\n  grants: [publish]\n  subscriptions:\n  - eventType: user.created\n    \
         filterRules: { role: admin }\n",
    );
    let plan = sandbox.run(&["scripts", "apply", "folder"]).ok();
    assert_eq!(plan.out, "create script greet\ncreate subscription greet-user-created\n");
    assert!(!sandbox.dir.join(".tidemill").exists(), "a look makes nothing");
    // A data directory with something of its own.
    sandbox.write("other.js", "return 0");
    sandbox.run(&["scripts", "put", "other", "other.js"]).ok();
    let apply = |more: &[&str]| sandbox.run(&[&["scripts", "apply", "folder"], more].concat());
    let plan = apply(&[]).ok();
    assert_eq!(plan.out, "create script greet\ncreate subscription greet-user-created\n");
    assert!(plan.words.contains("nothing was changed") && plan.words.contains("script other"), "{plan:#?}");
    assert_eq!(sandbox.run(&["scripts", "list", "--json"]).ok().json()["items"].as_array().unwrap().len(), 1);
    apply(&["--yes"]).ok();
    let again = apply(&["--json"]).ok().json();
    assert_eq!(again, json!({"steps": [], "leftAlone": ["script other"], "unchanged": 2, "applied": false}));

    sandbox.write("folder/greet.js", "return 2");
    sandbox.write("folder/scripts.yaml", "scripts:\n- id: greet\n  grants: [publish]\n");
    let steps = apply(&["--prune", "--yes", "--json"]).ok().json();
    assert_eq!(
        steps["steps"],
        json!([
            "change script greet (source)",
            "remove subscription greet-user-created",
            "remove script other"
        ])
    );
    assert_eq!(sandbox.run(&["scripts", "get", "greet"]).ok().json()["version"], 2);

    for (manifest, words) in [
        ("scripts:\n- id: a b\n  file: greet.js\n", "folder/scripts.yaml:2:7: scripts[0].id: "),
        ("scripts:\n- id: greet\n  file: ../greet.js\n", "folder/scripts.yaml:3:9: scripts[0].file: "),
        ("scripts:\n- id: greet\n  grant: []\n", "scripts[0].grant: "),
        ("scripts:\n- {id: greet}\n- {id: greet}\n", "scripts[1].id: is there twice"),
        (
            "scripts:\n- id: greet\n  subscriptions:\n  - filterRules: {}\n",
            "scripts[0].subscriptions[0].eventType: ",
        ),
        ("jobs: []\n", "folder/scripts.yaml:1:"),
    ] {
        sandbox.write("folder/scripts.yaml", manifest);
        let wrong = apply(&["--yes"]);
        assert_eq!(wrong.code, 2, "{manifest}: {wrong:#?}");
        assert!(wrong.words.contains(words), "{manifest}: {wrong:#?}");
    }
    sandbox.write("folder/scripts.yaml", "scripts:\n- id: greet\n- id: bad\n");
    sandbox.write("folder/greet.js", "return 3");
    sandbox.write("folder/bad.js", "return }");
    let wrong = apply(&["--yes"]);
    assert_eq!(wrong.code, 2, "{wrong:#?}");
    assert!(wrong.words.contains("folder/bad.js:1:"), "{wrong:#?}");
    assert_eq!(sandbox.run(&["scripts", "get", "greet"]).ok().json()["version"], 2, "nothing was changed");
}

#[test]
fn the_example_of_this_repository_repairs_a_failed_task() {
    let sandbox = Sandbox::new();
    let folder = examples();
    let file = |name: &str| format!("{folder}/{name}");
    let tried = sandbox
        .run(&[
            "scripts",
            "test",
            &file("repair.js"),
            "--event",
            &file("event.json"),
            "--grant",
            "submitJob",
            "--grant",
            "publish",
            "--json",
        ])
        .ok()
        .json();
    assert_eq!(tried["result"]["group"], "overload", "{tried}");

    let server = sandbox.serve(&[], &[]);
    let url = server.url.clone();
    let at = |arguments: &[&str]| sandbox.run(&[arguments, &["--server", &url]].concat());
    at(&["definitions", "create", &file("repair.yaml")]).ok();
    at(&["scripts", "apply", &folder, "--yes"]).ok();
    at(&["submit", &file("broken.yaml")]).ok();
    eventually("the repair of the failed task", || {
        let jobs = at(&["jobs", "list", "--json"]).ok().json();
        let jobs = jobs["items"].as_array().unwrap().clone();
        jobs.iter().any(|job| job["name"] == "repair-code" && job["status"] == "completed")
    });
    let done = at(&["executions", "list", "--script", "repair", "--json"]).ok().json();
    let [execution] = &done["items"].as_array().unwrap()[..] else { panic!("{done}") };
    assert_eq!((&execution["status"], &execution["eventType"]), (&json!("success"), &json!("Task Failed")));
    let shown = at(&["executions", "get", execution["id"].as_str().unwrap()]).ok().json();
    assert_eq!(shown["result"]["group"], "code");
    let events = at(&["events", "query", "--type", "repair.requested", "--json"]).ok().json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1, "{events}");
    server.stop().ok();
}

/// What a run would fail with is told before, and the exit code says so.
#[test]
fn a_test_of_a_script_fails_where_a_run_of_it_would() {
    let sandbox = Sandbox::new();
    sandbox.write("event.json", r#"{"eventType": "x", "properties": {}}"#);
    sandbox.write("repair.yaml", "name: repair\ncommand: 'true'\nopenEnv: [REGION]\n");
    let server = sandbox.serve(&[], &[]);
    let at = |arguments: &[&str]| sandbox.run(&[arguments, &["--server", &server.url]].concat());
    at(&["definitions", "create", "repair.yaml"]).ok();
    // Whether the command can say it without a server, and what it says.
    for (source, here, expected) in [
        ("ctx.submitJob({ tasks: [{ taskId: 'a', name: 'repair', env: { REGION: 'eu' } }] })", true, None),
        ("ctx.publish('made.up', {})", true, None),
        ("ctx.submitJob({ tasks: [{ taskId: 'a', run: 'rm -r /' }] })", true, Some("tasks[0].run")),
        (
            "ctx.submitJob({ tasks: [{ taskId: 'a', name: 'repair', dependsOn: ['b'] }] })",
            true,
            Some("depends on b"),
        ),
        ("ctx.submitJob({ tasks: [] })", true, Some("tasks")),
        ("ctx.publish('Task Completed', {})", true, Some("reserved")),
        ("ctx.resolveError({})", true, Some("both missing")),
        ("ctx.submitJob({ tasks: [{ taskId: 'a', name: 'nowhere' }] })", false, Some("no task definition")),
        (
            "ctx.submitJob({ tasks: [{ taskId: 'a', name: 'repair', env: { CC: 'x' } }] })",
            false,
            Some("tasks[0].env.CC is not open"),
        ),
        ("throw new Error('bad')", true, Some("bad")),
    ] {
        let source = format!("{source}; return 1");
        sandbox.write("try.js", &source);
        let grants = ["submitJob", "publish", "resolveError"];
        let mut arguments = vec!["scripts", "test", "try.js", "--event", "event.json", "--json"];
        arguments.extend(grants.iter().flat_map(|grant| ["--grant", grant]));
        let ran = sandbox.run(&arguments);
        let is_wrong = here && expected.is_some();
        assert_eq!(ran.code, i32::from(is_wrong), "{source}: {ran:#?}");
        let body =
            json!({ "name": "try", "source": source, "grants": grants, "eventType": "x", "properties": {} });
        let told = post(&server.url, "/v1/script-tests", &body);
        match expected {
            None => {
                assert_eq!((&told["error"], &told["result"]), (&Value::Null, &json!(1)), "{source}: {told}");
            }
            Some(expected) => {
                let error = told["error"]["message"].as_str().unwrap_or_default();
                assert!(error.contains(expected), "{source}: {told}");
                assert_eq!((&told["result"], &told["calls"]), (&Value::Null, &json!([])), "{source}: {told}");
                let here = ran.json()["error"]["message"].as_str().unwrap_or(expected).to_owned();
                assert!(here.contains(expected), "{source}: {here}");
            }
        }
    }
    let jobs = at(&["jobs", "list", "--json"]).ok().json();
    assert_eq!(jobs["items"], json!([]), "nothing was carried out");
    server.stop().ok();
}

/// The answer of a server to JSON.
fn post(url: &str, path: &str, body: &Value) -> Value {
    use std::io::{Read as _, Write as _};
    let address = url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn sc_22_a_dead_letter_is_replayed_after_the_script_was_mended() {
    let sandbox = Sandbox::new();
    sandbox.write("greet.js", "throw new ValidationError('not today')");
    sandbox.run(&["scripts", "put", "greet", "greet.js"]).ok();
    sandbox.write("count.js", "return 1");
    sandbox.run(&["scripts", "put", "count", "count.js"]).ok();
    for script in ["greet", "count"] {
        sandbox
            .run(&["subscriptions", "add", "--script", script, "--type", "user.created", "--id", script])
            .ok();
    }
    let server = sandbox.serve(&["--no-worker"], &[]);
    let url = server.url.clone();
    let at = |arguments: &[&str]| sandbox.run(&[arguments, &["--server", &url]].concat());
    at(&["events", "publish", "--type", "user.created", "--properties", r#"{"n": 1}"#]).ok();
    let letters =
        || at(&["dead-letters", "list", "--kind", "script", "--state", "open", "--json"]).ok().json();
    eventually("the dead letter", || !letters()["items"].as_array().unwrap().is_empty());
    let letter = letters()["items"][0].clone();
    assert_eq!(
        (&letter["scriptId"], &letter["errorMessage"], &letter["retryCount"], &letter["eventData"]),
        (&json!("greet"), &json!("ValidationError: not today"), &json!(0), &json!({"n": 1}))
    );
    let id = letter["id"].as_str().unwrap();
    assert!(letter["stackTrace"].as_str().unwrap().contains("greet:1"), "{letter}");
    sandbox.write("greet.js", "return ctx.event.data.n + 1");
    at(&["scripts", "put", "greet", "greet.js"]).ok();
    let replayed = at(&["dead-letters", "replay", id, "--json"]).ok().json();
    let execution = replayed["executionId"].as_str().unwrap();
    eventually("the replay", || at(&["executions", "get", execution]).ok().json()["status"] == "success");
    assert_eq!(at(&["executions", "get", execution]).ok().json()["result"], 2);
    let others = at(&["executions", "list", "--script", "count", "--json"]).ok().json();
    assert_eq!(others["items"].as_array().unwrap().len(), 1, "no other script ran again");
    let all = at(&["dead-letters", "discard", "--all", "--kind", "script", "--json"]).ok().json();
    assert_eq!(all, json!({ "ids": [] }));
    let event = letter["eventId"].as_str().unwrap();
    let told = at(&["scripts", "explain", "--event", event, "--json"]).ok().json();
    let verdicts: Vec<_> =
        told["subscriptions"].as_array().unwrap().iter().map(|one| &one["verdict"]).collect();
    assert_eq!(verdicts, ["matched", "matched"], "{told}");
    assert_eq!(told["subscriptions"][1]["executionId"], letter["executionId"]);
    server.stop().ok();
}

/// The whole round of dead letters from the command line, for each kind: list, show, replay, discard, many by filter
/// after a look at what it would be. What one command prints another understands.
#[test]
fn dead_letters_go_the_whole_round() {
    let sandbox = Sandbox::new();
    let run = |arguments: &[&str]| sandbox.run(arguments).ok();
    let open = |kind: &str| {
        let list = run(&["dead-letters", "list", "--kind", kind, "--state", "open", "--json"]).json();
        list["items"].as_array().unwrap().clone()
    };
    for id in ["bad", "worse"] {
        sandbox.write("bad.js", "throw new ValidationError('not today')");
        run(&["scripts", "put", id, "bad.js"]);
        run(&["subscriptions", "add", "--script", id, "--type", "tick", "--id", id]);
    }
    let server = sandbox.serve(&[], &[("MAX_MESSAGE_RETRIES", "1")]);
    for n in 0..3 {
        run(&["events", "publish", "--type", "tick", "--properties", &format!(r#"{{"n": {n}}}"#)]);
    }
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: a, run: exit 1}\n- {taskId: b, run: exit 1}\n- {taskId: c, run: exit 1}\n",
    );
    run(&["submit", "job.yaml"]);
    eventually("the dead letters", || open("script").len() == 6 && open("task").len() == 3);
    for kind in ["script", "task"] {
        let letters = open(kind);
        let id = |at: usize| letters[at]["id"].as_str().unwrap().to_owned();
        let table = run(&["dead-letters", "list", "--kind", kind]).out;
        assert!(letters.iter().all(|letter| table.contains(letter["id"].as_str().unwrap())), "{table}");
        assert_eq!(run(&["dead-letters", "show", &id(0)]).json(), letters[0]);
        assert_eq!(letters[0]["kind"], kind);
        let replayed = run(&["dead-letters", "replay", &id(0), "--json"]).json();
        assert_eq!(replayed["id"], letters[0]["id"]);
        assert_eq!(run(&["dead-letters", "show", &id(0)]).json()["state"], "replayed");
        run(&["dead-letters", "discard", &id(1)]);
        assert_eq!(run(&["dead-letters", "show", &id(1)]).json()["state"], "discarded");
        for again in ["replay", "discard"] {
            let refused = sandbox.run(&["dead-letters", again, &id(1)]);
            assert!(refused.code == 1 && refused.words.contains("NOT_OPEN"), "{refused:#?}");
        }
        let absent = sandbox.run(&["dead-letters", "show", "00000000-0000-7000-8000-000000000000"]);
        assert!(absent.code == 1 && absent.words.contains("NOT_FOUND"), "{absent:#?}");
    }
    // What was replayed fails again, as a letter of its own.
    eventually("the new letters", || open("script").len() == 5 && open("task").len() == 2);
    let many = |deed: &str, more: &[&str]| {
        let ids = run(&[&["dead-letters", deed, "--all", "--json"], more].concat()).json()["ids"].clone();
        ids.as_array().unwrap().len()
    };
    let worse = open("script").iter().filter(|letter| letter["scriptId"] == "worse").count();
    assert!((2..5).contains(&worse));
    let only = ["--kind", "script", "--script", "worse"];
    assert_eq!(many("discard", &[&only[..], &["--dry-run"]].concat()), worse);
    assert_eq!(open("script").len(), 5, "a look changes nothing");
    assert_eq!(many("discard", &only), worse);
    assert_eq!(open("script").len(), 5 - worse);
    assert_eq!(many("replay", &["--kind", "script", "--to", "1h", "--dry-run"]), 0, "none is so old");
    assert_eq!(
        many("replay", &["--kind", "script", "--type", "tick", "--from", "1h", "--dry-run"]),
        5 - worse
    );
    assert_eq!(many("replay", &["--kind", "task", "--dry-run"]), 2);
    assert_eq!(open("task").len(), 2);
    assert_eq!(many("discard", &["--kind", "task"]), 2);
    assert_eq!((open("task").len(), open("event").len()), (0, 0));
    assert_eq!(many("replay", &["--kind", "event"]), 0);
    sandbox.write("bad.js", "return 1");
    for id in ["bad", "worse"] {
        run(&["scripts", "put", id, "bad.js"]);
    }
    assert_eq!(many("replay", &["--kind", "script"]), 5 - worse);
    eventually("the replays", || {
        let done = run(&["executions", "list", "--status", "success", "--json"]).json();
        done["items"].as_array().unwrap().len() == 5 - worse
    });
    assert_eq!(open("script"), Vec::<Value>::new());
    server.stop().ok();
}
