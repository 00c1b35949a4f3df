//! The program's own lines as JSON.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::outbound::{Listener, host_of, status};
use crate::sandbox::{Ran, Sandbox, eventually};

/// All lines, each of which must be a whole record.
fn records(ran: &Ran) -> Vec<Value> {
    let read = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let at = record["ts"].as_str().unwrap_or_else(|| panic!("no time: {line}"));
        assert!(at.len() == 24 && at.ends_with('Z') && at.starts_with("20"), "{line}");
        assert!(["info", "warn", "error"].contains(&record["level"].as_str().unwrap()), "{line}");
        assert!(record["message"].is_string(), "{line}");
        record
    };
    ran.words.lines().map(read).collect()
}

fn with<'a>(records: &'a [Value], message: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["message"].as_str().unwrap().contains(message)).collect()
}

const JOB: &str = "name: talk\ntasks:\n- {taskId: say, run: 'echo \"a \\\"quoted\\\" word\"; echo aside >&2; echo key=sk-ant-api03-$(printf a%.0s $(seq 40))'}\n\
                   - {taskId: fail, run: 'echo bad credentials >&2; exit 1', dependsOn: [say], retry: {maxAttempts: 1}}\n";

#[test]
fn a_server_and_a_worker_write_one_object_a_line_with_their_ids() {
    let sandbox = Sandbox::new();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--no-worker", "--log-format", "json"];
    let mut server = sandbox.start(&arguments, &[]);
    server.wait_for("listening on http://");
    let file: Value = serde_json::from_str(&sandbox.read(".tidemill/server.json")).unwrap();
    let url = file["url"].as_str().unwrap().to_owned();
    let mut worker = sandbox.start(&["worker", "--server", &url], &[("LOG_FORMAT", "json")]);
    worker.wait_for("working for");
    sandbox.write("job.yaml", JOB);
    let job = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("the end of the job", || {
        sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "failed"
    });
    worker.signal(Signal::TERM);
    let ended = worker.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    let lines = records(&ended);
    let said = with(&lines, "a \"quoted\" word");
    let [said] = said.as_slice() else { panic!("{lines:#?}") };
    let name = |record: &Value, field: &str| record[field].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (name(said, "tenant"), name(said, "job"), name(said, "task")),
        ("default".into(), job.clone(), "say".into())
    );
    assert_eq!(name(said, "request"), format!("{job}_say"));
    assert_eq!((&said["run"], &said["attempt"], &said["stream"]), (&1.into(), &1.into(), &"stdout".into()));
    assert_eq!(with(&lines, "aside")[0]["stream"], "stderr");
    assert_eq!(with(&lines, "key=[REDACTED]").len(), 1, "secrets are not passed on: {lines:#?}");
    let ends = with(&lines, "attempt ended");
    assert_eq!(ends.len(), 2, "{lines:#?}");
    assert_eq!(
        (name(ends[0], "task"), name(ends[0], "outcome"), name(ends[0], "level")),
        ("say".into(), "completed".into(), "info".into())
    );
    assert_eq!(
        (name(ends[1], "task"), name(ends[1], "outcome"), name(ends[1], "level")),
        ("fail".into(), "failed".into(), "warn".into())
    );
    assert!(ends.iter().all(|end| end["durationMs"].is_u64()) && ends[1]["class"].is_string(), "{ends:#?}");
    assert!(!name(said, "worker").is_empty() && name(said, "worker") == name(ends[1], "worker"));
    assert!(with(&lines, "working for")[0].get("job").is_none(), "what is not known is left out");

    server.signal(Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.code, 0, "{ended:#?}");
    let lines = records(&ended);
    assert!(with(&lines, "listening on").len() == 1 && with(&lines, "stopped").len() == 1, "{lines:#?}");
}

