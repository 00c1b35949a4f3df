//! A server that may open only few files: a client that finds no place is told so, and none is cut off.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::sandbox::{PATIENCE, Sandbox, eventually};

/// So few that connections use them up before the server would refuse one by its own count.
const FILES: u32 = 30;

/// A request on a connection of its own, and the first bytes of the answer.
fn ask(url: &str, path: &str) -> (TcpStream, String) {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).unwrap_or_else(|error| panic!("{path}: no answer: {error}"));
    answer.truncate(count);
    (stream, String::from_utf8(answer).unwrap())
}

#[test]
fn without_files_to_open_clients_hear_503() {
    let sandbox = Sandbox::new();
    let script = format!("ulimit -n {FILES}; exec \"$0\" serve --no-worker --listen 127.0.0.1:0");
    let server = sandbox.serve_by("sh", &["-c", &script]);
    let mut open = Vec::new();
    let mut refused = 0;
    // Streams stay open, so nobody is idle whose place another could take.
    for number in 0..2 * FILES {
        let (stream, answer) = ask(&server.url, "/v1/stream");
        if answer.starts_with("HTTP/1.1 200 ") {
            open.push(stream);
            continue;
        }
        assert!(answer.starts_with("HTTP/1.1 503 "), "number {number}: {answer:?}");
        assert!(answer.contains("\r\nretry-after: "), "{answer}");
        refused += 1;
    }
    assert!(refused > 0 && !open.is_empty(), "{refused} refused, {} open", open.len());
    drop(open);
    eventually("places for others", || {
        let (stream, answer) = ask(&server.url, "/healthz");
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        answer.starts_with("HTTP/1.1 200 ")
    });
    server.stop().ok();
}
