//! What bodies cost a server: its peak of memory, as the kernel counts it. `scripts/measure-bodies` measures more of it,
//! and how long others wait meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::sandbox::{Sandbox, Server, eventually};

/// Smaller than bodies may be: what counts is how many times its size one takes.
const BODY_BYTES: usize = 4 * 1024 * 1024;
const LARGEST_BYTES: usize = 16 * 1024 * 1024;
/// What one body may take, for each of its bytes.
const PEAK_FACTOR_MAX: usize = 20;
/// What twelve at once may take, with all else.
const TWELVE_BYTES_MAX: usize = 600 * 1024 * 1024;
/// What logins that never end may take together.
const LOGINS_BYTES_MAX: usize = 100 * 1024 * 1024;

/// A field of `/proc/PID/status`, in bytes.
fn memory(server: &Server, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.process.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<usize>().unwrap() * 1024
}

fn connect(url: &str) -> TcpStream {
    TcpStream::connect(url.trim_start_matches("http://")).unwrap()
}

fn head(url: &str, path: &str, media: &str, bytes: usize) -> String {
    let host = url.trim_start_matches("http://");
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {url}\r\nConnection: close\r\nContent-Type: {media}\r\n\
         Content-Length: {bytes}\r\n\r\n"
    )
}

/// The status and the whole answer.
fn post(url: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = connect(url);
    stream.write_all(head(url, path, "application/json", body.len()).as_bytes()).unwrap();
    // One that is refused is not read to its end.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer to {path}: {answer:?}")), answer)
}

/// The server says that it lives. How long that takes is for `scripts/measure-bodies` to tell.
fn ask_for_health(url: &str) {
    let mut stream = connect(url);
    let host = url.trim_start_matches("http://");
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// A body made of many of the same.
fn full(begin: &str, item: &str, end: &str) -> String {
    let count = (BODY_BYTES - begin.len() - end.len()) / (item.len() + 1);
    format!("{begin}{}{end}", vec![item; count].join(","))
}

#[test]
fn one_body_takes_at_most_twenty_times_its_size() {
    let sandbox = Sandbox::new();
    let task = r#"{"tasks":[{"taskId":"a","run":"x","#;
    for (path, begin, item, end, expected) in [
        ("/v1/jobs", format!(r#"{task}"input":{{"a":["#), r#"{"a":0}"#, "]}}]}", "201"),
        ("/v1/jobs", format!(r#"{task}"dependsOn":["#), "0", "]}]}", "TOO_LONG"),
        ("/v1/jobs", format!(r#"{task}"labels":["#), r#"{"a":0}"#, "]}]}", "TOO_LONG"),
        ("/v1/jobs", r#"{"tasks":["#.to_owned(), "{}", "]}", "TOO_MANY_TASKS"),
        ("/v1/events", r#"{"events":["#.to_owned(), r#"{"eventType":"a.b"}"#, "]}", "TOO_MANY"),
        ("/v1/workflow-events", "[".to_owned(), "0", "]", "TOO_MANY"),
        ("/v1/task-definitions", r#"{"name":"x","command":["#.to_owned(), r#"{"a":0}"#, "]}", "TOO_LARGE"),
    ] {
        let server = sandbox.serve(&["--no-worker"], &[]);
        let rest = memory(&server, "VmHWM");
        let body = full(&begin, item, end);
        let (status, answer) = post(&server.url, path, &body);
        let used = memory(&server, "VmHWM") - rest;
        let most = PEAK_FACTOR_MAX * body.len();
        assert!(used <= most, "{path} {begin}{item}: {} MiB", used >> 20);
        assert!(
            expected == status.to_string() || answer.contains(expected),
            "{path} {begin}{item}: {answer}"
        );
        server.process.kill();
    }
}

#[test]
fn twelve_bodies_at_once_take_turns() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--no-worker"], &[]);
    // A part that takes much memory where it is made into values, and a part that is read soon: the machine may be slow,
    // and turns are not waited for without end.
    let begin = full(r#"{"tasks":[{"taskId":"a","run":"x","labels":["#, r#"{"a":0}"#, r#"],"name":""#);
    let end = r#""}]}"#;
    let body = format!("{begin}{}{end}", "x".repeat(LARGEST_BYTES - begin.len() - end.len()));
    let url = &server.url;
    std::thread::scope(|scope| {
        let sent: Vec<_> = (0..12).map(|_| scope.spawn(|| post(url, "/v1/jobs", &body))).collect();
        while sent.iter().any(|answer| !answer.is_finished()) {
            ask_for_health(url);
        }
        for answer in sent {
            let (status, answer) = answer.join().unwrap();
            let is_read = status == 400 && answer.contains("TOO_LONG");
            assert!(is_read || status == 503 && answer.contains("TOO_MANY_BODIES"), "{answer}");
        }
    });
    let peak = memory(&server, "VmHWM");
    assert!(peak <= TWELVE_BYTES_MAX, "{} MiB", peak >> 20);
}

#[test]
fn logins_that_never_end_hold_little() {
    let sandbox = Sandbox::new();
    sandbox.run(&["keys", "create", "--role", "admin"]).ok();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let rest = memory(&server, "VmHWM");
    let head = head(&server.url, "/login", "application/x-www-form-urlencoded", 2 * 1024 * 1024);
    let mut streams: Vec<_> = (0..300).map(|_| connect(&server.url)).collect();
    let mut sent = 0;
    for stream in &mut streams {
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    // Until nobody takes any more, or all but the last byte has come.
    let more = vec![b'x'; 32 * 1024];
    for _ in 0..63 {
        for stream in &mut streams {
            sent += stream.write(&more).unwrap_or(0);
        }
    }
    assert!(sent > 100 * 1024 * 1024, "the bytes did come: {sent}");
    let (status, answer) = post(&server.url, "/login", &"x".repeat(5_000));
    assert_eq!(status, 403, "it is no form: {answer}");
    eventually("an answer to a login that is too large", || {
        let mut stream = connect(&server.url);
        let form = format!("key={}", "x".repeat(5_000));
        let head = self::head(&server.url, "/login", "application/x-www-form-urlencoded", form.len());
        stream.write_all(format!("{head}{form}").as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 413 ") && answer.contains(r#""code":"TOO_LARGE""#)
    });
    let used = memory(&server, "VmHWM") - rest;
    assert!(used <= LOGINS_BYTES_MAX, "{} MiB", used >> 20);
}
