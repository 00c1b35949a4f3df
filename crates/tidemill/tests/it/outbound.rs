//! What is told to others: webhooks, dead letters of deliveries, alerts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use ring::hmac;
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually};

/// A request that somebody made.
#[derive(Debug, Clone)]
struct Asked {
    path: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// How a listener answers a request, which is the so-manyth of its path.
type Answers = dyn Fn(&str, usize) -> String + Send + Sync;

/// Listens for webhooks.
struct Listener {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Listener {
    fn start(answers: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
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

    fn of(&self, path: &str) -> Vec<Asked> {
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

fn status(code: u16, more: &str) -> String {
    format!("HTTP/1.1 {code} X\r\nconnection: close\r\ncontent-length: 0\r\n{more}\r\n")
}

fn ok_json(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
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
        let (at, mac) = asked.header("tidemill-signature").split_once(",v1=").unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"a key of ours");
        let signed = hmac::sign(&key, format!("{}.{}", at.trim_start_matches("t="), asked.body).as_bytes());
        let expected: String = signed.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(mac, expected);
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
    let healed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let listener = Listener::start(move |path, count| match path {
        "/hook" if is_healed.load(std::sync::atomic::Ordering::SeqCst) => status(200, ""),
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
    healed.store(true, std::sync::atomic::Ordering::SeqCst);
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
