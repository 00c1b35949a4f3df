//! Checks of health: by a timer, on demand, and their alerts.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::outbound::{Asked, Listener, ok_json, status};
use crate::sandbox::{Sandbox, eventually};

/// A task that ends when it is let go.
const HELD: &str = "name: held\ntasks:\n- {taskId: a, run: 'while [ ! -e go ]; do sleep 0.05; done'}\n";

fn checks(sandbox: &Sandbox) -> Vec<Value> {
    let ran = sandbox.run(&["events", "query", "--type", "Task Health Check", "--json"]).ok();
    ran.json()["items"].as_array().unwrap().clone()
}

/// The bot of Slack reports a stopped worker as missed after one lease and as lost after four; it also reports when
/// the worker goes on, or its task has ended. The alert is no part of the event.
#[test]
fn hc_02_a_stopped_worker_is_told_of_and_its_recovery_too() {
    let (sandbox, elsewhere) = (Sandbox::new(), Sandbox::new());
    let listener = Listener::start(|_, _| ok_json(r#"{"ok":true}"#));
    let api = format!("{}/api", listener.url);
    // A lease of 1.5 s instead of 45, and a check every second.
    let settings = [
        ("VISIBILITY_EXTENSION_INTERVAL", "300"),
        ("VISIBILITY_EXTENSION_AMOUNT", "1"),
        ("HEALTH_CHECK_ENABLED", "true"),
        ("HEALTH_CHECK_INTERVAL_MS", "1000"),
        ("HEALTH_ALERT_WARNING", "true"),
        ("NODE_ENV", "staging"),
        ("SLACK_API_URL", api.as_str()),
        ("SLACK_BOT_TOKEN", "xoxb-1"),
        ("ALERT_CHANNEL", "#health"),
    ];
    let server = sandbox.serve(&["--no-worker"], &settings);
    sandbox.write("held.yaml", HELD);
    let job = sandbox.run(&["submit", "held.yaml"]).ok().out.trim().to_owned();
    let task = format!("{job}_a");
    let worker = elsewhere.start(&["worker", "--server", &server.url], &settings[..2]);
    let checked = || sandbox.run(&["health", "--json"]);
    eventually("that it runs", || checked().json()["summary"]["healthy"] == 1);
    assert_eq!(checked().code, 0);
    worker.signal(Signal::STOP);
    let told = |word: &str| {
        let posts = listener.of("/api/chat.postMessage");
        let told = posts.iter().map(Asked::json);
        told.filter(|post| post["text"].as_str().unwrap().contains(&format!("{task} {word}")))
            .collect::<Vec<_>>()
    };
    eventually("the warning", || !told("warning").is_empty());
    eventually("the alarm", || !told("critical").is_empty());
    let post = &told("critical")[0];
    assert_eq!(post["channel"], "#health");
    let text = post["text"].as_str().unwrap();
    assert!(text.starts_with(":rotating_light: *Task health* (staging, tenant default)\n"), "{text}");
    let found = checked();
    assert_eq!((found.code, &found.json()["summary"]["critical"]), (1, &json!(1)), "{}", found.words);
    let listed = &found.json()["tasks"][0];
    assert_eq!((&listed["requestId"], &listed["health"]), (&json!(task), &json!("critical")));
    let table = sandbox.run(&["health"]);
    assert!(
        table.out.contains("critical") && table.words.contains("1 critical"),
        "{}\n{}",
        table.out,
        table.words
    );
    let last = sandbox.run(&["health", "--last", "--json"]);
    assert_eq!((last.code, &last.json()["isHealthy"]), (1, &json!(false)));
    let event =
        checks(&sandbox).into_iter().find(|event| event["properties"]["summary"]["critical"] == 1).unwrap();
    let fields: Vec<_> = event["properties"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["summary", "tasks"]);
    assert_eq!(told("critical").len(), 1, "it was told once");
    elsewhere.write("go", "");
    worker.signal(Signal::CONT);
    eventually("the recovery", || !told("is ").is_empty());
    let text = told("is ")[0]["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with(":white_check_mark: *Task health: recovered*"), "{text}");
    eventually("the end of the job", || {
        sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "completed"
    });
    worker.signal(Signal::TERM);
    worker.end();
    server.stop().ok();
    sandbox.run(&["verify"]).ok();
}

#[test]
fn hc_05_a_timer_checks_in_prod_and_not_elsewhere() {
    for (stage, is_checked) in [("prod", true), ("dev", false)] {
        let sandbox = Sandbox::new();
        let settings = [("NODE_ENV", stage), ("HEALTH_CHECK_INTERVAL_MS", "1000")];
        let server = sandbox.serve(&[], &settings);
        sandbox.write("slow.yaml", "name: slow\ntasks:\n- {taskId: a, run: 'sleep 1.5'}\n");
        let job = sandbox.run(&["submit", "slow.yaml"]).ok().out.trim().to_owned();
        eventually("the end of the job", || {
            sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "completed"
        });
        if is_checked {
            eventually("two checks", || checks(&sandbox).len() >= 2);
            let first = &checks(&sandbox)[0];
            assert_eq!(first["context"]["environment"], "prod");
            assert!(first["properties"]["summary"]["totalProcessing"].is_u64(), "{first}");
        } else {
            assert_eq!(checks(&sandbox), Vec::<Value>::new());
            let none = sandbox.run(&["health", "--last"]);
            assert!(
                none.code != 0 && none.words.contains("no check of health was made yet"),
                "{}",
                none.words
            );
        }
        server.stop().ok();
    }
}

/// What was told is known to the next life of the server.
#[test]
fn an_alert_is_not_repeated_after_a_kill() {
    let sandbox = Sandbox::new();
    let listener = Listener::start(|_, _| status(200, ""));
    let slack = format!("{}/slack", listener.url);
    let settings = [("HEALTH_PENDING_MS", "1"), ("SLACK_WEBHOOK_URL", slack.as_str())];
    let server = sandbox.serve(&["--no-worker"], &settings);
    sandbox.write("quick.yaml", "name: quick\ntasks:\n- {taskId: a, run: 'true'}\n");
    let job = sandbox.run(&["submit", "quick.yaml"]).ok().out.trim().to_owned();
    let found = sandbox.run(&["health", "--json"]);
    assert_eq!((found.code, &found.json()["findings"][0]["kind"]), (1, &json!("pending")), "{}", found.out);
    assert_eq!(found.json()["findings"][0]["examples"], json!([format!("{job}_a")]));
    eventually("the alert", || listener.of("/slack").len() == 1);
    server.process.kill();
    let server = sandbox.serve(&["--no-worker"], &settings);
    assert_eq!(sandbox.run(&["health"]).code, 1);
    server.stop().ok();
    let server = sandbox.serve(&[], &settings);
    eventually("the end of the job", || {
        sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "completed"
    });
    sandbox.run(&["health"]).ok();
    eventually("the recovery", || listener.of("/slack").iter().any(|asked| asked.body.contains("recovered")));
    let mut told = listener.of("/slack");
    // A delivery whose arrival was not on record before the kill comes again, under its own id.
    told.dedup_by_key(|asked| asked.header("tidemill-delivery").to_owned());
    let [raised, recovered] = &told[..] else { panic!("{told:#?}") };
    assert!(raised.body.contains("pending: 1 task waits for a start"), "{raised:?}");
    assert!(recovered.body.contains("pending: over"), "{recovered:?}");
    server.stop().ok();
}