#[test]
fn a_run_writes_them_too_and_other_commands_speak_to_people() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let ran = sandbox.run(&["run", "job.yaml", "--log-format", "json"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let lines = records(&ran);
    assert_eq!(with(&lines, "a \"quoted\" word").len(), 1, "{lines:#?}");
    assert_eq!(with(&lines, "attempt ended").len(), 2);
    assert!(with(&lines, "go on with: tidemill run").len() == 1, "{lines:#?}");
    // An error that ends the command is one of its lines.
    let ran = sandbox.run_with(&["serve", "--listen", "203.0.113.1:7070"], &[("LOG_FORMAT", "json")]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    let lines = records(&ran);
    assert_eq!(lines.last().unwrap()["level"], "error", "{lines:#?}");
    let ran = sandbox.run_with(&["jobs", "get", "job-0"], &[("LOG_FORMAT", "json")]);
    assert!(ran.code != 0 && !ran.words.starts_with('{'), "{ran:#?}");
    // A form that there is not.
    for (arguments, environment) in
        [(&["serve", "--log-format", "xml"][..], None), (&["serve"], Some(("LOG_FORMAT", "xml")))]
    {
        let ran = sandbox.run_with(arguments, environment.as_slice());
        assert!(ran.code == 2 && ran.words.contains("json") && ran.words.contains("xml"), "{ran:#?}");
    }
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Each line of a server and of its tasks has its time and how much it matters.
#[test]
fn lines_of_text_have_time_and_level() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[]);
    sandbox.write("job.yaml", JOB);
    let job = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("the end of the job", || {
        sandbox.run(&["jobs", "get", &job, "--json"]).ok().json()["status"] == "failed"
    });
    let ended = server.stop();
    for line in ended.words.lines() {
        let (time, rest) = line.split_at(24);
        assert!(time.starts_with("20") && time.ends_with('Z') && time.as_bytes()[10] == b'T', "{line:?}");
        assert!([" info  ", " warn  ", " error "].iter().any(|level| rest.starts_with(level)), "{line:?}");
    }
    assert!(ended.words.contains("Z info  listening on http://"), "{ended:#?}");
    assert!(ended.words.contains(&format!("Z info  [WORKFLOW:{job}_say] aside")), "{ended:#?}");
    let asked = sandbox.run(&["jobs", "list", "--server", "http://127.0.0.1:9"]);
    assert!(
        asked.words.starts_with("tidemill: cannot reach"),
        "a command that only asks has none: {asked:#?}"
    );
}

/// The program that starts a server may not read what it says: a pager, a log shipper that hangs.
#[test]
fn a_standard_error_that_nobody_reads_holds_up_nothing_and_no_alert_is_lost() {
    let sandbox = Sandbox::new();
    let listener = Listener::start(|_, _| status(500, ""));
    let mut command = sandbox.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("CALLBACK_ALLOWED_HOSTS", host_of(&listener)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = Killed(command.spawn().unwrap());
    let mut said = BufReader::new(server.0.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().split_once("listening on http://").unwrap().1.to_owned();
    // More than a pipe holds.
    let task =
        json!({"taskId": "loud", "run": "yes 0123456789012345678901234567890123456789 | head -n 20000"});
    let job = json!({"name": "loud", "callbackUrl": format!("{}/done", listener.url), "tasks": [task]});
    sandbox.write("loud.json", &job.to_string());
    sandbox.run(&["submit", "loud.json", "--watch"]).ok();
    let failed = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the server answers");
        let line = "tidemill_delivery_tries_total{result=\"failed\"} ";
        text.lines().find_map(|own| own.strip_prefix(line)?.parse::<u64>().ok()).unwrap()
    };
    // Four tries of the callback, and one of the alert that tells of it.
    eventually("that the alert could not be written", || failed() >= 5);
    let mut rest = String::new();
    while !rest.contains("alert: ") {
        rest.clear();
        assert!(said.read_line(&mut rest).unwrap() > 0, "it ended");
    }
    assert!(rest.contains("EventBridge delivery failure"), "{rest}");
    rustix::process::kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    let reading = std::thread::spawn(move || io::copy(&mut said, &mut io::sink()));
    assert!(server.0.wait().unwrap().success());
    reading.join().unwrap().unwrap();
}

/// What a filter says is shown, and nothing that anybody sent.
#[test]
fn every_line_that_there_is_holds_no_token_and_no_payload() {
    const PAYLOAD: &str = "payload-that-is-nobodys-business";
    let sandbox = Sandbox::new();
    let admin = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let server = sandbox.serve(&["--no-worker"], &[("TIDEMILL_LOG", "trace")]);
    let mut worker = sandbox.start(
        &["worker", "--server", &server.url],
        &[("TIDEMILL_LOG", "trace"), ("TIDEMILL_API_KEY", &key)],
    );
    worker.wait_for("working for");
    let task =
        json!({"taskId": "quiet", "run": "cat \"$INPUT_FILE\" > /dev/null", "input": {"word": PAYLOAD}});
    sandbox.write("job.json", &json!({"name": "quiet", "tasks": [task]}).to_string());
    let own = [("TIDEMILL_API_KEY", admin.as_str()), ("TIDEMILL_LOG", "trace")];
    let mut said = sandbox.run_with(&["submit", "job.json", "--watch"], &own).ok().words;
    // One that is refused: only its sender learns what is wrong with it.
    let wrong = json!({"tasks": [{"taskId": "a", "run": "true", "timeout": PAYLOAD}]}).to_string();
    let host = server.url.trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&host).unwrap();
    write!(
        stream,
        "POST /v1/jobs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {admin}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{wrong}",
        wrong.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    worker.signal(Signal::TERM);
    let worker = worker.end();
    let server = server.stop();
    assert!(server.words.contains(" debug answered ("), "{}", server.words);
    assert!(server.words.contains("route=/v1/worker/finish"), "{}", server.words);
    said.push_str(&worker.words);
    said.push_str(&server.words);
    for secret in [PAYLOAD, admin.as_str(), key.as_str()] {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
}

#[test]
fn a_filter_says_which_lines_are_shown() {
    let asked = |environment: &[(&str, &str)]| {
        let sandbox = Sandbox::new();
        let server = sandbox.serve(&["--no-worker"], environment);
        sandbox.run(&["jobs", "list"]).ok();
        server.stop().ok().words.contains(" debug answered (")
    };
    assert!(!asked(&[]));
    assert!(asked(&[("TIDEMILL_LOG", "debug")]));
    assert!(asked(&[("RUST_LOG", "info,tidemill_server=debug")]));
    assert!(!asked(&[("RUST_LOG", "debug"), ("TIDEMILL_LOG", "warn")]), "the own setting goes before");
    assert!(!asked(&[("RUST_LOG", "other[span]=debug")]), "what is meant for others is no mistake");
    let sandbox = Sandbox::new();
    let ran = sandbox.run_with(&["serve"], &[("TIDEMILL_LOG", "loud")]);
    assert!(ran.code == 2 && ran.words.contains("TIDEMILL_LOG") && ran.words.contains("debug"), "{ran:#?}");
}
