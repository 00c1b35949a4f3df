//! A server without keys is for its own user and root; other users of the machine, and tasks that run as one, are
//! strangers. These tests need the right to become another user.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sandbox::{Sandbox, Server, eventually};

/// A user that is no one else here.
const NOBODY: u32 = 65_534;

/// Whether this process may become another user. Where CI cannot, the test fails.
fn may_become_others() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        crate::parts::skip("this user cannot become another one");
    }
    may
}

fn address(server: &Server) -> (&str, &str) {
    server.url.trim_start_matches("http://").split_once(':').unwrap()
}

fn request(server: &Server, method: &str, path: &str, body: &str) -> String {
    let (host, port) = address(server);
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// What the server answers to a process of another user.
fn as_nobody(server: &Server, method: &str, path: &str, body: &str) -> String {
    let (host, port) = address(server);
    let say = format!("exec 3<>/dev/tcp/{host}/{port} && cat >&3 && cat <&3");
    let mut command = Command::new("bash");
    command.args(["-c", &say]).current_dir("/").uid(NOBODY).gid(NOBODY);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // A server that refuses need not read all.
    let _ = child.stdin.take().unwrap().write_all(request(server, method, path, body).as_bytes());
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

/// What it answers to us.
fn as_owner(server: &Server, method: &str, path: &str, body: &str) -> String {
    let (host, port) = address(server);
    let mut stream = TcpStream::connect((host, port.parse().unwrap())).unwrap();
    stream.write_all(request(server, method, path, body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn is_refused(answer: &str) -> bool {
    answer.starts_with("HTTP/1.1 403 ") && answer.contains(r#""code":"FOREIGN_USER""#)
}

#[test]
fn another_user_of_the_machine_is_refused_everywhere() {
    if !may_become_others() {
        return;
    }
    let sandbox = Sandbox::new();
    let mut server = sandbox.serve(&["--no-worker"], &[]);
    let document = as_owner(&server, "GET", "/openapi.json", "");
    let document: Value = serde_json::from_str(document.split_once("\r\n\r\n").unwrap().1).unwrap();
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let method = method.to_uppercase();
            let answer = as_nobody(&server, &method, path, "{}");
            // What is answered to HEAD has no body.
            assert!(is_refused(&answer), "{method} {path}: {answer}");
            asked += 1;
        }
    }
    assert!(asked > 60, "{asked}");
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/jobs"),
        ("GET", "/live/"),
        ("GET", "/live/jobs"),
        ("GET", "/login"),
        ("POST", "/login"),
        ("POST", "/logout"),
        ("GET", "/assets/style.css"),
        ("GET", "/v1/stream"),
        ("GET", "/nowhere"),
        ("DELETE", "/v1/jobs"),
    ] {
        let answer = as_nobody(&server, method, path, "");
        assert!(is_refused(&answer), "{method} {path}: {answer}");
    }
    assert!(as_owner(&server, "GET", "/v1/jobs", "").starts_with("HTTP/1.1 200 "));
    let told = server.process.wait_for("no API keys");
    assert!(told.contains("root") && told.contains("tidemill keys create"), "{told}");

    // The first key ends this: every user with the key gets in.
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let answer = as_nobody(&server, "GET", "/v1/jobs", "");
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let with_key = format!("/v1/jobs HTTP/1.1\r\nAuthorization: Bearer {token}\r\nX: ");
    let answer = as_nobody(&server, "GET", &with_key, "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    server.stop().ok();
}

#[test]
fn a_task_that_runs_as_another_user_cannot_make_itself_a_key() {
    if !may_become_others() {
        return;
    }
    let sandbox = Sandbox::new();
    let run_as = format!("{NOBODY}:{NOBODY}");
    // The task must be able to stand in its directory.
    let output = tempdir_for(NOBODY, &sandbox);
    let mut server = sandbox.serve(&["--run-as", &run_as], &[("OUTPUT_DIR", &output)]);
    let (host, port) = address(&server);
    let body = r#"{"role":"admin"}"#;
    let say = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf 'POST /v1/keys HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nConnection: close\\r\\n\
         Content-Type: application/json\\r\\nContent-Length: {}\\r\\n\\r\\n{body}' >&3; cat <&3",
        body.len()
    );
    let job = serde_json::json!({"tasks": [{"taskId": "a", "run": ["bash", "-c", format!("id -u; {say}")]}]});
    sandbox.write("job.json", &job.to_string());
    let id = sandbox.run(&["submit", "job.json"]).ok().out.trim().to_owned();
    let mut logs = String::new();
    eventually("the end of the task", || {
        let ran = sandbox.run(&["tasks", "logs", &format!("{id}_a")]);
        logs = format!("{}{}", ran.out, ran.words);
        // The whole answer: head and body may come apart.
        logs.contains("HTTP/1.1 ") && logs.trim_end().ends_with('}')
    });
    assert!(
        logs.contains("65534") && logs.contains("HTTP/1.1 403 ") && logs.contains("FOREIGN_USER"),
        "{logs}"
    );
    let keys = sandbox.run(&["keys", "list", "--json"]).ok().json();
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(0), "{keys}");
    let told = server.process.wait_for("no API keys");
    assert!(told.contains("65534"), "it tells whom tasks run as: {told}");
    server.stop().ok();
}

/// A directory that another user may use.
fn tempdir_for(uid: u32, sandbox: &Sandbox) -> String {
    let dir = sandbox.dir.join("output");
    std::fs::create_dir(&dir).unwrap();
    std::os::unix::fs::chown(&dir, Some(uid), Some(uid)).unwrap();
    dir.to_str().unwrap().to_owned()
}
