//! What the server sends to others: webhooks, dead letters of deliveries, alerts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ring::hmac;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

/// A request that somebody made.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// How a listener answers a request, which is the so-manyth of its path.
type Answers = dyn Fn(&str, usize) -> String + Send + Sync;

/// Listens for webhooks.
pub(crate) struct Listener {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Listener {
    pub(crate) fn start(answers: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (own, answers): (_, Arc<Answers>) = (Arc::clone(&asked), Arc::new(answers));
        // It ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &own, &*answers);
            }
        });
        Self { url, asked }
    }

    pub(crate) fn of(&self, path: &str) -> Vec<Asked> {
        self.asked.lock().unwrap().iter().filter(|asked| asked.path == path).cloned().collect()
    }
}

fn answer(stream: TcpStream, asked: &Mutex<Vec<Asked>>, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.push((name.to_owned(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let count = {
        let mut all = asked.lock().unwrap();
        all.push(Asked { path: path.clone(), headers, body });
        all.iter().filter(|asked| asked.path == path).count()
    };
    let _ = reader.get_mut().write_all(answers(&path, count).as_bytes());
}

pub(crate) fn status(code: u16, more: &str) -> String {
    format!("HTTP/1.1 {code} X\r\nconnection: close\r\ncontent-length: 0\r\n{more}\r\n")
}

pub(crate) fn ok_json(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn assert_signed(asked: &Asked, key: &[u8]) {
    let (at, mac) = asked.header("tidemill-signature").split_once(",v1=").unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let signed = hmac::sign(&key, format!("{}.{}", at.trim_start_matches("t="), asked.body).as_bytes());
    assert_eq!(mac.len(), 64);
    for (at, byte) in signed.as_ref().iter().enumerate() {
        assert_eq!(mac[2 * at..2 * at + 2], format!("{byte:02x}"), "{mac}");
    }
}

fn park(sandbox: &Sandbox, execution: &str) {
    let event = json!([{
        "source": "elephant.workflow", "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": execution, "county": "Cook", "status": "FAILED", "phase": "Transform", "step": "Transform",
            "taskToken": format!("very-secret-token-of-{execution}"), "errors": [{"code": "20Cook", "details": {}}],
        },
    }]);
    sandbox.write("events.json", &event.to_string());
    sandbox.run(&["events", "publish", "--file", "events.json"]).ok();
}

fn resume(sandbox: &Sandbox, execution: &str) {
    sandbox.run(&["parked", "resume", execution, "--output", r#"{"mended":7}"#, "--yes"]).ok();
}

/// The end of a wait is told until it arrives, through the death of the server, under one id and signed.
#[test]
fn the_workflow_webhook_hears_of_every_end_though_the_server_is_killed() {
    let sandbox = Sandbox::new();
    // A redirect is a refusal like any other.
    let listener = Listener::start(|path, count| match (path, count) {
        ("/hook", 1) => status(307, "location: /elsewhere\r\n"),
        ("/hook", 2) => status(500, ""),
        _ => status(204, ""),
    });
    let hook = format!("{}/hook", listener.url);
    let settings = [("WORKFLOW_WEBHOOK_URL", hook.as_str()), ("WEBHOOK_SIGNING_KEY", "a key of ours")];
    let server = sandbox.serve(&["--no-worker"], &settings);
    park(&sandbox, "e1");
    resume(&sandbox, "e1");
    eventually("the first try", || !listener.of("/hook").is_empty());
    server.process.kill();
    let server = sandbox.serve(&["--no-worker"], &settings);
    eventually("that it arrived", || listener.of("/hook").len() == 3);
    let tries = listener.of("/hook");
    let id = tries[0].header("tidemill-delivery").to_owned();
    assert_eq!(id.len(), 36, "{tries:#?}");
    for asked in &tries {
        assert_eq!(asked.header("tidemill-delivery"), id);
        assert_eq!(asked.body, tries[0].body);
        assert_signed(asked, b"a key of ours");
    }
    let body = tries[0].json();
    assert_eq!((&body["executionId"], &body["outcome"]), (&json!("e1"), &json!("resumed")));
    assert_eq!(body["output"], json!({ "mended": 7 }));
    assert_eq!(body["tokenDigest"].as_str().unwrap().len(), 64, "{body}");
    assert!(!tries[0].body.contains("very-secret"), "{body}");
    assert!(listener.of("/elsewhere").is_empty(), "no redirect is followed");
    let event = body["eventId"].as_str().unwrap();
    let events = sandbox.run(&["events", "query", "--type", "Execution Resumed", "--json"]).ok().json();
    assert!(events["items"][0].to_string().contains(event), "{events}");

    park(&sandbox, "e2");
    sandbox.run(&["parked", "fail", "e2", "--error", "Broken", "--cause", "for good", "--yes"]).ok();
    eventually("the second end", || listener.of("/hook").len() == 4);
    let body = listener.of("/hook")[3].json();
    assert_eq!(
        (&body["outcome"], &body["error"], &body["cause"]),
        (&json!("failed"), &json!("Broken"), &json!("for good"))
    );
    server.stop().ok();
    sandbox.run(&["verify"]).ok();
    assert_eq!(listener.of("/hook").len(), 4, "what arrived is not told again");
}

/// What never arrives is kept, told to people in words they know, and can be sent again.
#[test]
fn what_never_arrives_becomes_a_dead_letter_with_one_alert() {
    let sandbox = Sandbox::new();
    let healed = Arc::new(AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let listener = Listener::start(move |path, count| match path {
        "/hook" if is_healed.load(Ordering::SeqCst) => status(200, ""),
        "/hook" => status(503, ""),
        // The alert itself fails twice before it arrives.
        "/slack" if count <= 2 => status(500, ""),
        _ => status(200, ""),
    });
    let (hook, slack) = (format!("{}/hook", listener.url), format!("{}/slack", listener.url));
    let settings = [("WORKFLOW_WEBHOOK_URL", hook.as_str()), ("SLACK_WEBHOOK_URL", slack.as_str())];
    let server = sandbox.serve(&["--no-worker"], &settings);
    park(&sandbox, "e1");
    resume(&sandbox, "e1");
    eventually("the alert", || listener.of("/slack").len() == 3);
    assert_eq!(listener.of("/hook").len(), 4, "one try and three more");
    let letters = sandbox.run(&["dead-letters", "list", "--kind", "event", "--json"]).ok().json();
    let [letter] = &letters["items"].as_array().unwrap()[..] else { panic!("{letters}") };
    let id = letter["id"].as_str().unwrap();
    assert_eq!(
        (&letter["kind"], &letter["state"], &letter["attempts"]),
        (&json!("event"), &json!("open"), &json!(4))
    );
    assert_eq!(letter["errorMessage"], "WORKFLOW_WEBHOOK_URL: answered 503");
    assert_eq!(listener.of("/hook")[0].header("tidemill-delivery"), id);
    let alerts = listener.of("/slack");
    assert!(alerts.iter().all(|alert| alert.body == alerts[0].body));
    let alert = alerts[0].json();
    assert_eq!(alert.as_object().unwrap().len(), 1, "{alert}");
    let lines: Vec<&str> = alert["text"].as_str().unwrap().lines().collect();
    assert_eq!(
        (lines.len(), &lines[..4], lines[5]),
        (
            6,
            &[
                ":rotating_light: *EventBridge delivery failure*",
                "*Event type:* Execution Resumed",
                "*Detail type:* log-event",
                "*Task:* WORKFLOW#e1",
            ][..],
            format!("*Message ID:* {id}").as_str()
        ),
        "{alert}"
    );
    assert!(lines[4].starts_with("*Time:* 20") && lines[4].ends_with('Z'), "{alert}");

    // Another one, so that there are two; all of them at once, and only of this kind.
    park(&sandbox, "e2");
    resume(&sandbox, "e2");
    let count = |state: &str| {
        let list = ["dead-letters", "list", "--kind", "event", "--state", state, "--json"];
        sandbox.run(&list).ok().json()["items"].as_array().unwrap().len()
    };
    eventually("the second letter", || count("open") == 2);
    let table = sandbox.run(&["dead-letters", "list", "--kind", "event"]).ok();
    assert!(table.out.contains("workflow-webhook") && table.out.contains("WORKFLOW#e2"), "{}", table.out);
    let look =
        sandbox.run(&["dead-letters", "replay", "--all", "--kind", "event", "--dry-run", "--json"]).ok();
    assert_eq!((look.json()["ids"].as_array().unwrap().len(), count("open")), (2, 2));
    let none = ["dead-letters", "discard", "--all", "--kind", "event", "--type", "Other", "--json"];
    assert_eq!(sandbox.run(&none).ok().json()["ids"], json!([]));
    healed.store(true, Ordering::SeqCst);
    let replayed = sandbox.run(&["dead-letters", "replay", id, "--json"]).ok().json();
    let again = replayed["deliveryId"].as_str().unwrap().to_owned();
    eventually("that it arrived", || {
        listener.of("/hook").iter().any(|asked| asked.header("tidemill-delivery") == again)
    });
    assert_ne!(sandbox.run(&["dead-letters", "replay", id]).code, 0, "it is done");
    let shown = sandbox.run(&["dead-letters", "show", id]).ok().json();
    assert_eq!((&shown["state"], &shown["replayedBy"]), (&json!("replayed"), &json!(again)));
    let rest = sandbox.run(&["dead-letters", "discard", "--all", "--kind", "event", "--json"]).ok().json();
    assert_eq!(rest["ids"].as_array().unwrap().len(), 1);
    assert_eq!((count("open"), count("replayed"), count("discarded")), (0, 1, 1));
    server.stop().ok();
    sandbox.run(&["verify"]).ok();
    assert_eq!(count("discarded"), 1);
}

#[test]
fn alerts_can_be_tried_out() {
    let sandbox = Sandbox::new();
    let listener = Listener::start(|path, count| match (path, count) {
        ("/api/chat.postMessage", 1) => ok_json(r#"{"ok":false,"error":"channel_not_found"}"#),
        ("/api/chat.postMessage", _) => ok_json(r#"{"ok":true}"#),
        _ => status(200, ""),
    });
    let (api, hook) = (format!("{}/api", listener.url), format!("{}/alerts", listener.url));
    let settings = [
        ("SLACK_API_URL", api.as_str()),
        ("SLACK_BOT_TOKEN", "xoxb-something-secret"),
        ("ALERT_CHANNEL", "#ops"),
        ("ALERT_WEBHOOK_URL", hook.as_str()),
        ("WEBHOOK_SIGNING_KEY", "k"),
    ];
    let refused = sandbox.run_with(&["alerts", "test"], &settings);
    assert_eq!(refused.code, 1, "a 200 that says no is a no: {refused:#?}");
    assert!(refused.words.contains("SLACK_BOT_TOKEN: Slack refused it: channel_not_found"), "{refused:#?}");
    assert!(refused.words.contains("ALERT_WEBHOOK_URL: arrived"), "{refused:#?}");
    sandbox.run_with(&["alerts", "test"], &settings).ok();
    let posted = listener.of("/api/chat.postMessage").remove(1);
    assert_eq!(posted.header("authorization"), "Bearer xoxb-something-secret");
    assert_eq!(posted.json()["channel"], "#ops");
    assert!(posted.json()["text"].as_str().unwrap().contains("test alert"), "{posted:?}");
    assert!(listener.of("/alerts")[0].header("tidemill-signature").starts_with("t="));

    // A closed port, and nobody at all.
    let closed = [("SLACK_WEBHOOK_URL", "http://127.0.0.1:1/x")];
    let unreached = sandbox.run_with(&["alerts", "test"], &closed);
    assert_eq!(unreached.code, 1, "{unreached:#?}");
    assert!(!unreached.words.contains("127.0.0.1:1"), "the address is a secret: {unreached:#?}");
    let logged = sandbox.run(&["alerts", "test"]).ok();
    assert!(logged.words.contains("alert: :wave: *Tidemill test alert*"), "{logged:#?}");
}

/// Failed jobs are told to people and to the webhook, those that fail together in one alert, though the server is killed.
#[test]
fn failed_jobs_are_told_together_with_what_their_tasks_said() {
    let sandbox = Sandbox::new();
    let listener = Listener::start(|path, count| match (path, count) {
        ("/slack", 1) => status(500, ""),
        _ => status(200, ""),
    });
    let (slack, hook) = (format!("{}/slack", listener.url), format!("{}/alerts", listener.url));
    let settings = [
        ("SLACK_WEBHOOK_URL", slack.as_str()),
        ("ALERT_WEBHOOK_URL", hook.as_str()),
        ("ALERT_JOB_FAILED", "true"),
        ("ALERT_JOB_FAILED_NAMES", "nightly*,default/etl"),
        ("ALERT_JOB_FAILED_WAIT_MS", "3s"),
        ("PUBLIC_URL", "https://tidemill.example.com/"),
    ];
    let server = sandbox.serve(&[], &settings);
    let submit = |name: &str, run: &str| {
        let job = json!({ "name": name, "tasks": [{ "taskId": "load", "run": run, "retry": { "maxAttempts": 1 } }] });
        sandbox.write("job.json", &job.to_string());
        let submitted = sandbox.run(&["submit", "job.json", "--json"]).ok().json();
        submitted["jobId"].as_str().unwrap().to_owned()
    };
    submit("other", "exit 1");
    submit("nightly-fine", "true");
    let first = submit("nightly", "echo 'no such table: pages <!here>' >&2; exit 3");
    let second = submit("etl", "exit 4");
    let is_over = |job: &str| sandbox.run(&["jobs", "get", job, "--json"]).ok().json()["status"] == "failed";
    eventually("that both failed", || is_over(&first) && is_over(&second));
    server.process.kill();
    let server = sandbox.serve(&[], &settings);
    eventually("the alerts", || listener.of("/slack").len() >= 2 && !listener.of("/alerts").is_empty());
    // How many alerts these two are depends on how fast this machine is; each job is told once.
    let jobs = |body: &Value| body["jobs"].as_array().unwrap().clone();
    eventually("both jobs", || {
        listener.of("/alerts").iter().map(|asked| jobs(&asked.json()).len()).sum::<usize>() >= 2
    });
    let told: Vec<Value> = listener.of("/alerts").iter().flat_map(|asked| jobs(&asked.json())).collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    let body = listener.of("/alerts")[0].json();
    assert_eq!(
        (&body["kind"], &body["isRaised"], &body["tenantId"]),
        (&json!("job_failed"), &json!(true), &json!("default"))
    );
    let of = |job: &str| told.iter().find(|told| told["jobId"] == job).unwrap_or_else(|| panic!("{told:#?}"));
    let (load, page) = (of(&first), format!("https://tidemill.example.com/jobs/{first}"));
    assert_eq!(
        (&load["name"], &load["taskId"], &load["failedTasks"]),
        (&json!("nightly"), &json!("load"), &json!(1))
    );
    assert!(load["lastError"].as_str().unwrap().contains("no such table"), "{told:#?}");
    assert_eq!(load["url"], json!(page));
    assert_eq!(of(&second)["name"], "etl");
    let told_people = listener.of("/slack");
    let id = told_people[0].header("tidemill-delivery");
    assert!(
        told_people[1..].iter().any(|alert| alert.header("tidemill-delivery") == id),
        "it is tried again"
    );
    let text: Vec<_> =
        told_people.iter().map(|alert| alert.json()["text"].as_str().unwrap().to_owned()).collect();
    let text = text.join("\n");
    for part in [&first, &second, "task load failed", "&lt;!here&gt;", &page] {
        assert!(text.contains(part), "{part}: {text}");
    }
    server.stop().ok();
    sandbox.run(&["verify"]).ok();
}

/// A job that was resumed before its alert arrives is told with the cause of its failure, and the log says why it is late.
#[test]
fn a_job_that_completed_since_is_told_with_its_cause() {
    let sandbox = Sandbox::new();
    let healed = Arc::new(AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let listener =
        Listener::start(move |_, _| status(if is_healed.load(Ordering::SeqCst) { 200 } else { 503 }, ""));
    let slack = format!("{}/services/hidden-part", listener.url);
    let settings = [
        ("SLACK_WEBHOOK_URL", slack.as_str()),
        ("ALERT_JOB_FAILED", "true"),
        ("ALERT_JOB_FAILED_WAIT_MS", "1s"),
    ];
    let server = sandbox.serve(&[], &settings);
    let run = format!(
        "test -e {} || {{ echo 'no such table: pages' >&2; exit 3; }}",
        sandbox.dir.join("mended").display()
    );
    let job = json!({ "name": "nightly", "tasks": [{ "taskId": "load", "run": run, "retry": { "maxAttempts": 1 } }] });
    sandbox.write("job.json", &job.to_string());
    let submitted = sandbox.run(&["submit", "job.json", "--json"]).ok().json();
    let job = submitted["jobId"].as_str().unwrap().to_owned();
    let is = |status: &str| sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == status;
    eventually("that it failed", || is("failed"));
    sandbox.write("mended", "");
    sandbox.run(&["jobs", "resume", &job]).ok();
    eventually("that it completed", || is("completed"));
    eventually("a first try", || !listener.of("/services/hidden-part").is_empty());
    healed.store(true, Ordering::SeqCst);
    let tries = listener.of("/services/hidden-part").len();
    eventually("the alert", || listener.of("/services/hidden-part").len() > tries);
    let told = listener.of("/services/hidden-part").pop().unwrap().json();
    let text = told["text"].as_str().unwrap();
    let expected = format!("• nightly {job} (completed since): task load failed: ");
    assert!(text.contains(&expected) && text.contains("no such table: pages"), "{text}");
    let words = server.stop().ok().words;
    let line = words.lines().find(|line| line.contains("a delivery did not arrive"));
    let line = line.unwrap_or_else(|| panic!("{words}"));
    assert!(line.contains(" warn ") && line.contains("to=slack") && line.contains("503"), "{line}");
    assert!(!words.contains("hidden-part"), "the address is a secret: {words}");
}

fn callback_job(url: &str, run: &str) -> String {
    json!({ "name": "nightly", "requestId": format!("r-{}", run.len()), "callbackUrl": url, "tasks": [
        { "taskId": "a", "run": "true" }, { "taskId": "b", "run": run, "dependsOn": ["a"], "retry": { "maxAttempts": 1 } },
    ] })
    .to_string()
}

/// The host and port of a listener, as the list of hosts has it.
pub(crate) fn host_of(listener: &Listener) -> &str {
    listener.url.trim_start_matches("http://")
}

/// Each rest of a job is told until it arrives, under one id and signed, and again after a resume.
#[test]
fn a_callback_hears_each_time_that_the_job_comes_to_rest() {
    let sandbox = Sandbox::new();
    let listener = Listener::start(|path, count| match (path, count) {
        ("/done", 1) => status(500, ""),
        ("/done", 2) => status(302, "location: /elsewhere\r\n"),
        _ => status(204, ""),
    });
    let settings = [("CALLBACK_ALLOWED_HOSTS", host_of(&listener)), ("WEBHOOK_SIGNING_KEY", "a key of ours")];
    let server = sandbox.serve(&[], &settings);
    let url = format!("{}/done", listener.url);
    sandbox.write("job.json", &callback_job(&url, "test -e mended || exit 3"));
    let submitted = sandbox.run(&["submit", "job.json", "--json"]).ok().json();
    let job = submitted["jobId"].as_str().unwrap().to_owned();
    eventually("that it arrived", || listener.of("/done").len() == 3);
    let tries = listener.of("/done");
    for asked in &tries {
        assert_eq!(asked.header("tidemill-delivery"), tries[0].header("tidemill-delivery"));
        assert_eq!(asked.body, tries[0].body);
        assert_signed(asked, b"a key of ours");
    }
    let told = tries[0].json();
    let known = sandbox.run(&["jobs", "get", &job, "--json"]).ok().json();
    assert_eq!(known["callbackUrl"], url);
    for (field, expected) in [
        ("jobId", json!(job)),
        ("requestId", known["requestId"].clone()),
        ("name", json!("nightly")),
        ("tenantId", json!("default")),
        ("status", json!("failed")),
        ("counts", known["counts"].clone()),
    ] {
        assert_eq!(told[field], expected, "{field} of {told}");
    }
    let is_told = |event_type: &str, body: &Value| {
        let events = sandbox.run(&["events", "query", "--type", event_type, "--json"]).ok().json();
        let event = &events["items"][0];
        let key = format!("#EVENT#{}", body["eventId"].as_str().unwrap());
        assert!(event["SK"].as_str().unwrap().ends_with(&key), "{key} is not the key of {event}");
        assert_eq!(event["timestamp"], body["at"], "{event}");
    };
    is_told("Job Failure Detected", &told);
    sandbox.run(&["jobs", "resume", &job]).ok();
    eventually("the second rest", || listener.of("/done").len() == 4);
    let again = listener.of("/done").remove(3);
    assert_ne!(again.header("tidemill-delivery"), tries[0].header("tidemill-delivery"));
    assert_ne!(again.json()["eventId"], told["eventId"]);

    // A job that is cancelled, and one that completes.
    sandbox.write("job.json", &callback_job(&url, "sleep 600"));
    let job =
        sandbox.run(&["submit", "job.json", "--json"]).ok().json()["jobId"].as_str().unwrap().to_owned();
    sandbox.run(&["jobs", "cancel", &job]).ok();
    eventually("the cancel", || listener.of("/done").len() == 5);
    let told = listener.of("/done").remove(4).json();
    assert_eq!((&told["jobId"], &told["status"]), (&json!(job), &json!("cancelled")));
    is_told("Job Cancelled", &told);
    sandbox.write("job.json", &callback_job(&url, "true"));
    sandbox.run(&["submit", "job.json"]).ok();
    eventually("the completion", || listener.of("/done").len() == 6);
    let told = listener.of("/done").remove(5).json();
    assert_eq!((&told["status"], &told["counts"]["completed"]), (&json!("completed"), &json!(2)));
    is_told("Job Completed", &told);
    server.stop().ok();
    sandbox.run(&["verify"]).ok();
    assert!(listener.of("/elsewhere").is_empty(), "no redirect is followed");
    assert_eq!(listener.of("/done").len(), 6);
}

/// A process that dies between the rest of a job and the answer of the other side tells it again.
#[test]
fn a_callback_survives_the_death_of_the_server() {
    let sandbox = Sandbox::new();
    let open = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&open);
    // It hears the request and never answers, until it does.
    let listener =
        Listener::start(
            move |_, _| {
                if is_open.load(Ordering::SeqCst) { status(200, "") } else { String::new() }
            },
        );
    let settings = [("CALLBACK_ALLOWED_HOSTS", host_of(&listener))];
    let server = sandbox.serve(&[], &settings);
    sandbox.write("job.json", &callback_job(&format!("{}/done", listener.url), "true"));
    sandbox.run(&["submit", "job.json"]).ok();
    eventually("the first try", || !listener.of("/done").is_empty());
    server.process.kill();
    let heard = listener.of("/done").len();
    open.store(true, Ordering::SeqCst);
    // What was exported and read elsewhere is told from there.
    sandbox.run(&["export", "--out", "all.jsonl"]).ok();
    let copy = Sandbox::new();
    copy.write("all.jsonl", &sandbox.read("all.jsonl"));
    copy.run(&["import", "all.jsonl"]).ok();
    copy.run(&["verify"]).ok();
    sandbox.run(&["rebuild"]).ok();
    for (place, count) in [(&sandbox, heard + 1), (&copy, heard + 2)] {
        let server = place.serve(&["--no-worker"], &settings);
        eventually("that it arrived", || listener.of("/done").len() == count);
        server.stop().ok();
        place.run(&["verify"]).ok();
    }
    let tries = listener.of("/done");
    assert!(tries.iter().all(|asked| asked.body == tries[0].body));
    assert!(
        tries.iter().all(|a| a.header("tidemill-delivery") == tries[0].header("tidemill-delivery")),
        "{tries:#?}"
    );
}

/// A callback that never arrives is a dead letter like any other, with the alert that people know.
#[test]
fn a_callback_that_never_arrives_is_kept_and_told_to_people() {
    let sandbox = Sandbox::new();
    let healed = Arc::new(AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let listener = Listener::start(move |path, count| match path {
        "/done" if !is_healed.load(Ordering::SeqCst) => status(503, ""),
        // The alert itself fails twice before it arrives.
        "/slack" if count <= 2 => status(500, ""),
        _ => status(200, ""),
    });
    let slack = format!("{}/slack", listener.url);
    let settings = [("CALLBACK_ALLOWED_HOSTS", host_of(&listener)), ("SLACK_WEBHOOK_URL", slack.as_str())];
    let server = sandbox.serve(&[], &settings);
    let url = format!("{}/done", listener.url);
    sandbox.write("job.json", &callback_job(&url, "true"));
    let submitted = sandbox.run(&["submit", "job.json", "--json"]).ok().json();
    let job = submitted["jobId"].as_str().unwrap();
    eventually("the alert", || listener.of("/slack").len() == 3);
    assert_eq!(listener.of("/done").len(), 4, "one try and three more");
    let letters = sandbox.run(&["dead-letters", "list", "--kind", "event", "--json"]).ok().json();
    let [letter] = &letters["items"].as_array().unwrap()[..] else { panic!("{letters}") };
    let id = letter["id"].as_str().unwrap();
    assert_eq!(
        (&letter["target"], &letter["url"], &letter["attempts"], &letter["errorMessage"]),
        (&json!("callback"), &json!(url), &json!(4), &json!("answered 503"))
    );
    let told = listener.of("/done")[0].json();
    let events = sandbox.run(&["events", "query", "--type", "Job Completed", "--json"]).ok().json();
    let at = events["items"][0]["timestamp"].as_u64().unwrap();
    assert_eq!(told["at"], at);
    let alert = listener.of("/slack")[0].json();
    let time = tidemill_engine::outbound::alert_text::iso(tidemill_model::Timestamp::clamped(at));
    let expected = format!(
        ":rotating_light: *EventBridge delivery failure*\n*Event type:* Job Completed\n*Detail type:* log-event\n\
         *Task:* JOB#{job}\n*Time:* {time}\n*Message ID:* {id}"
    );
    assert_eq!(alert, json!({ "text": expected }));
    healed.store(true, Ordering::SeqCst);
    let again = sandbox.run(&["dead-letters", "replay", id, "--json"]).ok().json();
    eventually("that it arrived", || listener.of("/done").len() == 5);
    let arrived = listener.of("/done").remove(4);
    assert_eq!(arrived.header("tidemill-delivery"), again["deliveryId"].as_str().unwrap());
    assert_eq!(arrived.json(), told);
    server.stop().ok();
}

#[test]
fn a_callback_goes_only_where_the_operator_lets_it() {
    let sandbox = Sandbox::new();
    let listener = Listener::start(|_, _| status(200, ""));
    let url = format!("{}/done", listener.url);
    sandbox.write("job.json", &callback_job(&url, "true"));
    for (hosts, expected) in [
        ("", "callbackUrl: names the host 127.0.0.1, which CALLBACK_ALLOWED_HOSTS does not list"),
        ("hooks.example.com,127.0.0.2", "callbackUrl: names the host 127.0.0.1"),
    ] {
        let refused = sandbox.run_with(&["run", "job.json"], &[("CALLBACK_ALLOWED_HOSTS", hosts)]);
        assert_ne!(refused.code, 0, "{refused:#?}");
        assert!(refused.words.contains(expected), "{refused:#?}");
    }
    sandbox.write("bad.json", &callback_job("http://user:secret@127.0.0.1/", "true"));
    let refused = sandbox.run_with(&["run", "bad.json"], &[("CALLBACK_ALLOWED_HOSTS", "127.0.0.1")]);
    assert!(refused.code != 0 && refused.words.contains("callbackUrl"), "{refused:#?}");
    assert_eq!(sandbox.run(&["jobs", "list", "--json"]).ok().json()["items"], json!([]));
    // The command that runs the job tells it before it ends. Proxies of the environment are not asked.
    let settings = [
        ("CALLBACK_ALLOWED_HOSTS", host_of(&listener)),
        ("HTTP_PROXY", "http://127.0.0.1:9/"),
        ("http_proxy", "http://127.0.0.1:9/"),
        ("ALL_PROXY", "http://127.0.0.1:9/"),
    ];
    sandbox.run_with(&["run", "job.json"], &settings).ok();
    assert_eq!(listener.of("/done").len(), 1);
    assert_eq!(
        listener.of("/done")[0].header("tidemill-signature"),
        "",
        "without a key there is no signature"
    );
}
